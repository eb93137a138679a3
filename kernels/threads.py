"""Threads of one call: regions of Numba's threading layer where these are safe, and a thread pool elsewhere.

Several threads may enter regions of the layers `omp` and `tbb` at once. Two threads in a region of `workqueue` abort
the process, and GNU OpenMP aborts a forked child. There a thread pool of this library shares the work. Waking its
threads takes longer; nothing else is different.

One call at a time is parallel, with the cores that no other call is busy on. Calls that come meanwhile stay in the
threads of their callers. So any number of calls have at most all other cores in addition.
"""

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Self

import numba
import numpy as np
from numba.core import config
from numpy.typing import NDArray

from .numba_internals import layer_is_launched, num_threads
from .uninterrupted import uninterrupted

REGIONS = ("omp", "tbb")
# Small work is not parallel. [2 cores, omp: a region adds 5 us, and is worth it from a gather of 384 KB on. But if
# other programs use the cores, too, it waits for its last thread, up to 12 ms: two threads then gather 1.5 MB at 1.3
# GB/s, and one at 5.6.]
BYTES_PER_THREAD = 1024 * 1024
# [2 cores: 50 us to wake a thread of the pool]
POOL_FACTOR = 4

# (bounds of the parts) -> None, and (part, begin, end) -> None
Region = Callable[[NDArray[np.int64]], None]
Part = Callable[[int, int, int], None]


class ProcessThreads:
    """Number of threads at work in one process, and its thread pool."""

    def __init__(self, *, forked: bool) -> None:
        self._forked = forked
        self._lock = threading.Lock()
        self._busy = 0
        self._divided = False
        self._regions: bool | None = None
        self._pool: ThreadPoolExecutor | None = None

    def begin(self, count: int) -> int:
        """Reserve up to `count` threads, the caller's own included; return how many were granted."""
        with self._lock:
            free = 1 if self._divided else config.NUMBA_NUM_THREADS - self._busy
            count = max(1, min(count, free))
            self._busy += count
            self._divided = self._divided or count > 1
        return count

    def end(self, count: int) -> None:
        """Release the threads that `begin` returned."""
        with self._lock:
            self._busy -= count
            self._divided = self._divided and count == 1

    def run(self, size: int, count: int, region: Region, part: Part) -> None:
        """Run `size` samples in `count` parts at once: all of them by a `region`, or each by `part`."""
        bounds = bounds_of(size, count)
        if self.has_regions():
            _run_region(region, bounds)
        else:
            self._run_pool(part, bounds)

    def has_regions(self) -> bool:
        """Tell whether parallel regions are safe here. The first call starts Numba's threading layer."""
        if self._regions is None:
            if config.DISABLE_JIT:
                self._regions = True
            else:
                self._regions = not self._forked and uninterrupted(_start_layer) in REGIONS
        return self._regions

    def _run_pool(self, part: Part, bounds: NDArray[np.int64]) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                max(1, config.NUMBA_NUM_THREADS - 1), thread_name_prefix="loaderx-kernels"
            )
        arguments = [
            (number, int(bounds[number]), int(bounds[number + 1]))
            for number in range(len(bounds) - 1)
        ]
        futures: list[Future[None]] = []
        try:
            for each in arguments[1:]:
                futures.append(self._pool.submit(part, *each))  # noqa: PERF401 - kept if one fails
        except RuntimeError:
            # The interpreter ends, or the system has no more threads. Parts that the pool has not begun run here.
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        try:
            part(*arguments[0])
            # The last first: parts that no other thread has begun by now run here, however busy the machine is.
            for number in range(len(arguments) - 1, 0, -1):
                if number > len(futures) or futures[number - 1].cancel():
                    part(*arguments[number])
        finally:
            # A cancelled future notifies its waiters only when a thread has looked at it.
            begun = [future for future in futures if not future.cancelled()]
            wait(begun)
        for future in begun:
            future.result()


def bounds_of(size: int, count: int) -> NDArray[np.int64]:
    """Return the beginning of each of `count` parts of `size` samples, and the end."""
    return np.arange(count + 1, dtype=np.int64) * size // count


def _start_layer() -> str:
    try:
        numba.get_num_threads()
        return str(numba.threading_layer())
    except ValueError:  # the layer that was asked for cannot be loaded
        return ""


def _run_region(region: Region, bounds: NDArray[np.int64]) -> None:
    count = len(bounds) - 1
    if config.DISABLE_JIT or num_threads() == count:
        region(bounds)
        return
    # The number applies to the calling thread alone.
    before = num_threads()
    numba.set_num_threads(count)
    try:
        region(bounds)
    finally:
        numba.set_num_threads(before)


def worthwhile(size: int, nbytes: int, bytes_per_thread: int) -> int:
    """Return the number of threads that are worth waking for `size` samples with `nbytes` of work."""
    count = nbytes // bytes_per_thread
    if count > 1 and not _current[0].has_regions():
        count = nbytes // (POOL_FACTOR * bytes_per_thread)
    return max(1, min(size, count))


class Team:
    """Context of a call that has up to `most` threads: `count` of them."""

    __slots__ = ("_most", "_process", "count")

    def __init__(self, most: int, threads: int | None) -> None:
        limit = num_threads() if threads is None else min(threads, config.NUMBA_NUM_THREADS)
        self._most = min(most, limit)

    def __enter__(self) -> Self:
        self._process = _current[0]
        self.count = self._process.begin(self._most)
        return self

    def __exit__(self, *exception: object) -> None:
        # To the process that granted them: a user's code may have forked inside.
        self._process.end(self.count)

    def run(self, size: int, region: Region, part: Part) -> None:
        """Run `size` samples in `count` parts at once."""
        self._process.run(size, self.count, region, part)


def run_shared(size: int, nbytes: int, threads: int | None, region: Region, part: Part) -> None:
    """Run `size` samples with `nbytes` of work, in parts at once where that is faster."""
    most = worthwhile(size, nbytes, BYTES_PER_THREAD)
    if most == 1:
        part(0, 0, size)
        return
    with Team(most, threads) as team:
        if team.count == 1:
            part(0, 0, size)
        else:
            team.run(size, region, part)


# A layer that was launched before this import, in a child of `multiprocessing`, may be that of the parent.
_current = [
    ProcessThreads(forked=layer_is_launched() and multiprocessing.parent_process() is not None)
]


def _forget_parent() -> None:
    """Reset the state in a forked child: of all threads only the one that forked is there."""
    _current[0] = ProcessThreads(forked=True)


os.register_at_fork(after_in_child=_forget_parent)
