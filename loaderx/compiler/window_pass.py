"""Pass of windows over one image, whose size is known when it is read.

The tables and filters of its windows are composed first. They say which rows of the image are needed, and only then it
is decoded.
"""

import functools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.kernels import image_windows, resizing
from loaderx.kernels.vectors import PAIRED_TAPS
from loaderx.kernels.warping import share_dtype
from loaderx.kernels.windows import FILL, copy_window
from loaderx.sources.encoded.decoding import Decoded
from loaderx.sources.encoded.field import Encoded
from loaderx.spec import Spec
from loaderx.transforms.arguments import RNG, integer_at, value
from loaderx.transforms.base import Transform
from loaderx.transforms.step import Step
from loaderx.transforms.window import FILTERS, WindowTransform

from .program import Program

if TYPE_CHECKING:
    from .table import TableBuilder

Array = NDArray[Any]
# Numbers that are drawn for a window, and those that they are drawn from: its sizes before and after.
DRAWN, SIZES = Spec((6,), np.int64), Spec((4,), np.int64)
# A reduced image has at least so many times the pixels that it is shrunk to, on both axes. [Mean difference to a whole
# image by Pillow, in levels of two photographs: 2.5 at 1.0, 1.07 at 1.5, 0.71 at 2.0; 35, 42 and 46 dB]
LEAST_SHRINKING = 1.5
# Sizes of images that are remembered, with the sizes that windows make of them.
SIZES_KEPT = 4096


@dataclass(frozen=True)
class Image:
    """Image before a pass: `decode(rows, factor)` returns at least these rows of it, reduced by one of `factors`."""

    decode: Callable[[tuple[int, int], int], Decoded]
    factors: tuple[int, ...] = (1,)


class _Drawing(Transform):
    """Draw of a window, from the sizes in its sample."""

    stays_compiled = True

    def __init__(self, window: WindowTransform) -> None:
        self._window = window

    @property
    def name(self) -> str:
        return self._window.name

    def output(self, spec: Spec) -> Spec:  # noqa: ARG002 - it has one
        return DRAWN

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:  # noqa: ARG002
        sizes = [integer_at(8 * place) for place in range(4)]
        given = [RNG, *sizes, *map(value, self._window.parameters())]
        table.call(group[0], self._window.function, given, x, out, store=self._window.store)


class Window:
    """Window of a head: its step, the program that draws it, and its entry for the kernels."""

    def __init__(self, step: Step, encoded: Encoded) -> None:
        op: Any = step.transform
        self.op: WindowTransform = op
        self.mixes = op.mixes(step)
        self.draws = Program([replace(step, transform=_Drawing(op))], SIZES)
        what = image_windows.MOVED
        if op.fills_frame:
            what = image_windows.FILTERED_PART if self.mixes else image_windows.NEAREST_PART
        elif op.interpolation is not None:
            what = image_windows.FILTERED if self.mixes else image_windows.NEAREST
        self.filter = FILTERS[str(op.interpolation)] if self.mixes else 0
        self.entry = what, op.border, self.filter, int(op.antialias)
        self._encoded = encoded
        self.result = functools.lru_cache(SIZES_KEPT)(self._result)

    def _result(self, height: int, width: int) -> tuple[int, int]:
        """Return the size that the window makes of an image."""
        try:
            tall, wide = self.op.output(self._encoded.pixels(height, width)).shape[:2]
        except ArgumentError as error:
            raise DataError(f"the image is {height} x {width} pixels: {error}") from error
        return tall, wide

    @property
    def fills(self) -> tuple[float, ...] | None:
        """Fill colour that may be seen outside of an image."""
        shows = self.op.interpolation is None and self.op.border == FILL
        return self.op.fills if shows or self.op.fills_frame else None

    def scaled(self, drawn: Array, result: Array) -> tuple[int, int]:
        """Return the height and the width that the window is scaled to."""
        tall, wide = (drawn[2::3] if self.op.fills_frame else result).tolist()
        return tall, wide

    def joins(self, before: Sequence["Window"]) -> bool:
        """Return whether this window and those before it are one pass: one filter, before any fill colour."""
        fills = {window.fills for window in before} - {None}
        return not (
            (self.op.interpolation is not None and any(window.mixes for window in before))
            or (self.mixes and fills)
            or (self.fills is not None and fills - {self.fills})
        )


