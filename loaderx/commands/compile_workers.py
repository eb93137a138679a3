"""Worker processes of `loaderx warm`: each lists the missing passes, and compiles those that no other one compiles.

Processes and not threads, since Numba compiles one function at a time. Nothing is pickled: every worker imports the
same files as the command, and finds the same passes under the same names. A worker writes lines to its standard
output: `missing NAME` for each missing pass, `listed` after these, and `compiled NAME` for each pass it has compiled.
The command itself does what a worker cannot do, and prints all messages to the user.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from .loaders import UserCodeError, find
from .terminal import UsageError, ctrl_c_waits

PROGRAM = "from loaderx.commands.compile_workers import main; main()"
# The same, with the path on which the command found its modules.
START = f"import json, sys; sys.path[:] = json.loads(sys.argv[1])['path']; {PROGRAM}"
POLL_SECONDS = 0.1
# Timeout: a worker could wait for ever for something that the command holds, such as a lock of the user's.
SILENT_SECONDS = 120.0
STOP_SECONDS = 5.0


@dataclass(frozen=True)
class WarmTargets:
    """Loaders to compile for, whether to compile all built-in ops, and the path on which modules are found."""

    loaders: Sequence[str]
    everything: bool
    path: Sequence[str]


def compile_in_processes(targets: WarmTargets, jobs: int, bar: Any) -> set[str]:
    """Compile the missing passes; return the names of those that were compiled."""
    missing: set[str] = set()
    compiled: set[str] = set()
    with _workers(targets) as (start, processes, results):
        start()
        for line in _lines(processes, results):
            event, _, name = line.partition(" ")
            if event == "listed":
                # As many processes as there is work for, by the list of the first worker.
                while len(processes) < min(jobs, len(missing)):
                    start()
                continue
            (compiled if event == "compiled" else missing).add(name)
            bar.total = len(missing | compiled)
            bar.update(len(compiled) - bar.n)
            bar.refresh()
    return compiled


@contextmanager
def _workers(
    targets: WarmTargets,
) -> Iterator[tuple[Callable[[], None], list["subprocess.Popen[bytes]"], int]]:
    """Yield a function that starts a worker, the list of workers, and their output; end all of them at exit."""
    # Workers end when the writing end of this pipe is closed, also when this process is killed.
    watched, alive = os.pipe()
    results, answers = os.pipe()
    processes: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        asked = {**vars(targets), "number": len(processes), "watched": watched}
        # An interrupt during the start would leave a process that nobody ends.
        with ctrl_c_waits() as stop:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", START, json.dumps(asked)],
                    stdin=subprocess.DEVNULL,
                    stdout=answers,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(watched,),
                    # A second process could not get the accelerator, or would use its memory.
                    env=os.environ | {"JAX_PLATFORMS": "cpu"},
                    # Ctrl-C is for the command, which then ends its workers.
                    start_new_session=True,
                )
            )
        stop.check()

    try:
        yield start, processes, results
    finally:
        for descriptor in (alive, watched, answers):
            os.close(descriptor)
        _end(processes)
        os.close(results)


def _end(processes: "list[subprocess.Popen[bytes]]") -> None:
    from loaderx.kernels.caching.files import remove_unfinished

    from .cache_folders import kernel_folders, pass_folders

    until = time.monotonic() + STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for folder in (*pass_folders(), *kernel_folders()):
            remove_unfinished(folder, process.pid)


def _lines(processes: "list[subprocess.Popen[bytes]]", results: int) -> Iterator[str]:
    """Yield the lines of workers, until all have ended or none has written anything for a long time."""
    rest, heard = b"", time.monotonic()
    while True:
        # Read before the output: lines that a worker wrote before its end are read below.
        ended = all(process.poll() is not None for process in processes)
        while select.select([results], [], [], 0.0 if ended else POLL_SECONDS)[0]:
            *lines, rest = (rest + os.read(results, 1 << 16)).split(b"\n")
            heard = time.monotonic()
            yield from (line.decode() for line in lines)
        if ended or time.monotonic() - heard > SILENT_SECONDS:
            return


def main() -> None:
    """Run as a worker."""
    asked = json.loads(sys.argv[1])
    answers = os.dup(1)
    # Discard the output of the user's files: the command prints it already.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    threading.Thread(target=_end_with_command, args=(asked["watched"],), daemon=True).start()

    def answer(event: str, name: str) -> None:
        os.write(answers, f"{event} {name}\n".encode())

    targets = WarmTargets(asked["loaders"], asked["everything"], asked["path"])
    try:
        compile_share(targets, asked["number"], answer)
    finally:
        # Without cleanup: threads of the user's files may be running.
        os._exit(0)


def _end_with_command(watched: int) -> None:
    os.read(watched, 1)
    os._exit(1)


def compile_share(targets: WarmTargets, number: int, answer: Callable[[str, str], None]) -> None:
    """List the missing passes, and compile those that no other worker compiles."""
    from loaderx.compiler.passes import Request
    from loaderx.errors import LoaderxError, TransformError
    from loaderx.kernels.caching import store

    from .catalogue import first_batches

    missing = [wanted for wanted in listed(targets) if not wanted.is_stored()]
    for wanted in missing:
        assert wanted.name is not None
        answer("missing", wanted.name)
    answer("listed", "")
    if number == 0:
        # The command needs these kernels for a first batch, once all passes are compiled.
        with suppress(LoaderxError):
            first_batches(targets.everything)

    def compile_one(wanted: Request) -> None:
        # The command shows the user's mistake.
        with suppress(TransformError):
            _, cached = wanted.fulfil()
            if not cached:
                answer("compiled", str(wanted.name))

    home = store.folder()
    assert home is not None
    locked = []
    for wanted in missing:
        if wanted.is_stored():
            continue
        if store.is_locked(home / f"{wanted.name}.lock"):
            locked.append(wanted)
        else:
            compile_one(wanted)
    for wanted in locked:
        # This waits for the lock, for a bounded time, and then loads or compiles.
        compile_one(wanted)


def listed(targets: WarmTargets) -> "list[Any]":
    """List the wanted passes that can be cached, without compiling any."""
    from loaderx.compiler.passes import NOT_COMPILED, Pass, Request, answering

    from .catalogue import list_passes

    found: dict[str, Request] = {}

    def note(wanted: Request) -> tuple[Pass, bool]:
        if wanted.name is not None:
            found.setdefault(wanted.name, wanted)
        return NOT_COMPILED, True

    with answering(note):
        for target in targets.loaders:
            # A loader that needs its first sample cannot be made of passes that are only listed.
            with suppress(UsageError, UserCodeError):
                find(target)
        if targets.everything:
            list_passes()
    return list(found.values())
