"""Iterator over the stream: prefetching, exact state, statistics.

States of an iterator, and the events between them:

    new ──next──> inline <──────────────> prefetching ──end of the stream──> ended
                    │     the scheduler,     │   ▲
                    │     by measured work   │   └── an error, an interrupt, set_state, a fork or another default
                    │                        │       device: pending batches are cancelled, and built again from
                    └───────close────────────┤       the consumed position
                                             ▼
                                           closed

Inline, the consumer builds each batch itself. Prefetching, workers build the batches of `_pending`, the next one first.
The consumed position changes only when a batch is delivered.
"""

import functools
import math
import threading
import time
import warnings
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any, Generic, Literal, NoReturn, Self

from loaderx.batch.batch_types import Batch_co
from loaderx.batch.builder import BatchBuilder
from loaderx.errors import ArgumentError, ClosedError, StateError
from loaderx.process import shutdown
from loaderx.stream.order import Order
from loaderx.stream.remainder import Span
from loaderx.stream.state import StreamState

from .worker_pool import BatchTask, WorkerPool, start_all

# Polling interval while another thread is in `next`, in seconds.
TURN_SECONDS = 100e-6


@dataclass
class History:
    """History of a shuffled, finite loader: a second iteration repeats the same epochs."""

    walked: bool = False
    warned: bool = False

    def check(self) -> None:
        """Warn, once, at the second iteration."""
        if self.walked and not self.warned:
            self.warned = True
            warnings.warn(
                "this loader is iterated again, which gives the same order and the same augmentation as before. "
                "Write `for batch in loader.epoch(e)` for epoch e of the stream, or one loop over a loader with "
                "`num_epochs` for all of them; `shuffle=False` says that the order is meant to be the same.",
                stacklevel=4,
            )


@dataclass(frozen=True)
class Stats:
    """Statistics of an iterator so far."""

    batches: int
    waiting_seconds: float
    building_seconds: float
    total_seconds: float
    bytes: int
    # Damaged rows that were replaced by others: see `DataLoader(on_error=)`.
    replaced: int = 0

    @property
    def waiting_share(self) -> float:
        """Share of its time that the consumer waited for data."""
        return self.waiting_seconds / self.total_seconds if self.total_seconds else 0.0

    @property
    def bottleneck(self) -> Literal["loader", "consumer", "unknown"]:
        """Side that made the other one wait."""
        if self.batches == 0:
            return "unknown"
        return "loader" if self.waiting_share > 0.1 else "consumer"


