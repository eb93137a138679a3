"""Fast changes of values: channels split and merged, rounding in float32, lookup tables, counts."""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, overload

from .compilation import jitable
from .pixels import precise, saturate
from .vectors import lane_address

# Pixels whose channels are split at a time: a loop over them is vector code, and they fit the nearest cache.
BLOCK = 256
# The shape of the array is then known in the function, too.
INLINED = {"forceinline": True, "error_model": "numpy"}


def rounded(value: Any, like: Any) -> Any:
    """Return a float in the dtype of the array `like`, which can hold it: rounded half up, in its own precision."""
    if like.dtype == np.uint8 and value.dtype == np.float32:
        return np.uint8(value + np.float32(0.5))
    return saturate(value, like)


# Numba compares names and annotations of an overload with those of its implementation: a lambda has none.
@overload(rounded)
def _rounded(value, like):
    if like.dtype == types.uint8 and value == types.float32:
        # By float64, as in `saturate`, a loop takes three times as long.
        return lambda value, like: np.uint8(value + np.float32(0.5))
    return lambda value, like: saturate(value, like)


@jitable
def is_alpha(k: Any, channels: Any) -> Any:
    """Tell whether value `k` of a flat image, or channel `k`, is opacity: the last of four channels."""
    return channels == 4 and k & 3 == 3


@jitable
def keep_alpha(x: Any, kept: Any) -> None:
    """Copy the opacity of an image of four channels to an array of (height, width)."""
    if x.shape[2] == 4:
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                kept[i, j] = x[i, j, 3]


@jitable
def restore_alpha(kept: Any, x: Any) -> None:
    """Copy the opacity back to an image of four channels."""
    if x.shape[2] == 4:
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                x[i, j, 3] = kept[i, j]


def split_singly(x: Any, start: Any, count: Any, planes: Any) -> None:
    """Split channels value by value."""
    flat = x.reshape(-1)
    for j in range(count):
        for c in range(3):
            planes[c, j] = flat[3 * (start + j) + c]


def split_pixels(x: Any, start: int, count: int, planes: Any) -> None:
    """Split the three channels of `count` pixels from `start`, each into a row of `planes`."""
    split_singly(x, start, count, planes)


def merge_singly(planes: Any, start: Any, count: Any, x: Any) -> None:
    """Merge channels value by value."""
    flat = x.reshape(-1)
    for j in range(count):
        for c in range(3):
            flat[3 * (start + j) + c] = planes[c, j]


def merge_pixels(planes: Any, start: int, count: int, x: Any) -> None:
    """Merge the rows of `planes` into the channels of `count` pixels from `start`."""
    merge_singly(planes, start, count, x)


# Without these the compiler moves single bytes: 90 us for a 224 px image against 6 us. They access an array of any
# shape by its address: `reshape` for every block took longer than the block.
@intrinsic
def split_lanes(typing_context, x, at, planes, place, stride):
    """Split the channels of as many pixels as a vector has lanes, from the element `at` of x."""
    if planes.dtype != x.dtype:
        return None
    signature = types.void(x, types.intp, planes, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, at, planes, place, stride = arguments
        kinds = signature.args
        lanes = _lanes(kinds[0].dtype)
        element = context.get_data_type(kinds[0].dtype)
        wide, narrow = ir.VectorType(element, 3 * lanes), ir.VectorType(element, lanes)
        pixels = builder.load(lane_address(context, builder, kinds[0], x, at, wide))
        pixels.align = kinds[0].dtype.bitwidth // 8
        for c in range(3):
            channel = builder.shuffle_vector(
                pixels, ir.Constant(wide, ir.Undefined), _mask(range(c, 3 * lanes, 3))
            )
            store = builder.store(
                channel, lane_address(context, builder, kinds[2], planes, place, narrow)
            )
            store.align = kinds[0].dtype.bitwidth // 8
            place = builder.add(place, stride)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def merge_lanes(typing_context, planes, place, stride, x, at):
    """Merge channels into the pixels from the element `at` of x."""
    if planes.dtype != x.dtype:
        return None
    signature = types.void(planes, types.intp, types.intp, x, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        planes, place, stride, x, at = arguments
        kinds = signature.args
        lanes = _lanes(kinds[0].dtype)
        element = context.get_data_type(kinds[0].dtype)
        wide, narrow = ir.VectorType(element, 3 * lanes), ir.VectorType(element, lanes)
        channels = []
        for _ in range(3):
            channel = builder.load(lane_address(context, builder, kinds[0], planes, place, narrow))
            channel.align = kinds[0].dtype.bitwidth // 8
            channels.append(channel)
            place = builder.add(place, stride)
        twice = _mask(range(2 * lanes))
        first = builder.shuffle_vector(channels[0], channels[1], twice)
        second = builder.shuffle_vector(channels[2], ir.Constant(narrow, ir.Undefined), twice)
        order = [c * lanes + j for j in range(lanes) for c in range(3)]
        pixels = builder.shuffle_vector(first, second, _mask(order))
        store = builder.store(pixels, lane_address(context, builder, kinds[3], x, at, wide))
        store.align = kinds[0].dtype.bitwidth // 8
        return context.get_dummy_value()

    return signature, generate


def _lanes(dtype: Any) -> int:
    return 32 * 8 // int(dtype.bitwidth)


def _mask(indices: Any) -> Any:
    found = list(indices)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(found)), found)


