"""An image on a larger canvas of a fill colour, and that scaled to the size of the output, as one pass.

The canvas is a window onto the image that reaches outside of it: (top, height, flipped, left, width, flipped). A pixel
of the output whose centre is outside of the image is the fill colour; all others are mixed of pixels of the image
alone, by the triangular filter that Pillow calls bilinear.
"""

import math
from typing import Any

import numpy as np

from .compilation import jitable, kernel
from .pixels import precise, stored


def most_taps(extent: int, result: int) -> int:
    """Return how many pixels of an axis have a share in one of `result` pixels at most, where `extent` becomes them."""
    return 2 * math.ceil(max(extent / result, 1.0)) + 1


@jitable
def nearest_place(i: Any, start: Any, extent: Any, result: Any) -> Any:
    """The pixel below the centre of pixel i of the output, in whole numbers; it may be outside."""
    return (2 * i + 1) * extent // (2 * result) + start


@jitable
def triangle(
    i: Any, start: Any, extent: Any, result: Any, size: Any, antialias: Any, shares: Any, begin: Any
) -> Any:
    """The shares in pixel i of the output, at `begin`: the first pixel that has one, and how many have."""
    scale = extent / result
    reach = scale if antialias and scale > 1.0 else 1.0
    centre = (np.float64(i) + 0.5) * scale + start
    first = max(int(np.floor(centre - reach + 0.5)), 0)
    stop = min(int(np.floor(centre + reach + 0.5)), size)
    total, count = 0.0, 0
    for place in range(first, stop):
        share = max(1.0 - abs(place + 0.5 - centre) / reach, 0.0)
        if share == 0.0:
            # At either end: infinity times 0 would be NaN.
            if count == 0:
                first += 1
            continue
        shares[begin + count] = share
        # Of the shares as they are stored: one alone is then 1.
        total += shares[begin + count]
        count += 1
    for k in range(begin, begin + count):
        shares[k] = shares[k] / total
    return first, count


@kernel
def zoom_nearest(x: Any, window: Any, fill: Any, places: Any, out: Any) -> None:
    """The nearest pixel of the image, or the fill colour. `places` has room for the width of the output."""
    height, width, channels = out.shape
    for j in range(width):
        place = nearest_place(j, window[3], window[4], width)
        places[j] = place if 0 <= place < x.shape[1] else -1
    for i in range(height):
        row = nearest_place(i, window[0], window[1], height)
        outside = row < 0 or row >= x.shape[0]
        for j in range(width):
            place = places[j]
            for c in range(channels):
                out[i, j, c] = fill[c] if outside or place < 0 else x[row, place, c]


@kernel
def zoom_bilinear(
    x: Any, window: Any, antialias: Any, whole: Any, fill: Any, row_shares: Any, shares: Any, places: Any, counts: Any,
    line: Any, out: Any,
) -> None:  # fmt: skip
    """Pixels of the image by their shares, rounded if `whole`, or the fill colour.

    `row_shares` has room for the shares of one pixel, `shares` for those of a row of the output, `line` for a row of x.
    """
    height, width, channels = out.shape
    taps = shares.shape[0] // width
    for j in range(width):
        place = nearest_place(j, window[3], window[4], width)
        places[j], counts[j] = 0, 0
        if 0 <= place < x.shape[1]:
            places[j], counts[j] = triangle(
                j, window[3], window[4], width, x.shape[1], antialias, shares, j * taps
            )
    half = precise(0.5, x)
    for i in range(height):
        row = nearest_place(i, window[0], window[1], height)
        if row < 0 or row >= x.shape[0]:
            for j in range(width):
                for c in range(channels):
                    out[i, j, c] = fill[c]
            continue
        first, count = triangle(
            i, window[0], window[1], height, x.shape[0], antialias, row_shares, 0
        )
        for tap in range(count):
            source, share = x[first + tap].reshape(-1), row_shares[tap]
            if tap == 0:
                for k in range(line.shape[0]):
                    line[k] = precise(source[k], x) * share
            else:
                for k in range(line.shape[0]):
                    line[k] += precise(source[k], x) * share
        for j in range(width):
            begin, place = j * taps, places[j] * channels
            for c in range(channels):
                if counts[j] == 0:
                    out[i, j, c] = fill[c]
                    continue
                value = line[place + c] * shares[begin]
                for tap in range(1, counts[j]):
                    value += line[place + tap * channels + c] * shares[begin + tap]
                out[i, j, c] = stored(np.floor(value + half) if whole else value, out)
