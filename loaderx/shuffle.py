"""A permutation of any number of rows that costs nothing to open and a few nanoseconds per row."""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .kernels import permutation
from .kernels.random import fold


class Permutation:
    """The permutation of `rows` numbers that belongs to a 64-bit key."""

    def __init__(self, rows: int, key: int) -> None:
        self._rows = rows
        self._height = math.isqrt(rows - 1) + 1
        self._width = -(-rows // self._height)
        small = rows < permutation.SMALL
        self._keys = np.empty(permutation.ROUNDS_SMALL if small else permutation.ROUNDS, np.uint32)
        permutation.round_keys(np.uint64(key), self._keys)

    @property
    def parameters(self) -> tuple[int, int, int, NDArray[np.uint32]]:
        """By which kernels compute it: rows, height, width, keys."""
        return self._rows, self._height, self._width, self._keys

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows at these places."""
        out = np.empty(len(places), np.int64)
        scratch = np.empty((2, len(places)), np.uint32)
        permutation.permute(places, self._rows, self._height, self._width, self._keys, scratch, out)
        return out


def number_of(names: Sequence[str]) -> int:
    """A 64-bit number for some fields, by which what is drawn for them is told from what others draw."""
    return int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[:8], "little")


def derive(seed: int, *numbers: int) -> int:
    """A 64-bit key from a seed and what it is for."""
    key = np.uint64(seed)
    for number in numbers:
        key = np.uint64(fold(key, np.uint64(number)))
    return int(key)
