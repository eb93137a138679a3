"""Mosaic: four samples of a batch in one image."""

from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels import mosaic
from loaderx.spec import Spec

from .base import as_number, between, image_shape, is_integer, pair
from .composite import CompositeTransform
from .mix import Mixing
from .spatial import Fill, Filled, resized
from .step import Step


class Mosaic(Filled, CompositeTransform):
    """Mosaic of four samples of the batch around a drawn point, cut to `size` (YOLOv4, Bochkovskiy et al., 2020).

    The sample is left above that point, and three partners are right above, left below and right below of it, each with
    a corner at it. It is at a share of the height and another one of the width, both drawn from a range `center`; one
    number is that share. `size` is (height, width), one integer for a square, or None for the size of the image.
    Samples are not scaled: put Resize, LetterBox or ScaleJitter before. Where none of them reaches is `fill`; masks get
    `fill_mask`, or 0 without it, as in RandomCrop.

    Boxes are clipped to the visible part of their sample. Boxes and keypoints of all four follow one another, in four
    times as many rows; with `rows` they are the first of them that are valid, at most `rows`.
    """

    def __init__(
        self,
        size: int | tuple[int, int] | None = None,
        center: float | tuple[float, float] = (0.25, 0.75),
        *,
        rows: int | None = None,
        fill: Fill = 0.0,
        fill_mask: float | None = None,
        probability: float = 1.0,
    ) -> None:
        self._size = None if size is None else pair("size", size)
        several = isinstance(center, tuple | list | np.ndarray)
        ends: Any = center if several else (center, center)
        self._center = tuple(map(as_number, ends))
        if len(self._center) != 2 or not 0 <= self._center[0] <= self._center[1] <= 1:
            raise ArgumentError(
                f"`center` (={center!r}) must be a number from 0 to 1, or a range of two with 0 <= low <= high <= 1."
            )
        if rows is not None and not is_integer(rows, 1):
            raise ArgumentError(f"`rows` (={rows!r}) must be an integer of at least 1, or None.")
        self._rows = None if rows is None else int(rows)
        self._set_fill(fill, fill_mask)
        self._probability = between("probability", probability, 0, 1)

    def output(self, spec: Spec) -> Spec:
        height, width, _ = image_shape(spec, self.name)
        result = resized(spec, self._size or (height, width), self.name)
        self._check_fill(spec)
        if self._probability < 1 and result != spec:
            raise ArgumentError(
                f"{self.name}: `probability` (={self._probability:g}) must be 1 here: the op makes {result} of {spec}, "
                "and a sample that is left as it is would be of another shape or dtype."
            )
        if self.counts:
            assert self.objects is not None
            assert self.objects.rows is not None
            if self._rows is not None:
                raise ArgumentError(
                    f"{self.name}: `rows` (={self._rows}) leaves boxes out, and the values of {self.objects.field!r} "
                    "are the numbers of all of them. Leave `rows` out."
                )
            self.check_numbers_fit(spec, 4 * self.objects.rows)
        return result

    def mixing(self, spec: Spec, step: Step) -> Mixing:
        result = self.output(spec)
        width, channels = result.shape[1], image_shape(spec, self.name)[2]
        pixel = np.resize(np.array(self.fills).astype(spec.dtype), channels)
        given = self._given(spec, result)
        function: Any = mosaic.mosaic_pixels
        if self.counts:
            assert self.objects is not None
            function, given = mosaic.mosaic_instances, (*given, pixel[0], self.objects.rows)
        else:
            given = (*given, np.tile(pixel, width).view(np.uint8))

        def run(
            first: int, positions: Any, partners: Any, key: Any, samples: Any, masks: Any, out: Any
        ) -> None:
            if not self.counts:
                samples, out = samples.view(np.uint8), out.view(np.uint8)
            function(first, positions, partners, key, *given, samples, out)

        return Mixing(run, result, 3)

    def points_output(self, spec: Spec) -> Spec:
        return Spec((self._rows or 4 * spec.shape[0], spec.shape[1]), spec.dtype)

    def mixing_of_points(self, spec: Spec, image: Spec) -> Mixing:
        result = self.points_output(spec)
        given = (*self._given(image, self.output(image)), self._rows is not None)
        function: Any = mosaic.mosaic_points

        def run(
            first: int, positions: Any, partners: Any, key: Any, samples: Any, masks: Any, out: Any
        ) -> None:
            samples = samples.reshape(len(samples), *spec.shape)
            out = out.reshape(len(out), *result.shape)
            function(first, positions, partners, key, *given, samples, out)

        return Mixing(run, result, 3)

    def _given(self, image: Spec, result: Spec) -> tuple[Any, ...]:
        return self._probability, *self._center, image.shape[:2], result.shape[:2]
