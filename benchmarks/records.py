"""ArrayRecord files: random order, batches of 256, warm page cache; and what opening and verifying a file costs."""

import hashlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from array_record.python.array_record_data_source import ArrayRecordDataSource

import loaderx as lx
from benchmarks.entrants import PAUSE, PREFETCH, THREADS
from benchmarks.harness import Comparison, Contestant, Peer, environment, interleave, reason
from benchmarks.peers.worker import timed

BATCH_SIZE = 256
REPEATS = 9
REFERENCE = "array_record, np.stack"
INDEXED = 1_000_000

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Workload:
    """Records, and how many batches of them a measurement takes."""

    what: str
    dtype: str
    shape: tuple[int, ...]
    rows: int
    compression: str
    batches: int
    peer_batches: int


WORKLOADS = (
    Workload("skeletons", "float32", (3, 300, 25, 2), 1_000, "uncompressed", 60, 6),
    Workload("skeletons", "float32", (3, 300, 25, 2), 1_000, "zstd", 20, 6),
    Workload("images", "uint8", (32, 32, 3), 50_000, "uncompressed", 800, 60),
)


def run(peers: bool = True) -> Iterator[Comparison]:
    """All of them, one after the other."""
    for work in WORKLOADS:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loaderx-")))
            yield compare(work, folder, stack, peers)
    for work in WORKLOADS:
        with tempfile.TemporaryDirectory(prefix="loaderx-") as folder:
            yield first_epoch(work, Path(folder))
    with tempfile.TemporaryDirectory(prefix="loaderx-") as folder:
        yield opening(Path(folder))


