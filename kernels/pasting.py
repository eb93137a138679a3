"""Copy and paste: objects of one sample of a batch, given by a mask, are drawn one by one and pasted into another.

An object is all pixels of one value. Values of `background` are not objects. If `rows` is at least 0, only the values
from 1 to `rows` are objects, the numbers of the boxes; pasted objects continue the numbering. Whether an object is
pasted is a function of the key, the position and its value, so that image, mask and boxes agree on it. `masks` are
those of the whole batch. A sample that is its own partner stays unchanged.
"""

from typing import Any

import numpy as np

from .compilation import jitable, kernel
from .distributions import start_draws
from .memory import copy_bytes, load_bytes, trailing_zeros
from .random import as_uniform, draw_bits, fold

# The facts of an object: its number of pixels, and their first and last row and column.
COUNT, TOP, BOTTOM, LEFT, RIGHT = range(5)
FACTS = 5
# Entries of the cache of answers, a power of two: labels are few.
SLOTS = 256


@jitable
def happens(state: Any, probability: Any, own: Any, other: Any) -> Any:
    """Tell whether objects are pasted into the sample whose draws begin at `state`."""
    return own != other and (probability >= 1.0 or start_draws(state).random() < probability)


@jitable
def is_pasted(state: Any, value: Any, share: Any, rows: Any, background: Any) -> Any:
    """Tell whether the pixels of a value are pasted."""
    if rows >= 0 and not 1 <= value <= rows:
        return False
    for each in background:
        if value == each:
            return False
    of_value = np.uint64(fold(state, np.uint64(value)))
    return as_uniform(draw_bits(of_value, 0)) < share


@jitable
def is_pasted_again(
    state: Any, value: Any, share: Any, rows: Any, background: Any, known: Any
) -> Any:
    """Return `is_pasted`, of values that occur again from a cache: rows of value, answer, and whether it is known."""
    slot = value & (SLOTS - 1)
    if known[slot, 2] == 0 or known[slot, 0] != value:
        known[slot, 0], known[slot, 2] = value, 1
        known[slot, 1] = 1 if is_pasted(state, value, share, rows, background) else 0
    return known[slot, 1]


@jitable
def end_of_run(mask: Any, begin: Any) -> Any:
    """Return where the run of equal values at a place ends; eight bytes are compared at once."""
    label, stop, size = mask[begin], begin + 1, mask.shape[0]
    first, width = mask.ctypes.data, mask.itemsize
    step = 8 // width
    while stop + step <= size:
        place = first + stop * width
        # A value is compared with its neighbour, so all are equal to the first one.
        apart = load_bytes(place) ^ load_bytes(place - width)
        if apart != 0:
            return stop + trailing_zeros(apart) // (8 * width)
        stop += step
    while stop < size and mask[stop] == label:
        stop += 1
    return stop


@kernel
def paste_pixels(
    first: int, positions: Any, partners: Any, key: Any, probability: float, share: float, rows: int, background: Any,
    masks: Any, known: Any, samples: Any, out: Any,
) -> None:  # fmt: skip
    """Paste pixels of an image that belongs to a mask; they are copied as bytes.

    `known` is memory for a cache, int64 of (SLOTS, 3).
    """
    pixel = out.shape[1] // masks.shape[1]
    for i in range(out.shape[0]):
        own, other, target = samples[first + i], samples[partners[i]], out[i]
        copy_bytes(target.ctypes.data, own.ctypes.data, target.shape[0])
        state = fold(key, positions[i])
        if not happens(state, probability, first + i, partners[i]):
            continue
        for slot in range(SLOTS):
            known[slot, 2] = 0
        mask = masks[partners[i]]
        begin = 0
        # Runs of pixels with one answer: where labels change from pixel to pixel, they are longer than runs of a label.
        label = mask[0]
        pasted = is_pasted_again(state, np.int64(label), share, rows, background, known)
        while begin < mask.shape[0]:
            answer, stop = pasted, begin
            while answer == pasted:
                stop = end_of_run(mask, stop)
                if stop == mask.shape[0]:
                    break
                label = mask[stop]
                answer = is_pasted_again(state, np.int64(label), share, rows, background, known)
            if pasted == 1:
                place, size = begin * pixel, (stop - begin) * pixel
                copy_bytes(target.ctypes.data + place, other.ctypes.data + place, size)
            begin, pasted = stop, answer


@kernel
def paste_instances(
    first: int, positions: Any, partners: Any, key: Any, probability: float, share: float, rows: int, background: Any,
    masks: Any, samples: Any, out: Any,
) -> None:  # fmt: skip
    """Paste the masks themselves, whose values are numbers of boxes."""
    for i in range(out.shape[0]):
        own, mask = samples[first + i], masks[partners[i]]
        state = fold(key, positions[i])
        pastes = happens(state, probability, first + i, partners[i])
        last, pasted = np.int64(0), False
        for j in range(mask.shape[0]):
            value = np.int64(mask[j])
            if pastes and (j == 0 or value != last):
                pasted = is_pasted(state, value, share, rows, background)
                last = value
            out[i, j] = value + rows if pasted else own[j]


