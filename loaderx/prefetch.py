"""Threads that build batches ahead of the consumer.

The consumer's thread decides what is built and in which order; workers take jobs from one queue. A large batch is
divided into parts that any free worker takes, so a batch is ready soon also when only a few may be kept ready.
"""

import atexit
import functools
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

from .order import Span

Task: TypeAlias = Callable[[], None]
# By the clock on the wall, and by that of the thread's work.
Began: TypeAlias = tuple[float, float]
# Seconds that closing waits for threads that are in the middle of something.
PATIENCE = 2.0


class Builder(Protocol):
    """How a batch is built: begin, in every phase fill every part in any thread, finish."""

    @property
    def compiled(self) -> bool: ...
    def begin(self, step: int, span: Span) -> Any: ...
    def fill(self, assembly: Any, phase: int, part: int) -> None: ...
    def finish(self, assembly: Any) -> Any: ...


class Crew:
    """The threads of one iterator. They know the queue and nothing else, so that they keep nothing alive."""

    def __init__(self, workers: int) -> None:
        self.closed = False
        self._workers = workers
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def put(self, task: Task) -> None:
        """Leave a task to whichever thread is free. The first one is the consumer's, and starts the threads."""
        if not self._threads and not self.closed:
            self._start()
        self._tasks.put(task)

    def _start(self) -> None:
        threads = [
            threading.Thread(
                target=work, args=(self._tasks,), name=f"loaderx-{number}", daemon=True
            )
            for number in range(self._workers)
        ]
        # Registered late, so that it runs before the exit handlers of what the threads use (JAX).
        atexit.register(self.close)
        if self.closed:  # by another thread, just now
            atexit.unregister(self.close)
        for thread in threads:
            thread.start()
        # Only now: who was interrupted before this starts others.
        self._threads = threads

    def help(self) -> None:
        """Do in this thread what is left, once the crew is dismissed."""
        work(self._tasks)

    def dismiss(self) -> None:
        """Let every thread end after the task it is at. Never blocks, for use by a garbage collection."""
        if not self.closed:
            self.closed = True
            atexit.unregister(self.close)
            self._tasks.put(None)

    def close(self) -> None:
        """Dismiss, and wait for the threads to end."""
        self.dismiss()
        # A user's transform may take long; it is not worth hanging for.
        deadline = time.monotonic() + PATIENCE
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=max(0.0, deadline - time.monotonic()))


def work(tasks: "SimpleQueue[Task | None]") -> None:
    """What a thread does: one task after the other until it gets None and nothing else is left."""
    while True:
        task = tasks.get()
        if task is None:
            # There is one None for all. Parts of a batch that was begun may stand behind it, and somebody may wait for
            # these: so it goes to the end of the line until nothing else is left.
            left = not tasks.empty()
            tasks.put(None)
            if left:
                continue
            return
        task()
        # Otherwise the last batch would live until the next task comes.
        del task


class Job:
    """One batch on its way."""

    def __init__(self, builder: Builder, crew: Crew, step: int, span: Span) -> None:
        self.step = step
        self.span = span
        self.cancelled = False
        self.error: BaseException | None = None
        self.batch: Any = None
        self.nbytes = 0
        self.seconds = 0.0
        # Of a core. Waiting for the GIL does not count, and so this says what the batch takes, not what else goes on.
        self.work_seconds = 0.0
        # The last one that the same worker builds in a row: who waits for one of them is woken once for all. None for
        # that one itself: a job that refers to itself would keep its error, and so the iterator, until a collection.
        self.last: Job | None = None
        self._builder = builder
        self._crew = crew
        self._assembly: Any = None
        self._left = 0
        self._lock = threading.Lock()
        # Bare locks are the cheapest there is. Who takes this one builds the batch.
        self._claim = threading.Lock()
        # Taken now, released when the batch is ready.
        self._ready = threading.Lock()
        self._ready.acquire()

    def wait(self) -> None:
        """Block until the batch or the error is there."""
        if self._builder.compiled or self._crew.closed:
            # A batch that no worker has begun is built right here: for a small one that is faster than waking a thread.
            # Not so with a user's Python code in it, which belongs to the workers alone, while there are any.
            self.start()
        if self._ready.acquire(blocking=False):
            self._ready.release()
            return
        if self.last is not None:
            self.last._await()
        self._await()

    def _await(self) -> None:
        while not self._ready.acquire(timeout=0.1):
            if self._crew.closed:
                # Its parts may have come too late for the workers.
                self._crew.help()
        self._ready.release()

    def start(self) -> None:
        """Unless somebody else did: begin the batch, leave its other parts to whoever is free, and fill the first."""
        if not self._claim.acquire(blocking=False):
            return
        began = time.perf_counter(), time.thread_time()
        if self.cancelled or self._crew.closed:
            self._ready.release()
            return
        try:
            self._assembly = self._builder.begin(self.step, self.span)
        except BaseException as error:  # noqa: BLE001 - it is raised in the consumer
            self._fail(error)
            self._ready.release()
            return
        self._fill_phase(0, began)

    def _fill_phase(self, phase: int, began: Began) -> None:
        self._left = self._assembly.parts(phase)
        for part in range(1, self._left):
            task = functools.partial(self._fill, phase, part, None)
            self._crew.put(task)
        self._fill(phase, 0, began)

    def _fill(self, phase: int, part: int, began: Began | None) -> None:
        began = began or (time.perf_counter(), time.thread_time())
        try:
            if self.error is None and not self.cancelled:
                self._builder.fill(self._assembly, phase, part)
        except BaseException as error:  # noqa: BLE001 - it is raised in the consumer
            self._fail(error)
        with self._lock:
            self._left -= 1
            last = self._left == 0
            if not last:
                self._count(began)
        if not last:
            return
        # Nobody else is at this batch now.
        if phase + 1 < self._assembly.phases:
            self._count(began)
            self._fill_phase(phase + 1, (time.perf_counter(), time.thread_time()))
            return
        self._finish()
        self._count(began)
        self._ready.release()

    def _count(self, began: Began) -> None:
        self.seconds += time.perf_counter() - began[0]
        self.work_seconds += time.thread_time() - began[1]

    def _fail(self, error: BaseException) -> None:
        self.error = self.error or error
        if self.cancelled:
            self.error = None

    def cancel(self) -> None:
        """Nobody wants the batch any more, nor its error."""
        self.cancelled = True
        # It knows the frames it came through, and they know this object: both would keep the batch alive until the next
        # garbage collection.
        self.error = None

    def _finish(self) -> None:
        assembly, self._assembly = self._assembly, None
        if self.error is None and not self.cancelled:
            try:
                self.nbytes = assembly.nbytes
                self.batch = self._builder.finish(assembly)
            except BaseException as error:  # noqa: BLE001 - it is raised in the consumer
                self._fail(error)


def start_all(jobs: list[Job]) -> None:
    """Build several batches in a row."""
    for job in jobs:
        job.start()
