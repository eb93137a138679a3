"""Mosaic: four samples of a batch in one image, about the point where they meet.

Image 0 is the sample itself, to the upper left of that point. Its partners follow: upper right, lower left, lower
right. Each touches the point with a corner, and is cut off outside of the result. All functions draw the same numbers.
"""

from typing import Any

import numpy as np

from .compilation import jitable, kernel
from .distributions import start_draws
from .points import move_point
from .random import fold


@jitable
def meeting_point(rng: Any, probability: Any, low: Any, high: Any, tall: Any, wide: Any) -> Any:
    """Draw (row, column) in an image of tall x wide, at shares of it from low to high.

    Return (-1, -1) if the op is not applied.
    """
    if probability < 1.0 and rng.random() >= probability:
        return -1, -1
    row = int(rng.uniform(low, high) * tall)
    column = int(rng.uniform(low, high) * wide)
    return row, column


@jitable
def quarter(number: Any, point: Any, height: Any, width: Any, tall: Any, wide: Any) -> Any:
    """Return the beginning of image `number`, as (row, column), and the part of the result that shows it.

    The part is (top, bottom, left, right), and may be empty.
    """
    row = point[0] - height if number < 2 else point[0]
    column = point[1] - width if number % 2 == 0 else point[1]
    return (
        *(row, column),
        *(max(row, 0), min(row + height, tall)),
        *(max(column, 0), min(column + width, wide)),
    )


@jitable
def is_covered(point: Any, height: Any, width: Any, tall: Any, wide: Any) -> Any:
    """Tell whether the four images cover the whole result."""
    return max(point[0], tall - point[0]) <= height and max(point[1], wide - point[1]) <= width


@kernel
def mosaic_pixels(
    first: int, positions: Any, partners: Any, key: Any, probability: float, low: float, high: float, size: Any,
    result: Any, fill: Any, samples: Any, out: Any,
) -> None:  # fmt: skip
    """Copy pixels of images of `size` to those of `result`, both (height, width); `fill` is a row of the result.

    Pixels are copied as bytes.
    """
    (height, width), (tall, wide) = size, result
    pixel = fill.shape[0] // wide
    for i in range(out.shape[0]):
        rng = start_draws(fold(key, positions[i]))
        point = meeting_point(rng, probability, low, high, tall, wide)
        target = out[i]
        if point[0] < 0:
            for k in range(target.shape[0]):
                target[k] = samples[first + i, k]
            continue
        if not is_covered(point, height, width, tall, wide):
            for row in range(tall):
                line = target[row * fill.shape[0] : (row + 1) * fill.shape[0]]
                for k in range(fill.shape[0]):
                    line[k] = fill[k]
        for number in range(4):
            source = samples[first + i if number == 0 else partners[number - 1, i]]
            row, column, top, bottom, left, right = quarter(
                number, point, height, width, tall, wide
            )
            extent = max(right - left, 0) * pixel
            for place in range(top, bottom):
                begin = ((place - row) * width + left - column) * pixel
                line, given = target[(place * wide + left) * pixel :], source[begin:]
                for k in range(extent):
                    line[k] = given[k]


@kernel
def mosaic_instances(
    first: int, positions: Any, partners: Any, key: Any, probability: float, low: float, high: float, size: Any,
    result: Any, fill: Any, rows: int, samples: Any, out: Any,
) -> None:  # fmt: skip
    """Copy masks whose values from 1 to `rows` are numbers of boxes; later images continue the numbering."""
    (height, width), (tall, wide) = size, result
    for i in range(out.shape[0]):
        rng = start_draws(fold(key, positions[i]))
        point = meeting_point(rng, probability, low, high, tall, wide)
        target = out[i]
        if point[0] < 0:
            for k in range(target.shape[0]):
                target[k] = samples[first + i, k]
            continue
        if not is_covered(point, height, width, tall, wide):
            for k in range(target.shape[0]):
                target[k] = fill
        for number in range(4):
            source = samples[first + i if number == 0 else partners[number - 1, i]]
            row, column, top, bottom, left, right = quarter(
                number, point, height, width, tall, wide
            )
            more, extent = number * rows, max(right - left, 0)
            for place in range(top, bottom):
                line = target[place * wide + left :][:extent]
                given = source[(place - row) * width + left - column :][:extent]
                for k in range(extent):
                    value = np.int64(given[k])
                    line[k] = value + more if 1 <= value <= rows else value


@kernel
def mosaic_points(
    first: int, positions: Any, partners: Any, key: Any, probability: float, low: float, high: float, size: Any,
    result: Any, packed: bool, samples: Any, out: Any,
) -> None:  # fmt: skip
    """Write boxes or keypoints of one image after those of another, clipped to the visible parts.

    If they are `packed`, only the valid ones are written, as many as there is room for. The remaining rows are zeros.
    """
    (height, width), (tall, wide) = size, result
    numbers = samples.shape[2]
    valid = 2 if numbers == 3 else 4
    for i in range(out.shape[0]):
        rng = start_draws(fold(key, positions[i]))
        point = meeting_point(rng, probability, low, high, tall, wide)
        x = out[i]
        count = 0
        for number in range(4 if point[0] >= 0 else 1):
            source = samples[first + i if number == 0 else partners[number - 1, i]]
            row, column, top, bottom, left, right = quarter(
                number, point, height, width, tall, wide
            )
            for k in range(source.shape[0]):
                if count == x.shape[0]:
                    break
                for c in range(numbers):
                    x[count, c] = source[k, c]
                if point[0] >= 0:
                    move_point(x, count, row, column, top, bottom, left, right)
                if not packed or x[count, valid] > 0:
                    count += 1
        for k in range(count, x.shape[0]):
            for c in range(numbers):
                x[k, c] = np.float32(0.0)
