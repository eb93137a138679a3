"""NumPy twin of every kernel, with the same name, slow, from its definition: Python integers and whole arrays."""

import ctypes
import functools
import itertools
import math
import operator
from fractions import Fraction

import ml_dtypes
import numpy as np
from numba.core import config
from scipy import fft, signal

from loaderx.kernels import image_windows, noise, passes, points, resizing, samples
from loaderx.kernels.distributions import Draws
from tests.kernels.jpeg_reference import count_scans as count_scans
from tests.kernels.jpeg_reference import read_markers as read_markers
from tests.kernels.jpeg_reference import splice_intervals as splice_intervals
from tests.kernels.jpeg_restarts_reference import insert_restarts as insert_restarts

WORD = 2**32
DOUBLE_WORD = 2**64


def row_bytes(address, size):
    """Return `size` bytes of memory."""
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


copy_rows_holding_gil = copy_rows


def in_parts(kernel):
    """Return a kernel that runs all parts of its rows, one after the other."""

    def run(parts, addresses, *given):
        *given, out = given
        size = len(out) // max(len(addresses), 1)
        for begin, end in itertools.pairwise(parts):
            kernel(addresses[begin:end], *given, out[begin * size : end * size])

    return run


def copy_rows_in_parts(parts, addresses, size, out):
    in_parts(copy_rows)(parts, addresses, size, out)


def address_rows(rows, count, base, pitch, out, misfit):
    outside = [i for i, row in enumerate(rows) if not -count <= row < count]
    misfit[0] = outside[0] if outside else -1
    for i, row in enumerate(rows[: outside[0] if outside else None]):
        out[i] = int(base) + range(count)[row] * int(pitch)


def copy_shuffled(first, rows, height, width, keys, fields, scratch, numbers):
    places = first + np.arange(len(numbers))
    permute(places, rows, height, width, keys, scratch, numbers)
    for base, pitch, size, target in fields:
        for k, number in enumerate(numbers):
            copy_bytes(int(target) + k * int(size), int(base) + int(number) * int(pitch), size)


copy_shuffled_holding_gil = copy_shuffled


def collect_rows(addresses, offsets, unit, swap, out):
    elements = out.reshape(len(addresses), len(offsets), unit)
    for i, address in enumerate(addresses):
        for j, offset in enumerate(offsets):
            element = row_bytes(int(address) + int(offset), unit)
            elements[i, j] = np.flip(element) if swap else element


def collect_rows_in_parts(parts, addresses, offsets, unit, swap, out):
    in_parts(collect_rows)(parts, addresses, offsets, unit, swap, out)


def wide_rows(addresses, wide, out):
    """Return the rows at addresses, still in the dtype of `wide`."""
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
    """Compute Threefry-2x32 with 20 rounds, as the paper of Salmon et al. defines it for any number of rounds."""
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
    """Return output `number` of SplitMix64, stepping through all before it."""
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
    """Hash elementwise on 64-bit words, in which no product of two 32-bit words overflows."""
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
    """Run all rounds for cells of the grid, numbered row by row."""
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
    """Mirror one step at a time, at the edge that was passed, until the coordinate is inside."""
    if mode == REFLECT and size > 1:
        while not 0 <= coordinate < size:
            coordinate = -coordinate if coordinate < 0 else 2 * (size - 1) - coordinate
        return coordinate
    if mode == FILL and not 0 <= coordinate < size:
        return -1
    return min(max(coordinate, 0), size - 1)


def window_places(start, extent, flipped, size):
    """Return the coordinates of a window of the output's own size."""
    places = start + np.arange(extent)
    return [int(place) for place in (places[::-1] if flipped else places)[:size]]


def compose(before, start, extent, flipped, mode, low):
    inside = [
        border(place, len(before), mode)
        for place in window_places(start, extent, flipped, len(low))
    ]
    low[...] = [before[place] if place >= 0 else -1 for place in inside]


def compose_nearest(before, start, extent, flipped, low):
    """Find the pixel that contains the centre of each output pixel."""
    size = len(low)
    centres = [Fraction(2 * i + 1, 2) * Fraction(int(extent), size) for i in range(size)]
    low[...] = before[start + np.array([math.floor(centre) for centre in centres])]
    if flipped:
        low[...] = low[::-1].copy()


BILINEAR, BICUBIC, LANCZOS = 0, 1, 2


def filter_share(kind, distance):
    """Return the triangle, Keys' cubic of a = -0.5, and the windowed sinc of three lobes."""
    distance = abs(distance)
    if kind == BILINEAR:
        return max(1 - distance, 0)
    if kind == BICUBIC:
        inner = 1.5 * distance**3 - 2.5 * distance**2 + 1
        outer = -0.5 * distance**3 + 2.5 * distance**2 - 4 * distance + 2
        return inner if distance < 1 else outer if distance < 2 else 0
    return float(np.sinc(distance) * np.sinc(distance / 3)) if distance < 3 else 0


def filter_matrix(size, result, kind, antialias):
    """Return (result, size) in float64: the share of every pixel, from all distances."""
    scale = size / result
    wider = max(scale, 1) if antialias else 1
    centres = (np.arange(result) + 0.5) * scale
    shares = [
        [filter_share(kind, (place + 0.5 - centre) / wider) for place in range(size)]
        for centre in centres
    ]
    return np.array(shares) / np.sum(shares, axis=1, keepdims=True)


def compose_filter(before, start, extent, flipped, kind, antialias, shares, places, counts):
    size, exact = len(counts), np.float64
    taps = len(places) // size
    scale = extent / size
    wider = max(scale, 1) if antialias else 1
    for i in range(size):
        centre = ((size - 1 - i if flipped else i) + 0.5) * scale
        if kind == BILINEAR and wider == 1:
            place = min(max(centre - 0.5, 0), extent - 1)
            first = math.floor(place)
            far = shares.dtype.type(place - first)
            found = [(first, 1 - far), (first + 1, far)]
        else:
            reach = (1, 2, 3)[kind] * wider
            first, stop = max(int(centre - reach + 0.5), 0), min(int(centre + reach + 0.5), extent)
            found = [
                (place, resizing.filter_share(kind, (place - centre + 0.5) * (1 / wider)))
                for place in range(first, stop)
            ]
            # One after the other, as the kernel does: since Python 3.12 `sum` compensates rounding errors.
            total = functools.reduce(operator.add, (share for _, share in found))
            found = [(place, exact(shares.dtype.type(share)) / total) for place, share in found]
        found = [(place, share) for place, share in found if share != 0]
        counts[i] = len(found)
        for k, (place, share) in enumerate(found):
            shares[i * taps + k], places[i * taps + k] = share, before[start + place]


def compose_reduced_filter(size, factor, start, extent, flipped, kind, shares, places, counts):
    results = len(counts)
    taps, scale = len(places) // results, extent / factor / results
    wider = max(scale, 1)
    reach = (1, 2, 3)[kind] * wider
    first, stop = math.floor(start / factor), min(math.ceil((start + extent) / factor), size)
    for i in range(results):
        centre = start / factor + ((results - 1 - i if flipped else i) + 0.5) * scale
        low, high = max(int(centre - reach + 0.5), first), min(int(centre + reach + 0.5), stop)
        weights = {
            place: resizing.filter_share(kind, (place - centre + 0.5) * (1 / wider))
            for place in range(low, high)
        }
        found = [(place, share) for place, share in weights.items() if share != 0][:taps]
        total = functools.reduce(operator.add, (share for _, share in found), 0.0)
        counts[i] = len(found)
        for k, (place, share) in enumerate(found):
            places[i * taps + k], shares[i * taps + k] = place, share / total