def write(work: Workload, folder: Path) -> Path:
    """A file of smooth numbers that zstd can do something with, by array_record's own options."""
    generator = np.random.default_rng(0)
    file = folder / f"{work.what}.array_record"
    if work.dtype == "uint8":
        rows = generator.integers(0, 256, (work.rows, *work.shape), np.uint8)
    else:
        # As in recordings of people: half of the frames are empty.
        rows = np.zeros((work.rows, *work.shape), np.float32)
        rows[:, :, : work.shape[1] // 2] = generator.normal(
            size=(work.rows, work.shape[0], work.shape[1] // 2, *work.shape[2:])
        )
    lx.write_array_record(file, rows, compression=work.compression, progress=False)
    return file


def compare(work: Workload, folder: Path, stack: ExitStack, peers: bool) -> Comparison:
    """Whole loaders over one file."""
    file = write(work, folder)
    rows = lx.ARDataset(file, work.dtype, work.shape)
    expected = digest([rows[np.arange(work.rows)]])
    source = ArrayRecordDataSource(str(file))
    generator = np.random.default_rng(1)

    def stacked(numbers: npt.NDArray[np.int64]) -> Array:
        records = source.__getitems__(numbers.tolist())
        return np.stack([np.frombuffer(one, work.dtype).reshape(work.shape) for one in records])

    def package() -> Iterator[int]:
        while True:
            yield len(stacked(generator.integers(0, work.rows, BATCH_SIZE)))

    order = np.arange(work.rows)
    parts = np.array_split(order, work.rows // BATCH_SIZE)
    check(expected, (stacked(part) for part in parts))
    contestants: dict[str, Contestant] = {
        REFERENCE: _rate(package, work.peer_batches, 0),
        "loaderx": loader_rate(rows, work, expected, stack),
        "loaderx, the same rows in memory": loader_rate(rows[order], work, expected, stack),
    }
    absent = {}
    for workers in (0, THREADS) if peers else ():
        name = f"Grain, {workers or 'no'} workers"
        try:
            contestants[name] = grain_rate(file, work, workers, expected, stack)
        except Exception as error:
            absent[name] = reason(error)
    size = np.prod(work.shape) * np.dtype(work.dtype).itemsize
    return interleave(
        f"ArrayRecord, {work.what} of {size / 1000:.0f} KB, {work.compression}, batches of {BATCH_SIZE}",
        "rows/s",
        contestants,
        reference=REFERENCE,
        repeats=REPEATS,
        pause=PAUSE,
        absent=absent,
    )


def loader_rate(data: object, work: Workload, expected: str, stack: ExitStack) -> Contestant:
    """A DataLoader that stays open, as in training."""
    whole = lx.DataLoader(data, batch_size=BATCH_SIZE, num_epochs=1, output="numpy")
    check(expected, whole)
    loader = lx.DataLoader(
        data, batch_size=BATCH_SIZE, output="numpy", prefetch=PREFETCH, workers=THREADS
    )
    iterator = stack.enter_context(iter(loader))
    return _rate(lambda: map(len, iterator), work.batches, PREFETCH + THREADS + 1)


def grain_rate(
    file: Path, work: Workload, workers: int, expected: str, stack: ExitStack
) -> Contestant:
    """Grain's DataLoader over the same file, in a process of its own."""
    peer = stack.enter_context(Peer(environment("grain"), "benchmarks.peers.grain_records_worker"))
    peer.ask(
        "open",
        file=str(file),
        dtype=work.dtype,
        shape=work.shape,
        batch_size=BATCH_SIZE,
        num_workers=workers,
    )
    if peer.ask("digest")["digest"] != expected:
        raise ValueError("an epoch does not hold the records of the file, once each")

    def rate() -> float:
        answer = peer.ask("run", batches=work.peer_batches)
        return float(answer["images"] / answer["seconds"])

    return rate


def first_epoch(work: Workload, folder: Path) -> Comparison:
    """What verification costs: an epoch of a data set just opened, and the next one."""
    file = write(work, folder)

    def epoch(verify: str, number: int) -> Contestant:
        def seconds() -> float:
            rows = lx.ARDataset(file, work.dtype, work.shape, verify=verify)  # type: ignore[arg-type]
            loader = lx.DataLoader(rows, batch_size=BATCH_SIZE, num_epochs=number, output="numpy")
            with iter(loader) as batches:
                spent = []
                for _ in range(number):
                    began = time.perf_counter()
                    for _ in range(len(loader) // number):
                        next(batches)
                    spent.append(time.perf_counter() - began)
            return spent[-1]

        return seconds

    reference = 'first epoch, verify="never"'
    contestants = {
        reference: epoch("never", 1),
        'first epoch, verify="first"': epoch("first", 1),
        'first epoch, verify="always"': epoch("always", 1),
        'second epoch, verify="never"': epoch("never", 2),
        'second epoch, verify="first"': epoch("first", 2),
        'second epoch, verify="always"': epoch("always", 2),
    }
    title = f"verifying {work.what}, {work.compression}, {work.rows:,} rows"
    return interleave(title, "seconds", contestants, reference=reference, repeats=REPEATS)


def opening(folder: Path, records: int = INDEXED) -> Comparison:
    """Opening a file of many small records."""
    file = folder / "small.array_record"
    rows = np.arange(records, dtype=np.int64)
    lx.write_array_record(file, rows, compression="uncompressed", progress=False)
    if not np.array_equal(lx.ARDataset(file)[:: records // 100], rows[:: records // 100]):
        raise ValueError("the file does not hold the numbers written.")

    def timed_open(open_file: Callable[[], object]) -> Contestant:
        def seconds() -> float:
            began = time.perf_counter()
            opened = open_file()
            spent = time.perf_counter() - began
            del opened
            return spent

        return seconds

    contestants = {
        REFERENCE: timed_open(lambda: ArrayRecordDataSource(str(file))),
        "loaderx": timed_open(lambda: lx.ARDataset(file)),
    }
    title = f"opening a file of {records:,} records"
    return interleave(title, "seconds", contestants, reference=REFERENCE, repeats=REPEATS)


def digest(batches: Iterable[Array]) -> str:
    """One digest for the multiset of rows in `batches`, whatever their order."""
    digests = [
        hashlib.blake2b(row.tobytes(), digest_size=16).digest() for rows in batches for row in rows
    ]
    return hashlib.blake2b(b"".join(sorted(digests))).hexdigest()


def check(expected: str, batches: Iterable[Array]) -> None:
    """Refuse to compare the speed of contestants that do not deliver the same rows."""
    if digest(batches) != expected:
        raise ValueError("an epoch does not hold the records of the file, once each.")


def _rate(sizes: Callable[[], Iterator[int]], batches: int, ready: int) -> Contestant:
    def rate() -> float:
        answer = timed(sizes(), batches, ready)
        return answer["images"] / answer["seconds"]

    return rate
