"""ScaleJitter: an image scaled by a random factor, then cropped or padded to a fixed size."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from loaderx.kernels import resizing, windows
from loaderx.kernels.compilation import jitable
from loaderx.kernels.memory import store_word
from loaderx.kernels.points import window_points
from loaderx.kernels.warping import share_dtype
from loaderx.spec import Spec

from .arguments import value
from .base import Parameter, image_shape, pair, positive_range
from .spatial import Fill, FilledWindow, Scaling, check_antialias, check_interpolation, resized
from .step import Step
from .values import check_numbers
from .window import FILTERS, INTERPOLATIONS, Filters, Tables

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder


@jitable
def jitter_axis(rng: Any, size: int, wanted: int, factor: float) -> Any:
    """Return (start, extent, size) of the visible part of an axis and of the result; crops are random."""
    scaled = max(1, round(size * factor))
    extent = size
    if scaled > wanted:
        extent, scaled = min(size, max(1, round(wanted / factor))), wanted
    return rng.integers(0, size - extent + 1), extent, scaled


@jitable
def jitter_window(
    rng: Any, height: int, width: int, tall: int, wide: int, low: float, high: float
) -> Any:
    """Return a part of the image and its size, both as if the whole image was scaled by a factor."""
    factor = rng.uniform(low, high) * min(tall / height, wide / width)
    top, down, scaled_down = jitter_axis(rng, height, tall, factor)
    left, across, scaled_across = jitter_axis(rng, width, wide, factor)
    return top, down, scaled_down, left, across, scaled_across


@jitable
def store_jitter(window: Any, address: Any) -> None:
    """Store six numbers at an address."""
    for k in range(6):
        store_word(address + 8 * k, window[k])


@jitable
def follow_jitter(x: Any, window: Any, height: Any, width: Any) -> None:
    """Move points of an image that becomes the left upper part of a frame; points in the rest are outside."""
    top, down, scaled_down, left, across, scaled_across = window
    window_points(x, top, down, False, left, across, False, scaled_down, scaled_across)


@jitable
def nearest_axis(before: Any, start: Any, extent: Any, scaled: Any, table: Any) -> None:
    """Write the table of an axis that is scaled without mixing pixels; the rest of it is the fill colour."""
    windows.compose_nearest(before, start, extent, False, table[:scaled])
    for i in range(scaled, table.shape[0]):
        table[i] = -1


@jitable
def nearest_tables(window: Any, rows: Any, columns: Any, new_rows: Any, new_columns: Any) -> None:
    """Write the tables of a drawn window that is scaled without mixing pixels."""
    nearest_axis(rows, window[0], window[1], window[2], new_rows)
    nearest_axis(columns, window[3], window[4], window[5], new_columns)


@jitable
def filter_axis(
    before: Any, start: Any, extent: Any, scaled: Any, kind: Any, antialias: Any, table: Any, shares: Any, places: Any,
    counts: Any,
) -> None:  # fmt: skip
    """Write the filter of an axis that is scaled by mixing pixels, and its table; the rest is the fill colour."""
    room = scaled * (places.shape[0] // counts.shape[0])
    resizing.compose_filter(
        before, start, extent, False, kind, antialias, shares[:room], places[:room], counts[:scaled]
    )
    for i in range(table.shape[0]):
        table[i] = i if i < scaled else -1


@jitable
def mixing_tables(
    window: Any, kind: Any, antialias: Any, rows: Any, columns: Any, new_rows: Any, new_columns: Any,
    row_shares: Any, row_places: Any, row_counts: Any, column_shares: Any, column_places: Any, column_counts: Any,
) -> None:  # fmt: skip
    """Write the filters and tables of a drawn window that is scaled by mixing pixels."""
    filter_axis(
        rows, window[0], window[1], window[2], kind, antialias,
        new_rows, row_shares, row_places, row_counts,
    )  # fmt: skip
    filter_axis(
        columns, window[3], window[4], window[5], kind, antialias,
        new_columns, column_shares, column_places, column_counts,
    )  # fmt: skip


class ScaleJitter(FilledWindow):
    """Scale jitter: a random factor at the same aspect ratio, then cropped or padded to `size` (large-scale jitter).

    A factor of 1 makes the image just fit into `size`, as torchvision's ScaleJitter counts; it is drawn evenly from
    `scale`. torchvision leaves the image at the size that this gives. Here a result larger than `size` is cropped at a
    random place, and a smaller one is in the left upper corner with `fill` right of it and below, as in Detectron2
    and copy-paste augmentation (Ghiasi et al., 2021): all samples have one size. Masks, boxes and keypoints follow.
    `fill` and `fill_mask` are those of RandomCrop, `interpolation` and `antialias` those of Resize.
    """

    function = staticmethod(jitter_window)
    store, follow = staticmethod(store_jitter), staticmethod(follow_jitter)
    fills_frame = True

    def __init__(
        self,
        size: int | tuple[int, int],
        scale: tuple[float, float] = (0.1, 2.0),
        *,
        fill: Fill = 0.0,
        fill_mask: float | None = None,
        interpolation: Scaling = "bilinear",
        antialias: bool = True,
    ) -> None:
        self._size = pair("size", size)
        self._scale = positive_range("scale", scale)
        self._paint("fill", True, fill, fill_mask)
        self.interpolation = check_interpolation(interpolation, INTERPOLATIONS)
        self.antialias = check_antialias(antialias)

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        return self._size

    def output(self, spec: Spec) -> Spec:
        image_shape(spec, self.name)
        if self.interpolation != "nearest":
            check_numbers(spec, self.name)
        self._check_fill(spec)
        return resized(spec, self._size, self.name)

    def parameters(self) -> tuple[Parameter, ...]:
        return self._scale

    def shown_fill(self, spec: Spec) -> tuple[float, ...] | None:
        return self.fills

    def write_tables(
        self, table: "TableBuilder", step: Step, image: Spec, result: Spec, before: Tables
    ) -> Tables:
        drawn = self.draw(table, step, image, result)
        size = self._size
        length = 4 * (size[0] + size[1])
        if not self.mixes(step):
            made = Tables(table.place(length), size, before.filters, before.filters_start)
            given = [drawn, *before.lines("x"), *made.lines("out")]
            table.call(step, nearest_tables, given, before.place, made.place)
            return made
        kind = FILTERS[str(self.interpolation)]
        taps = self._taps(kind, image)
        filters = Filters(kind, size, (taps, taps), np.dtype(share_dtype(image.dtype)))
        begin = -(-length // 8) * 8
        lines, end = filters.lines("out", begin)
        place = table.place(end)
        made = Tables(place, size, filters, table.start_of(place) + begin, drawn)
        given = [drawn, value(kind), value(self.antialias)]
        given += [*before.lines("x"), *made.lines("out"), *lines]
        table.call(step, mixing_tables, given, before.place, made.place)
        return made

    def _taps(self, kind: int, image: Spec) -> int:
        """Return how many pixels are mixed at most: at the smallest factor, with sizes and parts rounded either way."""
        (tall, wide), (height, width) = self._size, image.shape[:2]
        factor = self._scale[0] * min(tall / height, wide / width)
        shrunk = 1.0
        for size, wanted in ((height, tall), (width, wide)):
            parts = (size / max(1, round(size * factor)), (wanted / factor + 1) / wanted)
            shrunk = max(shrunk, *(min(part, size) for part in parts))
        return resizing.most_taps(kind, self.antialias, math.ceil(shrunk), 1)
