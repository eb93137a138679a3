"""Noise and holes: what hides parts of an image; in place."""

from typing import Any

import numpy as np

from loaderx.kernels.distributions import next_bits
from loaderx.kernels.noise import add_noise, mark_pixels
from loaderx.kernels.pixels import saturate
from loaderx.spec import Spec

from .amounts import Amount, amounts, draw_amount
from .base import finite
from .image import ImageTransform


def gaussian_noise(x: Any, rng: Any, std: Any, mean: Any, white: float) -> None:
    """A normal number more for every value."""
    deviation, middle = draw_amount(rng, std), draw_amount(rng, mean)
    if deviation != 0.0 or middle != 0.0:
        add_noise(x.reshape(-1), next_bits(rng), middle * white, deviation * white, white)


class GaussianNoise(ImageTransform):
    """Normal noise for every value, with a deviation of `std` around `mean` in fractions of white; clipped."""

    function = staticmethod(gaussian_noise)

    def __init__(self, std: Amount = (0.0, 0.1), mean: Amount = 0.0) -> None:
        super().__init__(std=amounts("std", std, 0.0), mean=amounts("mean", mean))


def salt_pepper(x: Any, rng: Any, amount: Any, salt: Any, white: float, marks: Any) -> None:
    """White pixels and black ones."""
    share = draw_amount(rng, amount)
    pepper = share * (1.0 - draw_amount(rng, salt))
    if share <= 0.0:
        return
    # Of 24 random bits.
    mark_pixels(next_bits(rng), round(pepper * 2.0**24), round(share * 2.0**24), marks.reshape(-1))
    height, width, channels = x.shape
    # Few pixels are marked, so most of the time a branch is all there is to do.
    for i in range(height):
        for j in range(width):
            if marks[i, j] != 0:
                value = saturate(white if marks[i, j] == 2 else 0.0, x)
                for c in range(channels):
                    x[i, j, c] = value


class SaltPepper(ImageTransform):
    """A share of `amount` of all pixels becomes white in all channels, the share `salt` of these, or black."""

    function = staticmethod(salt_pepper)

    def __init__(self, amount: Amount = (0.0, 0.05), salt: Amount = 0.5) -> None:
        super().__init__(
            amount=amounts("amount", amount, 0.0, 1.0), salt=amounts("salt", salt, 0.0, 1.0)
        )

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (Spec(spec.shape[:2], np.uint8),)


def grid_mask(x: Any, rng: Any, period: Any, keep: Any, fill: float, white: float) -> None:
    """The squares of a grid."""
    height, width, channels = x.shape
    unit = max(2, round(draw_amount(rng, period) * min(height, width)))
    side = unit - round(draw_amount(rng, keep) * unit)
    top, left = rng.integers(0, unit), rng.integers(0, unit)
    value = saturate(fill, x)
    for i in range(height):
        if (i + top) % unit < side:
            # From square to square; the first may have begun outside.
            for start in range(-left, width, unit):
                for j in range(max(start, 0), min(start + side, width)):
                    for c in range(channels):
                        x[i, j, c] = value


class GridMask(ImageTransform):
    """The squares of a grid become `fill` (Chen et al., "GridMask data augmentation", 2020), without its rotation.

    `period` is the distance from square to square, a fraction of the shorter side of the image, and `keep` the part of
    it between two squares; both are rounded to pixels. The place of the grid is drawn for every sample.
    """

    function = staticmethod(grid_mask)
    clips = False

    def __init__(
        self, period: Amount = (0.2, 0.5), keep: Amount = 0.5, *, fill: float = 0.0
    ) -> None:
        super().__init__(
            period=amounts("period", period, 0.0),
            keep=amounts("keep", keep, 0.0, 1.0),
            fill=finite("fill", fill),
        )
