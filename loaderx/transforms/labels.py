"""OneHot: integer labels as rows of floats."""

from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.spec import Spec

from .base import Parameter, between, is_integer
from .sample import SampleTransform


def one_hot(x: Any, out: Any, high: float, low: float) -> None:
    """Write `high` at the label, `low` elsewhere."""
    label = x[0]
    if not 0 <= label < out.shape[0]:
        raise ValueError("OneHot: a label is outside of the classes")
    for k in range(out.shape[0]):
        out[k] = np.float32(low)
    out[label] = np.float32(high)


class OneHot(SampleTransform):
    """One-hot label: `classes` floats, 1 at the label and 0 elsewhere, mixed with an even spread by `smoothing`."""

    function = staticmethod(one_hot)
    in_place = False
    takes_rng = False

    def __init__(self, classes: int, *, smoothing: float = 0.0) -> None:
        if not is_integer(classes, 1):
            raise ArgumentError(f"`classes` (={classes!r}) must be an integer of at least 1.")
        self._classes = int(classes)
        self._smoothing = between("smoothing", smoothing, 0, 1)

    def output(self, spec: Spec) -> Spec:
        if spec.shape not in ((), (1,)) or spec.dtype.kind not in "iu":
            raise ArgumentError(f"OneHot accepts single integers, not {spec}.")
        return Spec((self._classes,), np.float32)

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        low = self._smoothing / self._classes
        return {"high": 1.0 - self._smoothing + low, "low": low}