class LoaderIterator(Generic[Batch_co]):
    """Iterator over batches in order, built ahead by its own worker threads. Made by `iter(loader)`.

    Several threads may share one iterator: each batch goes to exactly one of them.
    """

    def __init__(
        self,
        builder: BatchBuilder,
        workers: int,
        history: History | None = None,
        *,
        order: Order | None = None,
        steps: range | None = None,
    ) -> None:
        self._builder = builder
        # The order of the builder, or a copy without an end.
        self._order = builder.order if order is None else order
        self._scheduler = builder.scheduler
        self._workers = workers
        self._history = history
        # The step to stop at. For `loader.epoch` it is before the end of the stream.
        self._stop = None if steps is None else steps.stop
        # Consumed so far: (position of the next sample, number of batches). Replaced as a whole.
        first = 0 if steps is None else steps.start
        self._consumed = (self._order.position_of(first), first)
        # Batches under way, the next one first. They are stale while a call of `next` changes them, and after an
        # interrupt ended such a call: then they are built again from the consumed position.
        self._pending: deque[BatchTask] = deque()
        self._pending_is_stale = False
        # Mutex of `next` and `set_state`: {"thread": identifier of the owner}. A dict can be claimed atomically, and
        # freed by a statement that no signal handler interrupts. The release of a lock can be interrupted.
        self._turn: dict[str, int] = {}
        # Queue of waiting threads, first come, first served; their identifiers are the keys.
        self._queue: dict[int, None] = {}
        self._recent_best_seconds = math.inf
        # Time when the last batch was delivered, and seconds until the consumer asked for the next.
        self._delivered_at = math.inf
        self._away = 0.0
        self._batches = 0
        self._waiting = 0.0
        self._building = 0.0
        self._bytes = 0
        self._replaced = 0
        self._began: float | None = None
        self._start_pool()

    def _start_pool(self) -> None:
        self._pool = WorkerPool(self._workers)
        self._finalizer = weakref.finalize(self, self._pool.request_stop)
        self._finalizer.atexit = False

    @property
    def step(self) -> int:
        """Step of the next batch: the number of batches taken, including those before a restore."""
        return self._consumed[1]

    @property
    def epoch(self) -> int:
        """Epoch of the next sample."""
        return self._consumed[0] // self._order.rows

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch_co:
        began = time.perf_counter()
        own = self._own_turn()
        try:
            self._claim_turn(own)
            self._check_open()
            if self._began is None:
                self._begin(began)
            builder = self._builder.for_calling_thread()
            if builder is not self._builder:
                # Pending batches would be delivered to another device.
                self._pending_is_stale = True
                self._builder = builder
            if self._pending_is_stale:
                self._cancel()
                self._pending = deque()
                self._pending_is_stale = False
            if not self._pending and self._builds_inline():
                batch, consumed = self._build_inline(began)
            else:
                self._pending_is_stale = True
                batch, consumed = self._take_pending(began)
            # From here on nothing is called, so no interrupt can come.
            self._consumed = consumed
            self._pending_is_stale = False
            del self._turn["thread"]
            return batch
        except BaseException:
            # Without a call: a second interrupt could come in it.
            if "thread" in self._turn and self._turn["thread"] == own:
                del self._turn["thread"]
            raise

    def _take_pending(self, began: float) -> tuple[Batch_co, tuple[int, int]]:
        """Wait for the first pending batch; return it, and what is then consumed."""
        if not self._pending:
            self._schedule()
        if not self._pending:
            self._pending_is_stale = False
            self._end()
        task = self._pending[0]
        task.wait()
        # Read now: `close` clears it.
        error = task.error
        # Closed by another thread while this one waited.
        self._check_open()
        if error is not None:
            # The consumed position is unchanged, so the next call builds the same batch again.
            self._cancel()
            self._pending = deque()
            try:
                if isinstance(error, StopIteration):
                    # It would end the consumer's loop as if the data had ended.
                    raise RuntimeError(f"step {task.step} raised StopIteration") from error
                raise error
            finally:
                del error  # this frame must not keep it alive: see `BatchTask.cancel`
        self._pending.popleft()
        self._record_work(task.work_seconds)
        self._away = began - self._delivered_at
        self._schedule(task)
        self._delivered_at = time.perf_counter()
        self._count(task.nbytes, task.seconds, self._delivered_at - began)
        self._replaced += task.replaced
        batch, task.batch = task.batch, None  # a worker may still refer to the task
        return batch, (task.span.following, task.step + 1)

    def _build_inline(self, began: float) -> tuple[Batch_co, tuple[int, int]]:
        """Build the next batch in the consumer's thread; return it, and what is then consumed."""
        position, step = self._consumed
        span = self._span(position, step)
        if span is None:
            self._end()
        planner = self._builder.planner
        # Not for batches that are only copied: their bytes decide. [2 cores: the clock takes 2 of 25 us]
        working = None if self._scheduler.workload.copied else time.thread_time()
        batch = self._builder.build(step, span)
        if working is not None:
            self._record_work(time.thread_time() - working)
        seconds = time.perf_counter() - began
        self._count(planner.plan(span).nbytes, seconds, seconds)
        return batch, (span.following, step + 1)

    def _begin(self, now: float) -> None:
        """Note the start of the iteration."""
        self._began = now
        if self._history is not None and self._consumed[1] == 0:
            self._history.check()

    def _end(self) -> NoReturn:
        """Raise at the end of the stream."""
        if self._history is not None and self._batches:
            self._history.walked = True
        if not self._order.reaches(self._consumed[0]):
            raise OverflowError(
                f"this stream is at sample {self._consumed[0]}, and ends before its 2**63rd."
            )
        raise StopIteration

    def _own_turn(self) -> int:
        """Return the identifier of this thread; refuse a reentrant call, which would wait for itself."""
        own = threading.get_ident()
        if self._turn.get("thread") == own and not self._pool.forked:
            raise ValueError("this iterator is already executing, in this thread.")
        return own

    def _claim_turn(self, own: int) -> None:
        """Wait until no other thread is in `next` or `set_state`."""
        if self._pool.forked:
            # A forked process has no other thread that could be in here, and no worker.
            self._turn.clear()
            self._finalizer.detach()
            closed = self._pool.closed
            self._start_pool()
            self._pool.closed = closed
            self._pending_is_stale = True
            self._queue.clear()
        if not self._queue and self._turn.setdefault("thread", own) == own:
            return
        try:
            self._queue[own] = None
            # list() is atomic; an iterator would raise when other threads change the dict.
            while list(self._queue)[0] != own or self._turn.setdefault("thread", own) != own:  # noqa: RUF015
                time.sleep(TURN_SECONDS)
        finally:
            # Without a call: an interrupt could come in it.
            if own in self._queue:
                del self._queue[own]

    def _record_work(self, seconds: float) -> None:
        # About the shortest recent time: a batch that was slow by chance does not count.
        self._recent_best_seconds = min(seconds, self._recent_best_seconds * 1.1)

    def _count(self, nbytes: int, building: float, waiting: float) -> None:
        self._batches += 1
        self._bytes += nbytes
        self._building += building
        self._waiting += waiting
        if self._batches == 2 and self._history is not None:
            # A user who takes a single batch often looks at its shapes only.
            self._history.walked = True

    def _builds_inline(self) -> bool:
        return self._scheduler.builds_inline(self._recent_best_seconds)

    def _check_open(self) -> None:
        if self._pool.closed:
            shutdown.hold_if_exiting()
            raise ClosedError("this iterator was closed; `iter(loader)` makes a new one.")

    def _span(self, position: int, step: int) -> Span | None:
        """Return the batch at a position of the stream, or None after the last."""
        if self._stop is not None and step >= self._stop:
            return None
        return self._order.span(position)

    def _schedule(self, last: BatchTask | None = None) -> None:
        """Queue tasks until enough batches are under way, after `last` if none is pending."""
        if self._builds_inline():
            return
        group = self._scheduler.coalesced(self._recent_best_seconds)
        rest = self._scheduler.rest(self._recent_best_seconds, self._away)
        while len(self._pending) <= (self._scheduler.ahead - 1) * group:
            tasks: list[BatchTask] = []
            for _ in range(group):
                last = self._pending[-1] if self._pending else last
                position, step = (
                    self._consumed if last is None else (last.span.following, last.step + 1)
                )
                span = self._span(position, step)
                if span is None:
                    break
                tasks.append(BatchTask(self._builder, self._pool, step, span))
                self._pending.append(tasks[-1])
            for task in tasks[:-1]:
                task.last = tasks[-1]
            if tasks:
                self._pool.put(functools.partial(start_all, tasks, rest))
            if len(tasks) < group:
                return

    def _cancel(self) -> None:
        for task in tuple(self._pending):
            task.cancel()

    def get_state(self) -> dict[str, Any]:
        """Return the state, what was consumed so far, as a small dict that JSON can hold."""
        return self._state().to_dict()

    def _state(self) -> StreamState:
        order = self._order
        position, step = self._consumed
        return StreamState(
            *(position, step, order.rows, order.seed, order.shuffle),
            *(self._builder.description, self._builder.decoder),
        )

    def set_state(self, state: Any, *, strict: bool = True) -> None:
        """Resume at the sample where the iterator that returned this state was.

        Batch size, number of processes, devices and workers, and the parameters of transforms may differ. A state of
        another data set, length, seed or shuffle setting is refused unless `strict` is False. A state of another
        Mixture is always refused. Other `weights` are accepted with strict=False: draws with replacement do not depend
        on one another.
        """
        self._check_open()
        given = StreamState.from_dict(state)
        given.check_continues(self._state(), strict=strict)
        position, step = given.position, given.step
        order = self._order
        if not order.reaches(position):
            raise StateError(
                f"`state` has position {position}, which is beyond the 2**63 samples of a stream."
            )
        inside = position % order.rows % order.batch_size
        if order.remainder != "straddle" and inside:
            warnings.warn(
                f"the state is at sample {position}, {inside} samples into a batch of {order.batch_size}: with "
                f"remainder={order.remainder!r} the batches of this epoch begin at other samples than in a new "
                "stream with this batch size. "
                + (
                    "Other samples may be left out at its end."
                    if order.remainder == "drop"
                    else "No sample is left out or repeated because of that."
                ),
                stacklevel=2,
            )
        short = order.short(position)
        if short:
            try:
                self._builder.planner.check_size(short)
            except ArgumentError as error:
                raise StateError(
                    f'with `state` at sample {position} {error} Use remainder="pad" or "drop".'
                ) from error
        thread = self._own_turn()
        try:
            self._claim_turn(thread)
            # A caller that sets a state knows that epochs may repeat.
            self._history = None
            self._pending_is_stale = True
            self._consumed = (position, step)
        finally:
            if "thread" in self._turn and self._turn["thread"] == thread:
                del self._turn["thread"]

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "an iterator cannot be pickled or copied: it has threads. Pickle the loader and `iterator.get_state()`; "
            "`iter(loader).set_state(state)` continues at the same sample."
        )

    def stats(self) -> Stats:
        """Return the statistics so far: batches, seconds, bytes, and which side waits for the other."""
        total = 0.0 if self._began is None else time.perf_counter() - self._began
        return Stats(
            self._batches, self._waiting, self._building, total, self._bytes, self._replaced
        )

    def close(self) -> None:
        """Stop the worker threads. Batches that were delivered stay valid."""
        self._pool.request_stop()
        self._cancel()
        self._pool.close()

    def __repr__(self) -> str:
        status = "closed, " if self._pool.closed else ""
        return f"LoaderIterator({status}step={self.step}, epoch={self.epoch})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