@overload(split_pixels)
def _split_pixels(x: Any, start: Any, count: Any, planes: Any) -> Any:
    if not isinstance(x.dtype, types.Integer | types.Float):
        return split_singly
    lanes = _lanes(x.dtype)

    def split(x: Any, start: Any, count: Any, planes: Any) -> None:
        done, stride = count // lanes * lanes, planes.shape[1]
        for j in range(0, done, lanes):
            split_lanes(x, 3 * (start + j), planes, j, stride)
        if done < count:
            flat = x.reshape(-1)
            for j in range(done, count):
                for c in range(3):
                    planes[c, j] = flat[3 * (start + j) + c]

    return split


@overload(merge_pixels)
def _merge_pixels(planes: Any, start: Any, count: Any, x: Any) -> Any:
    if not isinstance(x.dtype, types.Integer | types.Float):
        return merge_singly
    lanes = _lanes(x.dtype)

    def merge(planes: Any, start: Any, count: Any, x: Any) -> None:
        done, stride = count // lanes * lanes, planes.shape[1]
        for j in range(0, done, lanes):
            merge_lanes(planes, j, stride, x, 3 * (start + j))
        if done < count:
            flat = x.reshape(-1)
            for j in range(done, count):
                for c in range(3):
                    flat[3 * (start + j) + c] = planes[c, j]

    return merge


@jitable
def split_colours(x: Any, start: Any, count: Any, planes: Any) -> None:
    """Split the colours of `count` pixels from `start` of an image of 3 or 4 channels, each into a row of `planes`."""
    if x.shape[2] == 4:
        flat = x.reshape(-1)
        for j in range(count):
            planes[0, j] = flat[4 * (start + j)]
            planes[1, j] = flat[4 * (start + j) + 1]
            planes[2, j] = flat[4 * (start + j) + 2]
    else:
        split_pixels(x, start, count, planes)


@jitable
def merge_colours(planes: Any, start: Any, count: Any, x: Any) -> None:
    """Merge the rows of `planes` into the colours of `count` pixels from `start` of an image of 3 or 4 channels."""
    if x.shape[2] == 4:
        flat = x.reshape(-1)
        for j in range(count):
            flat[4 * (start + j)] = planes[0, j]
            flat[4 * (start + j) + 1] = planes[1, j]
            flat[4 * (start + j) + 2] = planes[2, j]
    else:
        merge_pixels(planes, start, count, x)


def look_up(x: Any, tables: Any) -> None:
    """Replace every byte of an image by its entry in the lookup table of its channel."""
    for c in range(x.shape[2]):
        x[..., c] = tables[c][x[..., c]]


@overload(look_up, jit_options=INLINED)
def _look_up(x, tables):
    def look_up_words(x, tables):
        # Eight bytes are loaded and stored at a time: 48 us for a 224 px image, one by one it is 77 us.
        channels, flat = x.shape[2], x.reshape(-1)
        rounds = flat.shape[0] // (8 * channels)
        done = rounds * 8 * channels
        words = flat[:done].view(np.uint64)
        for k in range(rounds):
            for m in range(channels):
                word, found = words[k * channels + m], np.uint64(0)
                for n in range(8):
                    shift = np.uint64(8 * n)
                    value = tables[(8 * m + n) % channels, (word >> shift) & np.uint64(255)]
                    found |= np.uint64(value) << shift
                words[k * channels + m] = found
        for k in range(done, flat.shape[0]):
            flat[k] = tables[k % channels, flat[k]]

    return look_up_words


def count_values(x: Any, counts: Any) -> None:
    """Count how often each byte occurs in each channel of an image, in counts[0]; the rest of `counts` is scratch."""
    for c in range(x.shape[2]):
        counts[0, c] = np.bincount(x[..., c].reshape(-1), minlength=256)


