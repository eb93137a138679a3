"""Boxes and keypoints that follow the pixels of their image.

A row of `x` is (left, top, right, bottom, valid, visible, ...) or (x, y, valid), in pixels from the corner of the
image, so that the centre of its first pixel is at 0.5. A box is clipped to the image, and becomes zeros if it is empty
then; a keypoint outside keeps its place. Both are no longer valid then, and never become valid again. `visible` is the
share of a box that no op has cut off so far. A row may end before it, and columns after it stay unchanged.
"""

from typing import Any

import numpy as np

from .compilation import jitable, kernel

# Formats of boxes: (left, top, right, bottom), (left, top, width, height), (centre across, down, width, height).
XYXY, XYWH, CXCYWH = 0, 1, 2
# The format of keypoints in `open_points`.
KEYPOINTS = -1
# The largest rounding error of float32 in the visible share of a small box in a large image.
ROUNDING = 1e-4
# The number of points along each side of a box that are moved if its sides become curves, and of all points.
ALONG = 5
WITHIN_BOX = ALONG * ALONG


@kernel
def open_boxes(x: Any, form: Any, across: Any, down: Any, out: Any) -> None:
    """Convert boxes to the form that ops on them use, from a format whose units are `across` and `down` pixels.

    A box with a number that is not finite becomes zeros.
    """
    for k in range(x.shape[0]):
        finite = True
        for c in range(4):
            out[k, c] = np.float32(0.0)
            finite = finite and np.isfinite(x[k, c])
        out[k, 4], out[k, 5] = np.float32(0.0), np.float32(1.0)
        for c in range(4, x.shape[1]):
            out[k, c + 2] = x[k, c]
        if not finite:
            continue
        left, top = np.float64(x[k, 0]) * across, np.float64(x[k, 1]) * down
        right, bottom = np.float64(x[k, 2]) * across, np.float64(x[k, 3]) * down
        if form == CXCYWH:
            left, top = left - right / 2, top - bottom / 2
        if form != XYXY:
            right, bottom = left + right, top + bottom
        out[k, 0], out[k, 1] = np.float32(left), np.float32(top)
        out[k, 2], out[k, 3] = np.float32(right), np.float32(bottom)
        if out[k, 2] > out[k, 0] and out[k, 3] > out[k, 1]:
            out[k, 4] = np.float32(1.0)


@kernel
def open_keypoints(x: Any, out: Any) -> None:
    """Add a number to each keypoint that says whether it is valid, which finite numbers are."""
    for k in range(x.shape[0]):
        valid = True
        for c in range(2):
            out[k, c] = x[k, c]
            valid = valid and np.isfinite(x[k, c])
        out[k, 2] = np.float32(1.0 if valid else 0.0)


@kernel
def open_points(x: Any, form: Any, normalized: Any, sizes: Any, out: Any) -> None:
    """Convert the boxes or keypoints of each of several images to the form that ops use.

    Row k of `sizes` begins with the height and the width of image k, in fractions of which normalised boxes are given.
    """
    for k in range(x.shape[0]):
        if form == KEYPOINTS:
            open_keypoints(x[k], out[k])
        elif normalized:
            open_boxes(x[k], form, np.float64(sizes[k, 1]), np.float64(sizes[k, 0]), out[k])
        else:
            open_boxes(x[k], form, 1.0, 1.0, out[k])


@jitable
def is_kept(x: Any, k: Any, least_area: Any, least_visible: Any) -> Any:
    """Tell whether a box is valid, and enough of it is left."""
    area = (np.float64(x[k, 2]) - x[k, 0]) * (np.float64(x[k, 3]) - x[k, 1])
    return x[k, 4] > 0 and area >= least_area and x[k, 5] >= least_visible - ROUNDING


@kernel
def close_boxes(
    x: Any, form: Any, across: Any, down: Any, least_area: Any, least_visible: Any, fills: Any, fill: Any, out: Any
) -> None:  # fmt: skip
    """Convert boxes back to a format; those of which too little is left become zeros.

    If it `fills`, the columns after the first four become `fill` where a box is not valid.
    """
    for k in range(out.shape[0]):
        kept = is_kept(x, k, least_area, least_visible)
        left, top = np.float64(x[k, 0]), np.float64(x[k, 1])
        right, bottom = np.float64(x[k, 2]), np.float64(x[k, 3])
        # A box that was not valid before stays as the ops left it.
        if x[k, 4] > 0 and not kept:
            left = top = right = bottom = np.float64(0)
        if form != XYXY:
            right, bottom = right - left, bottom - top
        if form == CXCYWH:
            left, top = left + right / 2, top + bottom / 2
        out[k, 0], out[k, 1] = np.float32(left / across), np.float32(top / down)
        out[k, 2], out[k, 3] = np.float32(right / across), np.float32(bottom / down)
        for c in range(4, out.shape[1]):
            out[k, c] = np.float32(fill) if fills and not kept else x[k, c + 2]


