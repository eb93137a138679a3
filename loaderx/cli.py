"""Command line: `loaderx COMMAND` and `python -m loaderx COMMAND`."""

import argparse
import importlib
import os
import signal
import warnings
from collections.abc import Sequence
from typing import Any

from loaderx import __version__
from loaderx.commands import COMMANDS
from loaderx.commands.demo import EXAMPLE_PACKAGES as EXAMPLE_PACKAGES
from loaderx.commands.terminal import (
    FAILED,
    SIGNALLED,
    WRONG_INPUT,
    MissingPackageError,
    StoppedError,
    flush_result,
    print_anything,
    signals_interrupt,
    write_note,
)
from loaderx.errors import LoaderxError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; `arguments` are by default those of the process."""
    status = _status(arguments)
    if arguments is None and status > SIGNALLED:
        # At once: JAX and Numba may be running in threads, and the end of the interpreter would crash in them.
        os._exit(status)
    return status


def _status(arguments: Sequence[str] | None) -> int:
    command = "loaderx"
    print_anything()
    with signals_interrupt() as arrived:
        try:
            try:
                options = _parser().parse_args(arguments)
                command = f"loaderx {options.command}"
                status = _run(options, command)
            finally:
                # Also after --help, where argparse exits.
                flush_result()
        except MissingPackageError as error:
            write_note(str(error))
            return FAILED
        except BrokenPipeError:
            # The reader closed the pipe, as `head` does.
            return FAILED
        except (LoaderxError, OSError) as error:
            write_note(f"{command}: {_in_one_line(error)}")
            return WRONG_INPUT
        except BaseException as error:
            # Imports and callbacks turn a KeyboardInterrupt into other errors.
            if not arrived and not isinstance(error, KeyboardInterrupt):
                raise
            what = str(error) if isinstance(error, StoppedError) else "stopped"
            write_note(f"{command}: {what}")
            return SIGNALLED + (arrived[-1] if arrived else signal.SIGINT)
    return status


def _run(options: argparse.Namespace, command: str) -> int:
    def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
        write_note(f"{command}: {message}")

    with warnings.catch_warnings():
        # Show warnings for users once, and none for programmers.
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show_warning
        status: int = options.run(options)
        return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="loaderx",
        description="A data loader for JAX in which the per-sample work is compiled.",
        epilog="`loaderx COMMAND --help` explains a command and gives an example.",
    )
    parser.add_argument("--version", action="version", version=f"loaderx {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for name in COMMANDS:
        importlib.import_module(f"loaderx.commands.{name}").add(commands)
    return parser


def _in_one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split()) or type(error).__name__
