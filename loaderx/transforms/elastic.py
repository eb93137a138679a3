"""ElasticDeform: every pixel moved by a smooth random field."""

import copy
from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.warping import copy_line, fill_pixel, mix_line, share_dtype
from loaderx.spec import Spec

from .amounts import Amount, amounts, draw_amount
from .base import Parameter, Transform, image_shape, is_integer
from .geometric import Interpolation, appearance, check_image
from .sample import SampleTransform
from .spatial import Border


def spline_weights(spacing: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The shares (4, spacing) that four control points have in a cubic B-spline, pixel by pixel from the second on."""
    t = np.arange(spacing) / spacing
    return np.stack(
        [(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, 3 * (1 - t) ** 3 - 6 * (1 - t) ** 2 + 4, t**3]
    ) / 6  # fmt: skip


def spline_rates(count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """What eliminating the control points of a spline through `count` points, mirrored at its ends, leaves of them."""
    rates = np.empty(count)
    rates[0] = 0.5
    for k in range(1, count - 1):
        rates[k] = 1 / (4 - rates[k - 1])
    if count > 1:
        rates[-1] = 1 / (4 - 2 * rates[-2])
    return rates


@jitable
def solve_spline(values: Any, rates: Any) -> None:
    """Control points, in values[1:-1], of the cubic B-splines through the points that are there, along the first axis.

    The equations are (before + 4 * own + behind) / 6 = point; what lies beyond the ends is what lies before them.
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
    """Displacements, down and across, at the points of a grid: the control points of the splines through them."""
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
    """The coordinates own + step * j in row i, with their displacement."""
    spacing = weights.shape[1]
    cell, phase = i // spacing, i % spacing
    for m in range(controls.shape[0]):
        upper = weights[0, phase] * grid[cell, m] + weights[1, phase] * grid[cell + 1, m]
        lower = weights[2, phase] * grid[cell + 2, m] + weights[3, phase] * grid[cell + 3, m]
        controls[m] = upper + lower
    # Cell by cell: within one the same four points have a part.
    for m in range(controls.shape[0] - 3):
        begin = m * spacing
        part = line[begin : begin + spacing]
        one, two, three, four = controls[m], controls[m + 1], controls[m + 2], controls[m + 3]
        for p in range(part.shape[0]):
            left = one * weights[0, p] + two * weights[1, p]
            right = three * weights[2, p] + four * weights[3, p]
            part[p] = (own + step * np.float64(np.int32(begin + p))) + (left + right)


def elastic(
    x: Any, out: Any, rng: Any, amount: Any, channels: int, border: int, fill: Any, weights: Any, row_rates: Any,
    column_rates: Any, grids: Any, turned: Any, controls: Any, lines: Any, places: Any, shares: Any,
) -> None:  # fmt: skip
    """Pixels between others, where a smooth field of displacements says."""
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
    x: Any, out: Any, rng: Any, amount: Any, channels: int, border: int, fill: Any, weights: Any, row_rates: Any,
    column_rates: Any, grids: Any, turned: Any, controls: Any, lines: Any, places: Any,
) -> None:  # fmt: skip
    """The nearest pixels, where a smooth field of displacements says."""
    source, target = x.reshape(-1), out.reshape(-1)
    deviation = draw_amount(rng, amount)
    draw_grid(rng, deviation, row_rates, column_rates, grids, turned)
    shape = (x.shape[0], x.shape[1], channels)
    rows, columns = lines[0], lines[1]
    for i in range(x.shape[0]):
        displace_line(grids[0], weights, i, np.float64(i), 0.0, controls, rows)
        displace_line(grids[1], weights, i, 0.0, 1.0, controls, columns)
        copy_line(source, shape, rows, columns, border, fill, places, i, target)


class ElasticDeform(SampleTransform):
    """Every pixel moved by a smooth random field, as for the U-Net (Ronneberger et al., 2015).

    At the points of a grid, `spacing` pixels apart, the displacements in x and y are normal with a deviation of
    `amount` pixels; cubic B-splines lead through them.
    """

    in_place = False
    takes_rng = True
    spatial = True
    takes_images = True
    interpolation: str
    border: int
    fill: float

    def __init__(
        self,
        amount: Amount = 8.0,
        spacing: int = 32,
        *,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: float = 0.0,
    ) -> None:
        self._amount = amounts("amount", amount, 0.0)
        if not is_integer(spacing, 1):
            raise ArgumentError(f"`spacing` (={spacing!r}) must be an integer of at least 1.")
        self._spacing = int(spacing)
        appearance(self, interpolation, border, fill)
        self.function = elastic if interpolation == "bilinear" else elastic_nearest

    def output(self, spec: Spec) -> Spec:
        check_image(self, spec)
        return spec

    def for_labels(self) -> Transform:
        nearest = copy.copy(self)
        nearest.interpolation, nearest.function = "nearest", elastic_nearest
        return nearest

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        _, _, channels = image_shape(spec, self.name)
        rows, columns = self._points(spec)
        fill: Any = fill_pixel(self.fill, channels, spec.dtype)
        return {
            "amount": self._amount,
            "channels": channels,
            "border": self.border,
            "fill": fill,
            "weights": spline_weights(self._spacing),
            "row_rates": spline_rates(rows),
            "column_rates": spline_rates(columns),
        }

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        width = spec.shape[1]
        rows, columns = self._points(spec)
        shared = (
            Spec((2, rows + 2, columns + 2), np.float64),
            Spec((columns + 2, rows + 2), np.float64),
            Spec((columns + 2,), np.float64),
            Spec((2, width), np.float64),
            Spec((width,), np.int32),
        )
        if self.interpolation == "nearest":
            return shared
        return (*shared, Spec((4, width), share_dtype(spec.dtype)))

    def _points(self, spec: Spec) -> tuple[int, int]:
        """How many points the grid has, down and across: the last ones lie behind the last pixels."""
        height, width, _ = image_shape(spec, self.name)
        return (height - 1) // self._spacing + 2, (width - 1) // self._spacing + 2