@kernel
def valid_boxes(x: Any, least_area: Any, least_visible: Any, out: Any) -> None:
    """Write whether each box is valid."""
    for k in range(out.shape[0]):
        out[k] = is_kept(x, k, least_area, least_visible)


@kernel
def sanitize_boxes(x: Any, least_side: Any, least_area: Any) -> None:
    """Replace boxes with a side or an area below these by zeros that are not valid; keypoints stay."""
    if x.shape[1] > 3:
        for k in range(x.shape[0]):
            across = np.float64(x[k, 2]) - np.float64(x[k, 0])
            down = np.float64(x[k, 3]) - np.float64(x[k, 1])
            large = across >= least_side and down >= least_side and across * down >= least_area
            if not (large and x[k, 4] > 0):
                for c in range(min(x.shape[1], 6)):
                    x[k, c] = np.float32(0.0)


@jitable
def window_coordinate(value: Any, start: Any, extent: Any, flipped: Any, size: Any) -> Any:
    """Map a coordinate of the input to the output, where the window is `size` wide."""
    moved = (np.float64(value) - start) * (size / extent)
    return size - moved if flipped else moved


@jitable
def map_point(matrix: Any, x: Any, y: Any) -> Any:
    """Map a point through a matrix, with the centres of pixels at whole numbers."""
    a, b, c, d, e, f, g, h, w = matrix
    x, y = np.float64(x) - 0.5, np.float64(y) - 0.5
    depth = g * x + h * y + w
    return (a * x + b * y + c) / depth + 0.5, (d * x + e * y + f) / depth + 0.5


@jitable
def inverse(matrix: Any) -> Any:
    """Return the inverse of a matrix."""
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
    """Write a box clipped to the image, or zeros."""
    clip_box(x, k, left, top, right, bottom, (0.0, np.float64(height), 0.0, np.float64(width)))


@jitable
def clip_box(x: Any, k: Any, left: Any, top: Any, right: Any, bottom: Any, part: Any) -> None:
    """Write a box clipped to a part of the image, (top, bottom, left, right), or zeros."""
    area = (right - left) * (bottom - top)
    left, right = max(left, part[2]), min(right, part[3])
    top, bottom = max(top, part[0]), min(bottom, part[1])
    # Not `or`: NaN is not valid either.
    valid = x[k, 4] > 0 and right > left and bottom > top
    x[k, 0] = np.float32(left if valid else 0.0)
    x[k, 1] = np.float32(top if valid else 0.0)
    x[k, 2] = np.float32(right if valid else 0.0)
    x[k, 3] = np.float32(bottom if valid else 0.0)
    x[k, 4] = np.float32(1.0 if valid else 0.0)
    if x.shape[1] > 5:
        left_over = (right - left) * (bottom - top) / area if valid else 0.0
        x[k, 5] = np.float32(x[k, 5] * left_over)


