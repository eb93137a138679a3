"""Shrinking by the mean of areas: every pixel of the result is the mean of the input that it covers."""

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import overload

from .compilation import jitable, kernel
from .pixels import saturate
from .vectors import filter_pixel


def mean_of_parts(total: Any, parts: Any, share: Any, like: Any) -> Any:
    """Return the mean of `parts` from their sum, in the dtype of the array `like`; `share` is one divided by parts."""
    return saturate(total / parts, like)


@overload(mean_of_parts)
def _mean_of_parts(total, parts, share, like):
    if like.dtype == types.uint8:
        # Sums are whole numbers. A quarter more keeps them away from where rounding changes, and needs no division.
        return lambda total, parts, share, like: types.uint8(
            np.int32((total + (0.5 * parts + 0.25)) * share)
        )
    return lambda total, parts, share, like: saturate(total / parts, like)


@jitable
def cover(size: Any, smaller: Any, firsts: Any, counts: Any, places: Any, shares: Any) -> None:
    """List the pixels of `size` that each output pixel covers, and the covered share of each, in parts of a pixel."""
    taken = 0
    for j in range(smaller):
        left, right = j * size, (j + 1) * size
        first, stop = left // smaller, (right + smaller - 1) // smaller
        firsts[j], counts[j] = taken, stop - first
        for z in range(first, stop):
            places[taken] = z
            shares[taken] = min((z + 1) * smaller, right) - max(z * smaller, left)
            taken += 1


@kernel
def resize_area(
    x: Any, out: Any, sums: Any, line: Any, made: Any, firsts: Any, counts: Any, places: Any, shares: Any
) -> None:  # fmt: skip
    """Set every output pixel to the mean of the input area that it covers, by share; x is (height, width, channels).

    Shares are counted in parts of a pixel, so that sums of bytes are exact. Rows are added first, in `sums`: float32
    holds the sums of bytes exactly. `line` and `made` have room for four values more than a row of x and of the output.
    `firsts` and `counts` have room for every column of the output, `places` and `shares` for as many as x and the
    output have together.
    """
    height, width, channels = x.shape
    tall, wide = out.shape[0], out.shape[1]
    # Rows of values. To reshape every row by itself takes 20 ns.
    values, targets = x.reshape(height, width * channels), out.reshape(tall, wide * channels)
    cover(width, wide, firsts, counts, places, shares)
    parts = np.float64(height) * np.float64(width)
    share_of_part = 1.0 / parts
    row = sums[: width * channels]
    for k in range(width * channels, width * channels + 4):
        line[k] = 0.0
    for i in range(tall):
        top, bottom = i * height, (i + 1) * height
        first = top // tall
        for y in range(first, (bottom + tall - 1) // tall):
            share = sums.dtype.type(min((y + 1) * tall, bottom) - max(y * tall, top))
            source = values[y]
            if y == first:
                for k in range(row.shape[0]):
                    row[k] = sums.dtype.type(source[k]) * share
            else:
                for k in range(row.shape[0]):
                    row[k] += sums.dtype.type(source[k]) * share
        for k in range(row.shape[0]):
            line[k] = row[k]
        for j in range(wide):
            for c in range(0, channels, 4):
                filter_pixel(
                    line, places, shares, firsts[j], counts[j], channels, c, made, j * channels + c
                )
        target = targets[i]
        for k in range(target.shape[0]):
            target[k] = mean_of_parts(made[k], parts, share_of_part, out)
