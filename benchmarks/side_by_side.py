"""Every workload against every contestant that can do it: `make bench`."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.contestants import (
    CONTESTANTS,
    CONVERTED,
    LOADERX,
    SCALING,
    SHRINKING,
    Contestant,
    Entry,
)
from benchmarks.growth import Growth, growth_of_batch, growth_of_rows
from benchmarks.harness import Comparison, interleave, reason, status
from benchmarks.workloads import (
    CIFAR,
    JPEG,
    LARGE_JPEG,
    ONE_ROW,
    SHRUNK_JPEG,
    SMALL,
    THROUGHPUT,
    Workload,
    same_chain,
    write,
)

REPEATS = 5
SECONDS = 0.4  # of one measurement, after the batches in the queue
# Batches of decoded images take a third of a second: of fewer the last one would decide.
JPEG_SECONDS = 2.0
FIRST_REPEATS = 3
TRAINING_REPEATS = 3
TRAINING_STEPS = 20
TRAINING_BATCH = 256

COLD, CACHED = "loaderx, nothing compiled yet", "loaderx, afterwards"


def benchmarks(
    contestants: Sequence[Contestant] = CONTESTANTS,
) -> dict[str, Callable[[], Comparison | Growth]]:
    """Return all of them by name, in the order of the report."""
    shrinking = [one for one in SHRINKING if one in contestants]
    return {
        **{work.name: partial(throughput, work, contestants) for work in THROUGHPUT},
        **{work.name: partial(throughput, work, contestants) for work in (JPEG, LARGE_JPEG)},
        SHRUNK_JPEG.name: partial(throughput, SHRUNK_JPEG, shrinking, reference=CONVERTED),
        "jpeg-workers": jpeg_workers,
        "per-batch": partial(per_batch, contestants=contestants),
        "first-batch": partial(first_batch, contestants=contestants),
        "memory": partial(memory, contestants=contestants),
        "training": partial(training, contestants=contestants),
        "growth-rows": partial(growth_of_rows, contestants),
        "growth-batch": partial(growth_of_batch, contestants),
    }


def throughput(
    work: Workload,
    contestants: Sequence[Contestant],
    repeats: int = REPEATS,
    reference: Contestant = LOADERX,
) -> Comparison:
    """Measure rows per second."""
    seconds = JPEG_SECONDS if work.kind == "jpeg" else SECONDS
    with opened(work, contestants, reference=reference) as (entries, absent):
        figures = {name: partial(entry.rows_per_second, seconds) for name, entry in entries.items()}
        return interleave(
            work.title,
            "rows/s",
            figures,
            reference=reference.name,
            repeats=repeats,
            absent=absent,
            name=work.name,
        )


def jpeg_workers() -> Comparison:
    """Measure what a second worker is worth to loaderx, where decoding takes nearly all of the time."""
    work = replace(JPEG, name="jpeg-workers", title=f"2 workers and 1 of loaderx: {JPEG.title}")
    return throughput(work, SCALING)


def per_batch(
    work: Workload = ONE_ROW, contestants: Sequence[Contestant] = CONTESTANTS
) -> Comparison:
    """Measure the cost of a minimal batch."""
    with opened(work, contestants) as (entries, absent):
        figures = {
            name: partial(entry.microseconds_per_batch, SECONDS) for name, entry in entries.items()
        }
        return interleave(
            work.title,
            "us/batch",
            figures,
            reference=LOADERX.name,
            repeats=REPEATS,
            absent=absent,
            name=work.name,
            lower_is_better=True,
        )


def memory(work: Workload = SMALL, contestants: Sequence[Contestant] = CONTESTANTS) -> Comparison:
    """Measure the memory of a loader with all its processes, without the pages of mapped files."""
    with opened(work, contestants) as (entries, absent):

        def megabytes(entry: Entry) -> float:
            entry.rows_per_second(SECONDS)
            return entry.peer.memory() / 1e6

        size = work.rows * work.row_bytes / 1e6
        return interleave(
            f"resident memory of a loader over {size:.0f} MB, the process and its imports included",
            "MB",
            {name: partial(megabytes, entry) for name, entry in entries.items()},
            reference=LOADERX.name,
            repeats=1,
            absent=absent,
            name="memory",
            lower_is_better=True,
        )


def training(
    work: Workload = CIFAR,
    contestants: Sequence[Contestant] = CONTESTANTS,
    steps: int = TRAINING_STEPS,
) -> Comparison:
    """Measure the part of the time that a Flax training loop waits, if loader and model share two cores."""
    work = replace(work, batch_size=min(TRAINING_BATCH, work.batch_size))
    with opened(work, contestants, on_device=True) as (entries, absent):

        def percent(entry: Entry) -> float:
            answer = entry.train(steps)
            return 100 * answer["waited"] / answer["seconds"]

        return interleave(
            f"waiting for data in a Flax training loop, CIFAR chain, batches of {work.batch_size}",
            "% of the time",
            {name: partial(percent, entry) for name, entry in entries.items()},
            reference=LOADERX.name,
            repeats=TRAINING_REPEATS,
            absent=absent,
            name="training",
            lower_is_better=True,
        )


def first_batch(
    work: Workload = CIFAR, contestants: Sequence[Contestant] = CONTESTANTS
) -> Comparison:
    """Measure seconds from the start of a new process to its first batch, imports and compilation included."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loaderx-")))
        work = write(work, folder)
        figures: dict[str, Callable[[], float]] = {}
        absent: dict[str, str] = {}
        for contestant in contestants:
            if not contestant.takes_part(work):
                continue
            if contestant == LOADERX:
                figures[COLD] = partial(_first_of_cold, contestant, work, folder)
                cache = folder / "cache"
                figures[CACHED] = partial(_first, contestant, work, _caches(cache))
                continue
            status(f"first-batch: {contestant.name}")
            try:
                with contestant.start() as peer:
                    entry = Entry(contestant, peer)
                    entry.prepare(work)
                    entry.open(work)
            except Exception as error:
                absent[contestant.name] = reason(error)
            else:
                figures[contestant.name] = partial(_first, contestant, work)
        return interleave(
            "first batch of a new process, CIFAR chain, imports and compilation included",
            "seconds",
            figures,
            reference=CACHED,
            repeats=FIRST_REPEATS,
            absent=absent,
            name="first-batch",
            lower_is_better=True,
        )


