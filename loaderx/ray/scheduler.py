"""Scheduler of steps on a cluster: how many are under way, and into how many pieces each is divided."""

import math
from dataclasses import dataclass

from loaderx.batch.scheduler import TRANSFORMED_BYTES_PER_PART, Scheduler

from .fleet import Fleet

# Pieces for each actor: one that it builds, and one that waits for it there, so that it never waits for the consumer.
PIECES_PER_WORKER = 2
# Steps under way, each with a thread that waits for it.
MOST_STEPS = 64
# Part of the object store of a node for steps under way.
STORE_SHARE = 0.25
# Seconds to build a piece: a batch that takes one worker longer is divided, so that the first one comes soon.
PIECE_SECONDS = 1.0


@dataclass(frozen=True)
class RemoteScheduler:
    """Scheduler of the steps of one loader on a fleet.

    Without `splittable` a step is one piece: a hook gets a whole batch, and samples that are mixed are read for each of
    the pieces.
    """

    local: Scheduler
    fleet: Fleet
    prefetch: int
    nbytes: int
    splittable: bool

    @property
    def workload(self):  # type: ignore[no-untyped-def]
        """Facts about the batches."""
        return self.local.workload

    def builds_inline(self, seconds: float) -> bool:
        """Return False: the consumer takes batches, and builds none itself."""
        return False

    def coalesced(self, seconds: float) -> int:
        """Return 1: a thread that waits for several batches would hold up the first."""
        return 1

    def rest(self, seconds: float, away: float) -> float:
        """Return 0: to ask for a batch takes no time."""
        return 0.0

    @property
    def pieces(self) -> int:
        """Number of pieces of a step."""
        load, workers = self.local.workload, max(1, self.fleet.workers)
        worth = load.rows
        if load.compiled:
            worth = min(worth, load.rows * load.row_bytes // TRANSFORMED_BYTES_PER_PART)
        if not self.splittable or worth <= 1:
            return 1
        per_row = self.fleet.seconds_per_row
        # The first steps are divided among all: nothing is known of them, and the consumer waits.
        by_time = workers if per_row is None else math.ceil(load.rows * per_row / PIECE_SECONDS)
        # The fewer steps fit into the object store, the more pieces each has, so that all workers have work.
        in_store = self._in_store - self.prefetch
        by_memory = math.ceil(PIECES_PER_WORKER * workers / max(1, in_store))
        return max(1, min(max(by_time, by_memory), worth, workers))

    @property
    def _in_store(self) -> int:
        """Number of steps under way for which there is memory."""
        fitting = int(STORE_SHARE * self.fleet.store_bytes / max(1, self.nbytes))
        return min(MOST_STEPS, max(self.prefetch + 1, fitting))

    @property
    def ahead(self) -> int:
        """Number of steps under way at once."""
        building = math.ceil(PIECES_PER_WORKER * max(1, self.fleet.workers) / self.pieces)
        return min(self.prefetch + building, self._in_store)