class WindowPass:
    """Pass of several windows over an image."""

    def __init__(self, windows: Sequence[Window], encoded: Encoded) -> None:
        spec = encoded.pixels(1, 1)
        self.channels = spec.shape[2] if len(spec.shape) == 3 else 1
        self.dtype = spec.dtype
        self._entries = np.array([window.entry for window in windows], np.int64)
        fills = next((window.fills for window in windows if window.fills is not None), (0.0,))
        self._fill = np.resize(np.array(fills).astype(spec.dtype), self.channels)
        # The window that mixes pixels, and its number.
        self._mixing: Window | None
        mixing = [(number, window) for number, window in enumerate(windows) if window.mixes]
        self._number, self._mixing = mixing[0] if mixing else (0, None)
        # A filter that becomes wider as the image shrinks may begin with an image that the decoder has shrunk.
        self._reducible = bool(mixing) and self._number == 0 and windows[0].op.antialias
        self._precision = np.dtype(share_dtype(spec.dtype))

    def run(self, image: Image, sizes: Array, drawn: Array, out: Array) -> None:
        """Run the pass. `sizes` are those before and after each window, `drawn` the windows themselves."""
        height, width = sizes[0, :2].tolist()
        results = np.ascontiguousarray(sizes[:, 2:])
        factor = 1
        lines: Any = _NO_LINES
        if self._mixing is not None:
            factor = self._factor(image, drawn[self._number], results[self._number])
            lines = self._room(factor, drawn[self._number], results[self._number])
        tallest, widest = max(height, *results[:, 0].tolist()), max(width, *results[:, 1].tolist())
        rows, columns = (
            _array("rows", (2, tallest), np.int32),
            _array("columns", (2, widest), np.int32),
        )
        found = np.empty(4, np.int64)
        given = [self._entries, drawn, results, height, width, factor, rows, columns, *lines, found]
        image_windows.compose_image_windows(*given)
        row_table, column_table, first, stop = found.tolist()
        rows, columns = rows[row_table, : out.shape[0]], columns[column_table, : out.shape[1]]
        # An image of which nothing is seen is decoded as well: it may be damaged.
        decoded = image.decode((first, max(stop, first + 1)), factor)
        if decoded.first:
            places = rows if self._mixing is None else lines[1]
            image_windows.shift_places(places, decoded.first)
        # Of one flavour, so that the kernels are compiled once.
        pixels = np.require(decoded.pixels, requirements=["C", "W"])
        pixels = pixels if pixels.ndim == 3 else pixels[..., None]
        if self._mixing is None:
            fill, _, _ = _values_of_row(self._fill.tobytes(), self.dtype, out.shape[1])
            copy_window(pixels, rows, columns, fill, out)
        else:
            self._resize(self._mixing, pixels, [rows, columns, *lines], drawn[self._number], out)

    def _resize(
        self, mixing: Window, pixels: Array, tables: list[Array], drawn: Array, out: Array
    ) -> None:
        """Mix pixels by the filters in `tables`."""
        width, precision = out.shape[1], self._precision
        made, pairs = width * self.channels + 4, width // 2 * 2 * PAIRED_TAPS
        values = _values_of_row(self._fill.tobytes(), self.dtype, width)
        given: list[Any] = [pixels, *tables, *values, True, _limits(self.dtype, precision)]
        # Room for one pixel more: see `resize_window`.
        given.append(_array("line", (pixels.shape[1] * self.channels + 4,), precision))
        given.append(_array("made", (made,), precision))
        room = [_array("pairs", (pairs,), np.int32), _array("shares", (4 * pairs,), np.float32)]
        if mixing.filter == resizing.BILINEAR:
            given += [*room, out]
            resizing.resize_window(*given)
        else:
            held = _array("held", (pixels.shape[0], made), precision)
            given += [held, *room, tuple(drawn.tolist()), out]
            resizing.resize_exactly(*given)

    def _factor(self, image: Image, window: Array, result: Array) -> int:
        """Return the factor by which the decoder reduces the image."""
        if not self._reducible or len(image.factors) == 1:
            return 1
        assert self._mixing is not None
        tall, wide = self._mixing.scaled(window, result)
        shrinking = min(window[1] / tall, window[4] / wide) / LEAST_SHRINKING
        return max((each for each in image.factors if each <= shrinking), default=1)

    def _room(self, factor: int, window: Array, result: Array) -> list[Array]:
        """Return memory for the filters of both axes."""
        assert self._mixing is not None
        lines = []
        scaled = self._mixing.scaled(window, result)
        for axis, (extent, size, shown) in enumerate(
            zip(window[1::3].tolist(), result.tolist(), scaled, strict=True)
        ):
            # A reduced window begins and ends between two pixels.
            extent = extent if factor == 1 else extent // factor + 2
            taps = resizing.most_taps(self._mixing.filter, self._mixing.op.antialias, extent, shown)
            taps += factor > 1
            lines += [
                _array(f"shares {axis}", (size * taps,), self._precision),
                _array(f"places {axis}", (size * taps,), np.int32),
                _array(f"counts {axis}", (size,), np.int32),
            ]
        return lines


class _Scratch(threading.local):
    """Memory of a thread, by name, as large as its largest image needed."""

    def __init__(self) -> None:
        self.memory: dict[str, NDArray[np.uint8]] = {}


_scratch = _Scratch()
_NO_LINES = [np.empty(1, dtype) for dtype in (np.float32, np.int32, np.int32)] * 2


def _array(name: str, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an array of undefined values, valid until the next call with this name."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = _scratch.memory.get(name)
    if memory is None or len(memory) < size:
        # Zeros: loops over whole blocks read beyond the end of what was written.
        memory = _scratch.memory[name] = np.zeros(size + size // 4, np.uint8)
    array: Array = memory[:size].view(dtype).reshape(shape)
    return array


@functools.lru_cache(64)
def _values_of_row(pixel: bytes, dtype: np.dtype[Any], width: int) -> tuple[Array, Array, Array]:
    """Return the values of a row in a fill colour, and the scale and bias that change nothing."""
    fill = np.tile(np.frombuffer(pixel, dtype), max(width, 4))
    return fill, np.ones(len(fill), np.float32), np.zeros(len(fill), np.float32)


@functools.cache
def _limits(dtype: np.dtype[Any], precision: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the smallest and largest value of a pixel."""
    limits = np.iinfo(dtype)
    return precision.type(limits.min), precision.type(limits.max)


def intermediate(number: int, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return memory for the result of a pass: two that follow each other have different memory."""
    return _array(f"pixels {number % 2}", shape, dtype)