def _caches(folder: Path) -> dict[str, str]:
    return {"LOADERX_CACHE_DIR": str(folder), "NUMBA_CACHE_DIR": str(folder)}


def _first(
    contestant: Contestant, work: Workload, variables: dict[str, str] | None = None
) -> float:
    started = time.perf_counter()
    peer = contestant.start(variables)
    try:
        Entry(contestant, peer).open(work)
        peer.ask("first")
        return time.perf_counter() - started
    finally:
        # Its loader is in the middle of an epoch, and not every loader then ends by itself.
        peer.kill()


def _first_of_cold(contestant: Contestant, work: Workload, folder: Path) -> float:
    cache = folder / "cold"
    try:
        return _first(contestant, work, _caches(cache))
    finally:
        shutil.rmtree(cache, ignore_errors=True)


@contextmanager
def opened(
    work: Workload,
    contestants: Sequence[Contestant],
    on_device: bool = False,
    reference: Contestant = LOADERX,
) -> Iterator[tuple[dict[str, Entry], dict[str, str]]]:
    """Yield the contestants that deliver the workload, each with an open loader, and why the others do not."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loaderx-")))
        status(f"{work.name}: writing {work.rows:,} rows")
        work = write(work, folder)
        entries: dict[str, Entry] = {}
        absent: dict[str, str] = {}
        expected: dict[str, object] = {}
        for contestant in contestants:
            if not contestant.takes_part(work):
                continue
            status(f"{work.name}: opening and checking {contestant.name}")
            try:
                entry = Entry(contestant, stack.enter_context(contestant.start()))
                entry.prepare(work)
                entry.open(work, on_device)
                summary = entry.check()
                # The reference comes first, and it must have every row once.
                expected = expected or summary | {"every row once": True}
                same_chain(summary, expected, work)
            except Exception as error:
                if contestant == reference:
                    raise
                absent[contestant.name] = reason(error)
            else:
                entries[contestant.name] = entry
        status(f"{work.name}: measuring {len(entries)} contestants")
        yield entries, absent
