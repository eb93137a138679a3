"""Boxes and keypoints that follow an image: where its pixels go, they go.

A row of `x` is (left, top, right, bottom, valid) or (x, y, valid), in pixels from the corner of the image, so that the
centre of its first pixel is at 0.5. A box is clipped to the image, and one of which nothing is left becomes zeros; a
keypoint outside keeps its place. Both are no longer valid then, and never again.
"""

from typing import Any

import numpy as np

from .compilation import jitable, kernel

# So many points along each side of a box are moved where its sides become curves, and so many in all.
ALONG = 5
WITHIN_BOX = ALONG * ALONG


@jitable
def through_window(value: Any, start: Any, extent: Any, flipped: Any, size: Any) -> Any:
    """A coordinate of the input as one of the output, of which the window is `size` wide."""
    moved = (np.float64(value) - start) * (size / extent)
    return size - moved if flipped else moved


@jitable
def through_map(matrix: Any, x: Any, y: Any) -> Any:
    """Where a matrix takes a point, with the centres of pixels at whole numbers."""
    a, b, c, d, e, f, g, h, w = matrix
    x, y = np.float64(x) - 0.5, np.float64(y) - 0.5
    depth = g * x + h * y + w
    return (a * x + b * y + c) / depth + 0.5, (d * x + e * y + f) / depth + 0.5


@jitable
def inverse(matrix: Any) -> Any:
    """The matrix of the way back."""
    a, b, c, d, e, f, g, h, w = matrix
    first, second, third = e * w - f * h, f * g - d * w, d * h - e * g
    scale = 1.0 / (a * first + b * second + c * third)
    return (
        first * scale, (c * h - b * w) * scale, (b * f - c * e) * scale,
        second * scale, (a * w - c * g) * scale, (c * d - a * f) * scale,
        third * scale, (b * g - a * h) * scale, (a * e - b * d) * scale,
    )  # fmt: skip


@jitable
def store_box(
    x: Any, k: Any, left: Any, top: Any, right: Any, bottom: Any, height: Any, width: Any
) -> None:
    """A box clipped to the image, or zeros."""
    left, right = max(left, 0.0), min(right, np.float64(width))
    top, bottom = max(top, 0.0), min(bottom, np.float64(height))
    # Not `or`: what is no number is not valid either.
    valid = x[k, 4] > 0 and right > left and bottom > top
    x[k, 0] = np.float32(left if valid else 0.0)
    x[k, 1] = np.float32(top if valid else 0.0)
    x[k, 2] = np.float32(right if valid else 0.0)
    x[k, 3] = np.float32(bottom if valid else 0.0)
    x[k, 4] = np.float32(1.0 if valid else 0.0)


@jitable
def place_in_box(x: Any, k: Any, number: Any) -> Any:
    """Point `number` of those spread over a box, as (x, y): the first one is its left upper corner."""
    left, top, right, bottom = (
        *(np.float64(x[k, 0]), np.float64(x[k, 1])),
        *(np.float64(x[k, 2]), np.float64(x[k, 3])),
    )
    side = left + (right - left) * ((number % ALONG) / (ALONG - 1.0))
    level = top + (bottom - top) * ((number // ALONG) / (ALONG - 1.0))
    return side, level


@jitable
def store_keypoint(x: Any, k: Any, across: Any, down: Any, height: Any, width: Any) -> None:
    """A keypoint, and whether it is still in the image."""
    valid = x[k, 2] > 0 and 0 <= across < width and 0 <= down < height
    x[k, 0] = np.float32(across)
    x[k, 1] = np.float32(down)
    x[k, 2] = np.float32(1.0 if valid else 0.0)


@kernel
def window_points(
    x: Any,
    top: Any,
    tall: Any,
    upside: Any,
    left: Any,
    wide: Any,
    mirrored: Any,
    height: Any,
    width: Any,
) -> None:
    """Points seen through the window that becomes an image of height x width."""
    for k in range(x.shape[0]):
        across = through_window(x[k, 0], left, wide, mirrored, width)
        down = through_window(x[k, 1], top, tall, upside, height)
        if x.shape[1] == 3:
            store_keypoint(x, k, across, down, height, width)
        else:
            right = through_window(x[k, 2], left, wide, mirrored, width)
            bottom = through_window(x[k, 3], top, tall, upside, height)
            if mirrored:
                across, right = right, across
            if upside:
                down, bottom = bottom, down
            store_box(x, k, across, down, right, bottom, height, width)


@jitable
def follow_window(x: Any, window: Any, height: Any, width: Any) -> None:
    """The same for a window as it is drawn: (top, height, flipped, left, width, flipped)."""
    top, tall, upside, left, wide, mirrored = window
    window_points(x, top, tall, upside != 0, left, wide, mirrored != 0, height, width)


@kernel
def map_points(x: Any, matrix: Any, height: Any, width: Any) -> None:
    """Points of an image that is looked up through a matrix; a box becomes the one around its moved corners."""
    forward = inverse(matrix)
    for k in range(x.shape[0]):
        across, down = through_map(forward, x[k, 0], x[k, 1])
        if x.shape[1] == 3:
            store_keypoint(x, k, across, down, height, width)
            continue
        left, top, right, bottom = across, down, across, down
        for corner in range(1, 4):
            across, down = through_map(forward, x[k, 2 * (corner % 2)], x[k, 1 + 2 * (corner // 2)])
            left, right = min(left, across), max(right, across)
            top, bottom = min(top, down), max(bottom, down)
        store_box(x, k, left, top, right, bottom, height, width)
