"""A slow twin of every kernel, of the same name, written from its definition: Python integers and whole arrays."""

import ctypes
import math
from fractions import Fraction

import ml_dtypes
import numpy as np

from loaderx.kernels.draws import Draws

WORD = 2**32
DOUBLE_WORD = 2**64


def row_bytes(address, size):
    """`size` bytes of memory."""
    return np.frombuffer(ctypes.string_at(int(address), int(size)), np.uint8)


def copy_bytes(target, source, size):
    ctypes.memmove(int(target), ctypes.string_at(int(source), int(size)), int(size))


def locate_rows(rows, starts, bases, strides, out):
    ends = [*starts[1 : len(bases)], np.iinfo(np.int64).max]
    for i, row in enumerate(rows):
        for start, end, base, stride in zip(starts, ends, bases, strides, strict=False):
            if start <= row < end:
                out[i] = int(base) + (int(row) - int(start)) * int(stride)


def copy_rows(addresses, size, out):
    everything = [row_bytes(address, size) for address in addresses]
    out[: len(addresses) * size] = np.concatenate([*everything, np.empty(0, np.uint8)])


copy_few_rows = copy_rows


def collect_rows(addresses, offsets, unit, swap, out):
    elements = out.reshape(len(addresses), len(offsets), unit)
    for i, address in enumerate(addresses):
        for j, offset in enumerate(offsets):
            element = row_bytes(int(address) + int(offset), unit)
            elements[i, j] = np.flip(element) if swap else element


def wide_rows(addresses, wide, out):
    """The rows at addresses, still in the dtype of `wide`."""
    size = out.shape[1] * wide.itemsize
    rows = np.empty((len(addresses), size), np.uint8)
    copy_rows(addresses, size, rows.reshape(-1))
    return rows.view(wide.dtype)


def narrow_integers(addresses, wide, out, misfit):
    values = [int(value) for value in wide_rows(addresses, wide, out).flat]
    limits = np.iinfo(out.dtype)
    misfits = [i for i, value in enumerate(values) if not limits.min <= value <= limits.max]
    misfit[0] = misfits[0] if misfits else -1
    low_words = np.array([value % WORD for value in values], np.uint32)
    out[...] = low_words.view(out.dtype).reshape(out.shape)


def narrow_floats(addresses, wide, out):
    with np.errstate(over="ignore"):
        out[...] = wide_rows(addresses, wide, out).astype(out.dtype)


