"""Brightness, contrast, saturation, grey, erasing: in place on an image of uint8 or floats."""

import math
from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.pixels import luminance, precise, saturate
from loaderx.spec import Spec

from .transform import (
    Parameter,
    SampleTransform,
    as_number,
    between,
    finite,
    image_shape,
    positive_range,
)
from .values import check_numbers, full_scale


class _ImageTransform(SampleTransform):
    """In place, with parameters fixed when it is made."""

    in_place = True
    takes_rng = True
    colour = False

    def __init__(self, **parameters: Parameter) -> None:
        self._parameters = parameters

    def output(self, spec: Spec) -> Spec:
        _, _, channels = image_shape(spec, self.name)
        check_numbers(spec, self.name)
        if len(spec.shape) != 3:
            raise ArgumentError(
                f"{self.name} takes images of shape (height, width, channels), not {spec}."
            )
        if self.colour and channels != 3:
            raise ArgumentError(f"{self.name} takes images of 3 channels, not {spec}.")
        return spec

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return {**self._parameters, "white": full_scale(spec)}


def _amount(amount: Any) -> float:
    number = as_number(amount)
    if not 0 <= number < math.inf:
        raise ArgumentError(f"`amount` (={amount!r}) must be a finite number of at least 0.")
    return number


def brightness(x: Any, rng: Any, amount: float, white: float) -> None:
    """Towards black, or away from it."""
    factor = precise(rng.uniform(max(0.0, 1.0 - amount), 1.0 + amount), x)
    flat = x.reshape(-1)
    for k in range(flat.shape[0]):
        flat[k] = saturate(min(precise(flat[k], x) * factor, precise(white, x)), x)


class Brightness(_ImageTransform):
    """Times a factor from 1 - amount to 1 + amount."""

    function = staticmethod(brightness)

    def __init__(self, amount: float) -> None:
        super().__init__(amount=_amount(amount))


def contrast(x: Any, rng: Any, amount: float, white: float) -> None:
    """Towards the mean grey, or away from it."""
    factor = precise(rng.uniform(max(0.0, 1.0 - amount), 1.0 + amount), x)
    height, width, channels = x.shape
    # A Python float would take the precision of the lines in plain Python, but not in compiled code.
    total: Any = np.float64(0)
    for i in range(height):
        line: Any = precise(0, x)
        for j in range(width):
            if channels == 3:
                line += luminance(
                    precise(x[i, j, 0], x), precise(x[i, j, 1], x), precise(x[i, j, 2], x)
                )
            else:
                for c in range(channels):
                    line += precise(x[i, j, c], x) / precise(channels, x)
        total += line
    middle = precise(total / (height * width), x)
    rest = middle * (precise(1, x) - factor)
    flat = x.reshape(-1)
    for k in range(flat.shape[0]):
        value = precise(flat[k], x) * factor + rest
        flat[k] = saturate(min(max(value, precise(0, x)), precise(white, x)), x)


class Contrast(_ImageTransform):
    """Away from the mean grey of the image by a factor from 1 - amount to 1 + amount."""

    function = staticmethod(contrast)

    def __init__(self, amount: float) -> None:
        super().__init__(amount=_amount(amount))


def saturation(x: Any, rng: Any, amount: float, white: float) -> None:
    """Towards the grey of each pixel, or away from it."""
    factor = precise(rng.uniform(max(0.0, 1.0 - amount), 1.0 + amount), x)
    rest = precise(1, x) - factor
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            grey = rest * luminance(
                precise(x[i, j, 0], x), precise(x[i, j, 1], x), precise(x[i, j, 2], x)
            )
            for c in range(3):
                value = precise(x[i, j, c], x) * factor + grey
                x[i, j, c] = saturate(min(max(value, precise(0, x)), precise(white, x)), x)


class Saturation(_ImageTransform):
    """Away from the grey of each pixel by a factor from 1 - amount to 1 + amount."""

    function = staticmethod(saturation)
    colour = True

    def __init__(self, amount: float) -> None:
        super().__init__(amount=_amount(amount))


def grayscale(x: Any, rng: Any, probability: float, white: float) -> None:
    """All channels become the grey of the pixel."""
    if rng.random() < probability:
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                grey = saturate(
                    luminance(
                        precise(x[i, j, 0], x), precise(x[i, j, 1], x), precise(x[i, j, 2], x)
                    ),
                    x,
                )
                x[i, j, 0] = grey
                x[i, j, 1] = grey
                x[i, j, 2] = grey


class Grayscale(_ImageTransform):
    """Grey in all three channels, with `probability`."""

    function = staticmethod(grayscale)
    colour = True

    def __init__(self, probability: float = 1.0) -> None:
        super().__init__(probability=between("probability", probability, 0, 1))


def random_erasing(
    x: Any,
    rng: Any,
    probability: float,
    scale_low: float,
    scale_high: float,
    ratio_low: float,
    ratio_high: float,
    value: float,
    white: float,
) -> None:
    """A rectangle of one value; nothing after ten that do not fit."""
    height, width, channels = x.shape
    if rng.random() >= probability:
        return
    for _ in range(10):
        area = height * width * rng.uniform(scale_low, scale_high)
        aspect = math.exp(rng.uniform(math.log(ratio_low), math.log(ratio_high)))
        down, across = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < down < height and 0 < across < width:
            top = rng.integers(0, height - down + 1)
            left = rng.integers(0, width - across + 1)
            for i in range(top, top + down):
                for j in range(left, left + across):
                    for c in range(channels):
                        x[i, j, c] = saturate(value, x)
            return


class RandomErasing(_ImageTransform):
    """With `probability`, a rectangle of an area and ratio within `scale` and `ratio` becomes `value`."""

    function = staticmethod(random_erasing)

    def __init__(
        self,
        probability: float = 0.5,
        *,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: float = 0.0,
    ) -> None:
        scale_low, scale_high = positive_range("scale", scale, 1)
        ratio_low, ratio_high = positive_range("ratio", ratio)
        super().__init__(
            probability=between("probability", probability, 0, 1),
            scale_low=scale_low,
            scale_high=scale_high,
            ratio_low=ratio_low,
            ratio_high=ratio_high,
            value=finite("value", value),
        )
