"""Keys of random numbers: a seed and the numbers of its purpose -> a 64-bit key."""

import hashlib
from collections.abc import Sequence

import numpy as np

from .random import fold


def derive_key(seed: int, *numbers: int) -> int:
    """Return a 64-bit key from a seed and the numbers of its purpose."""
    key = np.uint64(seed)
    for number in numbers:
        key = np.uint64(fold(key, np.uint64(number)))
    return int(key)


def fields_id(names: Sequence[str]) -> int:
    """Return a 64-bit number for some fields, so that different fields have different draws."""
    return int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[:8], "little")
