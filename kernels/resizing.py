"""Resizing: a window whose pixels are mixed by a filter, in one pass with other windows and the scaling after them.

A filter lists the input pixels that have a share in every coordinate of the result: `counts` is their number, `places`
their places, `shares` their shares. The latter two are flat, with equal room for every coordinate. Tables of later
windows (see `windows.py`) are coordinates of the result. The filters are those of Pillow: wider where the image
shrinks, so that every pixel counts.
"""

import math
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import overload

from .compilation import jitable, kernel
from .pixels import precise, stored
from .vectors import PAIRED_TAPS, filter_pixel, mix_pair_of_2, mix_pair_of_3, mix_pair_of_4

BILINEAR, BICUBIC, LANCZOS = 0, 1, 2
# The radius of a filter, in pixels of the larger image.
REACHES = (1, 2, 3)
# Values of a row are mixed in blocks of this size if the row has room for it. The remainder of a block goes one by one,
# which takes as long as several blocks.
BLOCK = 32


def most_taps(kind: int, antialias: bool, size: int, result: int) -> int:
    """Return the largest number of `size` pixels that have a share in one of `result` pixels."""
    if kind == BILINEAR and (not antialias or size <= result):
        return 2
    wider = max(size / result, 1.0) if antialias else 1.0
    return 2 * math.ceil(REACHES[kind] * wider) + 1


@kernel
def filter_share(kind: Any, distance: Any) -> Any:
    """Return the share of a pixel at a distance, before all shares are divided by their sum."""
    distance = abs(distance)
    if kind == BILINEAR:
        return max(1.0 - distance, 0.0)
    if kind == BICUBIC:
        # Keys' cubic with a = -0.5.
        if distance < 1.0:
            return (1.5 * distance - 2.5) * distance * distance + 1.0
        if distance < 2.0:
            return -0.5 * (((distance - 5.0) * distance + 8.0) * distance - 4.0)
        return 0.0
    if distance == 0.0:
        return 1.0
    # The sine of a multiple of pi is not quite 0, and infinity times that would spread.
    if distance >= 3.0 or distance == np.floor(distance):
        return 0.0
    angle = math.pi * distance
    return math.sin(angle) / angle * (math.sin(angle / 3.0) / (angle / 3.0))


@kernel
def compose_filter(
    before: Any, start: Any, extent: Any, flipped: Any, kind: Any, antialias: Any, shares: Any, places: Any, counts: Any
) -> None:  # fmt: skip
    """Compute the filter of a window scaled to another size, centres at halves, on top of a table of whole pixels.

    Pixels without a share are left out: infinity times 0 would be NaN.
    """
    size = counts.shape[0]
    taps = places.shape[0] // size
    scale = extent / size
    wider = scale if antialias and scale > 1.0 else 1.0
    reach = 1.0
    if kind == BICUBIC:
        reach = 2.0
    elif kind == LANCZOS:
        reach = 3.0
    reach, narrower = reach * wider, 1.0 / wider
    for i in range(size):
        centre = (np.float64(size - 1 - i if flipped else i) + 0.5) * scale
        begin = i * taps
        if kind == BILINEAR and wider == 1.0:
            # Two neighbours, whose shares need no division.
            place = min(max(centre - 0.5, 0.0), np.float64(extent - 1))
            first = int(place)
            shares[begin] = place - first
            far = shares[begin]
            if 0 < far < 1:
                places[begin], places[begin + 1] = before[start + first], before[start + first + 1]
                shares[begin], shares[begin + 1] = 1 - far, far
                counts[i] = 2
            else:
                # In 32 bits a share can round to 1.
                places[begin] = before[start + (first + 1 if far > 0 else first)]
                shares[begin] = 1
                counts[i] = 1
            continue
        first = max(int(centre - reach + 0.5), 0)
        stop = min(int(centre + reach + 0.5), extent)
        total, count = 0.0, 0
        for place in range(first, stop):
            share = filter_share(kind, (place - centre + 0.5) * narrower)
            if share != 0.0:
                shares[begin + count] = share
                places[begin + count] = before[start + place]
                total += share
                count += 1
        for k in range(begin, begin + count):
            shares[k] = shares[k] / total
        counts[i] = count


