"""Rows that compiled code can reach."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(eq=False, slots=True)
class RowAddresses:
    """Where rows lie: their addresses, or what `fetcher` makes a row of.

    A fetcher is the address of a compiled function (what stands in `addresses`, memory for the row, worker) -> the
    address of the row. It gives a number below 0 where it cannot, and `failure` says of the row at a place what that
    means. The memory behind all these numbers lives as long as `hold`.
    """

    addresses: NDArray[np.int64]
    fetcher: int = 0
    worker: int = 0
    hold: Any = None
    failure: Callable[[int, int], Exception] | None = None
    # How many entries of each row along its first axis are data and not padding; None is all.
    lengths: NDArray[np.int64] | None = None
    # The boxes next to each row, as a C-contiguous array of the rows of their field, for ops that look at them.
    boxes: NDArray[Any] | None = None

    def raise_failure(self, place: int, reason: int) -> None:
        """Raise what the fetcher's number means."""
        assert self.failure is not None
        raise self.failure(place, reason)


def addresses_of_rows(
    samples: NDArray[Any],
    lengths: NDArray[np.int64] | None = None,
    boxes: NDArray[Any] | None = None,
) -> RowAddresses:
    """Every row of a C-contiguous array."""
    return RowAddresses(addresses_in(samples), hold=samples, lengths=lengths, boxes=boxes)


def addresses_in(samples: NDArray[Any]) -> NDArray[np.int64]:
    """The address of every row of a C-contiguous array."""
    pitch = samples.strides[0] if len(samples) else 0
    return samples.ctypes.data + np.arange(len(samples), dtype=np.int64) * pitch