@jitable
def note_run(facts: Any, row: Any, begin: Any, stop: Any) -> None:
    """Add pixels of an object, in a row that is not above the earlier ones."""
    if facts[COUNT] == 0:
        facts[TOP], facts[LEFT], facts[RIGHT] = row, begin, stop - 1
    facts[COUNT] += stop - begin
    facts[BOTTOM] = row
    facts[LEFT], facts[RIGHT] = min(facts[LEFT], begin), max(facts[RIGHT], stop - 1)


@jitable
def cover_box(x: Any, k: Any, before: Any, after: Any) -> None:
    """Shrink a box to the pixels that are not covered, at sides without any; write zeros if all are covered."""
    if before[COUNT] == after[COUNT] or x[k, 4] <= 0:
        return
    if after[TOP] > before[TOP]:
        x[k, 1] = max(x[k, 1], np.float32(after[TOP]))
    if after[BOTTOM] < before[BOTTOM]:
        x[k, 3] = min(x[k, 3], np.float32(after[BOTTOM] + 1))
    if after[LEFT] > before[LEFT]:
        x[k, 0] = max(x[k, 0], np.float32(after[LEFT]))
    if after[RIGHT] < before[RIGHT]:
        x[k, 2] = min(x[k, 2], np.float32(after[RIGHT] + 1))
    x[k, 5] = np.float32(x[k, 5] * (after[COUNT] / before[COUNT]))
    if after[COUNT] == 0 or x[k, 2] <= x[k, 0] or x[k, 3] <= x[k, 1]:
        for c in range(6):
            x[k, c] = np.float32(0.0)


@kernel
def paste_boxes(
    first: int, positions: Any, partners: Any, key: Any, probability: float, share: float, rows: int, background: Any,
    width: int, masks: Any, facts: Any, samples: Any, out: Any,
) -> None:  # fmt: skip
    """Write boxes of the visible rest of the objects, then those of pasted ones; other rows are zeros.

    `facts` has room for three facts of each box: before, after, and of the partner's.
    """
    for i in range(out.shape[0]):
        own, other, x = samples[first + i], samples[partners[i]], out[i]
        for k in range(rows):
            for c in range(x.shape[1]):
                x[k, c] = own[k, c]
                x[rows + k, c] = np.float32(0.0)
        state = fold(key, positions[i])
        if not happens(state, probability, first + i, partners[i]):
            continue
        for k in range(rows):
            for number in range(3):
                facts[number, k, COUNT] = 0
        mask, above = masks[first + i], masks[partners[i]]
        last, pasted = np.int64(0), False
        for row in range(mask.shape[0] // width):
            line, line_above = mask[row * width :][:width], above[row * width :][:width]
            begin = 0
            while begin < width:
                here, there = line[begin], line_above[begin]
                stop = begin + 1
                while stop < width and line[stop] == here and line_above[stop] == there:
                    stop += 1
                value = np.int64(there)
                if row + begin == 0 or value != last:
                    pasted = is_pasted(state, value, share, rows, background)
                    last = value
                if pasted:
                    facts[2, value - 1, COUNT] += stop - begin
                value = np.int64(here)
                if 1 <= value <= rows:
                    note_run(facts[0, value - 1], row, begin, stop)
                    if not pasted:
                        note_run(facts[1, value - 1], row, begin, stop)
                begin = stop
        for k in range(rows):
            cover_box(x, k, facts[0, k], facts[1, k])
            if facts[2, k, COUNT] > 0 and other[k, 4] > 0:
                for c in range(x.shape[1]):
                    x[rows + k, c] = other[k, c]


@kernel
def paste_keypoints(
    first: int, positions: Any, partners: Any, key: Any, probability: float, share: float, rows: int, background: Any,
    width: int, masks: Any, samples: Any, out: Any,
) -> None:  # fmt: skip
    """Write keypoints, not valid any more if covered, then those on pasted pixels; other rows are zeros."""
    count = samples.shape[1]
    for i in range(out.shape[0]):
        own, other, x = samples[first + i], samples[partners[i]], out[i]
        state = fold(key, positions[i])
        pastes = happens(state, probability, first + i, partners[i])
        mask = masks[partners[i]]
        for k in range(count):
            for c in range(3):
                x[k, c] = own[k, c]
                x[count + k, c] = np.float32(0.0)
            if pastes and lies_on_pasted(x[k], state, share, rows, background, width, mask):
                x[k, 2] = np.float32(0.0)
            if pastes and lies_on_pasted(other[k], state, share, rows, background, width, mask):
                for c in range(3):
                    x[count + k, c] = other[k, c]


@jitable
def lies_on_pasted(
    point: Any, state: Any, share: Any, rows: Any, background: Any, width: Any, mask: Any
) -> Any:
    """Tell whether a valid keypoint is on a pixel of a mask that is pasted."""
    if point[2] <= 0 or not 0 <= point[0] < width or not 0 <= point[1] < mask.shape[0] // width:
        return False
    value = np.int64(mask[int(point[1]) * width + int(point[0])])
    return is_pasted(state, value, share, rows, background)
