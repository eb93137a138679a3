"""MixUp and CutMix: every sample with a partner of the same batch, all listed fields alike."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels.mix import cut_mix, cut_mix_series, mix_up
from loaderx.spec import Spec

from .base import Transform, as_number
from .step import Step

if TYPE_CHECKING:
    from loaderx.compiler.chain import Chain

# (first place, positions, partners, key, samples of the whole batch, out)
Mixer = Callable[[int, NDArray[Any], NDArray[Any], np.uint64, NDArray[Any], NDArray[Any]], None]


class MixTransform(Transform):
    """An op that needs the whole batch: it begins when all samples have come so far."""

    keeps_axes = True
    needs_batch = True

    def __init__(self, alpha: float = 1.0) -> None:
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

    def add_to(self, chain: "Chain", step: Step) -> None:
        assert step.image is not None
        output = self.output(chain.output)
        chain.begin_phase(self.mixer(step.image, output), step.key)

    def write(self, table: Any, group: Any, x: int, out: int, spec: Spec) -> None:
        raise AssertionError("samples are mixed between two tables, and never inside of one")

    @abstractmethod
    def mixer(self, image: Spec, spec: Spec) -> Mixer:
        """The compiled function for a field of `spec`, where `image` is the first field of the entry."""


class MixUp(MixTransform):
    """share * sample + (1 - share) * partner, the share drawn per sample from Beta(alpha, alpha)."""

    def mixer(self, image: Spec, spec: Spec) -> Mixer:
        def run(
            first: int, positions: Any, partners: Any, key: Any, samples: Any, out: Any
        ) -> None:
            mix_up(first, positions, partners, key, self.alpha, samples, out)

        return run


class CutMix(MixTransform):
    """A part of the partner in the sample, and labels mixed by the share of it; the entry's first field decides.

    In an image of (height, width, channels) it is a box, drawn and clipped as in the code of the paper (Yun et al.,
    2019). In a time series of (time,) or (time, channels) it is a stretch of time. It is pasted into all fields of the
    same height and width, or of the same time, which is the first axis: a label of as many classes as a series has
    moments is taken for a series.
    """

    spatial = True

    def mixer(self, image: Spec, spec: Spec) -> Mixer:
        if len(image.shape) not in (1, 2, 3) or 0 in image.shape:
            raise ArgumentError(
                f"CutMix needs an image of shape (height, width, channels) or a time series of shape (time,) or "
                f"(time, channels) as the first field, not {image}."
            )
        if len(image.shape) < 3:
            return self._series_mixer(image.shape[0], spec)
        height, width = image.shape[:2]
        pasted = spec.shape[:2] == (height, width)

        def run(
            first: int, positions: Any, partners: Any, key: Any, samples: Any, out: Any
        ) -> None:
            if pasted:
                cut_mix(
                    first, positions, partners, key, self.alpha, height, width, True, samples, out
                )
            else:
                cut_mix(
                    first, positions, partners, key, self.alpha, height, width, False, samples, out
                )

        return run

    def _series_mixer(self, length: int, spec: Spec) -> Mixer:
        pasted = spec.shape[:1] == (length,)

        def run(
            first: int, positions: Any, partners: Any, key: Any, samples: Any, out: Any
        ) -> None:
            cut_mix_series(
                first, positions, partners, key, self.alpha, length, pasted, samples, out
            )

        return run
