"""One walk through the stream: prefetching, its exact position, its statistics."""

import functools
import math
import time
import warnings
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from .errors import ArgumentError, ClosedError, StateError
from .picking import check_mixtures
from .prefetch import Crew, Job, start_all
from .recipe import Recipe

VERSION = 2


@dataclass(frozen=True)
class Stats:
    """What an iterator did so far."""

    batches: int
    waiting_seconds: float
    building_seconds: float
    total_seconds: float
    bytes: int

    @property
    def waiting_share(self) -> float:
        """Which part of its time the consumer waited for data."""
        return self.waiting_seconds / self.total_seconds if self.total_seconds else 0.0

    @property
    def bottleneck(self) -> Literal["loader", "consumer", "unknown"]:
        """Who made the other one wait."""
        if self.batches == 0:
            return "unknown"
        return "loader" if self.waiting_share > 0.1 else "consumer"


class LoaderIterator:
    """Batches in order, built ahead by threads of its own. Made by `iter(loader)`."""

    def __init__(self, recipe: Recipe, workers: int) -> None:
        self._recipe = recipe
        # What was consumed: (position of the next sample, number of batches). Replaced as a whole.
        self._consumed = (0, 0)
        # Batches under way, the next one first. Not to be trusted while a call of `next` is at work on it, or was when
        # an interrupt ended it: then all of it begins again at what was consumed.
        self._pending: deque[Job] = deque()
        self._unsettled = False
        self._pace = math.inf
        self._batches = 0
        self._waiting = 0.0
        self._building = 0.0
        self._bytes = 0
        self._began: float | None = None
        self._crew = Crew(workers)
        self._finalizer = weakref.finalize(self, self._crew.dismiss)
        self._finalizer.atexit = False

    @property
    def step(self) -> int:
        """How many batches of the stream were taken, also before a restore: the step of the next one."""
        return self._consumed[1]

    @property
    def epoch(self) -> int:
        """The epoch of the next sample."""
        return self._consumed[0] // self._recipe.order.rows

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._check_open()
        began = time.perf_counter()
        if self._began is None:
            self._began = began
        if self._unsettled:
            self._cancel()
            self._pending = deque()
            self._unsettled = False
        if not self._pending and self._small():
            batch, consumed = self._build_here(began)
            # From here on nothing is called, and so nothing can interrupt.
            self._consumed = consumed
            return batch
        self._unsettled = True
        self._schedule()
        if not self._pending:
            self._unsettled = False
            raise StopIteration
        job = self._pending[0]
        job.wait()
        # Now, because closing forgets it.
        error = job.error
        # Closed by another thread while this one waited.
        self._check_open()
        if error is not None:
            # What was consumed is as before, so the next call tries the same batch again.
            self._cancel()
            self._pending = deque()
            try:
                if isinstance(error, StopIteration):
                    # Would end the consumer's loop as if the data were at its end.
                    raise RuntimeError(f"step {job.step} raised StopIteration") from error
                raise error
            finally:
                del error  # this frame must not keep it: see `Job.cancel`
        self._pending.popleft()
        self._took(job.work_seconds)
        self._schedule(job)
        self._count(job.nbytes, job.seconds, time.perf_counter() - began)
        batch = job.batch
        consumed = (job.span.following, job.step + 1)
        # From here on nothing is called, and so nothing can interrupt.
        job.batch = None  # a worker may still hold the job
        self._consumed = consumed
        self._unsettled = False
        return batch

    def _build_here(self, began: float) -> tuple[Any, tuple[int, int]]:
        """The next batch, built by the consumer itself, and what is consumed with it; no other is under way."""
        position, step = self._consumed
        span = self._recipe.order.span(position)
        if span is None:
            raise StopIteration
        pipeline = self._recipe.pipeline
        # [2 cores: 2 of 25 us] Not where the bytes say it all.
        working = time.thread_time() if pipeline.straight is None else None
        batch = self._recipe.build(step, span)
        if working is not None:
            self._took(time.thread_time() - working)
        seconds = time.perf_counter() - began
        self._count(pipeline.plan(span).nbytes, seconds, seconds)
        return batch, (span.following, step + 1)

    def _took(self, seconds: float) -> None:
        # About the least that a batch took lately: one that was slow by chance does not count.
        self._pace = min(seconds, self._pace * 1.1)

    def _count(self, nbytes: int, building: float, waiting: float) -> None:
        self._batches += 1
        self._bytes += nbytes
        self._building += building
        self._waiting += waiting

    def _small(self) -> bool:
        """Whether waking a thread and taking turns with it costs more than a batch does."""
        return self._recipe.compiled and self._recipe.pipeline.small(self._pace)

    def _check_open(self) -> None:
        if self._crew.closed:
            raise ClosedError("this iterator was closed; `iter(loader)` makes a new one.")

    def _schedule(self, last: Job | None = None) -> None:
        """Have as many batches under way as are to be kept ready, behind `last` if there are none."""
        if self._small():
            return
        pipeline = self._recipe.pipeline
        # Of middling ones a worker builds several in a row, so that nobody is woken for each.
        row = pipeline.in_a_row(self._pace) if self._recipe.compiled else 1
        while len(self._pending) <= (pipeline.ahead - 1) * row:
            jobs: list[Job] = []
            for _ in range(row):
                last = self._pending[-1] if self._pending else last
                position, step = (
                    self._consumed if last is None else (last.span.following, last.step + 1)
                )
                span = self._recipe.order.span(position)
                if span is None:
                    break
                jobs.append(Job(self._recipe, self._crew, step, span))
                self._pending.append(jobs[-1])
            for job in jobs[:-1]:
                job.last = jobs[-1]
            if jobs:
                self._crew.put(functools.partial(start_all, jobs))
            if len(jobs) < row:
                return

    def _cancel(self) -> None:
        for job in tuple(self._pending):
            job.cancel()

    def get_state(self) -> dict[str, Any]:
        """What was consumed, as a small dict that JSON can hold."""
        order = self._recipe.order
        position, step = self._consumed
        return {
            "version": VERSION,
            "position": position,
            "step": step,
            "rows": order.rows,
            "seed": order.seed,
            "shuffle": order.shuffle,
            "data": self._recipe.description,
        }

    def set_state(self, state: Any, *, strict: bool = True) -> None:
        """Go on where the iterator was that gave this state, at the same sample.

        Batch size, number of processes, devices and workers, and the parameters of transforms may be others. A state of
        another data set, length, seed or shuffle setting is refused unless `strict` is False. One of another Mixture is
        refused always; other `weights` are no obstacle then, as draws with replacement do not depend on one another.
        """
        self._check_open()
        own = self.get_state()
        if isinstance(state, Mapping) and state.get("version", VERSION) != VERSION:
            # First: a state of another version may have other keys.
            raise StateError(
                f"`state` is of another version of loaderx: its version is {state['version']!r}, this loader's is "
                f"{VERSION}."
            )
        if not isinstance(state, Mapping) or state.keys() != own.keys():
            raise StateError(f"`state` (={state!r}) must be what `get_state()` gave: {list(own)}.")
        check_mixtures(state["data"], own["data"])
        for name in ("data", "rows", "seed", "shuffle"):
            if strict and state[name] != own[name]:
                raise StateError(
                    f"`state` belongs to another stream: its {name} is {state[name]!r}, this loader's is "
                    f"{own[name]!r}. strict=False goes on all the same."
                )
        position, step = state["position"], state["step"]
        if not all(type(number) is int and number >= 0 for number in (position, step)):
            raise StateError(
                f"`state` has position {position!r} and step {step!r}; both must be integers of at least 0."
            )
        order = self._recipe.order
        if position + order.batch_size >= 1 << 63:
            raise StateError(
                f"`state` has position {position}, which is beyond the 2**63 samples of a stream."
            )
        inside = position % order.rows % order.batch_size
        if order.remainder != "straddle" and inside:
            warnings.warn(
                f"the state is at sample {position}, {inside} samples into a batch of {order.batch_size}: with "
                f"remainder={order.remainder!r} the batches of this epoch begin at other samples than those of a "
                "loader that starts with this batch size. "
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
                self._recipe.pipeline.check_size(short)
            except ArgumentError as error:
                raise StateError(
                    f'with `state` at sample {position} {error} Use remainder="pad" or "drop".'
                ) from error
        consumed = (position, step)
        self._unsettled = True
        self._consumed = consumed

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "an iterator cannot be pickled or copied: it has threads. Pickle the loader and `iterator.get_state()`; "
            "`iter(loader).set_state(state)` continues at the same sample."
        )

    def stats(self) -> Stats:
        """Batches, seconds and bytes so far, and who waits for whom."""
        total = 0.0 if self._began is None else time.perf_counter() - self._began
        return Stats(self._batches, self._waiting, self._building, total, self._bytes)

    def close(self) -> None:
        """End the threads. Batches that were handed out stay valid."""
        self._crew.dismiss()
        self._cancel()
        self._crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
