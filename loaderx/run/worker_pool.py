"""Worker pool: threads that build batches ahead of the consumer (prefetching).

The consumer's thread decides which batches are built, and in which order. Workers take tasks from one queue. A large
batch is divided into parts for several workers, so that it is ready soon even if only a few batches are prefetched.
"""

import functools
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

from loaderx.process import shutdown
from loaderx.stream.remainder import Span

Task: TypeAlias = Callable[[], None]
# Start of a task by the wall clock, and by the CPU clock of the thread.
Began: TypeAlias = tuple[float, float]


class Builder(Protocol):
    """Builder of batches: begin, fill every part of every phase in any thread, finish.

    A batch in progress can be asked to `cancel`: what waits for something outside of this process then ends.
    """

    @property
    def compiled(self) -> bool: ...
    def begin(self, step: int, span: Span) -> Any: ...
    def fill(self, in_progress: Any, phase: int, part: int) -> None: ...
    def finish(self, in_progress: Any) -> Any: ...


class WorkerPool:
    """Worker pool of one iterator. Its threads refer to the pool only, so that they keep nothing else alive."""

    def __init__(self, workers: int) -> None:
        self.closed = False
        # In a forked child the threads of the parent do not exist.
        self._generation = shutdown.process.generation
        self._workers = workers
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    @property
    def forked(self) -> bool:
        """True if the pool belongs to a process that this one was forked from."""
        return self._generation != shutdown.process.generation

    def put(self, task: Task) -> None:
        """Queue a task for whichever thread is free. The first one comes from the consumer and starts the threads."""
        if not self._threads and not self.closed:
            self._start()
        self._tasks.put(task)

    def _start(self) -> None:
        self._threads = self._started(range(self._workers))

    def grow(self, workers: int) -> None:
        """Have at least `workers` threads."""
        first, self._workers = self._workers, max(self._workers, workers)
        if self._threads and first < workers and not self.closed:
            self._threads = [*self._threads, *self._started(range(first, workers))]

    def _started(self, numbers: range) -> list[threading.Thread]:
        """Start threads. A caller that is interrupted here does not keep them, and starts others."""
        threads = [
            threading.Thread(target=self._work, name=f"loaderx-{number}", daemon=True)
            for number in numbers
        ]
        shutdown.register(threads, self)
        for thread in threads:
            thread.start()
        return threads

    def _work(self) -> None:
        try:
            self.drain()
        finally:
            shutdown.unregister_current_thread()

    def drain(self) -> None:
        """Run tasks until a stop is requested and none is left."""
        while True:
            task = self._tasks.get()
            if task is None:
                # There is one None for all threads. Parts of a batch may be queued after it, and a thread may wait for
                # them. So None returns to the end of the queue until nothing else is left.
                left = not self._tasks.empty()
                self._tasks.put(None)
                if left:
                    continue
                return
            task()
            # Otherwise the last batch would live until the next task comes.
            del task

    def request_stop(self) -> None:
        """Let every thread end after its current task. Never blocks: the garbage collector calls this."""
        if not self.closed:
            self.closed = True
            self._tasks.put(None)

    def close(self) -> None:
        """Request a stop, and wait for the threads to end."""
        self.request_stop()
        alive = [thread for thread in self._threads if thread.is_alive()]
        # A generator that was not exhausted is closed after the interpreter has ended, when modules are empty.
        if alive:
            shutdown.join(alive)


class BatchTask:
    """Task of building one batch."""

    def __init__(self, builder: Builder, pool: WorkerPool, step: int, span: Span) -> None:
        self.step = step
        self.span = span
        self.cancelled = False
        self.error: BaseException | None = None
        self.batch: Any = None
        self.nbytes = 0
        # Number of damaged rows that were replaced.
        self.replaced = 0
        self.seconds = 0.0
        # CPU time. Waiting for the GIL does not count, so it does not depend on other threads.
        self.work_seconds = 0.0
        # The last of the tasks that one worker builds without waking the consumer in between. None for that task
        # itself: a reference cycle would keep its error, and so the iterator, until a garbage collection.
        self.last: BatchTask | None = None
        self._builder = builder
        self._pool = pool
        self._in_progress: Any = None
        self._left = 0
        self._lock = threading.Lock()
        # The thread that takes this lock builds the batch. A bare lock is the cheapest primitive.
        self._claim = threading.Lock()
        # Taken now, released when the batch is ready.
        self._ready = threading.Lock()
        self._ready.acquire()

    def wait(self) -> None:
        """Block until the batch or its error is available."""
        if self._builder.compiled or self._pool.closed:
            # A batch that no worker has begun is built by this thread: for a small one that is faster than waking
            # another. A user's Python code runs in the workers only, while there are any.
            self.start()
        if self._ready.acquire(blocking=False):
            self._ready.release()
            return
        if self.last is not None:
            self.last._await()
        self._await()

    def _await(self) -> None:
        while not self._ready.acquire(timeout=0.1):
            if self._pool.closed:
                # Its parts may have been queued after the workers ended.
                self._pool.drain()
        self._ready.release()

    def start(self) -> None:
        """Begin the batch unless another thread did: queue all parts but the first, and fill the first."""
        if not self._claim.acquire(blocking=False):
            return
        began = time.perf_counter(), time.thread_time()
        if self.cancelled or self._pool.closed:
            self._ready.release()
            return
        try:
            self._in_progress = self._builder.begin(self.step, self.span)
        except BaseException as error:  # noqa: BLE001 - it is raised in the consumer
            self._fail(error)
            self._ready.release()
            return
        self._fill_phase(0, began)

    def _fill_phase(self, phase: int, began: Began) -> None:
        self._left = self._in_progress.parts(phase)
        for part in range(1, self._left):
            task = functools.partial(self._fill, phase, part, None)
            self._pool.put(task)
        self._fill(phase, 0, began)

    def _fill(self, phase: int, part: int, began: Began | None) -> None:
        began = began or (time.perf_counter(), time.thread_time())
        try:
            if self.error is None and not self.cancelled:
                self._builder.fill(self._in_progress, phase, part)
        except BaseException as error:  # noqa: BLE001 - it is raised in the consumer
            self._fail(error)
        with self._lock:
            self._left -= 1
            last = self._left == 0
            if not last:
                self._count(began)
        if not last:
            return
        # No other thread works on this batch now.
        if phase + 1 < self._in_progress.phases:
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
        """Drop the batch and its error."""
        self.cancelled = True
        in_progress = self._in_progress
        if in_progress is not None:
            in_progress.cancel()
        # The error refers to the frames it passed, and they refer to this object: the cycle would keep the batch alive
        # until the next garbage collection.
        self.error = None

    def _finish(self) -> None:
        in_progress, self._in_progress = self._in_progress, None
        if self.error is None and not self.cancelled:
            try:
                self.nbytes, self.replaced = in_progress.nbytes, in_progress.replaced
                self.batch = self._builder.finish(in_progress)
            except BaseException as error:  # noqa: BLE001 - it is raised in the consumer
                self._fail(error)


def start_all(batches: list[BatchTask], rest: float) -> None:
    """Build several batches, after a rest: see `Scheduler.rest`."""
    if rest > 0:
        time.sleep(rest)
    for batch in batches:
        batch.start()
