"""Photometric augmentation: linear changes of colours by image or channel, sepia, distortion of SSD; in place.

Of four channels the last is opacity (alpha), which stays as it is.
"""

from typing import Any

import numpy as np

from loaderx.kernels.compilation import jitable
from loaderx.kernels.pixels import precise
from loaderx.kernels.tones import BLOCK, is_alpha, merge_colours, rounded, split_colours
from loaderx.spec import Spec

from .amounts import Amount, amounts, draw_amount, factors, spread
from .base import between
from .colour import (
    brighten,
    colours_at,
    columns_space,
    planes_space,
    saturate_colours,
    shuffle_channels,
    stretch,
    turn_hue,
)
from .image import ImageTransform

# Principal components of the colours of ImageNet from 0 to 1 (Krizhevsky et al., 2012): the deviations along them, and
# one of them per column. These are the numbers that Torch, PyTorch Lightning and Gluon use.
DEVIATIONS = np.array([0.2175, 0.0188, 0.0045])
COMPONENTS = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
)
# Red, green and blue of a pixel in sepia, by its red, green and blue; Microsoft's, and Albumentations'.
SEPIA = np.array([[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]], np.float32)


def random_brightness_contrast(
    x: Any, rng: Any, contrast: Any, brightness: Any, white: float
) -> None:
    """Compute value * factor + shift."""
    factor = precise(draw_amount(rng, contrast), x)
    shift = precise(draw_amount(rng, brightness) * white, x)
    least, most = precise(0, x), precise(white, x)
    flat, channels = x.reshape(-1), x.shape[2]
    for k in range(flat.shape[0]):
        value = flat[k]
        changed = rounded(min(max(precise(value, x) * factor + shift, least), most), x)
        flat[k] = value if is_alpha(k, channels) else changed


class RandomBrightnessContrast(ImageTransform):
    """Linear change, value * factor + shift, drawn per image (Albumentations' RandomBrightnessContrast); clipped.

    The factor is from 1 - contrast to 1 + contrast, or from a range of factors. The shift is from -brightness to
    brightness, or from a range, in fractions of white. `Brightness` and `Contrast` are those of torchvision instead.
    """

    function = staticmethod(random_brightness_contrast)

    def __init__(
        self, brightness: Amount = 0.2, contrast: Amount = 0.2, *, probability: float = 1.0
    ) -> None:
        super().__init__(
            contrast=factors("contrast", contrast), brightness=spread("brightness", brightness, 1.0)
        )
        self.happens_with(probability)


@jitable
def shift_channels(x: Any, red: Any, green: Any, blue: Any, white: Any, shifts: Any) -> None:
    """Add a number to each colour; `shifts` has room for a row, so that the loop over it is vector code."""
    height, width, channels = x.shape
    lines, length = x.reshape(height, width * channels), width * channels
    for k in range(length):
        c = k % channels
        shifts[k] = precise(red if c == 0 else green if c == 1 else blue, x)
    least, most = precise(0, x), precise(white, x)
    for i in range(height):
        for k in range(length):
            value = lines[i, k]
            changed = rounded(min(max(precise(value, x) + shifts[k], least), most), x)
            lines[i, k] = value if is_alpha(k, channels) else changed


def _row_space(spec: Spec) -> Spec:
    """Return the workspace for a number for every value of a row."""
    number = np.float32 if np.can_cast(spec.dtype, np.float32) else np.float64
    return Spec((spec.shape[1] * spec.shape[2],), number)


def rgb_shift(x: Any, rng: Any, shift: Any, white: float, shifts: Any) -> None:
    """Add a drawn number to each channel."""
    red = draw_amount(rng, shift) * white
    green = draw_amount(rng, shift) * white
    blue = draw_amount(rng, shift) * white
    shift_channels(x, red, green, blue, white, shifts)


class RGBShift(ImageTransform):
    """Shift of each colour by -shift to shift, or by a range, in fractions of white (Albumentations' RGBShift).

    The default is 20 of 255 levels, as there. The three shifts are drawn one by one; a grey image has one. Clipped.
    """

    function = staticmethod(rgb_shift)
    accepted_channels = (1, 3, 4)

    def __init__(self, shift: Amount = 20 / 255, *, probability: float = 1.0) -> None:
        super().__init__(shift=spread("shift", shift, 1.0))
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (_row_space(spec),)


