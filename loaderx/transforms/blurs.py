"""Motion blur, defocus and median filter: neighbours of a pixel with equal weights; in place on an image."""

import math
from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.blurs import mean_of_runs, median_of_square, sorted_at_once
from loaderx.spec import Spec

from .amounts import Amount, Choice, amounts, draw_amount
from .base import is_integer
from .image import ImageTransform


def whole_numbers(name: str, value: Any, least: int, step: int) -> Any:
    """Return the numbers to draw from: one, or those from the first to the last of a range."""
    several = isinstance(value, tuple | list | np.ndarray) and len(value) == 2
    low, high = value if several else (value, value)
    good = is_integer(low, least) and is_integer(high, least) and low <= high
    if not good or (int(low) - least) % step or (int(high) - least) % step:
        kind = "an odd integer" if step == 2 else "an integer"
        raise ArgumentError(
            f"`{name}` (={value!r}) must be {kind} of at least {least}, or a range of two of them."
        )
    return amounts(name, Choice(*range(int(low), int(high) + 1, step)))


def _spaces(spec: Spec, radius: int) -> tuple[Spec, ...]:
    """Return the runs and workspaces of `mean_of_runs`: sums of bytes are exact in 32 bits."""
    height, width, channels = spec.shape
    total = np.int32 if spec.dtype == np.uint8 else np.float64
    run = Spec((2 * radius + 1,), np.int64)
    totals = Spec((height, (width + 2 * radius + 1) * channels), total)
    return run, run, run, totals, Spec((width * channels,), total)


def motion_blur(
    x: Any,
    rng: Any,
    size: Any,
    angle: Any,
    white: float,
    rows: Any,
    begins: Any,
    ends: Any,
    totals: Any,
    sums: Any,
) -> None:
    """Replace each pixel by the mean of the pixels on a line through it."""
    radius = int(draw_amount(rng, size)) // 2
    turn = math.radians(draw_amount(rng, angle))
    if radius == 0:
        return
    across, down = math.cos(turn), -math.sin(turn)
    longer = max(abs(across), abs(down))
    across, down = across / longer, down / longer
    runs = 0
    for step in range(-radius, radius + 1):
        row, column = math.floor(step * down + 0.5), math.floor(step * across + 0.5)
        if runs > 0 and rows[runs - 1] == row and ends[runs - 1] == column:
            ends[runs - 1] = column + 1
        else:
            rows[runs], begins[runs], ends[runs] = row, column, column + 1
            runs += 1
    share = 1.0 / (2 * radius + 1)
    mean_of_runs(x, rows[:runs], begins[:runs], ends[:runs], radius, share, totals, sums)


class MotionBlur(ImageTransform):
    """Mean of `size` pixels on a line through each pixel, at an `angle` in degrees (Albumentations' MotionBlur).

    `size` is odd: a number, or a range whose odd numbers are drawn from. The line has one pixel in each column or, if
    it is steeper, in each row. Angles are counted from the right, counter-clockwise; the image is mirrored outside.
    """

    function = staticmethod(motion_blur)
    clips = False

    def __init__(
        self,
        size: int | tuple[int, int] = (3, 7),
        angle: Amount = (0.0, 180.0),
        *,
        probability: float = 1.0,
    ) -> None:
        sizes = whole_numbers("size", size, 1, 2)
        self._radius = int(sizes.max()) // 2
        super().__init__(size=sizes, angle=amounts("angle", angle))
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return _spaces(spec, self._radius)


def defocus(
    x: Any,
    rng: Any,
    radius: Any,
    white: float,
    rows: Any,
    begins: Any,
    ends: Any,
    totals: Any,
    sums: Any,
) -> None:
    """Replace each pixel by the mean of the pixels of a disc."""
    reach = int(draw_amount(rng, radius))
    if reach == 0:
        return
    count = 0
    for run in range(2 * reach + 1):
        row = run - reach
        half = int(math.sqrt(reach * reach - row * row))
        rows[run], begins[run], ends[run] = row, -half, half + 1
        count += 2 * half + 1
    runs = 2 * reach + 1
    mean_of_runs(x, rows[:runs], begins[:runs], ends[:runs], reach, 1.0 / count, totals, sums)


class Defocus(ImageTransform):
    """Mean of the pixels at most `radius` away, like a lens out of focus (Albumentations' Defocus).

    `radius` is a whole number of pixels, or a range of them. The disc has a sharp edge, which Albumentations softens.
    The image is mirrored outside.
    """

    function = staticmethod(defocus)
    clips = False

    def __init__(
        self, radius: int | tuple[int, int] = (3, 10), *, probability: float = 1.0
    ) -> None:
        radii = whole_numbers("radius", radius, 0, 1)
        self._radius = int(radii.max())
        super().__init__(radius=radii)
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return _spaces(spec, self._radius)


def median_blur(
    x: Any,
    rng: Any,
    size: Any,
    white: float,
    ring: Any,
    starts: Any,
    block: Any,
) -> None:
    """Replace each pixel by the median of a square."""
    side = int(draw_amount(rng, size))
    median_of_square(x, side, ring[:side], starts[:side], block)


class MedianBlur(ImageTransform):
    """Median of `size` x `size` pixels, 3 or 5, in each channel (OpenCV's, and Albumentations' MedianBlur).

    With (3, 5) either is drawn. Pixels outside of the image repeat its edge.
    """

    function = staticmethod(median_blur)
    clips = False

    def __init__(self, size: int | tuple[int, int] = 3, *, probability: float = 1.0) -> None:
        sizes = whole_numbers("size", size, 3, 2)
        self._size = int(sizes.max())
        if self._size > 5:
            raise ArgumentError(f"`size` (={size!r}) must be 3, 5, or (3, 5).")
        super().__init__(size=sizes)
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        _, width, channels = spec.shape
        at_once = sorted_at_once(spec.dtype.itemsize)
        blocks = -(-width * channels // at_once) * at_once
        return (
            Spec((self._size, blocks + (self._size - 1) * channels), spec.dtype),
            Spec((self._size,), np.int64),
            Spec((at_once,), spec.dtype),
        )
