"""Weather: discs of fog, streaks of rain, polygons of shadow, each drawn as runs of pixels in a row."""

import math
from typing import Any

import numpy as np

from .compilation import jitable, kernel
from .pixels import precise
from .tones import is_alpha, rounded
from .windows import REFLECT, border


@jitable
def add_disc(row: Any, column: Any, radius: Any, edges: Any) -> None:
    """Add a disc to `edges`, (height, width + 1): 1 where its runs begin, and -1 after them."""
    height, width = edges.shape[0], edges.shape[1] - 1
    for i in range(max(row - radius, 0), min(row + radius + 1, height)):
        half = int(math.sqrt(radius * radius - (i - row) * (i - row)))
        first, stop = max(column - half, 0), min(column + half + 1, width)
        if first < stop:
            edges[i, first] += 1
            edges[i, stop] -= 1


@kernel
def draw_fog(x: Any, edges: Any, alpha: Any, white: Any, clear: Any, line: Any) -> None:
    """Blend pixels with white by `alpha`, once for each disc that covers them.

    `clear` has room for powers of 1 - alpha, after the last of which nothing is visible, and `line` for a row.
    """
    height, width, channels = x.shape
    lines = x.reshape(height, width * channels)
    most, last = precise(white, x), clear.shape[0] - 1
    clear[0] = 1.0
    for k in range(1, last + 1):
        clear[k] = clear[k - 1] * (1.0 - alpha)
    for i in range(height):
        count = 0
        for j in range(width):
            count += edges[i, j]
            part = clear[min(count, last)]
            for c in range(channels):
                line[j * channels + c] = part
        row = lines[i]
        for k in range(row.shape[0]):
            value = row[k]
            changed = most - (most - precise(value, x)) * line[k]
            row[k] = value if is_alpha(k, channels) else rounded(max(changed, precise(0, x)), x)


@jitable
def add_streak(row: Any, column: Any, length: Any, slant: Any, layer: Any) -> None:
    """Draw a line of ones, `length` rows down and `slant` columns across; each pixel touches the next by a side."""
    height, width = layer.shape
    before = column
    for step in range(length + 1):
        after = column + math.floor(slant * step / length + 0.5)
        i = row + step
        if i < height:
            for j in range(max(min(before, after), 0), min(max(before, after) + 1, width)):
                layer[i, j] = 1
        before = after


@kernel
def draw_rain(
    x: Any, layer: Any, size: Any, light: Any, brightness: Any, white: Any, sums: Any, totals: Any, line: Any
) -> None:  # fmt: skip
    """Replace x by (value + light * mean of `size` x `size` of the layer) * brightness; the layer is mirrored outside.

    `sums` has room for a row of the layer, `totals` for one with `size` more, and `line` for a row of the image.
    """
    height, width, channels = x.shape
    lines = x.reshape(height, width * channels)
    radius = size // 2
    least, most, factor = precise(0, x), precise(white, x), precise(brightness, x)
    share = precise(light / (size * size), x)
    for j in range(width):
        sums[j] = 0
    for tap in range(-radius, radius + 1):
        row = layer[border(tap, height, REFLECT)]
        for j in range(width):
            sums[j] += row[j]
    for i in range(height):
        total = 0
        for place in range(radius):
            totals[place] = total
            total += sums[border(place - radius, width, REFLECT)]
        for j in range(width):
            totals[radius + j] = total
            total += sums[j]
        for place in range(radius + 1):
            totals[radius + width + place] = total
            total += sums[border(width + place, width, REFLECT)]
        for j in range(width):
            lit = precise(totals[j + size] - totals[j], x) * share
            for c in range(channels):
                line[j * channels + c] = lit
        values = lines[i]
        for k in range(values.shape[0]):
            value = values[k]
            changed = min(max(precise(value, x) + line[k], least), most) * factor
            values[k] = value if is_alpha(k, channels) else rounded(changed, x)
        entering, leaving = (
            layer[border(i + 1 + radius, height, REFLECT)],
            layer[border(i - radius, height, REFLECT)],
        )
        for j in range(width):
            sums[j] += np.int32(entering[j]) - np.int32(leaving[j])


@kernel
def draw_shadow(x: Any, corners: Any, factor: Any, white: Any, crossings: Any) -> None:
    """Multiply pixels inside a polygon by a factor.

    A pixel is inside if a line from it to the left crosses an odd number of sides. `corners` are (x, y) from the corner
    of the image, `crossings` has room for as many numbers.
    """
    height, width, channels = x.shape
    lines = x.reshape(height, width * channels)
    count, part = corners.shape[0], precise(factor, x)
    least, most = precise(0, x), precise(white, x)
    for i in range(height):
        level, found = i + 0.5, 0
        for k in range(count):
            other = k + 1 if k + 1 < count else 0
            one, two = corners[k, 1], corners[other, 1]
            if (one <= level) != (two <= level):
                way = (level - one) / (two - one)
                crossing = corners[k, 0] + way * (corners[other, 0] - corners[k, 0])
                place = found
                while place > 0 and crossings[place - 1] > crossing:
                    crossings[place] = crossings[place - 1]
                    place -= 1
                crossings[place] = crossing
                found += 1
        for pair in range(0, found - 1, 2):
            first = min(max(math.ceil(crossings[pair] - 0.5), 0), width)
            stop = min(max(math.ceil(crossings[pair + 1] - 0.5), first), width)
            run = lines[i, first * channels : stop * channels]
            for k in range(run.shape[0]):
                value = run[k]
                changed = min(max(precise(value, x) * part, least), most)
                run[k] = value if is_alpha(k, channels) else rounded(changed, x)
