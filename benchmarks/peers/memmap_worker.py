"""By hand: `get_batch` over np.memmap, as in nanoGPT; see worker.py for the requests.

Without workers it is the fifteen lines that people usually write, in the thread that trains. With workers the same
function of one image runs in so many threads, into preallocated arrays: NumPy and OpenCV release the GIL.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.peers.worker import Actions, Session, batches_per_epoch, numpy_epochs, serve
from benchmarks.rows import Array
from benchmarks.workloads import Batch

PART = 16  # samples of a task
OUTS = 4  # as many arrays as a loader uses with two batches ahead


class ByHand(Session):
    def open(self) -> None:
        work = self.work
        if work.kind == "windows":
            self.tokens = np.memmap(work.data, work.dtype, mode="r")
        elif work.kind == "records":
            from array_record.python.array_record_data_source import ArrayRecordDataSource

            # It reads the records of a batch in threads of its own.
            self.records = ArrayRecordDataSource(str(work.data))
        else:
            self.data = np.load(work.data, mmap_mode="r")
            self.label = np.load(work.label, mmap_mode="r")
        if work.chain is not None:
            import cv2

            from benchmarks.peers.augment import CHAINS

            cv2.setNumThreads(1)
            self.chain = CHAINS[work.chain]
            self.random = np.random.default_rng(0)
        self.pool = ThreadPoolExecutor(self.workers) if self.workers else None
        self.outs: list[Array] = []

    def epoch(self) -> Iterator[Batch]:
        return islice(self.stream(), batches_per_epoch(self.work))

    def stream(self) -> Iterator[Batch]:
        if self.work.kind == "windows":
            return self._windows()
        if self.work.kind == "records":
            return self._records()
        return self._rows() if self.work.chain is None else self._augmented()

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown()

    def _windows(self) -> Iterator[Batch]:
        length = self.work.shape[0]
        generator = np.random.default_rng(0)
        while True:
            starts = generator.integers(0, len(self.tokens) - length, self.work.batch_size)
            inputs = np.stack([self.tokens[s : s + length] for s in starts])
            targets = np.stack([self.tokens[s + 1 : s + 1 + length] for s in starts])
            yield inputs, targets

    def _records(self) -> Iterator[Batch]:
        dtype, shape = self.work.dtype, self.work.shape
        for rows in numpy_epochs(self.work):
            records = self.records.__getitems__(rows.tolist())
            yield (np.stack([np.frombuffer(one, dtype).reshape(shape) for one in records]),)

    def _rows(self) -> Iterator[Batch]:
        for rows in numpy_epochs(self.work):
            yield self.data[rows], self.label[rows]

    def _augmented(self) -> Iterator[Batch]:
        for number, rows in enumerate(numpy_epochs(self.work)):
            if self.pool is None:
                samples = np.stack([self.chain(self.data[row], self.random) for row in rows])
            else:
                samples = self._out(number, len(rows))
                parts = [slice(start, start + PART) for start in range(0, len(rows), PART)]
                list(self.pool.map(lambda part: self._fill(samples[part], rows[part]), parts))  # noqa: B023
            yield samples, self.label[rows]

    def _out(self, number: int, size: int) -> Array:
        if not self.outs:
            sample = self.chain(self.data[0], self.random)
            shape = (self.work.batch_size, *sample.shape)
            self.outs = [np.zeros(shape, sample.dtype) for _ in range(OUTS)]
        return self.outs[number % OUTS][:size]

    def _fill(self, samples: Any, rows: Array) -> None:
        # A generator per task: one is not safe in several threads.
        generator = np.random.default_rng(rows)
        for place, row in enumerate(rows):
            samples[place] = self.chain(self.data[row], generator)


if __name__ == "__main__":
    serve(Actions(ByHand))
