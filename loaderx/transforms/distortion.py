"""GridDistortion and OpticalDistortion: an image stretched cell by cell, or seen through a lens."""

import math
from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.points import WITHIN_BOX, place_in_box, store_box, store_keypoint
from loaderx.kernels.warping import copy_line, mix_line
from loaderx.spec import Spec

from .amounts import Amount, draw_amount, spread
from .base import Parameter, image_shape, is_integer
from .field import FieldTransform
from .geometric import Fill, Interpolation
from .spatial import Border

# Half of a diagonal, where both sides are 1: no pixel is further away from the centre.
FARTHEST = math.sqrt(0.5)
# Below it the corners fold inwards: the slope of the lens at FARTHEST, 1 + 2.75 k, is no longer above 0.
FOLDING = -1 / 2.75
# Corrections of the distance of a point from the centre; from 5 on only those next to FOLDING change anything.
CORRECTIONS = 24


@jitable
def draw_knots(rng: Any, limits: Any, size: Any, normalized: Any, knots: Any) -> None:
    """Draw the sources of the borders of equal cells: each cell is as wide as one of the input times a factor."""
    cells = knots.shape[0] - 1
    cell = size / cells
    knots[0] = 0.0
    for k in range(cells):
        knots[k + 1] = knots[k] + cell * (1.0 + draw_amount(rng, limits))
    if normalized:
        scale = size / knots[cells]
        for k in range(cells + 1):
            knots[k] *= scale


@jitable
def between_knots(knots: Any, size: Any, normalized: Any, coordinates: Any) -> None:
    """Compute the source coordinates of the pixels of an axis, with the centres of pixels at whole numbers."""
    cells = knots.shape[0] - 1
    for j in range(size):
        place = (j + 0.5) * cells / size
        k = min(int(place), cells - 1)
        found = knots[k] + (knots[k + 1] - knots[k]) * (place - k) - 0.5
        # All of them are inside of the image, and up to half a pixel outside of the centres of its outermost pixels.
        coordinates[j] = min(max(found, 0.0), size - 1.0) if normalized else found


@jitable
def seen_between(knots: Any, size: Any, coordinate: Any) -> Any:
    """Return where a coordinate of the input is seen; beyond the last cells, as if these continued."""
    cells = knots.shape[0] - 1
    k = 0
    while k < cells - 1 and coordinate >= knots[k + 1]:
        k += 1
    return (k + (coordinate - knots[k]) / (knots[k + 1] - knots[k])) * (size / cells)


@jitable
def draw_cells(
    rng: Any, limits: Any, normalized: Any, height: Any, width: Any, knots: Any, places_of: Any
) -> None:
    """Draw the sources of the columns, and then of the rows."""
    draw_knots(rng, limits, width, normalized, knots[0])
    between_knots(knots[0], width, normalized, places_of[0])
    draw_knots(rng, limits, height, normalized, knots[1])
    between_knots(knots[1], height, normalized, places_of[1])


@jitable
def trace_cells(places_of: Any, i: int, rows: Any, columns: Any) -> None:
    """Compute the source coordinates of the pixels of row i."""
    row, across = places_of[1, i], places_of[0]
    for j in range(columns.shape[0]):
        rows[j] = row
        columns[j] = across[j]


def stretch_cells(
    x: Any, out: Any, rng: Any, limits: Any, normalized: bool, channels: int, border: int, fill: Any, knots: Any,
    places_of: Any, lines: Any, places: Any, shares: Any,
) -> None:  # fmt: skip
    """Interpolate pixels of stretched cells."""
    source, target = x.reshape(-1), out.reshape(-1)
    shape = (x.shape[0], x.shape[1], channels)
    draw_cells(rng, limits, normalized, x.shape[0], x.shape[1], knots, places_of)
    rows, columns = lines[0], lines[1]
    for i in range(x.shape[0]):
        trace_cells(places_of, i, rows, columns)
        mix_line(source, shape, rows, columns, border, fill, places, shares, i, target)


