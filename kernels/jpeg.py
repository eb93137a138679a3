"""What JPEG loses: colours at half of the size, and 8 x 8 blocks whose cosine transform is rounded to few levels.

Nothing is encoded: the losses of the baseline process (ITU-T T.81), with the tables of its annex K, are applied to the
pixels themselves. Sizes, roundings and the enlargement of colours are those of libjpeg, so the result is within 0.7
levels on average of what comes back from a file; what differs is the arithmetic of the transform, float32 here.
"""

import math
from typing import Any

import numpy as np

from .compilation import jitable, kernel
from .pixels import saturate

SIDE = 8
# Pixels across a block of colours, which have half of the size.
UNIT = 16
LUMINANCE = np.array(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ],
    np.float32,
)
CHROMINANCE = np.full((SIDE, SIDE), 99, np.float32)
CHROMINANCE[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]
# COSINES[u, n]: frequency u at place n, orthonormal; and its transpose.
COSINES = np.array(
    [
        [
            math.sqrt((1 if u == 0 else 2) / SIDE) * math.cos((2 * n + 1) * u * math.pi / 16)
            for n in range(SIDE)
        ]
        for u in range(SIDE)
    ],
    np.float32,
)
WAVES = np.ascontiguousarray(COSINES.T)


@jitable
def quantisation(base: Any, quality: Any, out: Any) -> None:
    """The table of a quality from 1 to 100, as libjpeg makes it."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    for u in range(SIDE):
        for v in range(SIDE):
            level = (np.int64(base[u, v]) * scale + 50) // 100
            out[u, v] = min(max(level, 1), 255)


@jitable
def _level(value: Any, white: Any) -> Any:
    """A value as one of 256 levels."""
    share = np.float32(value) * np.float32(255.0 / white)
    return np.floor(min(max(share, np.float32(0)), np.float32(255)) + np.float32(0.5))


@kernel
def to_planes(x: Any, white: Any, light: Any, blue: Any, red: Any) -> None:
    """The brightness of every pixel, and blue and red against it for squares of 2 x 2; 128 is subtracted of all.

    Planes are larger than the image: pixels outside repeat its edge. Those of colours are not written for grey ones.
    """
    height, width, channels = x.shape
    half = np.float32(0.5)
    if channels < 3:
        for i in range(light.shape[0]):
            for j in range(light.shape[1]):
                level = _level(x[min(i, height - 1), min(j, width - 1), 0], white)
                light[i, j] = level - np.float32(128)
        return
    for i in range(light.shape[0]):
        row = x[min(i, height - 1)]
        above = i % 2 == 0
        blues, reds = blue[i // 2], red[i // 2]
        for j in range(light.shape[1]):
            pixel = row[min(j, width - 1)]
            r, g, b = _level(pixel[0], white), _level(pixel[1], white), _level(pixel[2], white)
            grey = np.float32(0.299) * r + np.float32(0.587) * g + np.float32(0.114) * b
            light[i, j] = np.floor(grey + half) - np.float32(128)
            towards_blue = np.floor((b - grey) * np.float32(0.564334) + half)
            towards_red = np.floor((r - grey) * np.float32(0.713267) + half)
            if above and j % 2 == 0:
                blues[j // 2], reds[j // 2] = towards_blue, towards_red
            else:
                blues[j // 2] += towards_blue
                reds[j // 2] += towards_red
    quarter = np.float32(0.25)
    for i in range(blue.shape[0]):
        for j in range(blue.shape[1]):
            # One of four is added, or two, in turn, so that no side is preferred.
            bias = np.float32(1 + j % 2)
            blue[i, j] = np.floor((blue[i, j] + bias) * quarter)
            red[i, j] = np.floor((red[i, j] + bias) * quarter)


@jitable
def _columns(matrix: Any, source: Any, out: Any) -> None:
    """A matrix times each column of eight rows."""
    for u in range(SIDE):
        target = out[u]
        first, share = source[0], matrix[u, 0]
        for k in range(target.shape[0]):
            target[k] = first[k] * share
        for n in range(1, SIDE):
            line, share = source[n], matrix[u, n]
            for k in range(target.shape[0]):
                target[k] += line[k] * share


@jitable
def _rows(matrix: Any, source: Any, out: Any) -> None:
    """Eight values in a row after the other, times a matrix."""
    for u in range(SIDE):
        line, target = source[u], out[u]
        for start in range(0, line.shape[0], SIDE):
            block = target[start : start + SIDE]
            for m in range(SIDE):
                block[m] = line[start] * matrix[0, m]
            for n in range(1, SIDE):
                value = line[start + n]
                for m in range(SIDE):
                    block[m] += value * matrix[n, m]


@kernel
def quantise_blocks(
    plane: Any, table: Any, cosines: Any, waves: Any, strip: Any, other: Any
) -> None:
    """The blocks of a plane after their transform was rounded to multiples of a table; strips are eight rows of it."""
    half = np.float32(0.5)
    least, most = np.float32(-128), np.float32(127)
    for top in range(0, plane.shape[0], SIDE):
        rows = plane[top : top + SIDE]
        _columns(cosines, rows, strip)
        _rows(waves, strip, other)
        for u in range(SIDE):
            line, steps = other[u], table[u]
            for start in range(0, line.shape[0], SIDE):
                block = line[start : start + SIDE]
                for m in range(SIDE):
                    # Halves away from 0.
                    value, step = block[m], steps[m]
                    size = np.floor(abs(value) / step + half) * step
                    block[m] = -size if value < np.float32(0) else size
        _rows(cosines, other, strip)
        _columns(waves, strip, rows)
        for u in range(SIDE):
            line = rows[u]
            for k in range(line.shape[0]):
                line[k] = min(max(np.floor(line[k] + half), least), most)


@jitable
def _enlarged(line: Any, j: Any, last: Any) -> Any:
    """The value of column j in a line of half of the columns, three parts of the nearer one, in 16ths."""
    near = j // 2
    if j % 2 == 0:
        far = max(near - 1, 0)
        return np.floor(
            (line[near] * np.float32(3) + line[far] + np.float32(8)) * np.float32(0.0625)
        )
    far = min(near + 1, last)
    return np.floor((line[near] * np.float32(3) + line[far] + np.float32(7)) * np.float32(0.0625))


@jitable
def _stored(level: Any, white: Any, like: Any) -> Any:
    inside = min(max(np.floor(level + np.float32(0.5)), np.float32(0)), np.float32(255))
    return saturate(np.float64(inside) * (white / 255.0), like)


@kernel
def from_planes(light: Any, blue: Any, red: Any, white: Any, lines: Any, x: Any) -> None:
    """Planes back as the pixels of an image; colours are enlarged as libjpeg does it. `lines` has two rows."""
    height, width, channels = x.shape
    middle = np.float32(128)
    if channels < 3:
        for i in range(height):
            for j in range(width):
                x[i, j, 0] = _stored(light[i, j] + middle, white, x)
        return
    last_row, last = (height + 1) // 2 - 1, (width + 1) // 2 - 1
    blues, reds = lines[0], lines[1]
    three = np.float32(3)
    for i in range(height):
        near = i // 2
        far = max(near - 1, 0) if i % 2 == 0 else min(near + 1, last_row)
        for j in range(last + 1):
            blues[j] = blue[near, j] * three + blue[far, j]
            reds[j] = red[near, j] * three + red[far, j]
        for j in range(width):
            level = light[i, j] + middle
            to_blue, to_red = _enlarged(blues, j, last), _enlarged(reds, j, last)
            green = np.float32(0.344136) * to_blue + np.float32(0.714136) * to_red
            x[i, j, 0] = _stored(level + np.float32(1.402) * to_red, white, x)
            x[i, j, 1] = _stored(level - green, white, x)
            x[i, j, 2] = _stored(level + np.float32(1.772) * to_blue, white, x)
