"""Noise and holes, which hide parts of an image; in place."""

import math
from typing import Any

import numpy as np

from loaderx.kernels.compilation import jitable
from loaderx.kernels.distributions import next_bits
from loaderx.kernels.noise import (
    add_noise,
    draw_poisson,
    fill_poisson,
    fill_shares,
    mark_pixels,
    poisson_at,
)
from loaderx.kernels.pixels import precise, saturate
from loaderx.kernels.tones import is_alpha, keep_alpha, restore_alpha, rounded
from loaderx.spec import Spec

from .amounts import Amount, amounts, draw_amount
from .base import finite
from .image import ImageTransform, alpha_space


def gaussian_noise(x: Any, rng: Any, std: Any, mean: Any, white: float, alpha: Any) -> None:
    """Add a normal number to every value."""
    deviation, middle = draw_amount(rng, std), draw_amount(rng, mean)
    if deviation != 0.0 or middle != 0.0:
        keep_alpha(x, alpha)
        add_noise(x.reshape(-1), next_bits(rng), middle * white, deviation * white, white)
        restore_alpha(alpha, x)


class GaussianNoise(ImageTransform):
    """Gaussian noise for every value, with a deviation of `std` around `mean` in fractions of white; clipped.

    Of four channels the last is opacity (alpha) and stays as it is.
    """

    function = staticmethod(gaussian_noise)

    def __init__(
        self, std: Amount = (0.0, 0.1), mean: Amount = 0.0, *, probability: float = 1.0
    ) -> None:
        super().__init__(std=amounts("std", std, 0.0), mean=amounts("mean", mean))
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (alpha_space(spec),)


def salt_pepper(x: Any, rng: Any, amount: Any, salt: Any, white: float, marks: Any) -> None:
    """Set random pixels to white or black."""
    share = draw_amount(rng, amount)
    pepper = share * (1.0 - draw_amount(rng, salt))
    if share <= 0.0:
        return
    # In units of 24 random bits.
    mark_pixels(next_bits(rng), round(pepper * 2.0**24), round(share * 2.0**24), marks.reshape(-1))
    height, width, channels = x.shape
    colours = 3 if channels == 4 else channels
    # Few pixels are marked, so most of the time a branch is all there is to do.
    for i in range(height):
        for j in range(width):
            if marks[i, j] != 0:
                value = saturate(white if marks[i, j] == 2 else 0.0, x)
                for c in range(colours):
                    x[i, j, c] = value


class SaltPepper(ImageTransform):
    """Salt-and-pepper noise: a share of `amount` of all pixels becomes white (a share `salt` of these) or black.

    Of four channels the last is opacity (alpha) and stays as it is.
    """

    function = staticmethod(salt_pepper)

    def __init__(
        self, amount: Amount = (0.0, 0.05), salt: Amount = 0.5, *, probability: float = 1.0
    ) -> None:
        super().__init__(
            amount=amounts("amount", amount, 0.0, 1.0), salt=amounts("salt", salt, 0.0, 1.0)
        )
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (Spec(spec.shape[:2], np.uint8),)


@jitable
def amount_at(share: Any, values: Any) -> Any:
    """Return the number at a share from 0 to 1 of a range or a choice: like `draw_amount`, without a generator."""
    if len(values) == 1:
        return values[0]
    if len(values) == 2:
        return values[0] + (values[1] - values[0]) * share
    return values[min(int(share * len(values)), len(values) - 1)]


