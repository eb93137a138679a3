"""Lengths of the data in samples that end with padding: they follow ops that cut the samples."""

from typing import Any

import numpy as np

from loaderx.spec import Spec

from .base import Parameter
from .sample import SampleTransform


def at_most(x: Any, most: int) -> None:
    """Return a length after a cut."""
    x[0] = min(np.int64(x[0]), most)


class AtMost(SampleTransform):
    """Length after samples were cut to `most` entries."""

    function = staticmethod(at_most)
    in_place = True
    takes_rng = False

    def __init__(self, most: int) -> None:
        self._most = most

    def output(self, spec: Spec) -> Spec:
        return spec

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return {"most": self._most}
