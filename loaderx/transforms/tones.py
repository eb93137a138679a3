"""Tones: gamma, solarize, posterize, invert, contrast and histogram to the full range: value by value, in place.

Of four channels the last is opacity (alpha) and stays as it is.
"""

from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.tones import (
    BLOCK,
    count_values,
    equalizing_table,
    find_extremes,
    identity_table,
    inverted,
    is_alpha,
    keep_bits,
    look_up,
    raise_values,
    stretch_channels,
    threshold,
)
from loaderx.spec import Spec

from .amounts import Amount, Amounts, Choice, amounts, draw_amount
from .base import between
from .image import ImageTransform
from .sample import FixedSpec


def _tables(spec: Spec) -> Spec:
    """Return the workspace for the result of each byte, by channel."""
    return FixedSpec((spec.shape[2], 256), np.uint8)


def gamma(x: Any, rng: Any, exponent: Any, white: float, tables: Any) -> None:
    """Raise values from 0 to 1 to a power."""
    power = draw_amount(rng, exponent)
    if power != 1:
        raise_values(x, power, white, tables)


class Gamma(ImageTransform):
    """Gamma: value ** gamma, with black 0 and white 1: below 1 the dark becomes lighter, above 1 the light darker."""

    function = staticmethod(gamma)

    def __init__(self, gamma: Amount = (0.8, 1.25), *, probability: float = 1.0) -> None:
        super().__init__(exponent=amounts("gamma", gamma, 0))
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (_tables(spec),)


def solarize(x: Any, rng: Any, share: Any, white: float) -> None:
    """Invert light values."""
    limit = threshold(draw_amount(rng, share) * white, x)
    flat, channels = x.reshape(-1), x.shape[2]
    for k in range(flat.shape[0]):
        value = flat[k]
        changed = value >= limit and not is_alpha(k, channels)
        flat[k] = inverted(value, white, x) if changed else value


class Solarize(ImageTransform):
    """Solarisation: values of at least `threshold`, a share of white, are inverted."""

    function = staticmethod(solarize)

    def __init__(self, threshold: Amount = 0.5, *, probability: float = 1.0) -> None:
        super().__init__(share=amounts("threshold", threshold, 0, 1))
        self.happens_with(probability)


def posterize(x: Any, rng: Any, bits: Any, white: float) -> None:
    """Reduce the number of levels."""
    keep_bits(x, int(draw_amount(rng, bits)), white)


def _bits(bits: Amount) -> Amounts:
    """Return the numbers of bits to choose from."""
    found = amounts("bits", bits, 1, 8)
    if np.any(found % 1):
        raise ArgumentError(
            f"`bits` (={bits!r}) must be whole numbers: one, a range of two, or a Choice."
        )
    if len(found) == 2:
        return amounts("bits", Choice(*np.arange(found[0], found[1] + 1)), 1, 8)
    return found


class Posterize(ImageTransform):
    """Posterisation to the `bits` upper bits of every integer, 1 to 8 of them; floats as 2 ** bits levels in [0, 1)."""

    function = staticmethod(posterize)

    def __init__(self, bits: Amount = 4, *, probability: float = 1.0) -> None:
        super().__init__(bits=_bits(bits))
        self.happens_with(probability)


def invert(x: Any, rng: Any, probability: float, white: float) -> None:
    """Subtract the image from white."""
    if rng.random() < probability:
        flat, channels = x.reshape(-1), x.shape[2]
        for k in range(flat.shape[0]):
            value = flat[k]
            flat[k] = value if is_alpha(k, channels) else inverted(value, white, x)


class Invert(ImageTransform):
    """Negative, white minus each value, with `probability`."""

    function = staticmethod(invert)

    def __init__(self, probability: float = 1.0) -> None:
        super().__init__(probability=between("probability", probability, 0, 1))


def auto_contrast(
    x: Any,
    rng: Any,
    probability: float,
    white: float,
    lows: Any,
    highs: Any,
    shifts: Any,
    scales: Any,
    tables: Any,
) -> None:
    """Stretch each channel from black to white."""
    if rng.random() < probability:
        find_extremes(x, lows, highs)
        stretch_channels(x, white, lows, highs, shifts, scales, tables)


class AutoContrast(ImageTransform):
    """Stretched contrast, with `probability`: each channel's darkest value becomes black, its lightest white."""

    function = staticmethod(auto_contrast)
    clips = False

    def __init__(self, probability: float = 1.0) -> None:
        super().__init__(probability=between("probability", probability, 0, 1))

    def output(self, spec: Spec) -> Spec:
        super().output(spec)
        if spec.dtype.kind == "b":
            raise ArgumentError(f"{self.name} accepts integers, float32 or float64, not {spec}.")
        return spec

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        line, block = (spec.shape[1] * spec.shape[2],), (BLOCK * spec.shape[2],)
        number = np.float32 if np.can_cast(spec.dtype, np.float32) else np.float64
        return (
            *(FixedSpec(block, spec.dtype), FixedSpec(block, spec.dtype)),
            *(Spec(line, number), Spec(line, number)),
            _tables(spec),
        )


def equalize(x: Any, rng: Any, probability: float, white: float, counts: Any, tables: Any) -> None:
    """Spread the values of each channel evenly."""
    if rng.random() < probability:
        count_values(x, counts)
        for c in range(x.shape[2]):
            if is_alpha(c, x.shape[2]):
                identity_table(tables[c])
            else:
                equalizing_table(counts[0, c], tables[c])
        look_up(x, tables)


class Equalize(ImageTransform):
    """Histogram equalisation of each channel of a uint8 image, with `probability`."""

    function = staticmethod(equalize)

    def __init__(self, probability: float = 1.0) -> None:
        super().__init__(probability=between("probability", probability, 0, 1))

    def output(self, spec: Spec) -> Spec:
        super().output(spec)
        if spec.dtype != np.uint8:
            raise ArgumentError(f"{self.name} accepts images of uint8, not {spec}.")
        return spec

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return FixedSpec((4, spec.shape[2], 256), np.uint32), _tables(spec)
