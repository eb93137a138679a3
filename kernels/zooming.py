"""Zooming out: an image on a larger canvas of a fill colour, scaled to the size of the output, as one pass.

The canvas is a window onto the image that reaches outside of it: (top, height, flipped, left, width, flipped). A pixel
of the output whose centre is outside of the image is the fill colour. All others are mixed of pixels of the image
alone, by the triangular filter that Pillow calls bilinear.
"""

import math
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import overload

from .compilation import jitable, kernel
from .pixels import precise, stored
from .vectors import mix_bytes


def most_taps(extent: int, result: int) -> int:
    """Return the largest number of pixels with a share in one of `result` pixels, if `extent` pixels become them."""
    return 2 * math.ceil(max(extent / result, 1.0)) + 1


@jitable
def nearest_place(i: Any, start: Any, extent: Any, result: Any) -> Any:
    """Return the pixel below the centre of pixel i of the output, in whole numbers; it may be outside."""
    return (2 * i + 1) * extent // (2 * result) + start


@jitable
def triangle(
    i: Any, start: Any, extent: Any, result: Any, size: Any, antialias: Any, shares: Any, begin: Any
) -> Any:
    """Compute the shares in pixel i of the output, at `begin`; return the first pixel with one, and their number."""
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
        # The sum of the shares as they are stored: a single share is then 1.
        total += shares[begin + count]
        count += 1
    for k in range(begin, begin + count):
        shares[k] = shares[k] / total
    return first, count


@kernel
def zoom_nearest(x: Any, window: Any, fill: Any, places: Any, out: Any) -> None:
    """Write the nearest pixel of the image, or the fill colour. `places` has room for the width of the output."""
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


@jitable
def mix_neighbours(x: Any, first: Any, count: Any, shares: Any, line: Any) -> None:
    """Mix some neighbouring rows of x, (rows, values), by their shares, up to four at a time."""
    one, share = x[first], shares[0]
    if count >= 4:
        two, three, four = (
            x[first + 1], x[first + 2], x[first + 3]
        )  # fmt: skip
        second, third, fourth = shares[1], shares[2], shares[3]
        for k in range(line.shape[0]):
            value = precise(one[k], x) * share + precise(two[k], x) * second
            value = value + precise(three[k], x) * third
            line[k] = value + precise(four[k], x) * fourth
    else:
        for k in range(line.shape[0]):
            line[k] = precise(one[k], x) * share
    for tap in range(4 if count >= 4 else 1, count):
        one, share = x[first + tap], shares[tap]
        for k in range(line.shape[0]):
            line[k] += precise(one[k], x) * share


@jitable
def fill_part(out: Any, targets: Any, i: Any, begin: Any, end: Any, fill: Any, done: Any) -> None:
    """Fill columns of row i with the fill colour, copied from row `done` unless that is -1; `targets` are the rows."""
    channels = out.shape[2]
    if done >= 0:
        source = targets[done, begin * channels : end * channels]
        target = targets[i, begin * channels : end * channels]
        for k in range(target.shape[0]):
            target[k] = source[k]
    else:
        for j in range(begin, end):
            for c in range(channels):
                out[i, j, c] = fill[c]


def mixed_value(value: Any, whole: Any, like: Any) -> Any:
    """Return a mean of pixels of the array `like` as one of them, rounded if `whole`."""
    return stored(np.floor(value + precise(0.5, like)) if whole else value, like)


@overload(mixed_value)
def _mixed_value(value, whole, like):
    if like.dtype == types.uint8:
        # Means need no clipping, and are not below 0.
        return lambda value, whole, like: types.uint8(np.int32(value + precise(0.5, like)))
    return lambda value, whole, like: stored(
        np.floor(value + precise(0.5, like)) if whole else value, like
    )


def mix_first(
    line: Any, shares: Any, taps: Any, places: Any, counts: Any, left: Any, right: Any, channels: Any, target: Any
) -> Any:  # fmt: skip
    """Mix pixels from `left` on that can be mixed four channels at once; return the pixel at which to continue."""
    return left


@overload(mix_first)
def _mix_first(line, shares, taps, places, counts, left, right, channels, target):
    if not (target.dtype == types.uint8 and line.dtype == types.float32):
        return lambda line, shares, taps, places, counts, left, right, channels, target: left

    def mix(line, shares, taps, places, counts, left, right, channels, target):
        if not 3 <= channels <= 4:
            return left
        width = line.shape[0] // channels
        # The value read after the last pixel of the line, or written after the last of a row, may belong to others.
        while right > left and places[right - 1] + counts[right - 1] >= width:
            right -= 1
        for j in range(left, right - 1):
            mix_bytes(
                line, places[j] * channels, shares, j * taps, counts[j], channels, target, j * channels
            )  # fmt: skip
        return max(right - 1, left)

    return mix


@kernel
def zoom_bilinear(
    x: Any, window: Any, antialias: Any, whole: Any, fill: Any, row_shares: Any, shares: Any, places: Any, counts: Any,
    line: Any, out: Any,
) -> None:  # fmt: skip
    """Mix pixels of the image by their shares, rounded if `whole`, or write the fill colour.

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
    # Rows of values. To reshape every row by itself takes 20 ns.
    values, targets = (
        x.reshape(x.shape[0], x.shape[1] * channels),
        out.reshape(height, width * channels),
    )
    # The columns in which the image is visible; the others have the fill colour.
    left, right = 0, width
    while left < width and counts[left] == 0:
        left += 1
    while right > left and counts[right - 1] == 0:
        right -= 1
    # Rows of the output without the image, and with it, whose fill colour is copied: that takes a tenth of the time.
    empty, seen = -1, -1
    for i in range(height):
        row = nearest_place(i, window[0], window[1], height)
        if row < 0 or row >= x.shape[0]:
            fill_part(out, targets, i, 0, width, fill, empty)
            empty = i
            continue
        first, count = triangle(
            i, window[0], window[1], height, x.shape[0], antialias, row_shares, 0
        )
        mix_neighbours(values, first, count, row_shares, line)
        fill_part(out, targets, i, 0, left, fill, seen)
        fill_part(out, targets, i, right, width, fill, seen)
        seen = i
        target = targets[i]
        done = mix_first(line, shares, taps, places, counts, left, right, channels, target)
        for j in range(done, right):
            begin, place = j * taps, places[j] * channels
            for c in range(channels):
                value = line[place + c] * shares[begin]
                for tap in range(1, counts[j]):
                    value += line[place + tap * channels + c] * shares[begin + tap]
                target[j * channels + c] = mixed_value(value, whole, out)
