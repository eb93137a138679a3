"""Crop, pad, flip and resize as one pass: every such op is a window onto its input, and windows compose.

An op says which window of its input becomes its output: (top, height, flipped, left, width, flipped). Per axis this
gives a table from output coordinate to input coordinate, and the table of a chain of ops is the composition of theirs.
So a chain of any length reads each source pixel once and writes each output pixel once, whatever it does in between,
and the values are those of doing one op after the other.

Coordinates below 0 stand for the fill colour.

A window that is scaled by mixing pixels has a filter: for every coordinate of the result the input pixels that have a
share in it. `counts` says how many they are, `places` where, `shares` how much; the latter two are flat, with equal
room for every coordinate. Tables of later windows are then coordinates of that result. The filters are those of Pillow:
wider where the image shrinks, so that no pixel is left out.
"""

import math
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import overload

from .compilation import jitable, kernel
from .memory import store_word
from .pixels import precise, stored
from .vectors import (
    MIRRORED,
    blend_pixel,
    filter_pixel,
    mirror_fours,
    mirror_ones,
    mirror_threes,
    scale_pixel,
)

FILL, REFLECT, EDGE = 0, 1, 2
BILINEAR, BICUBIC, LANCZOS = 0, 1, 2
# How far a filter reaches on either side, in pixels of the larger image.
REACHES = (1, 2, 3)


def most_taps(kind: int, antialias: bool, size: int, result: int) -> int:
    """Return how many of `size` pixels have a share in one of `result` pixels at most."""
    if kind == BILINEAR and (not antialias or size <= result):
        return 2
    wider = max(size / result, 1.0) if antialias else 1.0
    return 2 * math.ceil(REACHES[kind] * wider) + 1


@jitable
def store_window(window: Any, address: Any) -> None:
    """A window at an address."""
    top, tall, upside, left, wide, mirrored = window
    store_word(address, top)
    store_word(address + 8, tall)
    store_word(address + 16, upside)
    store_word(address + 24, left)
    store_word(address + 32, wide)
    store_word(address + 40, mirrored)


@kernel
def border(coordinate: Any, size: Any, mode: Any) -> Any:
    """A coordinate that may lie outside, brought inside by mirroring or clamping, or -1 for the fill colour."""
    if 0 <= coordinate < size:
        return coordinate
    if mode == EDGE:
        return 0 if coordinate < 0 else size - 1
    if mode == REFLECT and size > 1:
        period = 2 * (size - 1)
        coordinate = abs(coordinate)
        if coordinate >= period:  # seldom, and a division takes longer than all the rest
            coordinate %= period
        return period - coordinate if coordinate >= size else coordinate
    return 0 if mode == REFLECT else -1


@kernel
def compose(before: Any, start: Any, extent: Any, flipped: Any, mode: Any, low: Any) -> None:
    """The table of a window, on top of a table of whole pixels."""
    for i in range(low.shape[0]):
        place = border(start + (extent - 1 - i if flipped else i), before.shape[0], mode)
        low[i] = before[place] if place >= 0 else -1


@kernel
def compose_nearest(before: Any, start: Any, extent: Any, flipped: Any, low: Any) -> None:
    """The table of a window scaled to another size without mixing pixels, on top of a table of whole pixels."""
    size = low.shape[0]
    for i in range(size):
        # In whole numbers: (i + 0.5) * extent / size, rounded down.
        place = (2 * (size - 1 - i if flipped else i) + 1) * extent // (2 * size)
        low[i] = before[start + place]


