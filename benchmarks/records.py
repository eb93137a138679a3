"""ArrayRecord files: the cost of opening and verifying one."""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from array_record.python.array_record_data_source import ArrayRecordDataSource

import loaderx as lx
from benchmarks.harness import Comparison, Contestant, interleave

BATCH_SIZE = 256
REPEATS = 9
REFERENCE = "array_record"
INDEXED = 1_000_000


@dataclass(frozen=True)
class Workload:
    """File of records."""

    what: str
    dtype: str
    shape: tuple[int, ...]
    rows: int
    compression: Literal["zstd", "uncompressed"]


WORKLOADS = (
    Workload("skeletons", "float32", (3, 300, 25, 2), 1_000, "uncompressed"),
    Workload("skeletons", "float32", (3, 300, 25, 2), 1_000, "zstd"),
    Workload("images", "uint8", (32, 32, 3), 50_000, "uncompressed"),
)


def run() -> Iterator[Comparison]:
    """Run all of them, one after the other."""
    for work in WORKLOADS:
        with tempfile.TemporaryDirectory(prefix="loaderx-") as folder:
            yield first_epoch(work, Path(folder))
    with tempfile.TemporaryDirectory(prefix="loaderx-") as folder:
        yield opening(Path(folder))


def write(work: Workload, folder: Path) -> Path:
    """Write a file of smooth numbers that zstd can compress, by array_record's own options."""
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


def first_epoch(work: Workload, folder: Path) -> Comparison:
    """Measure verification: an epoch of a data set just opened, and the next one."""
    file = write(work, folder)

    def epoch(verify: str, number: int) -> Contestant:
        def seconds() -> float:
            rows = lx.ARDataset(file, work.dtype, work.shape, verify=verify)  # type: ignore[call-overload]
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
    """Measure opening a file of many small records."""
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
