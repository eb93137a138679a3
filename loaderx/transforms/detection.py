"""Ops for training detectors: crops drawn by the boxes next to an image, zooming out, sanitising boxes."""

import math
from collections.abc import Sequence as Several
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels import points, zooming
from loaderx.kernels.compilation import jitable
from loaderx.kernels.warping import fill_pixel, share_dtype
from loaderx.spec import Spec

from .arguments import HEIGHT_OF, RNG, WIDTH_OF, Given, array_at, image_at, record_at, value
from .base import (
    Parameter,
    Transform,
    as_number,
    between,
    image_shape,
    is_integer,
    pair,
    positive_range,
)
from .image import Identity
from .kinds import Kind
from .sample import SampleTransform
from .spatial import Fill, FilledWindow, Scaling
from .step import Call, Step
from .values import check_numbers
from .window import INTERPOLATIONS, WindowTransform

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder

# Minimum overlaps that are tried one after the other, before the whole image is taken. torchvision tries forever; where
# one of 7 overlaps means the whole image, one draw in 5 million would need more.
MOST_OVERLAPS = 100


def _check_scaling(interpolation: str, antialias: Any, allowed: Several[str]) -> tuple[str, bool]:
    if interpolation not in allowed:
        known = ", ".join(f'"{each}"' for each in allowed)
        raise ArgumentError(f"`interpolation` (={interpolation!r}) must be one of {known}.")
    if not isinstance(antialias, bool | np.bool_):
        raise ArgumentError(f"`antialias` (={antialias!r}) must be True or False.")
    return interpolation, bool(antialias)


class BoxWindow(WindowTransform):
    """Window that is drawn by the boxes next to an image, scaled to `size`.

    Its function is `(rng, boxes, height, width, out_height, out_width, *parameters)`.
    """

    needs_boxes = True
    draws_by_boxes = True
    of_any_size = False

    def __init__(self, size: int | tuple[int, int], interpolation: str, antialias: bool) -> None:
        self._size = pair("size", size)
        self.interpolation, self.antialias = _check_scaling(
            interpolation, antialias, INTERPOLATIONS
        )

    def output(self, spec: Spec) -> Spec:
        image_shape(spec, self.name)
        if self.interpolation != "nearest":
            check_numbers(spec, self.name)
        return Spec((*self._size, *spec.shape[2:]), spec.dtype)

    def draw(self, table: "TableBuilder", step: Step, image: Spec, result: Spec) -> Given:
        assert step.boxes is not None
        return self._draw_by(table, step, *table.boxes_before(step.boxes), image)

    def write_points(
        self, table: "TableBuilder", step: Step, x: int, spec: Spec, image: Spec, result: Spec
    ) -> None:
        # For the boxes that decide, the field to look at is their own.
        if step.boxes is None:
            drawn = self._draw_by(table, step, x, spec, image)
        else:
            drawn = self.draw(table, step, image, result)
        given = [array_at("x", spec), drawn, *map(value, self._size)]
        table.call(step, self.follow, given, x, x)

    def _draw_by(
        self, table: "TableBuilder", step: Step, boxes: int, spec: Spec, image: Spec
    ) -> Given:
        """Write the pass that draws a window by the boxes at a place; return the window."""
        given = [RNG, array_at("x", spec), HEIGHT_OF, WIDTH_OF]
        given += map(value, (*self._size, *self.parameters()))
        offset = table.space(8 * self.numbers)
        record = table.place_at(offset)
        sizes = image_shape(image, self.name)[:2]
        table.call(step, self.function, given, boxes, record, sizes=sizes, store=self.store)
        return record_at(offset, self.number, self.numbers)

    def interpret_points(self, step: Step, image: Spec, result: Spec) -> Call:
        sizes = image_shape(image, self.name)[:2]

        def call(x: NDArray[Any], position: int, _: int, turns: tuple[int, ...]) -> NDArray[Any]:
            rng = step.draws(position, turns)
            drawn: Any = self.function(rng, x, *sizes, *self._size, *self.parameters())
            self.follow(x, tuple(map(int, drawn)), *self._size)
            return x

        return call


@jitable
def iou_window(
    rng: Any,
    boxes: Any,
    height: int,
    width: int,
    tall: int,
    wide: int,
    scale_low: float,
    scale_high: float,
    ratio_low: float,
    ratio_high: float,
    overlaps: Any,
    trials: int,
) -> Any:
    """Return a part that overlaps enough with a box whose centre is in it; the whole image if none is found."""
    some = False
    for k in range(boxes.shape[0]):
        some = some or boxes[k, 4] > 0
    if some:
        for _ in range(MOST_OVERLAPS):
            least = overlaps[rng.integers(0, overlaps.shape[0])]
            if least >= 1.0:
                break
            for _ in range(trials):
                across = int(width * rng.uniform(scale_low, scale_high))
                down = int(height * rng.uniform(scale_low, scale_high))
                if across == 0 or down == 0 or not ratio_low <= across / down <= ratio_high:
                    continue
                left = int((width - across) * rng.random())
                top = int((height - down) * rng.random())
                overlap = points.best_overlap(boxes, top, down, left, across)
                if overlap >= 0.0 and overlap >= least:
                    return top, down, False, left, across, False
    return 0, height, False, 0, width, False


