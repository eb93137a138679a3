"""Ops that are a window onto an image: crop, pad, flip, resize, and chains of them in one pass."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels import points, resizing, windows
from loaderx.kernels.passes import element_name
from loaderx.kernels.vectors import PAIRED_TAPS
from loaderx.kernels.warping import share_dtype
from loaderx.spec import Spec

from .arguments import Given, array_at, image_at, value
from .base import finite, image_shape
from .moving import MovingTransform
from .step import Step

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder

# Kernels that mix pixels, by the name of an interpolation.
FILTERS = {
    "bilinear": resizing.BILINEAR,
    "bicubic": resizing.BICUBIC,
    "lanczos": resizing.LANCZOS,
}
INTERPOLATIONS = (*FILTERS, "nearest")


@dataclass(frozen=True)
class Filters:
    """Filters of a scaled window: for both axes the size of the result, and how many pixels are mixed at most."""

    kind: int
    size: tuple[int, int]
    taps: tuple[int, int]
    dtype: np.dtype[Any]

    def lines(self, base: str, start: int) -> tuple[list[Given], int]:
        """Return shares, places and counts of both axes, as arrays at `start` after `base`, and where they end."""
        found = []
        for extent, taps in zip(self.size, self.taps, strict=True):
            for count, dtype in (
                (extent * taps, self.dtype),
                (extent * taps, np.dtype(np.int32)),
                (extent, np.dtype(np.int32)),
            ):
                found.append(array_at(base, Spec((count,), dtype), offset=start))
                # Shares of 64 bits begin at a multiple of 8.
                start += -(-count * dtype.itemsize // 8) * 8
        return found, start


@dataclass(frozen=True)
class Tables:
    """Tables of a window in the memory at a place, one of each axis, and the filters of what they show, if any."""

    place: int
    size: tuple[int, int]
    filters: Filters | None = None
    # Where the filters are in scratch memory, and the window that was drawn for them.
    filters_start: int = 0
    drawn: Given | None = None

    def lines(self, base: str, start: int = 0) -> list[Given]:
        """Return the tables, as arrays at `start` after `base`."""
        tall, wide = self.size
        return [
            array_at(base, Spec((tall,), np.int32), offset=start),
            array_at(base, Spec((wide,), np.int32), offset=start + 4 * tall),
        ]


class WindowTransform(MovingTransform):
    """Window of an image that becomes the whole output: crop, pad, flip, resize, and chains of them in one pass.

    Its function gives (top, height, flipped, left, width, flipped). The window may lie partly outside of the image.
    """

    function: Callable[..., tuple[int, int, bool, int, int, bool]]
    # None: the window has the size of the output. Otherwise how it is scaled: one of INTERPOLATIONS.
    interpolation: str | None = None
    # Whether filters become wider where the image shrinks.
    antialias: bool = True
    # The fill colour: one number, or one for each channel.
    fills: tuple[float, ...] = (0.0,)

    # Whether the window becomes the left upper part of a result whose rest is the fill colour. Its function then gives
    # the height and width of that part in place of whether they are flipped.
    fills_frame: bool = False

    numbers, number = 6, "int64"
    store, follow = staticmethod(windows.store_window), staticmethod(points.follow_window)
    is_window = True

    def joins(self, group: list[Step], step: Step, spec: Spec) -> bool:
        if not all(before.transform.is_window for before in group):
            return False
        mixed, fill = _mixing_and_fill(group)
        shown = self.shown_fill(spec)
        return not (
            (self.interpolation is not None and mixed)
            or (self.mixes(step) and fill is not None)
            or (shown is not None and fill is not None and shown != fill)
        )

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        """The size of its results, if images of all sizes give the same."""
        return None

    def mixes(self, step: Step) -> bool:
        """Return whether pixels are mixed."""
        return self.interpolation in FILTERS and not step.follows

    def reaches_outside(self, spec: Spec) -> bool:
        """Return whether the window may reach outside of an image of `spec`."""
        return True

    def shown_fill(self, spec: Spec) -> tuple[float, ...] | None:
        """Return the colour that is seen outside of an image of `spec`, if it may be."""
        shows = self.interpolation is None and self.border == windows.FILL
        return self.fills if shows and self.reaches_outside(spec) else None

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        """Write the draws and tables of every window, then one pass over the pixels."""
        *sizes, channels = image_shape(spec, self.name)
        size = (sizes[0], sizes[1])
        last = group[-1]
        scaling: Any = last.transform if last.transform.is_scaling else None
        shown = group[:-1] if scaling else group
        # The tables of an unchanged image.
        identity = np.concatenate([np.arange(extent, dtype=np.int32) for extent in size])
        tables, current = Tables(table.constant(identity), size), spec
        for step in shown:
            op: Any = step.transform
            result = op.output(current)
            tables = op.write_tables(table, step, current, result, tables)
            current = result
        height, width = tables.size
        _, fill = _mixing_and_fill(shown)
        # A row of it: see `copy_window`.
        pixel = np.resize(np.array(fill or (0.0,)).astype(spec.dtype), channels)
        row = value(np.tile(pixel.view(element_name(spec.dtype)), width))
        lines = tables.lines("scratch", table.start_of(tables.place))
        given = [image_at("x", channels, spec.dtype), *lines]
        repeats = max(width, 4)
        scaled = []
        if scaling is not None or tables.filters is not None:
            scale, bias = np.ones(1, np.float32), np.zeros(1, np.float32)
            if scaling is not None:
                scale, bias = scaling.scale_and_bias(current)
                current = scaling.output(current)
            scaled = [value(np.tile(np.resize(each, channels), repeats)) for each in (scale, bias)]
        image = array_at("out", Spec((height, width, channels), current.dtype))
        if tables.filters is None or tables.drawn is None:
            kernel = windows.scale_window if scaling else windows.copy_window
            table.call(last, kernel, [*given, row, *scaled, image], x, out, sizes=size)
            return
        precision = tables.filters.dtype
        given += tables.filters.lines("scratch", tables.filters_start)[0]
        given += [row, *scaled, *_rounding(spec.dtype, precision)]
        # Room for one pixel more: see `resize_window`.
        given.append(table.workspace(Spec((size[1] * channels + 4,), precision)))
        made = width * channels + 4
        given.append(table.workspace(Spec((made,), precision)))
        overshoots = tables.filters.kind != resizing.BILINEAR
        pairs = width // 2 * 2 * PAIRED_TAPS
        of_pairs = [Spec((pairs,), np.int32), Spec((4 * pairs,), np.float32)]
        if precision == np.float64 or (overshoots and spec.dtype.kind in "iub"):
            given.append(table.workspace(Spec((size[0], made), precision)))
            given += [*map(table.workspace, of_pairs), tables.drawn, image]
            table.call(last, resizing.resize_exactly, given, x, out, sizes=size)
            return
        given += [*map(table.workspace, of_pairs), image]
        table.call(last, resizing.resize_window, given, x, out, sizes=size)

    def write_tables(
        self, table: "TableBuilder", step: Step, image: Spec, result: Spec, before: Tables
    ) -> Tables:
        """Write the passes that draw the window of a sample, and make its tables out of those of the windows before."""
        drawn = self.draw(table, step, image, result)
        tall, wide, _ = image_shape(result, self.name)
        tables = 4 * (tall + wide)
        if not self.mixes(step):
            made = Tables(
                table.place(tables),
                (tall, wide),
                before.filters,
                before.filters_start,
                before.drawn,
            )
            if self.interpolation is None:
                function: Any = windows.move_tables
                given = [drawn, value(self.border)]
            else:
                function, given = windows.shrink_tables, [drawn]
            given += [*before.lines("x"), *made.lines("out")]
            table.call(step, function, given, before.place, made.place)
            return made
        kind = FILTERS[str(self.interpolation)]
        down, across = (
            resizing.most_taps(kind, self.antialias, *sizes)
            for sizes in zip(before.size, (tall, wide), strict=True)
        )
        filters = Filters(kind, (tall, wide), (down, across), np.dtype(share_dtype(image.dtype)))
        begin = -(-tables // 8) * 8
        lines, end = filters.lines("out", begin)
        place = table.place(end)
        made = Tables(place, (tall, wide), filters, table.start_of(place) + begin, drawn)
        given = [drawn, value(kind), value(self.antialias)]
        given += [*before.lines("x"), *made.lines("out"), *lines]
        table.call(step, resizing.filter_tables, given, before.place, made.place)
        return made


def _rounding(dtype: np.dtype[Any], precision: np.dtype[Any]) -> list[Given]:
    """Return whether mixed pixels are rounded, and their smallest and largest value."""
    limits = (-np.inf, np.inf)
    if dtype.kind == "b":
        limits = (0, 1)
    elif dtype.kind in "iu":
        limits = (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return [value(dtype.kind in "iub"), value(tuple(map(precision.type, limits)))]


def single_or_each(name: str, fill: Any) -> tuple[float, ...]:
    """Return a fill colour: one number for all channels, or one for each of them."""
    several = isinstance(fill, tuple | list | np.ndarray)
    if several and len(fill) == 0:
        raise ArgumentError(f"`{name}` (={fill!r}) must be a number, or one for each channel.")
    colour = tuple(finite(name, each) for each in (fill if several else (fill,)))
    # So that equal colours are the same.
    return colour[:1] if len(set(colour)) == 1 else colour


def _mixing_and_fill(group: list[Step]) -> tuple[bool, tuple[float, ...] | None]:
    """Return whether some windows in a row mix pixels, and the fill colour that they may show; one pass has one."""
    mixed, fill = False, None
    for step in group:
        op: Any = step.transform
        mixed = mixed or op.mixes(step)
        shown = op.shown_fill(step.spec)
        fill = shown if shown is not None else fill
    return mixed, fill
