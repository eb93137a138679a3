"""Degradations: Downscale and JPEGCompression, which lose detail or add artefacts; in place."""

from typing import Any, Literal

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.areas import resize_area
from loaderx.kernels.compilation import jitable
from loaderx.kernels.jpeg import (
    CHROMINANCE,
    COSINES,
    LUMINANCE,
    SIDE,
    UNIT,
    WAVES,
    from_planes,
    quantisation,
    quantise_blocks,
    to_planes,
)
from loaderx.kernels.pixels import precise
from loaderx.kernels.tones import rounded
from loaderx.spec import Spec

from .amounts import Amount, amounts, draw_amount
from .blurs import whole_numbers
from .image import ImageTransform
from .sample import FixedSpec
from .spatial import area_spaces


@jitable
def _repeat_pixels(x: Any, tall: Any, wide: Any, small: Any, places: Any) -> None:
    """Set all pixels of each of `tall` x `wide` cells to the pixel in its middle."""
    height, width, channels = x.shape
    lines = x.reshape(height, width * channels)
    for i in range(tall):
        line = lines[(2 * i + 1) * height // (2 * tall)]
        for j in range(wide):
            column = (2 * j + 1) * width // (2 * wide)
            for c in range(channels):
                small[(i * wide + j) * channels + c] = line[column * channels + c]
    # Computed once for all rows: a division takes longer than moving a pixel.
    for j in range(width):
        places[j] = (2 * j + 1) * wide // (2 * width) * channels
    before = -1
    for i in range(height):
        row, line = (2 * i + 1) * tall // (2 * height), lines[i]
        if row == before:
            same = lines[i - 1]
            for k in range(line.shape[0]):
                line[k] = same[k]
            continue
        cells = small[row * wide * channels : (row + 1) * wide * channels]
        for j in range(width):
            for c in range(channels):
                line[j * channels + c] = cells[places[j] + c]
        before = row


@jitable
def _blend_pixels(x: Any, small: Any, nears: Any, fars: Any, shares: Any, line: Any) -> None:
    """Enlarge an image to the size of x, by linear interpolation between the middles of its pixels."""
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
    sums: Any,
    row: Any,
    made: Any,
    firsts: Any,
    counts: Any,
    covered: Any,
    parts: Any,
) -> None:
    """Shrink an image and enlarge it again."""
    height, width, channels = x.shape
    share = draw_amount(rng, scale)
    tall, wide = max(int(height * share), 1), max(int(width * share), 1)
    if tall == height and wide == width:
        return
    if smooth:
        fewer = small[: tall * wide * channels].reshape(tall, wide, channels)
        resize_area(x, fewer, sums, row, made, firsts, counts, covered, parts)
        _blend_pixels(x, fewer, nears, fars, shares, line)
    else:
        _repeat_pixels(x, tall, wide, small, nears)


class Downscale(ImageTransform):
    """Image shrunk by a factor and enlarged to its size again, which loses detail (Albumentations' Downscale).

    `scale` is a factor up to 1, or a range. "nearest" keeps the middle pixel of each cell and repeats it. "bilinear"
    shrinks by the mean of each cell (area), and enlarges by bilinear interpolation.
    """

    function = staticmethod(downscale)
    clips = False

    def __init__(
        self,
        scale: Amount = (0.25, 0.5),
        interpolation: Literal["nearest", "bilinear"] = "nearest",
        *,
        probability: float = 1.0,
    ) -> None:
        if interpolation not in ("nearest", "bilinear"):
            raise ArgumentError(
                f"`interpolation` (={interpolation!r}) must be 'nearest' or 'bilinear'."
            )
        found = amounts("scale", scale, 0.0, 1.0)
        self._largest = float(found.max())
        super().__init__(scale=found, smooth=interpolation == "bilinear")
        self.happens_with(probability)

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
            *area_spaces(spec, wide),
        )


def jpeg_compression(
    x: Any,
    rng: Any,
    quality: Any,
    bases: Any,
    cosines: Any,
    waves: Any,
    white: float,
    light: Any,
    blue: Any,
    red: Any,
    table: Any,
    strip: Any,
    other: Any,
    planes: Any,
    lines: Any,
) -> None:
    """Apply the losses of a JPEG file."""
    level = int(draw_amount(rng, quality))
    to_planes(x, white, light, blue, red, planes, lines)
    # In a loop: calls one by one would be compiled into the pass three times, which takes seconds.
    for k in range(1 if x.shape[2] < 3 else 3):
        quantisation(bases[min(k, 1)], level, table)
        plane = light if k == 0 else (blue if k == 1 else red)
        # Whole arrays: Numba does not know that parts of rows are contiguous.
        size = SIDE * plane.shape[1]
        short = strip.reshape(-1)[:size].reshape(SIDE, plane.shape[1])
        second = other.reshape(-1)[:size].reshape(SIDE, plane.shape[1])
        quantise_blocks(plane, table, cosines, waves, short, second)
    from_planes(light, blue, red, white, planes, lines, x)


class JPEGCompression(ImageTransform):
    """JPEG artefacts of a `quality` from 1 to 100 (Albumentations' ImageCompression).

    torchvision calls it JPEG. The losses are applied without a file: 256 levels, colours of half of the size, and the
    rounded cosine transform of 8 x 8 blocks; within 0.7 of 255 levels of libjpeg on average. Of four channels the last
    is opacity (alpha) and stays as it is.
    """

    function = staticmethod(jpeg_compression)
    accepted_channels = (1, 3, 4)

    def __init__(
        self, quality: int | tuple[int, int] = (50, 95), *, probability: float = 1.0
    ) -> None:
        found = whole_numbers("quality", quality, 1, 1)
        if found.max() > 100:
            raise ArgumentError(f"`quality` (={quality!r}) must be from 1 to 100.")
        super().__init__(
            quality=found,
            bases=np.stack([LUMINANCE, CHROMINANCE]),
            cosines=COSINES,
            waves=WAVES,
        )
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        height, width, channels = spec.shape
        unit = UNIT if channels > 1 else SIDE
        tall, wide = (-(-size // unit) * unit for size in (height, width))
        small = (tall // 2, wide // 2) if channels > 1 else (1, 1)
        strip = Spec((SIDE, wide), np.float32)
        return (
            Spec((tall, wide), np.float32),
            Spec(small, np.float32),
            Spec(small, np.float32),
            FixedSpec((SIDE, SIDE), np.float32),
            strip,
            strip,
            Spec((3, wide), spec.dtype),
            Spec((4, wide), np.float32),
        )
