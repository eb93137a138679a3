"""Means and medians of neighbourhoods: sums of horizontal runs of pixels, and sorting networks.

A mean of many neighbours is a sum of runs of pixels in a row, and the sum of a run is the difference of two sums from
the beginning of the row: a disc of radius 10 has 317 pixels, and 21 runs. A median is found for a block of pixels at a
time, by exchanges that are the same for all of them: each is a loop of minimum and maximum, which is vector code.
"""

from typing import Any

import numpy as np

from .compilation import kernel
from .pixels import precise
from .tones import rounded
from .windows import EDGE, REFLECT, border

# Values whose neighbours are sorted at a time: 25 rows of them fit the nearest cache.
SORTED = 256


@kernel
def mean_of_runs(
    x: Any, rows: Any, begins: Any, ends: Any, radius: Any, share: Any, totals: Any, sums: Any
) -> None:
    """x becomes the sum of the runs of pixels around each pixel, times `share`; the image is mirrored outside.

    A run is in the row `rows` below the pixel, from the column `begins` to before `ends`, at most `radius` away.
    `totals` has room for an image with `radius` pixels more on both sides and one in front, `sums` for a row.
    """
    height, width, channels = x.shape
    length = width * channels
    lines = x.reshape((height, length))
    for i in range(height):
        line, total = lines[i], totals[i]
        for c in range(channels):
            total[c] = 0
        for place in range(width + 2 * radius):
            column = border(place - radius, width, REFLECT) * channels
            for c in range(channels):
                at = place * channels + c
                total[at + channels] = total[at] + line[column + c]
    part = precise(share, x)
    for i in range(height):
        for k in range(length):
            sums[k] = 0
        for run in range(rows.shape[0]):
            total = totals[border(i + rows[run], height, REFLECT)]
            first = total[(begins[run] + radius) * channels :]
            last = total[(ends[run] + radius) * channels :]
            for k in range(length):
                sums[k] += last[k] - first[k]
        line = lines[i]
        for k in range(length):
            line[k] = rounded(precise(sums[k], x) * part, x)


@kernel
def median_of_square(x: Any, side: Any, network: Any, ring: Any, values: Any) -> None:
    """x becomes the median of `side` x `side` pixels around each pixel; pixels outside repeat the edge.

    `network` is pairs of places: after all exchanges the median is in the middle. `ring` has `side` rows, each with
    room for a row and side - 1 pixels; `values` has a row for each neighbour, with room for SORTED values.
    """
    height, width, channels = x.shape
    length, radius = width * channels, side // 2
    lines = x.reshape((height, length))
    middle = side * side // 2
    for front in range(height + radius):
        if front < height:
            line, held = lines[front], ring[front % side]
            for place in range(width + 2 * radius):
                column = border(place - radius, width, EDGE) * channels
                for c in range(channels):
                    held[place * channels + c] = line[column + c]
        i = front - radius
        if i < 0:
            continue
        line = lines[i]
        for start in range(0, length, SORTED):
            count = min(SORTED, length - start)
            for down in range(side):
                held = ring[border(i + down - radius, height, EDGE) % side]
                for across in range(side):
                    shifted = held[start + across * channels :]
                    neighbours = values[down * side + across]
                    for k in range(count):
                        neighbours[k] = shifted[k]
            for pair in range(network.shape[0]):
                lower, upper = values[network[pair, 0]], values[network[pair, 1]]
                for k in range(SORTED):
                    one, other = lower[k], upper[k]
                    lower[k] = one if one < other else other
                    upper[k] = other if one < other else one
            found, target = values[middle], line[start : start + count]
            for k in range(count):
                target[k] = found[k]


def median_network(count: int) -> Any:
    """Return the exchanges that bring the median of `count` values to the middle: those of Batcher that it needs."""
    exchanges = []
    # Knuth, "The Art of Computer Programming", volume 3, algorithm 5.2.2M.
    power = 1 << max(count - 1, 1).bit_length() - 1
    p = power
    while p > 0:
        q, r, d = power, 0, p
        while True:
            exchanges += [(i, i + d) for i in range(count - d) if i & p == r]
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2
    needed, kept = {count // 2}, []
    for lower, upper in reversed(exchanges):
        if lower in needed or upper in needed:
            needed |= {lower, upper}
            kept.append((lower, upper))
    return np.array(kept[::-1], np.int64)
