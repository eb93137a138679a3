"""Calls that Ctrl-C does not interrupt: imports and compilations, which must not be left half done."""

import atexit
import gc
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_COUNTING = threading.Lock()
# One entry for each thread inside of `OwnGarbage`: whether the collector was on before the first.
_inside: list[bool] = []


# The end events of running calls. Not their threads: on Python 3.11 a thread whose `join` was interrupted seems to have
# ended.
_running: set[threading.Event] = set()


def _join_running() -> None:
    """Wait for running calls at the end of the interpreter: it would abort in the middle of a call of JAX.

    Python waits for them, too, but only until the next Ctrl-C.
    """
    for ended in list(_running):
        while not ended.is_set():
            with suppress(KeyboardInterrupt):
                ended.wait()


atexit.register(_join_running)


def _forget_threads() -> None:
    """Reset the count in a forked child: no other thread is inside."""
    _running.clear()
    if any(_inside):
        gc.enable()
    _inside.clear()
    _COUNTING._at_fork_reinit()  # type: ignore[attr-defined]


os.register_at_fork(after_in_child=_forget_threads)


class OwnGarbage:
    """Context whose garbage is collected in this thread, instead of by a collection at any time in any thread.

    The finalizers of llvmlite use a lock, too: Ctrl-C in one of them, in the main thread, would leave it locked.
    """

    def __enter__(self) -> None:
        with _COUNTING:
            _inside.append(gc.isenabled() or any(_inside))
            gc.disable()

    def __exit__(self, *exception: object) -> None:
        # All objects that were created meanwhile are in the youngest generation.
        gc.collect(0)
        with _COUNTING:
            if _inside.pop() and not _inside:
                gc.enable()


def uninterrupted(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a function in a thread of its own and wait for it, since signal handlers run in the main thread only.

    KeyboardInterrupt is raised at once while the function continues. A module whose import is interrupted is imported
    again at its next import: its registrations with Numba or JAX are then repeated, and fail. An interrupt in one of
    the callbacks of LLVM is lost, or frees its memory twice. One while Numba enters its lock of compilers leaves it
    locked, and every thread waits forever.
    """
    if threading.current_thread() is not threading.main_thread():
        with OwnGarbage():
            return function(*arguments, **named)
    ended = threading.Event()
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with OwnGarbage():
                results.append(function(*arguments, **named))
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller
            errors.append(error)
        finally:
            _running.discard(ended)
            ended.set()

    # Not a daemon: an interpreter that ends in the middle of this waits for it.
    thread = threading.Thread(target=run, name="loaderx-uninterrupted")
    _running.add(ended)
    try:
        thread.start()
    except RuntimeError:  # the interpreter ends, and starts no more threads
        _running.discard(ended)
        return function(*arguments, **named)
    ended.wait()
    thread.join()
    if errors:
        raise errors.pop()
    return results[0]


# One import at a time: of two threads that import the same packages one may see a half of them.
_IMPORTING = threading.RLock()


def import_uninterrupted(load: Callable[[], Any]) -> Any:
    """Call a function that imports, without interruption."""

    def run() -> Any:
        with _IMPORTING:
            return load()

    return uninterrupted(run)
