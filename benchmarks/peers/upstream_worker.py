"""loaderx 2.8 of PyPI, the project this one descends from; see worker.py for the requests.

It reads only its own files, Zrecord stores, which its own writer writes before anything is timed: "raw", because
compressed ones took a quarter to three quarters longer to read, and otherwise with its defaults.

A batch is a list of DLTensors, not of arrays: the `transform` of its Loader converts them without a copy, as its
documentation shows. Without workers all happens in the thread of the caller. With workers so many threads fetch batches
ahead, one at a time because they share a lock. More workers or a longer queue were not faster.
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.worker import Actions, CannotError, Session, serve
from benchmarks.workloads import Batch, Workload

# Its import name is that of this project, which is found in the working directory unless that is left out. The other
# modules of `benchmarks` are still found: a package that was imported once remembers its folder.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != ROOT]
upstream: Any = import_module("loaderx")
zrecord: Any = import_module("loaderx.zrecord")
sampling: Any = import_module("loaderx.sampler")

PREFETCH = 2
FIELDS = ("data", "label")


def store(work: Workload, field: str) -> Path:
    return Path(work.folder) / f"{field}.zrecord"


def check_possible(work: Workload) -> None:
    """Raise for workloads that it cannot do."""
    if work.kind == "records":
        raise CannotError("loaderx 2.8 has no reader of ArrayRecord: it reads its own stores only")
    if work.kind == "windows":
        raise CannotError("loaderx 2.8 has no windows: its records do not overlap")
    if work.chain is not None:
        raise CannotError("loaderx 2.8 has no augmentations")


def numpy_arrays(shards: list[dict[str, Any]]) -> Batch:
    return tuple(np.from_dlpack(shards[0][field]) for field in FIELDS)


def jax_arrays(shards: list[dict[str, Any]]) -> Batch:
    import jax

    return tuple(jax.device_put(jax.dlpack.from_dlpack(shards[0][field])) for field in FIELDS)


class Upstream(Session):
    @classmethod
    def prepare(cls, work: Workload) -> None:
        if work.kind != "rows" or work.chain is not None:
            return
        for field, path in zip(FIELDS, (work.data, work.label), strict=True):
            rows = np.load(path, mmap_mode="r")
            # It does not write to a path that exists.
            shutil.rmtree(store(work, field), ignore_errors=True)
            with zrecord.DenseWriter(
                store(work, field), rows.dtype, rows.shape[1:], codec="raw"
            ) as writer:
                writer.append(rows)

    def open(self) -> None:
        check_possible(self.work)
        # The batches in the queue, and one in each worker.
        self.ready = self.workers + PREFETCH if self.workers else 0
        self.opened = ExitStack()
        allocator = self.opened.enter_context(upstream.Allocator("cpu"))
        self.views = {
            field: [
                self.opened.enter_context(zrecord.DenseStore(store(self.work, field))).bind(
                    allocator
                )
            ]
            for field in FIELDS
        }
        self.loader = self._loader(self.work.batch_size, self.workers)
        self.opened.enter_context(self.loader)

    def epoch(self) -> Iterator[Batch]:
        # Its sampler leaves out the rows that do not fill a batch, so an epoch is complete only if the batches divide
        # it. It has no end either: with several workers some of the next epoch could come before the last of this one.
        sizes = range(1, min(self.work.batch_size, self.work.rows) + 1)
        size = max(size for size in sizes if self.work.rows % size == 0)
        with self._loader(size, min(self.workers, 1)) as loader:
            yield from islice(loader, self.work.rows // size)

    def stream(self) -> Iterator[Batch]:
        return iter(self.loader)

    def close(self) -> None:
        self.opened.close()

    def _loader(self, batch_size: int, workers: int) -> Any:
        # CYCLIC: each row once before any comes again, in an order that is computed, not stored.
        sampler = sampling.Sampler(self.work.rows, batch_size, sampling.Sampler.Mode.CYCLIC)
        return upstream.Loader(
            self.views,
            sampler,
            workers=workers,
            prefetch=PREFETCH,
            transform=jax_arrays if self.on_device else numpy_arrays,
        )


if __name__ == "__main__":
    serve(Actions(Upstream))
