"""PyTorch's DataLoader, without tensors if those cost more than they gain; see worker.py for the requests.

It has a map-style dataset that is asked for whole batches (`__getitems__`), and an endless batch sampler, so that no
epoch ends with workers that wait for the next. No workers: in the thread that trains, as in JAX's tutorial on PyTorch's
loaders. Two: that many processes, each of which makes whole batches. JPEG files are decoded and cropped by hand.
"""

import warnings
from collections.abc import Callable, Generator, Iterator
from itertools import count
from typing import Any

import cv2
import numpy as np
import torch
from array_record.python.array_record_data_source import ArrayRecordDataSource
from torch.utils.data import DataLoader, default_collate, get_worker_info

from benchmarks.peers.augment import CHAINS
from benchmarks.peers.jpeg_files import Files
from benchmarks.peers.worker import Actions, Session, serve
from benchmarks.rows import Array
from benchmarks.workloads import Batch, Workload

PREFETCHED = 2  # batches per worker, which is the default
# Processes send tensors through shared memory and arrays through a pipe. Measured on a busy machine, arrays were faster
# at batches of 0.5 MB and less (five times at one row), and tensors at 1.5 MB and more (about twice).
SHARED = 1 << 20
# `default_collate` copies samples to shared memory one by one, instead of gathering them first and copying the batch
# there: it took less CPU time with rows of 180 KB, as much with 150 KB, and half as much again with 3 KB.
LARGE_ROW = 1 << 16

# The samples of a batch, in one array or in many, and its labels if it has any.
Fetched = tuple[Array | list[Array], ...]


class Batches:
    """Batch sampler: the numbers of the rows of each batch.

    `RandomSampler` first makes a list of Python's integers of all rows, and removes them from it one by one.
    """

    def __init__(self, work: Workload, epochs: int | None) -> None:
        self.work, self.epochs = work, epochs

    def __iter__(self) -> Iterator[Array]:
        work = self.work
        for _ in count() if self.epochs is None else range(self.epochs):
            if work.kind == "windows":
                # With replacement, as all contestants draw them: an order of all starts is as large as the file.
                yield torch.randint(work.rows - work.shape[0], (work.batch_size,)).numpy()
            else:
                yield from (
                    rows.numpy() for rows in torch.randperm(work.rows).split(work.batch_size)
                )


class Rows:
    """Dataset of the rows of mapped files, through a chain if there is one."""

    def __init__(self, work: Workload) -> None:
        self.data, self.label = (np.load(file, mmap_mode="r") for file in (work.data, work.label))
        self.large = work.row_bytes >= LARGE_ROW
        self.chain = CHAINS[work.chain] if work.chain is not None else None
        self.random: np.random.Generator | None = None

    def __getitems__(self, rows: Array) -> Fetched:
        if self.chain is not None:
            # In a worker this is the seed of the worker.
            random = self.random = self.random or np.random.default_rng(torch.initial_seed())
            return [self.chain(self.data[row], random) for row in rows], self.label[rows]
        if self.large and get_worker_info() is not None:
            return [self.data[row] for row in rows], self.label[rows]
        return self.data[rows], self.label[rows]


class Records:
    """Dataset of the records of an ArrayRecord file, which every process opens for itself."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        self.source: Any = None

    def __getitems__(self, rows: Array) -> Fetched:
        self.source = self.source or ArrayRecordDataSource(str(self.work.data))
        dtype, shape = self.work.dtype, self.work.shape
        records = self.source.__getitems__(rows.tolist())
        return ([np.frombuffer(record, dtype).reshape(shape) for record in records],)


class Windows:
    """Dataset of the windows of a file of tokens, and the same one token further."""

    def __init__(self, work: Workload) -> None:
        self.length = work.shape[0]
        self.tokens = np.memmap(work.data, work.dtype, mode="r")

    def __getitems__(self, starts: Array) -> Fetched:
        return tuple(
            [self.tokens[start : start + self.length] for start in (starts + further).tolist()]
            for further in (0, 1)
        )


def collate(fetched: Fetched) -> tuple[Any, ...]:
    return tuple(_together(samples) for samples in fetched)


def _together(samples: Array | list[Array]) -> Any:
    size = samples.nbytes if isinstance(samples, np.ndarray) else len(samples) * samples[0].nbytes
    shared = get_worker_info() is not None and size >= SHARED
    if isinstance(samples, list):
        return default_collate(samples) if shared else np.stack(samples)
    return torch.from_numpy(samples) if shared else samples


class Jpeg:
    """Dataset of JPEG files, which OpenCV decodes."""

    def __init__(self, work: Workload) -> None:
        self.files = Files(work)
        self.random: np.random.Generator | None = None

    def __getitems__(self, rows: Array) -> Fetched:
        random = self.random = self.random or np.random.default_rng(torch.initial_seed())
        return self.files.samples(rows, random), self.files.label[rows]


DATASETS: dict[str, Callable[[Workload], Any]] = {
    "rows": Rows,
    "records": Records,
    "windows": Windows,
    "jpeg": Jpeg,
}


class Torch(Session):
    def dataset_of(self, work: Workload) -> Any:
        return DATASETS[work.kind](work)

    def open(self) -> None:
        cv2.setNumThreads(1)
        # Records and mapped files cannot be written to, and no code does.
        warnings.filterwarnings("ignore", "The given NumPy array is not writ")
        self.ready = self.workers * PREFETCHED
        self.dataset = self.dataset_of(self.work)
        # Started here, because processes are best forked before JAX has its threads.
        self.batches = self._batches(iter(self._loader(epochs=None)))

    def epoch(self) -> Iterator[Batch]:
        # Windows have no epochs: as many as are asked for.
        epochs = None if self.work.kind == "windows" else 1
        return self._batches(iter(self._loader(epochs)))

    def stream(self) -> Iterator[Batch]:
        return self.batches

    def close(self) -> None:
        # Its iterator ends its processes when no reference to it is left.
        self.batches.close()

    def _loader(self, epochs: int | None) -> Any:
        return DataLoader(
            self.dataset,
            batch_sampler=Batches(self.work, epochs),
            collate_fn=collate,
            num_workers=self.workers,
            prefetch_factor=PREFETCHED if self.workers else None,
        )

    def _batches(self, batches: Iterator[Any]) -> Generator[Batch]:
        for batch in batches:
            yield tuple(np.asarray(field) for field in batch)


if __name__ == "__main__":
    serve(Actions(Torch))
