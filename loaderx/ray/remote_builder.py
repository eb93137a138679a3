"""Builder over a fleet: asks actors for the pieces of a step, and hands them off here.

A piece that is late is asked for again elsewhere, and one that is lost, too; in the end it is built here. All of this
is harmless, since a batch is a function of the configuration and the step: it does not matter who builds it, or how
often.
"""

import dataclasses
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.batch.builder import BatchBuilder
from loaderx.buffers import Pool
from loaderx.output.base import Hooked, map_leaves
from loaderx.process import shutdown
from loaderx.process.cores import cores
from loaderx.run.worker_pool import WorkerPool
from loaderx.stream import ranges
from loaderx.stream.remainder import Span

from .actor import Built, Failed, Refused, content, flat
from .fleet import Fleet, Member
from .pieces import PieceBlocks, divide, join, leased_copy, unpacked
from .scheduler import RemoteScheduler
from .shared_memory import SharedMemory
from .stats import Counters

logger = logging.getLogger("loaderx")
# Polling interval for a cancelled step or a closed iterator, in seconds.
WAIT_SECONDS = 0.1
# A piece is late after so many times the usual time, and so many seconds.
HEDGE_FACTOR, HEDGE_SECONDS = 3.0, 1.0
# A piece that was lost so often is built here.
MOST_LOSSES = 2
# Seconds to wait for workers whose CPUs others held at the start.
CROWDED_SECONDS = 5.0


class Cancelled(Exception):  # noqa: N818 - not an error: nobody waits for the step any more
    """Signal that a step was cancelled while its pieces were waited for."""


@dataclass(eq=False)
class Attempt:
    """Attempt at a piece: its pending answer, its actor, when it was asked for, and after how many other pieces."""

    ref: Any
    member: Member
    asked: float
    before: int


@dataclass(eq=False)
class Piece:
    """Piece of a step, with the attempts at it that may still be answered."""

    blocks: PieceBlocks
    rows: int
    began: float
    attempts: list[Attempt] = field(default_factory=list)
    losses: int = 0
    hedged: bool = False
    done: bool = False
    # Once it is done: its arrays, or what the hook returned; damaged rows that were replaced; True if built here.
    content: Any = None
    replaced: int = 0
    here: bool = False


@dataclass(eq=False)
class RemoteBatch:
    """Step that actors build."""

    step: int
    span: Span
    nbytes: int
    pieces: list[Piece]
    phases: int = 1
    cancelled: bool = False

    @property
    def replaced(self) -> int:
        """Number of damaged rows that were replaced."""
        return sum(piece.replaced for piece in self.pieces)

    def parts(self, phase: int) -> int:
        """Return 1: one thread waits for all pieces."""
        return 1

    def cancel(self) -> None:
        """Let the thread that waits for the pieces give up soon."""
        self.cancelled = True


@dataclass
class News:
    """Messages for the consumer, which its thread gives as warnings."""

    messages: list[str] = field(default_factory=list)
    warned: bool = False


