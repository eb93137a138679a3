"""Ops that are a window onto an image: crop, pad, flip, resize, and chains of them in one pass."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from loaderx.kernels import pixels, points, windows
from loaderx.kernels.passes import element_name
from loaderx.spec import Spec

from .arguments import Given, array_at, image_at, value
from .base import image_shape
from .moving import MovingTransform
from .step import Step

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder

# The two neighbours of a coordinate, and the share of the second.
KINDS = (np.int32, np.int32, np.float32)
LINES = len(KINDS)


@dataclass(frozen=True)
class Tables:
    """Tables of a window in the memory at a place: of each axis one, of whole pixels, or three if pixels are mixed."""

    place: int
    size: tuple[int, int]
    mixed: bool

    def lines(self, base: str, start: int = 0) -> list[Given]:
        """Return the tables, as arrays at `start` behind `base`."""
        found = []
        for extent in self.size:
            for dtype in KINDS[: LINES if self.mixed else 1]:
                found.append(array_at(base, Spec((extent,), dtype), offset=start))
                start += 4 * extent
        return found


class WindowTransform(MovingTransform):
    """A window of an image that becomes the whole output: crop, pad, flip, resize, and chains of them in one pass.

    Its function gives (top, height, flipped, left, width, flipped). The window may lie partly outside of the image.
    """

    function: Callable[..., tuple[int, int, bool, int, int, bool]]
    # None: the window has the size of the output. Otherwise how it is scaled: "bilinear" or "nearest".
    interpolation: str | None = None

    numbers, number = 6, "int64"
    store, follow = staticmethod(windows.store_window), staticmethod(points.follow_window)
    is_window = True

    def joins(self, group: list[Step], step: Step, spec: Spec) -> bool:
        if not all(before.transform.is_window for before in group):
            return False
        mixed, fill = _looks(group)
        shown = self._shown_fill()
        return not (
            (self.interpolation is not None and mixed)
            or (self.mixes(step) and fill is not None)
            or (shown is not None and fill is not None and shown != fill)
        )

    def mixes(self, step: Step) -> bool:
        """Whether pixels are mixed."""
        return self.interpolation == "bilinear" and not step.follows

    def _shown_fill(self) -> float | None:
        """The colour that is seen outside of the image, if it may be."""
        return self.fill if self.interpolation is None and self.border == windows.FILL else None

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        """Write the draws and tables of every window, then one pass over the pixels."""
        *sizes, channels = image_shape(spec, self.name)
        size = (sizes[0], sizes[1])
        last = group[-1]
        scaling: Any = last.transform if last.transform.is_scaling else None
        shown = group[:-1] if scaling else group
        # The tables of an image that is seen as it is.
        identity = np.concatenate([np.arange(extent, dtype=np.int32) for extent in size])
        tables, current = Tables(table.constant(identity), size, False), spec
        for step in shown:
            op: Any = step.transform
            result = op.output(current)
            tables = op.write_tables(table, step, current, result, tables)
            current = result
        (height, width), mixed = tables.size, tables.mixed
        _, fill = _looks(shown)
        # A row of it: see `copy_window`.
        pixel = np.full(channels, fill or 0.0, spec.dtype).view(element_name(spec.dtype))
        given = [
            image_at("x", channels, spec.dtype),
            *tables.lines("scratch", table.start_of(tables.place)),
        ]
        given.append(value(np.tile(pixel, width)))
        repeats = max(width, 4)
        if scaling is not None:
            scale, bias = scaling.scale_and_bias(current)
            scale, bias = np.resize(scale, channels), np.resize(bias, channels)
            given += [value(np.tile(scale, repeats)), value(np.tile(bias, repeats))]
            current = scaling.output(current)
        image = Spec((height, width, channels), current.dtype)
        if not mixed:
            kernel = windows.scale_window if scaling else windows.copy_window
            table.call(last, kernel, [*given, array_at("out", image)], x, out, sizes=size)
            return
        if scaling is None:
            given += [value(np.ones(channels * repeats, np.float32))]
            given += [value(np.zeros(channels * repeats, np.float32))]
        # Room for one pixel more: see `blend_window`.
        given.append(table.workspace(Spec((sizes[1] * channels + 4,), np.float32)))
        given.append(value(spec.dtype.kind in "iub"))
        if current.dtype == np.float32:
            blended = [*given, array_at("out", image)]
            table.call(last, windows.blend_window, blended, x, out, sizes=size)
            return
        floats = Spec(image.shape, np.float32)
        between = table.place(floats.nbytes)
        blended = [*given, array_at("out", floats)]
        table.call(last, windows.blend_window, blended, x, between, sizes=size)
        flat = [array_at("x", Spec((image.size,), np.float32))]
        flat.append(array_at("out", Spec((image.size,), current.dtype)))
        table.call(last, pixels.store_values, flat, between, out)

    def write_tables(
        self, table: "TableBuilder", step: Step, image: Spec, result: Spec, before: Tables
    ) -> Tables:
        """Write the passes that draw the window of a sample, and make its tables out of those of the windows before."""
        given = [self.draw(table, step, image, result)]
        if self.interpolation is None:
            mixed = before.mixed
            function: Any = windows.move_blended_tables if mixed else windows.move_tables
            given.append(value(self.border))
        else:
            mixed = self.mixes(step)
            function = windows.blend_tables if mixed else windows.shrink_tables
        tall, wide, _ = image_shape(result, self.name)
        made = Tables(table.place(4 * (tall + wide) * (LINES if mixed else 1)), (tall, wide), mixed)
        given += [*before.lines("x"), *made.lines("out")]
        table.call(step, function, given, before.place, made.place)
        return made


def _looks(group: list[Step]) -> tuple[bool, float | None]:
    """Return whether some windows in a row mix pixels, and the colour that they may show; one pass has one."""
    mixed, fill = False, None
    for step in group:
        op: Any = step.transform
        mixed = mixed or op.mixes(step)
        shown = op._shown_fill()
        fill = shown if shown is not None else fill
    return mixed, fill
