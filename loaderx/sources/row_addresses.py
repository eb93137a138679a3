"""Row addresses: memory that compiled code reads rows from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(eq=False, slots=True)
class RowAddresses:
    """Address of each row, or the entries from which `fetcher` makes a row.

    A fetcher is the address of a compiled function (entry of `addresses`, memory for the row, worker) -> address of the
    row. It returns a number below 0 on failure, and `failure` makes the exception for that row and number. `hold` keeps
    the memory alive.
    """

    addresses: NDArray[np.int64]
    fetcher: int = 0
    worker: int = 0
    hold: Any = None
    failure: Callable[[int, int], Exception] | None = None
    # Number of entries of each row along its first axis that are data and not padding; None is all.
    lengths: NDArray[np.int64] | None = None
    # Boxes of each row, as a C-contiguous array of the rows of their field, for ops that read them.
    boxes: NDArray[Any] | None = None

    def raise_failure(self, place: int, reason: int) -> None:
        """Raise the exception for the number that the fetcher returned."""
        assert self.failure is not None
        raise self.failure(place, reason)


def addresses_of_rows(
    samples: NDArray[Any],
    lengths: NDArray[np.int64] | None = None,
    boxes: NDArray[Any] | None = None,
) -> RowAddresses:
    """Return the addresses of all rows of a C-contiguous array."""
    return RowAddresses(addresses_in(samples), hold=samples, lengths=lengths, boxes=boxes)


def addresses_in(samples: NDArray[Any]) -> NDArray[np.int64]:
    """Return the address of every row of a C-contiguous array."""
    pitch = samples.strides[0] if len(samples) else 0
    return samples.ctypes.data + np.arange(len(samples), dtype=np.int64) * pitch
