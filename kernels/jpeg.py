"""Losses of JPEG: colours at half the size, and 8 x 8 blocks whose cosine transform is quantised.

No image is encoded. The losses of the baseline process (ITU-T T.81), with the tables of its annex K, are applied to the
pixels themselves. Sizes, roundings and the upsampling of colours are those of libjpeg, so the result is within 0.7
levels on average of a decoded file. The difference is the arithmetic of the transform, float32 here.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import config, types
from numba.extending import intrinsic, overload

from .compilation import jitable, kernel
from .pixels import saturate
from .tones import merge_colours, split_colours
from .vectors import PAIRS, lane_address

SIDE = 8
# Pixels across a block of colours, which have half the size.
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
    """Compute the table of a quality from 1 to 100, as libjpeg does."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    for u in range(SIDE):
        for v in range(SIDE):
            level = (np.int64(base[u, v]) * scale + 50) // 100
            out[u, v] = min(max(level, 1), 255)


@jitable
def _level(value: Any, white: Any) -> Any:
    """Return a value as one of 256 levels."""
    share = np.float32(value) * np.float32(255.0 / white)
    return np.floor(min(max(share, np.float32(0)), np.float32(255)) + np.float32(0.5))


@jitable
def add_pairs(line: Any, first: Any, sums: Any) -> None:
    """Sum pairs of values, which are whole numbers; add them to the sums of the line above unless it is the first."""
    pairs = line.reshape(-1, 2)
    if first:
        for k in range(sums.shape[0]):
            sums[k] = pairs[k, 0] + pairs[k, 1]
    else:
        for k in range(sums.shape[0]):
            sums[k] += pairs[k, 0] + pairs[k, 1]


