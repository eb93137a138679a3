"""Announcements of compilations of more than a second: to the logger `loaderx`, and on a terminal."""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from .numba_internals import has_cache, watch_compilations

SECONDS = 1.0
logger = logging.getLogger("loaderx")


def announce(message: str) -> None:
    """Log a message, and write it to stderr where that is a terminal."""
    logger.info(message)
    # Not `sys.stderr.write`: a thread that is interrupted at the end of the program must not hold its lock.
    with suppress(OSError, ValueError, AttributeError):
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), f"loaderx: {message}\n".encode(errors="replace"))


class Work:
    """Series of compilations that is announced once: when they have taken longer than a second in all."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._spent = 0.0
        self._said = False

    @contextmanager
    def compiling(self, *, cached: bool) -> Iterator[None]:
        """Measure the time of one of them; `cached` tells whether it is cached for other processes."""
        began = time.monotonic()
        message = "once in every process: it cannot be cached"
        if cached:
            message = "the first time only: later it is loaded from the cache"
        with _Announced(f"compiling {self._what}, {message}", SECONDS - self._spent, self._say):
            yield
        self._spent += time.monotonic() - began

    def _say(self, message: str) -> None:
        if not self._said:
            self._said = True
            announce(message)


class _Announced:
    """Context that logs a message if it lasts longer than some seconds."""

    def __init__(self, message: str, seconds: float, tell: Callable[[str], None]) -> None:
        self._message, self._seconds, self._tell = message, max(seconds, 0.0), tell
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="loaderx-progress")

    def __enter__(self) -> None:
        with suppress(RuntimeError):  # the interpreter ends, and starts no more threads
            self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _wait(self) -> None:
        if not self._done.wait(self._seconds):
            self._tell(self._message)


class _Announcer:
    """Listener of compilations: if a function of this library compiles for a second, a thread announces it.

    A function that is compiled for another one is part of that compilation; one that is `announced` is part of some
    `Work`. Each thread has its own state: Numba lets one thread compile at a time, and a forked child keeps only the
    thread that forked.
    """

    def __init__(self) -> None:
        self._state = threading.local()

    def on_start(self, compilation: Any, dispatcher: Any) -> None:
        ours = (dispatcher.py_func.__module__ or "").startswith("loaderx.")
        if not ours or getattr(self._state, "waiting", None) is not None:
            return
        stack = ExitStack()
        if not getattr(dispatcher.py_func, "announced", False):
            stack.enter_context(_Announced(_message(dispatcher), SECONDS, announce))
        self._state.waiting = compilation, stack

    def on_end(self, compilation: Any) -> None:
        waiting = getattr(self._state, "waiting", None)
        if waiting is not None and compilation is waiting[0]:
            self._state.waiting = None
            waiting[1].close()


def _message(dispatcher: Any) -> str:
    what = f"the kernel {dispatcher.py_func.__name__!r}"
    if not has_cache(dispatcher):
        return f"compiling {what}, once in every process: it cannot be cached"
    return f"compiling {what}, the first time only: later it is loaded from the cache"


def install() -> None:
    """Announce compilations from now on, in this process."""
    watch_compilations(_ANNOUNCER.on_start, _ANNOUNCER.on_end)


_ANNOUNCER = _Announcer()