def fancy_pca(x: Any, rng: Any, alpha: Any, components: Any, white: float, shifts: Any) -> None:
    """Add normal shifts along the principal components."""
    deviation = draw_amount(rng, alpha) * white
    first = deviation * rng.standard_normal()
    second = deviation * rng.standard_normal()
    third = deviation * rng.standard_normal()
    red = components[0, 0] * first + components[0, 1] * second + components[0, 2] * third
    green = components[1, 0] * first + components[1, 1] * second + components[1, 2] * third
    blue = components[2, 0] * first + components[2, 1] * second + components[2, 2] * third
    shift_channels(x, red, green, blue, white, shifts)


class FancyPCA(ImageTransform):
    """Shift of all pixels along the principal components of ImageNet's colours (Krizhevsky et al., 2012); clipped.

    Along each component the shift is normal, its deviation `alpha` times the component's own. Known as Lighting in
    Torch; Albumentations' FancyPCA computes the components of every image instead.
    """

    function = staticmethod(fancy_pca)
    accepted_channels = (3, 4)

    def __init__(self, alpha: Amount = 0.1, *, probability: float = 1.0) -> None:
        super().__init__(alpha=amounts("alpha", alpha, 0.0), components=COMPONENTS * DEVIATIONS)
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (_row_space(spec),)


def sepia(x: Any, rng: Any, probability: float, matrix: Any, white: float, planes: Any) -> None:
    """Set the colours to those of an old photograph."""
    if rng.random() >= probability:
        return
    most, least = precise(white, x), precise(0, x)
    pixels = x.shape[0] * x.shape[1]
    for start in range(0, pixels, BLOCK):
        count = min(BLOCK, pixels - start)
        split_colours(x, start, count, planes)
        for j in range(BLOCK):
            red, green, blue = colours_at(planes, j)
            first = matrix[0, 0] * red + matrix[0, 1] * green + matrix[0, 2] * blue
            second = matrix[1, 0] * red + matrix[1, 1] * green + matrix[1, 2] * blue
            third = matrix[2, 0] * red + matrix[2, 1] * green + matrix[2, 2] * blue
            planes[0, j] = rounded(min(max(first, least), most), x)
            planes[1, j] = rounded(min(max(second, least), most), x)
            planes[2, j] = rounded(min(max(third, least), most), x)
        merge_colours(planes, start, count, x)


class Sepia(ImageTransform):
    """Sepia, the brown tones of an old photograph, with `probability` (Albumentations' ToSepia); clipped."""

    function = staticmethod(sepia)
    accepted_channels = (3, 4)

    def __init__(self, probability: float = 1.0) -> None:
        super().__init__(probability=between("probability", probability, 0, 1), matrix=SEPIA)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (planes_space(spec),)


def photometric_distort(
    x: Any,
    rng: Any,
    brightness: Any,
    contrast: Any,
    saturation: Any,
    hue: Any,
    probability: float,
    white: float,
    columns: Any,
    planes: Any,
    order: Any,
    pixel: Any,
) -> None:
    """Apply each change with its own probability; contrast comes before saturation and hue, or after them."""
    if rng.random() < probability:
        brighten(x, precise(draw_amount(rng, brightness), x), white)
    before = rng.random() < 0.5
    if before and rng.random() < probability:
        stretch(x, precise(draw_amount(rng, contrast), x), white, columns)
    if rng.random() < probability:
        saturate_colours(x, precise(draw_amount(rng, saturation), x), white, planes)
    if rng.random() < probability:
        turn_hue(x, draw_amount(rng, hue), white, planes)
    if not before and rng.random() < probability:
        stretch(x, precise(draw_amount(rng, contrast), x), white, columns)
    if x.shape[2] > 1 and rng.random() < probability:
        shuffle_channels(x, rng, 3, order, pixel)


class PhotometricDistort(ImageTransform):
    """Random brightness, contrast, saturation, hue and channel order, each with `probability` (SSD, Liu et al., 2016).

    torchvision's RandomPhotometricDistort, with its defaults: contrast comes before saturation and hue or after them,
    either as likely as the other.
    """

    function = staticmethod(photometric_distort)
    accepted_channels = (1, 3, 4)

    def __init__(
        self,
        brightness: Amount = (0.875, 1.125),
        contrast: Amount = (0.5, 1.5),
        saturation: Amount = (0.5, 1.5),
        hue: Amount = (-0.05, 0.05),
        probability: float = 0.5,
    ) -> None:
        super().__init__(
            brightness=factors("brightness", brightness),
            contrast=factors("contrast", contrast),
            saturation=factors("saturation", saturation),
            hue=spread("hue", hue, most=0.5),
            probability=between("probability", probability, 0, 1),
        )

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        colours = (columns_space(spec), planes_space(spec))
        return *colours, Spec((3,), np.int64), Spec((3,), spec.dtype)
