"""Scheduling of batches: who builds a batch, when, in how many parts, and how many batches are under way.

All of it is a pure function of bytes and of measured seconds, so that it can be tested without a thread.
"""

import math
from dataclasses import dataclass

# Waking a thread and taking turns with it costs more than a smaller batch does, so the consumer builds that itself.
# [2 cores, `python -m benchmarks overhead`: 110 us per batch of 4 bytes with workers, 50 us without]
INLINE_MAX_SECONDS = 120e-6
# What is only copied is known by its bytes: measured while threads wait for each other it may seem to take any time.
# [`python -m benchmarks growth-batch`: the batch size at which workers begin to pay]
INLINE_MAX_BYTES = 384 * 1024
# A second thread at one batch costs more than it brings below so many bytes per thread; a transform does more per byte
# than a copy. [`python -m benchmarks gather`, `cifar`]
COPIED_BYTES_PER_PART = 2 * 1024 * 1024
TRANSFORMED_BYTES_PER_PART = 256 * 1024
# A worker builds several small batches before it wakes the consumer, which takes as long as building one: up to so
# many, and for about so long. [`python -m benchmarks gather-3KB`]
MAX_COALESCED = 4
COALESCE_SECONDS = 800e-6
# A consumer that works for long dispatches its step right after it took a batch, and a worker that begins the next one
# then takes the GIL and a core from it. So the worker rests first, if the consumer stays away for so many times as long
# as the rest and the batch take. [`python -m benchmarks training`: waiting for 0.7 % of the time, 1.2 % without]
REST_SECONDS = 1e-3
REST_FACTOR = 8


@dataclass(frozen=True)
class Workload:
    """Facts about the batches of a loader that scheduling depends on.

    rows        rows of a batch that this process fills
    row_bytes   bytes of a row, before or after its transforms, whichever is more
    compiled    whether rows are read and transformed without a user's Python code, whose cost no bytes tell
    hooked      whether a user's hook gets the finished batch
    copied      whether rows of arrays are copied in one compiled call, and nothing else is done
    cpu_bound   whether more is done per byte than a copy: transforms, decompression
    splittable  whether several threads may share the rows of a batch
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
    """Decisions for the batches of one loader.

    `seconds` are those that a core needs for a batch, by the best of the last ones; infinite while none is known.
    """

    workload: Workload
    workers: int
    prefetch: int

    def parts(self, rows: int) -> int:
        """Return into how many parts `rows` rows of a batch are divided, for as many threads."""
        load = self.workload
        if not load.splittable:
            return 1
        least = TRANSFORMED_BYTES_PER_PART if load.cpu_bound else COPIED_BYTES_PER_PART
        worth = rows * load.row_bytes // least if load.compiled else rows
        return max(1, min(self.workers, worth, rows))

    def builds_inline(self, seconds: float) -> bool:
        """Tell whether the consumer builds a batch itself."""
        if not self.workload.compiled or self.workload.hooked:
            # It belongs to the workers, which also keep it from holding up the consumer.
            return False
        if self.workload.copied:
            return self.workload.nbytes < INLINE_MAX_BYTES
        return seconds < INLINE_MAX_SECONDS

    def coalesced(self, seconds: float) -> int:
        """Return how many batches a worker builds before it wakes the consumer."""
        if not self._coalesces or self.workload.hooked:
            return 1
        return max(1, min(MAX_COALESCED, math.ceil(COALESCE_SECONDS / seconds)))

    def rest(self, seconds: float, away: float) -> float:
        """Return how long a worker rests before it begins a batch; the consumer was `away` between its last calls."""
        return REST_SECONDS if away >= REST_FACTOR * (seconds + REST_SECONDS) else 0.0

    @property
    def ahead(self) -> int:
        """How many groups of coalesced batches are under way at once."""
        # A batch of one part keeps one worker busy, and the next must be ready when that worker is done.
        return self.prefetch if self.parts(self.workload.rows) > 1 else self.prefetch + self.workers

    @property
    def buffers(self) -> int:
        """How many batches are in memory at most: under way, at the consumer, and the one the consumer had before."""
        return self.ahead * (MAX_COALESCED if self._coalesces else 1) + 2

    @property
    def _coalesces(self) -> bool:
        # Of larger batches it would take memory and bring nothing.
        load = self.workload
        return load.compiled and load.copied and load.nbytes <= COPIED_BYTES_PER_PART