@kernel
def filter_share(kind: Any, distance: Any) -> Any:
    """The share of a pixel at a distance, before all shares are divided by their sum."""
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
    """The filter of a window scaled to another size, pixel centres at halves, on top of a table of whole pixels.

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
                # Of 32 bits a share may have become 1.
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
def move_tables(
    window: Any, mode: Any, rows: Any, columns: Any, new_rows: Any, new_columns: Any
) -> None:
    """The tables of a drawn window, on top of tables of whole pixels."""
    compose(rows, window[0], window[1], window[2] != 0, mode, new_rows)
    compose(columns, window[3], window[4], window[5] != 0, mode, new_columns)


@jitable
def shrink_tables(window: Any, rows: Any, columns: Any, new_rows: Any, new_columns: Any) -> None:
    """The tables of a drawn window that is scaled without mixing pixels, on top of tables of whole pixels."""
    compose_nearest(rows, window[0], window[1], window[2] != 0, new_rows)
    compose_nearest(columns, window[3], window[4], window[5] != 0, new_columns)


@jitable
def filter_tables(
    window: Any, kind: Any, antialias: Any, rows: Any, columns: Any, new_rows: Any, new_columns: Any,
    row_shares: Any, row_places: Any, row_counts: Any, column_shares: Any, column_places: Any, column_counts: Any,
) -> None:  # fmt: skip
    """The filters of a drawn window that is scaled by mixing pixels, on top of tables of whole pixels.

    The new tables show the result as it is; windows that follow continue with them.
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


@kernel
def walk(table: Any) -> Any:
    """The longest stretch (first, stop) of a table that walks through neighbouring pixels, and its direction.

    That is 1 to the right and -1 to the left.
    """
    first, stop, step = 0, 0, 1
    begin, direction = 0, 0
    for i in range(1, table.shape[0] + 1):
        change = 0
        if i < table.shape[0] and table[i] >= 0 and table[i - 1] >= 0:
            change = table[i] - table[i - 1]
        if abs(change) == 1 and (direction == 0 or direction == change):
            direction = change
            continue
        if table[begin] >= 0 and i - begin > stop - first:
            first, stop, step = begin, i, direction if direction != 0 else 1
        # Where it turns, the pixel at the turn begins the way back.
        begin, direction = (i - 1, change) if abs(change) == 1 else (i, 0)
    return first, stop, step


@kernel
def copy_window(x: Any, rows: Any, columns: Any, fill: Any, out: Any) -> None:
    """Pixels of x at the tables' coordinates; `fill` is a row of the output in the fill colour."""
    width, channels = out.shape[1], out.shape[2]
    first, stop, step = walk(columns)
    filled = width - (stop - first)
    for j in range(width):
        if (j < first or j >= stop) and columns[j] >= 0:
            filled = 0
    begin, end = first, stop
    if step < 0:
        # What is mirrored goes in whole blocks of pixels; what is left of them goes one by one.
        known = channels == 1 or channels == 3 or channels == 4
        stop = first + (stop - first) // MIRRORED * MIRRORED if known else first
    for i in range(out.shape[0]):
        row = rows[i]
        if row < 0 or filled > 0:
            line = out[i].reshape(-1)
            for k in range(width * channels):
                line[k] = fill[k]
            if row < 0:
                continue
        if step < 0:
            source, target = x[row].reshape(-1), out[i].reshape(-1)
            offset = 0
            if stop > first and i + 1 < out.shape[0]:
                # Memory that is far away is read fastest forwards, so it is mirrored on the way back from the next row
                # of the output, which is written afterwards: 51 us for a 224 px image without it, 26 us with it.
                offset = columns[stop - 1] * channels
                line = source[offset : offset + (stop - first) * channels]
                source = out[i + 1].reshape(-1)
                for k in range(line.shape[0]):
                    source[k] = line[k]
            for j in range(begin, stop, MIRRORED):
                at, place = (columns[j] - MIRRORED + 1) * channels - offset, j * channels
                if channels == 3:
                    mirror_threes(source, at, target, place)
                elif channels == 1:
                    mirror_ones(source, at, target, place)
                else:
                    mirror_fours(source, at, target, place)
        elif stop > first:
            start, size = columns[first] * channels, (stop - first) * channels
            source = x[row].reshape(-1)[start : start + size]
            target = out[i].reshape(-1)[first * channels : stop * channels]
            for k in range(size):
                target[k] = source[k]
        if filled > 0 and stop == end:
            continue
        for j in range(width - (stop - first)):
            place = j if j < first else j + (stop - first)
            column = columns[place]
            for c in range(channels):
                out[i, place, c] = x[row, column, c] if column >= 0 else fill[c]


