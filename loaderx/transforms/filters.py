"""Filters: blur, sharpness and local contrast, which use the neighbours of a pixel; in place on an image."""

import math
from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.filters import BLOCK_BYTES, apply_curves, blur, clipped, sharpen, tile_curves
from loaderx.kernels.tones import keep_alpha, restore_alpha
from loaderx.spec import Spec

from .amounts import Amount, amounts, draw_amount, factors
from .base import image_shape, is_integer, pair
from .image import ImageTransform, alpha_space

# Up to here the result is less than 1 away: 0.5 by rounding, 2 * radius * 255 / 65536 by the shares of both passes,
# and (radius + 2) / 128 by the products that are cut off.
LARGEST_FIXED_RADIUS = 30


@jitable
def smooth(
    x: Any,
    width: float,
    radius: int,
    weights: Any,
    shares: Any,
    before: Any,
    after: Any,
    line: Any,
    sums: Any,
    ring: Any,
) -> None:
    """Compute a weighted mean of the neighbours; a radius of 0 means the one that the deviation `width` needs."""
    if width <= 0.0:
        return
    reach = radius if radius > 0 else max(1, math.ceil(3.0 * width))
    total = 0.0
    for tap in range(reach + 1):
        weights[tap] = math.exp(-0.5 * (tap / width) * (tap / width))
        total += weights[tap] if tap == 0 else 2.0 * weights[tap]
    # Shares are 65536ths where lines are integers; shares below half of the last bit change nothing.
    fixed = line.itemsize == 2
    unit, least = (65536.0, 0.5) if fixed else (1.0, 2.0**-30)
    taps = 1
    for tap in range(1, reach + 1):
        if weights[tap] / total * unit >= least:
            taps = tap + 1
    if taps == 1:
        return
    rest = 32768.0 if fixed else 0.5
    for tap in range(1, taps):
        share = weights[tap] / total * unit
        if fixed:
            share = math.floor(share + 0.5)
        rest -= share
        shares[tap] = share
    # Half of it: the middle is counted twice, like a pair of neighbours.
    shares[0] = rest
    blur(x, shares[:taps], before[:taps], after[:taps], line, sums, ring)


def gaussian_blur(
    x: Any,
    rng: Any,
    sigma: Any,
    radius: int,
    white: float,
    weights: Any,
    shares: Any,
    before: Any,
    after: Any,
    line: Any,
    sums: Any,
    ring: Any,
) -> None:
    """Blur by a Gaussian of a drawn deviation."""
    smooth(x, draw_amount(rng, sigma), radius, weights, shares, before, after, line, sums, ring)


