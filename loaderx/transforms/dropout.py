"""CoarseDropout, and the parts it shares with RandomErasing: boxes of an image filled with a value or noise."""

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.distributions import next_bits
from loaderx.kernels.noise import fill_any
from loaderx.kernels.pixels import saturate
from loaderx.spec import Spec

from .amounts import Amount, amounts, draw_amount
from .base import as_number, image_shape, is_integer
from .image import ImageTransform

NOISE = "noise"
Fill: TypeAlias = float | str | list[float] | tuple[float, ...] | NDArray[Any]


def fill_values(name: str, fill: Any) -> NDArray[np.float64]:
    """Return a value, one per channel, or no values for noise."""
    if isinstance(fill, str) and fill == NOISE:
        return np.empty(0)
    several = isinstance(fill, tuple | list | np.ndarray) and len(fill) > 0
    values = [as_number(value) for value in (fill if several else [fill])]
    if not all(map(math.isfinite, values)):
        raise ArgumentError(
            f"`{name}` (={fill!r}) must be a finite number, one for each channel, or {NOISE!r}."
        )
    return np.array(values)


def check_fill(op: str, name: str, values: NDArray[np.float64], spec: Spec) -> None:
    """Refuse values for another number of channels than an image has."""
    channels = image_shape(spec, op)[2]
    if len(values) not in (0, 1, channels):
        raise ArgumentError(
            f"{op}: `{name}` has {len(values)} values, the image {spec} has {channels} channels."
        )


def count_range(name: str, value: Any) -> tuple[int, int]:
    """Return the lowest and the highest count."""
    several = isinstance(value, tuple | list | np.ndarray) and len(value) == 2
    low, high = value if several else (value, value)
    if not (is_integer(low, 1) and is_integer(high, 1)) or low > high:
        raise ArgumentError(
            f"`{name}` (={value!r}) must be an integer of at least 1, or a range of two of them."
        )
    return int(low), int(high)


@jitable
def draw_count(rng: Any, low: Any, high: Any) -> Any:
    """Draw an integer from low to high; where there is only one, nothing is drawn."""
    return low if low == high else rng.integers(low, high + 1)


@jitable
def fill_box(
    x: Any, top: Any, bottom: Any, left: Any, right: Any, values: Any, key: Any, white: Any
) -> None:
    """Fill a box with a value, with one value per channel, or with noise where there are no values."""
    height, width, channels = x.shape
    lines = x.reshape(height, width * channels)
    for i in range(top, bottom):
        part = lines[i, left * channels : right * channels]
        if len(values) == 0:
            fill_any(key, (i * width + left) * channels, white, part)
        elif len(values) == 1:
            value = saturate(values[0], x)
            for k in range(part.shape[0]):
                part[k] = value
        else:
            for c in range(channels):
                value = saturate(values[c], x)
                for j in range(right - left):
                    part[j * channels + c] = value


@jitable
def hole_side(rng: Any, amount: Any, in_pixels: Any, size: Any) -> Any:
    """Return the side of a hole: a whole number of pixels, or a fraction of the image; at least one pixel."""
    share = draw_amount(rng, amount)
    side = int(share) if in_pixels else round(share * size)
    return min(max(side, 1), size)


def coarse_dropout(
    x: Any,
    rng: Any,
    fewest: int,
    most: int,
    tall: Any,
    tall_in_pixels: bool,
    wide: Any,
    wide_in_pixels: bool,
    values: Any,
    white: float,
) -> None:
    """Fill some boxes with one value, or with noise."""
    height, width, _ = x.shape
    key = next_bits(rng)
    for _ in range(draw_count(rng, fewest, most)):
        down = hole_side(rng, tall, tall_in_pixels, height)
        across = hole_side(rng, wide, wide_in_pixels, width)
        top = rng.integers(0, height - down + 1)
        left = rng.integers(0, width - across + 1)
        fill_box(x, top, top + down, left, left + across, values, key, white)


def _sides(name: str, value: Amount) -> tuple[NDArray[np.float64], bool]:
    """Return the sides to draw from, and whether they are pixels: those that are given as integers."""
    numbers = value if isinstance(value, tuple | list | np.ndarray) else [value]
    in_pixels = all(isinstance(number, int | np.integer) for number in numbers)
    if not in_pixels:
        return amounts(name, value, 0.0, 1.0), False
    found = amounts(name, value, 1)
    if len(found) == 2:
        # Numbers below `high` + 1 are rounded down, so that the upper end is drawn, too.
        found[1] += 1.0 - 2.0**-30
    return found, True


class CoarseDropout(ImageTransform):
    """Cutout: boxes of an image become `fill`: a value, one per channel, or "noise" (Albumentations' CoarseDropout).

    `holes` is how many, a number or a range. `height` and `width` of each are drawn from a range: of fractions of the
    image, or of pixels if they are integers. Noise is any value from black to white, another one for every value. Boxes
    lie inside of the image and may overlap. It is Cutout (DeVries and Taylor, 2017) with holes=1.
    """

    function = staticmethod(coarse_dropout)
    clips = False

    def __init__(
        self,
        holes: int | tuple[int, int] = (1, 8),
        height: Amount = (0.05, 0.2),
        width: Amount = (0.05, 0.2),
        *,
        fill: Fill = 0.0,
        probability: float = 1.0,
    ) -> None:
        fewest, most = count_range("holes", holes)
        tall, tall_in_pixels = _sides("height", height)
        wide, wide_in_pixels = _sides("width", width)
        self._values = fill_values("fill", fill)
        super().__init__(
            fewest=fewest,
            most=most,
            tall=tall,
            tall_in_pixels=tall_in_pixels,
            wide=wide,
            wide_in_pixels=wide_in_pixels,
            values=self._values,
        )
        self.happens_with(probability)

    def output(self, spec: Spec) -> Spec:
        super().output(spec)
        check_fill(self.name, "fill", self._values, spec)
        return spec
