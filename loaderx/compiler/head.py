"""Head of a chain: from encoded images of any sizes to samples of one size.

Its windows are drawn and composed for every image by itself, before the image is decoded: only the rows that they show
are decoded, at a fraction of the size where a filter makes the image smaller anyway.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError
from loaderx.sources.encoded.decoding import Decoded, Header
from loaderx.sources.encoded.field import Encoded
from loaderx.sources.encoded.source import EncodedImage
from loaderx.sources.row_addresses import addresses_of_rows
from loaderx.spec import Spec
from loaderx.transforms.step import Step

from .window_pass import Image, Window, WindowPass, intermediate

Array = NDArray[Any]


class WindowsOfHead:
    """Windows onto images of any sizes, drawn for every image by itself.

    They are open until one makes images of one size, whose spec is `output`; before that, `output` is one pixel.
    """

    def __init__(self, encoded: Encoded) -> None:
        self.encoded = encoded
        self.output = encoded.pixels(1, 1)
        self.open = True
        self.steps: list[Step] = []
        self.windows: list[Window] = []

    def add(self, step: Step) -> None:
        """Add an op, which is a window or several."""
        for own in step.transform.flattened(step):
            window = Window(own, self.encoded)
            self.steps.append(own)
            self.windows.append(window)
            if not self.open:
                self.output = own.transform.output(self.output)
            elif window.op.fixed_size is not None:
                self.open, self.output = False, self.encoded.pixels(*window.op.fixed_size)

    def draw(
        self,
        images: Sequence[EncodedImage],
        headers: Sequence[Header],
        positions: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return for each window, image by image, the sizes before and after it, and what was drawn."""
        sizes = np.empty((len(self.windows), len(images), 4), np.int64)
        drawn = np.empty((len(self.windows), len(images), 6), np.int64)
        before = [(header.height, header.width) for header in headers]
        for number, window in enumerate(self.windows):
            after = []
            for image, size in zip(images, before, strict=True):
                try:
                    after.append(window.result(*size))
                except DataError as error:
                    image.annotate(error)
                    raise
            sizes[number, :, :2], sizes[number, :, 2:] = before, after
            window.draws.run(positions, addresses_of_rows(sizes[number]), drawn[number])
            before = after
        return sizes, drawn


class Head:
    """Head of the chain of a field of encoded images.

    It is open until a window makes samples of one size, which is `output`; before that, `output` is one pixel.
    """

    def __init__(self, encoded: Encoded, first_image: Callable[[], EncodedImage]) -> None:
        self.encoded = encoded
        self.first_image = first_image
        # Field whose images must have the same sizes.
        self.alongside: str | None = None
        self._drawing = WindowsOfHead(encoded)
        # Passes, each with the numbers of its windows.
        self._passes: list[tuple[slice, WindowPass]] = []

    @property
    def output(self) -> Spec:
        """Spec of the samples."""
        return self._drawing.output

    @property
    def open(self) -> bool:
        """Whether the windows so far make images of different sizes."""
        return self._drawing.open

    @property
    def steps(self) -> list[Step]:
        """Windows so far."""
        return self._drawing.steps

    def add(self, step: Step) -> None:
        """Add an op, which is a window or several."""
        self._drawing.add(step)
        windows = self._drawing.windows
        begins = [0]
        for number, window in enumerate(windows):
            if number > 0 and not window.joins(windows[begins[-1] : number]):
                begins.append(number)
        self._passes = []
        for begin, end in zip(begins, [*begins[1:], len(windows)], strict=True):
            each = WindowPass(windows[begin:end], self.encoded)
            self._passes.append((slice(begin, end), each))

    def run(
        self,
        images: Sequence[EncodedImage],
        headers: Sequence[Header],
        positions: NDArray[np.int64],
        out: Array,
    ) -> None:
        """Decode images into `out`, the samples of the chain."""
        sizes, drawn = self._drawing.draw(images, headers, positions)
        for place, image in enumerate(images):
            try:
                self._run(image, headers[place], sizes[:, place], drawn[:, place], out[place])
            except DataError as error:
                image.annotate(error)
                raise

    def first_sample(self) -> Array:
        """Return the first sample, for checks of the ops after it; zeros if it is damaged, which its step reports."""
        out = np.zeros((1, *self.output.shape), self.output.dtype)
        try:
            image = self.first_image()
            self.run([image], [image.header()], np.zeros(1, np.int64), out)
        except (DataError, OSError):
            out[...] = 0
        sample: Array = out[0]
        return sample

    def _run(
        self, image: EncodedImage, header: Header, sizes: Array, drawn: Array, out: Array
    ) -> None:
        """Decode one image, and run it through all passes."""
        before = Image(functools.partial(image.decode_rows, header), header.factors)
        for number, (own, each) in enumerate(self._passes):
            tall, wide = sizes[own][-1, 2:].tolist()
            shape = tall, wide, each.channels
            last = number == len(self._passes) - 1
            target = out.reshape(shape) if last else intermediate(number, shape, each.dtype)
            each.run(before, sizes[own], drawn[own], target)
            before = _decoded(target)


def _decoded(pixels: Array) -> Image:
    """Return an image that is decoded already."""
    return Image(lambda *_: Decoded(pixels))
