"""Brightness, contrast, saturation, hue, channels, grey, erasing: in place on an image of uint8 or floats.

Of four channels the last is opacity (alpha), which ops on colours leave as it is. A grey image has no colours: ops
that change only these leave it as it is.
"""

import math
from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.distributions import next_bits
from loaderx.kernels.pixels import in_range, luminance, precise, saturate
from loaderx.kernels.tones import (
    BLOCK,
    is_alpha,
    merge_colours,
    rounded,
    split_colours,
)
from loaderx.kernels.vectors import reorder_threes
from loaderx.spec import Spec

from .amounts import Amount, draw_amount, factors, spread
from .base import between, finite, image_shape, is_integer, positive_range
from .dropout import Fill, check_fill, count_range, draw_count, fill_box, fill_values
from .image import ImageTransform
from .sample import FixedSpec

# The sum of this many bytes fits 16 bits.
ROWS = 256


@jitable
def brighten(x: Any, factor: Any, white: float) -> None:
    """Scale values towards black, or away from it."""
    least, most = precise(0, x), precise(white, x)
    flat, channels = x.reshape(-1), x.shape[2]
    for k in range(flat.shape[0]):
        value = flat[k]
        changed = rounded(min(max(precise(value, x) * factor, least), most), x)
        flat[k] = value if is_alpha(k, channels) else changed


def brightness(x: Any, rng: Any, amount: Any, white: float) -> None:
    """Multiply an image by a drawn factor."""
    brighten(x, precise(draw_amount(rng, amount), x), white)


class Brightness(ImageTransform):
    """Brightness times a factor from 1 - amount to 1 + amount, or from a range of factors."""

    function = staticmethod(brightness)

    def __init__(self, amount: Amount, *, probability: float = 1.0) -> None:
        super().__init__(amount=factors("amount", amount))
        self.happens_with(probability)


@jitable
def mean_grey(x: Any, columns: Any) -> Any:
    """Return the mean of the grey of all pixels."""
    height, width, channels = x.shape
    lines = x.reshape(height, width * channels)
    red, green, blue = np.float64(0), np.float64(0), np.float64(0)
    for begin in range(0, height, ROWS):
        # Column by column: one sum of floats would be added up one value after the other.
        for k in range(width * channels):
            columns[k] = 0
        for i in range(begin, min(begin + ROWS, height)):
            for k in range(width * channels):
                columns[k] += lines[i, k]
        for j in range(width):
            if 3 <= channels <= 4:
                red += columns[j * channels]
                green += columns[j * channels + 1]
                blue += columns[j * channels + 2]
            else:
                for c in range(channels):
                    red += columns[j * channels + c]
    total = luminance(red, green, blue) if 3 <= channels <= 4 else red / channels
    return precise(total / (height * width), x)


@jitable
def stretch(x: Any, factor: Any, white: float, columns: Any) -> None:
    """Move values towards the mean grey, or away from it."""
    rest = mean_grey(x, columns) * (precise(1, x) - factor)
    least, most = precise(0, x), precise(white, x)
    flat, channels = x.reshape(-1), x.shape[2]
    for k in range(flat.shape[0]):
        value = flat[k]
        changed = rounded(min(max(precise(value, x) * factor + rest, least), most), x)
        flat[k] = value if is_alpha(k, channels) else changed


def contrast(x: Any, rng: Any, amount: Any, white: float, columns: Any) -> None:
    """Move values away from the mean grey by a drawn factor."""
    stretch(x, precise(draw_amount(rng, amount), x), white, columns)


def columns_space(spec: Spec) -> Spec:
    """Return the workspace for sums of columns, exact for uint8."""
    dtype = np.uint16 if spec.dtype == np.uint8 else np.float64
    return Spec((math.prod(spec.shape[1:]),), dtype)


def planes_space(spec: Spec) -> Spec:
    """Return the workspace for the channels of a block of pixels."""
    return FixedSpec((3, BLOCK), spec.dtype)


class Contrast(ImageTransform):
    """Contrast: the distance from the mean grey times a factor from 1 - amount to 1 + amount, or from a range."""

    function = staticmethod(contrast)

    def __init__(self, amount: Amount, *, probability: float = 1.0) -> None:
        super().__init__(amount=factors("amount", amount))
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (columns_space(spec),)


