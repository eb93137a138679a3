"""Shuffled gather: permutation, addresses and copies of all fields of a batch in one compiled call.

Most of the time of a small batch is the overhead of calling kernels. This is the fast path for shuffled arrays and .npy
files without transforms.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loaderx.buffers import leased_address
from loaderx.kernels.gathering import copy_shuffled, copy_shuffled_holding_gil
from loaderx.kernels.shuffling import epoch_permutation
from loaderx.sources import NPDataset, Source
from loaderx.spec import Spec
from loaderx.stream.order import Order
from loaderx.stream.remainder import Span

# Up to so many bytes the GIL is kept: while other threads want it, getting it back takes longer than the copy.
FEW_BYTES = 32 * 1024


class ShuffledGather:
    """Shuffled gather of fields that are the rows of one array each."""

    def __init__(self, order: Order, sources: Sequence[NPDataset]) -> None:
        self._order = order
        self._sources = sources
        self._sizes = [source.spec.nbytes for source in sources]
        self._row_bytes = sum(self._sizes)
        self._fields = np.array(
            [[*source.single, source.spec.nbytes, 0] for source in sources],  # type: ignore[misc]
            np.int64,
        )

    @classmethod
    def of(
        cls, order: Order, sources: Sequence[Source], specs: Sequence[Spec]
    ) -> "ShuffledGather | None":
        """Return the gather for these sources and specs; None if it does not support them."""
        plain = [
            source
            for source, spec in zip(sources, specs, strict=True)
            if isinstance(source, NPDataset) and source.single and source.spec == spec
        ]
        if not order.shuffle or order.sampler is not None or len(plain) < len(sources):
            return None
        return cls(order, plain)

    def reaches(self, span: Span) -> bool:
        """Return True if it supports a batch: one epoch, and no padding."""
        rows = self._order.rows
        return span.size == span.valid and span.position % rows + span.size <= rows

    def fill(
        self, span: Span, start: int, stop: int, arrays: Sequence[NDArray[np.generic]]
    ) -> None:
        """Fill the places from `start` to `stop` of a batch."""
        for source in self._sources:
            source.check()
        epoch, place = divmod(span.position, self._order.rows)
        targets = [
            leased_address(array) + start * size
            for array, size in zip(arrays, self._sizes, strict=True)
        ]
        fields = self._fields.copy()
        fields[:, 3] = targets
        count = stop - start
        scratch, numbers = np.empty((2, count), np.uint32), np.empty(count, np.int64)
        permutation = epoch_permutation(self._order.rows, self._order.seed, epoch)
        copy = copy_shuffled_holding_gil if count * self._row_bytes <= FEW_BYTES else copy_shuffled
        copy(place + start, *permutation.parameters, fields, scratch, numbers)
