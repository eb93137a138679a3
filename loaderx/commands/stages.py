"""Time of a loader by stages: a run with a clock in every stage, and each op on its own."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.batch.builder import BatchBuilder
from loaderx.batch.in_progress import BatchInProgress
from loaderx.batch.planner import Group
from loaderx.compiler.chain import Chain
from loaderx.compiler.head import Head
from loaderx.compiler.points_head import PointsHead
from loaderx.display.html import ops_of
from loaderx.loader import DataLoader
from loaderx.process.cores import cores
from loaderx.run.iterator import LoaderIterator
from loaderx.sources import AddressableSource
from loaderx.sources.row_addresses import addresses_of_rows
from loaderx.sources.source import specs_of
from loaderx.stream.remainder import Span

from .bench import Limit, Report, Stage
from .hints import op_hint, op_name, source_hint, source_name

# Number of samples with which ops are measured one by one, and limit for their bytes.
SAMPLES = 64
SAMPLE_BYTES = 1 << 26
REPEATS = 5
# Limit in seconds: a stage that needs more is not measured again.
MAX_STAGE_SECONDS = 1.0
WARM_UP_BATCHES = 4
# Larger than the caches of most machines.
COPIED_BYTES = 1 << 25
COPY_SECONDS = 0.5
MAJORITY = 0.5


@dataclass
class Clock:
    """Seconds that threads spent in the steps of builders. Every thread has its own entries, so there is no lock."""

    spent: dict[tuple[str, int], float] = field(default_factory=dict)

    def note(self, what: str, began: float) -> None:
        key = (what, threading.get_ident())
        self.spent[key] = self.spent.get(key, 0.0) + time.perf_counter() - began

    def seconds(self, what: str) -> float:
        return sum(seconds for (noted, _), seconds in self.spent.items() if noted == what)

    def share_of(self, thread: int) -> float:
        """Return the share of one thread in the work."""
        own = sum(seconds for (_, noted), seconds in self.spent.items() if noted == thread)
        return own / (sum(self.spent.values()) or 1.0)


@dataclass(frozen=True)
class TimedBuilder(BatchBuilder):
    """Builder that records how long its steps take."""

    clock: Clock

    def begin(self, step: int, span: Span) -> BatchInProgress:
        began = time.perf_counter()
        try:
            return super().begin(step, span)
        finally:
            self.clock.note("order", began)

    def fill(self, in_progress: BatchInProgress, phase: int, part: int) -> None:
        began = time.perf_counter()
        super().fill(in_progress, phase, part)
        self.clock.note("fill", began)

    def finish(self, in_progress: BatchInProgress) -> Any:
        began = time.perf_counter()
        batch = super().finish(in_progress)
        wait_for(batch)
        self.clock.note("finish", began)
        return batch


def measure(loader: DataLoader, seconds: float) -> Report:
    """Run the loader, and return the report on the work of its threads."""
    builder, workers = loader._builder, loader._workers
    order = builder.order
    clock = Clock()
    timed = TimedBuilder(
        **{each.name: getattr(builder, each.name) for each in dataclasses.fields(builder)},
        clock=clock,
    )
    if builder.hook is not None:
        timed = dataclasses.replace(timed, hook=_timed_hook(builder.hook, clock))
    with contextlib.closing(_EndlessBatches(timed, workers)) as walk:
        began = time.perf_counter()
        walk.samples_of_next()
        first_seconds = time.perf_counter() - began
        for _ in range(WARM_UP_BATCHES + builder.planner.scheduler.ahead):
            if time.perf_counter() - began > first_seconds + max(seconds, 1.0):
                break
            walk.samples_of_next()
        clock.spent.clear()
        batches = samples = 0
        began = time.perf_counter()
        while batches == 0 or time.perf_counter() - began < seconds:
            samples += walk.samples_of_next()
            batches += 1
        elapsed = time.perf_counter() - began
        spent = Clock(dict(clock.spent))
    stages = _stages(loader, spent, samples, elapsed)
    return Report(
        fields={each.name: str(each.spec) for each in builder.planner.fields},
        rows=order.rows,
        batch_size=order.batch_size,
        workers=workers,
        cores=cores(),
        first_batch_seconds=first_seconds,
        seconds=elapsed,
        batches=batches,
        samples=samples,
        stages=stages,
        limit=_limit(builder, workers, samples / elapsed),
    )


class _EndlessBatches:
    """Endless iteration over batches, also of a finite loader."""

    def __init__(self, builder: BatchBuilder, workers: int) -> None:
        self._builder, self._workers = builder, workers
        self._iterator = LoaderIterator(builder, workers)
        self._size = builder.order.batch_size
        self._position = 0

    def samples_of_next(self) -> int:
        """Number of samples in the next batch."""
        try:
            next(self._iterator)
        except StopIteration:
            self._iterator.close()
            self._iterator = LoaderIterator(self._builder, self._workers)
            self._position = 0
            next(self._iterator)
        before, self._position = self._position, int(self._iterator.get_state()["position"])
        return min(self._size, self._position - before)

    def close(self) -> None:
        self._iterator.close()


def _timed_hook(hook: Callable[[Any], Any], clock: Clock) -> Callable[[Any], Any]:
    def run(batch: Any) -> Any:
        began = time.perf_counter()
        try:
            return hook(batch)
        finally:
            clock.note("hook", began)

    return run


def wait_for(batch: Any) -> None:
    """Wait for the values of JAX arrays, which are computed asynchronously."""
    if isinstance(batch, dict | tuple | list):
        for value in batch.values() if isinstance(batch, dict) else batch:
            wait_for(value)
    elif hasattr(batch, "block_until_ready"):
        batch.block_until_ready()


def _stages(loader: DataLoader, clock: Clock, samples: int, elapsed: float) -> list[Stage]:
    """Return the stages in the order of a batch; their times add up to the time of all threads."""
    builder = loader._builder
    measured = _each_on_its_own(loader)
    whole = sum(stage.seconds for stage in measured) or 1.0
    # Fetching and ops are one pass where possible; each gets its part of the time of the pass.
    filled = clock.seconds("fill")
    stages = [Stage("order", "order", "", clock.seconds("order"))]
    stages += [
        dataclasses.replace(stage, seconds=stage.seconds / whole * filled) for stage in measured
    ]
    hook = clock.seconds("hook")
    if builder.hook is not None:
        name = getattr(builder.hook, "__name__", type(builder.hook).__name__)
        stages.append(Stage("hook", f"{name} (each batch)", "Python", hook))
    stages.append(Stage("hand-off", "hand-off", "", clock.seconds("finish") - hook))
    work = sum(stage.seconds for stage in stages)
    # The consumer itself builds small batches, and the workers are idle.
    consumer_builds = clock.share_of(threading.get_ident()) > MAJORITY
    threads = 1 if consumer_builds else min(loader._workers, cores())
    stages.append(Stage("waiting", "waiting", "", max(0.0, threads * elapsed - work)))
    return [dataclasses.replace(stage, seconds=stage.seconds / samples) for stage in stages]


def _each_on_its_own(loader: DataLoader) -> list[Stage]:
    """Return seconds per sample of every source and every op on its own, in one thread."""
    planner = loader._builder.planner
    fetching: list[Stage] = []
    working: list[Stage] = []
    for group in planner.groups:
        seconds, columns = _fetch(loader, group)
        names = list(dict.fromkeys(each.origin for each in group.fields))
        source, hint = source_name(group.source), source_hint(group.source, names)
        how = "compiled" if isinstance(group.source, AddressableSource) else "Python"
        known = next(
            (n for n, s in enumerate(fetching) if s.name == f"fetch {', '.join(names)}"), None
        )
        if known is None:
            fetching.append(Stage("fetch", f"fetch {', '.join(names)}", how, seconds, source, hint))
        else:
            # Views read the rows of one field once each.
            before = fetching[known]
            fetching[known] = dataclasses.replace(before, seconds=before.seconds + seconds)
        origins = {
            each.origin: column for each, column in zip(group.fields, group.columns, strict=True)
        }
        for each, column in zip(group.fields, group.columns, strict=True):
            if each.chain is not None:
                samples = columns[column]
                head = each.chain.head
                if isinstance(head, PointsHead):
                    stage, samples = _move(
                        each.name, head, samples, columns[origins[head.alongside]]
                    )
                    working.append(stage)
                elif head is not None:
                    stage, samples = _decode(each.name, head, samples)
                    working.append(stage)
                working += _ops(each.name, each.chain, samples)
    return fetching + working


def _fetch(loader: DataLoader, group: Group) -> tuple[float, list[NDArray[Any]]]:
    """Return seconds per row, measured on other rows each time, and the rows that were read first."""
    specs = specs_of(group.source.spec)
    order = loader._builder.order
    row_bytes = max(1, sum(spec.nbytes for spec in specs))
    count = max(2, min(SAMPLES, order.rows, SAMPLE_BYTES // row_bytes))
    out = [np.empty((count, *spec.shape), spec.dtype) for spec in specs]
    began = time.perf_counter()
    spent, repeats = 0.0, 0
    for repeat in range(REPEATS + 1):
        positions = np.arange(repeat * count, (repeat + 1) * count, dtype=np.int64)
        rows = order.rows_at(positions)
        start = time.perf_counter()
        group.source.read(rows, out)
        if repeat > 0 or time.perf_counter() - began > MAX_STAGE_SECONDS:
            spent, repeats = spent + time.perf_counter() - start, repeats + 1
        if time.perf_counter() - began > MAX_STAGE_SECONDS:
            break
    return spent / repeats / count, out


def _decode(name: str, head: Head, images: NDArray[Any]) -> tuple[Stage, NDArray[Any]]:
    """Return the decoding of images, with the windows onto them, and the samples."""
    listed = images.tolist()
    out = np.zeros((len(listed), *head.output.shape), head.output.dtype)
    headers = [image.header() for image in listed]
    positions = np.arange(len(listed), dtype=np.int64)
    seconds = _best(lambda: head.run(listed, headers, positions, out)) / len(listed)
    hint = "of files that `loaderx convert --jpeg` writes only the rows of a window are decoded"
    return Stage("op", f"{name}: decode, {_windows(head)}", "decoder", seconds, "decode", hint), out


def _move(
    name: str, head: PointsHead, points: NDArray[Any], images: NDArray[Any]
) -> tuple[Stage, NDArray[Any]]:
    """Return the windows that points next to encoded images move through, and the samples."""
    listed = images.tolist()
    out = np.zeros((len(listed), *head.output.shape), head.output.dtype)
    headers = [image.header() for image in listed]
    positions = np.arange(len(listed), dtype=np.int64)
    seconds = _best(lambda: head.run(points, listed, headers, positions, out)) / len(listed)
    windows = _windows(head)
    return Stage("op", f"{name}: {windows}", "compiled", seconds, windows), out


def _windows(head: Head | PointsHead) -> str:
    return ", ".join(dict.fromkeys(step.transform.name for step in head.steps))


def _best(run: Callable[[], None]) -> float:
    """Return the seconds of the fastest of a few runs."""
    best = float("inf")
    began = time.perf_counter()
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
        if time.perf_counter() - began > MAX_STAGE_SECONDS:
            break
    return best


def _ops(name: str, chain: Chain, samples: NDArray[Any]) -> list[Stage]:
    """Return every op of a field, with seconds that add up to the time of all of them together."""
    whole, _ = _run(chain, samples)
    taken: list[float] = []
    spec = chain.input
    for step in chain.steps:
        alone = Chain(spec, samples[0].copy)
        alone.boxes, alone.first_boxes = chain.boxes, chain.first_boxes
        alone.add(step)
        alone.compile()
        spec = alone.output
        seconds, samples = _run(alone, samples)
        taken.append(seconds)
    total = sum(taken) or 1.0
    stages = []
    for step, (_, compiled), own in zip(chain.steps, ops_of(chain), taken, strict=True):
        op, hint = op_name(step), "" if compiled else op_hint(step)
        how = "compiled" if compiled else "Python"
        stages.append(Stage("op", f"{name}: {op}", how, own / total * whole, op, hint))
    return stages


def _run(chain: Chain, samples: NDArray[Any]) -> tuple[float, NDArray[Any]]:
    """Return seconds per sample in one thread, the best of a few runs, and the results."""
    count = len(samples)
    positions = np.arange(count, dtype=np.int64)
    best = float("inf")
    began = time.perf_counter()
    rows = samples
    for _ in range(REPEATS):
        rows, seconds = samples, 0.0
        for phase, current in enumerate(chain.phases):
            if phase == 0 and not current.segments:
                continue
            out = np.empty((count, *current.output.shape), current.output.dtype)
            # Touch the memory first: the memory of batches was used before, too.
            out[...] = 0
            located = addresses_of_rows(rows, boxes=chain.boxes_of_first(count))
            masks = chain.first_masks(phase, count)
            start = time.perf_counter()
            chain.run(phase, 0, 0, positions, located, rows, out, masks=masks)
            seconds += time.perf_counter() - start
            rows = out
        best = min(best, seconds)
        if time.perf_counter() - began > MAX_STAGE_SECONDS:
            break
    return best / count, rows


def _limit(builder: BatchBuilder, workers: int, rate: float) -> Limit:
    """Return the samples per second if their bytes were only copied."""
    fields = builder.planner.fields
    read = sum({each.origin: each.raw.nbytes for each in fields}.values())
    written = sum(each.spec.nbytes for each in fields)
    speed = copy_speed(workers)
    samples = speed / max(1, read + written)
    return Limit(read, written, workers, speed, samples, rate / samples)


def copy_speed(threads: int) -> float:
    """Return bytes per second, read and written, while threads copy memory of their own."""
    pairs = [
        (np.ones(COPIED_BYTES // threads, np.uint8), np.zeros(COPIED_BYTES // threads, np.uint8))
        for _ in range(threads)
    ]
    copied = [0] * threads
    gate = threading.Barrier(threads + 1)
    stop = threading.Event()

    def copy(number: int) -> None:
        given, out = pairs[number]
        gate.wait()
        while not stop.is_set():
            np.copyto(out, given)
            copied[number] += 2 * given.nbytes

    copiers = [
        threading.Thread(target=copy, args=(number,), daemon=True) for number in range(threads)
    ]
    for thread in copiers:
        thread.start()
    gate.wait()
    began = time.perf_counter()
    stop.wait(COPY_SECONDS)
    elapsed = time.perf_counter() - began
    done = sum(copied)
    stop.set()
    for thread in copiers:
        thread.join()
    return max(1, done) / elapsed
