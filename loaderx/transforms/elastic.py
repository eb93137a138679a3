"""ElasticDeform: every pixel moved by a smooth random field."""

from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.points import WITHIN_BOX, place_in_box, store_box, store_keypoint
from loaderx.kernels.warping import copy_line, mix_line
from loaderx.spec import Spec

from .amounts import Amount, amounts, draw_amount
from .base import Parameter, image_shape, is_integer
from .field import FieldTransform
from .geometric import Fill, Interpolation
from .spatial import Border

# By default the displacements deviate by so much of the spacing. The slope of a cubic spline through normal numbers
# deviates by up to 1.85 of theirs per spacing: by 0.12 then, and an image folds where it reaches 1, eight times as far.
GENTLE = 1 / 16
# Corrections of a moved point; each of them shrinks the error by the slope of the displacements.
CORRECTIONS = 32


def spline_weights(spacing: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the shares (4, spacing) of four control points in a cubic B-spline, pixel by pixel from the second on."""
    t = np.arange(spacing) / spacing
    return np.stack(
        [(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, 3 * (1 - t) ** 3 - 6 * (1 - t) ** 2 + 4, t**3]
    ) / 6  # fmt: skip


def spline_rates(count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the elimination coefficients of a spline through `count` points, mirrored at its ends."""
    rates = np.empty(count)
    rates[0] = 0.5
    for k in range(1, count - 1):
        rates[k] = 1 / (4 - rates[k - 1])
    if count > 1:
        rates[-1] = 1 / (4 - 2 * rates[-2])
    return rates


@jitable
def solve_spline(values: Any, rates: Any) -> None:
    """Compute control points, in values[1:-1], of the cubic B-splines through these points, along the first axis.

    The equations are (before + 4 * own + after) / 6 = point; the points are mirrored at both ends.
    """
    count = len(rates)
    for column in range(values.shape[1]):
        # From the first one on, each is expressed by the next: own = value - rate * next.
        values[1, column] *= 1.5
        for k in range(1, count - 1):
            above = 6.0 * values[k + 1, column] - values[k, column]
            values[k + 1, column] = above * rates[k]
        above = 6.0 * values[count, column] - 2.0 * values[count - 1, column]
        values[count, column] = above * rates[count - 1]
        for k in range(count - 2, -1, -1):
            values[k + 1, column] -= rates[k] * values[k + 2, column]
        values[0, column] = values[2, column]
        values[count + 1, column] = values[count - 1, column]


@jitable
def draw_grid(
    rng: Any, deviation: float, row_rates: Any, column_rates: Any, grids: Any, turned: Any
) -> None:
    """Draw displacements, down and across, at the points of a grid: the control points of the splines through them."""
    count, across = len(row_rates), len(column_rates)
    for axis in range(2):
        for k in range(count):
            for m in range(across):
                grids[axis, k + 1, m + 1] = rng.normal(0.0, deviation)
    for axis in range(2):
        grid = grids[axis]
        solve_spline(grid[:, 1 : across + 1], row_rates)
        for k in range(count + 2):
            for m in range(across):
                turned[m + 1, k] = grid[k, m + 1]
        solve_spline(turned, column_rates)
        for k in range(count + 2):
            for m in range(across + 2):
                grid[k, m] = turned[m, k]


@jitable
def displace_line(
    grid: Any, weights: Any, i: int, own: float, step: float, controls: Any, line: Any
) -> None:
    """Compute the coordinates own + step * j in row i, with their displacement."""
    spacing = weights.shape[1]
    cell, phase = i // spacing, i % spacing
    for m in range(controls.shape[0]):
        upper = weights[0, phase] * grid[cell, m] + weights[1, phase] * grid[cell + 1, m]
        lower = weights[2, phase] * grid[cell + 2, m] + weights[3, phase] * grid[cell + 3, m]
        controls[m] = upper + lower
    # Cell by cell: within one, the same four control points have shares.
    for m in range(controls.shape[0] - 3):
        begin = m * spacing
        part = line[begin : begin + spacing]
        one, two, three, four = controls[m], controls[m + 1], controls[m + 2], controls[m + 3]
        for p in range(part.shape[0]):
            left = one * weights[0, p] + two * weights[1, p]
            right = three * weights[2, p] + four * weights[3, p]
            part[p] = (own + step * np.float64(np.int32(begin + p))) + (left + right)


def elastic(
    x: Any, out: Any, rng: Any, amount: Any, weights: Any, row_rates: Any, column_rates: Any, channels: int,
    border: int, fill: Any, grids: Any, turned: Any, controls: Any, lines: Any, places: Any, shares: Any,
) -> None:  # fmt: skip
    """Interpolate pixels displaced by a smooth field."""
    source, target = x.reshape(-1), out.reshape(-1)
    deviation = draw_amount(rng, amount)
    if deviation == 0.0:
        for k in range(source.shape[0]):
            target[k] = source[k]
        return
    draw_grid(rng, deviation, row_rates, column_rates, grids, turned)
    shape = (x.shape[0], x.shape[1], channels)
    rows, columns = lines[0], lines[1]
    for i in range(x.shape[0]):
        displace_line(grids[0], weights, i, np.float64(i), 0.0, controls, rows)
        displace_line(grids[1], weights, i, 0.0, 1.0, controls, columns)
        mix_line(source, shape, rows, columns, border, fill, places, shares, i, target)


def elastic_nearest(
    x: Any, out: Any, rng: Any, amount: Any, weights: Any, row_rates: Any, column_rates: Any, channels: int,
    border: int, fill: Any, grids: Any, turned: Any, controls: Any, lines: Any, places: Any,
) -> None:  # fmt: skip
    """Copy the nearest pixels, displaced by a smooth field."""
    source, target = x.reshape(-1), out.reshape(-1)
    deviation = draw_amount(rng, amount)
    draw_grid(rng, deviation, row_rates, column_rates, grids, turned)
    shape = (x.shape[0], x.shape[1], channels)
    rows, columns = lines[0], lines[1]
    for i in range(x.shape[0]):
        displace_line(grids[0], weights, i, np.float64(i), 0.0, controls, rows)
        displace_line(grids[1], weights, i, 0.0, 1.0, controls, columns)
        copy_line(source, shape, rows, columns, border, fill, places, i, target)


@jitable
def spline_shares(t: float) -> Any:
    """Return the shares of four control points at t, from 0 to 1, between the second and the third."""
    rest = 1.0 - t
    return (
        rest**3 / 6.0,
        (3.0 * t**3 - 6.0 * t**2 + 4.0) / 6.0,
        (3.0 * rest**3 - 6.0 * rest**2 + 4.0) / 6.0,
        t**3 / 6.0,
    )


@jitable
def displacement(grid: Any, spacing: int, row: float, column: float) -> Any:
    """Return the displacement at any place of the image."""
    down, across = row / spacing, column / spacing
    i, j = min(int(down), grid.shape[0] - 4), min(int(across), grid.shape[1] - 4)
    upper, left = spline_shares(down - i), spline_shares(across - j)
    total = 0.0
    for k in range(4):
        for m in range(4):
            total += upper[k] * left[m] * grid[i + k, j + m]
    return total


@jitable
def clamped(place: float, size: int) -> Any:
    """Return the nearest place in an image; NaN becomes 0."""
    return min(place if place > 0.0 else 0.0, size - 1.0)


@jitable
def seen_at(grids: Any, spacing: int, x: float, y: float, height: int, width: int) -> Any:
    """Return where a point of the input is seen: the place that is displaced to it, by fixed-point iteration."""
    x, y = np.float64(x) - 0.5, np.float64(y) - 0.5
    row, column = y, x
    for _ in range(CORRECTIONS):
        i, j = clamped(row, height), clamped(column, width)
        row = y - displacement(grids[0], spacing, i, j)
        column = x - displacement(grids[1], spacing, i, j)
    return column + 0.5, row + 0.5


def elastic_points(
    x: Any, rng: Any, amount: Any, weights: Any, row_rates: Any, column_rates: Any, height: int, width: int,
    grids: Any, turned: Any, controls: Any,
) -> None:  # fmt: skip
    """Move points of an image by a smooth field; a box becomes the one around its moved sides."""
    spacing = weights.shape[1]
    draw_grid(rng, draw_amount(rng, amount), row_rates, column_rates, grids, turned)
    for k in range(x.shape[0]):
        across, down = seen_at(grids, spacing, x[k, 0], x[k, 1], height, width)
        if x.shape[1] == 3:
            store_keypoint(x, k, across, down, height, width)
            continue
        left, top, right, bottom = across, down, across, down
        for number in range(1, WITHIN_BOX):
            side, level = place_in_box(x, k, number)
            across, down = seen_at(grids, spacing, side, level, height, width)
            left, right = min(left, across), max(right, across)
            top, bottom = min(top, down), max(bottom, down)
        store_box(x, k, left, top, right, bottom, height, width)


class ElasticDeform(FieldTransform):
    """Elastic deformation: every pixel moved by a smooth random field, as for the U-Net (Ronneberger et al., 2015).

    At the points of a grid, `spacing` pixels apart, the displacements in x and y are normal with a deviation of
    `amount` pixels; cubic B-splines lead through them. By default `amount` is a sixteenth of `spacing`, at which an
    image does not fold: neighbours stay neighbours. From an eighth of `spacing` on a few images fold, at a sixth a
    tenth of them, at a quarter most of them. Outside of the image is `fill`, a number or one for each channel; outside
    of a mask that follows it, `fill_mask`. Boxes and keypoints follow.
    """

    bilinear, nearest = staticmethod(elastic), staticmethod(elastic_nearest)
    follow = staticmethod(elastic_points)

    def __init__(
        self,
        amount: Amount | None = None,
        spacing: int = 32,
        *,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: Fill = 0.0,
        fill_mask: float | None = None,
        probability: float = 1.0,
    ) -> None:
        if not is_integer(spacing, 1):
            raise ArgumentError(f"`spacing` (={spacing!r}) must be an integer of at least 1.")
        self._spacing = int(spacing)
        self._amount = amounts("amount", GENTLE * spacing if amount is None else amount, 0.0)
        super().__init__(interpolation, border, fill, fill_mask)
        self.happens_with(probability)

    def of_map(self, image: Spec) -> dict[str, Parameter]:
        rows, columns = self._points(image)
        return {
            "amount": self._amount,
            "weights": spline_weights(self._spacing),
            "row_rates": spline_rates(rows),
            "column_rates": spline_rates(columns),
        }

    def spaces_of_map(self, image: Spec) -> tuple[Spec, ...]:
        rows, columns = self._points(image)
        return (
            Spec((2, rows + 2, columns + 2), np.float64),
            Spec((columns + 2, rows + 2), np.float64),
            Spec((columns + 2,), np.float64),
        )

    def _points(self, spec: Spec) -> tuple[int, int]:
        """Return how many points the grid has, down and across: the last ones lie after the last pixels."""
        height, width, _ = image_shape(spec, self.name)
        return (height - 1) // self._spacing + 2, (width - 1) // self._spacing + 2