def stretch_cells_nearest(
    x: Any, out: Any, rng: Any, limits: Any, normalized: bool, channels: int, border: int, fill: Any, knots: Any,
    places_of: Any, lines: Any, places: Any,
) -> None:  # fmt: skip
    """Copy the nearest pixels of stretched cells."""
    source, target = x.reshape(-1), out.reshape(-1)
    shape = (x.shape[0], x.shape[1], channels)
    draw_cells(rng, limits, normalized, x.shape[0], x.shape[1], knots, places_of)
    rows, columns = lines[0], lines[1]
    for i in range(x.shape[0]):
        trace_cells(places_of, i, rows, columns)
        copy_line(source, shape, rows, columns, border, fill, places, i, target)


def stretch_points(
    x: Any, rng: Any, limits: Any, normalized: bool, height: int, width: int, knots: Any, places_of: Any
) -> None:  # fmt: skip
    """Move points with stretched cells; boxes stay boxes."""
    draw_cells(rng, limits, normalized, height, width, knots, places_of)
    for k in range(x.shape[0]):
        left = seen_between(knots[0], width, np.float64(x[k, 0]))
        top = seen_between(knots[1], height, np.float64(x[k, 1]))
        if x.shape[1] == 3:
            store_keypoint(x, k, left, top, height, width)
        else:
            right = seen_between(knots[0], width, np.float64(x[k, 2]))
            bottom = seen_between(knots[1], height, np.float64(x[k, 3]))
            store_box(x, k, left, top, right, bottom, height, width)


class GridDistortion(FieldTransform):
    """Grid distortion: `num_steps` columns and rows, each stretched by its own factor (Albumentations' GridDistortion).

    The factors are 1 plus a number from -distort_limit to distort_limit, or from a range. If `normalized` they are
    divided by their mean, so that the image fills its frame; otherwise its last columns and rows are outside, or
    `border` is seen there. Cells are equally large, also where `num_steps` does not divide the size. Masks, boxes and
    keypoints follow; `fill` and `fill_mask` are those of ElasticDeform.
    """

    bilinear, nearest = staticmethod(stretch_cells), staticmethod(stretch_cells_nearest)
    follow = staticmethod(stretch_points)

    def __init__(
        self,
        num_steps: int = 5,
        distort_limit: Amount = 0.3,
        *,
        normalized: bool = True,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: Fill = 0.0,
        fill_mask: float | None = None,
        probability: float = 1.0,
    ) -> None:
        if not is_integer(num_steps, 1):
            raise ArgumentError(f"`num_steps` (={num_steps!r}) must be an integer of at least 1.")
        self._cells = int(num_steps)
        self._limits = spread("distort_limit", distort_limit)
        if not np.all(np.abs(self._limits) < 1):
            raise ArgumentError(
                f"`distort_limit` (={distort_limit!r}) must be above -1 and below 1: at -1 nothing is left of a cell."
            )
        if not isinstance(normalized, bool | np.bool_):
            raise ArgumentError(f"`normalized` (={normalized!r}) must be True or False.")
        self._normalized = bool(normalized)
        super().__init__(interpolation, border, fill, fill_mask)
        self.happens_with(probability)

    def of_map(self, image: Spec) -> dict[str, Parameter]:
        return {"limits": self._limits, "normalized": self._normalized}

    def spaces_of_map(self, image: Spec) -> tuple[Spec, ...]:
        height, width, _ = image_shape(image, self.name)
        return (
            Spec((2, self._cells + 1), np.float64),
            Spec((2, max(height, width)), np.float64),
        )


@jitable
def trace_lens(k: float, i: int, height: Any, width: Any, rows: Any, columns: Any) -> None:
    """Compute the sources of row i: away from the centre by 1 + k r^2 + k r^4, where each side is 1."""
    middle, centre = (height - 1) * 0.5, (width - 1) * 0.5
    down, unit = i - middle, 1.0 / width
    level = (down / height) * (down / height)
    for j in range(columns.shape[0]):
        # Integers of 32 bits have a vector instruction that converts them to floats.
        across = np.float64(np.int32(j)) - centre
        square = (across * unit) * (across * unit) + level
        factor = 1.0 + k * square * (1.0 + square)
        rows[j] = middle + down * factor
        columns[j] = centre + across * factor