@kernel
def to_planes(x: Any, white: Any, light: Any, blue: Any, red: Any, planes: Any, lines: Any) -> None:
    """Write the brightness of every pixel, and the blue and red differences of squares of 2 x 2; 128 is subtracted.

    Planes are larger than the image: the edge is repeated outside. Planes of colours are not written for grey images.
    `planes` has room for the colours of a row of `light`, `lines` for four of them.
    """
    height, width, channels = x.shape
    half = np.float32(0.5)
    if channels < 3:
        for i in range(light.shape[0]):
            for j in range(light.shape[1]):
                level = _level(x[min(i, height - 1), min(j, width - 1), 0], white)
                light[i, j] = level - np.float32(128)
        return
    wide = light.shape[1]
    for i in range(light.shape[0]):
        split_colours(x, min(i, height - 1) * width, width, planes)
        for c in range(3):
            for j in range(width, wide):
                planes[c, j] = planes[c, width - 1]
        target, to_blue, to_red = light[i], lines[0], lines[1]
        for j in range(wide):
            r, g, b = (
                _level(planes[0, j], white),
                _level(planes[1, j], white),
                _level(planes[2, j], white),
            )
            grey = np.float32(0.299) * r + np.float32(0.587) * g + np.float32(0.114) * b
            target[j] = np.floor(grey + half) - np.float32(128)
            to_blue[j] = np.floor((b - grey) * np.float32(0.564334) + half)
            to_red[j] = np.floor((r - grey) * np.float32(0.713267) + half)
        add_pairs(to_blue, i % 2 == 0, blue[i // 2])
        add_pairs(to_red, i % 2 == 0, red[i // 2])
    quarter = np.float32(0.25)
    for i in range(blue.shape[0]):
        for j in range(blue.shape[1]):
            # One of four is added, or two, in turn, so that no side is preferred.
            bias = np.float32(1 + j % 2)
            blue[i, j] = np.floor((blue[i, j] + bias) * quarter)
            red[i, j] = np.floor((red[i, j] + bias) * quarter)


@jitable
def _columns(matrix: Any, source: Any, out: Any) -> None:
    """Multiply a matrix by each column of eight rows."""
    for u in range(SIDE):
        target = out[u]
        first, share = source[0], matrix[u, 0]
        for k in range(target.shape[0]):
            target[k] = first[k] * share
        for n in range(1, SIDE):
            line, share = source[n], matrix[u, n]
            for k in range(target.shape[0]):
                target[k] += line[k] * share


if config.DISABLE_JIT:

    def transform_eight(line: Any, start: int, matrix: Any, out: Any) -> None:
        """Multiply eight values in a row by a matrix, into the same place of another row."""
        total = line[start] * matrix[0]
        for n in range(1, SIDE):
            total = total + line[start + n] * matrix[n]
        out[start : start + SIDE] = total

else:

    @intrinsic
    def transform_eight(typing_context, line, start, matrix, out):
        """Multiply eight values in a row by a matrix, into the same place of another row."""
        if not line.dtype == matrix.dtype == out.dtype == types.float32:
            return None
        signature = types.void(line, types.intp, matrix, out)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            line, start, matrix, out = arguments
            kinds = signature.args
            number = ir.IntType(32)

            def load(kind: Any, array: Any, index: Any) -> Any:
                loaded = builder.load(lane_address(context, builder, kind, array, index, PAIRS))
                loaded.align = 4
                return loaded

            values = load(kinds[0], line, start)
            nothing, total = ir.Constant(PAIRS, ir.Undefined), None
            # A matrix is a flat array in memory.
            for n in range(SIDE):
                lanes = ir.Constant(ir.VectorType(number, SIDE), [n] * SIDE)
                row = load(kinds[2], matrix, ir.Constant(start.type, n * SIDE))
                part = builder.fmul(builder.shuffle_vector(values, nothing, lanes), row)
                total = part if total is None else builder.fadd(total, part)
            builder.store(
                total, lane_address(context, builder, kinds[3], out, start, PAIRS)
            ).align = 4
            return context.get_dummy_value()

        return signature, generate


@jitable
def _rows(matrix: Any, source: Any, out: Any) -> None:
    """Multiply eight values after eight values of a row by a matrix."""
    for u in range(SIDE):
        line, target = source[u], out[u]
        for start in range(0, line.shape[0], SIDE):
            transform_eight(line, start, matrix, target)


@kernel
def quantise_blocks(
    plane: Any, table: Any, cosines: Any, waves: Any, strip: Any, other: Any
) -> None:
    """Round the transform of the blocks of a plane to multiples of a table; strips are eight rows of it."""
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
                    # Halves are rounded away from 0.
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
    """Return the value of column j from a line of half the columns, three parts of the nearer one, in 16ths."""
    near = j // 2
    if j % 2 == 0:
        far = max(near - 1, 0)
        return np.floor(
            (line[near] * np.float32(3) + line[far] + np.float32(8)) * np.float32(0.0625)
        )
    far = min(near + 1, last)
    return np.floor((line[near] * np.float32(3) + line[far] + np.float32(7)) * np.float32(0.0625))


@jitable
def _enlarge(line: Any, last: Any, out: Any) -> None:
    """Upsample a line of half the columns to all columns."""
    pairs = out.reshape(-1, 2)
    inner, before, after = pairs[1:last], line[: max(last - 1, 0)], line[2 : last + 1]
    middle = line[1:last]
    share = np.float32(0.0625)
    for k in range(middle.shape[0]):
        near = middle[k] * np.float32(3)
        inner[k, 0] = np.floor((near + before[k] + np.float32(8)) * share)
        inner[k, 1] = np.floor((near + after[k] + np.float32(7)) * share)
    for k in range(2):
        out[k] = _enlarged(line, k, last)
        out[2 * last + k] = _enlarged(line, 2 * last + k, last)


def _stored(level: Any, white: Any, like: Any) -> Any:
    inside = min(max(np.floor(level + np.float32(0.5)), np.float32(0)), np.float32(255))
    return saturate(np.float64(inside) * (white / 255.0), like)


@overload(_stored)
def _store_level(level, white, like):
    least, most, half = np.float32(0), np.float32(255), np.float32(0.5)
    if like.dtype == types.uint8:
        # The white of these planes is 255.
        return lambda level, white, like: types.uint8(
            np.int32(min(max(np.floor(level + half), least), most))
        )
    return lambda level, white, like: saturate(
        np.float64(min(max(np.floor(level + half), least), most)) * (white / 255.0), like
    )


@kernel
def from_planes(
    light: Any, blue: Any, red: Any, white: Any, planes: Any, lines: Any, x: Any
) -> None:
    """Convert planes back to pixels; colours are upsampled as libjpeg does. Scratch memory is that of `to_planes`."""
    height, width, channels = x.shape
    middle = np.float32(128)
    if channels < 3:
        for i in range(height):
            for j in range(width):
                x[i, j, 0] = _stored(light[i, j] + middle, white, x)
        return
    last_row, last = (height + 1) // 2 - 1, (width + 1) // 2 - 1
    blues, reds, to_blue, to_red = lines[0], lines[1], lines[2], lines[3]
    three = np.float32(3)
    for i in range(height):
        near = i // 2
        far = max(near - 1, 0) if i % 2 == 0 else min(near + 1, last_row)
        for j in range(last + 1):
            blues[j] = blue[near, j] * three + blue[far, j]
            reds[j] = red[near, j] * three + red[far, j]
        _enlarge(blues, last, to_blue)
        _enlarge(reds, last, to_red)
        row = light[i]
        for j in range(width):
            level, towards_blue, towards_red = row[j] + middle, to_blue[j], to_red[j]
            green = np.float32(0.344136) * towards_blue + np.float32(0.714136) * towards_red
            planes[0, j] = _stored(level + np.float32(1.402) * towards_red, white, x)
            planes[1, j] = _stored(level - green, white, x)
            planes[2, j] = _stored(level + np.float32(1.772) * towards_blue, white, x)
        merge_colours(planes, i * width, width, x)
