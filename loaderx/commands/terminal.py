"""What all commands share towards the terminal: lines, numbers for people, Ctrl-C, and packages that are missing."""

import argparse
import importlib
import signal
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from loaderx.errors import ArgumentError, LoaderxError

# Those of the status that a process returns.
DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130


class UsageError(ArgumentError):
    """A command was asked for what it cannot do."""


class MissingPackageError(LoaderxError):
    """A package of an optional extra is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what}, which is not installed: pip install "loaderx[{extra}]"')


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
    sys.stdout.write(f"{line}\n")


def write_note(line: str) -> None:
    """A line for the person, beside the result."""
    sys.stderr.write(f"{line}\n")


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
    """Whether Ctrl-C was pressed, and whether it may interrupt what is done now."""

    requested = False
    waiting = False

    def check(self) -> None:
        """Interrupt if that was asked for."""
        if self.requested:
            raise KeyboardInterrupt

    @contextmanager
    def at_once(self) -> Generator[None]:
        """Here Ctrl-C interrupts at once, as it does everywhere else in Python."""
        self.waiting = True
        try:
            self.check()
            yield
        finally:
            self.waiting = False


@contextmanager
def ctrl_c_waits() -> Generator[Stop]:
    """Ctrl-C waits for what is being written, unless it is pressed a second time."""
    stop = Stop()

    def note(number: int, frame: FrameType | None) -> None:
        if stop.requested or stop.waiting:
            signal.default_int_handler(number, frame)
        stop.requested = True

    # Python allows it nowhere else.
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


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