@kernel
def scale_window(
    x: Any, rows: Any, columns: Any, fill: Any, scale: Any, bias: Any, out: Any
) -> None:
    """Pixels of x at the tables' coordinates, times scale plus bias, which are repeated for every pixel of a row."""
    width, channels = out.shape[1], out.shape[2]
    first, stop, step = walk(columns)
    begin, end = 0, 0
    if step < 0:
        # Four channels at a time, so the last pixel of a row is left out: what is read behind the last of the source,
        # or written behind the last of the target, may belong to another sample.
        if 3 <= channels <= 4:
            begin, end, stop = first, stop, stop - 1
        else:
            first, stop = 0, 0
    for i in range(out.shape[0]):
        row = rows[i]
        if row < 0:
            for j in range(width):
                for c in range(channels):
                    out[i, j, c] = np.float32(fill[c]) * scale[c] + bias[c]
            continue
        if end > begin:
            source, target = x[row].reshape(-1), out[i].reshape(-1)
            start = begin
            if columns[begin] == x.shape[1] - 1:
                for c in range(channels):
                    out[i, begin, c] = np.float32(x[row, columns[begin], c]) * scale[c] + bias[c]
                start += 1
            for j in range(start, stop):
                scale_pixel(source, columns[j] * channels, scale, bias, target, j * channels)
        elif stop > first:
            # Flat arrays that begin where the loop does: with a sum as index Numba looks at every element whether
            # that is below 0, and the loop does not become vector instructions.
            start, size = columns[first] * channels, (stop - first) * channels
            source = x[row].reshape(-1)[start : start + size]
            target = out[i].reshape(-1)[first * channels : stop * channels]
            for k in range(size):
                target[k] = np.float32(source[k]) * scale[k] + bias[k]
        for j in range(width - (stop - first)):
            place = j if j < first else j + (stop - first)
            column = columns[place]
            for c in range(channels):
                value = np.float32(x[row, column, c] if column >= 0 else fill[c])
                out[i, place, c] = value * scale[c] + bias[c]


@jitable
def reached(table: Any, places: Any, counts: Any) -> Any:
    """The pixels (first, stop) that a filter reaches, its largest count, and whether nothing is filled."""
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
def mix_rows(
    x: Any, places: Any, shares: Any, begin: Any, count: Any, start: Any, size: Any, out: Any
) -> None:
    """Values from `start` of some rows, by their shares; two rows at a time."""
    mixed = out[start : start + size]
    one = x[places[begin]].reshape(-1)[start : start + size]
    if count == 1:
        for k in range(size):
            mixed[k] = precise(one[k], x)
        return
    share, other_share = shares[begin], shares[begin + 1]
    other = x[places[begin + 1]].reshape(-1)[start : start + size]
    for k in range(size):
        mixed[k] = precise(one[k], x) * share + precise(other[k], x) * other_share
    for tap in range(begin + 2, begin + count - 1, 2):
        share, other_share = shares[tap], shares[tap + 1]
        one = x[places[tap]].reshape(-1)[start : start + size]
        other = x[places[tap + 1]].reshape(-1)[start : start + size]
        for k in range(size):
            mixed[k] = (mixed[k] + precise(one[k], x) * share) + precise(other[k], x) * other_share
    if count % 2 == 1:
        share = shares[begin + count - 1]
        one = x[places[begin + count - 1]].reshape(-1)[start : start + size]
        for k in range(size):
            mixed[k] = mixed[k] + precise(one[k], x) * share


@jitable
def mix_columns(
    line: Any, columns: Any, shares: Any, places: Any, counts: Any, channels: Any, made: Any
) -> None:
    """Pixels of a line by their shares, into another, in order: what a pixel has beyond its channels is overwritten."""
    taps = places.shape[0] // counts.shape[0]
    for j in range(columns.shape[0]):
        entry = columns[j]
        if entry >= 0:
            for c in range(0, channels, 4):
                filter_pixel(
                    line, places, shares, entry * taps, counts[entry], channels, c, made, j * channels + c
                )  # fmt: skip


