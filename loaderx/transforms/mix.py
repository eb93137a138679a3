"""MixUp and CutMix: every sample mixed with a partner of the same batch, in all listed fields."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels.mix import cut_mix, cut_mix_series, mix_up
from loaderx.spec import Spec

from .base import Transform, as_number, between
from .step import Step

if TYPE_CHECKING:
    from loaderx.compiler.chain import Chain

# (first place, positions, partners, key, samples of the whole batch, masks of objects of the whole batch or None, out).
# Samples and masks are rows of values. partners[k] are the places of the k-th partner of each sample.
Mixer = Callable[
    [int, NDArray[Any], NDArray[Any], np.uint64, NDArray[Any], Any, NDArray[Any]], None
]


@dataclass(frozen=True)
class Objects:
    """Mask of an entry that tells objects apart: its field and its spec.

    Its values are those of labels, or with `rows` the numbers of this many boxes, from 1. It is read as it is before
    `phase`, with which all fields of the entry begin to be mixed.
    """

    field: str
    spec: Spec
    rows: int | None
    phase: int


@dataclass(frozen=True)
class Mixing:
    """Mixing of samples of a batch: its kernel and parameters, the result, the partners of each sample, the objects."""

    mixer: Mixer
    output: Spec
    partners: int = 1
    objects: Objects | None = None


class BatchTransform(Transform):
    """Op that needs the whole batch: it begins when all samples are ready for it."""

    needs_batch = True

    def add_to(self, chain: "Chain", step: Step) -> None:
        chain.begin_phase(self.mixing(chain.output, step), step.key)

    @abstractmethod
    def mixing(self, spec: Spec, step: Step) -> Mixing:
        """Return how samples of `spec` are mixed at a step."""

    def write(self, table: Any, group: Any, x: int, out: int, spec: Spec) -> None:
        raise AssertionError("samples are mixed between two tables, and never inside of one")


class MixTransform(BatchTransform):
    """Op that mixes the values of every field of an entry."""

    keeps_axes = True
    mixes_values = True

    def __init__(self, alpha: float = 1.0, *, probability: float = 1.0) -> None:
        self.probability = between("probability", probability, 0, 1)
        self.alpha = as_number(alpha)
        if not 0 < self.alpha < math.inf:
            raise ArgumentError(f"`alpha` (={alpha!r}) must be a finite number above 0.")

    def output(self, spec: Spec) -> Spec:
        if spec.dtype != np.float32:
            raise ArgumentError(
                f"{self.name} mixes float32 fields, not {spec}; put Normalize or ToFloat before it, and OneHot "
                "for labels."
            )
        return spec

    def mixing(self, spec: Spec, step: Step) -> Mixing:
        assert step.image is not None
        output = self.output(spec)
        return Mixing(self.mixer(step.image, output), output)

    @abstractmethod
    def mixer(self, image: Spec, spec: Spec) -> Mixer:
        """Return the compiled function for a field of `spec`, where `image` is the first field of the entry."""


class MixUp(MixTransform):
    """MixUp: share * sample + (1 - share) * partner, the share drawn per sample from Beta(alpha, alpha)."""

    def mixer(self, image: Spec, spec: Spec) -> Mixer:
        return _mixer_of_pairs(mix_up, self.probability, self.alpha)


class CutMix(MixTransform):
    """CutMix: a part of the partner in the sample, labels mixed by its share; the first field of the entry decides.

    In an image of (height, width, channels) it is a box, drawn and clipped as in the code of the paper (Yun et al.,
    2019). In a time series of (time,) or (time, channels) it is a stretch of time. It is pasted into all fields of the
    same height and width, or of the same time, which is the first axis: a label of as many classes as a series has
    moments is treated as a series.
    """

    spatial = True

    def mixer(self, image: Spec, spec: Spec) -> Mixer:
        if len(image.shape) not in (1, 2, 3) or 0 in image.shape:
            raise ArgumentError(
                f"CutMix needs an image of shape (height, width, channels) or a time series of shape (time,) or "
                f"(time, channels) as the first field, not {image}."
            )
        if len(image.shape) < 3:
            length = image.shape[0]
            pasted = spec.shape[:1] == (length,)
            return _mixer_of_pairs(cut_mix_series, self.probability, self.alpha, length, pasted)
        height, width = image.shape[:2]
        pasted = spec.shape[:2] == (height, width)
        return _mixer_of_pairs(cut_mix, self.probability, self.alpha, height, width, pasted)


def _mixer_of_pairs(function: Any, *given: Any) -> Mixer:
    """Return a kernel that mixes every sample with one partner, with its parameters."""

    def run(
        first: int, positions: Any, partners: Any, key: Any, samples: Any, masks: Any, out: Any
    ) -> None:
        function(first, positions, partners[0], key, *given, samples, out)

    return run
