"""Order of the stream: position -> rows of the batch that begins there, by arithmetic alone.

The stream is one epoch after another, each a new permutation of all rows. Position p is place p % rows of epoch
p // rows. Everything follows from the position of a batch's first sample, so that position is the only state.
"""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loaderx.kernels.shuffling import epoch_permutation

from .remainder import Remainder, RemainderName, Span, remainder_policy
from .sampling import RowSampler

# Positions are 64-bit integers.
MOST_SAMPLES = 1 << 63


@dataclass(frozen=True)
class Order:
    """Order of a stream of `rows` rows in batches of `batch_size`."""

    rows: int
    batch_size: int
    shuffle: bool
    seed: int
    epochs: int | None
    remainder: RemainderName
    # Sampler of the rows; None: every row once in every epoch.
    sampler: RowSampler | None = None

    def __post_init__(self) -> None:
        _ = self.policy  # raises for an unknown name

    @functools.cached_property
    def policy(self) -> Remainder:
        """Remainder policy, for epochs that do not divide into batches."""
        return remainder_policy(self.remainder, self.rows, self.batch_size)

    @property
    def end(self) -> int | None:
        """Position after the last sample; None while endless."""
        return None if self.epochs is None else self.epochs * self.rows

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches that begin in one epoch; without meaning for "straddle"."""
        return self.policy.steps_per_epoch

    @property
    def steps(self) -> int | None:
        """Number of batches in the stream; None while endless."""
        if self.epochs is None:
            return None
        return self.first_step(self.epochs)

    def position_of(self, step: int) -> int:
        """Return where batch `step` begins."""
        return self.policy.position_of(step)

    def first_step(self, epoch: int) -> int:
        """Return the first batch that begins in an epoch."""
        return self.policy.first_step(epoch)

    def short(self, position: int) -> int:
        """Return the size of the next short batch from `position` on; 0 if there is none."""
        return self.policy.short(position, self.end)

    def reaches(self, position: int) -> bool:
        """Return True if all positions of a batch that begins at `position` fit into 64 bits, padding included."""
        return position + self.rows + self.batch_size < MOST_SAMPLES

    def span(self, position: int) -> Span | None:
        """Return the batch that begins at `position`, or None at the end of the stream."""
        if not self.reaches(position):
            return None
        position = self.policy.start(position)
        end = self.end
        if end is not None and position >= end:
            return None
        return self.policy.span(position, end)

    def positions(self, span: Span, places: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return the stream positions of the samples at `places` of a batch, by default at all of them.

        Padding repeats positions of the same epoch.
        """
        if places is None:
            places = np.arange(span.size, dtype=np.int64)
        if span.size == span.valid:
            return span.position + places
        offset = span.position % self.rows
        return (offset + places) % self.rows + (span.position - offset)

    def rows_of(self, span: Span) -> NDArray[np.int64]:
        """Return the row of every sample of a batch."""
        return self.rows_at(self.positions(span))

    def rows_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows at positions of the stream. The positions ascend, except for padding."""
        if self.sampler is not None:
            return self.sampler.rows_at(positions)
        if not self.shuffle or len(positions) == 0:
            return positions % self.rows
        # Padding belongs to the same epoch as the samples before it.
        first, last = int(positions[0]) // self.rows, int(positions[-1]) // self.rows
        if first == last:
            # All remainder policies but "straddle" stay within one epoch.
            return epoch_permutation(self.rows, self.seed, first).at(positions % self.rows)
        out = np.empty_like(positions)
        epochs = positions // self.rows
        for epoch in range(first, last + 1):
            start, stop = np.searchsorted(epochs, [epoch, epoch + 1])
            places = positions[start:stop] - epoch * self.rows
            out[start:stop] = epoch_permutation(self.rows, self.seed, epoch).at(places)
        return out