@jitable
def finish_row(
    made: Any, columns: Any, fill: Any, scale: Any, bias: Any, whole: Any, limits: Any, out: Any, i: Any
) -> None:  # fmt: skip
    """A line as row i of the output: rounded and clipped if `whole`, times scale plus bias, fill colour where it is."""
    channels = out.shape[2]
    for j in range(columns.shape[0]):
        if columns[j] < 0:
            for c in range(channels):
                made[j * channels + c] = precise(fill[c], fill)
    target = out[i].reshape(-1)
    if whole:
        low, high = limits
        half = precise(0.5, made)
        for k in range(target.shape[0]):
            value = min(max(np.floor(made[k] + half), low), high)
            target[k] = stored(value * scale[k] + bias[k], out)
    else:
        for k in range(target.shape[0]):
            target[k] = stored(made[k] * scale[k] + bias[k], out)


@jitable
def fill_row(fill: Any, scale: Any, bias: Any, out: Any, i: Any) -> None:
    """Row i of the output in the fill colour."""
    for j in range(out.shape[1]):
        for c in range(out.shape[2]):
            out[i, j, c] = stored(precise(fill[c], fill) * scale[c] + bias[c], out)


def floats_of(out: Any, i: Any, made: Any) -> Any:
    """Row i of the output if that is of float32, otherwise another line."""
    return out[i].reshape(-1) if out.dtype == np.float32 else made


@overload(floats_of)
def _floats_of(out, i, made):
    if out.dtype == types.float32:
        return lambda out, i, made: out[i].reshape(-1)
    return lambda out, i, made: made


def store_floats(made: Any, out: Any, i: Any) -> None:
    """A line as row i of the output, unless it is there already."""
    if out.dtype != np.float32:
        target = out[i].reshape(-1)
        for k in range(target.shape[0]):
            target[k] = stored(made[k], out)


@overload(store_floats)
def _store_floats(made, out, i):
    if out.dtype == types.float32:
        return lambda made, out, i: None

    def store_row(made, out, i):
        target = out[i].reshape(-1)
        for k in range(target.shape[0]):
            target[k] = stored(made[k], out)

    return store_row


@kernel
def resize_window(
    x: Any, rows: Any, columns: Any, row_shares: Any, row_places: Any, row_counts: Any, column_shares: Any,
    column_places: Any, column_counts: Any, fill: Any, scale: Any, bias: Any, whole: Any, limits: Any, line: Any,
    made: Any, near: Any, far: Any, part: Any, out: Any,
) -> None:  # fmt: skip
    """Pixels of x by their shares, rounded if `whole`, times scale plus bias; all in 32 bits.

    Rows are mixed first, into `line`, which stays in the nearest cache, then the pixels of that line. `line` has room
    for four floats beyond the width of x, and `made` beyond that of the output, because four channels are read and
    written whatever their number. `near`, `far` and `part` have room for a row of the output: where nothing shrinks, a
    pixel is mixed of two.
    """
    height, width, channels = out.shape
    left, right, most, inside = reached(columns, column_places, column_counts)
    start, size = left * channels, (right - left) * channels
    across = column_places.shape[0] // column_counts.shape[0]
    down = row_places.shape[0] // row_counts.shape[0]
    nothing = line.shape[0] - 4
    for k in range(nothing, line.shape[0]):
        line[k] = np.float32(0)
    two = most <= 2
    if two:
        for j in range(width):
            near[j], far[j], part[j] = -1, nothing, np.float32(0)
            if columns[j] >= 0:
                begin = columns[j] * across
                near[j] = column_places[begin] * channels
                # Alone, a pixel is mixed with zeros: its neighbour may be infinite, and so may it.
                if column_counts[columns[j]] == 2:
                    far[j] = column_places[begin + 1] * channels
                    part[j] = column_shares[begin + 1]
                    # Those of other filters are 1 together but for rounding.
                    two = two and column_shares[begin] == np.float32(1) - part[j]
    for i in range(height):
        entry = rows[i]
        if entry < 0:
            fill_row(fill, scale, bias, out, i)
            continue
        mix_rows(x, row_places, row_shares, entry * down, row_counts[entry], start, size, line)
        if not two:
            mix_columns(line, columns, column_shares, column_places, column_counts, channels, made)
            finish_row(made, columns, fill, scale, bias, whole, limits, out, i)
            continue
        target = floats_of(out, i, made)
        # The last pixel of a row is written channel by channel: its fourth float may belong to another sample.
        stop = width - 1 if 3 <= channels <= 4 else 0
        if inside:
            for j in range(stop):
                blend_pixel(line, near[j], far[j], part[j], scale, bias, whole, target, j * channels)
        for j in range(0 if inside else stop):
            place = j * channels
            if near[j] >= 0:
                blend_pixel(line, near[j], far[j], part[j], scale, bias, whole, target, place)
            else:
                for c in range(channels):
                    target[place + c] = np.float32(fill[c]) * scale[c] + bias[c]
        for j in range(stop, width):
            for c in range(channels):
                value = np.float32(fill[c])
                if near[j] >= 0:
                    value = line[near[j] + c]
                    if part[j] != 0:
                        value = value * (np.float32(1) - part[j]) + line[far[j] + c] * part[j]
                    if whole:
                        value = np.floor(value + np.float32(0.5))
                target[j * channels + c] = value * scale[c] + bias[c]
        store_floats(made, out, i)


