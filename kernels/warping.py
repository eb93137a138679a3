"""Warping: every output pixel is looked up where a map says it comes from.

The output is written line by line: first the coordinates of its pixels, in vector instructions, then the pixels. A map
that only exchanges axes, mirrors, or shifts by whole pixels is a copy.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import config, types
from numba.extending import intrinsic, overload

from .compilation import jitable, kernel
from .memory import store_float
from .pixels import precise, saturate, whole
from .vectors import MIRRORED, lane_address, mirror_fours, mirror_ones, mirror_threes
from .windows import FILL, REFLECT, border

# Special places outside of an image: next to its edge, where the fill colour is mixed in, and further outside.
PARTLY, OUTSIDE = -1, -2
# Beyond it places do not fit into 32 bits, and offsets of a whole number of pixels are treated as any others.
LARGEST = 2.0**31
# This many rows are read column by column at a time: their cache lines stay in the nearest cache, even if a row is a
# power of two long and they share few of its sets. [1024x1024x3 bytes: 0.55 ns per pixel, 1.25 with 64 rows]
BLOCK = 32
CACHE_LINE = 64


def share_dtype(dtype: Any) -> str:
    """Return the dtype in which pixels of `dtype` are mixed."""
    return str(precise(0, np.empty(0, dtype)).dtype)


def fill_pixel(fill: float | tuple[float, ...], channels: int, dtype: Any) -> tuple[Any, ...]:
    """Return a pixel of the fill colour, given as a number or one for each channel.

    Half precision is moved as bits, and never calculated with.
    """
    pixel = np.full(channels, fill, dtype)
    return tuple(pixel.view(np.uint16) if str(dtype) in ("float16", "bfloat16") else pixel)


@jitable
def store_matrix(matrix: Any, address: Any) -> None:
    """Store a matrix, row by row, at an address."""
    for k in range(9):
        store_float(address + 8 * k, matrix[k])


@kernel
def warp_nearest(x: Any, matrix: Any, mode: Any, fill: Any, lines: Any, places: Any, out: Any) -> None:  # fmt: skip
    """Write the nearest pixel of x; `lines` (2) and `places` have room for a row of the output, `fill` is a tuple."""
    if is_whole(matrix):
        copy_turned(x, matrix, mode, fill, out)
        return
    source, target = x.reshape(-1), out.reshape(-1)
    rows, columns = lines[0], lines[1]
    for i in range(out.shape[0]):
        trace_line(matrix, i, rows, columns)
        copy_line(source, x.shape, rows, columns, mode, fill, places, i, target)


@kernel
def warp_bilinear(
    x: Any, matrix: Any, mode: Any, fill: Any, lines: Any, places: Any, shares: Any, out: Any
) -> None:
    """Mix the four nearest pixels of x; `shares` (4) have room for a row of the output, the others as above."""
    if is_whole(matrix):
        copy_turned(x, matrix, mode, fill, out)
        return
    source, target = x.reshape(-1), out.reshape(-1)
    rows, columns = lines[0], lines[1]
    for i in range(out.shape[0]):
        trace_line(matrix, i, rows, columns)
        mix_line(source, x.shape, rows, columns, mode, fill, places, shares, i, target)


@jitable
def trace_line(matrix: Any, i: Any, rows: Any, columns: Any) -> None:
    """Compute the source coordinates of the pixels of output row i."""
    a, b, c, d, e, f, g, h, w = matrix
    across, down, depth = b * i + c, e * i + f, h * i + w
    if g == 0.0 and depth == 1.0:
        for j in range(rows.shape[0]):
            # From 32-bit integers there is a vector instruction to make floats.
            place = np.float64(np.int32(j))
            rows[j] = d * place + down
            columns[j] = a * place + across
    else:
        for j in range(rows.shape[0]):
            place = np.float64(np.int32(j))
            inverse = 1.0 / (g * place + depth)
            rows[j] = (d * place + down) * inverse
            columns[j] = (a * place + across) * inverse


@jitable
def fold_line(line: Any, size: Any, mode: Any) -> None:
    """Move coordinates inside, mirrored at the centres of the outermost pixels or clamped to them."""
    last = np.float64(size - 1)
    if mode == REFLECT and size > 1:
        period = 2.0 * last
        for j in range(line.shape[0]):
            place = abs(line[j])
            place -= period * np.floor(place / period)
            line[j] = period - place if place > last else place
    for j in range(line.shape[0]):
        # NaN is not above 0, and becomes 0.
        place = line[j] if line[j] > 0.0 else 0.0
        line[j] = place if place < last else last


@jitable
def copy_line(
    source: Any, shape: Any, rows: Any, columns: Any, mode: Any, fill: Any, places: Any, i: Any, target: Any
) -> None:  # fmt: skip
    """Write line i of the target: the pixels nearest to the coordinates, which are overwritten."""
    height, width, channels = shape
    for j in range(rows.shape[0]):
        rows[j] = np.floor(rows[j] + 0.5)
        columns[j] = np.floor(columns[j] + 0.5)
    if mode != FILL:
        fold_line(rows, height, mode)
        fold_line(columns, width, mode)
    lowest, rightmost = np.float64(height - 1), np.float64(width - 1)
    stride, step = np.float64(width * channels), np.float64(channels)
    for j in range(places.shape[0]):
        row, column = rows[j], columns[j]
        inside = (row >= 0.0) & (row <= lowest) & (column >= 0.0) & (column <= rightmost)
        places[j] = np.int32(row * stride + column * step) if inside else np.int32(OUTSIDE)
    copy_places(source, places, fill, target, i * places.shape[0] * channels)


@jitable
def mix_line(
    source: Any, shape: Any, rows: Any, columns: Any, mode: Any, fill: Any, places: Any, shares: Any, i: Any,
    target: Any,
) -> None:  # fmt: skip
    """Write line i of the target: the pixels around the coordinates, mixed; the coordinates are overwritten."""
    height, width, channels = shape
    if mode != FILL:
        fold_line(rows, height, mode)
        fold_line(columns, width, mode)
    lowest, rightmost = np.float64(height - 1), np.float64(width - 1)
    tops, lefts = max(lowest - 1.0, 0.0), max(rightmost - 1.0, 0.0)
    stride, step = np.float64(width * channels), np.float64(channels)
    ups, downs, lefts_of, rights = shares[0], shares[1], shares[2], shares[3]
    for j in range(places.shape[0]):
        row, column = rows[j], columns[j]
        # For the last pixel the whole share is that of the second neighbour.
        top, left = min(np.floor(row), tops), min(np.floor(column), lefts)
        down, right = precise(row - top, source), precise(column - left, source)
        ups[j] = precise(1, source) - down
        downs[j] = down
        lefts_of[j] = precise(1, source) - right
        rights[j] = right
        inside = (row >= 0.0) & (row <= lowest) & (column >= 0.0) & (column <= rightmost)
        partly = (row > -1.0) & (row < height) & (column > -1.0) & (column < width)
        outer = np.int32(PARTLY) if partly else np.int32(OUTSIDE)
        places[j] = np.int32(top * stride + left * step) if inside else outer
    begin = i * places.shape[0] * channels
    count = mix_places(source, shape, places, shares, fill, target, begin)
    for number in range(count):
        j = places[number]
        top, left = np.floor(rows[j]), np.floor(columns[j])
        down, right = precise(rows[j] - top, source), precise(columns[j] - left, source)
        for k in range(channels):
            target[begin + j * channels + k] = mix(
                pixel(source, shape, int(top), int(left), k, fill),
                pixel(source, shape, int(top), int(left) + 1, k, fill),
                pixel(source, shape, int(top) + 1, int(left), k, fill),
                pixel(source, shape, int(top) + 1, int(left) + 1, k, fill),
                down, right, source,
            )  # fmt: skip


@jitable
def pixel(source: Any, shape: Any, row: Any, column: Any, channel: Any, fill: Any) -> Any:
    """Return a value of the image, or of the fill colour outside of it."""
    height, width, channels = shape
    if 0 <= row < height and 0 <= column < width:
        return source[(row * width + column) * channels + channel]
    return fill[channel]


@jitable
def mix(one: Any, two: Any, three: Any, four: Any, down: Any, across: Any, like: Any) -> Any:
    """Interpolate between four values, of which the last two are below the first two."""
    rest = precise(1, like) - down
    left = precise(one, like) * rest + precise(three, like) * down
    right = precise(two, like) * rest + precise(four, like) * down
    value = left * (precise(1, like) - across) + right * across
    return saturate(whole(value, like), like)


@jitable
def is_whole(matrix: Any) -> Any:
    """Tell whether a map sends every pixel to a pixel: axes exchanged or mirrored, shifts by whole numbers."""
    a, b, c, d, e, f, g, h, w = matrix
    straight = abs(a) == 1.0 and b == 0.0 and d == 0.0 and abs(e) == 1.0
    turned = a == 0.0 and abs(b) == 1.0 and abs(d) == 1.0 and e == 0.0
    whole = np.floor(c) == c and np.floor(f) == f and abs(c) < LARGEST and abs(f) < LARGEST
    return (straight or turned) and whole and g == 0.0 and h == 0.0 and w == 1.0


@jitable
def stretch(step: Any, start: Any, size: Any, count: Any) -> Any:
    """Return the range of numbers below `count` for which start + step * number, step 1 or -1, is within `size`."""
    first, stop = (-start, size - start) if step > 0 else (start - size + 1, start + 1)
    first = min(max(first, 0), count)
    return first, min(max(stop, first), count)


@jitable
def copy_turned(x: Any, matrix: Any, mode: Any, fill: Any, out: Any) -> None:
    """Copy the pixels of a map that `is_whole`."""
    a, b, c, d, e, f = (
        *(int(matrix[0]), int(matrix[1]), int(matrix[2])),
        *(int(matrix[3]), int(matrix[4]), int(matrix[5])),
    )
    height, width, channels = x.shape
    if a == 0:
        upper, lower = stretch(b, c, width, out.shape[0])
        left, right = stretch(d, f, height, out.shape[1])
    else:
        upper, lower = stretch(e, f, height, out.shape[0])
        left, right = stretch(a, c, width, out.shape[1])
    source, target = x.reshape(-1), out.reshape(-1)
    if a == 1:
        for i in range(upper, lower):
            start, size = ((e * i + f) * width + left + c) * channels, (right - left) * channels
            line = source[start : start + size]
            start = (i * out.shape[1] + left) * channels
            copied = target[start : start + size]
            for k in range(size):
                copied[k] = line[k]
    elif a == -1 and (channels == 1 or channels == 3 or channels == 4):
        for i in range(upper, lower):
            begin, to = (e * i + f) * width + c, i * out.shape[1]
            mirror_line(source, begin, target, to, left, right, channels)
    else:
        # One of d and a is 0, and one of e and b. So in every row of the output the source is read in steps.
        walk = (
            *(f * width + c, e * width + b, d * width + a),
            *(upper, lower, left, right, out.shape[1]),
        )
        if a == 0:
            read_ahead(source, target)
        copy_blocks(source, walk, fill, target)
    for i in range(out.shape[0]):
        first, stop = (left, right) if upper <= i < lower else (0, 0)
        for j in range(out.shape[1] - (stop - first)):
            place = j if j < first else j + (stop - first)
            row = border(d * place + e * i + f, height, mode)
            column = border(a * place + b * i + c, width, mode)
            for k in range(channels):
                out[i, place, k] = x[row, column, k] if row >= 0 and column >= 0 else fill[k]


@jitable
def mirror_line(
    source: Any, begin: Any, target: Any, to: Any, left: Any, right: Any, channels: Any
) -> None:
    """Copy pixels begin - left, begin - left - 1, ... of the source to to + left, ..., to + right - 1 of the target."""
    blocks = (right - left) // MIRRORED
    # From the right, because the source is read forwards then.
    for j in range(left + blocks * MIRRORED, right):
        for k in range(channels):
            target[(to + j) * channels + k] = source[(begin - j) * channels + k]
    for block in range(blocks - 1, -1, -1):
        j = left + block * MIRRORED
        at, place = (begin - j - MIRRORED + 1) * channels, (to + j) * channels
        if channels == 3:
            mirror_threes(source, at, target, place)
        elif channels == 1:
            mirror_ones(source, at, target, place)
        else:
            mirror_fours(source, at, target, place)


@jitable
def copy_places(source: Any, places: Any, fill: Any, target: Any, begin: Any) -> None:
    """Copy the pixels at these places, or the fill colour."""
    # Known to the compiler, as the length of a tuple.
    channels = len(fill)
    # A pixel of three values is moved as four. After the last pixel of the source there is no memory to read. The value
    # written after a pixel of the target is overwritten by the next one, where there is one.
    safe, last = source.shape[0] - lanes_of(fill), target.shape[0] - lanes_of(fill)
    for j in range(places.shape[0]):
        place, to = places[j], begin + j * channels
        if place < 0:
            put_pixel(fill, target, to)
        elif place <= safe and to <= last:
            move_pixel(source, place, fill, target, to)
        else:
            for k in range(channels):
                target[to + k] = source[place + k]


@jitable
def mix_places(
    source: Any, shape: Any, places: Any, shares: Any, fill: Any, target: Any, begin: Any
) -> Any:
    """Mix the pixels at these places, or write the fill colour.

    The remaining ones are listed in `places`; return their number.
    """
    channels = len(fill)
    below = shape[1] * channels
    # Two pixels of three are read as eight values, and one is written as four.
    safe = source.shape[0] - below - 2 * lanes_of(fill)
    last = target.shape[0] - lanes_of(fill)
    if not has_lanes(source, fill) or shape[0] == 1 or shape[1] == 1:
        safe = -1
    ups, downs, lefts, rights = shares[0], shares[1], shares[2], shares[3]
    left = 0
    for j in range(places.shape[0]):
        place, to = places[j], begin + j * channels
        if 0 <= place <= safe and to <= last:
            mix_lanes(source, place, below, ups[j], downs[j], lefts[j], rights[j], fill, target, to)
        elif place == OUTSIDE:
            put_pixel(fill, target, to)
        else:
            # The first of these places have been read already.
            places[left] = j
            left += 1
    return left


@jitable
def read_ahead(source: Any, target: Any) -> None:
    """Bring source and target into the cache in the order of their memory, before columns are read.

    The processor prefetches along lines, not along columns: a quarter turn of 224x224x3 bytes takes 26 us with this and
    85 us without. The values written here are overwritten with the pixels.
    """
    for k in range(0, min(source.shape[0], target.shape[0]), max(1, CACHE_LINE // source.itemsize)):
        target[k] = source[k]


@jitable
def copy_blocks(source: Any, walk: Any, fill: Any, target: Any) -> None:
    """Copy a rectangle of the target from a walk through the source, in pixels: start, step per row and per column."""
    channels = len(fill)
    start, down, across, upper, lower, left, right, width = walk
    safe = source.shape[0] - lanes_of(fill)
    for first in range(left, right, BLOCK):
        stop = min(first + BLOCK, right)
        # A pixel of three values is moved as four, but the value after the last one of a line may be part of a finished
        # pixel.
        swift = min(stop, right - 1) if channels == 3 else stop
        for i in range(upper, lower):
            place, step = (start + i * down + first * across) * channels, across * channels
            to, done = (i * width + first) * channels, 0
            if max(place, place + (stop - 1 - first) * step) <= safe:
                done = swift - first
                for j in range(done):
                    move_pixel(source, place + j * step, fill, target, to + j * channels)
            for j in range(done, stop - first):
                for k in range(channels):
                    target[to + j * channels + k] = source[place + j * step + k]


@jitable
def lanes_of(fill: Any) -> Any:
    """Return the number of values that are moved at once for a pixel: there are no vectors of three."""
    return 4 if len(fill) == 3 else len(fill)


def has_lanes(x: Any, fill: Any) -> bool:
    """Tell whether there are vector instructions to mix such pixels; in plain Python there are none."""
    return False


def put_pixel(fill: Any, target: Any, to: int) -> None:
    """Write the fill colour."""
    target[to : to + len(fill)] = fill


def move_pixel(source: Any, at: int, fill: Any, target: Any, to: int) -> None:
    """Copy a pixel to another place; with three channels the value after it is copied, too."""
    size = lanes_of(fill)
    target[to : to + size] = source[at : at + size]


if config.DISABLE_JIT:

    def mix_lanes(*arguments: Any) -> None:
        """Do nothing: this is never called, see `has_lanes`."""

else:

    def mixes(dtype: Any, channels: int) -> bool:
        """Tell whether `mix_lanes` accepts such pixels."""
        return dtype in (types.uint8, types.float32) and channels <= 4

    @overload(has_lanes)
    def _has_lanes(x, fill):
        found = mixes(x.dtype, len(fill))
        return lambda x, fill: found

    @intrinsic
    def put_lanes(typing_context, fill, target, to):
        """Write the fill colour."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            fill, target, to = arguments
            array = context.make_array(signature.args[1])(context, builder, target)
            for channel in range(len(signature.args[0])):
                place = builder.gep(array.data, [builder.add(to, to.type(channel))])
                value = builder.extract_value(fill, channel)
                builder.store(
                    context.data_model_manager[signature.args[1].dtype].as_data(builder, value),
                    place,
                )
            return context.get_dummy_value()

        return types.void(fill, target, types.intp), generate

    @overload(put_pixel)
    def _put_pixel(fill, target, to):
        return lambda fill, target, to: put_lanes(fill, target, to)

    @intrinsic
    def move_lanes(typing_context, source, at, fill, target, to):
        """Copy a pixel to another place; with three channels the value after it is copied, too."""
        count = lanes_of(fill)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, at, _, target, to = arguments
            kinds = signature.args
            size = context.get_abi_sizeof(context.get_data_type(kinds[0].dtype))
            lanes = ir.VectorType(ir.IntType(8), count * size)
            value = builder.load(lane_address(context, builder, kinds[0], source, at, lanes))
            value.align = 1
            place = lane_address(context, builder, kinds[3], target, to, lanes)
            builder.store(value, place).align = 1
            return context.get_dummy_value()

        return types.void(source, types.intp, fill, target, types.intp), generate

    @overload(move_pixel)
    def _move_pixel(source, at, fill, target, to):
        return lambda source, at, fill, target, to: move_lanes(source, at, fill, target, to)

    @intrinsic
    def mix_lanes(typing_context, source, at, below, up, down, left, right, fill, target, to):
        """Mix two neighbouring pixels and the two that are `below` values further into one, with a float per value."""
        channels, one = len(fill), lanes_of(fill)
        both = 2 * one

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            if mixes(signature.args[0].dtype, channels):
                write(context, builder, signature.args, arguments)
            return context.get_dummy_value()

        def write(context: Any, builder: Any, kinds: Any, arguments: Any) -> None:
            source, at, below, up, down, left, right, _, target, to = arguments
            element = context.get_data_type(kinds[0].dtype)
            whole = kinds[0].dtype == types.uint8

            def load(place: Any) -> Any:
                lanes = ir.VectorType(element, both)
                value = builder.load(lane_address(context, builder, kinds[0], source, place, lanes))
                value.align = 1 if whole else 4
                floats = ir.VectorType(ir.FloatType(), both)
                return builder.uitofp(value, floats) if whole else value

            def picked(value: Any, lanes: Any) -> Any:
                kind = ir.VectorType(ir.IntType(32), len(lanes))
                return builder.shuffle_vector(
                    value, ir.Constant(value.type, ir.Undefined), ir.Constant(kind, lanes)
                )

            def times(value: Any, share: Any) -> Any:
                single = builder.insert_element(
                    ir.Constant(value.type, ir.Undefined), share, ir.Constant(ir.IntType(32), 0)
                )
                return builder.fmul(value, picked(single, [0] * value.type.count))

            columns = builder.fadd(times(load(at), up), times(load(builder.add(at, below)), down))
            value = builder.fadd(
                times(picked(columns, list(range(one))), left),
                times(picked(columns, list(range(channels, channels + one))), right),
            )
            if whole:
                value = builder.fadd(value, ir.Constant(value.type, [0.5] * one))
                value = builder.fptosi(value, ir.VectorType(ir.IntType(32), one))
                value = builder.trunc(value, ir.VectorType(element, one))
            place = lane_address(context, builder, kinds[8], target, to, value.type)
            builder.store(value, place).align = 1 if whole else 4

        share, number = types.float32, types.intp
        shares = share, share, share, share
        return types.void(source, number, number, *shares, fill, target, number), generate