@jitable
def filter_tables(
    window: Any, kind: Any, antialias: Any, rows: Any, columns: Any, new_rows: Any, new_columns: Any,
    row_shares: Any, row_places: Any, row_counts: Any, column_shares: Any, column_places: Any, column_counts: Any,
) -> None:  # fmt: skip
    """Compute the filters of a drawn window that is scaled by mixing pixels, on top of tables of whole pixels.

    The new tables are the identity of the result; windows that follow continue with them.
    """
    compose_filter(
        rows, window[0], window[1], window[2] != 0, kind, antialias,
        row_shares, row_places, row_counts,
    )  # fmt: skip
    compose_filter(
        columns, window[3], window[4], window[5] != 0, kind, antialias,
        column_shares, column_places, column_counts,
    )  # fmt: skip
    for i in range(new_rows.shape[0]):
        new_rows[i] = i
    for j in range(new_columns.shape[0]):
        new_columns[j] = j


@jitable
def reached(table: Any, places: Any, counts: Any) -> Any:
    """Return the pixels (first, stop) that a filter reaches, its largest count, and whether nothing is filled."""
    taps = places.shape[0] // counts.shape[0]
    first, stop, most, inside = 2147483647, 0, 0, True
    for j in range(table.shape[0]):
        if table[j] < 0:
            inside = False
            continue
        begin = table[j] * taps
        for k in range(begin, begin + counts[table[j]]):
            first = min(first, places[k])
            stop = max(stop, places[k] + 1)
        most = max(most, counts[table[j]])
    return min(first, stop), stop, most, inside


@jitable
def whole_blocks(start: Any, size: Any, row: Any) -> Any:
    """Return a stretch (start, size) of a row of values, extended to whole blocks if there is room."""
    blocks = (size + BLOCK - 1) // BLOCK * BLOCK
    if blocks > row:
        return start, size
    return min(start, row - blocks), blocks


@jitable
def mix_rows(
    x: Any, places: Any, shares: Any, begin: Any, count: Any, start: Any, size: Any, out: Any
) -> None:
    """Mix values from `start` of some rows of x, (rows, values), by their shares; up to four rows at a time."""
    mixed = out[start : start + size]
    one = x[places[begin]][start : start + size]
    if count == 1:
        for k in range(size):
            mixed[k] = precise(one[k], x)
        return
    first, second = shares[begin], shares[begin + 1]
    two = x[places[begin + 1]][start : start + size]
    if count == 2:
        for k in range(size):
            mixed[k] = precise(one[k], x) * first + precise(two[k], x) * second
        return
    third = shares[begin + 2]
    three = x[places[begin + 2]][start : start + size]
    done = 3
    if count == 3:
        for k in range(size):
            value = precise(one[k], x) * first + precise(two[k], x) * second
            mixed[k] = value + precise(three[k], x) * third
    else:
        done, fourth = 4, shares[begin + 3]
        four = x[places[begin + 3]][start : start + size]
        for k in range(size):
            value = precise(one[k], x) * first + precise(two[k], x) * second
            value = value + precise(three[k], x) * third
            mixed[k] = value + precise(four[k], x) * fourth
    for tap in range(begin + done, begin + count - 1, 2):
        first, second = shares[tap], shares[tap + 1]
        one = x[places[tap]][start : start + size]
        two = x[places[tap + 1]][start : start + size]
        for k in range(size):
            mixed[k] = (mixed[k] + precise(one[k], x) * first) + precise(two[k], x) * second
    if count > done and (count - done) % 2 == 1:
        first = shares[begin + count - 1]
        one = x[places[begin + count - 1]][start : start + size]
        for k in range(size):
            mixed[k] = mixed[k] + precise(one[k], x) * first


@jitable
def mix_columns(
    line: Any, columns: Any, start: Any, shares: Any, places: Any, counts: Any, channels: Any, made: Any
) -> None:  # fmt: skip
    """Mix pixels of a line by their shares into another line, in order.

    Values of a pixel beyond its channels are overwritten by the next pixel.
    """
    taps = places.shape[0] // counts.shape[0]
    for j in range(start, columns.shape[0]):
        entry = columns[j]
        if entry >= 0:
            for c in range(0, channels, 4):
                filter_pixel(
                    line, places, shares, entry * taps, counts[entry], channels, c, made, j * channels + c
                )  # fmt: skip


def whole_stored(value: Any, scale: Any, bias: Any, like: Any) -> Any:
    """Return a whole number clipped to its limits, times scale plus bias, in the dtype of the array `like`."""
    return stored(value * scale + bias, like)


