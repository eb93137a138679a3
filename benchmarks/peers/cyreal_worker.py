"""Cyreal as a contestant; see worker.py for the requests.

A jitted `loader.next`, as in its documentation: `iterate` takes seconds per batch, and `scan_epoch` hands no batch to
Python. The data goes through one XLA program, so that workers make no difference. Batches are jax.Arrays.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from cyreal.loader import DataLoader
from cyreal.sources import ArraySource, DiskSource
from cyreal.transforms import BatchTransform, DevicePutTransform

from benchmarks.peers.mapped import Rows, Windows
from benchmarks.peers.worker import Actions, CannotError, Session, serve
from benchmarks.rows import Array
from benchmarks.workloads import Batch, Workload

# In an ArraySource each row costs a copy of the order of all rows: with 100,000 rows a batch takes about three times as
# long as by a DiskSource, which its documentation calls slow; with 10,000 it takes less than half as long.
IN_MEMORY = 20_000
# Samples that a DiskSource reads in one callback. They are part of the state, which is copied with every batch: for
# large rows its default of 64 is best, for small ones 256 is, by a third or more.
PREFETCH = 64
SMALL_PREFETCH = 256
SMALL_BYTES = 10_000


def sample_function(work: Workload) -> tuple[int, Callable[[int], Batch]]:
    """Return the number of samples, and the function that reads one for a DiskSource."""
    if work.kind == "windows":
        windows = Windows(work)
        return len(windows), windows.__getitem__
    if work.kind == "rows":
        rows = Rows(work)
        return len(rows), rows.__getitem__
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    records = ArrayRecordDataSource(str(work.data))

    def read(row: int) -> tuple[Array]:
        return (np.frombuffer(records[row], work.dtype).reshape(work.shape),)

    return len(records), read


def source_of(work: Workload) -> Any:
    if work.kind == "rows" and work.rows <= IN_MEMORY:
        return ArraySource((np.load(work.data), np.load(work.label)), ordering="shuffle")
    length, read = sample_function(work)
    prefetch = SMALL_PREFETCH if work.row_bytes < SMALL_BYTES else PREFETCH
    return DiskSource(length, read, ordering="shuffle", prefetch_size=prefetch)


class Cyreal(Session):
    def open(self) -> None:
        if self.work.chain is not None:
            raise CannotError(
                "Cyreal has no crop and no flip: its transforms draw nothing at random"
            )
        # Batches that reach into the next epoch, its default: a part of a padded one is not data.
        self.loader = DataLoader(
            [
                source_of(self.work),
                BatchTransform(batch_size=self.work.batch_size),
                DevicePutTransform(),
            ]
        )
        self.following = jax.jit(self.loader.next)

    def epoch(self) -> Iterator[Batch]:
        left = self.work.rows
        for batch, _ in zip(
            self._batches(seed=1), range(self.loader.steps_per_epoch), strict=False
        ):
            # The last one holds rows of the next epoch too.
            yield tuple(array[:left] for array in batch)
            left -= self.work.batch_size

    def stream(self) -> Iterator[Batch]:
        return self._batches(seed=0)

    def close(self) -> None:
        # The compiled program holds the data.
        del self.loader, self.following
        jax.clear_caches()

    def _batches(self, seed: int) -> Iterator[Batch]:
        state = self.loader.init_state(jax.random.key(seed))
        following = self.following
        while True:
            batch, state, _ = following(state)
            yield batch


if __name__ == "__main__":
    serve(Actions(Cyreal))
