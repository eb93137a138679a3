"""Windows onto one image whose size is known when it is read, such as a decoded one.

The tables and filters are those of `windows.py` and `resizing.py`, made at once for the windows of a chain. An image
may be decoded at a fraction of its size; its filter is then made for the reduced image.
"""

from typing import Any

import numpy as np

from .compilation import jitable, kernel
from .resizing import BICUBIC, LANCZOS, compose_filter, filter_share, reached
from .windows import compose, compose_nearest

# Kinds of windows, and the words of their entries: (what, border, filter, whether it is antialiased). The result of the
# last two is the left upper part of a frame, and the drawn numbers have its size in place of whether they are flipped.
MOVED, NEAREST, FILTERED, NEAREST_PART, FILTERED_PART = 0, 1, 2, 3, 4


@kernel
def compose_reduced_filter(
    size: Any, factor: Any, start: Any, extent: Any, flipped: Any, kind: Any, shares: Any, places: Any, counts: Any
) -> None:  # fmt: skip
    """Compute the antialiased filter of a window onto an image of `size` pixels that is reduced by `factor`.

    The window is given in pixels of the whole image. Pixels of the reduced image that it cuts count like the others.
    """
    results = counts.shape[0]
    taps = places.shape[0] // results
    begin, end = start / factor, (start + extent) / factor
    low, high = int(np.floor(begin)), min(int(np.ceil(end)), size)
    scale = extent / factor / results
    wider = max(scale, 1.0)
    reach = 1.0
    if kind == BICUBIC:
        reach = 2.0
    elif kind == LANCZOS:
        reach = 3.0
    reach, narrower = reach * wider, 1.0 / wider
    for i in range(results):
        centre = begin + (np.float64(results - 1 - i if flipped else i) + 0.5) * scale
        at, total, count = i * taps, 0.0, 0
        for place in range(
            max(int(centre - reach + 0.5), low), min(int(centre + reach + 0.5), high)
        ):
            share = filter_share(kind, (place - centre + 0.5) * narrower)
            if share != 0.0 and count < taps:
                shares[at + count] = share
                places[at + count] = place
                total += share
                count += 1
        for k in range(at, at + count):
            shares[k] = shares[k] / total
        counts[i] = count


@jitable
def compose_axis(
    axis: Any, steps: Any, windows: Any, results: Any, size: Any, factor: Any, tables: Any, shares: Any, places: Any,
    counts: Any,
) -> Any:  # fmt: skip
    """Compute the table of one axis for all windows; return its place in `tables`, and the pixels (first, stop) used.

    `tables` has room for two, of which one is read and the other written.
    """
    current, length = 0, size
    for i in range(size):
        tables[0, i] = i
    filtered = False
    for k in range(steps.shape[0]):
        start, extent = windows[k, 3 * axis], windows[k, 3 * axis + 1]
        flipped = windows[k, 3 * axis + 2] != 0
        result = results[k, axis]
        scaled = result
        if steps[k, 0] >= NEAREST_PART:
            scaled, flipped = windows[k, 3 * axis + 2], False
        before, after = tables[current, :length], tables[1 - current, :result]
        if steps[k, 0] == MOVED:
            compose(before, start, extent, flipped, steps[k, 1], after)
        elif steps[k, 0] == NEAREST or steps[k, 0] == NEAREST_PART:
            compose_nearest(before, start, extent, flipped, after[:scaled])
        else:
            filtered = True
            room = scaled * (places.shape[0] // counts.shape[0])
            if factor > 1:
                reduced = (size + factor - 1) // factor
                compose_reduced_filter(
                    reduced, factor, start, extent, flipped, steps[k, 2], shares[:room], places[:room], counts[:scaled]
                )  # fmt: skip
            else:
                compose_filter(
                    before, start, extent, flipped, steps[k, 2], steps[k, 3] != 0, shares[:room], places[:room],
                    counts[:scaled],
                )  # fmt: skip
            for i in range(scaled):
                after[i] = i
        for i in range(scaled, result):
            after[i] = -1
        current, length = 1 - current, result
    first, stop = 0, 0
    if filtered:
        first, stop, _, _ = reached(tables[current, :length], places, counts)
    else:
        first = size
        for i in range(length):
            place = tables[current, i]
            if place >= 0:
                first, stop = min(first, place), max(stop, place + 1)
        first = min(first, stop)
    return current, first, stop


@kernel
def compose_image_windows(
    steps: Any, windows: Any, results: Any, height: Any, width: Any, factor: Any, rows: Any, columns: Any,
    row_shares: Any, row_places: Any, row_counts: Any, column_shares: Any, column_places: Any, column_counts: Any,
    found: Any,
) -> None:  # fmt: skip
    """Compute the tables of both axes for the windows of one pass.

    `steps` are the entries of the windows, `windows` what was drawn for them, `results` the (height, width) that each
    makes. `found` receives where the tables are in `rows` and `columns`, and the rows (first, stop) that are needed of
    the image, reduced by `factor`.
    """
    place, first, stop = compose_axis(
        0, steps, windows, results, height, factor, rows, row_shares, row_places, row_counts
    )
    found[0], found[2], found[3] = place, first, stop
    place, _, _ = compose_axis(
        1, steps, windows, results, width, factor, columns, column_shares, column_places, column_counts
    )  # fmt: skip
    found[1] = place


@kernel
def shift_places(places: Any, first: Any) -> None:
    """Make rows of an image those of its part that begins at row `first`."""
    for i in range(places.shape[0]):
        if places[i] >= 0:
            places[i] -= first