def smoothing_spaces(spec: Spec, radius: int) -> tuple[Spec, ...]:
    """Return the workspaces of `smooth`."""
    _, width, channels = spec.shape
    if spec.dtype == np.uint8 and radius <= LARGEST_FIXED_RADIUS:
        dtype: np.dtype[Any] = np.dtype(np.uint16)
    else:
        dtype = np.dtype(np.float32 if np.can_cast(spec.dtype, np.float32) else np.float64)
    block = BLOCK_BYTES // dtype.itemsize
    length = -(-width * channels // block) * block
    taps = radius + 1
    return (
        Spec((taps,), np.float64),
        Spec((taps,), dtype),
        Spec((taps,), np.int64),
        Spec((taps,), np.int64),
        Spec((length + 2 * radius * channels,), dtype),
        Spec((length,), dtype),
        Spec(((2 * radius + 1) * length,), dtype),
    )


class GaussianBlur(ImageTransform):
    """Gaussian blur of `sigma` pixels, cut off at `size` pixels, or at 3 sigma; the image is mirrored outside.

    uint8 is calculated in 16 bits, and within 1 of the exact result.
    """

    function = staticmethod(gaussian_blur)
    clips = False

    def __init__(
        self, sigma: Amount = (0.1, 2.0), size: int | None = None, *, probability: float = 1.0
    ) -> None:
        found = amounts("sigma", sigma, 0.0)
        if size is not None and not (is_integer(size, 1) and int(size) % 2 == 1):
            raise ArgumentError(
                f"`size` (={size!r}) must be an odd integer of at least 1, or None."
            )
        self._radius = int(size) // 2 if size is not None else max(1, math.ceil(3 * found.max()))
        # A kernel of one pixel is the image itself.
        super().__init__(
            sigma=found if size != 1 else np.zeros(1), radius=0 if size is None else self._radius
        )
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return smoothing_spaces(spec, self._radius)


def sharpness(
    x: Any, rng: Any, amount: Any, white: float, lines: Any, sums: Any, alpha: Any
) -> None:
    """Move values towards the smoothed image, or away from it."""
    factor = draw_amount(rng, amount)
    if factor != 1.0:
        keep_alpha(x, alpha)
        sharpen(x, factor, white, lines, sums)
        restore_alpha(alpha, x)


class Sharpness(ImageTransform):
    """Sharpness: the distance from the smoothed image times a factor, 1 - amount to 1 + amount for a number.

    It is Pillow's, but its results are rounded. Of four channels the last is opacity (alpha) and stays as it is.
    """

    function = staticmethod(sharpness)

    def __init__(self, amount: Amount, *, probability: float = 1.0) -> None:
        super().__init__(amount=factors("amount", amount))
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        length = spec.shape[1] * spec.shape[2]
        dtype = np.float32 if np.can_cast(spec.dtype, np.float32) else np.float64
        return Spec((2, length), spec.dtype), Spec((length,), dtype), alpha_space(spec)


def clahe(
    x: Any,
    rng: Any,
    clip: Any,
    white: float,
    grey: Any,
    light: Any,
    counts: Any,
    curves: Any,
    low: Any,
    high: Any,
    weight: Any,
) -> None:
    """Equalise the grey of every pixel by the histograms around it, and move its channels with it."""
    height, width, channels = x.shape
    if channels == 1:
        plane = x.reshape((height, width))
        tile_curves(plane, draw_amount(rng, clip), counts, curves)
        apply_curves(plane, curves, low, high, weight, plane)
        return
    red, green, blue = np.float32(19595), np.float32(38470), np.float32(7471)
    half, unit = np.float32(32768), np.float32(1 / 65536)
    for i in range(height):
        for j in range(width):
            # Whole numbers below 2^24, which float32 holds exactly.
            total = np.float32(x[i, j, 0]) * red + np.float32(x[i, j, 1]) * green
            total += np.float32(x[i, j, 2]) * blue + half
            grey[i, j] = np.uint8(np.int32(total * unit))
    tile_curves(grey, draw_amount(rng, clip), counts, curves)
    apply_curves(grey, curves, low, high, weight, light)
    for i in range(height):
        for j in range(width):
            change = np.float32(light[i, j]) - np.float32(grey[i, j])
            for c in range(3):
                x[i, j, c] = clipped(np.float32(x[i, j, c]) + change, white, x)


class CLAHE(ImageTransform):
    """Contrast-limited adaptive histogram equalisation of uint8, in a grid of `tiles`, or (down, across).

    No bin of a histogram is above `clip` times the mean; 0: no limit. One channel equals OpenCV's result. Of three,
    this is done to the grey (19595 R + 38470 G + 7471 B + 32768) >> 16, and the change of the grey is added to each
    channel, clipped.
    """

    function = staticmethod(clahe)

    def __init__(
        self, clip: Amount = 4.0, tiles: int | tuple[int, int] = 8, *, probability: float = 1.0
    ) -> None:
        self._tiles = pair("tiles", tiles)
        super().__init__(clip=amounts("clip", clip, 0.0))
        self.happens_with(probability)

    def output(self, spec: Spec) -> Spec:
        super().output(spec)
        if spec.dtype != np.uint8 or image_shape(spec, self.name)[2] not in (1, 3):
            raise ArgumentError(f"{self.name} accepts uint8 images of 1 or 3 channels, not {spec}.")
        return spec

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        height, width, channels = spec.shape
        plane = (height, width) if channels == 3 else (1, 1)
        return (
            Spec(plane, np.uint8),
            Spec(plane, np.uint8),
            Spec((256,), np.int64),
            Spec((*self._tiles, 256), np.float32),
            Spec((width,), np.int32),
            Spec((width,), np.int32),
            Spec((width,), np.float32),
        )
