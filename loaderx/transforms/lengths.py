"""Lengths behind samples that are filled up with padding: they follow what cuts the samples."""

from typing import Any

import numpy as np

from loaderx.spec import Spec

from .base import Parameter
from .sample import SampleTransform


def at_most(x: Any, most: int) -> None:
    """A length behind a cut."""
    x[0] = min(np.int64(x[0]), most)


class AtMost(SampleTransform):
    """What is left of a length where samples were cut to `most` entries."""

    function = staticmethod(at_most)
    in_place = True
    takes_rng = False

    def __init__(self, most: int) -> None:
        self._most = most

    def output(self, spec: Spec) -> Spec:
        return spec

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return {"most": self._most}
