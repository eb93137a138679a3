"""Say what is being compiled when that takes longer than a second: to the logger `loaderx`, and on a terminal."""

import logging
import os
import sys
import threading
from contextlib import suppress
from typing import Any

from numba.core import event
from numba.core.caching import NullCache

SECONDS = 1.0
logger = logging.getLogger("loaderx")


def say(message: str) -> None:
    """Log a message, and write it to stderr where that is a terminal."""
    logger.info(message)
    # Not `sys.stderr.write`: a thread that the end of the program interrupts must not hold its lock.
    with suppress(OSError, ValueError, AttributeError):
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), f"loaderx: {message}\n".encode(errors="replace"))


class _Announcer(event.Listener):
    """Listener to Numba: while a function of this library compiles, a thread waits for a second and then says so.

    A function that is compiled on behalf of another is part of that. Each thread has its own state: of several threads
    Numba lets one compile at a time, and a forked child keeps only the thread that forked.
    """

    def __init__(self) -> None:
        self._state = threading.local()

    def on_start(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]
        ours = (dispatcher.py_func.__module__ or "").startswith("loaderx.")
        if not ours or getattr(self._state, "waiting", None) is not None:
            return
        done = threading.Event()
        thread = threading.Thread(
            target=_wait, args=(done, _message(dispatcher)), name="loaderx-progress"
        )
        with suppress(RuntimeError):  # the interpreter ends, and starts no more threads
            thread.start()
            self._state.waiting = event.data, done, thread

    def on_end(self, event: Any) -> None:
        waiting = getattr(self._state, "waiting", None)
        if waiting is not None and event.data is waiting[0]:
            self._state.waiting = None
            _, done, thread = waiting
            done.set()
            thread.join()


def _wait(done: threading.Event, message: str) -> None:
    if not done.wait(SECONDS):
        say(message)


def _message(dispatcher: Any) -> str:
    function = dispatcher.py_func
    what = getattr(function, "description", f"the kernel {function.__name__!r}")
    if isinstance(dispatcher._cache, NullCache):
        return f"compiling {what}, once in every process: it cannot be cached"
    return f"compiling {what}, the first time only: later it is loaded from the cache"


def install() -> None:
    """Have compilations announced from now on, in this process."""
    event.register("numba:compile", _ANNOUNCER)


_ANNOUNCER = _Announcer()
