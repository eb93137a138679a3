"""What all commands share towards the terminal: lines, numbers for people, Ctrl-C, and packages that are missing."""

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

# Those of the status that a process returns; after a signal it is 128 and the number of that.
DONE, FAILED, WRONG_INPUT, SIGNALLED = 0, 1, 2, 128
# What ends a command in good order: Ctrl-C, `kill`, and a terminal that is closed.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class UsageError(ArgumentError):
    """A command was asked for what it cannot do."""


class MissingPackageError(LoaderxError):
    """A package of an optional extra is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f'{what}, which is not installed: pip install ".[{extra}]" in a clone of loaderx'
        )


class StoppedError(KeyboardInterrupt):
    """Ctrl-C, and what the user should know about it."""


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
    """A line of the result."""
    if sys.stdout is not None:
        sys.stdout.write(f"{line}\n")


def write_note(line: str) -> None:
    """A line for the person, beside the result. Nobody may be there to read it."""
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def print_anything() -> None:
    """Show characters that standard output cannot encode, such as those of file names, as escapes."""
    for stream in (sys.stdout, sys.stderr):
        # Whoever calls `main` inside of a program may have put something else there.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush_result() -> None:
    """Write what waits for standard output now: when the process ends nobody can catch what that raises."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        error.filename = "standard output"
        # It would be tried once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def progress(total: int, initial: int, unit: str) -> Any:
    """A bar with rate and time left, while standard error is a terminal."""
    from tqdm import tqdm

    return tqdm(
        total=total, initial=initial, unit=f" {unit}", unit_scale=total > 99_999, disable=None
    )


def readable_bytes(count: int) -> str:
    """A number of bytes in the unit that gives it three digits or so."""
    if count < 1000:
        return f"{count} bytes"
    value = count / 1000
    units = ["kB", "MB", "GB", "TB", "PB"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.3g} {units[0]}"


def readable_shape(shape: Sequence[int | None]) -> str:
    """A shape as people write it."""
    return " x ".join("any" if size is None else str(size) for size in shape) or "single values"


class Stop:
    """Whether a signal asked for an end, and whether it may interrupt what is done now."""

    pending: Callable[[], None] | None = None
    waiting = False

    def check(self) -> None:
        """Interrupt if that was asked for."""
        if self.pending is not None:
            self.pending()

    @contextmanager
    def at_once(self) -> Generator[None]:
        """Here Ctrl-C interrupts at once, as it does everywhere else in Python."""
        self.waiting = True
        try:
            self.check()
            yield
        finally:
            self.waiting = False


Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def handling(handlers: dict[signal.Signals, Handler]) -> Generator[None]:
    """Handle signals by functions, up to the end."""
    # Python allows it nowhere else.
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
    """Raise KeyboardInterrupt for every signal that should stop a command; those that arrived are in the list."""
    arrived: list[int] = []
    repeated: set[int] = set()

    def repeat(number: int) -> None:
        repeated.discard(number)
        os.kill(os.getpid(), number)

    def interrupt(number: int, frame: FrameType | None) -> None:
        callbacks = {getattr(callback, "__code__", None) for callback in gc.callbacks}
        while frame is not None:
            if frame.f_code in callbacks:
                # JAX has such a callback: what it raises is lost, so the signal comes once more. On a busy machine
                # that is before this very call ends, so it is looked for among the callers, too. Several that arrive
                # until then are one: the next would interrupt what this one causes.
                if number not in repeated:
                    repeated.add(number)
                    threading.Timer(0.01, repeat, (number,)).start()
                return
            frame = frame.f_back
        arrived.append(number)
        raise KeyboardInterrupt

    # Signals that are ignored, as by `nohup`, stay so.
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    numbers = [number for number in STOPPING if signal.getsignal(number) in defaults]
    with handling(dict.fromkeys(numbers, interrupt)):
        yield arrived


@contextmanager
def ctrl_c_waits() -> Generator[Stop]:
    """Ctrl-C waits for what is being written, unless it is pressed a second time."""
    stop = Stop()
    usual = {number: signal.getsignal(number) for number in STOPPING}

    def note(number: int, frame: FrameType | None) -> None:
        handler = cast(Handler, usual[signal.Signals(number)])
        if stop.pending is not None or stop.waiting:
            handler(number, frame)
        stop.pending = partial(handler, number, None)

    with handling({number: note for number, handler in usual.items() if callable(handler)}):
        yield stop


def count_from(lowest: int) -> Any:
    """A type for argparse: an integer of at least so much."""

    def integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None
        if value < lowest:
            raise argparse.ArgumentTypeError(f"{value} is less than {lowest}")
        return value

    return integer


def axis_length(text: str) -> int | None:
    """A type for argparse: the length of an axis, or `any`."""
    return None if text == "any" else int(count_from(0)(text))