@jitable
def saturate_colours(x: Any, factor: Any, white: float, planes: Any) -> None:
    """Move colours towards the grey of each pixel, or away from it."""
    rest = precise(1, x) - factor
    least, most = precise(0, x), precise(white, x)
    pixels = x.shape[0] * x.shape[1] if x.shape[2] > 1 else 0
    for start in range(0, pixels, BLOCK):
        count = min(BLOCK, pixels - start)
        split_colours(x, start, count, planes)
        for j in range(BLOCK):
            red, green, blue = colours_at(planes, j)
            grey = rest * luminance(red, green, blue)
            planes[0, j] = rounded(min(max(red * factor + grey, least), most), x)
            planes[1, j] = rounded(min(max(green * factor + grey, least), most), x)
            planes[2, j] = rounded(min(max(blue * factor + grey, least), most), x)
        merge_colours(planes, start, count, x)


@jitable
def colours_at(planes: Any, j: int) -> Any:
    """Return red, green and blue of a pixel of a block."""
    return (
        precise(planes[0, j], planes),
        precise(planes[1, j], planes),
        precise(planes[2, j], planes),
    )


def saturation(x: Any, rng: Any, amount: Any, white: float, planes: Any) -> None:
    """Move colours away from the grey of each pixel by a drawn factor."""
    saturate_colours(x, precise(draw_amount(rng, amount), x), white, planes)


class Saturation(ImageTransform):
    """Saturation: the distance from each pixel's grey times a factor from 1 - amount to 1 + amount, or from a range."""

    function = staticmethod(saturation)
    accepted_channels = (1, 3, 4)

    def __init__(self, amount: Amount, *, probability: float = 1.0) -> None:
        super().__init__(amount=factors("amount", amount))
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (planes_space(spec),)


@jitable
def turn_hue(x: Any, turn: Any, white: float, planes: Any) -> None:
    """Turn colours along the hue circle, whose length is 1; lightest and darkest channel keep their values."""
    shift = precise(6 * turn, x)
    none, two, three = precise(0, x), precise(2, x), precise(3, x)
    four, six = precise(4, x), precise(6, x)
    pixels = x.shape[0] * x.shape[1] if x.shape[2] > 1 else 0
    for start in range(0, pixels, BLOCK):
        count = min(BLOCK, pixels - start)
        split_colours(x, start, count, planes)
        for j in range(BLOCK):
            red, green, blue = colours_at(planes, j)
            red, green = in_range(red, white, x), in_range(green, white, x)
            blue = in_range(blue, white, x)
            top, bottom = max(red, green, blue), min(red, green, blue)
            chroma = top - bottom
            # The place on the circle from 0 to 6, times the chroma: nothing is divided, and grey needs no exception.
            place = four * chroma + (red - green)
            place = two * chroma + (blue - red) if green == top else place
            place = green - blue if red == top else place
            place += shift * chroma
            around = six * chroma
            place = place + around if place < none else place
            place = place - around if place >= around else place
            red = min(max(abs(place - three * chroma) - chroma, none), chroma)
            green = min(max(two * chroma - abs(place - two * chroma), none), chroma)
            blue = min(max(two * chroma - abs(place - four * chroma), none), chroma)
            planes[0, j] = rounded(bottom + red, x)
            planes[1, j] = rounded(bottom + green, x)
            planes[2, j] = rounded(bottom + blue, x)
        merge_colours(planes, start, count, x)


def hue(x: Any, rng: Any, amount: Any, white: float, planes: Any) -> None:
    """Turn the hue by a drawn part of the circle."""
    turn = draw_amount(rng, amount)
    if turn != 0:
        turn_hue(x, turn, white, planes)


class Hue(ImageTransform):
    """Hue turned along the circle of colours by -amount to amount of it, or by a range; at most by half of it."""

    function = staticmethod(hue)
    accepted_channels = (1, 3, 4)

    def __init__(self, amount: Amount, *, probability: float = 1.0) -> None:
        super().__init__(amount=spread("amount", amount, most=0.5))
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (planes_space(spec),)


def color_jitter(
    x: Any,
    rng: Any,
    brightness: Any,
    contrast: Any,
    saturation: Any,
    hue: Any,
    white: float,
    columns: Any,
    planes: Any,
    order: Any,
) -> None:
    """Apply the four changes in a random order; one that changes nothing costs nothing."""
    for step in range(4):
        order[step] = step
    for step in range(3):
        other = rng.integers(step, 4)
        order[step], order[other] = order[other], order[step]
    for step in range(4):
        if order[step] == 0:
            factor = precise(draw_amount(rng, brightness), x)
            if factor != 1:
                brighten(x, factor, white)
        elif order[step] == 1:
            factor = precise(draw_amount(rng, contrast), x)
            if factor != 1:
                stretch(x, factor, white, columns)
        elif order[step] == 2:
            factor = precise(draw_amount(rng, saturation), x)
            if factor != 1:
                saturate_colours(x, factor, white, planes)
        else:
            turn = draw_amount(rng, hue)
            if turn != 0:
                turn_hue(x, turn, white, planes)


