"""Downscale: an image with fewer pixels, enlarged to its size again; in place."""

from typing import Any, Literal

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.pixels import precise, resize_area
from loaderx.kernels.tones import rounded
from loaderx.spec import Spec

from .amounts import Amount, amounts, draw_amount
from .image import ImageTransform


@jitable
def _repeat_pixels(x: Any, tall: Any, wide: Any, small: Any) -> None:
    """The pixels in the middle of `tall` x `wide` cells, each in all of its cell."""
    height, width, channels = x.shape
    for i in range(tall):
        row = (2 * i + 1) * height // (2 * tall)
        for j in range(wide):
            column = (2 * j + 1) * width // (2 * wide)
            for c in range(channels):
                small[(i * wide + j) * channels + c] = x[row, column, c]
    for i in range(height):
        row = (2 * i + 1) * tall // (2 * height) * wide
        for j in range(width):
            at = (row + (2 * j + 1) * wide // (2 * width)) * channels
            for c in range(channels):
                x[i, j, c] = small[at + c]


@jitable
def _blend_pixels(x: Any, small: Any, nears: Any, fars: Any, shares: Any, line: Any) -> None:
    """An image of fewer pixels as x, mixed between the middles of its pixels."""
    height, width, channels = x.shape
    tall, wide = small.shape[0], small.shape[1]
    source, target = small.reshape(tall, wide * channels), x.reshape(height, width * channels)
    for j in range(width):
        place = min(max((j + 0.5) * wide / width - 0.5, 0.0), wide - 1.0)
        near = int(place)
        nears[j], fars[j] = near * channels, min(near + 1, wide - 1) * channels
        shares[j] = place - near
    one = precise(1, x)
    for i in range(height):
        place = min(max((i + 0.5) * tall / height - 0.5, 0.0), tall - 1.0)
        above = int(place)
        upper, lower = source[above], source[min(above + 1, tall - 1)]
        share = precise(place - above, x)
        rest = one - share
        for k in range(wide * channels):
            line[k] = precise(upper[k], x) * rest + precise(lower[k], x) * share
        row = target[i]
        for j in range(width):
            right = shares[j]
            left = one - right
            for c in range(channels):
                value = line[nears[j] + c] * left + line[fars[j] + c] * right
                row[j * channels + c] = rounded(value, x)


def downscale(
    x: Any,
    rng: Any,
    scale: Any,
    smooth: bool,
    white: float,
    small: Any,
    nears: Any,
    fars: Any,
    shares: Any,
    line: Any,
) -> None:
    """Shrink and enlarge."""
    height, width, channels = x.shape
    share = draw_amount(rng, scale)
    tall, wide = max(int(height * share), 1), max(int(width * share), 1)
    if tall == height and wide == width:
        return
    if smooth:
        fewer = small[: tall * wide * channels].reshape(tall, wide, channels)
        resize_area(x, fewer)
        _blend_pixels(x, fewer, nears, fars, shares, line)
    else:
        _repeat_pixels(x, tall, wide, small)


class Downscale(ImageTransform):
    """Shrunk by a factor and enlarged to its size again, so that detail is lost (Albumentations' Downscale).

    `scale` is a factor up to 1, or a range. "nearest" takes the pixel in the middle of what becomes one and repeats it;
    "bilinear" takes the mean of what becomes one, and mixes between them on the way back.
    """

    function = staticmethod(downscale)
    clips = False

    def __init__(
        self,
        scale: Amount = (0.25, 0.5),
        interpolation: Literal["nearest", "bilinear"] = "nearest",
    ) -> None:
        if interpolation not in ("nearest", "bilinear"):
            raise ArgumentError(
                f"`interpolation` (={interpolation!r}) must be 'nearest' or 'bilinear'."
            )
        found = amounts("scale", scale, 0.0, 1.0)
        self._largest = float(found.max())
        super().__init__(scale=found, smooth=interpolation == "bilinear")

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        height, width, channels = spec.shape
        tall, wide = (max(int(size * self._largest), 1) for size in (height, width))
        number = np.float32 if np.can_cast(spec.dtype, np.float32) else np.float64
        return (
            Spec((tall * wide * channels,), spec.dtype),
            Spec((width,), np.int64),
            Spec((width,), np.int64),
            Spec((width,), number),
            Spec((wide * channels,), number),
        )
