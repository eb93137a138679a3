"""Shutdown of the interpreter, and forks: a registry of running threads and of threads inside of JAX.

A thread that is inside of JAX when the interpreter ends aborts the process: CPython ends it by unwinding its stack, and
JAX's C++ frames do not allow that ("FATAL: exception not rethrown"). So an exit handler stops all workers. From then on
only the main thread enters JAX.
"""

import atexit
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from loaderx.errors import ClosedError

# Seconds to wait for threads that run a user's code. It may take long, and is not a reason to hang.
PATIENCE = 2.0
# Seconds to wait for threads inside of JAX. They are there for the time of a copy.
HAND_OFF_PATIENCE = 60.0


class Stoppable(Protocol):
    """Worker pool that can be asked to stop, and does so after its current tasks."""

    def request_stop(self) -> None: ...


@dataclass
class Process:
    """State of this process."""

    # Number of forks since this module was imported.
    generation: int = 0
    # Generation in which JAX was first given arrays.
    jax_generation: int | None = None
    # True once the exit handler has begun.
    exiting: bool = False
    # Threads that were started and have not ended, including those of iterators that are gone.
    running: dict[threading.Thread, Stoppable] = field(default_factory=dict)
    # Threads inside of JAX, by their identifiers.
    in_hand_off: set[int] = field(default_factory=set)

    @property
    def past_exit(self) -> bool:
        """True if the calling thread must not continue. The main thread may: exit handlers run there."""
        return self.exiting and threading.current_thread() is not threading.main_thread()


process = Process()


def register(threads: Iterable[threading.Thread], pool: Stoppable) -> None:
    """Register threads that are about to start, so that they are stopped before the interpreter ends."""
    process.running.update(dict.fromkeys(threads, pool))
    # Moved to the end of the exit handlers, which run last in, first out: so it runs before that of JAX.
    atexit.unregister(_stop_all)
    atexit.register(_stop_all)


def unregister_current_thread() -> None:
    """Forget the calling thread, which is about to end."""
    process.running.pop(threading.current_thread(), None)


def join(threads: Iterable[threading.Thread], seconds: float = PATIENCE) -> None:
    """Wait for threads to end, but not longer than `seconds` for all."""
    deadline = time.monotonic() + seconds
    for thread in threads:
        if thread is not threading.current_thread() and thread.is_alive():
            thread.join(timeout=max(0.0, deadline - time.monotonic()))


def hold_if_exiting() -> None:
    """Block a daemon thread for ever while the interpreter ends, since continuing would abort the process."""
    if process.past_exit:
        threading.Event().wait()


class HandOffGate:
    """Context manager for calls into JAX: registers the thread, and refuses it once the exit handler has begun."""

    __slots__ = ()

    def __enter__(self) -> None:
        # First, so that either the exit handler sees this thread, or this thread sees that the handler has begun.
        process.in_hand_off.add(threading.get_ident())
        if process.past_exit:
            process.in_hand_off.discard(threading.get_ident())
            raise ClosedError("the interpreter is exiting.")
        if process.jax_generation != process.generation:
            if process.jax_generation is not None:
                process.in_hand_off.discard(threading.get_ident())
                raise RuntimeError(
                    "this process was forked from one that uses JAX, whose threads do not exist here: JAX would block "
                    'for ever. Use output="numpy" in forked processes, or start them by "spawn".'
                )
            process.jax_generation = process.generation

    def __exit__(self, *exception: object) -> None:
        process.in_hand_off.discard(threading.get_ident())


def _stop_all() -> None:
    process.exiting = True
    for pool in set(process.running.values()):
        pool.request_stop()
    join(list(process.running))
    deadline = time.monotonic() + HAND_OFF_PATIENCE
    while process.in_hand_off - {threading.get_ident()} and time.monotonic() < deadline:
        time.sleep(0.001)


def _forget_parent() -> None:
    """Clear the registry in a forked child, which has only the thread that forked."""
    process.generation += 1
    process.running.clear()
    process.in_hand_off.clear()


os.register_at_fork(after_in_child=_forget_parent)
