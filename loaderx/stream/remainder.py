"""Remainder policies, for epochs that do not divide into batches.

straddle  batches continue into the next epoch; only the very last batch of a finite stream may be short
keep      the last batch of each epoch is short
drop      the last rows of each epoch are left out when they do not fill a batch
pad       the last batch of each epoch is filled with rows from the start of that epoch, and a mask tells which
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from loaderx.errors import ArgumentError

RemainderName: TypeAlias = Literal["straddle", "keep", "drop", "pad"]


class Span(NamedTuple):
    """Extent of one batch: `valid` samples from `position`, padded to `size`; the next one begins at `following`."""

    position: int
    valid: int
    size: int
    following: int


@dataclass(frozen=True)
class Remainder(ABC):
    """Policy for epochs of `rows` rows in batches of `batch_size`."""

    name: ClassVar[RemainderName]
    # True if batches have a mask that tells padding from samples.
    adds_mask: ClassVar[bool] = False
    # True if all batches of an endless stream have the same size.
    one_size: ClassVar[bool] = True
    # True if a batch may hold samples of more than one epoch.
    crosses_epochs: ClassVar[bool] = False

    rows: int
    batch_size: int

    def __post_init__(self) -> None:  # noqa: B027 - most policies accept any size
        """Raise if no batch would remain."""

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches that begin in one epoch."""
        return -(-self.rows // self.batch_size)

    def position_of(self, step: int) -> int:
        """Return where batch `step` begins."""
        epoch, step_in_epoch = divmod(step, self.steps_per_epoch)
        return epoch * self.rows + step_in_epoch * self.batch_size

    def first_step(self, epoch: int) -> int:
        """Return the first batch that begins in an epoch."""
        return epoch * self.steps_per_epoch

    def short(self, position: int, end: int | None) -> int:
        """Return the size of the next short batch from `position` on; 0 if there is none."""
        return 0

    def start(self, position: int) -> int:
        """Return where the next batch of a stream at `position` begins."""
        return position + int(self.left_out(position % self.rows))

    # The next two accept numbers, or traced JAX arrays: so they contain no `if`.

    def valid(self, place: Any, minimum: Callable[[Any, Any], Any] = min) -> Any:
        """Return the number of samples of a batch that begins at `place` of an epoch of an endless stream."""
        return minimum(self.batch_size, self.rows - place)

    def left_out(self, place: Any) -> Any:
        """Return the number of rows from `place` of an epoch on that are in no batch."""
        return 0

    @abstractmethod
    def span(self, position: int, end: int | None) -> Span:
        """Return the batch that begins at `position`, before the `end` of a finite stream."""


class Straddle(Remainder):
    """Batches that continue into the next epoch."""

    name = "straddle"
    crosses_epochs = True

    def valid(self, place: Any, minimum: Callable[[Any, Any], Any] = min) -> Any:
        return self.batch_size

    def position_of(self, step: int) -> int:
        return step * self.batch_size

    def first_step(self, epoch: int) -> int:
        return -(-epoch * self.rows // self.batch_size)

    def short(self, position: int, end: int | None) -> int:
        return 0 if end is None else max(0, end - position) % self.batch_size

    def span(self, position: int, end: int | None) -> Span:
        valid = self.batch_size if end is None else min(self.batch_size, end - position)
        return Span(position, valid, valid, position + valid)


class Keep(Remainder):
    """Short batches at the end of epochs."""

    name = "keep"
    one_size = False

    def short(self, position: int, end: int | None) -> int:
        return (self.rows - position % self.rows) % self.batch_size

    def span(self, position: int, end: int | None) -> Span:
        valid = self.valid(position % self.rows)
        return Span(position, valid, valid, position + valid)


class Drop(Remainder):
    """Full batches only."""

    name = "drop"

    def __post_init__(self) -> None:
        if self.batch_size > self.rows:
            raise ArgumentError(
                f'`batch_size` (={self.batch_size}) must not exceed the {self.rows} rows with remainder="drop": every '
                "batch would be dropped."
            )

    @property
    def steps_per_epoch(self) -> int:
        return self.rows // self.batch_size

    def valid(self, place: Any, minimum: Callable[[Any, Any], Any] = min) -> Any:
        return self.batch_size

    def left_out(self, place: Any) -> Any:
        left = self.rows - place
        return left * (left < self.batch_size)

    def span(self, position: int, end: int | None) -> Span:
        size = self.batch_size
        return Span(position, size, size, self.start(position + size))


class Pad(Remainder):
    """Full batches, padded with rows from the start of their epoch."""

    name = "pad"
    adds_mask = True

    def span(self, position: int, end: int | None) -> Span:
        valid = self.valid(position % self.rows)
        return Span(position, valid, self.batch_size, position + valid)


POLICIES: dict[str, type[Remainder]] = {
    policy.name: policy for policy in (Straddle, Keep, Drop, Pad)
}


def remainder_policy(name: str, rows: int, batch_size: int, *, one_size: bool = False) -> Remainder:
    """Return the policy of a name; with `one_size` accept only policies whose batches all have the same size."""
    allowed = [known for known, policy in POLICIES.items() if policy.one_size or not one_size]
    if name not in allowed:
        reason = ", since batches here have one shape" if one_size else ""
        raise ArgumentError(
            f"`remainder` (={name!r}) must be one of {', '.join(map(repr, allowed))}{reason}."
        )
    return POLICIES[name](rows, batch_size)
