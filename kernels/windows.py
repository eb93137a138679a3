"""Crop, pad and flip as one pass: every such op is a window onto its input, and windows compose.

An op says which window of its input becomes its output: (top, height, flipped, left, width, flipped). Per axis this
gives a table from output coordinate to input coordinate, and the table of a chain of ops is the composition of theirs.
So a chain of any length reads each source pixel once and writes each output pixel once, and the values are those of
doing one op after the other.

Coordinates below 0 mean the fill colour. A window that is scaled by mixing pixels has filters: see `resizing.py`.
"""

from typing import Any

import numpy as np

from .compilation import jitable, kernel
from .memory import store_word
from .vectors import MIRRORED, mirror_fours, mirror_ones, mirror_threes, scale_pixel

FILL, REFLECT, EDGE = 0, 1, 2


@jitable
def store_window(window: Any, address: Any) -> None:
    """Store a window at an address."""
    top, tall, upside, left, wide, mirrored = window
    store_word(address, top)
    store_word(address + 8, tall)
    store_word(address + 16, upside)
    store_word(address + 24, left)
    store_word(address + 32, wide)
    store_word(address + 40, mirrored)


@kernel
def border(coordinate: Any, size: Any, mode: Any) -> Any:
    """Return a coordinate that may be outside, moved inside by mirroring or clamping, or -1 for the fill colour."""
    if 0 <= coordinate < size:
        return coordinate
    if mode == EDGE:
        return 0 if coordinate < 0 else size - 1
    if mode == REFLECT and size > 1:
        period = 2 * (size - 1)
        coordinate = abs(coordinate)
        if coordinate >= period:  # rare, and a division takes longer than all the rest
            coordinate %= period
        return period - coordinate if coordinate >= size else coordinate
    return 0 if mode == REFLECT else -1


@kernel
def compose(before: Any, start: Any, extent: Any, flipped: Any, mode: Any, low: Any) -> None:
    """Compute the table of a window, on top of a table of whole pixels."""
    for i in range(low.shape[0]):
        place = border(start + (extent - 1 - i if flipped else i), before.shape[0], mode)
        low[i] = before[place] if place >= 0 else -1


@kernel
def compose_nearest(before: Any, start: Any, extent: Any, flipped: Any, low: Any) -> None:
    """Compute the table of a window scaled to another size without mixing pixels, on top of a table of whole pixels."""
    size = low.shape[0]
    for i in range(size):
        # In whole numbers: (i + 0.5) * extent / size, rounded down.
        place = (2 * (size - 1 - i if flipped else i) + 1) * extent // (2 * size)
        low[i] = before[start + place]


@jitable
def move_tables(
    window: Any, mode: Any, rows: Any, columns: Any, new_rows: Any, new_columns: Any
) -> None:
    """Compute the tables of a drawn window, on top of tables of whole pixels."""
    compose(rows, window[0], window[1], window[2] != 0, mode, new_rows)
    compose(columns, window[3], window[4], window[5] != 0, mode, new_columns)


@jitable
def shrink_tables(window: Any, rows: Any, columns: Any, new_rows: Any, new_columns: Any) -> None:
    """Compute the tables of a drawn window that is scaled without mixing pixels, on top of tables of whole pixels."""
    compose_nearest(rows, window[0], window[1], window[2] != 0, new_rows)
    compose_nearest(columns, window[3], window[4], window[5] != 0, new_columns)


@kernel
def longest_run(table: Any) -> Any:
    """Return the longest stretch (first, stop) of a table that walks through neighbouring pixels, and its direction.

    The direction is 1 to the right and -1 to the left.
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
        # At a reversal, the turning pixel also begins the way back.
        begin, direction = (i - 1, change) if abs(change) == 1 else (i, 0)
    return first, stop, step


@kernel
def copy_window(x: Any, rows: Any, columns: Any, fill: Any, out: Any) -> None:
    """Copy pixels of x at the tables' coordinates; `fill` is a row of the output in the fill colour."""
    width, channels = out.shape[1], out.shape[2]
    # Rows of values. To reshape every row by itself takes 20 ns.
    sources = x.reshape(x.shape[0], x.shape[1] * channels)
    targets = out.reshape(out.shape[0], width * channels)
    first, stop, step = longest_run(columns)
    filled = width - (stop - first)
    for j in range(width):
        if (j < first or j >= stop) and columns[j] >= 0:
            filled = 0
    begin, end = first, stop
    if step < 0:
        # Mirrored pixels are copied in whole blocks; the remainder goes one by one.
        known = channels == 1 or channels == 3 or channels == 4
        stop = first + (stop - first) // MIRRORED * MIRRORED if known else first
    for i in range(out.shape[0]):
        row = rows[i]
        if row < 0 or filled > 0:
            line = targets[i]
            for k in range(width * channels):
                line[k] = fill[k]
            if row < 0:
                continue
        if step < 0:
            source, target = sources[row], targets[i]
            # From the right: the source is then read forwards, which is fastest for memory that is not in the cache.
            for block in range((stop - begin) // MIRRORED - 1, -1, -1):
                j = begin + block * MIRRORED
                at, place = (columns[j] - MIRRORED + 1) * channels, j * channels
                if channels == 3:
                    mirror_threes(source, at, target, place)
                elif channels == 1:
                    mirror_ones(source, at, target, place)
                else:
                    mirror_fours(source, at, target, place)
        elif stop > first:
            start, size = columns[first] * channels, (stop - first) * channels
            source = sources[row][start : start + size]
            target = targets[i][first * channels : stop * channels]
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
    """Write pixels of x at the tables' coordinates, times scale plus bias, which repeat for every pixel of a row."""
    width, channels = out.shape[1], out.shape[2]
    # Rows of values. To reshape every row by itself takes 20 ns.
    sources = x.reshape(x.shape[0], x.shape[1] * channels)
    targets = out.reshape(out.shape[0], width * channels)
    first, stop, step = longest_run(columns)
    begin, end = 0, 0
    if step < 0:
        # Four channels at a time, so the last pixel of a row is left out: the value read after the last of the source,
        # or written after the last of the target, may belong to another sample.
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
            source, target = sources[row], targets[i]
            start = begin
            if columns[begin] == x.shape[1] - 1:
                for c in range(channels):
                    out[i, begin, c] = np.float32(x[row, columns[begin], c]) * scale[c] + bias[c]
                start += 1
            for j in range(start, stop):
                scale_pixel(source, columns[j] * channels, scale, bias, target, j * channels)
        elif stop > first:
            # Flat arrays that begin where the loop does. With a sum as index Numba checks for every element whether it
            # is below 0, and the loop does not become vector instructions.
            start, size = columns[first] * channels, (stop - first) * channels
            source = sources[row][start : start + size]
            target = targets[i][first * channels : stop * channels]
            for k in range(size):
                target[k] = np.float32(source[k]) * scale[k] + bias[k]
        for j in range(width - (stop - first)):
            place = j if j < first else j + (stop - first)
            column = columns[place]
            for c in range(channels):
                value = np.float32(x[row, column, c] if column >= 0 else fill[c])
                out[i, place, c] = value * scale[c] + bias[c]
