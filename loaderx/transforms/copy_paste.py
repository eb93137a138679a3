"""CopyPaste: objects of another sample of the batch pasted into an image."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels import pasting
from loaderx.spec import Spec

from .base import between, image_shape, is_integer
from .composite import CompositeTransform
from .mix import Mixing
from .step import Step


class CopyPaste(CompositeTransform):
    """Copy-paste: objects of a partner pasted into the image at the place they have there (Ghiasi et al., 2021).

    A mask in the entry says where objects are: each of its values is one, but for those of `background`. Every object
    of the partner is pasted with a probability of `share`; with a half each subset of them is as likely as the others.
    All fields of pixels get the pasted ones. Scale and mirror samples before, with ScaleJitter and RandomFlip.

    With boxes the mask must be of the kind "instances": k + 1 where the object of row k is. Boxes of objects that are
    partly covered shrink to what is left of them, and those of covered ones are no longer valid. Boxes of the partner
    come after those of the sample, in twice as many rows, and zeros for those that are not pasted. Keypoints are no
    longer valid where they are covered, and come along on pasted pixels.
    """

    needs_mask = True

    def __init__(
        self,
        share: float = 0.5,
        *,
        background: int | Sequence[int] = 0,
        probability: float = 1.0,
    ) -> None:
        self._share = between("share", share, 0, 1)
        several = isinstance(background, tuple | list | np.ndarray)
        values: Any = background if several else (background,)
        if not all(is_integer(value, -(1 << 63)) for value in values):
            raise ArgumentError(
                f"`background` (={background!r}) must be an integer, or several of them."
            )
        self._background = np.array(values, np.int64).reshape(-1)
        self._probability = between("probability", probability, 0, 1)

    def output(self, spec: Spec) -> Spec:
        image_shape(spec, self.name)
        objects = self.objects
        if self.counts and objects is not None and objects.rows is not None:
            self.check_numbers_fit(spec, 2 * objects.rows)
            for value in self._background:
                if objects.rows < value <= 2 * objects.rows:
                    raise ArgumentError(
                        f"{self.name}: {value} of `background` would be the number of a pasted box: the entry has "
                        f"{objects.rows} rows of boxes, and those that are pasted count on from there."
                    )
        return spec

    def mixing(self, spec: Spec, step: Step) -> Mixing:
        def run(
            first: int, positions: Any, partners: Any, key: Any, samples: Any, masks: Any, out: Any
        ) -> None:
            function: Any = pasting.paste_instances
            given: tuple[Any, ...] = (*self._given(), masks)
            if not self.counts:
                function = pasting.paste_pixels
                given += (np.empty((pasting.SLOTS, 3), np.int64),)
                samples, out = samples.view(np.uint8), out.view(np.uint8)
            function(first, positions, partners[0], key, *given, samples, out)

        return Mixing(run, self.output(spec), objects=self.objects)

    def points_output(self, spec: Spec) -> Spec:
        rows = None if self.objects is None else self.objects.rows
        if spec.shape[1] > 3 and spec.shape[0] != rows:
            raise ArgumentError(
                f"{self.name}: the values of the mask are the numbers of {rows} boxes, and another field of boxes of "
                f"the entry has {spec.shape[0]} rows."
            )
        return Spec((2 * spec.shape[0], spec.shape[1]), spec.dtype)

    def mixing_of_points(self, spec: Spec, image: Spec) -> Mixing:
        result = self.points_output(spec)
        width = image.shape[1]

        def run(
            first: int, positions: Any, partners: Any, key: Any, samples: Any, masks: Any, out: Any
        ) -> None:
            samples = samples.reshape(len(samples), *spec.shape)
            out = out.reshape(len(out), *result.shape)
            function: Any = pasting.paste_keypoints
            given: tuple[Any, ...] = (*self._given(), width, masks)
            if spec.shape[1] > 3:
                function = pasting.paste_boxes
                given += (np.empty((3, spec.shape[0], pasting.FACTS), np.int64),)
            function(first, positions, partners[0], key, *given, samples, out)

        return Mixing(run, result, objects=self.objects)

    def _given(self) -> tuple[Any, ...]:
        assert self.objects is not None
        rows = -1 if self.objects.rows is None else self.objects.rows
        return self._probability, self._share, rows, self._background