@jitable
def rows_first(window: Any, height: Any, width: Any) -> Any:
    """Whether rows are mixed before columns, as Pillow 13 does it: where the height shrinks by much more."""
    return window[1] > height and window[1] - height > 2 * (window[4] - width)


@kernel
def resize_exactly(
    x: Any, rows: Any, columns: Any, row_shares: Any, row_places: Any, row_counts: Any, column_shares: Any,
    column_places: Any, column_counts: Any, fill: Any, scale: Any, bias: Any, whole: Any, limits: Any, line: Any,
    made: Any, held: Any, window: Any, out: Any,
) -> None:  # fmt: skip
    """The same in as many bits as x needs, with rows and columns in the order of Pillow.

    Whole numbers are clipped in between, as Pillow does it: filters that overshoot give other pixels without it. `held`
    has room for every row of x, as long as `made`; `window` is what was drawn.
    """
    channels = out.shape[2]
    left, right, _, _ = reached(columns, column_places, column_counts)
    top, bottom, _, _ = reached(rows, row_places, row_counts)
    start, size = left * channels, (right - left) * channels
    down = row_places.shape[0] // row_counts.shape[0]
    before = rows_first(window, row_counts.shape[0], column_counts.shape[0])
    part = line[start : start + size]
    if not before:
        for y in range(top, bottom):
            source = x[y].reshape(-1)[start : start + size]
            for k in range(size):
                part[k] = precise(source[k], x)
            row = held[y]
            mix_columns(line, columns, column_shares, column_places, column_counts, channels, row)
            if whole:
                clip_values(row, limits)
    for i in range(out.shape[0]):
        entry = rows[i]
        if entry < 0:
            fill_row(fill, scale, bias, out, i)
            continue
        begin, count = entry * down, row_counts[entry]
        if before:
            mix_rows(x, row_places, row_shares, begin, count, start, size, line)
            if whole:
                clip_values(part, limits)
            mix_columns(line, columns, column_shares, column_places, column_counts, channels, made)
        else:
            mix_rows(held, row_places, row_shares, begin, count, 0, made.shape[0], made)
        finish_row(made, columns, fill, scale, bias, whole, limits, out, i)


@jitable
def clip_values(values: Any, limits: Any) -> None:
    """Values between limits, in place."""
    low, high = limits
    for k in range(values.shape[0]):
        values[k] = min(max(values[k], low), high)
