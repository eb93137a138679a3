"""Grain as a contestant; see worker.py for the requests.

Grain shuffles and batches the numbers of rows, and a map reads the rows of a batch: a user's function is then called
once per batch. Reading and augmenting row by row, as in its tutorials, passes each row through every stage in Python,
and took two to four times as long (as long, if records are large). `grain.DataLoader`, which is built on the same
stages, took longer still.

Without workers all is done in the thread of the caller. With workers, batches are made in so many threads of
`to_iter_dataset`, or, if they are of middling size, in so many processes of `mp_prefetch`: these avoid the GIL, but
cost two copies of every batch, and more than a small batch takes to make.
"""

from collections.abc import Iterator
from typing import Any

import absl.flags
import cv2
import grain
import numpy as np

from benchmarks.images import CROPPED
from benchmarks.peers.augment import CHAINS
from benchmarks.peers.jpeg_files import Files
from benchmarks.peers.worker import Actions, Session, serve
from benchmarks.rows import Array
from benchmarks.workloads import Batch, Workload

# Bytes of a batch between which processes were faster than threads.
PROCESSES = range(1 << 18, 1 << 23)


class Reader:
    """Map that reads a batch of rows; new in every process, because pickling a mapped array copies its bytes."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        self.open()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.work,)

    def open(self) -> None:
        self.data = np.asarray(np.load(self.work.data, mmap_mode="r"))
        self.label = np.asarray(np.load(self.work.label, mmap_mode="r"))

    def __call__(self, rows: Array) -> Batch:
        return self.data[rows], self.label[rows]


class Augmenter(Reader):
    """Map that augments one image after the other, with the generator that Grain seeds for this batch."""

    def open(self) -> None:
        super().open()
        assert self.work.chain is not None
        self.chain = CHAINS[self.work.chain]
        cv2.setNumThreads(1)

    # A subclass for `random_map`, which passes a generator.
    def __call__(self, rows: Array, random: np.random.Generator) -> Batch:  # type: ignore[override]
        return np.stack([self.chain(self.data[row], random) for row in rows]), self.label[rows]


class JpegReader(Reader):
    """Map that reads JPEG files, decodes and augments them by hand."""

    def open(self) -> None:
        self.files = Files(self.work)

    def __call__(self, rows: Array, random: np.random.Generator) -> Batch:  # type: ignore[override]
        return np.stack(self.files.samples(rows, random)), self.files.label[rows]


class Windows(Reader):
    """Map that reads windows; window k begins at token k."""

    def open(self) -> None:
        tokens = np.asarray(np.memmap(self.work.data, self.work.dtype, mode="r"))
        self.windows = np.lib.stride_tricks.sliding_window_view(tokens, self.work.shape[0])

    def __call__(self, rows: Array) -> Batch:
        return self.windows[rows], self.windows[rows + 1]


class Records(Reader):
    """Map over Grain's own source, which reads the records of a batch in threads of its own."""

    def open(self) -> None:
        self.source = grain.sources.ArrayRecordDataSource(str(self.work.data))

    def __call__(self, rows: Array) -> Batch:
        records = self.source.__getitems__(rows.tolist())
        dtype, shape = self.work.dtype, self.work.shape
        return (np.stack([np.frombuffer(record, dtype).reshape(shape) for record in records]),)


READERS = {"rows": Reader, "windows": Windows, "records": Records}


class Grain(Session):
    def open(self) -> None:
        # Otherwise its worker processes fail outside absl programs (google/grain#1355).
        absl.flags.FLAGS.mark_as_parsed()
        work = self.work
        count = work.rows - work.shape[0] if work.kind == "windows" else work.rows
        numbers = grain.MapDataset.range(count).seed(0).shuffle().batch(work.batch_size)
        if work.chain is None:
            self.batches = numbers.map(READERS[work.kind](work))
        else:
            augmenter = JpegReader if work.kind == "jpeg" else Augmenter
            self.batches = numbers.random_map(augmenter(work))
        self.processes = self.workers > 0 and _batch_bytes(work) in PROCESSES
        # Of a worker process: one batch being made, one in its queue, and the same again where these are merged.
        self.ready = (4 if self.processes else 2) * self.workers
        if self.on_device:
            # `device_put` below keeps these by default, on the host and on the device, each with one on its way.
            self.ready += 8
        # Shuffled anew in every epoch, because the last batch of each is short.
        self.iterator = iter(self._delivered(self.batches.repeat()))

    def epoch(self) -> Iterator[Batch]:
        iterator = iter(self._delivered(self.batches))
        try:
            yield from iterator
        finally:
            iterator.close()

    def stream(self) -> Iterator[Batch]:
        return self.iterator

    def close(self) -> None:
        self.iterator.close()

    def _delivered(self, batches: Any) -> Any:
        threads = 0 if self.processes else self.workers
        options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
        delivered = batches.to_iter_dataset(options)
        if self.processes:
            delivered = delivered.mp_prefetch(
                grain.multiprocessing.MultiprocessingOptions(num_workers=self.workers)
            )
        if self.on_device:
            # Not above: worker processes import this module, and need no JAX.
            import jax

            delivered = grain.experimental.device_put(delivered, jax.devices()[0])
        return delivered


def _batch_bytes(work: Workload) -> int:
    """Return the bytes of a delivered batch: chains make four bytes of one, and crop larger images."""
    if work.chain is None:
        return work.batch_size * work.row_bytes
    size = min(work.shape[0], CROPPED)
    return work.batch_size * size * size * 3 * 4


if __name__ == "__main__":
    serve(Actions(Grain))
