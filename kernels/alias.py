"""Weighted sampling with replacement: Walker's alias method, with the table that Vose (1991) builds.

Every row has a slot of the same size. The row's own part of the slot is `thresholds`, in units of 2^-32. The rest
belongs to another row, its alias. A draw chooses a slot and then one of its two rows, which takes the same time for any
number of rows.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compilation import kernel
from .random import draw_bits, fold

UNIT = 4294967296.0
HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)


@kernel
def build_alias(
    shares: NDArray[np.float64], thresholds: NDArray[np.uint32], aliases: NDArray[np.int64]
) -> None:
    """Build the slots of rows whose mean share is 1; `shares` is overwritten."""
    rows = shares.shape[0]
    waiting = np.empty(rows, np.int64)
    # Rows with less than a slot from the front, rows with more than one from the back.
    poor, rich = 0, rows
    for row in range(rows):
        aliases[row] = row
        thresholds[row] = np.uint32(0xFFFFFFFF)
        if shares[row] < 1.0:
            waiting[poor] = row
            poor += 1
        else:
            rich -= 1
            waiting[rich] = row
    while poor > 0 and rich < rows:
        poor -= 1
        row, giver = waiting[poor], waiting[rich]
        thresholds[row] = np.uint32(min(shares[row] * UNIT, UNIT - 1.0))
        aliases[row] = giver
        shares[giver] -= 1.0 - shares[row]
        if shares[giver] < 1.0:
            rich += 1
            waiting[poor] = giver
            poor += 1
    # The rows that are left have a whole slot, except for rounding.


@kernel
def draw_rows(
    key: Any,
    positions: NDArray[np.int64],
    thresholds: NDArray[np.uint32],
    aliases: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    """Draw the row at every position of the stream."""
    rows = np.uint64(aliases.shape[0])
    for i in range(positions.shape[0]):
        state = fold(key, positions[i])
        bits = draw_bits(state, 0)
        # The upper half of a product of 64 and up to 32 bits, from two products that fit.
        slot = np.int64(((bits >> HALF) * rows + (((bits & LOW) * rows) >> HALF)) >> HALF)
        own = (draw_bits(state, 1) >> HALF) < np.uint64(thresholds[slot])
        out[i] = slot if own else aliases[slot]