@overload(count_values, jit_options=INLINED)
def _count_values(x, counts):
    def count_four(x, counts):
        # Four counters in turn: an addition to a number just stored, as in areas of one colour, takes ten times as
        # long.
        channels, flat = x.shape[2], x.reshape(-1)
        pixels = x.shape[0] * x.shape[1]
        counts[:] = 0
        for k in range(pixels // 4):
            for turn in range(4):
                for c in range(channels):
                    counts[turn, c, flat[(4 * k + turn) * channels + c]] += np.uint32(1)
        for k in range(pixels // 4 * 4, pixels):
            for c in range(channels):
                counts[0, c, flat[k * channels + c]] += np.uint32(1)
        for c in range(channels):
            for value in range(256):
                counts[0, c, value] += (
                    counts[1, c, value] + counts[2, c, value] + counts[3, c, value]
                )

    return count_four


@jitable
def identity_table(table: Any) -> None:
    """Write the table that leaves every byte unchanged."""
    for value in range(256):
        table[value] = value


@jitable
def equalizing_table(counts: Any, table: Any) -> None:
    """Write the table that spreads values so that all occur equally often, as Pillow does from 256 counts."""
    total, last, kinds = np.int64(0), np.int64(0), 0
    for value in range(256):
        count = np.int64(counts[value])
        if count > 0:
            total += count
            last = count
            kinds += 1
    step = (total - last) // 255
    if kinds <= 1 or step == 0:
        for value in range(256):
            table[value] = value
    else:
        before = step // 2
        for value in range(256):
            table[value] = min(before // step, 255)
            before += np.int64(counts[value])


@jitable
def stretching_table(low: Any, high: Any, table: Any) -> None:
    """Write the table that makes `low` black and `high` white, as Pillow does."""
    if high <= low:
        for value in range(256):
            table[value] = value
    else:
        scale = 255.0 / (high - low)
        offset = -low * scale
        for value in range(256):
            table[value] = int(min(max(value * scale + offset, 0.0), 255.0))


@jitable
def find_extremes(x: Any, lows: Any, highs: Any) -> None:
    """Find the least and the largest value of each channel; `lows` and `highs` have room for BLOCK pixels."""
    channels, flat = x.shape[2], x.reshape(-1)
    size, length = flat.shape[0], BLOCK * channels
    for k in range(length):
        value = flat[k if k < size else k % channels]
        lows[k], highs[k] = value, value
    # Pixel by pixel of a block, because the least of floats would be searched one value after the other. Four blocks at
    # a time, since the extremes so far are loaded and stored for each.
    whole = size // length
    blocks = flat[: whole * length].reshape(whole, length)
    fours = whole - whole % 4
    for i in range(0, fours, 4):
        for k in range(length):
            low, high = lows[k], highs[k]
            for n in range(4):
                value = blocks[i + n, k]
                low, high = (value if value < low else low), (value if value > high else high)
            lows[k], highs[k] = low, high
    rest = flat[fours * length :]
    for k in range(rest.shape[0]):
        value = rest[k]
        low, high = lows[k % length], highs[k % length]
        lows[k % length], highs[k % length] = min(low, value), max(high, value)
    # BLOCK is a power of two.
    half = length // 2
    while half >= channels:
        for k in range(half):
            lows[k] = min(lows[k], lows[half + k])
            highs[k] = max(highs[k], highs[half + k])
        half //= 2


def stretch_bytes(
    x: Any, white: Any, lows: Any, highs: Any, shifts: Any, scales: Any, tables: Any
) -> None:
    """Stretch bytes from black to white, as Pillow does."""
    changed = False
    for c in range(x.shape[2]):
        if is_alpha(c, x.shape[2]):
            identity_table(tables[c])
            continue
        low, high = np.float64(lows[c]), np.float64(highs[c])
        stretching_table(low, high, tables[c])
        if low < high and (low > 0 or high < 255):
            changed = True
    if changed:
        look_up(x, tables)


def stretch_numbers(
    x: Any, white: Any, lows: Any, highs: Any, shifts: Any, scales: Any, tables: Any
) -> None:
    """Stretch numbers of any kind from black to white."""
    height, width, channels = x.shape
    lines = x.reshape(height, width * channels)
    for c in range(channels):
        low, high = precise(lows[c], x), precise(highs[c], x)
        stretched = high > low and not is_alpha(c, channels)
        for j in range(width):
            shifts[j * channels + c] = low if stretched else precise(0, x)
            scales[j * channels + c] = (
                precise(white, x) / (high - low) if stretched else precise(1, x)
            )
    for i in range(height):
        for k in range(width * channels):
            value = (precise(lines[i, k], x) - shifts[k]) * scales[k]
            # A channel with a single value stays unchanged.
            most = precise(white, x) if scales[k] != 1 or shifts[k] != 0 else value
            lines[i, k] = saturate(min(value, most), x)


def stretch_channels(
    x: Any, white: Any, lows: Any, highs: Any, shifts: Any, scales: Any, tables: Any
) -> None:
    """Stretch every channel so that its least value, in `lows`, becomes black, and its largest, in `highs`, white."""
    stretch = stretch_bytes if x.dtype == np.uint8 else stretch_numbers
    stretch(x, white, lows, highs, shifts, scales, tables)


@overload(stretch_channels, jit_options=INLINED)
def _stretch_channels(
    x: Any, white: Any, lows: Any, highs: Any, shifts: Any, scales: Any, tables: Any
) -> Any:
    return stretch_bytes if x.dtype == types.uint8 else stretch_numbers


def raise_bytes(x: Any, exponent: Any, white: Any, tables: Any) -> None:
    """Raise bytes to a power, by a table."""
    for value in range(256):
        power = saturate(white * math.pow(value / white, exponent), x)
        for c in range(x.shape[2]):
            tables[c, value] = value if is_alpha(c, x.shape[2]) else power
    look_up(x, tables)


def raise_numbers(x: Any, exponent: Any, white: Any, tables: Any) -> None:
    """Raise numbers to a power."""
    flat, channels = x.reshape(-1), x.shape[2]
    for k in range(flat.shape[0]):
        # A power costs more than a branch.
        if is_alpha(k, channels):
            continue
        share = min(max(float(flat[k]) / white, 0.0), 1.0)
        flat[k] = saturate(white * math.pow(share, exponent), x)


def raise_values(x: Any, exponent: Any, white: Any, tables: Any) -> None:
    """Raise every value, as a share of white, to a power."""
    (raise_bytes if x.dtype == np.uint8 else raise_numbers)(x, exponent, white, tables)


@overload(raise_values, jit_options=INLINED)
def _raise_values(x: Any, exponent: Any, white: Any, tables: Any) -> Any:
    return raise_bytes if x.dtype == types.uint8 else raise_numbers


def keep_bits_of_bytes(x: Any, bits: Any, white: Any) -> None:
    """Keep the upper bits of bytes."""
    flat, mask = x.reshape(-1), np.uint8((0xFF << (8 - bits)) & 0xFF)
    channels = x.shape[2]
    for k in range(flat.shape[0]):
        value = flat[k]
        flat[k] = value if is_alpha(k, channels) else np.uint8(value & mask)


def keep_bits_of_integers(x: Any, bits: Any, white: Any) -> None:
    """Keep the upper bits of those that white has."""
    flat, step = x.reshape(-1), precise((white + 1) / 2.0**bits, x)
    channels = x.shape[2]
    for k in range(flat.shape[0]):
        value = flat[k]
        level = saturate(np.floor(precise(value, x) / step) * step, x)
        flat[k] = value if is_alpha(k, channels) else level


def keep_bits_of_floats(x: Any, bits: Any, white: Any) -> None:
    """Round floats down to levels of equal height, of which the lowest is black."""
    flat, levels = x.reshape(-1), precise(2.0**bits, x)
    none, most = precise(0, x), levels - precise(1, x)
    channels = x.shape[2]
    for k in range(flat.shape[0]):
        value = flat[k]
        level = min(max(np.floor(value * levels), none), most) / levels
        flat[k] = value if is_alpha(k, channels) else level


def keep_bits(x: Any, bits: int, white: Any) -> None:
    """Reduce values to as many levels as fit into some bits, each the lowest value that becomes it."""
    if x.dtype == np.uint8:
        keep_bits_of_bytes(x, bits, white)
    else:
        (keep_bits_of_floats if x.dtype.kind == "f" else keep_bits_of_integers)(x, bits, white)


@overload(keep_bits, jit_options=INLINED)
def _keep_bits(x: Any, bits: Any, white: Any) -> Any:
    if x.dtype == types.uint8:
        return keep_bits_of_bytes
    return keep_bits_of_floats if isinstance(x.dtype, types.Float) else keep_bits_of_integers


def inverted(value: Any, white: Any, like: Any) -> Any:
    """Return white minus the value, which is one of the array `like`."""
    return saturate(precise(white, like) - precise(value, like), like)


@overload(inverted)
def _inverted(value, white, like):
    if like.dtype == types.uint8:
        return lambda value, white, like: ~value
    return lambda value, white, like: saturate(precise(white, like) - precise(value, like), like)


def threshold(limit: Any, like: Any) -> Any:
    """Return the least value of the dtype of the array `like` that is at least `limit`."""
    return saturate(limit if like.dtype.kind == "f" else np.ceil(precise(limit, like)), like)


@overload(threshold)
def _threshold(limit, like):
    if isinstance(like.dtype, types.Float):
        return lambda limit, like: saturate(limit, like)
    return lambda limit, like: saturate(np.ceil(precise(limit, like)), like)