class RandomIoUCrop(BoxWindow):
    """Random part that overlaps with one of the boxes by a drawn minimum, scaled to `size` (SSD, Liu et al., 2016).

    As in torchvision, one of `overlaps` is drawn, then up to `trials` parts, whose height and width are within `scale`
    of those of the image and whose aspect ratio is within `ratio`. The first of them is used that contains the centre
    of a box, and that has an intersection over union of at least that overlap with one of these boxes. After `trials`
    another overlap is drawn. An overlap of 1 means the whole image; so does a sample without a valid box. Boxes whose
    centre is outside of the part are no longer valid. `interpolation` and `antialias` are those of Resize.
    """

    function = staticmethod(iou_window)
    follow = staticmethod(points.follow_centres)

    def __init__(
        self,
        size: int | tuple[int, int],
        *,
        scale: tuple[float, float] = (0.3, 1.0),
        ratio: tuple[float, float] = (0.5, 2.0),
        overlaps: Several[float] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0),
        trials: int = 40,
        interpolation: Scaling = "bilinear",
        antialias: bool = True,
    ) -> None:
        super().__init__(size, interpolation, antialias)
        self._ranges = (*positive_range("scale", scale, 1), *positive_range("ratio", ratio))
        several = isinstance(overlaps, tuple | list | np.ndarray) and len(overlaps) > 0
        numbers = [as_number(each) for each in overlaps] if several else [math.nan]
        if not all(0 <= number <= 1 for number in numbers):
            raise ArgumentError(
                f"`overlaps` (={overlaps!r}) must be at least one number from 0 to 1 each."
            )
        self._overlaps = np.array(numbers)
        if not is_integer(trials, 1):
            raise ArgumentError(f"`trials` (={trials!r}) must be an integer of at least 1.")
        self._trials = int(trials)

    def parameters(self) -> tuple[Parameter, ...]:
        return *self._ranges, self._overlaps, self._trials


@jitable
def safe_window(
    rng: Any, boxes: Any, height: int, width: int, tall: int, wide: int, erosion: float
) -> Any:
    """Return a part with all boxes in it; without boxes, one of the ratio of the image."""
    left, top, right, bottom = float(width), float(height), 0.0, 0.0
    for k in range(boxes.shape[0]):
        if boxes[k, 4] > 0:
            left, top = min(left, float(boxes[k, 0])), min(top, float(boxes[k, 1]))
            right, bottom = max(right, float(boxes[k, 2])), max(bottom, float(boxes[k, 3]))
    left, top = max(left, 0.0), max(top, 0.0)
    right, bottom = min(right, float(width)), min(bottom, float(height))
    across, down = (right - left) * erosion / 2, (bottom - top) * erosion / 2
    left, right, top, bottom = left + across, right - across, top + down, bottom - down
    if right > left and bottom > top:
        first, above = int(left * rng.random()), int(top * rng.random())
        last = int(np.ceil(right + (width - right) * rng.random()))
        below = int(np.ceil(bottom + (height - bottom) * rng.random()))
        return above, below - above, False, first, last - first, False
    least = max(int(height * (1.0 - erosion)), 1)
    rows = rng.integers(least, height + 1)
    columns = max(int(rows * width / height), 1)
    above = rng.integers(0, height - rows + 1)
    first = rng.integers(0, width - columns + 1)
    return above, rows, False, first, columns, False


class BoxSafeCrop(BoxWindow):
    """Random part in which all boxes are, scaled to `size` (Albumentations' RandomSizedBBoxSafeCrop).

    Each of its sides is anywhere between the side of the image and that of the box around all boxes. With `erosion`
    that box is smaller by this share of its height and width, and boxes may be cut. Without a valid box it is a part of
    the aspect ratio of the image and at least 1 - `erosion` of its height. `interpolation` and `antialias` are those of
    Resize.
    """

    function = staticmethod(safe_window)

    def __init__(
        self,
        size: int | tuple[int, int],
        erosion: float = 0.0,
        *,
        interpolation: Scaling = "bilinear",
        antialias: bool = True,
    ) -> None:
        super().__init__(size, interpolation, antialias)
        self._erosion = between("erosion", erosion, 0, 1)

    def parameters(self) -> tuple[Parameter, ...]:
        return (self._erosion,)