@jitable
def place_in_box(x: Any, k: Any, number: Any) -> Any:
    """Return point `number` of those spread over a box, as (x, y); the first one is its upper left corner."""
    left, top, right, bottom = (
        *(np.float64(x[k, 0]), np.float64(x[k, 1])),
        *(np.float64(x[k, 2]), np.float64(x[k, 3])),
    )
    side = left + (right - left) * ((number % ALONG) / (ALONG - 1.0))
    level = top + (bottom - top) * ((number // ALONG) / (ALONG - 1.0))
    return side, level


@jitable
def store_keypoint(x: Any, k: Any, across: Any, down: Any, height: Any, width: Any) -> None:
    """Write a keypoint, and whether it is still in the image."""
    valid = x[k, 2] > 0 and 0 <= across < width and 0 <= down < height
    x[k, 0] = np.float32(across)
    x[k, 1] = np.float32(down)
    x[k, 2] = np.float32(1.0 if valid else 0.0)


@jitable
def move_point(
    x: Any, k: Any, row: Any, column: Any, top: Any, bottom: Any, left: Any, right: Any
) -> None:
    """Move point k of an image that begins at (row, column) of another one, and clip it to the visible part."""
    across, down = np.float64(x[k, 0]) + column, np.float64(x[k, 1]) + row
    if x.shape[1] == 3:
        valid = x[k, 2] > 0 and left <= across < right and top <= down < bottom
        x[k, 0], x[k, 1] = np.float32(across), np.float32(down)
        x[k, 2] = np.float32(1.0 if valid else 0.0)
    else:
        end, below = np.float64(x[k, 2]) + column, np.float64(x[k, 3]) + row
        part = (np.float64(top), np.float64(bottom), np.float64(left), np.float64(right))
        clip_box(x, k, across, down, end, below, part)


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
    """Map points through the window that becomes an image of height x width."""
    for k in range(x.shape[0]):
        across = window_coordinate(x[k, 0], left, wide, mirrored, width)
        down = window_coordinate(x[k, 1], top, tall, upside, height)
        if x.shape[1] == 3:
            store_keypoint(x, k, across, down, height, width)
        else:
            right = window_coordinate(x[k, 2], left, wide, mirrored, width)
            bottom = window_coordinate(x[k, 3], top, tall, upside, height)
            if mirrored:
                across, right = right, across
            if upside:
                down, bottom = bottom, down
            store_box(x, k, across, down, right, bottom, height, width)


@jitable
def follow_window(x: Any, window: Any, height: Any, width: Any) -> None:
    """Map points through a drawn window: (top, height, flipped, left, width, flipped)."""
    top, tall, upside, left, wide, mirrored = window
    window_points(x, top, tall, upside != 0, left, wide, mirrored != 0, height, width)


@kernel
def follow_windows(x: Any, windows: Any, sizes: Any, parts: Any) -> None:
    """Map the points of each of several images through the window that was drawn for it.

    Row k of `sizes` ends with the height and the width that the window makes of image k. If the results are `parts` of
    frames, the drawn numbers have their height and width in place of whether they are flipped.
    """
    for k in range(x.shape[0]):
        top, tall, upside = windows[k, 0], windows[k, 1], windows[k, 2]
        left, wide, mirrored = windows[k, 3], windows[k, 4], windows[k, 5]
        if parts:
            window_points(x[k], top, tall, False, left, wide, False, upside, mirrored)
        else:
            height, width = sizes[k, 2], sizes[k, 3]
            window_points(x[k], top, tall, upside != 0, left, wide, mirrored != 0, height, width)


@jitable
def follow_centres(x: Any, window: Any, height: Any, width: Any) -> None:
    """Map points as `follow_window`; boxes whose centre is not inside the window are no longer valid."""
    top, tall, _, left, wide, _ = window
    if x.shape[1] > 3:
        for k in range(x.shape[0]):
            if not is_centred(x, k, top, tall, left, wide):
                x[k, 4] = np.float32(0.0)
    follow_window(x, window, height, width)


@jitable
def is_centred(x: Any, k: Any, top: Any, tall: Any, left: Any, wide: Any) -> Any:
    """Tell whether the centre of a box is inside a window."""
    across = (np.float64(x[k, 0]) + np.float64(x[k, 2])) / 2
    down = (np.float64(x[k, 1]) + np.float64(x[k, 3])) / 2
    return left < across < left + wide and top < down < top + tall


@jitable
def best_overlap(x: Any, top: Any, tall: Any, left: Any, wide: Any) -> Any:
    """Return the largest intersection over union of a window and a valid box with its centre inside.

    Without such a box it is -1.
    """
    best = -1.0
    for k in range(x.shape[0]):
        if x[k, 4] > 0 and is_centred(x, k, top, tall, left, wide):
            begin, end = np.float64(x[k, 0]), np.float64(x[k, 2])
            above, below = np.float64(x[k, 1]), np.float64(x[k, 3])
            common = (min(end, left + wide) - max(begin, left)) * (
                min(below, top + tall) - max(above, top)
            )
            union = (end - begin) * (below - above) + wide * tall - common
            best = max(best, common / union)
    return best


@kernel
def map_points(x: Any, matrix: Any, height: Any, width: Any) -> None:
    """Map points of an image that is looked up through a matrix; a box becomes the one around its moved corners."""
    forward = inverse(matrix)
    for k in range(x.shape[0]):
        across, down = map_point(forward, x[k, 0], x[k, 1])
        if x.shape[1] == 3:
            store_keypoint(x, k, across, down, height, width)
            continue
        left, top, right, bottom = across, down, across, down
        for corner in range(1, 4):
            across, down = map_point(forward, x[k, 2 * (corner % 2)], x[k, 1 + 2 * (corner // 2)])
            left, right = min(left, across), max(right, across)
            top, bottom = min(top, down), max(bottom, down)
        store_box(x, k, left, top, right, bottom, height, width)