def multiplicative_noise(
    x: Any,
    rng: Any,
    multiplier: Any,
    per_channel: bool,
    elementwise: bool,
    white: float,
    scales: Any,
) -> None:
    """Multiply by a factor for the image, for each channel, for each pixel, or for each value."""
    height, width, channels = x.shape
    lines, length = x.reshape(height, width * channels), width * channels
    least, most = precise(0, x), precise(white, x)
    key = next_bits(rng)
    if not elementwise:
        factor = draw_amount(rng, multiplier)
        for c in range(channels):
            if per_channel and c > 0:
                factor = draw_amount(rng, multiplier)
            for j in range(width):
                scales[j * channels + c] = factor
    for i in range(height):
        if elementwise:
            repeats = 1 if per_channel else channels
            fill_shares(key, i * (length // repeats), repeats, scales)
            for k in range(length):
                scales[k] = amount_at(scales[k], multiplier)
        for k in range(length):
            value = lines[i, k]
            changed = rounded(min(max(precise(value, x) * scales[k], least), most), x)
            lines[i, k] = value if is_alpha(k, channels) else changed


class MultiplicativeNoise(ImageTransform):
    """Factor from a range for the image, or for parts of it (Albumentations' MultiplicativeNoise); clipped.

    With `per_channel` there is a factor for each channel, with `elementwise` one for each pixel, and with both one for
    each value. Of four channels the last is opacity (alpha) and stays as it is.
    """

    function = staticmethod(multiplicative_noise)

    def __init__(
        self,
        multiplier: Amount = (0.9, 1.1),
        *,
        per_channel: bool = False,
        elementwise: bool = False,
        probability: float = 1.0,
    ) -> None:
        super().__init__(
            multiplier=amounts("multiplier", multiplier, 0.0),
            per_channel=bool(per_channel),
            elementwise=bool(elementwise),
        )
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        number = np.float32 if np.can_cast(spec.dtype, np.float32) else np.float64
        return (Spec((spec.shape[1] * spec.shape[2],), number),)


def shot_noise(x: Any, rng: Any, photons: Any, white: float) -> None:
    """Replace each value by a Poisson count of its photons."""
    peak = draw_amount(rng, photons)
    if peak <= 0.0:
        return
    flat, channels = x.reshape(-1), x.shape[2]
    to_photons, to_value = peak / white, white / peak
    for k in range(flat.shape[0]):
        # Drawing a number costs more than a branch.
        if is_alpha(k, channels):
            continue
        mean = min(max(np.float64(flat[k]), 0.0), white) * to_photons
        flat[k] = saturate(min(draw_poisson(rng, mean) * to_value, white), x)


class ShotNoise(ImageTransform):
    """Poisson noise of a sensor that counts `photons` in a white value; fewer mean more noise; clipped.

    A value v from 0 to 1 becomes Poisson(v * photons) / photons: the mean is v, the variance v / photons. It is
    shot_noise of ImageNet-C (Hendrycks and Dietterich, 2019), whose severities are 60, 25, 12, 5 and 3 photons;
    Albumentations' ShotNoise does the same to the light that pixels with a gamma of 2.2 encode. 0 photons mean no
    noise. Of four channels the last is opacity (alpha) and stays as it is.
    """

    function = staticmethod(shot_noise)

    def __init__(self, photons: Amount = (12.0, 60.0), *, probability: float = 1.0) -> None:
        super().__init__(photons=amounts("photons", photons, 0.0, 1e9))
        self.happens_with(probability)


def iso_noise(
    x: Any, rng: Any, color_shift: Any, intensity: Any, white: float, law: Any, guides: Any
) -> None:  # fmt: skip
    """Draw hue and lightness noise for every pixel."""
    height, width, channels = x.shape
    flat, pixels = x.reshape(-1), height * width
    step = 1 if channels > 1 else 0
    shift, strength = draw_amount(rng, color_shift), draw_amount(rng, intensity)
    if strength <= 0.0:
        return
    total, squares = 0.0, 0.0
    for j in range(pixels):
        red, green, blue = _shares(flat, j * channels, step, white)
        light = (max(red, green, blue) + min(red, green, blue)) / 2
        total += light
        squares += light * light
    mean = total / pixels
    grain = math.sqrt(max(squares / pixels - mean * mean, 0.0)) * strength * 255.0
    fits = fill_poisson(grain, law, guides)
    for j in range(pixels):
        red, green, blue = _shares(flat, j * channels, step, white)
        count = poisson_at(rng.random(), law, guides) if fits else draw_poisson(rng, grain)
        more = count / 255.0
        turn = 6.0 * shift * strength * rng.standard_normal()
        red, green, blue = _noisy_colour(red, green, blue, turn, more)
        flat[j * channels] = saturate(min(max(red, 0.0), 1.0) * white, x)
        flat[j * channels + step] = saturate(min(max(green, 0.0), 1.0) * white, x)
        flat[j * channels + 2 * step] = saturate(min(max(blue, 0.0), 1.0) * white, x)


@jitable
def _shares(flat: Any, at: Any, step: Any, white: Any) -> Any:
    """Return red, green and blue from 0 to 1; their places are `step` apart, 0 in a grey image."""
    return (
        min(max(np.float64(flat[at]) / white, 0.0), 1.0),
        min(max(np.float64(flat[at + step]) / white, 0.0), 1.0),
        min(max(np.float64(flat[at + 2 * step]) / white, 0.0), 1.0),
    )


@jitable
def _noisy_colour(red: Any, green: Any, blue: Any, turn: Any, more: Any) -> Any:
    """Change a colour in HLS: turn its hue by sixths of the circle, and move its lightness towards white by a share."""
    top, bottom = max(red, green, blue), min(red, green, blue)
    chroma, light = top - bottom, (top + bottom) / 2
    lighter = min(light + more * (1.0 - light), 1.0)
    if chroma <= 0.0:
        return lighter, lighter, lighter
    if red == top:
        place = (green - blue) / chroma
    elif green == top:
        place = 2.0 + (blue - red) / chroma
    else:
        place = 4.0 + (red - green) / chroma
    place += turn
    place -= 6.0 * math.floor(place / 6.0)
    wide = chroma / (1.0 - abs(2.0 * light - 1.0)) * (1.0 - abs(2.0 * lighter - 1.0))
    low = lighter - wide / 2
    return (
        low + wide * min(max(abs(place - 3.0) - 1.0, 0.0), 1.0),
        low + wide * min(max(2.0 - abs(place - 2.0), 0.0), 1.0),
        low + wide * min(max(2.0 - abs(place - 4.0), 0.0), 1.0),
    )


# Counts of a Poisson law that are told apart, and the parts of it in which a search begins.
POISSON_COUNTS, POISSON_PARTS = 1024, 256


class ISONoise(ImageTransform):
    """Camera noise in the dark: Poisson in lightness, normal in hue (Albumentations' ISONoise); clipped.

    In HLS, with the deviation of the lightness s: it moves towards white by Poisson(255 s intensity) / 255 of what is
    left, and the hue turns by a normal number of deviation color_shift * intensity, in turns of the circle. A grey
    image has no hue.
    """

    function = staticmethod(iso_noise)
    accepted_channels = (1, 3, 4)

    def __init__(
        self,
        color_shift: Amount = (0.01, 0.05),
        intensity: Amount = (0.1, 0.5),
        *,
        probability: float = 1.0,
    ) -> None:
        super().__init__(
            color_shift=amounts("color_shift", color_shift, 0.0),
            intensity=amounts("intensity", intensity, 0.0),
        )
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return Spec((POISSON_COUNTS,), np.float64), Spec((POISSON_PARTS,), np.int32)


def grid_mask(x: Any, rng: Any, period: Any, keep: Any, fill: float, white: float) -> None:
    """Fill the squares of a grid."""
    height, width, channels = x.shape
    unit = max(2, round(draw_amount(rng, period) * min(height, width)))
    side = unit - round(draw_amount(rng, keep) * unit)
    top, left = rng.integers(0, unit), rng.integers(0, unit)
    value = saturate(fill, x)
    lines = x.reshape(height, width * channels)
    for i in range(height):
        if (i + top) % unit < side:
            # From square to square; the first may have begun outside.
            for start in range(-left, width, unit):
                # All values in one loop: an inner one over the channels, a number at run time, is no vector code.
                first, last = max(start, 0) * channels, min(start + side, width) * channels
                part = lines[i, first : max(first, last)]
                for k in range(part.shape[0]):
                    part[k] = value


class GridMask(ImageTransform):
    """GridMask: the squares of a grid become `fill` (Chen et al., 2020), without the rotation of the paper.

    `period` is the distance from square to square, a fraction of the shorter side of the image, and `keep` the part of
    it between two squares; both are rounded to pixels. The place of the grid is drawn for every sample.
    """

    function = staticmethod(grid_mask)
    clips = False

    def __init__(
        self,
        period: Amount = (0.2, 0.5),
        keep: Amount = 0.5,
        *,
        fill: float = 0.0,
        probability: float = 1.0,
    ) -> None:
        super().__init__(
            period=amounts("period", period, 0.0),
            keep=amounts("keep", keep, 0.0, 1.0),
            fill=finite("fill", fill),
        )
        self.happens_with(probability)
