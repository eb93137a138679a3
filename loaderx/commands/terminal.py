"""Terminal of all commands: lines of output, numbers for people, Ctrl-C, and missing packages."""

import argparse
import contextlib
import gc
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, cast

from loaderx.errors import ArgumentError, LoaderxError

# Exit statuses; after a signal it is 128 plus the number of the signal.
DONE, FAILED, WRONG_INPUT, SIGNALLED = 0, 1, 2, 128
# Signals that stop a command cleanly: Ctrl-C, `kill`, and a terminal that is closed.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class UsageError(ArgumentError):
    """Request that a command cannot do."""


class MissingPackageError(LoaderxError):
    """Missing package of an optional extra."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f'{what}, which is not installed: pip install ".[{extra}]" in a clone of loaderx'
        )


class StoppedError(KeyboardInterrupt):
    """Ctrl-C, with a message for the user."""


def required(module: str, extra: str, purpose: str) -> Any:
    """Import a package of an optional extra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise
        name = {"PIL": "Pillow"}.get(package, package)
        raise MissingPackageError(f"{purpose} needs {name}", extra) from error


def write_line(line: str) -> None:
    """Write a line of the result to standard output."""
    if sys.stdout is not None:
        sys.stdout.write(f"{line}\n")


def write_note(line: str) -> None:
    """Write a line for the person to standard error, which may be closed."""
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def print_anything() -> None:
    """Escape characters that standard output cannot encode, such as those of file names."""
    for stream in (sys.stdout, sys.stderr):
        # A program that calls `main` may have replaced the streams.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush_result() -> None:
    """Flush standard output now: an error at the end of the process could not be caught."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        error.filename = "standard output"
        # Otherwise the interpreter would flush again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def progress(total: int, initial: int, unit: str) -> Any:
    """Return a bar with rate and time left, which is shown while standard error is a terminal."""
    from tqdm import tqdm

    return tqdm(
        total=total, initial=initial, unit=f" {unit}", unit_scale=total > 99_999, disable=None
    )


def readable_bytes(count: int) -> str:
    """Return a number of bytes in the unit that shows about three digits."""
    if count < 1000:
        return f"{count} bytes"
    value = count / 1000
    units = ["kB", "MB", "GB", "TB", "PB"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.3g} {units[0]}"


def readable_shape(shape: Sequence[int | None]) -> str:
    """Return a shape as people write it."""
    return " x ".join("any" if size is None else str(size) for size in shape) or "single values"


class Stop:
    """Request to stop by a signal, and permission to interrupt the current work."""

    pending: Callable[[], None] | None = None
    waiting = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if a stop was requested."""
        if self.pending is not None:
            self.pending()

    @contextmanager
    def at_once(self) -> Generator[None]:
        """Let Ctrl-C interrupt the block at once, as everywhere else in Python."""
        self.waiting = True
        try:
            self.check()
            yield
        finally:
            self.waiting = False


Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def handling(handlers: dict[signal.Signals, Handler]) -> Generator[None]:
    """Handle signals by functions inside the block."""
    # Python allows signal handlers in the main thread only.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_interrupt() -> Generator[list[int]]:
    """Raise KeyboardInterrupt for every signal that stops a command; yield the list of signals that arrived."""
    arrived: list[int] = []
    repeated: set[int] = set()

    def repeat(number: int) -> None:
        repeated.discard(number)
        os.kill(os.getpid(), number)

    def interrupt(number: int, frame: FrameType | None) -> None:
        callbacks = {getattr(callback, "__code__", None) for callback in gc.callbacks}
        while frame is not None:
            if frame.f_code in callbacks:
                # JAX has such a callback: its exception is lost, so the signal is sent again. On a busy machine it
                # arrives before this very call ends, so the callers are searched, too. Several that arrive until then
                # count as one: the next would interrupt the exit that this one causes.
                if number not in repeated:
                    repeated.add(number)
                    threading.Timer(0.01, repeat, (number,)).start()
                return
            frame = frame.f_back
        arrived.append(number)
        raise KeyboardInterrupt

    # Ignored signals stay ignored, as under `nohup`.
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    numbers = [number for number in STOPPING if signal.getsignal(number) in defaults]
    with handling(dict.fromkeys(numbers, interrupt)):
        yield arrived


@contextmanager
def ctrl_c_waits() -> Generator[Stop]:
    """Delay Ctrl-C until the current work is done; a second Ctrl-C interrupts at once."""
    stop = Stop()
    usual = {number: signal.getsignal(number) for number in STOPPING}

    def note(number: int, frame: FrameType | None) -> None:
        handler = cast(Handler, usual[signal.Signals(number)])
        if stop.pending is not None or stop.waiting:
            handler(number, frame)
        stop.pending = partial(handler, number, None)

    with handling({number: note for number, handler in usual.items() if callable(handler)}):
        yield stop


def count_from(lowest: int, highest: int | None = None) -> Any:
    """Return a type for argparse: an integer of at least `lowest`, and at most `highest`."""

    def integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None
        if value < lowest:
            raise argparse.ArgumentTypeError(f"{value} is less than {lowest}")
        if highest is not None and value > highest:
            raise argparse.ArgumentTypeError(f"{value} is more than {highest}")
        return value

    return integer


def axis_length(text: str) -> int | None:
    """Convert an argument to the length of an axis, or None for `any`."""
    return None if text == "any" else int(count_from(0)(text))