def threefry(key, counter):
    """Threefry-2x32 with 20 rounds, as the paper of Salmon et al. states it for any number of rounds."""
    rotations = (13, 15, 26, 6, 17, 29, 16, 24)
    keys = [int(key) % WORD, int(key) // WORD]
    keys.append(0x1BD11BDA ^ keys[0] ^ keys[1])
    x0 = (int(counter) % WORD + keys[0]) % WORD
    x1 = (int(counter) // WORD + keys[1]) % WORD
    for number in range(20):
        rotation = rotations[number % 8]
        x0 = (x0 + x1) % WORD
        x1 = (x1 * 2**rotation % WORD + x1 // 2 ** (32 - rotation)) ^ x0
        if number % 4 == 3:
            injection = (number + 1) // 4
            x0 = (x0 + keys[injection % 3]) % WORD
            x1 = (x1 + keys[(injection + 1) % 3] + injection) % WORD
    return x0 + x1 * WORD


def fold(key, number):
    return threefry(key, number)


def mix_bits(bits):
    bits = int(bits)
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % DOUBLE_WORD
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % DOUBLE_WORD
    return bits ^ bits >> 31


def draw_bits(state, number):
    """Output `number` of SplitMix64, stepping through all before it."""
    state = int(state)
    for _ in range(int(number) + 1):
        state = (state + 0x9E3779B97F4A7C15) % DOUBLE_WORD
    return mix_bits(state)


def as_uniform(bits):
    return (int(bits) // 2**11) / 2**53


def uniforms(key, positions, out):
    for i, position in enumerate(positions):
        for j in range(out.shape[1]):
            out[i, j] = as_uniform(draw_bits(fold(key, position), j))


def hash_coordinate(coordinate, key, modulus):
    """Elementwise on 64-bit words, in which no product of two 32-bit words overflows."""
    word = np.uint64(WORD - 1)
    bits = np.bitwise_xor(coordinate, key, dtype=np.uint64)
    bits = bits * np.uint64(0x85EBCA6B) & word
    bits = (bits ^ bits // np.uint64(2**13)) * np.uint64(0xC2B2AE35) & word
    bits = bits ^ bits // np.uint64(2**16)
    return bits * np.uint64(modulus) // np.uint64(WORD)


def add_modulo(coordinate, amount, modulus):
    return (int(coordinate) + int(amount)) % int(modulus)


def round_keys(key, out):
    for i in range(len(out) // 2):
        block = fold(key, i)
        out[2 * i : 2 * i + 2] = block % WORD, block // WORD


def shuffled_cells(cells, height, width, keys):
    """All rounds for cells of the grid, numbered row by row."""
    down, across = np.divmod(np.asarray(cells, np.uint64), np.uint64(width))
    for number, key in enumerate(keys):
        if number % 2 == 0:
            down = (down + hash_coordinate(across, key, height)) % np.uint64(height)
        else:
            across = (across + hash_coordinate(down, key, width)) % np.uint64(width)
    return down * np.uint64(width) + across


def permute(places, rows, height, width, keys, scratch, out):
    cells = shuffled_cells(places, height, width, keys)
    while np.any(cells >= rows):
        outside = cells >= rows
        cells[outside] = shuffled_cells(cells[outside], height, width, keys)
    out[...] = cells


FILL, REFLECT, EDGE = 0, 1, 2


def border(coordinate, size, mode):
    """One step at a time: mirrored at the edge it has passed until it is inside."""
    if mode == REFLECT and size > 1:
        while not 0 <= coordinate < size:
            coordinate = -coordinate if coordinate < 0 else 2 * (size - 1) - coordinate
        return coordinate
    if mode == FILL and not 0 <= coordinate < size:
        return -1
    return min(max(coordinate, 0), size - 1)


def window_places(start, extent, flipped, size):
    """The coordinates a window of the output's own size shows."""
    places = start + np.arange(extent)
    return [int(place) for place in (places[::-1] if flipped else places)[:size]]


def compose(before, start, extent, flipped, mode, low):
    inside = [
        border(place, len(before), mode)
        for place in window_places(start, extent, flipped, len(low))
    ]
    low[...] = [before[place] if place >= 0 else -1 for place in inside]


def compose_blended(
    before, before_high, before_weight, start, extent, flipped, mode, low, high, weight
):
    inside = [
        border(place, len(before), mode)
        for place in window_places(start, extent, flipped, len(low))
    ]
    low[...] = [before[place] if place >= 0 else -1 for place in inside]
    high[...] = [before_high[place] if place >= 0 else -1 for place in inside]
    weight[...] = [before_weight[place] if place >= 0 else 0 for place in inside]


def compose_nearest(before, start, extent, flipped, low):
    """The pixel that the centre of each output pixel falls into."""
    size = len(low)
    centres = [Fraction(2 * i + 1, 2) * Fraction(int(extent), size) for i in range(size)]
    low[...] = before[start + np.array([math.floor(centre) for centre in centres])]
    if flipped:
        low[...] = low[::-1].copy()


def compose_linear(before, start, extent, flipped, low, high, weight):
    centres = (np.arange(len(low)) + 0.5) * (extent / len(low)) - 0.5
    centres = np.clip(centres[::-1] if flipped else centres, 0, extent - 1)
    first = np.floor(centres).astype(int)
    low[...] = before[start + first]
    high[...] = before[start + np.ceil(centres).astype(int)]
    weight[...] = centres - first


def walk(table):
    inside = np.flatnonzero(np.asarray(table) >= 0)
    if len(inside) == 0:
        return len(table), len(table), 1
    first, stop = int(inside[0]), int(inside[-1]) + 1
    for step in (1, -1):
        if np.array_equal(table[first:stop], table[first] + step * np.arange(stop - first)):
            return first, stop, step
    return 0, 0, 1


def copy_window(x, rows, columns, fill, out):
    outside = np.logical_or.outer(np.asarray(rows) < 0, np.asarray(columns) < 0)
    out[...] = np.where(outside[:, :, None], fill, x[rows][:, columns])


def scale_window(x, rows, columns, fill, scale, bias, out):
    channels = x.shape[2]
    pixels = np.empty((len(rows), len(columns), channels), x.dtype)
    copy_window(x, rows, columns, fill, pixels)
    out[...] = pixels.astype(np.float32) * scale[:channels] + bias[:channels]


def blend_window(
    x,
    rows,
    rows_high,
    rows_weight,
    columns,
    columns_high,
    columns_weight,
    fill,
    scale,
    bias,
    line,
    whole,
    out,
):
    """All in float32, first between rows, then between columns."""
    channels = x.shape[2]
    pixels = x.astype(np.float32)
    down, across = rows_weight[:, None, None], columns_weight[:, None]
    mixed = pixels[rows] * (1 - down) + pixels[rows_high] * down
    mixed = mixed[:, columns] * (1 - across) + mixed[:, columns_high] * across
    if whole:
        mixed = np.floor(mixed + np.float32(0.5))
    outside = np.logical_or.outer(np.asarray(rows) < 0, np.asarray(columns) < 0)
    mixed = np.where(outside[:, :, None], np.asarray(fill, np.float32), mixed)
    out[...] = mixed * scale[:channels] + bias[:channels]


def scale_pixels(x, scale, bias, out):
    out[...] = x.astype(np.float32) * scale + bias


def scale_planes(x, scale, bias, out):
    out[...] = np.moveaxis(x.astype(np.float32) * scale + bias, -1, 0)


def to_bfloat16(x, out):
    with np.errstate(invalid="ignore"):
        out[...] = x.view(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)


def to_float16(x, out):
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        out[...] = x.view(np.float32).astype(np.float16).view(np.uint16)


def store_values(x, out):
    """In Python integers, which have no limits of their own."""
    if out.dtype.kind == "f":
        out[...] = x.astype(out.dtype)
        return
    low, high = (
        (0, 1) if out.dtype.kind == "b" else (np.iinfo(out.dtype).min, np.iinfo(out.dtype).max)
    )
    rounded = [math.floor(Fraction(float(value)) + Fraction(1, 2)) for value in x]
    out[...] = np.array([min(max(value, low), high) for value in rounded], out.dtype)


def covered(size, count):
    """(count, size): the share of each of `size` input pixels in each of `count` output pixels, as whole numbers."""
    begin, place = np.arange(count)[:, None] * size, np.arange(size) * count
    return np.maximum(0, np.minimum(begin + size, place + count) - np.maximum(begin, place))


def resize_area(x, out):
    down, across = covered(x.shape[0], out.shape[0]), covered(x.shape[1], out.shape[1])
    total = np.einsum("iy,jz,yzc->ijc", down, across, x.astype(np.float64))
    store_values((total / (x.shape[0] * x.shape[1])).reshape(-1), out.reshape(-1))


def cut_box(rng, height, width, share):
    """A box of the same shape as the image around a random pixel, as far as it lies inside."""
    side = math.sqrt(1 - share)
    tall, wide = math.floor(height * side), math.floor(width * side)
    row, column = int(rng.integers(0, height)), int(rng.integers(0, width))
    rows = np.clip([row - tall // 2, row - tall // 2 + tall], 0, height)
    columns = np.clip([column - wide // 2, column - wide // 2 + wide], 0, width)
    return (*rows.tolist(), *columns.tolist())


def mix_up(first, positions, partners, key, alpha, samples, out):
    for i, (position, partner) in enumerate(zip(positions, partners, strict=True)):
        share = np.float32(Draws(fold(key, position)).beta(alpha, alpha))
        out[i] = samples[first + i] * share + samples[partner] * (1 - share)


def cut_mix(
    first, positions, partners, key, alpha, height, width, pasted, samples, out
):  # fmt: skip
    for i, (position, partner) in enumerate(zip(positions, partners, strict=True)):
        rng = Draws(fold(key, position))
        top, bottom, left, right = cut_box(rng, height, width, rng.beta(alpha, alpha))
        box = np.zeros((height, width, 1), bool)
        box[top:bottom, left:right] = True
        own, other = samples[first + i], samples[partner]
        if pasted:
            own, other = own.reshape(height, width, -1), other.reshape(height, width, -1)
            out[i] = np.where(box, other, own).reshape(-1)
        else:
            rest = np.float32(np.count_nonzero(box) / (height * width))
            out[i] = own * (1 - rest) + other * rest
