"""Loadax as a contestant; see worker.py for the requests.

Without workers it is its `NaiveDataloader`, in the thread of the caller. With workers it is the loader of its
`DataloaderBuilder`, which gets single items in so many threads, with its default of two batches ahead. The items are
numbers of rows, and the `Batcher` reads all rows of a batch at once. Only if rows go through a chain are the items its
results, so that the threads have that work. Items that are rows, stacked by the `Batcher`, were up to twice as slow.

NumPy draws the order in a dataset of our own: `ShuffledDataset` keeps a list of JAX scalars, with which a loader was
fifteen to eighty times as slow. A new loader for each epoch, which is stopped after its last batch, avoids two defects:
Loadax never takes a short batch out of its strategy, so that `NaiveDataloader` repeats it without end, and the next
epoch of `Dataloader` begins with it.
"""

import threading
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any

import cv2
import jax
import loadax
import numpy as np
from loadax.strategy import FixedBatchStrategy

from benchmarks.peers.augment import CHAINS
from benchmarks.peers.worker import Actions, CannotError, Session, serve
from benchmarks.rows import Array
from benchmarks.workloads import Batch


class Numbers(loadax.Dataset):  # type: ignore[misc]
    """Dataset of the numbers of rows, in the order of one epoch."""

    def __init__(self, numbers: Array) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def get(self, index: int) -> Any:
        # None tells Loadax that the data ends.
        return self.numbers[index] if index < len(self.numbers) else None


class Loadax(Session):
    def open(self) -> None:
        work = self.work
        if work.kind == "records":
            raise CannotError(
                "Loadax has no reader of ArrayRecord: it reads lists and Hugging Face's datasets."
            )
        if work.kind == "windows":
            tokens = np.asarray(np.memmap(work.data, work.dtype, mode="r"))
            self.windows = np.lib.stride_tricks.sliding_window_view(tokens, work.shape[0])
        else:
            self.data = np.asarray(np.load(work.data, mmap_mode="r"))
            self.label = np.asarray(np.load(work.label, mmap_mode="r"))
        if work.chain is not None:
            cv2.setNumThreads(1)
            self.chain = CHAINS[work.chain]
        # It has two batches of items ahead, and one that is being assembled.
        self.ready = 3 if self.workers else 0
        self.random = np.random.default_rng(0)
        self.of_thread = threading.local()
        self.batches = self._endless()

    def epoch(self) -> Iterator[Batch]:
        dataset = self._dataset()
        iterator = iter(self._loader(dataset))
        try:
            yield from islice(iterator, -(-len(dataset) // self.work.batch_size))
        finally:
            if self.workers:
                iterator.executor.shutdown(cancel_futures=True)
                # A third defect: it refers to the iterator whose end it waits for, so that neither is ever freed.
                iterator._shutdown_finalizer.detach()

    def stream(self) -> Iterator[Batch]:
        return self.batches

    def close(self) -> None:
        self.batches.close()

    def _endless(self) -> Generator[Batch, None, None]:
        while True:
            yield from self.epoch()

    def _dataset(self) -> Any:
        work = self.work
        if work.kind == "windows":
            # As many as needed to read as many tokens as there are: Loadax makes a list of all numbers of items.
            count = work.rows // work.shape[0]
            return Numbers(self.random.integers(0, len(self.windows) - 1, count))
        numbers = Numbers(self.random.permutation(work.rows))
        return numbers if work.chain is None else loadax.MappedDataset(numbers, self._augmented)

    def _loader(self, dataset: Any) -> Any:
        batcher = loadax.Batcher(self._batch)
        if not self.workers:
            strategy = FixedBatchStrategy(self.work.batch_size)
            return loadax.NaiveDataloader(dataset, batcher, strategy)
        builder = loadax.DataloaderBuilder(batcher).batch_size(self.work.batch_size)
        return builder.workers(self.workers).build(dataset)

    def _augmented(self, row: int) -> tuple[Array, Any]:
        # A generator per thread: one is not safe in several.
        if not hasattr(self.of_thread, "random"):
            self.of_thread.random = np.random.default_rng(threading.get_ident())
        return self.chain(self.data[row], self.of_thread.random), self.label[row]

    def _batch(self, items: list[Any]) -> Batch:
        batch: Batch
        if self.work.chain is not None:
            samples, labels = zip(*items, strict=True)
            batch = np.stack(samples), np.array(labels)
        else:
            rows = np.array(items)
            if self.work.kind == "windows":
                batch = self.windows[rows], self.windows[rows + 1]
            else:
                batch = self.data[rows], self.label[rows]
        # To the device is the Batcher's task, says its documentation.
        return jax.device_put(batch) if self.on_device else batch


if __name__ == "__main__":
    serve(Actions(Loadax))