def bend(
    x: Any, out: Any, rng: Any, limits: Any, channels: int, border: int, fill: Any, lines: Any, places: Any, shares: Any
) -> None:  # fmt: skip
    """Interpolate pixels seen through a lens."""
    source, target = x.reshape(-1), out.reshape(-1)
    shape = (x.shape[0], x.shape[1], channels)
    k = draw_amount(rng, limits)
    rows, columns = lines[0], lines[1]
    for i in range(x.shape[0]):
        trace_lens(k, i, x.shape[0], x.shape[1], rows, columns)
        mix_line(source, shape, rows, columns, border, fill, places, shares, i, target)


def bend_nearest(
    x: Any, out: Any, rng: Any, limits: Any, channels: int, border: int, fill: Any, lines: Any, places: Any
) -> None:  # fmt: skip
    """Copy the nearest pixels seen through a lens."""
    source, target = x.reshape(-1), out.reshape(-1)
    shape = (x.shape[0], x.shape[1], channels)
    k = draw_amount(rng, limits)
    rows, columns = lines[0], lines[1]
    for i in range(x.shape[0]):
        trace_lens(k, i, x.shape[0], x.shape[1], rows, columns)
        copy_line(source, shape, rows, columns, border, fill, places, i, target)


@jitable
def seen_through(k: float, x: Any, y: Any, height: Any, width: Any) -> Any:
    """Return where a point of the input is seen: at the distance from the centre that the lens maps to its own."""
    across, down = np.float64(x) / width - 0.5, np.float64(y) / height - 0.5
    distance = math.sqrt(across * across + down * down)
    if not distance > 0.0:
        return np.float64(x), np.float64(y)
    # Beyond the corners the lens is linear: no pixel is there, and further out it may fold.
    rim = FARTHEST * (1.0 + 0.75 * k)
    if distance >= rim:
        found = FARTHEST + (distance - rim) / (1.0 + 2.75 * k)
    else:
        # Newton's method, which converges from one side only.
        found = min(distance, FARTHEST)
        for _ in range(CORRECTIONS):
            square = found * found
            error = found * (1.0 + k * square * (1.0 + square)) - distance
            found -= error / (1.0 + k * square * (3.0 + 5.0 * square))
    factor = found / distance
    return (0.5 + across * factor) * width, (0.5 + down * factor) * height


def bend_points(x: Any, rng: Any, limits: Any, height: int, width: int) -> None:
    """Move points through a lens; a box becomes the one around its moved sides."""
    strength = draw_amount(rng, limits)
    for k in range(x.shape[0]):
        across, down = seen_through(strength, x[k, 0], x[k, 1], height, width)
        if x.shape[1] == 3:
            store_keypoint(x, k, across, down, height, width)
            continue
        left, top, right, bottom = across, down, across, down
        for number in range(1, WITHIN_BOX):
            side, level = place_in_box(x, k, number)
            across, down = seen_through(strength, side, level, height, width)
            left, right = min(left, across), max(right, across)
            top, bottom = min(top, down), max(bottom, down)
        store_box(x, k, left, top, right, bottom, height, width)


class OpticalDistortion(FieldTransform):
    """Lens distortion, which bends straight lines (Albumentations' OpticalDistortion, its camera model).

    A pixel at the distance r from the centre, where each side of the image is 1, shows the input at
    r (1 + k r^2 + k r^4) in the input, with k from -distort_limit to distort_limit, or from a range. Above 0 the image
    shrinks more and more towards its corners, as a barrel; below 0 it grows. k must be above -0.36, where the corners
    begin to fold. Masks, boxes and keypoints follow; `fill` and `fill_mask` are those of ElasticDeform.
    """

    bilinear, nearest = staticmethod(bend), staticmethod(bend_nearest)
    follow = staticmethod(bend_points)

    def __init__(
        self,
        distort_limit: Amount = 0.05,
        *,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: Fill = 0.0,
        fill_mask: float | None = None,
        probability: float = 1.0,
    ) -> None:
        self._limits = spread("distort_limit", distort_limit)
        if not np.all(self._limits > FOLDING):
            raise ArgumentError(
                f"`distort_limit` (={distort_limit!r}) must be above {FOLDING:.2f}, where the corners fold; a range "
                "such as (0, 1) has no numbers below 0."
            )
        super().__init__(interpolation, border, fill, fill_mask)
        self.happens_with(probability)

    def of_map(self, image: Spec) -> dict[str, Parameter]:
        return {"limits": self._limits}

    def spaces_of_map(self, image: Spec) -> tuple[Spec, ...]:
        return ()
