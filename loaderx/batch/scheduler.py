"""Scheduler of batches: which thread builds a batch, when, in how many parts, and how many batches are under way.

Its decisions are pure functions of bytes and of measured seconds, so they can be tested without threads.
"""

import math
from dataclasses import dataclass

# Waking a thread and switching to it costs more than building a small batch, so the consumer builds that itself.
# [2 cores, `python -m benchmarks overhead`: 110 us per batch of 4 bytes with workers, 50 us without]
INLINE_MAX_SECONDS = 120e-6
# For batches that are only copied the bytes decide: a time measured while threads wait for each other is arbitrary.
# [`python -m benchmarks growth-batch`: the batch size at which workers begin to pay]
INLINE_MAX_BYTES = 384 * 1024
# Minimum bytes per thread: with fewer, a second thread for the same batch costs more than it saves. A transform does
# more per byte than a copy. [`python -m benchmarks gather`, `cifar`]
COPIED_BYTES_PER_PART = 2 * 1024 * 1024
TRANSFORMED_BYTES_PER_PART = 256 * 1024
# Coalescing: a worker builds several small batches before it wakes the consumer, since waking takes as long as
# building one. At most so many, and for about so long. [`python -m benchmarks gather-3KB`]
MAX_COALESCED = 4
COALESCE_SECONDS = 800e-6
# A training loop dispatches its step right after it took a batch. A worker that then begins the next batch takes the
# GIL and a core from it. So the worker rests first, if the consumer stays away for REST_FACTOR times the time of the
# rest and the batch. [`python -m benchmarks training`: waiting for 0.7 % of the time, 1.2 % without]
REST_SECONDS = 1e-3
REST_FACTOR = 8


@dataclass(frozen=True)
class Workload:
    """Facts about the batches of a loader that scheduling depends on.

    rows        rows of a batch that this process fills
    row_bytes   bytes of a row, before or after its transforms, whichever is more
    compiled    True if no Python code of a user runs, whose cost is not known from the bytes
    hooked      True if a user's hook gets the finished batch
    copied      True if rows of arrays are only copied, in one compiled call
    cpu_bound   True if more is done per byte than a copy: transforms, decompression
    splittable  True if several threads may share the rows of a batch
    """

    rows: int
    row_bytes: int
    compiled: bool
    hooked: bool
    copied: bool
    cpu_bound: bool
    splittable: bool

    @property
    def nbytes(self) -> int:
        """Bytes of a batch."""
        return self.rows * self.row_bytes


@dataclass(frozen=True)
class Scheduler:
    """Scheduler of the batches of one loader.

    `seconds` is the CPU time of a batch, by the best of the recent ones; infinite while none is known.
    """

    workload: Workload
    workers: int
    prefetch: int

    def parts(self, rows: int) -> int:
        """Return the number of parts, for as many threads, of a batch of `rows` rows."""
        load = self.workload
        if not load.splittable:
            return 1
        least = TRANSFORMED_BYTES_PER_PART if load.cpu_bound else COPIED_BYTES_PER_PART
        worth = rows * load.row_bytes // least if load.compiled else rows
        return max(1, min(self.workers, worth, rows))

    def builds_inline(self, seconds: float) -> bool:
        """Tell whether the consumer builds a batch itself."""
        if not self.workload.compiled or self.workload.hooked:
            # Python code of a user runs in the workers, so that it does not hold up the consumer.
            return False
        if self.workload.copied:
            return self.workload.nbytes < INLINE_MAX_BYTES
        return seconds < INLINE_MAX_SECONDS

    def coalesced(self, seconds: float) -> int:
        """Return the number of batches that a worker builds before it wakes the consumer."""
        if not self._coalesces or self.workload.hooked:
            return 1
        return max(1, min(MAX_COALESCED, math.ceil(COALESCE_SECONDS / seconds)))

    def rest(self, seconds: float, away: float) -> float:
        """Return the seconds that a worker rests before a batch, if the consumer was `away` between its last calls."""
        return REST_SECONDS if away >= REST_FACTOR * (seconds + REST_SECONDS) else 0.0

    @property
    def ahead(self) -> int:
        """Number of groups of coalesced batches that are under way at once."""
        # A batch of one part keeps only one worker busy, so there is one more batch for each worker.
        return self.prefetch if self.parts(self.workload.rows) > 1 else self.prefetch + self.workers

    @property
    def buffers(self) -> int:
        """Maximum number of batches in memory: under way, at the consumer, and the one the consumer had before."""
        return self.ahead * (MAX_COALESCED if self._coalesces else 1) + 2

    @property
    def _coalesces(self) -> bool:
        # For larger batches coalescing would cost memory and save nothing.
        load = self.workload
        return load.compiled and load.copied and load.nbytes <= COPIED_BYTES_PER_PART
