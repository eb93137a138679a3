"""Warnings about values on another scale than an op takes them for, from the first row of the data."""

import sys
import warnings
from contextlib import suppress
from typing import Any

import numpy as np

from .chain import Chain


def warn(message: str) -> None:
    """Warn in the line of the user's that called this library."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == "loaderx"


def largest(chain: Chain) -> float:
    """The largest value of the first row behind the ops so far; 0 where that is not known."""
    spec = chain.input
    with suppress(Exception):  # a row that cannot be read is reported at its step
        values = np.asarray(chain.first_sample(), np.float64)
        for step in chain.steps:
            op: Any = step.transform
            if op.is_scaling:
                scale, bias = op.scale_and_bias(spec)
                values = values * scale + bias
            elif not (op.takes_images or op.keeps_axes):
                return 0.0
            spec = op.output(spec)
        return float(np.max(values, initial=0.0, where=np.isfinite(values)))
    return 0.0