class ColorJitter(ImageTransform):
    """Brightness, Contrast, Saturation and Hue of these amounts, in an order that is drawn for every image."""

    function = staticmethod(color_jitter)
    accepted_channels = (1, 3, 4)

    def __init__(
        self,
        brightness: Amount = 0.0,
        contrast: Amount = 0.0,
        saturation: Amount = 0.0,
        hue: Amount = 0.0,
        *,
        probability: float = 1.0,
    ) -> None:
        super().__init__(
            brightness=factors("brightness", brightness),
            contrast=factors("contrast", contrast),
            saturation=factors("saturation", saturation),
            hue=spread("hue", hue, most=0.5),
        )
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return columns_space(spec), planes_space(spec), Spec((4,), np.int64)


def grayscale(x: Any, rng: Any, probability: float, white: float, planes: Any) -> None:
    """Set all channels to the grey of the pixel."""
    if rng.random() >= probability:
        return
    pixels = x.shape[0] * x.shape[1] if x.shape[2] > 1 else 0
    for start in range(0, pixels, BLOCK):
        count = min(BLOCK, pixels - start)
        split_colours(x, start, count, planes)
        for j in range(BLOCK):
            red, green, blue = colours_at(planes, j)
            grey = rounded(luminance(red, green, blue), x)
            planes[0, j] = grey
            planes[1, j] = grey
            planes[2, j] = grey
        merge_colours(planes, start, count, x)


class Grayscale(ImageTransform):
    """Grey in all three channels, with `probability`."""

    function = staticmethod(grayscale)
    clips = False
    accepted_channels = (1, 3, 4)

    def __init__(self, probability: float = 1.0) -> None:
        super().__init__(probability=between("probability", probability, 0, 1))

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (planes_space(spec),)


@jitable
def shuffle_channels(x: Any, rng: Any, shuffled: Any, order: Any, pixel: Any) -> None:
    """Put the first `shuffled` channels into a random order."""
    channels = x.shape[2]
    for c in range(shuffled):
        order[c] = c
    for c in range(shuffled - 1):
        other = rng.integers(c, shuffled)
        order[c], order[other] = order[other], order[c]
    flat, first = x.reshape(-1), 0
    if channels == 3:
        first = reorder_threes(flat, order[0], order[1])
    for j in range(first, x.shape[0] * x.shape[1]):
        for c in range(shuffled):
            pixel[c] = flat[j * channels + c]
        for c in range(shuffled):
            flat[j * channels + c] = pixel[order[c]]


def channel_shuffle(
    x: Any, rng: Any, probability: float, white: float, order: Any, pixel: Any
) -> None:
    """Put the channels into a random order, with a probability."""
    if rng.random() >= probability:
        return
    shuffle_channels(x, rng, 3 if x.shape[2] == 4 else x.shape[2], order, pixel)


class ChannelShuffle(ImageTransform):
    """Channels in a random order, with `probability`; each order is as likely as the others.

    Of four channels the last is opacity (alpha) and stays as it is.
    """

    function = staticmethod(channel_shuffle)
    clips = False

    def __init__(self, probability: float = 1.0) -> None:
        super().__init__(probability=between("probability", probability, 0, 1))

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return Spec(spec.shape[2:], np.int64), Spec(spec.shape[2:], spec.dtype)


def channel_drop(
    x: Any,
    rng: Any,
    probability: float,
    channels: int,
    fill: float,
    white: float,
    kept: Any,
    filled: Any,
) -> None:
    """Set some channels to one value."""
    if rng.random() >= probability:
        return
    value, left = saturate(fill, x), channels
    every = x.shape[2]
    colours = 3 if every == 4 else every
    # Listed for a block of pixels, as masks of bits: a loop over one channel moves single values.
    line, itemsize = filled.view(np.uint8), kept.shape[0] // filled.shape[0]
    for c in range(every):
        # Of the channels from here on `left` are dropped, each as likely as the others; opacity is not one of them.
        drop = c < colours and rng.integers(0, colours - c) < left
        left -= 1 if drop else 0
        filled[c] = value if drop else saturate(0, x)
        for byte in range(itemsize):
            kept[c * itemsize + byte] = 0 if drop else 255
    # From the first pixel to the whole block, by doubling: the strides of single values are not constant here.
    done = every * itemsize
    while done < kept.shape[0]:
        more = min(done, kept.shape[0] - done)
        for k in range(more):
            kept[done + k] = kept[k]
            line[done + k] = line[k]
        done += more
    flat = x.reshape(-1).view(np.uint8)
    size, length = flat.shape[0], kept.shape[0]
    for begin in range(0, size - size % length, length):
        block = flat[begin : begin + length]
        for k in range(length):
            block[k] = (block[k] & kept[k]) | line[k]
    rest = flat[size - size % length :]
    for k in range(rest.shape[0]):
        rest[k] = (rest[k] & kept[k]) | line[k]


