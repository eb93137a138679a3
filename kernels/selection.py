"""Order statistics: the value at a rank, without sorting."""

from typing import Any

import numpy as np

from .compilation import kernel

# Bits of a key that are counted in one pass over all values.
DIGIT = 11


@kernel
def sortable_keys(x: Any, keys: Any) -> None:
    """Convert float32 values to integers in the same order, from their bits."""
    bits = x.view(np.uint32)
    top = np.uint32(0x80000000)
    for k in range(bits.shape[0]):
        word = bits[k]
        keys[k] = ~word if word & top else word | top


@kernel
def value_at_rank(keys: Any, rank: Any, counts: Any, found: Any) -> None:
    """Find the value with `rank` values before it in order, into found[0]: digit by digit of its key."""
    prefix, known, left = np.uint32(0), 0, rank
    while known < 32:
        digit = min(DIGIT, 32 - known)
        shift = np.uint32(32 - known - digit)
        counts[:] = 0
        mask = np.uint32((1 << digit) - 1)
        if known == 0:
            for k in range(keys.shape[0]):
                counts[(keys[k] >> shift) & mask] += 1
        else:
            above = np.uint32(32 - known)
            for k in range(keys.shape[0]):
                if keys[k] >> above == prefix:
                    counts[(keys[k] >> shift) & mask] += 1
        place = 0
        while left >= counts[place]:
            left -= counts[place]
            place += 1
        prefix = np.uint32((np.uint64(prefix) << np.uint64(digit)) | np.uint64(place))
        known += digit
    top = np.uint32(0x80000000)
    found.view(np.uint32)[0] = prefix ^ top if prefix & top else ~prefix