@overload(whole_stored)
def _whole_stored(value, scale, bias, like):
    dtype = like.dtype
    if isinstance(dtype, types.Integer) and dtype.maxval < 1 << 16:
        # Only floats are scaled.
        return lambda value, scale, bias, like: dtype(np.int32(value))
    return lambda value, scale, bias, like: stored(value * scale + bias, like)


@jitable
def finish_row(
    made: Any, columns: Any, fill: Any, scale: Any, bias: Any, whole: Any, limits: Any, inside: Any, channels: Any,
    target: Any,
) -> None:  # fmt: skip
    """Write a line to a row of the output: rounded and clipped if `whole`, times scale plus bias.

    Places of the fill colour are filled.
    """
    for j in range(0 if inside else columns.shape[0]):
        if columns[j] < 0:
            for c in range(channels):
                made[j * channels + c] = precise(fill[c], fill)
    if whole:
        low, high = limits
        half = precise(0.5, made)
        for k in range(target.shape[0]):
            value = min(max(np.floor(made[k] + half), low), high)
            target[k] = whole_stored(value, scale[k], bias[k], target)
    else:
        for k in range(target.shape[0]):
            target[k] = stored(made[k] * scale[k] + bias[k], target)


@jitable
def fill_row(fill: Any, scale: Any, bias: Any, out: Any, i: Any) -> None:
    """Fill row i of the output with the fill colour."""
    for j in range(out.shape[1]):
        for c in range(out.shape[2]):
            out[i, j, c] = stored(precise(fill[c], fill) * scale[c] + bias[c], out)


def mixed_row(row: Any, made: Any) -> Any:
    """Return a row of the output if pairs of pixels can be stored in it, otherwise another line."""
    return row if row.dtype in (np.float32, np.uint8) else made


@overload(mixed_row)
def _mixed_row(row, made):
    if row.dtype in (types.float32, types.uint8):
        return lambda row, made: row
    return lambda row, made: made


def store_mixed(made: Any, row: Any) -> None:
    """Copy a line to a row of the output, unless it is the same memory."""
    if row.dtype not in (np.float32, np.uint8):
        for k in range(row.shape[0]):
            row[k] = stored(made[k], row)


@overload(store_mixed)
def _store_mixed(made, row):
    if row.dtype in (types.float32, types.uint8):
        return lambda made, row: None

    def store_row(made, row):
        for k in range(row.shape[0]):
            row[k] = stored(made[k], row)

    return store_row


@jitable
def fill_columns(
    columns: Any, begin: Any, end: Any, fill: Any, scale: Any, bias: Any, target: Any, channels: Any
) -> None:
    """Fill those columns in a part of a row that have no pixels with the fill colour."""
    for j in range(begin, end):
        if columns[j] < 0:
            for c in range(channels):
                place = j * channels + c
                target[place] = stored(np.float32(fill[c]) * scale[c] + bias[c], target)


@jitable
def copy_part(rows: Any, row: Any, other: Any, begin: Any, end: Any) -> None:
    """Copy a part of the values of a row to another row."""
    source, target = rows[row, begin:end], rows[other, begin:end]
    for k in range(source.shape[0]):
        target[k] = source[k]


@jitable
def empty_ends(columns: Any) -> Any:
    """Return the number of columns at the beginning that have no pixels, and the first of those at the end."""
    first, stop = 0, columns.shape[0]
    while first < stop and columns[first] < 0:
        first += 1
    while stop > first and columns[stop - 1] < 0:
        stop -= 1
    return first, stop


