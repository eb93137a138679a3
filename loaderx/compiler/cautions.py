"""Warnings about values on another scale than an op takes them for, from the first row of the data."""

import sys
import warnings
from contextlib import suppress

import numpy as np

from loaderx.spec import Spec
from loaderx.transforms.image import ImageTransform
from loaderx.transforms.transform import ScaleTransform, Transform
from loaderx.transforms.values import Cast, Normalize, full_scale

from .chain import Chain
from .draft import Step

# Floats from 0 to 1 may be a little above 1 where something sharpened them.
BRIGHTEST = 1.5


def warn(message: str) -> None:
    """Warn in the line of the user's that called this library."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == "loaderx"


def caution(op: Transform, spec: Spec, chain: Chain) -> str | None:
    """What is wrong with the values of `spec` that an op behind `chain` gets, if anything."""
    if isinstance(op, Normalize) and spec.dtype.kind in "iu" and op.beyond_one:
        white = full_scale(spec)
        mean, std = (np.round(values / white, 4).tolist() for values in op.mean_and_std)
        return (
            f"{op!r} gets {spec.dtype}, which it divides by {white:g} before: `mean` and `std` must be on the scale "
            f"from 0 to 1, as in Normalize({mean}, {std})."
        )
    if isinstance(op, ImageTransform) and op.clips and spec.dtype.kind == "f":
        largest = _largest(chain)
        if largest > BRIGHTEST:
            return (
                f"{op.name} takes floats for images from 0 to 1 and clips what is outside, and values go up to "
                f"{largest:g} in the first row of the data. Divide them before, or leave them uint8, and put "
                "Normalize after it."
            )
    return None


def _largest(chain: Chain) -> float:
    """The largest value of the first row behind the ops so far; 0 where that is not known."""
    spec = chain.input
    with suppress(Exception):  # a row that cannot be read is reported at its step
        values = np.asarray(chain.first_sample(), np.float64)
        for step in chain.steps:
            op = step.transform if isinstance(step, Step) else None
            if isinstance(op, ScaleTransform):
                scale, bias = op.scale_and_bias(spec)
                values = values * scale + bias
            elif op is None or not (op.takes_images or isinstance(op, Cast)):
                return 0.0
            spec = op.output(spec)
        return float(np.max(values, initial=0.0, where=np.isfinite(values)))
    return 0.0
