"""Warnings about values on another scale than an op expects, from the first row of the data."""

import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.spec import Spec
from loaderx.transforms.base import Transform
from loaderx.transforms.combinators import Branching
from loaderx.transforms.combinators import Sequence as Ops

from .chain import Chain


def warn(message: str) -> None:
    """Warn at the line of the user's code that called this library."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == "loaderx"


def largest(chain: Chain, before: Sequence[Transform]) -> float:
    """Return the largest value of the first row after the ops of the chain and those in `before`; 0 if unknown."""
    with suppress(Exception):  # a row that cannot be read is reported at its step
        values = np.asarray(chain.first_sample(), np.float64)
        spec = chain.input
        for op in (*(step.transform for step in chain.steps), *before):
            values = _after(op, values, spec)
            spec = op.output(spec)
        return float(np.max(values, initial=0.0, where=np.isfinite(values)))
    return 0.0


def _after(op: Any, values: NDArray[np.float64], spec: Spec) -> NDArray[np.float64]:
    """Return values rescaled as by an op; raise if the scale after it is not known."""
    if op.is_scaling:
        scale, bias = op.scale_and_bias(spec)
        scaled: NDArray[np.float64] = values * scale + bias
        return scaled
    if isinstance(op, Ops):
        for own in op.ops:
            values = _after(own, values, spec)
            spec = own.output(spec)
        return values
    if isinstance(op, Branching):
        # The branches may have different scales after them, unless none changes the scale.
        scales = [_after(branch, values, spec) for branch in op.branches]
        known = all(scale is values for scale in scales)
    else:
        known = op.takes_images or op.keeps_axes or op.does_nothing
    if not known:
        raise LookupError(f"the scale of the values after {op.name} is not known")
    return values