@jitable
def pair_columns(
    columns: Any, shares: Any, places: Any, counts: Any, channels: Any, taps: Any, nothing: Any,
    pair_places: Any, pair_shares: Any,
) -> None:  # fmt: skip
    """Write the filters of two neighbouring columns next to each other, as `mix_pair_of_...` reads them.

    All have the same number of taps. The missing taps of a column are zeros at `nothing`, because the pixels next to it
    can be infinite.
    """
    room = places.shape[0] // counts.shape[0]
    for j in range(columns.shape[0] // 2 * 2):
        entry = columns[j]
        count = counts[entry] if entry >= 0 else 0
        for tap in range(taps):
            place, share = nothing, np.float32(0)
            if tap < count:
                place = places[entry * room + tap] * channels
                share = shares[entry * room + tap]
            to = (j // 2 * taps + tap) * 2 + j % 2
            pair_places[to] = place
            for lane in range(4 * to, 4 * to + 4):
                pair_shares[lane] = share


@jitable
def mix_pairs(
    line: Any, places: Any, shares: Any, taps: Any, pairs: Any, channels: Any, scale: Any, bias: Any, whole: Any,
    out: Any,
) -> None:  # fmt: skip
    """Mix pixels of a line by their shares, two at a time, rounded if `whole`, times scale plus bias."""
    if taps == 2:
        for pair in range(pairs):
            mix_pair_of_2(line, places, shares, pair, scale, bias, whole, out, channels)
    elif taps == 3:
        for pair in range(pairs):
            mix_pair_of_3(line, places, shares, pair, scale, bias, whole, out, channels)
    else:
        for pair in range(pairs):
            mix_pair_of_4(line, places, shares, pair, scale, bias, whole, out, channels)


def mix_line(
    line: Any, columns: Any, shares: Any, places: Any, counts: Any, channels: Any, paired: Any, taps: Any,
    pair_places: Any, pair_shares: Any, made: Any,
) -> None:  # fmt: skip
    """Mix pixels of a line by their shares into another line: two at a time if they are `paired` and of 32 bits."""
    mix_columns(line, columns, 0, shares, places, counts, channels, made)


@overload(mix_line)
def _mix_line(
    line, columns, shares, places, counts, channels, paired, taps, pair_places, pair_shares, made
):
    if line.dtype != types.float32:

        def mix_single(
            line, columns, shares, places, counts, channels, paired, taps, pair_places, pair_shares, made
        ):  # fmt: skip
            mix_columns(line, columns, 0, shares, places, counts, channels, made)

        return mix_single

    def mix(
        line, columns, shares, places, counts, channels, paired, taps, pair_places, pair_shares, made
    ):  # fmt: skip
        pairs = columns.shape[0] // 2 if paired else 0
        mix_pairs(line, pair_places, pair_shares, taps, pairs, channels, None, None, False, made)
        mix_columns(line, columns, 2 * pairs, shares, places, counts, channels, made)

    return mix


@kernel
def resize_window(
    x: Any, rows: Any, columns: Any, row_shares: Any, row_places: Any, row_counts: Any, column_shares: Any,
    column_places: Any, column_counts: Any, fill: Any, scale: Any, bias: Any, whole: Any, limits: Any, line: Any,
    made: Any, pair_places: Any, pair_shares: Any, out: Any,
) -> None:  # fmt: skip
    """Mix pixels of x by their shares, rounded if `whole`, times scale plus bias; all in 32 bits.

    Rows are mixed first, into `line`, which stays in the nearest cache, then the pixels of that line. `line` has room
    for four floats more than a row of x, and `made` for four more than a row of the output, because four channels are
    read and written for any number of channels. `pair_places` and `pair_shares` have room for the filters of all pairs
    of columns with PAIRED_TAPS taps; few images shrink so much that there are more. Filters that overshoot give no
    whole numbers here, so these need no clipping.
    """
    height, width, channels = out.shape
    # Rows of values. To reshape every row by itself takes 20 ns.
    values, targets = (
        x.reshape(x.shape[0], x.shape[1] * channels),
        out.reshape(height, width * channels),
    )
    left, right, most, inside = reached(columns, column_places, column_counts)
    start, size = whole_blocks(left * channels, (right - left) * channels, x.shape[1] * channels)
    across = column_places.shape[0] // column_counts.shape[0]
    down = row_places.shape[0] // row_counts.shape[0]
    nothing = line.shape[0] - 4
    for k in range(nothing, line.shape[0]):
        line[k] = np.float32(0)
    paired = most <= PAIRED_TAPS and 3 <= channels <= 4
    taps = max(most, 2)
    # The last pixel of a row is written channel by channel: its fourth float may belong to another sample.
    pairs = (width - 1) // 2
    if paired:
        pair_columns(
            columns, column_shares, column_places, column_counts, channels, taps, nothing, pair_places, pair_shares
        )  # fmt: skip
    first, stop = empty_ends(columns)
    holes = False
    for j in range(first, stop):
        holes = holes or columns[j] < 0
    # Rows of the output whose ends, or which, have the fill colour: copying it is ten times as fast.
    filled, empty = -1, -1
    for i in range(height):
        entry = rows[i]
        if entry < 0:
            if empty < 0:
                fill_row(fill, scale, bias, out, i)
                empty = i
            else:
                copy_part(targets, empty, i, 0, width * channels)
            continue
        mix_rows(values, row_places, row_shares, entry * down, row_counts[entry], start, size, line)
        if not paired:
            mix_columns(
                line, columns, 0, column_shares, column_places, column_counts, channels, made
            )
            finish_row(
                made, columns, fill, scale, bias, whole, limits, inside, channels, targets[i]
            )
            continue
        target = mixed_row(targets[i], made)
        mix_pairs(line, pair_places, pair_shares, taps, pairs, channels, scale, bias, whole, target)
        for j in range(2 * pairs, width):
            # Rows of the fill colour have none.
            entry = max(columns[j], 0)
            begin, count = entry * across, column_counts[entry] if columns[j] >= 0 else 0
            for c in range(channels):
                value = np.float32(0)
                for tap in range(begin, begin + count):
                    value += line[column_places[tap] * channels + c] * column_shares[tap]
                if whole:
                    value = np.floor(value + np.float32(0.5))
                target[j * channels + c] = stored(value * scale[c] + bias[c], target)
        if not inside:
            if filled < 0:
                fill_columns(columns, 0, first, fill, scale, bias, target, channels)
                fill_columns(columns, stop, width, fill, scale, bias, target, channels)
            if holes:
                fill_columns(columns, first, stop, fill, scale, bias, target, channels)
        store_mixed(made, targets[i])
        if not inside:
            if filled >= 0:
                copy_part(targets, filled, i, 0, first * channels)
                copy_part(targets, filled, i, stop * channels, width * channels)
            filled = i


@jitable
def rows_first(window: Any, height: Any, width: Any) -> Any:
    """Tell whether rows are mixed before columns, as Pillow 13 decides: if the height shrinks by much more."""
    return window[1] > height and window[1] - height > 2 * (window[4] - width)


@kernel
def resize_exactly(
    x: Any, rows: Any, columns: Any, row_shares: Any, row_places: Any, row_counts: Any, column_shares: Any,
    column_places: Any, column_counts: Any, fill: Any, scale: Any, bias: Any, whole: Any, limits: Any, line: Any,
    made: Any, held: Any, pair_places: Any, pair_shares: Any, window: Any, out: Any,
) -> None:  # fmt: skip
    """Resize as `resize_window`, in as many bits as x needs, with rows and columns in the order of Pillow.

    Whole numbers are clipped in between, as Pillow does; without it, filters that overshoot give other pixels. `held`
    has room for every row of x, as long as `made`; `window` is the drawn window.
    """
    height, width, channels = out.shape
    values, targets = (
        x.reshape(x.shape[0], x.shape[1] * channels),
        out.reshape(height, width * channels),
    )
    left, right, most, inside = reached(columns, column_places, column_counts)
    nothing = line.shape[0] - 4
    for k in range(nothing, line.shape[0]):
        line[k] = 0
    paired = most <= PAIRED_TAPS and 3 <= channels <= 4
    taps = max(most, 2)
    if paired:
        pair_columns(
            columns, column_shares, column_places, column_counts, channels, taps, nothing, pair_places, pair_shares
        )  # fmt: skip
    top, bottom, _, _ = reached(rows, row_places, row_counts)
    start, size = left * channels, (right - left) * channels
    down = row_places.shape[0] // row_counts.shape[0]
    before = rows_first(window, row_counts.shape[0], column_counts.shape[0])
    part = line[start : start + size]
    if not before:
        for y in range(top, bottom):
            source = values[y, start : start + size]
            for k in range(size):
                part[k] = precise(source[k], x)
            row = held[y]
            mix_line(
                line, columns, column_shares, column_places, column_counts, channels, paired, taps, pair_places,
                pair_shares, row,
            )  # fmt: skip
            if whole:
                clip_values(row, limits)
    for i in range(height):
        entry = rows[i]
        if entry < 0:
            fill_row(fill, scale, bias, out, i)
            continue
        begin, count = entry * down, row_counts[entry]
        if before:
            mix_rows(values, row_places, row_shares, begin, count, start, size, line)
            if whole:
                clip_values(part, limits)
            mix_line(
                line, columns, column_shares, column_places, column_counts, channels, paired, taps, pair_places,
                pair_shares, made,
            )  # fmt: skip
        else:
            mix_rows(held, row_places, row_shares, begin, count, 0, made.shape[0], made)
        finish_row(made, columns, fill, scale, bias, whole, limits, inside, channels, targets[i])


@jitable
def clip_values(values: Any, limits: Any) -> None:
    """Clip values to limits, in place."""
    low, high = limits
    for k in range(values.shape[0]):
        values[k] = min(max(values[k], low), high)