class ChannelDrop(ImageTransform):
    """Channel dropout: with `probability`, `channels` of the channels, each equally likely, become `fill`.

    Of four channels the last is opacity (alpha) and stays as it is.
    """

    function = staticmethod(channel_drop)
    clips = False

    def __init__(self, probability: float = 0.5, channels: int = 1, fill: float = 0.0) -> None:
        if not is_integer(channels, 1):
            raise ArgumentError(f"`channels` (={channels!r}) must be an integer of at least 1.")
        self._channels = int(channels)
        super().__init__(
            probability=between("probability", probability, 0, 1),
            channels=self._channels,
            fill=finite("fill", fill),
        )

    def output(self, spec: Spec) -> Spec:
        super().output(spec)
        channels = image_shape(spec, self.name)[2]
        if self._channels >= (3 if channels == 4 else channels):
            raise ArgumentError(
                f"{self.name}: `channels` (={self._channels}) must be fewer than the image has"
                f"{', besides opacity' if channels == 4 else ''}; the input is {spec}."
            )
        return spec

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        block = BLOCK * spec.shape[2]
        return (
            FixedSpec((block * spec.dtype.itemsize,), np.uint8),
            FixedSpec((block,), spec.dtype),
        )


def random_erasing(
    x: Any,
    rng: Any,
    probability: float,
    scale_low: float,
    scale_high: float,
    ratio_low: float,
    ratio_high: float,
    fewest: int,
    most: int,
    values: Any,
    white: float,
) -> None:
    """Fill rectangles with a value or with noise; one that does not fit in ten draws is left out."""
    if rng.random() >= probability:
        return
    for _ in range(draw_count(rng, fewest, most)):
        erase(x, rng, scale_low, scale_high, ratio_low, ratio_high, values, white)


@jitable
def erase(
    x: Any,
    rng: Any,
    scale_low: float,
    scale_high: float,
    ratio_low: float,
    ratio_high: float,
    values: Any,
    white: float,
) -> None:
    """Fill a rectangle with a value or with noise, or nothing if ten draws do not fit."""
    height, width, _ = x.shape
    for _ in range(10):
        area = height * width * rng.uniform(scale_low, scale_high)
        aspect = math.exp(rng.uniform(math.log(ratio_low), math.log(ratio_high)))
        down, across = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < down < height and 0 < across < width:
            top = rng.integers(0, height - down + 1)
            left = rng.integers(0, width - across + 1)
            key = next_bits(rng) if len(values) == 0 else np.uint64(0)
            fill_box(x, top, top + down, left, left + across, values, key, white)
            return


class RandomErasing(ImageTransform):
    """Random erasing: with `probability`, a rectangle of an area and ratio within `scale` and `ratio` becomes `value`.

    `value` is a number, one for each channel, or "noise": any value from black to white, another one for every value.
    `holes` is how many rectangles there are, a number or a range to draw from.
    """

    function = staticmethod(random_erasing)
    clips = False

    def __init__(
        self,
        probability: float = 0.5,
        *,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: Fill = 0.0,
        holes: int | tuple[int, int] = 1,
    ) -> None:
        scale_low, scale_high = positive_range("scale", scale, 1)
        ratio_low, ratio_high = positive_range("ratio", ratio)
        fewest, most = count_range("holes", holes)
        self._values = fill_values("value", value)
        super().__init__(
            probability=between("probability", probability, 0, 1),
            scale_low=scale_low,
            scale_high=scale_high,
            ratio_low=ratio_low,
            ratio_high=ratio_high,
            fewest=fewest,
            most=most,
            values=self._values,
        )

    def output(self, spec: Spec) -> Spec:
        super().output(spec)
        check_fill(self.name, "value", self._values, spec)
        return spec
