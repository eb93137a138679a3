"""`loaderx warm`: compile ahead into the cache, for a user's own loader or every built-in op."""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .loaders import TARGET_HELP, with_loader
from .terminal import (
    DONE,
    UsageError,
    count_from,
    ctrl_c_waits,
    progress,
    readable_bytes,
    write_line,
)

if TYPE_CHECKING:
    from loaderx.compiler.passes import Pass, Request
    from loaderx.loader import DataLoader

    from .compile_workers import WarmTargets

EPILOG = """\
Compiled code is cached in LOADERX_CACHE_DIR, by default the user's cache folder, and the code of kernels in
NUMBA_CACHE_DIR, by default next to their sources. It is for this kind of processor, and for these versions of Python,
Numba and loaderx. Every process imports the file, so put what it does as a program under `if __name__ ==
"__main__":`.

examples:
  loaderx warm train.py:loader
  loaderx warm train.py:loader evaluate.py:make_loader --jobs 4
  loaderx warm --all
"""
# Starting worker processes takes as long as compiling this many passes.
FEW_PASSES = 2


def add(commands: Any) -> None:
    """Add the parser of this command."""
    parser = commands.add_parser(
        "warm",
        help="compile ahead, for container images and clusters: your own loader, or every built-in op",
        description="Compile ahead, on all cores, what a DataLoader of yours needs, or every built-in op.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("targets", metavar="module:loader", nargs="*", help=TARGET_HELP)
    parser.add_argument(
        "--all",
        action="store_true",
        dest="everything",
        help="every built-in op, for uint8 and float32 images, signals, skeletons and tokens",
    )
    parser.add_argument(
        "--jobs", type=count_from(1), metavar="N", help="processes (default: one per core)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compile, and print what was compiled and where it is cached."""
    if options.everything == bool(options.targets):
        given = "both" if options.targets else "neither"
        raise UsageError(
            f"give either a loader, such as train.py:loader, or --all for every built-in op; this has {given}."
        )
    began = time.perf_counter()
    path = list(sys.path)
    # An interrupt during the import of NumPy looks like a damaged installation.
    with ctrl_c_waits() as stop:
        importlib.import_module("loaderx.loader")
    stop.check()

    from loaderx.process.cores import cores

    from .cache_folders import kernel_folders, stored_in
    from .compile_workers import WarmTargets

    _check_compiler()
    kernels_before = len(stored_in(kernel_folders()))
    warming = Warming(
        WarmTargets(options.targets, options.everything, path), options.jobs or cores()
    )
    status = warming.compile_all() if options.everything else warming.compile_loaders(options)
    if status == DONE:
        warming.print_summary(kernels_before, began)
    return status


def _check_compiler() -> None:
    import numba

    for name, is_set in (
        ("NUMBA_DISABLE_JIT", numba.config.DISABLE_JIT),
        ("LOADERX_DEBUG", os.environ.get("LOADERX_DEBUG") == "1"),
    ):
        if is_set:
            raise UsageError(f"{name} is set, so nothing would be compiled; unset it.")


class Warming:
    """One run of the command: what it compiles, in how many processes, and what was cached before."""

    def __init__(self, targets: "WarmTargets", jobs: int) -> None:
        self._targets, self._jobs = targets, jobs
        self._started = False
        self._seen: set[str] = set()
        self._compiled: set[str] = set()
        # Names of ops whose code cannot be cached.
        self._uncached: dict[str, None] = {}

    def compile_loaders(self, options: argparse.Namespace) -> int:
        """Make the loaders and their first batches; worker processes compile if passes are missing."""
        from loaderx.compiler.passes import answering

        with answering(self._answer):
            for target in options.targets:
                named = argparse.Namespace(command=options.command, target=target)
                status = with_loader(named, _build_first_batch)
                if status != DONE:
                    return status
        return DONE

    def compile_all(self) -> int:
        """Compile every built-in op, and all kernels."""
        from .catalogue import first_batches
        from .compile_workers import listed

        wanted = listed(self._targets)
        missing = [each for each in wanted if not each.is_stored()]
        if len(missing) > FEW_PASSES:
            self._compile_in_processes()
        for each in missing:
            if not each.is_stored():
                each.fulfil()
        first_batches()
        self._seen = {str(each.name) for each in wanted}
        self._compiled = {str(each.name) for each in missing}
        return DONE

    def _answer(self, wanted: "Request") -> "tuple[Pass, bool]":
        """Load a pass or compile it; if several are missing, have worker processes compile all of them."""
        missing = not wanted.is_stored()
        if missing and wanted.name is not None and len(self._compiled) >= FEW_PASSES:
            self._compile_in_processes()
        found, cached = wanted.fulfil()
        if wanted.name is None:
            self._uncached[wanted.op] = None
        else:
            self._seen.add(wanted.name)
            if missing and not cached:
                self._compiled.add(wanted.name)
        return found, cached

    def _compile_in_processes(self) -> None:
        from loaderx.kernels.caching import store

        from .compile_workers import compile_in_processes

        home = store.folder()
        # Once: passes that workers could not compile would fail a second time.
        if self._started or home is None or not os.access(home, os.W_OK):
            return
        self._started = True
        with progress(0, 0, "passes") as bar:
            self._compiled |= compile_in_processes(self._targets, self._jobs, bar)

    def print_summary(self, kernels_before: int, began: float) -> None:
        """Print what was compiled, what was cached before, where it is, and the time this took."""
        from .cache_folders import kernel_folders, pass_folders, stored_in

        there = len(self._seen - self._compiled)
        _print_folders("passes", pass_folders(), len(self._compiled), there)
        kernels = kernel_folders()
        new = len(stored_in(kernels)) - kernels_before
        _print_folders("kernels", kernels, new, kernels_before)
        if self._uncached:
            names = ", ".join(map(repr, self._uncached))
            write_line(f"cannot be cached, so it is compiled in every process: {names}")
        if not self._compiled and not new and not self._uncached:
            write_line("everything was cached before")
        write_line(f"{time.perf_counter() - began:.1f} seconds")


def _print_folders(what: str, folders: Sequence[Path], compiled: int, there: int) -> None:
    from .cache_folders import stored_in

    size = readable_bytes(sum(stored_in(folders).values()))
    where = " and ".join(map(str, folders)) or "no writable folder: nothing is cached"
    write_line(f"{what}: {compiled} compiled, {there} cached before; {size} in {where}")


def _build_first_batch(loader: "DataLoader", _: argparse.Namespace) -> int:
    from .catalogue import first_batch

    first_batch(loader)
    return DONE
