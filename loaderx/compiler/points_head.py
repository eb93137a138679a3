"""Head of the chain of boxes or keypoints next to encoded images: it moves them through the windows of these."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError
from loaderx.kernels.points import KEYPOINTS, follow_windows, open_points
from loaderx.sources.encoded.decoding import Header
from loaderx.sources.encoded.source import EncodedImage
from loaderx.spec import Spec
from loaderx.transforms.boxes import Boxes
from loaderx.transforms.points import OpenPoints
from loaderx.transforms.step import Step

from .head import Head, WindowsOfHead

Array = NDArray[Any]


class PointsHead:
    """Head of the chain of a field of boxes, or of keypoints if `boxes` is None, that follow encoded images.

    The windows are drawn from the size of each image, as those of `lead`, the head of the images in the field
    `alongside`. Points are in pixels of an image as the windows that it has so far leave it, or in fractions of that.
    """

    def __init__(
        self,
        lead: Head,
        alongside: str,
        spec: Spec,
        boxes: Boxes | None,
        first_points: Callable[[], Array],
    ) -> None:
        self.alongside = alongside
        self.output = OpenPoints(boxes, lead.output).output(spec)
        self.first_image, self.first_points = lead.first_image, first_points
        self._form = KEYPOINTS if boxes is None else boxes.code
        self._normalized = boxes is not None and boxes.is_normalized
        self._drawing = WindowsOfHead(lead.encoded)
        for step in lead.steps:
            self._drawing.add(step)
        # Number of the first window that the points move through.
        self._begin = len(self._drawing.windows)

    @property
    def follows_all(self) -> bool:
        """Whether points move through all windows up to images of one size."""
        return not self._drawing.open

    @property
    def steps(self) -> list[Step]:
        """Windows that the points move through."""
        return self._drawing.steps[self._begin :]

    def keeps_up_with(self, lead: Head) -> bool:
        """Return whether its windows are all of those of the images."""
        return [step.key for step in self._drawing.steps] == [step.key for step in lead.steps]

    def add(self, step: Step) -> None:
        """Add an op on the images, which is a window or several."""
        self._drawing.add(step)

    def copy(self) -> "PointsHead":
        """Return a head that others may continue; itself, if it is complete."""
        if self.follows_all:
            return self
        new = copy.copy(self)
        new._drawing = WindowsOfHead(self._drawing.encoded)
        for step in self._drawing.steps:
            new._drawing.add(step)
        return new

    def run(
        self,
        points: Array,
        images: Sequence[EncodedImage],
        headers: Sequence[Header],
        positions: NDArray[np.int64],
        out: Array,
    ) -> None:
        """Move the points of some images into `out`, the samples of the chain."""
        sizes, drawn = self._drawing.draw(images, headers, positions)
        if self._begin > 0:
            given = np.ascontiguousarray(sizes[self._begin - 1, :, 2:])
        else:
            given = np.array([(header.height, header.width) for header in headers], np.int64)
        open_points(points, self._form, self._normalized, given, out)
        for number in range(self._begin, len(drawn)):
            parts = self._drawing.windows[number].op.fills_frame
            follow_windows(out, drawn[number], sizes[number], parts)

    def first_sample(self) -> Array:
        """Return the first sample, for checks of the ops after it; zeros if its image is damaged."""
        out = np.zeros((1, *self.output.shape), self.output.dtype)
        try:
            image = self.first_image()
            points = np.ascontiguousarray(np.asarray(self.first_points())[None])
            self.run(points, [image], [image.header()], np.zeros(1, np.int64), out)
        except (DataError, OSError):
            out[...] = 0
        sample: Array = out[0]
        return sample