@jitable
def zoom_window(
    rng: Any, height: int, width: int, tall: int, wide: int, probability: float, low: float, high: float
) -> Any:  # fmt: skip
    """Return a window that is larger than the image, which is anywhere in it."""
    side = rng.uniform(low, high) if rng.random() < probability else 1.0
    down, across = int(height * side), int(width * side)
    top, left = int((down - height) * rng.random()), int((across - width) * rng.random())
    return -top, down, False, -left, across, False


class ZoomOut(FilledWindow):
    """Zoomed-out image: with `probability`, anywhere on a canvas of `fill`, `sides` times as large, scaled to `size`.

    `sides` is a range of at least 1, drawn from evenly (torchvision's RandomZoomOut, SSD). `size` is (height, width),
    one integer for a square, or None for the size of the image. `fill` and `fill_mask` are those of RandomCrop;
    `interpolation` is "bilinear" or "nearest", and `antialias` that of Resize.
    """

    function = staticmethod(zoom_window)
    # Pixels outside of the image are filled in a pass of their own.
    is_window = False

    def __init__(
        self,
        size: int | tuple[int, int] | None = None,
        probability: float = 0.5,
        *,
        sides: tuple[float, float] = (1.0, 4.0),
        fill: Fill = 0.0,
        fill_mask: float | None = None,
        interpolation: Scaling = "bilinear",
        antialias: bool = True,
    ) -> None:
        self._size = None if size is None else pair("size", size)
        self._probability = between("probability", probability, 0, 1)
        self._sides = positive_range("sides", sides)
        if self._sides[0] < 1:
            raise ArgumentError(f"`sides` (={sides!r}) must be at least 1.")
        self._paint("fill", True, fill, fill_mask)
        self.interpolation, self.antialias = _check_scaling(
            interpolation, antialias, ("bilinear", "nearest")
        )

    def joins(self, group: list[Step], step: Step, spec: Spec) -> bool:
        return False

    def shown_fill(self, spec: Spec) -> tuple[float, ...]:
        return self.fills

    def output(self, spec: Spec) -> Spec:
        image_shape(spec, self.name)
        self._check_fill(spec)
        if self.interpolation != "nearest":
            check_numbers(spec, self.name)
        return Spec((*(self._size or spec.shape[:2]), *spec.shape[2:]), spec.dtype)

    def parameters(self) -> tuple[Parameter, ...]:
        return self._probability, *self._sides

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        step, result = group[0], self.output(spec)
        *sizes, channels = image_shape(spec, self.name)
        height, width, _ = image_shape(result, self.name)
        given = [image_at("x", channels, spec.dtype), self.draw(table, step, spec, result)]
        kernel: Any = zooming.zoom_nearest
        mixes = self.mixes(step)
        if mixes:
            kernel = zooming.zoom_bilinear
            given += [value(self.antialias), value(spec.dtype.kind in "iub")]
        fill = self.fills if len(self.fills) > 1 else self.fills[0]
        given.append(value(fill_pixel(fill, channels, spec.dtype)))
        if mixes:
            precision = share_dtype(spec.dtype)
            down, across = (
                zooming.most_taps(int(size * self._sides[1]), wanted)
                for size, wanted in zip(sizes, (height, width), strict=True)
            )
            given += [table.workspace(Spec((room,), precision)) for room in (down, across * width)]
            given += [table.workspace(Spec((width,), np.int32)) for _ in range(2)]
            given.append(table.workspace(Spec((sizes[1] * channels,), precision)))
        else:
            given.append(table.workspace(Spec((width,), np.int32)))
        given.append(array_at("out", Spec((height, width, channels), result.dtype)))
        table.call(step, kernel, given, x, out, sizes=(sizes[0], sizes[1]))


class _SanitizePoints(SampleTransform):
    function = staticmethod(points.sanitize_boxes)
    in_place = True
    takes_rng = False

    def __init__(self, op: "SanitizeBoxes") -> None:
        self._op = op

    @property
    def name(self) -> str:
        return self._op.name

    def output(self, spec: Spec) -> Spec:
        return spec

    def for_points(self, image: Spec) -> Transform:
        return self

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return dict(zip(("least_side", "least_area"), self._op.least, strict=True))


class SanitizeBoxes(Identity):
    """Boxes with a side below `min_size` or an area below `min_area` pixels become zeros and are no longer valid.

    As torchvision's SanitizeBoundingBoxes, but rows stay where they are, and `boxes_valid` says which are left. Ops
    after it that look at boxes do not see the others.
    """

    needs_boxes = True

    def __init__(self, min_size: float = 1.0, min_area: float = 1.0) -> None:
        self.least = tuple(
            between(name, given, 0, math.inf)
            for name, given in (("min_size", min_size), ("min_area", min_area))
        )

    def for_kind(self, kind: Kind) -> Transform:
        return Identity()

    def for_points(self, image: Spec) -> Transform:
        return _SanitizePoints(self)
