"""Weather: fog, rain and shadow on an image, after Albumentations; in place."""

import math
from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.weather import add_disc, add_streak, draw_fog, draw_rain, draw_shadow
from loaderx.spec import Spec

from .amounts import Amount, amounts, draw_amount
from .base import Parameter, as_number, between, is_integer
from .dropout import count_range, draw_count
from .filters import smooth, smoothing_spaces
from .image import ImageTransform

# Ratio of the sides of one ring of fog to those of the ring around it.
RINGS, SMALLER = 10, 0.9
# Number of overlapping discs that are distinguished.
DISCS = 1024


def fog(
    x: Any, rng: Any, intensity: Any, alpha: Any, radius: int, deviation: float, white: float, edges: Any, clear: Any,
    line: Any, weights: Any, shares: Any, before: Any, after: Any, blurred: Any, sums: Any, ring: Any,
) -> None:  # fmt: skip
    """Draw white discs, more of them towards the centre, then blur."""
    height, width, _ = x.shape
    strength, opacity = draw_amount(rng, intensity), draw_amount(rng, alpha)
    if strength <= 0.0:
        return
    for i in range(height):
        for j in range(width + 1):
            edges[i, j] = 0
    region = max(1, int(width // 3 * strength))
    largest = max(2, int(min(height, width) * 0.1 * strength))
    smallest = max(1, largest // 2)
    tall, wide = height, width
    for _ in range(RINGS):
        if wide <= region or tall <= region:
            break
        for _ in range(int(tall * wide / (region * region) * strength * 10.0)):
            column = width // 2 - wide // 2 + rng.integers(0, 2 * (wide // 2) + 1)
            row = height // 2 - tall // 2 + rng.integers(0, 2 * (tall // 2) + 1)
            add_disc(row, column, rng.integers(smallest, largest), edges)
        tall, wide = int(tall * SMALLER), int(wide * SMALLER)
    draw_fog(x, edges, opacity * strength, white, clear, line)
    smooth(x, deviation, radius, weights, shares, before, after, blurred, sums, ring)


def row_space(spec: Spec, columns: int) -> Spec:
    """Return the workspace for a number for every value of a row, in the precision of its calculations."""
    number = np.float32 if np.can_cast(spec.dtype, np.float32) else np.float64
    return Spec((columns,), number)


class Fog(ImageTransform):
    """Fog: discs that are denser towards the centre, then a blur (Albumentations' RandomFog).

    `intensity`, from 0 to 1, decides how many discs there are and how large they are; each of them hides
    alpha * intensity of the image behind it. The blur is over a thirtieth of the shorter side. Values below black
    of float images are clipped.
    """

    function = staticmethod(fog)

    def __init__(
        self, intensity: Amount = (0.3, 1.0), alpha: Amount = 0.08, *, probability: float = 1.0
    ) -> None:
        super().__init__(
            intensity=amounts("intensity", intensity, 0.0, 1.0),
            alpha=amounts("alpha", alpha, 0.0, 1.0),
        )
        self.happens_with(probability)

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        found = super().parameters(spec)
        white, radius = found.pop("white"), self._radius(spec)
        # OpenCV's deviation for a size.
        return {**found, "radius": radius, "deviation": 0.3 * (radius - 1) + 0.8, "white": white}

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        height, width, channels = spec.shape
        return (
            Spec((height, width + 1), np.int32),
            row_space(spec, DISCS),
            row_space(spec, width * channels),
            *smoothing_spaces(spec, self._radius(spec)),
        )

    def _radius(self, spec: Spec) -> int:
        return max(3, min(spec.shape[:2]) // 30) // 2


def rain(
    x: Any, rng: Any, drops: Any, slant: Any, length: Any, size: int, color: float, brightness: Any, white: float,
    layer: Any, sums: Any, totals: Any, line: Any,
) -> None:  # fmt: skip
    """Draw blurred streaks of light, then darken the image."""
    height, width, _ = x.shape
    count = int(draw_amount(rng, drops) * height)
    across = draw_amount(rng, slant)
    down = min(max(1, int(draw_amount(rng, length) * height)), height)
    dimmed = draw_amount(rng, brightness)
    for i in range(height):
        for j in range(width):
            layer[i, j] = 0
    for _ in range(count):
        column = rng.integers(0, width)
        row = rng.integers(0, height - down + 1)
        add_streak(row, column, down, across, layer)
    draw_rain(x, layer, size, color * white, dimmed, white, sums, totals, line)


class Rain(ImageTransform):
    """Rain: slanted streaks in front of an image that becomes darker (Albumentations' RandomRain); clipped.

    There are `drops` streaks for each row of the image: a third there, and 1/4 for a drizzle, 1 for heavy and 2 for
    torrential rain. Each goes `length` of the height down and `slant` pixels to the right. They are blurred over `blur`
    x `blur` pixels, added as a light of `color`, a fraction of white, and all is multiplied by `brightness`.
    """

    function = staticmethod(rain)

    def __init__(
        self,
        drops: Amount = 1 / 3,
        slant: Amount = (-10.0, 10.0),
        length: Amount = 1 / 8,
        *,
        blur: int = 7,
        color: float = 200 / 255,
        brightness: Amount = 0.7,
        probability: float = 1.0,
    ) -> None:
        if not (is_integer(blur, 1) and int(blur) % 2 == 1):
            raise ArgumentError(f"`blur` (={blur!r}) must be an odd integer of at least 1.")
        self._size = int(blur)
        super().__init__(
            drops=amounts("drops", drops, 0.0, 1000.0),
            slant=amounts("slant", slant, -1e6, 1e6),
            length=amounts("length", length, 0.0, 1.0),
            size=self._size,
            color=between("color", color, 0, 1),
            brightness=amounts("brightness", brightness, 0.0, 1.0),
        )
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        height, width, channels = spec.shape
        return (
            Spec((height, width), np.uint8),
            Spec((width,), np.int32),
            Spec((width + self._size + 1,), np.int32),
            row_space(spec, width * channels),
        )


def shadow(
    x: Any, rng: Any, intensity: Any, fewest: int, most: int, region: Any, white: float, corners: Any, crossings: Any
) -> None:  # fmt: skip
    """Darken polygons."""
    height, width, _ = x.shape
    for _ in range(draw_count(rng, fewest, most)):
        for k in range(corners.shape[0]):
            corners[k, 0] = rng.uniform(region[0], region[2]) * width
            corners[k, 1] = rng.uniform(region[1], region[3]) * height
        draw_shadow(x, corners, 1.0 - draw_amount(rng, intensity), white, crossings)


class Shadow(ImageTransform):
    """Polygons of shadow, in which an image is darker by `intensity` (Albumentations' RandomShadow); clipped.

    `shadows` is how many, a number or a range. Each has `vertices` corners, anywhere in a `region` of the image: (left,
    top, right, bottom), as fractions of its size. Where its sides cross, every other part is in the shadow.
    """

    function = staticmethod(shadow)

    def __init__(
        self,
        intensity: Amount = 0.5,
        shadows: int | tuple[int, int] = (1, 2),
        vertices: int = 5,
        *,
        region: tuple[float, float, float, float] = (0.0, 0.5, 1.0, 1.0),
        probability: float = 1.0,
    ) -> None:
        fewest, most = count_range("shadows", shadows)
        if not is_integer(vertices, 3):
            raise ArgumentError(f"`vertices` (={vertices!r}) must be an integer of at least 3.")
        self._vertices = int(vertices)
        given: Any = region
        sides = isinstance(given, tuple | list | np.ndarray) and len(given) == 4
        left, top, right, bottom = map(as_number, given) if sides else (math.nan,) * 4
        if not (0 <= left <= right <= 1 and 0 <= top <= bottom <= 1):
            raise ArgumentError(
                f"`region` (={region!r}) must be (left, top, right, bottom) with 0 <= left <= right <= 1 and "
                "0 <= top <= bottom <= 1."
            )
        super().__init__(
            intensity=amounts("intensity", intensity, 0.0, 1.0),
            fewest=fewest,
            most=most,
            region=np.array([left, top, right, bottom]),
        )
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return Spec((self._vertices, 2), np.float64), Spec((self._vertices,), np.float64)
