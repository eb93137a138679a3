"""Which rows make up a batch: position in the stream -> positions and rows of that batch, by arithmetic alone.

The stream is one epoch after another, each a new permutation of all rows; position p is row p % rows of epoch
p // rows. Everything follows from the position of a batch's first sample, so there is nothing to keep but that.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import ArgumentError
from .kernels.shuffling import epoch_permutation
from .picking import Picker

Remainder: TypeAlias = Literal["straddle", "keep", "drop", "pad"]
REMAINDERS = ("straddle", "keep", "drop", "pad")
# Positions are 64-bit integers.
MOST_SAMPLES = 1 << 63


class Span(NamedTuple):
    """One batch: `valid` samples from `position`, filled up to `size`; the next batch begins at `following`."""

    position: int
    valid: int
    size: int
    following: int


@dataclass(frozen=True)
class Order:
    """The order of a stream of `rows` rows in batches of `batch_size`.

    What happens where an epoch does not divide into batches:

    straddle  batches go over the end of an epoch; only the very last one of a finite stream may be short
    keep      the last batch of each epoch is short
    drop      the last rows of each epoch are left out when they do not fill a batch
    pad       the last batch of each epoch is filled with rows from the start of that epoch, marked in a mask
    """

    rows: int
    batch_size: int
    shuffle: bool
    seed: int
    epochs: int | None
    remainder: Remainder
    # Which row stands where; None is all rows once in every epoch.
    picker: Picker | None = None

    def __post_init__(self) -> None:
        if self.remainder not in REMAINDERS:
            raise ArgumentError(
                f"`remainder` (={self.remainder!r}) must be one of {', '.join(map(repr, REMAINDERS))}."
            )
        if self.remainder == "drop" and self.batch_size > self.rows:
            raise ArgumentError(
                f"`batch_size` (={self.batch_size}) must not exceed the {self.rows} rows with "
                'remainder="drop": every batch would be dropped.'
            )

    @property
    def end(self) -> int | None:
        """The position after the last sample; None while endless."""
        return None if self.epochs is None else self.epochs * self.rows

    @property
    def steps_per_epoch(self) -> int:
        """Batches that begin in one epoch; without meaning for "straddle"."""
        whole, rest = divmod(self.rows, self.batch_size)
        return whole + (rest > 0 and self.remainder != "drop")

    @property
    def steps(self) -> int | None:
        """Batches in the stream; None while endless."""
        if self.epochs is None:
            return None
        return self.first_step(self.epochs)

    def position_of(self, step: int) -> int:
        """Where batch `step` begins."""
        if self.remainder == "straddle":
            return step * self.batch_size
        epoch, step_in_epoch = divmod(step, self.steps_per_epoch)
        return epoch * self.rows + step_in_epoch * self.batch_size

    def first_step(self, epoch: int) -> int:
        """The first batch that begins in an epoch."""
        if self.remainder == "straddle":
            return -(-epoch * self.rows // self.batch_size)
        return epoch * self.steps_per_epoch

    def short(self, position: int) -> int:
        """The size of the next batch from `position` on that is not a whole one; 0 if there will be none."""
        if self.remainder == "keep":
            return (self.rows - position % self.rows) % self.batch_size
        if self.remainder == "straddle" and self.end is not None:
            return max(0, self.end - position) % self.batch_size
        return 0

    def reaches(self, position: int) -> bool:
        """Whether a batch that begins at `position` has positions of 64 bits, also where it is padded."""
        return position + self.rows + self.batch_size < MOST_SAMPLES

    def span(self, position: int) -> Span | None:
        """The batch that begins at `position`, or None at the end of the stream."""
        size = self.batch_size
        if not self.reaches(position):
            return None
        left = self.rows - position % self.rows
        if self.remainder == "drop" and left < size:
            position += left
            left = self.rows
        if self.end is not None and position >= self.end:
            return None
        if self.remainder == "straddle":
            valid = size if self.end is None else min(size, self.end - position)
            return Span(position, valid, valid, position + valid)
        valid = min(size, left)
        following = position + valid
        if self.remainder == "drop" and left - valid < size:
            following = position + left
        return Span(position, valid, size if self.remainder == "pad" else valid, following)

    def positions(self, span: Span, places: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """The stream position of the samples at these places of a batch, or of all of them.

        Padding repeats positions of the same epoch.
        """
        if places is None:
            places = np.arange(span.size, dtype=np.int64)
        if span.size == span.valid:
            return span.position + places
        offset = span.position % self.rows
        return (offset + places) % self.rows + (span.position - offset)

    def rows_of(self, span: Span) -> NDArray[np.int64]:
        """The row of every sample of a batch."""
        return self.rows_at(self.positions(span))

    def rows_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows at positions of the stream, which ascend but for padding."""
        if self.picker is not None:
            return self.picker.rows_at(positions)
        if not self.shuffle or len(positions) == 0:
            return positions % self.rows
        # Padding is of the epoch of the others.
        first, last = int(positions[0]) // self.rows, int(positions[-1]) // self.rows
        if first == last:
            # All but "straddle" stay within one epoch.
            return epoch_permutation(self.rows, self.seed, first).at(positions % self.rows)
        out = np.empty_like(positions)
        epochs = positions // self.rows
        for epoch in range(first, last + 1):
            start, stop = np.searchsorted(epochs, [epoch, epoch + 1])
            places = positions[start:stop] - epoch * self.rows
            out[start:stop] = epoch_permutation(self.rows, self.seed, epoch).at(places)
        return out
