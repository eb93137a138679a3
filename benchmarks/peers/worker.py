"""Common part of all workers: one JSON line on stdout per JSON line on stdin, until stdin ends.

{"do": "run", "seconds": 0.5} calls `actions.run(seconds=0.5)`, which returns the answer. A request that fails ends the
process, with the reason on stderr.
"""

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.rows import Array
from benchmarks.workloads import Batch, Workload, check_epoch

WINDOWS = 200  # batches that are checked


def serve(actions: object) -> None:
    """Answer requests until stdin ends."""
    # Output of a library must not end up between two answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        action: Callable[..., dict[str, Any]] = getattr(actions, request.pop("do"))
        answers.write(json.dumps(action(**request)) + "\n")


def timed(sizes: Iterator[int], batches: int, ready: int) -> dict[str, float]:
    """Time `batches` batches of an endless loader that is asked for them by `next(sizes)`.

    Up to `ready` batches of its queue may be older than the clock, and do not count.
    """
    for _ in islice(sizes, ready):
        pass
    started = time.perf_counter()
    images = sum(islice(sizes, batches))
    return {"images": images, "seconds": time.perf_counter() - started}


class CannotError(Exception):
    """Refusal of a workload that the peer cannot do, with the reason."""


class Session(ABC):
    """Loader over one workload, which the worker of a peer defines."""

    # The number of batches that its queue may hold when it is asked for the next one.
    ready = 0

    def __init__(self, work: Workload, workers: int, on_device: bool, variant: str = "") -> None:
        """Open the loader; `on_device` asks for jax.Arrays, if it delivers them itself.

        `variant` is one of several ways that it has to do the same work, such as the files that it reads.
        """
        self.work, self.workers, self.on_device = work, workers, on_device
        self.variant = variant
        self.open()

    @classmethod  # noqa: B027 - most have none
    def prepare(cls, work: Workload) -> None:
        """Write the files of a workload in a format of its own; not timed."""

    @abstractmethod
    def open(self) -> None:
        """Open the loader over `self.work`, or raise a CannotError."""

    @abstractmethod
    def epoch(self) -> Iterator[Batch]:
        """Yield one epoch, to be checked."""

    @abstractmethod
    def stream(self) -> Iterator[Batch]:
        """Yield batches without end, as they are delivered; called once."""

    def close(self) -> None:  # noqa: B027 - not all have some
        """End threads and processes."""


class Actions:
    """Requests of the harness to any session."""

    def __init__(self, make: type[Session]) -> None:
        self.make = make
        self.session: Session | None = None

    def prepare(self, work: dict[str, Any]) -> dict[str, Any]:
        """Write files in a format of its own."""
        self.make.prepare(Workload.of(work))
        return {}

    def open(
        self, work: dict[str, Any], workers: int, on_device: bool = False, variant: str = ""
    ) -> dict[str, Any]:
        """Open a loader, in place of the last one."""
        self.close()
        self.session = self.make(Workload.of(work), workers, on_device, variant)
        self.batches = self.session.stream()
        return {}

    def check(self) -> dict[str, Any]:
        """Check that an epoch is that of the workload, and summarise it."""
        assert self.session is not None
        work = self.session.work
        # Windows begin anywhere: an epoch has as many as tokens, so some are enough.
        batches = islice(self.session.epoch(), WINDOWS if work.kind == "windows" else None)
        return check_epoch(work, batches)

    def first(self) -> dict[str, Any]:
        """Wait for one batch."""
        return {"rows": _size(_arrived(next(self.batches)))}

    def run(self, seconds: float) -> dict[str, float]:
        """Count the rows of so many seconds, after the batches in the queue."""
        assert self.session is not None
        for _ in range(self.session.ready):
            _arrived(next(self.batches))
        rows = batches = 0
        started = now = time.perf_counter()
        while now - started < seconds:
            rows += _size(_arrived(next(self.batches)))
            batches += 1
            now = time.perf_counter()
        return {"rows": rows, "batches": batches, "seconds": now - started}

    def opening(self, work: dict[str, Any], workers: int) -> dict[str, float]:
        """Time a new loader up to its first batch."""
        self.close()
        started = time.perf_counter()
        session = self.make(Workload.of(work), workers, False)
        batches = session.stream()
        _arrived(next(batches))
        spent = time.perf_counter() - started
        self.session, self.batches = session, batches
        return {"seconds": spent}

    def train(self, steps: int) -> dict[str, float]:
        """Train a Flax model, and return how long it waited for data."""
        from benchmarks.training import train

        assert self.session is not None
        return train(self.batches, steps, classes=10)

    def close(self) -> dict[str, Any]:
        """End the loader, if there is one."""
        if self.session is not None:
            self.session.close()
            self.session = None
        return {}


def numpy_epochs(work: Workload, seed: int = 0) -> Iterator[Array]:
    """Yield the numbers of the rows of each batch, epoch by epoch without end; the last of an epoch is short."""
    generator = np.random.default_rng(seed)
    while True:
        order = generator.permutation(work.rows)
        for start in range(0, work.rows, work.batch_size):
            yield order[start : start + work.batch_size]


def batches_per_epoch(work: Workload) -> int:
    """Return the number of batches of an epoch, of which the last one is short."""
    return -(-work.rows // work.batch_size)


def _arrived(batch: Batch) -> Batch:
    """Wait until a batch is computed: JAX returns arrays before that."""
    for array in batch:
        if hasattr(array, "block_until_ready"):
            array.block_until_ready()
    return batch


def _size(batch: Batch) -> int:
    return len(batch[0])
