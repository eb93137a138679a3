"""`Permutation`: the shuffle of one epoch with the indexing of a NumPy array, computed row by row."""

import functools
import math
import operator
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from . import feistel
from .keys import derive_key
from .random import ORDER

# The largest grid whose sides are numbers of 31 bits.
MOST_ROWS = 1 << 62


class Permutation:
    """Permutation of `rows` numbers that belongs to a 64-bit key. It stores no numbers, and takes 10 ns per row.

    `len`, `[place]`, `[start:stop:step]` and `[array of places]` are those of an array of `rows` integers, and
    `np.asarray` makes that array.
    """

    def __init__(self, rows: int, key: int) -> None:
        self._rows = rows
        self._height = math.isqrt(rows - 1) + 1
        self._width = -(-rows // self._height)
        small = rows < feistel.SMALL
        self._keys = np.empty(feistel.ROUNDS_SMALL if small else feistel.ROUNDS, np.uint32)
        feistel.round_keys(np.uint64(key), self._keys)

    @property
    def parameters(self) -> tuple[int, int, int, NDArray[np.uint32]]:
        """Return the arguments of the kernels: rows, height, width, keys."""
        return self._rows, self._height, self._width, self._keys

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows at these places, which must be inside."""
        out = np.empty(len(places), np.int64)
        scratch = np.empty((2, len(places)), np.uint32)
        feistel.permute(places, self._rows, self._height, self._width, self._keys, scratch, out)
        return out

    def __len__(self) -> int:
        return self._rows

    @overload
    def __getitem__(self, places: int) -> int: ...
    @overload
    def __getitem__(self, places: Any) -> NDArray[np.int64]: ...
    def __getitem__(self, places: Any) -> int | NDArray[np.int64]:
        """Return the rows at a place, a slice or an array of places."""
        if isinstance(places, slice):
            return self.at(np.arange(*places.indices(self._rows), dtype=np.int64))
        found = np.asarray(places)
        if found.size == 0:
            found = found.astype(np.int64)
        if found.dtype.kind not in "iu":
            raise IndexError(
                f"a permutation is indexed by integers, slices and arrays of integers, not by {places!r}."
            )
        inside = (found < self._rows) & (found >= -self._rows)
        if not inside.all():
            place = int(found[~inside].flat[0])
            raise IndexError(f"place {place} is outside of a permutation of {self._rows} rows.")
        # Unsigned numbers of 64 bits are below the number of rows, too.
        wanted = found.astype(np.int64)
        rows = self.at(np.where(wanted < 0, wanted + self._rows, wanted).reshape(-1))
        return int(rows[0]) if found.ndim == 0 else rows.reshape(found.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a permutation is computed, so its array is always a new one.")
        return self[:].astype(np.int64 if dtype is None else dtype, copy=False)

    def __repr__(self) -> str:
        return f"<permutation of {self._rows} rows>"


@functools.lru_cache(maxsize=32)
def epoch_permutation(rows: int, seed: int, epoch: int) -> Permutation:
    """Return the permutation of one epoch.

    Its key depends on (seed, epoch), so no two epochs of any seeds are related.
    """
    return Permutation(rows, derive_key(seed, ORDER, epoch))


def permutation(n: int, seed: int = 0, epoch: int = 0) -> Permutation:
    """Return the order in which a shuffling `DataLoader` with this seed reads `n` rows in one epoch.

    Nothing of length `n` is allocated: each row is computed on demand.

    >>> order = permutation(1_000_000_000, seed=7, epoch=3)
    >>> len(order), order[:4].tolist(), order[-1]
    (1000000000, [884295797, 891832875, 210612547, 671331965], 162466650)
    """
    names = ("n", "seed", "epoch")
    least, most = (1, 0, 0), (MOST_ROWS, (1 << 64) - 1, (1 << 64) - 1)
    numbers = []
    for name, value, low, high in zip(names, (n, seed, epoch), least, most, strict=True):
        try:
            number = operator.index(value)
        except TypeError:
            raise TypeError(f"`{name}` (={value!r}) must be an integer.") from None
        if not low <= number <= high:
            raise ValueError(f"`{name}` (={value!r}) must be an integer from {low} to {high}.")
        numbers.append(number)
    return epoch_permutation(*numbers)