def compose_image_windows(
    steps, windows, results, height, width, factor, rows, columns, row_shares, row_places, row_counts, column_shares,
    column_places, column_counts, found,
):  # fmt: skip
    axes = [
        (height, rows, (row_shares, row_places, row_counts)),
        (width, columns, (column_shares, column_places, column_counts)),
    ]
    for axis, (size, tables, lines) in enumerate(axes):
        table, filtered = np.arange(size), False
        for (what, mode, kind, antialias), window, result in zip(
            steps, windows, results[:, axis], strict=True
        ):
            start, extent, flipped = window[3 * axis : 3 * axis + 3]
            before, table = table, np.arange(result)
            if what == image_windows.MOVED:
                compose(before, start, extent, flipped, mode, table)
            elif what == image_windows.NEAREST:
                compose_nearest(before, start, extent, flipped, table)
            elif factor > 1:
                filtered, reduced = True, -(-size // factor)
                compose_reduced_filter(reduced, factor, start, extent, flipped, kind, *lines)
            else:
                filtered = True
                compose_filter(before, start, extent, flipped, kind, antialias, *lines)
        place = len(steps) % 2
        tables[place, : len(table)] = table
        found[axis] = place
        if axis == 0:
            seen = set(table[table >= 0].tolist())
            if filtered:
                taps = len(row_places) // len(row_counts)
                seen = {int(row_places[i * taps + k]) for i in seen for k in range(row_counts[i])}
            found[2:] = (min(seen), max(seen) + 1) if seen else (0, 0)


def shift_places(places, first):
    places[...] = [place - first if place >= 0 else place for place in places]


def longest_run(table):
    """Return the first of the longest stretches; a single pixel walks to the right."""
    for size in range(len(table), 0, -1):
        for first in range(len(table) - size + 1):
            stretch = table[first : first + size]
            for step in (1, -1):
                if stretch.min() >= 0 and np.array_equal(
                    stretch, stretch[0] + step * np.arange(size)
                ):
                    return first, first + size, step
    return 0, 0, 1


def copy_window(x, rows, columns, fill, out):
    outside = np.logical_or.outer(np.asarray(rows) < 0, np.asarray(columns) < 0)
    out[...] = np.where(outside[:, :, None], fill[: x.shape[2]], x[rows][:, columns])


def scale_window(x, rows, columns, fill, scale, bias, out):
    channels = x.shape[2]
    pixels = np.empty((len(rows), len(columns), channels), x.dtype)
    copy_window(x, rows, columns, fill, pixels)
    out[...] = pixels.astype(np.float32) * scale[:channels] + bias[:channels]


def weighted(pixels, table, shares, places, counts):
    """Sum entries of the first axis by their shares, one after the other."""
    taps = len(places) // len(counts)
    total = np.zeros((len(table), *pixels.shape[1:]), shares.dtype)
    for i, entry in enumerate(table):
        for k in entry * taps + np.arange(counts[entry] if entry >= 0 else 0):
            total[i] += pixels[places[k]].astype(shares.dtype) * shares[k]
    return total


def finish_pixels(mixed, rows, columns, fill, scale, bias, whole, limits, out):
    channels = out.shape[2]
    if whole:
        mixed = np.clip(np.floor(mixed + mixed.dtype.type(0.5)), *limits)
    outside = np.logical_or.outer(np.asarray(rows) < 0, np.asarray(columns) < 0)
    mixed = np.where(outside[:, :, None], np.asarray(fill, mixed.dtype)[:channels], mixed)
    scaled = mixed * scale[:channels] + bias[:channels]
    store_values(scaled.reshape(-1), out.reshape(-1))


def resize_window(
    x, rows, columns, row_shares, row_places, row_counts, column_shares, column_places, column_counts,
    fill, scale, bias, whole, limits, line, made, pair_places, pair_shares, out
):  # fmt: skip
    """Mix rows first, then columns."""
    mixed = weighted(x, rows, row_shares, row_places, row_counts)
    mixed = np.moveaxis(mixed, 1, 0)
    mixed = weighted(mixed, columns, column_shares, column_places, column_counts)
    mixed = np.moveaxis(mixed, 1, 0)
    finish_pixels(mixed, rows, columns, fill, scale, bias, whole, limits, out)


def resize_exactly(
    x, rows, columns, row_shares, row_places, row_counts, column_shares, column_places, column_counts,
    fill, scale, bias, whole, limits, line, made, held, pair_places, pair_shares, window, out
):  # fmt: skip
    """Clip whole numbers between columns and rows, in either order."""
    axes = [
        (1, (columns, column_shares, column_places, column_counts)),
        (0, (rows, row_shares, row_places, row_counts)),
    ]
    shorter, narrower = window[1] - len(row_counts), window[4] - len(column_counts)
    mixed = x
    for axis, tables in axes[::-1] if shorter > max(0, 2 * narrower) else axes:
        mixed = np.clip(mixed, *limits) if whole else mixed
        mixed = np.moveaxis(weighted(np.moveaxis(mixed, axis, 0), *tables), 0, axis)
    finish_pixels(mixed, rows, columns, fill, scale, bias, whole, limits, out)


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


def from_bfloat16(x, out):
    out[...] = x.view(ml_dtypes.bfloat16).astype(np.float32).view(np.uint32)


def from_float16(x, out):
    out[...] = x.view(np.float16).astype(np.float32).view(np.uint32)


def normalize_values(address, like, scale, bias, out):
    x = row_bytes(address, len(out) * like.itemsize).view(like.dtype).astype(np.float32)
    out[:] = x * np.resize(scale, len(out)) + np.resize(bias, len(out))


def normalize_in_place(scale, bias, out):
    normalize_values(out.ctypes.data, out[:0], scale, bias, out)


def normalize_halves(address, like, scale, bias, brain, floats, bits, out):
    values = np.empty(len(out), np.float32)
    normalize_values(address, like, scale, bias, values)
    with np.errstate(over="ignore"):
        out[:] = values.astype(ml_dtypes.bfloat16 if brain else np.float16).view(np.uint16)


def normalize_values_in_parts(parts, address, like, scale, bias, out):
    for begin, end in itertools.pairwise(map(int, parts)):
        normalize_values(address + begin * like.itemsize, like, scale, bias, out[begin:end])


def normalize_in_place_in_parts(parts, scale, bias, out):
    for begin, end in itertools.pairwise(parts):
        normalize_in_place(scale, bias, out[begin:end])


def normalize_halves_in_parts(parts, address, like, scale, bias, brain, floats, bits, out):
    for begin, end in itertools.pairwise(map(int, parts)):
        place = address + begin * like.itemsize
        normalize_halves(place, like, scale, bias, brain, floats, bits, out[begin:end])


def store_values(x, out):
    """Store in Python integers, which have no limits of their own."""
    if out.dtype.kind == "f":
        out[...] = x.astype(out.dtype)
        return
    low, high = (
        (0, 1) if out.dtype.kind == "b" else (np.iinfo(out.dtype).min, np.iinfo(out.dtype).max)
    )
    rounded = [math.floor(Fraction(float(value)) + Fraction(1, 2)) for value in x]
    out[...] = np.array([min(max(value, low), high) for value in rounded], out.dtype)


def covered(size, count):
    """Return (count, size): the share of each input pixel in each output pixel, as whole numbers."""
    begin, place = np.arange(count)[:, None] * size, np.arange(size) * count
    return np.maximum(0, np.minimum(begin + size, place + count) - np.maximum(begin, place))


def resize_area(x, out, sums, line, made, firsts, counts, places, shares):
    down, across = covered(x.shape[0], out.shape[0]), covered(x.shape[1], out.shape[1])
    total = np.einsum("iy,jz,yzc->ijc", down, across, x.astype(np.float64))
    store_values((total / (x.shape[0] * x.shape[1])).reshape(-1), out.reshape(-1))


def cut_box(rng, height, width, share):
    """Return a box of the same shape as the image around a random pixel, clipped to the image."""
    side = math.sqrt(1 - share)
    tall, wide = math.floor(height * side), math.floor(width * side)
    row, column = int(rng.integers(0, height)), int(rng.integers(0, width))
    rows = np.clip([row - tall // 2, row + tall // 2], 0, height)
    columns = np.clip([column - wide // 2, column + wide // 2], 0, width)
    return (*rows.tolist(), *columns.tolist())


def mix_up(first, positions, partners, key, probability, alpha, samples, out):
    for i, (position, partner) in enumerate(zip(positions, partners, strict=True)):
        rng = Draws(fold(key, position))
        out[i] = samples[first + i]
        if probability < 1 and rng.random() >= probability:
            continue
        share = np.float32(rng.beta(alpha, alpha))
        out[i] = samples[first + i] * share + samples[partner] * (1 - share)


def cut_mix(
    first, positions, partners, key, probability, alpha, height, width, pasted, samples, out
):  # fmt: skip
    for i, (position, partner) in enumerate(zip(positions, partners, strict=True)):
        rng = Draws(fold(key, position))
        out[i] = samples[first + i]
        if probability < 1 and rng.random() >= probability:
            continue
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


def cut_stretch(rng, length, share):
    """Return moments around a random one, clipped to the series."""
    extent = math.floor(length * (1 - share))
    begin = int(rng.integers(0, length)) - extent // 2
    return tuple(np.clip([begin, begin + extent], 0, length).tolist())


def cut_mix_series(
    first, positions, partners, key, probability, alpha, length, pasted, samples, out
):
    for i, (position, partner) in enumerate(zip(positions, partners, strict=True)):
        rng = Draws(fold(key, position))
        out[i] = samples[first + i]
        if probability < 1 and rng.random() >= probability:
            continue
        begin, end = cut_stretch(rng, length, rng.beta(alpha, alpha))
        own, other = samples[first + i], samples[partner]
        if pasted:
            out[i] = own
            out[i].reshape(length, -1)[begin:end] = other.reshape(length, -1)[begin:end]
        else:
            rest = np.float32((end - begin) / length)
            out[i] = own * (1 - rest) + other * rest


def meeting_point(rng, probability, low, high, tall, wide):
    """Draw (row, column); return None if the op is not applied."""
    if probability < 1 and rng.random() >= probability:
        return None
    return math.floor(rng.uniform(low, high) * tall), math.floor(rng.uniform(low, high) * wide)


def four_of(place, partners, samples):
    """Return a sample and its partners, in reading order."""
    return [samples[place], *(samples[partner] for partner in partners)]


def mosaic_pixels(
    first, positions, partners, key, probability, low, high, size, result, fill, samples, out
):
    """Lay all four out with a wide margin, and cut the window in which they meet at the drawn point."""
    tall, wide = result
    colour = fill.reshape(wide, -1)[0]
    for i, position in enumerate(positions):
        point = meeting_point(Draws(fold(key, position)), probability, low, high, tall, wide)
        if point is None:
            out[i] = samples[first + i]
            continue
        images = [x.reshape(*size, -1) for x in four_of(first + i, partners[:, i], samples)]
        grid = np.concatenate([np.concatenate(images[:2], 1), np.concatenate(images[2:], 1)])
        canvas = np.tile(colour, (grid.shape[0] + 2 * tall, grid.shape[1] + 2 * wide, 1))
        canvas[tall:-tall, wide:-wide] = grid
        top, left = tall + size[0] - point[0], wide + size[1] - point[1]
        out[i] = canvas[top : top + tall, left : left + wide].reshape(-1)


def mosaic_instances(
    first, positions, partners, key, probability, low, high, size, result, fill, rows, samples, out
):
    for i, position in enumerate(positions):
        masks = four_of(first + i, partners[:, i], samples)
        counted = [
            np.where((mask >= 1) & (mask <= rows), mask + number * rows, mask)
            for number, mask in enumerate(masks)
        ]
        row = np.full(result[1], fill, out.dtype)
        given = (0, [position], np.array([[1], [2], [3]]), key, probability, low, high, size)
        mosaic_pixels(*given, result, row, np.stack(counted).astype(out.dtype), out[i : i + 1])


def seen_points(x, begin, size, result):
    """Return points of an image of `size` that begins at (left, top) of a larger one, if both images show them."""
    x = x.copy()
    low = np.maximum(begin, 0)
    high = np.maximum(np.minimum(np.add(begin, size), result), low)
    pairs = x[:, : 2 if x.shape[1] == 3 else 4].astype(np.float64).reshape(len(x), -1, 2) + begin
    if x.shape[1] == 3:
        x[:, :2] = pairs[:, 0]
        x[:, 2] *= np.all((pairs[:, 0] >= low) & (pairs[:, 0] < high), axis=1)
        return x
    seen = np.clip(pairs, low, high)
    areas, whole = (np.prod(each[:, 1] - each[:, 0], axis=1) for each in (seen, pairs))
    valid = (x[:, 4] > 0) & np.all(seen[:, 1] > seen[:, 0], axis=1)
    x[:, :4] = np.where(valid[:, None], seen.reshape(-1, 4), 0)
    x[:, 4] = valid
    x[:, 5] *= np.divide(areas, whole, out=np.zeros(len(x)), where=valid)
    return x


def mosaic_points(
    first, positions, partners, key, probability, low, high, size, result, packed, samples, out
):
    for i, position in enumerate(positions):
        point = meeting_point(Draws(fold(key, position)), probability, low, high, *result)
        rows = [samples[first + i]]
        if point is not None:
            # In reverse order: (left, top) and (width, height).
            corners = [np.subtract(point, size)[::-1] + [across, down] * np.array(size[::-1])
                       for down in (0, 1) for across in (0, 1)]  # fmt: skip
            rows = [
                seen_points(x, corner, size[::-1], result[::-1])
                for corner, x in zip(
                    corners, four_of(first + i, partners[:, i], samples), strict=True
                )
            ]
        found = np.concatenate(rows)
        if packed:
            found = found[found[:, 2 if found.shape[1] == 3 else 4] > 0][: out.shape[1]]
        out[i] = 0
        out[i, : len(found)] = found


def pasted_values(first, i, positions, partners, key, probability, share, rows, background, masks):
    """Return the values of the partner's mask whose pixels are pasted."""
    state = fold(key, positions[i])
    if partners[i] == first + i or (probability < 1 and Draws(state).random() >= probability):
        return []
    values = [int(value) for value in np.unique(masks[partners[i]])]
    return [
        value
        for value in values
        if value not in background
        and (rows < 0 or 1 <= value <= rows)
        and Draws(fold(state, value % DOUBLE_WORD)).random() < share
    ]


def paste_pixels(
    first,
    positions,
    partners,
    key,
    probability,
    share,
    rows,
    background,
    masks,
    known,
    samples,
    out,
):
    given = (positions, partners, key, probability, share, rows, background, masks)
    for i, partner in enumerate(partners):
        pasted = np.isin(masks[partner], pasted_values(first, i, *given))
        pixels = (x.reshape(masks.shape[1], -1) for x in (samples[partner], samples[first + i]))
        out[i] = np.where(pasted[:, None], *pixels).reshape(-1)


def paste_instances(
    first, positions, partners, key, probability, share, rows, background, masks, samples, out
):
    given = (positions, partners, key, probability, share, rows, background, masks)
    for i, partner in enumerate(partners):
        mask = masks[partner]
        pasted = np.isin(mask, pasted_values(first, i, *given))
        out[i] = np.where(pasted, mask + rows, samples[first + i])


def extent(mask):
    """Return left, top, right and bottom of the pixels of a mask."""
    rows, columns = np.nonzero(mask)
    return np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1], np.float32)


def paste_boxes(
    first, positions, partners, key, probability, share, rows, background, width, masks, facts, samples, out,
):  # fmt: skip
    given = (positions, partners, key, probability, share, rows, background, masks)
    shaped = masks.reshape(len(masks), -1, width)
    for i, partner in enumerate(partners):
        values = pasted_values(first, i, *given)
        covered = np.isin(shaped[partner], values)
        out[i] = 0
        out[i, :rows] = samples[first + i]
        for k, x in enumerate(out[i, :rows]):
            before = shaped[first + i] == k + 1
            after = before & ~covered
            if x[4] <= 0 or before.sum() == after.sum():
                continue
            x[5] *= after.sum() / before.sum()
            if after.any():
                left = extent(after)
                closer = np.concatenate([np.maximum(x[:2], left[:2]), np.minimum(x[2:4], left[2:])])
                x[:4] = np.where(left != extent(before), closer, x[:4])
            if not after.any() or np.any(x[2:4] <= x[:2]):
                x[:6] = 0
        for value in values:
            if samples[partner, value - 1, 4] > 0:
                out[i, rows + value - 1] = samples[partner, value - 1]


def paste_keypoints(
    first, positions, partners, key, probability, share, rows, background, width, masks, samples, out,
):  # fmt: skip
    given = (positions, partners, key, probability, share, rows, background, masks)
    shaped = masks.reshape(len(masks), -1, width)
    count = samples.shape[1]
    for i, partner in enumerate(partners):
        pasted = np.isin(shaped[partner], pasted_values(first, i, *given))
        out[i] = 0
        out[i, :count] = samples[first + i]
        for source, begin in ((samples[first + i], 0), (samples[partner], count)):
            for k, (across, down, valid) in enumerate(source):
                inside = 0 <= across < width and 0 <= down < pasted.shape[0]
                if valid > 0 and inside and pasted[int(down), int(across)]:
                    out[i, begin + k] = source[k]
                    if begin == 0:
                        out[i, k, 2] = 0


# HighwayHash64, lane by lane as in its portable definition.


def zipper_merge(low, high):
    """Return the bytes of two neighbouring lanes in another order, as two lanes."""
    a, b = low.to_bytes(8, "little"), high.to_bytes(8, "little")
    return [
        int.from_bytes([a[3], b[4], a[2], a[5], b[6], a[1], b[7], a[0]], "little"),
        int.from_bytes([b[3], a[4], b[2], b[5], b[1], a[6], b[0], a[7]], "little"),
    ]


def highway_packet(lanes, v0, v1, mul0, mul1):
    """Return the state after one packet, given as four numbers."""
    for i in range(4):
        v1[i] = (v1[i] + mul0[i] + lanes[i]) % DOUBLE_WORD
        mul0[i] ^= v1[i] % WORD * (v0[i] // WORD)
        v0[i] = (v0[i] + mul1[i]) % DOUBLE_WORD
        mul1[i] ^= v0[i] % WORD * (v1[i] // WORD)
    for target, source in ((v0, v1), (v1, v0)):
        merged = zipper_merge(*source[:2]) + zipper_merge(*source[2:])
        target[:] = [(x + y) % DOUBLE_WORD for x, y in zip(target, merged, strict=True)]


def highway_padded(rest):
    """Pad 1 to 31 bytes to a packet: whole words in front, the end of the data elsewhere."""
    whole, odd = rest[: len(rest) // 4 * 4], rest[len(rest) // 4 * 4 :]
    if len(rest) >= 16:
        return whole.ljust(28, b"\0") + rest[-4:]
    ends = bytes([odd[0], odd[len(odd) // 2], odd[-1]]) if odd else b""
    return (whole.ljust(16, b"\0") + ends).ljust(32, b"\0")


def highway_hash_of(key, data):
    """Return the HighwayHash64 of bytes."""
    mul0 = [0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3]
    mul1 = [0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377]
    key = [int(word) for word in key]
    v0 = [x ^ word for x, word in zip(mul0, key, strict=True)]
    v1 = [x ^ (word % WORD * WORD + word // WORD) for x, word in zip(mul1, key, strict=True)]
    state = v0, v1, mul0, mul1
    end = len(data) // 32 * 32
    for place in range(0, end, 32):
        highway_packet(np.frombuffer(data, "<u8", 4, place).tolist(), *state)
    if rest := data[end:]:
        count = len(rest)
        for i in range(4):
            v0[i] = (v0[i] + count * WORD + count) % DOUBLE_WORD
            halves = (v1[i] % WORD, v1[i] // WORD)
            low, high = (x * 2**count % WORD + x // 2 ** (32 - count) for x in halves)
            v1[i] = low + high * WORD
        highway_packet(np.frombuffer(highway_padded(rest), "<u8").tolist(), *state)
    for _ in range(4):
        highway_packet([v0[i] % WORD * WORD + v0[i] // WORD for i in (2, 3, 0, 1)], *state)
    return sum(lanes[0] for lanes in state) % DOUBLE_WORD


def highway_hash(address, nbytes):
    key = np.frombuffer(b"Riegeli/records\nRiegeli/records\n", "<u8")
    return highway_hash_of(key, ctypes.string_at(int(address), int(nbytes)))


def highway_hash_pieces(key, addresses, sizes):
    pieces = zip(addresses, sizes, strict=True)
    return highway_hash_of(key, b"".join(ctypes.string_at(int(at), int(size)) for at, size in pieces))  # fmt: skip


# The frame of a Riegeli file, byte after byte as in its specification.


def varint(number):
    """Return a number in groups of seven bits, the lowest first, with the top bit set on all but the last."""
    groups = [number >> shift & 127 for shift in range(0, max(1, int(number).bit_length()), 7)]
    return bytes([*(group + 128 for group in groups[:-1]), groups[-1]])


def write_side_by_side(parts, ends, out):
    """Write bytes one after the other, and the end of each."""
    ends[:] = np.cumsum([len(part) for part in parts], dtype=np.int64)
    everything = b"".join(parts)
    out[: len(everything)] = np.frombuffer(everything, np.uint8)


def write_varints(numbers, ends, out):
    write_side_by_side([varint(number) for number in numbers.tolist()], ends, out)


def write_heads(sizes, group, ends, out):
    groups = [sizes[i : i + group].tolist() for i in range(0, len(sizes), group)]
    listed = [b"".join(map(varint, numbers)) for numbers in groups]
    write_side_by_side([b"\0" + varint(len(each)) + each for each in listed], ends, out)


def write_entries(begins, decoded, records, ends, out):
    table = np.stack([begins[: len(ends)], decoded, records], axis=1).tolist()
    parts = [b"\x08" + varint(a) + b"\x10" + varint(b) + b"\x18" + varint(c) for a, b, c in table]
    write_side_by_side(parts, ends, out)


def framed_length(begin, size, records):
    """Return the length of a chunk in a file: bytes and block headers, at least its number of records."""
    position = begin
    for _ in range(40 + size):
        position += 25 if position % 65536 == 0 else 1
    position = max(position, begin + records)
    while 0 < position % 65536 <= 24:
        position += 1
    return position - begin


def place_chunks(begin, sizes, records, begins):
    begins[0] = begin
    for i, size in enumerate(sizes.sum(axis=1).tolist()):
        begins[i + 1] = begins[i] + framed_length(int(begins[i]), size, int(records[i]))


def hashed(*words):
    """Return words of 64 bits after their hash."""
    body = np.array(words, "<u8")
    return np.uint64(highway_hash(body.ctypes.data, body.nbytes)).tobytes() + body.tobytes()


def write_chunks(begins, kind, records, decoded, addresses, sizes, out):
    first = int(begins[0])
    for i, (begin, end) in enumerate(zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True)):
        pieces = zip(addresses[i].tolist(), sizes[i].tolist(), strict=True)
        data = b"".join(ctypes.string_at(at, size) for at, size in pieces)
        data_hash = highway_hash_of(np.frombuffer(b"Riegeli/records\n" * 2, "<u8"), data)
        header = hashed(len(data), data_hash, kind + 256 * int(records[i]), decoded[i])
        chunk, place = header + data, begin
        while place < end:
            if place % 65536 == 0:
                part = hashed(place - begin, end - place)
            else:
                room = min(end, (place // 65536 + 1) * 65536) - place
                part, chunk = chunk[:room].ljust(room, b"\0"), chunk[room:]
            out[place - first : place - first + len(part)] = np.frombuffer(part, np.uint8)
            place += len(part)


# Chunks of a Riegeli file, as `bytes` without the block headers that interrupt them.


class UnreadableError(Exception):
    """Failure to read a record, with its reason as a number."""


OUTSIDE, HEADER_HASH, DATA_HASH, KIND, CONTRADICTION = range(-1, -6, -1)
ROW_SIZE, STEP_SIZE, FRAME, ROOM, MISPLACED = range(-6, -11, -1)


def or_reason(function, *arguments):
    """Return the result of a function, or the number of the reason why it failed."""
    try:
        return function(*arguments)
    except UnreadableError as failure:
        return failure.args[0]


def words_at(address, count):
    """Return words of memory, to read and to write."""
    return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(int(address)))


def own_places(begin, end):
    """Return the positions of a file from `begin` on that belong to a chunk there, and not to a block header."""
    positions = np.arange(int(begin), int(end))
    return positions[positions % 65536 >= 24]


def unframed(base, places):
    """Return the bytes of a file at some positions."""
    if not len(places):
        return b""
    first, last = int(places[0]), int(places[-1])
    return row_bytes(base + first, last + 1 - first)[places - first].tobytes()


def split_varint(data):
    """Return the number of up to 63 bits at the beginning of bytes, and its length in bytes."""
    for count, last in enumerate(data[:9], 1):
        if last < 128:
            return sum((data[i] & 127) << 7 * i for i in range(count)), count
    raise UnreadableError(CONTRADICTION)


def riegeli_hash(data):
    """Return the hash of bytes, with Riegeli's key."""
    return highway_hash_of(np.frombuffer(b"Riegeli/records\n" * 2, "<u8"), data)


def chunk_words(base, begin, limit, verify):
    """Return the words of a chunk header, and the facts that follow from it and the data.

    Places count from the chunk's first byte.
    """
    chunk = unframed(int(base), own_places(begin, limit)) if begin >= 0 else b""
    if len(chunk) < 40:
        raise UnreadableError(OUTSIDE)
    header = np.frombuffer(chunk, "<u8", 5)
    header_hash, size, data_hash, kind_and_records, decoded = header.tolist()
    if verify and riegeli_hash(chunk[8:40]) != header_hash:
        raise UnreadableError(HEADER_HASH)
    if size > len(chunk) - 40:
        raise UnreadableError(OUTSIDE)
    data = chunk[40 : 40 + size]
    if verify and riegeli_hash(data) != data_hash:
        raise UnreadableError(DATA_HASH)
    records, kind = divmod(kind_and_records, 256)
    if records >= 2**55 or decoded >= 2**63 or not data:
        raise UnreadableError(CONTRADICTION)
    if chr(kind) != "r" or data[:1] not in (b"\0", b"z"):
        raise UnreadableError(KIND)
    length, count = split_varint(data[1:])
    sizes = 40 + 1 + count
    if sizes + length > 40 + size:
        raise UnreadableError(CONTRADICTION)
    return [
        *header.view("<i8").tolist(),
        *(kind, records, decoded, data[0], sizes, sizes + length, 40 + size),
    ]


def check_chunk(base, begin, limit, verify, worker):
    found = or_reason(chunk_words, base, begin, limit, verify)
    if isinstance(found, int):
        return found
    words_at(worker, 16)[4:] = found
    return 0


def unpacked(part, size, room):
    """Return the content of a compressed part, which has its size in front of a frame of zstd."""
    import zstandard

    promised, count = split_varint(part)
    frame = part[count:]
    if promised != size:
        raise UnreadableError(CONTRADICTION)
    if len(frame) > room:
        raise UnreadableError(ROOM)
    engine = zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()
    try:
        content = engine.decompress(frame)
    except zstandard.ZstdError:
        raise UnreadableError(FRAME) from None
    if not engine.eof or engine.unused_data or len(content) != size:
        raise UnreadableError(FRAME)
    return content


def plain_row(base, begin, first, size, alignment):
    """Return bytes of an uncompressed chunk, or their address in the file if they may stay there."""
    # Room for a block header after an empty row, too.
    places = own_places(begin, begin + first + size + 24 * (2 + (first + size) // 65512))[first:]
    address, places = int(base + places[0]), places[:size]
    if len(set((places // 65536).tolist())) <= 1 and address % alignment == 0:
        return address
    return unframed(base, places)


def row_of_chunk(base, begin, limit, verify, row, step, padding, alignment, shortcut, room, listed):
    """Return a row as bytes or as an address in the file, and whether later reads can skip the chunk's header."""
    *_, records, size, compression, _, values, end = chunk_words(base, begin, limit, verify)
    if records != 1:
        raise UnreadableError(CONTRADICTION)
    if step == 0 and size != row:
        raise UnreadableError(ROW_SIZE)
    if listed is not None and size % 2**32 != listed:
        raise UnreadableError(MISPLACED)
    if step > 0 and size % step:
        raise UnreadableError(STEP_SIZE)
    if compression == 0 and size != end - values:
        raise UnreadableError(CONTRADICTION)
    if compression == 0 and step == 0:
        return plain_row(base, begin, values, size, alignment), shortcut in (0, values)
    record = unframed(base, own_places(begin, limit)[values:end])
    if compression == ord("z"):
        room -= size if size > row else 0
        if room < 0:
            raise UnreadableError(ROOM)
        record = unpacked(record, size, room)
    return record[:row] + padding[len(record[:row]) :], shortcut == 0


def read_record(entry, target, worker):
    settings, base, begin, limit, chunk = words_at(entry, 5).tolist()
    if begin < 0:
        return base
    when, bits, row, step, padding, alignment, shortcut, sizes = words_at(settings, 8).tolist()
    seen = np.ctypeslib.as_array((ctypes.c_uint8 * (chunk // 8 + 1)).from_address(bits))
    known = np.unpackbits(seen, bitorder="little")
    new = when == 2 or not known[chunk]
    if shortcut and not new:
        found = plain_row(base, begin, shortcut, row, alignment), True
    else:
        padding = ctypes.string_at(padding, row) if step else b""
        listed = ctypes.c_uint32.from_address(sizes + 4 * chunk).value if sizes else None
        options = row, step, padding, alignment, shortcut, int(words_at(worker, 16)[3]), listed
        found = or_reason(row_of_chunk, base, begin, limit, new and when > 0, *options)
    if isinstance(found, int):
        return found
    content, known[chunk] = found[0], found[1] | known[chunk]
    seen[:] = np.packbits(known, bitorder="little")
    if isinstance(content, int):
        return content
    ctypes.memmove(int(target), content, len(content))
    return target


def fetch_rows(function, entries, worker, size, out, progress):
    bring = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)(int(function))
    for i, entry in enumerate(entries.tolist()):
        place = out.ctypes.data + i * size
        row = bring(entry, place, int(worker))
        if row < 0:
            progress[:] = i, row
            return
        ctypes.memmove(place, ctypes.string_at(row, size), size)
    progress[:] = len(entries), 0


def split_records(listed, count, total):
    """Return the end of each of `count` records, whose sizes are listed and must add up to `total`."""
    sizes = []
    for _ in range(count):
        size, length = split_varint(listed)
        sizes.append(size)
        listed = listed[length:]
    if listed or sum(sizes) != total:
        raise UnreadableError(CONTRADICTION)
    return np.cumsum(sizes, dtype=np.int64)


def parts_of_chunk(base, begin, words, most, total):
    """Return sizes and values of all records, as bytes."""
    room, compression, first, stop, end = words[[3, 12, 13, 14, 15]].tolist()
    places = own_places(begin, begin + end + 24 * (2 + end // 65512))
    listed, values = (unframed(base, places[part]) for part in (slice(first, stop), slice(stop, end)))  # fmt: skip
    if compression == ord("z"):
        length, _ = split_varint(listed)
        if length > most:
            raise UnreadableError(CONTRADICTION)
        return unpacked(listed, length, room), unpacked(values, total, room)
    if len(listed) > most or len(values) != total:
        raise UnreadableError(CONTRADICTION)
    return listed, values


def decode_chunk(base, begin, worker, sizes, ends, values):
    found = or_reason(parts_of_chunk, base, begin, words_at(worker, 16), len(sizes), len(values))
    if isinstance(found, int):
        return found
    places = or_reason(split_records, found[0], len(ends), len(values))
    if isinstance(places, int):
        return places
    sizes[: len(found[0])] = np.frombuffer(found[0], np.uint8)
    ends[:], values[:] = places, np.frombuffer(found[1], np.uint8)
    return 0


def entry_fields(message):
    """Return fields 1 to 3 of a protobuf message that has no others, all of them numbers."""
    fields = {}
    while message:
        value, count = split_varint(message[1:])
        fields[message[0]] = value
        message = message[1 + count :]
    if fields.keys() != {0x08, 0x10, 0x18}:
        raise UnreadableError(CONTRADICTION)
    return fields[0x08], fields[0x10], fields[0x18]


def read_index(values, ends, offsets, sizes, counts):
    for chunk in range(len(offsets)):
        fields = or_reason(entry_fields, values[ends[chunk] : ends[chunk + 1]].tobytes())
        if isinstance(fields, int):
            return chunk
        offsets[chunk], sizes[chunk], counts[chunk] = fields
    return -1


def locate_records(rows, starts, bases, settings, offsets, entries, addresses):
    for i, row in enumerate(rows.tolist()):
        file = max(f for f in range(len(bases)) if starts[f] <= row)
        chunk = row - int(starts[file])
        begin, limit = -1, -1
        if offsets[file]:
            begin, limit = words_at(offsets[file], chunk + 2)[chunk:].tolist()
        entries[i] = settings[file], bases[file], begin, limit, chunk
        addresses[i] = entries[i:].ctypes.data


def build_alias(shares, thresholds, aliases):
    """Build the table by Vose's method: in both lists, the row that was added last comes first."""
    left = [float(share) for share in shares]
    poor = [row for row, share in enumerate(left) if share < 1]
    rich = [row for row, share in enumerate(left) if share >= 1]
    table = {row: (WORD - 1, row) for row in range(len(left))}
    while poor and rich:
        row, giver = poor.pop(), rich[-1]
        table[row] = (math.floor(Fraction(left[row]) * WORD), giver)
        left[giver] -= 1 - left[row]
        if left[giver] < 1:
            poor.append(rich.pop())
    for row, (threshold, alias) in table.items():
        thresholds[row], aliases[row] = threshold, alias


def draw_rows(key, positions, thresholds, aliases, out):
    for i, position in enumerate(positions):
        state = fold(key, position)
        slot = draw_bits(state, 0) * len(aliases) // DOUBLE_WORD
        own = draw_bits(state, 1) // WORD < thresholds[slot]
        out[i] = slot if own else aliases[slot]


def cut_documents(starts, sizes, length, piece_starts, piece_sizes):
    pieces = [
        (start + cut, min(length, size - cut))
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        for cut in range(0, size, length)
    ]
    piece_starts[:] = [start for start, _ in pieces]
    piece_sizes[:] = [size for _, size in pieces]


def first_fit(sizes, length, room, rows):
    """Look at row after row; the tree stays unused."""
    left = []
    for piece, size in enumerate(sizes.tolist()):
        row = next((row for row, free in enumerate(left) if free >= size), len(left))
        if row == len(left):
            left.append(length)
        left[row] -= size
        rows[piece] = row


def sort_pieces(rows, starts, sizes, firsts, sorted_starts, sorted_sizes):
    order = np.argsort(rows, kind="stable")
    sorted_starts[:], sorted_sizes[:] = starts[order], sizes[order]
    firsts[:] = np.searchsorted(rows[order], np.arange(len(firsts)))


def pack_rows(rows, firsts, starts, sizes, address, padding, tokens, segments, positions):
    length = segments.shape[1]
    width = len(padding) // length
    packed = tokens.reshape(len(rows), length * width)
    for i, row in enumerate(rows):
        pieces = range(firsts[row], firsts[row + 1])
        used = [row_bytes(address + starts[p] * width, sizes[p] * width) for p in pieces]
        line = np.concatenate([*used, padding])[: length * width]
        packed[i] = line
        segments[i], positions[i] = 0, 0
        place = 0
        for number, piece in enumerate(pieces, 1):
            end = place + sizes[piece]
            segments[i, place:end] = number
            positions[i, place:end] = np.arange(sizes[piece])
            place = end


def inverse_matrix(matrix):
    return np.linalg.inv(np.array(matrix, np.float64).reshape(3, 3))


def clipped_boxes(x, boxes, height, width):
    """Write boxes of float64 to rows of `x`, clipped, or zeros where nothing is left or was valid."""
    low, high = np.zeros(4), np.array([width, height, width, height], np.float64)
    inside = np.clip(boxes, low, high)
    left, top, right, bottom = inside.T
    valid = (x[:, 4] > 0) & (right > left) & (bottom > top)
    x[:, :4] = np.where(valid[:, None], inside, 0)
    x[:, 4] = valid


def open_boxes(x, form, across, down, out):
    """Convert boxes in a format to rows of (left, top, right, bottom, valid, visible, ...)."""
    finite = np.isfinite(x[:, :4]).all(axis=1, keepdims=True)
    boxes = np.where(finite, x[:, :4], 0).astype(np.float64)
    first, second = boxes[:, :2], boxes[:, 2:]
    first, second = first * [across, down], second * [across, down]
    if form == points.CXCYWH:
        first = first - second / 2
    if form != points.XYXY:
        second = first + second
    boxes = np.concatenate([first, second], axis=1).astype(np.float32)
    valid = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    out[:] = np.column_stack([boxes, valid, np.ones(len(x)), x[:, 4:]])


def open_keypoints(x, out):
    out[:] = np.column_stack([x, np.isfinite(x).all(axis=1)])


def open_points(x, form, normalized, sizes, out):
    """Convert the boxes or keypoints of each image, in fractions of its size if they are normalised."""
    for own, size, into in zip(x, sizes, out, strict=True):
        if form == points.KEYPOINTS:
            open_keypoints(own, into)
        else:
            open_boxes(own, form, *((size[1], size[0]) if normalized else (1, 1)), into)


def follow_windows(x, windows, sizes, parts):
    """Map the points of each image through its own window."""
    for own, window, size in zip(x, windows, sizes, strict=True):
        if parts:
            top, tall, height, left, wide, width = window
            window_points(own, top, tall, False, left, wide, False, height, width)
        else:
            window_points(own, *window, *size[2:])


def valid_boxes(x, least_area, least_visible, out):
    sides = x[:, 2:4].astype(np.float64) - x[:, :2]
    out[:] = (x[:, 4] > 0) & (sides.prod(axis=1) >= least_area)
    out &= x[:, 5] >= least_visible - points.ROUNDING


def close_boxes(x, form, across, down, least_area, least_visible, fills, fill, out):
    """Convert rows of (left, top, right, bottom, valid, visible, ...) to a format."""
    kept = np.empty(len(x), bool)
    valid_boxes(x, least_area, least_visible, kept)
    boxes = np.where(((x[:, 4] > 0) & ~kept)[:, None], 0, x[:, :4].astype(np.float64))
    first, second = boxes[:, :2], boxes[:, 2:]
    if form != points.XYXY:
        second = second - first
    if form == points.CXCYWH:
        first = first + second / 2
    out[:, :2], out[:, 2:4] = first / [across, down], second / [across, down]
    out[:, 4:] = np.where(kept[:, None], x[:, 6:], fill) if fills else x[:, 6:]


def sanitize_boxes(x, least_side, least_area):
    if x.shape[1] > 3:
        sides = x[:, 2:4].astype(np.float64) - x[:, :2]
        large = (sides.min(axis=1) >= least_side) & (sides.prod(axis=1) >= least_area)
        x[~(large & (x[:, 4] > 0)), :6] = 0


def best_overlap(x, top, tall, left, wide):
    low, high = np.array([left, top]), np.array([left + wide, top + tall])
    boxes = x[x[:, 4] > 0, :4].astype(np.float64)
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    boxes = boxes[np.all((centres > low) & (centres < high), axis=1)]
    if len(boxes) == 0:
        return -1.0
    common = np.prod(np.minimum(boxes[:, 2:], high) - np.maximum(boxes[:, :2], low), axis=1)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    return float(np.max(common / (areas + wide * tall - common)))


def zoom_shares(start, extent, size, result, antialias):
    """Return the share of every pixel of an axis in every pixel of the output; rows of zeros are outside."""
    scale = extent / result
    centres = (np.arange(result) + 0.5) * scale + start
    reach = scale if antialias and scale > 1 else 1.0
    shares = np.maximum(1 - np.abs(np.arange(size) + 0.5 - centres[:, None]) / reach, 0)
    shares[(centres < 0) | (centres >= size)] = 0
    totals = shares.sum(axis=1, keepdims=True)
    return np.divide(shares, totals, out=shares, where=totals > 0)


def zoom_bilinear(x, window, antialias, whole, fill, row_shares, shares, places, counts, line, out):
    rows = zoom_shares(window[0], window[1], x.shape[0], out.shape[0], antialias)
    columns = zoom_shares(window[3], window[4], x.shape[1], out.shape[1], antialias)
    with np.errstate(invalid="ignore"):
        mixed = np.einsum("ih,jw,hwc->ijc", rows, columns, x.astype(np.float64))
    inside = (rows.sum(axis=1) > 0)[:, None] & (columns.sum(axis=1) > 0)
    zoomed = np.where(inside[..., None], mixed, fill)
    out[:] = np.floor(zoomed + 0.5) if whole else zoomed


def zoom_nearest(x, window, fill, places, out):
    """Take the pixel that contains the centre of each pixel of the output."""
    rows, columns = (
        np.floor((np.arange(result) + 0.5) * extent / result + start).astype(int)
        for result, extent, start in zip(out.shape[:2], window[1::3], window[0::3], strict=True)
    )
    out[:] = warp_pixels(x, rows[:, None], columns[None], fill)


def seen(x, values, white):
    """Clip values of pixels to black and white, and round them if they are integers; opacity stays."""
    values = np.clip(values, 0, white)
    if x.dtype.kind in "iu":
        values = np.floor(values + 0.5)
    return np.concatenate([values[..., :3], x[..., 3:]], axis=2) if x.shape[2] == 4 else values


def draw_fog(x, edges, alpha, white, clear, line):
    covers = np.minimum(np.cumsum(edges[:, :-1], axis=1), len(clear) - 1)
    left = (1.0 - alpha) ** covers[..., None]
    x[:] = seen(x, white - (white - x.astype(np.float64)) * left, np.inf)


def draw_rain(x, layer, size, light, brightness, white, sums, totals, line):
    radius = size // 2
    padded = np.pad(layer.astype(np.float64), radius, mode="reflect")
    mean = np.lib.stride_tricks.sliding_window_view(padded, (size, size)).mean(axis=(2, 3))
    lit = np.clip(x.astype(np.float64) + light * mean[..., None], 0, white)
    x[:] = seen(x, lit * brightness, np.inf)


def draw_shadow(x, corners, factor, white, crossings):
    """Multiply pixels whose centre is inside, by the number of sides to their left."""
    rows, columns = np.mgrid[: x.shape[0], : x.shape[1]] + 0.5
    inside = np.zeros(x.shape[:2], bool)
    for (left, top), (right, bottom) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        crosses = (top <= rows) != (bottom <= rows)
        way = np.divide(rows - top, bottom - top, out=np.zeros_like(rows), where=crosses)
        inside ^= crosses & (left + way * (right - left) <= columns)
    x[inside] = seen(x, x.astype(np.float64) * factor, white)[inside]


def moved_keypoints(x, points, height, width):
    across, down = points.T
    x[:, 2] = (x[:, 2] > 0) & (across >= 0) & (across < width) & (down >= 0) & (down < height)
    x[:, :2] = points


def window_points(x, top, tall, upside, left, wide, mirrored, height, width):
    """Map points by a matrix: shift, scale, then mirror."""
    scale = np.array([width / wide, height / tall])
    pairs = x[:, :-1].astype(np.float64).reshape(len(x), -1, 2)
    moved = (pairs - [left, top]) * scale
    moved = np.where([mirrored, upside], [width, height] - moved, moved)
    if x.shape[1] == 3:
        moved_keypoints(x, moved[:, 0], height, width)
    else:
        boxes = np.concatenate([moved.min(axis=1), moved.max(axis=1)], axis=1)
        clipped_boxes(x, boxes, height, width)


def map_points(x, matrix, height, width):
    forward = inverse_matrix(matrix)
    corners = x[:, None, :2] if x.shape[1] == 3 else x[:, [[0, 1], [2, 1], [0, 3], [2, 3]]]
    homogeneous = np.concatenate([corners - 0.5, np.ones((*corners.shape[:2], 1))], axis=2)
    through = homogeneous @ forward.T
    moved = through[..., :2] / through[..., 2:] + 0.5
    if x.shape[1] == 3:
        moved_keypoints(x, moved[:, 0], height, width)
    else:
        boxes = np.concatenate([moved.min(axis=1), moved.max(axis=1)], axis=1)
        clipped_boxes(x, boxes, height, width)


def add_share(x, shares, number, total):
    share = x.astype(np.float32) * shares[number]
    total[:] = share if number == 0 else total + share


def mirrored(places, size):
    """Mirror places outside of a line of this size at the centres of its first and last pixel."""
    return size - 1 - np.abs(size - 1 - np.abs(places) % max(2 * (size - 1), 1))


def blur(x, shares, before, after, line, sums, ring):
    fixed = line.dtype == np.uint16
    values = x.astype(np.int64) << 7 if fixed else x.astype(line.dtype)
    for axis in (1, 0):
        places, size = np.arange(x.shape[axis]), x.shape[axis]
        total = len(shares) // 2 if fixed else line.dtype.type(0)
        for tap, share in enumerate(shares):
            pair = np.take(values, mirrored(places - tap, size), axis)
            pair = pair + np.take(values, mirrored(places + tap, size), axis)
            total = total + (pair * int(share) >> 16 if fixed else pair * share)
        values = total
    if fixed:
        x[...] = (values + 64) >> 7
    else:
        store_values(values.reshape(-1), x.reshape(-1))


def mean_of_runs(x, rows, begins, ends, radius, share, totals, sums):
    height, width, _ = x.shape
    total = np.zeros(x.shape)
    for row, begin, end in zip(rows, begins, ends, strict=True):
        for column in range(begin, end):
            down = mirrored(np.arange(height) + row, height)
            total += x[np.ix_(down, mirrored(np.arange(width) + column, width))]
    store_values((total * share).reshape(-1), x.reshape(-1))


def median_of_square(x, side, ring, starts, block):
    radius = side // 2
    padded = np.pad(x, [(radius, radius), (radius, radius), (0, 0)], mode="edge")
    squares = np.lib.stride_tricks.sliding_window_view(padded, (side, side), axis=(0, 1))
    x[...] = np.median(squares, axis=(3, 4))


def to_planes(x, white, light, blue, red, planes, lines):
    """Write whole planes, by the matrix of JFIF; pixels outside repeat the edge."""
    grow = [(0, light.shape[0] - x.shape[0]), (0, light.shape[1] - x.shape[1]), (0, 0)]
    share = np.pad(x[..., :3], grow, mode="edge").astype(np.float32) * np.float32(255 / white)
    levels = np.floor(np.clip(share, 0, 255) + np.float32(0.5)).astype(np.float64)
    if x.shape[2] < 3:
        light[...] = levels[..., 0] - 128
        return
    light[...] = np.floor(levels @ [0.299, 0.587, 0.114] + 0.5) - 128
    bias = 1 + np.arange(blue.shape[1]) % 2
    for plane, weights in ((blue, [-0.168736, -0.331264, 0.5]), (red, [0.5, -0.418688, -0.081312])):
        chroma = np.floor(levels @ weights + 0.5)
        plane[...] = (chroma.reshape(len(plane), 2, -1, 2).sum(axis=(1, 3)) + bias) // 4


def enlarged(plane, height, width):
    """Return a plane twice as large: three parts of the nearer value and one of the farther one, down and across."""
    small = plane[: (height + 1) // 2, : (width + 1) // 2].astype(np.float64)
    around = np.pad(small, 1, mode="edge")
    rows = np.stack([3 * around[1:-1] + around[:-2], 3 * around[1:-1] + around[2:]], axis=1)
    rows = rows.reshape(-1, around.shape[1])
    before, after = 3 * rows[:, 1:-1] + rows[:, :-2] + 8, 3 * rows[:, 1:-1] + rows[:, 2:] + 7
    both = np.stack([before, after], axis=2).reshape(len(rows), -1)
    return np.floor(both / 16)[:height, :width]


def from_planes(light, blue, red, white, planes, lines, x):
    height, width, channels = x.shape
    level = light[:height, :width].astype(np.float64) + 128
    colours = level[..., None]
    if channels >= 3:
        towards = [enlarged(plane, height, width) for plane in (blue, red)]
        weights = np.array([[0, 1.402], [-0.344136, -0.714136], [1.772, 0]])
        colours = level[..., None] + np.stack(towards, axis=2) @ weights.T
    shares = np.clip(np.floor(colours + 0.5), 0, 255) * (white / 255)
    x[..., :3] = shares if x.dtype.kind == "f" else np.floor(shares + 0.5)


def quantise_blocks(plane, table, cosines, waves, strip, other):
    """Quantise by the transform of SciPy, in float64."""
    for top, left in itertools.product(*(range(0, size, 8) for size in plane.shape)):
        block = plane[top : top + 8, left : left + 8]
        levels = fft.dctn(block.astype(np.float64), norm="ortho") / table
        levels = np.sign(levels) * np.floor(np.abs(levels) + 0.5)
        block[...] = np.clip(np.floor(fft.idctn(levels * table, norm="ortho") + 0.5), -128, 127)


def clipped(values, white, like):
    """Clip to 0 and white, and round half up in the precision of the calculation."""
    inside = np.clip(values, 0, values.dtype.type(white))
    return inside if like.dtype.kind == "f" else np.floor(inside + values.dtype.type(0.5))


def sharpen(x, factor, white, lines, sums):
    if min(x.shape[:2]) < 3:
        return
    precision = np.float32 if np.can_cast(x.dtype, np.float32) else np.float64
    values = x.astype(precision)
    rows = (values[:-2] + values[1:-1]) + values[2:]
    middle = values[1:-1, 1:-1]
    smooth = ((rows[:, :-2] + rows[:, 1:-1]) + rows[:, 2:] + precision(4) * middle) * precision(1 / 13)  # fmt: skip
    if x.dtype.kind != "f":
        smooth = np.floor(smooth + precision(0.5))
    share = precision(factor)
    if x.dtype.kind == "f":
        x[...] = np.clip(values, 0, precision(white))
    x[1:-1, 1:-1] = clipped(middle * share + smooth * (precision(1) - share), white, x)


def tiles_of(shape, curves):
    """Return the size of a tile; both sides of the image become larger if one is not a multiple of its tiles."""
    counts = curves.shape[:2]
    if not any(size % count for size, count in zip(shape, counts, strict=True)):
        return [size // count for size, count in zip(shape, counts, strict=True)]
    return [size // count + 1 for size, count in zip(shape, counts, strict=True)]


def tile_curves(grey, clip, counts, curves):
    tall, wide = tiles_of(grey.shape, curves)
    limit = max(int(clip * tall * wide / 256), 1) if clip > 0 else tall * wide
    for row in range(curves.shape[0]):
        down = mirrored(np.arange(row * tall, (row + 1) * tall), grey.shape[0])
        for column in range(curves.shape[1]):
            across = mirrored(np.arange(column * wide, (column + 1) * wide), grey.shape[1])
            bins = np.bincount(grey[np.ix_(down, across)].reshape(-1), minlength=256)
            above = int(np.maximum(bins - limit, 0).sum())
            bins = np.minimum(bins, limit) + above // 256
            rest = above % 256
            if rest:
                bins[:: max(256 // rest, 1)][:rest] += 1
            scale = np.float32(255) / np.float32(tall * wide)
            levels = np.rint(np.cumsum(bins).astype(np.float32) * scale)
            curves[row, column] = np.minimum(levels, 255)


def tiles_around(size, tile, count):
    place = np.arange(size, dtype=np.float32) * (np.float32(1) / np.float32(tile)) - np.float32(0.5)
    first = np.floor(place)
    low, high = np.maximum(first, 0), np.minimum(first + 1, count - 1)
    return low.astype(int), high.astype(int), place - first


def apply_curves(grey, curves, low, high, weight, out):
    tall, wide = tiles_of(grey.shape, curves)
    up, under, share = (table[:, None] for table in tiles_around(grey.shape[0], tall, curves.shape[0]))  # fmt: skip
    left, right, part = tiles_around(grey.shape[1], wide, curves.shape[1])
    lines = [
        curves[row, left, grey] * (np.float32(1) - part) + curves[row, right, grey] * part
        for row in (up, under)
    ]
    out[...] = np.rint(lines[0] * (np.float32(1) - share) + lines[1] * share)


def hash_index(count, key):
    """Return 32 random bits for every index, with words held in 64 bits."""
    first, second = (np.uint64(int(key) >> shift & (WORD - 1)) for shift in (0, 32))
    word = np.uint64(WORD - 1)
    bits = (np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B9) + first) & word
    bits = (bits ^ bits >> np.uint64(16)) * np.uint64(0x21F0AAAD) & word
    bits ^= second
    bits = (bits ^ bits >> np.uint64(15)) * np.uint64(0xD35A2D97) & word
    return bits ^ bits >> np.uint64(15)


def horner(coefficients, x):
    total = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = coefficient + x * total
    return total


def normal_pairs(bits):
    """Return pairs of normal numbers by Box and Muller's method with the polynomials of the kernel."""
    share = ((bits >> np.uint64(12)).astype(np.float32) + np.float32(0.5)) / np.float32(2**20)
    mantissa, exponent = np.frexp(share)
    # From the square root of a half to that of two.
    small = mantissa.view(np.int32) < noise.ROOT_BITS
    mantissa, exponent = np.where(small, 2 * mantissa, mantissa), exponent - small
    f = mantissa - np.float32(1)
    squared = f * horner(noise.LOGARITHM, f) - exponent.astype(np.float32) * noise.LOG_OF_FOURTH
    radius = np.where(bits & np.uint64(0x800), np.float32(-1), np.float32(1)) * np.sqrt(squared)
    direction = (bits & np.uint64(0x7FF)).astype(np.float32) / np.float32(2**11)
    y = direction + np.float32(2**-12 - 0.5)
    return radius * horner(noise.COSINE, y * y), radius * (y * horner(noise.SINE, y * y))


def add_noise(values, key, mean, deviation, white):
    precision = np.float32 if np.can_cast(values.dtype, np.float32) else np.float64
    half = (len(values) + 1) // 2
    normals = np.concatenate(normal_pairs(hash_index(half, key)))[: len(values)]
    change = precision(mean) + (normals * np.float32(deviation)).astype(precision)
    values[:] = clipped(values.astype(precision) + change, white, values)


def mark_pixels(key, first_limit, limit, out):
    bits = hash_index(len(out), key) >> np.uint64(8)
    out[:] = np.where(bits < first_limit, 1, np.where(bits < limit, 2, 0))


def fill_any(key, start, white, out):
    bits = hash_index(start + len(out), key)[start:]
    if out.dtype.kind == "f":
        out[:] = (bits >> np.uint64(8)).astype(np.float64) / 2**24
    else:
        out[:] = [int(number) * int(white + 1) >> 32 for number in bits]


def fill_shares(key, start, repeats, out):
    bits = hash_index(start + len(out) // repeats, key)[start:]
    out[:] = np.repeat((bits >> np.uint64(8)).astype(np.float64) / 2**24, repeats)


def fill_normals(key, out):
    half = (len(out) + 1) // 2
    out[:] = np.concatenate(normal_pairs(hash_index(half, key)))[: len(out)]


def transform_lanes(lanes, factors, twiddles, real, imag, other, other_imag):
    spectrum = np.fft.fft((real + 1j * imag.astype(np.float64)).reshape(-1, lanes), axis=0)
    real[:], imag[:] = spectrum.real.reshape(-1), spectrum.imag.reshape(-1)
    return False


def design_butterworth(kind, order, low, high, sections):
    name, edges = ("lowpass", "highpass", "bandpass")[kind], [low, high] if kind == 2 else low
    found = signal.butter(order, edges, name, fs=1.0, output="sos")
    sections[:] = found[:, [0, 1, 2, 4, 5]]


def whole_sections(sections):
    """Return sections in SciPy's form."""
    return np.insert(np.atleast_2d(sections), 3, 1.0, axis=1)


def filter_twice(x, first, second, out):
    sections = whole_sections(np.stack([first, second]))
    out[:] = signal.sosfilt(sections, x.astype(np.float64))


def filter_channels(x, sections, nothing):
    x[:] = signal.sosfilt(whole_sections(sections), x.astype(np.float64), axis=0)


def resample_sinc(x, start, pace, fill, table, weights, out):
    length = len(x)
    places = start + (np.arange(len(out)) + 0.5) * pace - 0.5
    distance = (places[:, None] - np.arange(length)) / max(pace, 1)
    height = np.clip(1 - (distance / 10) ** 2, 0, None)
    shares = np.sinc(distance) * np.where(height > 0, np.i0(5 * np.sqrt(height)), 0)
    inside = (places >= -0.5) & (places <= length - 0.5)
    shares = shares[inside] / shares[inside].sum(axis=1, keepdims=True)
    out[:] = fill
    out[inside] = shares @ x.astype(np.float64)


def frames_of(x, start, hop, count, window, mode):
    """Return frames under a window, from `start` on."""
    size = len(window)
    after = max(start + (count - 1) * hop + size - len(x), 0)
    padded = np.pad(x.astype(np.float64), (max(-start, 0), after), mode=mode)
    begins = max(start, 0) + np.arange(count) * hop
    return padded[begins[:, None] + np.arange(size)] * window


def mel_power(
    x, hop, before, squared, window, factors, twiddles, firsts, ends, weights, memory, bins, powers, sums, out
):  # fmt: skip
    frames = frames_of(x, -before, hop, len(out), window, "reflect")
    sizes = np.abs(np.fft.rfft(frames, axis=1)) ** (2 if squared else 1)
    parts = np.split(weights, np.cumsum(ends - firsts))
    for band, (first, end) in enumerate(zip(firsts, ends, strict=True)):
        out[:, band] = sizes[:, first:end] @ parts[band].astype(np.float64)


def stretch(
    x, rate, hop, window, factors, twiddles, memory, bins, spectra, phases, squares, out
):  # fmt: skip
    """Stretch as librosa.phase_vocoder and librosa.istft, from their definitions."""
    size, count = len(window), len(x) // hop + 1
    wide = window.astype(np.float64)
    found = np.fft.rfft(frames_of(x, -(size // 2), hop, count, wide, "constant"), axis=1)
    # As silence, whose phase is 0, and not the phase of a rounding error.
    found[np.abs(found) < 5e-7 * size * np.max(np.abs(x))] = 0
    found = np.pad(found, ((0, 2), (0, 0)))
    turn, frames = np.angle(found[0]), []
    for place in np.arange(0, count, rate):
        low = int(place)
        one, two = found[low], found[low + 1]
        amount = np.abs(one) + (place - low) * (np.abs(two) - np.abs(one))
        frames.append(np.fft.irfft(amount * np.exp(1j * turn), size) * wide)
        turn = turn + np.angle(two) - np.angle(one)
    total, norm = np.zeros((2, len(frames) * hop + size + len(out)))
    for number, frame in enumerate(frames):
        total[number * hop :][:size] += frame
        norm[number * hop :][:size] += wide**2
    result = np.divide(total, norm, out=total, where=norm > np.finfo(np.float32).tiny)
    out[:] = result[size // 2 :][: len(out)]


def convolve(x, response, gain, factors, twiddles, memory):
    x[:] = gain * np.convolve(x.astype(np.float64), response)[: len(x)]


def sortable_keys(x, keys):
    bits = x.view(np.uint32)
    keys[:] = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))


def value_at_rank(keys, rank, counts, found):
    key = np.sort(keys)[rank : rank + 1]
    found.view(np.uint32)[:] = np.where(key >> 31, key ^ np.uint32(1 << 31), ~key)


def warp_coordinates(matrix, shape):
    """Return the source coordinates of the pixels of an image of this shape: rows and columns."""
    a, b, c, d, e, f, g, h, w = np.array(matrix, np.float64)
    i, j = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
    with np.errstate(all="ignore"):
        inverse = 1 / (g * j + (h * i + w))
        return (d * j + (e * i + f)) * inverse, (a * j + (b * i + c)) * inverse


def warp_inside(places, size, mode):
    """Mirror coordinates at the first and last pixel (1), clamp them (2), or leave them unchanged (0)."""
    last = size - 1
    if mode == 1 and size > 1:
        with np.errstate(invalid="ignore"):
            places = np.abs(places)
            places = places - 2 * last * np.floor(places / (2 * last))
            places = np.where(places > last, 2 * last - places, places)
    return np.clip(np.nan_to_num(places, nan=0), 0, last) if mode else places


def warp_pixels(x, rows, columns, fill):
    """Return pixels at whole coordinates, and the fill colour at those outside."""
    inside = (rows >= 0) & (rows < x.shape[0]) & (columns >= 0) & (columns < x.shape[1])
    found = x[np.where(inside, rows, 0).astype(int), np.where(inside, columns, 0).astype(int)]
    return np.where(inside[..., None], found, np.array(fill, x.dtype))


def warp_nearest(x, matrix, mode, fill, lines, places, out):
    rows, columns = (np.floor(part + 0.5) for part in warp_coordinates(matrix, out.shape))
    rows, columns = warp_inside(rows, x.shape[0], mode), warp_inside(columns, x.shape[1], mode)
    out[...] = warp_pixels(x, rows, columns, fill)


def mixed_pixels(x, rows, columns, fill):
    """Interpolate between pixels, rounded if they are integers."""
    precision = np.float32 if np.can_cast(x.dtype, np.float32) else np.float64
    with np.errstate(invalid="ignore"):
        top, left = np.floor(rows), np.floor(columns)
        down, across = (
            np.nan_to_num(share, nan=0).astype(precision)[..., None]
            for share in (rows - top, columns - left)
        )
    one, two, three, four = (
        warp_pixels(x, top + i, left + j, fill).astype(precision) for i in (0, 1) for j in (0, 1)
    )
    near, far = one * (1 - down) + three * down, two * (1 - down) + four * down
    values = near * (1 - across) + far * across
    return values if x.dtype.kind == "f" else np.floor(values + precision(0.5))


def warp_bilinear(x, matrix, mode, fill, lines, places, shares, out):
    rows, columns = warp_coordinates(matrix, out.shape)
    rows, columns = warp_inside(rows, x.shape[0], mode), warp_inside(columns, x.shape[1], mode)
    store_values(mixed_pixels(x, rows, columns, fill).reshape(-1), out.reshape(-1))


def call_compiled(address, *given):
    """Call a pass as Numba's own code does; return the status of the call, and the result."""
    if config.DISABLE_JIT:
        x, out, parameters, scratch, key, *rest = given
        key = int(key) % DOUBLE_WORD
        status = passes.call_pass(int(address), False, x, out, parameters, scratch, key, *rest)
        return int(status == passes.RAISED), status
    status, raised = ctypes.c_int64(0), ctypes.c_void_p(0)
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 7)
    given = [ctypes.c_int64(int(number)) for number in given]
    return kind(int(address))(ctypes.byref(status), ctypes.byref(raised), *given), status.value


def turned(key, held, turns):
    """Fold the counters of loops into a key."""
    key %= 1 << 64
    for turn in range(turns):
        key = fold(key, held[samples.TURNS + turn])
    return key


def run_samples(
    table, instructions, registers, count, positions, addresses, lengths, boxes, fetcher, worker, fetched, memory,
    pitch, progress, raises, out,
):  # fmt: skip
    rows = words_at(table, instructions * samples.WIDTH).reshape(-1, samples.WIDTH)
    held = words_at(memory - 8 * count, count)[::-1]
    first = words_at(registers, count)
    held[:] = np.where(first == samples.UNSET, 0, memory + first)
    assert fetcher == 0
    for i in range(len(addresses)):
        held[samples.ROW], held[samples.TARGET] = addresses[i], out.ctypes.data + i * pitch
        held[samples.BOXES_ROW] = boxes[i] if len(boxes) else 0
        at = 0
        while at < instructions:
            kind, *given = (int(word) for word in rows[at])
            progress[0], at = i, at + 1

            if kind == samples.CALL:
                progress[1] = at - 1
                function, x, target, block, sizes, own, turns, draws = given
                state = fold(turned(own, held, turns), positions[i]) if draws else 0
                length = lengths[i] if len(lengths) else samples.ANY_LENGTH
                failed, status = call_compiled(
                    function, held[x], held[target], block, memory, np.uint64(state).astype(np.int64), sizes, length
                )  # fmt: skip
                if failed or status:
                    progress[3] = passes.RAISED if failed else status
                    return
            elif kind in (samples.COPY, samples.COPY_IF_APART):
                ctypes.memmove(int(held[given[1]]), int(held[given[0]]), given[2])
            elif kind == samples.START:
                state = fold(turned(given[1], held, given[2]), positions[i])
                held[given[0]] = np.uint64(state).astype(np.int64)
            elif kind == samples.PICK:
                rng = Draws(int(held[given[0]]) % DOUBLE_WORD)
                shares = words_at(given[1], given[2]).view(np.float64)
                branch = min(int(np.searchsorted(shares, rng.random(), "right")), given[2] - 1)
                held[given[0]] = rng.state.astype(np.int64)
                at = int(words_at(given[3], given[2])[branch])
            elif kind == samples.JUMP:
                at = given[0]
            elif kind == samples.MOVE:
                held[given[0]] = held[given[1]]
            elif kind == samples.SWAP:
                held[[given[0], given[1]]] = held[[given[1], given[0]]]
            elif kind == samples.SET:
                held[given[0]] = given[1]
            elif kind == samples.WHILE:
                at = given[2] if held[given[0]] >= held[given[1]] else at
            elif kind == samples.NEXT:
                held[given[0]] += 1
                at = given[1]
            elif kind == samples.FILL:
                ctypes.memset(int(held[given[0]]), int(progress[2]), given[1])


def run_parts(
    parts, table, instructions, registers, count, positions, addresses, lengths, boxes, fetcher, workers, fetched,
    memory, memory_pitch, pitch, progress, out,
):  # fmt: skip
    for part, (begin, end) in enumerate(itertools.pairwise(parts)):
        run_samples(
            table, instructions, registers, count, positions[begin:end], addresses[begin:end], lengths[begin:end],
            boxes[begin:end], fetcher, workers[part], fetched, memory + part * memory_pitch, pitch, progress[part],
            False, out[begin * pitch : end * pitch],
        )  # fmt: skip


def crc32c(data):
    """Checksum of bytes, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in bytes(data):
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


def snappy(stream):
    """Unpacked bytes of a Snappy stream, element by element."""
    place = 1
    while stream[place - 1] > 127:
        place += 1
    out = bytearray()
    while place < len(stream):
        tag = stream[place]
        place += 1
        if tag & 3 == 0:
            width = max(0, (tag >> 2) - 59)
            length = (
                int.from_bytes(stream[place : place + width], "little") if width else tag >> 2
            ) + 1
            place += width
            if place + length > len(stream):
                raise ValueError
            out += stream[place : place + length]
            place += length
            continue
        width = {1: 1, 2: 2, 3: 4}[tag & 3]
        if place + width > len(stream):
            raise ValueError
        offset = int.from_bytes(stream[place : place + width], "little")
        place += width
        length = (tag >> 2) + 1
        if tag & 3 == 1:
            length, offset = (tag >> 2 & 7) + 4, offset | tag >> 5 << 8
        if not 0 < offset <= len(out):
            raise ValueError
        for _ in range(length):
            out.append(out[-offset])
    return bytes(out)


def snappy_blocks(data, begin, size, least, unpacked, packed):
    """Write where the blocks of an undamaged Snappy stream begin and end; return their number."""
    places, position, after = [], 0, 0
    place, stream = begin, data.tobytes()
    while place < len(stream):
        if position >= after:
            places.append((position, place))
            after = position + least
        tag, reach = stream[place], position
        width = max(0, (tag >> 2) - 59) if tag & 3 == 0 else (0, 1, 2, 4)[tag & 3]
        number = int.from_bytes(stream[place + 1 : place + 1 + width], "little")
        place += 1 + width
        length = (tag >> 2) + 1
        if tag & 3 == 0:
            length = number + 1 if width else length
            place += length
        elif tag & 3 == 1:
            length, reach = (tag >> 2 & 7) + 4, position - (number | tag >> 5 << 8)
        else:
            reach = position - number
        alone = [block for block in places if block[0] <= reach]
        if alone != places:
            places, after = alone, position
        position += length
    places.append((position, place))
    unpacked[: len(places)], packed[: len(places)] = np.array(places).T
    return len(places) - 1