@dataclass(frozen=True)
class RemoteBuilder(BatchBuilder):
    """Builder of the batches of one iterator, by a fleet."""

    # Builder of what no actor builds.
    local: BatchBuilder
    ray: Any
    fleet: Fleet
    remote_scheduler: RemoteScheduler
    shared: SharedMemory
    # Seconds without an answer after which a piece is built here.
    timeout: float
    counters: Counters = field(default_factory=Counters)
    told: News = field(default_factory=News)
    pool: WorkerPool | None = None
    # As many threads build here at once as there are cores.
    here: threading.BoundedSemaphore = field(default_factory=threading.BoundedSemaphore)

    @property
    def scheduler(self) -> Any:
        """Scheduler of the steps."""
        return self.remote_scheduler

    @property
    def compiled(self) -> bool:
        """False: the consumer waits, and does not build what no thread has begun."""
        return False

    def for_pool(self, pool: WorkerPool) -> "RemoteBuilder":
        """Return the builder for the threads of an iterator, which it stops with."""
        # Others than before a fork, which a thread may have held.
        return dataclasses.replace(self, pool=pool, here=threading.BoundedSemaphore(cores()))

    def news(self) -> list[str]:
        """Return what the consumer has not been told yet."""
        found, self.told.messages[:] = list(self.told.messages), []
        if not self.fleet.usable:
            return found
        differing = [
            f"a worker of the Ray cluster is not used, since it would build other batches: {text}"
            for text in self.fleet.news()
        ]
        return found + differing

    # --- a step ---

    def begin(self, step: int, span: Span) -> RemoteBatch:  # type: ignore[override]
        """Ask actors for the pieces of a step, if some are ready."""
        blocks = self.planner.blocks(span.size)
        now = time.monotonic()
        pieces = [
            Piece(own, span.size if own is None else _rows(own), now)
            for own in divide(blocks, span.size, self.remote_scheduler.pieces)
        ]
        batch = RemoteBatch(step, span, self.planner.nbytes(blocks), pieces)
        self.fleet.tend()
        for piece in pieces:
            self._ask(batch, piece)
        return batch

    def fill(self, in_progress: Any, phase: int, part: int) -> None:
        """Wait for the pieces of a step."""
        batch: RemoteBatch = in_progress
        try:
            while not all(piece.done for piece in batch.pieces):
                self._check_stopped(batch)
                self.fleet.tend()
                self._wait(batch)
                for piece in batch.pieces:
                    if not piece.done:
                        self._care(batch, piece)
        except BaseException:
            self._abandon(batch)
            raise

    def finish(self, in_progress: Any) -> Any:
        """Hand off a step."""
        batch: RemoteBatch = in_progress
        if self.hook is not None:
            return self._deliver_hooked(batch)
        own = self.planner.blocks(batch.span.size)
        built = [piece.content for piece in batch.pieces]
        arrays = join(own, [piece.blocks for piece in batch.pieces], built, self.planner.pools)
        for piece in batch.pieces:
            piece.content = None
        owned = [
            [self._owned(array, pool) for array in blocks]
            for blocks, pool in zip(arrays, self.planner.pools, strict=True)
        ]
        return self.deliver(batch.span, owned)

    def _owned(self, array: NDArray[Any], pool: Pool | None) -> NDArray[Any]:
        """Return memory that this process may keep: of the object store if it is only read, and not too much."""
        if array.flags.writeable or array.dtype.hasobject:
            return array
        view = self.shared.share(array) if self.hand_off.shares_read_only else None
        if view is not None:
            return view
        return array.copy() if pool is None else leased_copy(array, pool)

    def _deliver_hooked(self, batch: RemoteBatch) -> Any:
        (piece,) = batch.pieces
        found, piece.content = piece.content, None

        if not piece.here:
            found = map_leaves(
                found,
                lambda _, leaf: self._owned(leaf, None) if isinstance(leaf, np.ndarray) else leaf,
            )
        # Nobody else writes to any of them.
        leaves = [leaf for leaf in flat(found) if isinstance(leaf, np.ndarray)]
        local = ranges.union(self.planner.blocks(batch.span.size)[0])
        return self.hand_off.deliver_hooked(found, Hooked(leaves, local, batch.span.size))

    # --- pieces ---

    def _check_stopped(self, batch: RemoteBatch) -> None:
        closed = self.pool is not None and self.pool.closed
        if batch.cancelled or closed or shutdown.process.exiting:
            raise Cancelled

    def _ask(self, batch: RemoteBatch, piece: Piece, excluded: Sequence[Member] = ()) -> bool:
        """Ask an actor for a piece; return False if none is ready."""
        if not self.fleet.usable:
            return False
        member = self.fleet.choose(excluded)
        if member is None:
            return False
        before = member.outstanding - 1
        try:
            ref = self.fleet.submit(member, batch.step, batch.span, piece.blocks)
        except Exception as error:  # noqa: BLE001 - an actor that is lost, in any way
            self._lose(piece, error)
            return False
        piece.attempts.append(Attempt(ref, member, time.monotonic(), before))
        return True

    def _wait(self, batch: RemoteBatch) -> None:
        """Wait for an answer, for a short time, and take those that have come."""
        pending = {
            attempt.ref: (piece, attempt)
            for piece in batch.pieces
            if not piece.done
            for attempt in piece.attempts
        }
        if not pending:
            if any(self._waits_for_workers(piece) for piece in batch.pieces if not piece.done):
                time.sleep(WAIT_SECONDS / 2)
            return
        try:
            done, _ = self.ray.wait(list(pending), num_returns=1, timeout=WAIT_SECONDS)
        except Exception as error:  # noqa: BLE001 - Ray was shut down, or its processes on this machine died
            for piece, attempt in pending.values():
                piece.attempts.remove(attempt)
                self._lose(piece, error)
                self.fleet.lost(attempt.member)
            return
        for ref in done:
            self._take(*pending[ref])

    def _take(self, piece: Piece, attempt: Attempt) -> None:
        """Take the answer to an attempt."""
        piece.attempts.remove(attempt)
        try:
            answer = self.ray.get(attempt.ref, timeout=self.timeout)
        except Exception as error:  # noqa: BLE001 - a lost actor, node or object, or a full store
            self._lose(piece, error)
            self.fleet.lost(attempt.member)
            return
        now = time.monotonic()
        if isinstance(answer, Refused):
            self.fleet.refuse(attempt.member, answer)
            piece.losses += 1
            return
        # An actor builds its pieces one after the other.
        free = max(attempt.asked, self.fleet.answered(attempt.member, now))
        if isinstance(answer, Failed):
            if answer.lacks_memory:
                self._lose(piece, answer.text)
                return
            raise answer.error()
        assert isinstance(answer, Built)
        self.fleet.record(now - free, piece.rows)
        nbytes = sum(leaf.nbytes for leaf in flat(answer.content) if hasattr(leaf, "nbytes"))
        self.counters.add(
            building_seconds=answer.seconds,
            transport_seconds=max(0.0, now - free - answer.seconds),
            transport_bytes=nbytes,
        )
        dtypes = [entry.spec.dtype for entry in self.planner.fields]
        found = answer.content if self.hook is not None else unpacked(answer.content, dtypes)
        self._finish_piece(piece, found, answer.replaced)

    def _finish_piece(self, piece: Piece, found: Any, replaced: int) -> None:
        piece.content, piece.replaced, piece.done = found, replaced, True
        for attempt in piece.attempts:
            self.fleet.abandon(attempt.member, attempt.ref)
        piece.attempts = []

    def _lose(self, piece: Piece, reason: object) -> None:
        piece.losses += 1
        self.counters.add(lost=1)
        logger.info("a piece of a batch is built again, since a worker of Ray lost it: %s", reason)

    def _waits_for_workers(self, piece: Piece) -> bool:
        """Tell whether a piece that nobody builds should wait until an actor is ready."""
        waited = time.monotonic() - max(piece.began, self.fleet.began)
        patience = self.timeout
        if self.fleet.crowded and self.fleet.ready == 0:
            waited, patience = time.monotonic() - self.fleet.began, min(patience, CROWDED_SECONDS)
        return piece.losses == 0 and self.fleet.usable and waited < patience

    def _care(self, batch: RemoteBatch, piece: Piece) -> None:
        """Ask again for a piece that is lost or late, or build it here."""
        now = time.monotonic()
        if not piece.attempts:
            if self.fleet.usable:
                self.fleet.check_refusals()
            if piece.losses < MOST_LOSSES and self._ask(batch, piece):
                return
            if not self._waits_for_workers(piece):
                self._build_here(batch, piece)
            return
        first = piece.attempts[0]
        if not piece.hedged and now - first.asked > self._late_after(piece, first):
            first.member.late = True
            piece.hedged = self._ask(batch, piece, [first.member])
            if piece.hedged:
                self.counters.add(hedged=1)
        newest = piece.attempts[-1]
        if now - newest.asked > max(self.timeout, self._late_after(piece, newest)):
            self._build_here(batch, piece)

    def _late_after(self, piece: Piece, attempt: Attempt) -> float:
        """Return the seconds after which an attempt is late."""
        per_row = self.fleet.seconds_per_row
        if per_row is None:
            return self.timeout / 2
        usual = per_row * piece.rows * (attempt.before + 1)
        return HEDGE_SECONDS + HEDGE_FACTOR * usual

    def _build_here(self, batch: RemoteBatch, piece: Piece) -> None:
        """Build a piece in this thread."""
        while not self.here.acquire(timeout=WAIT_SECONDS):
            self._check_stopped(batch)
        try:
            self._check_stopped(batch)
            if not self.told.warned:
                self.told.warned = True
                crowded = self.fleet.crowded and self.fleet.ready == 0
                taken = "Others held its CPUs at the start, maybe a loader that is not closed. "
                self.told.messages.append(
                    f"{self.fleet.ready} of {self.fleet.workers} workers of the Ray cluster answer, and what they do "
                    "not build is built in this process, as by a local loader. The batches are the same. "
                    f"{taken if crowded else ''}`ray status` shows the cluster."
                )
            in_progress = self.local.filled(batch.step, batch.span, piece.blocks)
            found = content(self.local, in_progress)
        finally:
            self.here.release()
        piece.here = True
        self.counters.add(built_here=1)
        self._finish_piece(piece, found, in_progress.replaced)

    def _abandon(self, batch: RemoteBatch) -> None:
        """Give up all pieces of a step."""
        for piece in batch.pieces:
            for attempt in piece.attempts:
                if self.fleet.usable:
                    self.fleet.abandon(attempt.member, attempt.ref)
            piece.attempts = []


def _rows(blocks: Sequence[ranges.Ranges]) -> int:
    return ranges.count(ranges.union(each for own in blocks for each in own))
