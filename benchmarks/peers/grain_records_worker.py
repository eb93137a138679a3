"""Grain over an ArrayRecord file, as its own documentation reads one; see worker.py for how it is asked.

{"do": "open", "file": "x.array_record", "dtype": "uint8", "shape": [3], "batch_size": 256, "num_workers": 2}
{"do": "digest"}                        of the rows of one epoch
{"do": "run", "batches": 8}             -> {"images": ..., "seconds": ...}

Run by the Python of .venv-grain, as `python -m benchmarks.peers.grain_records_worker` in the repository.
"""

import hashlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import absl.flags
import grain.python as grain
import numpy as np

from benchmarks.peers.worker import serve, timed
from benchmarks.rows import Array

# Batches in stock: one per worker, one in the queue between, one being handed over.
READY = 4


class Decode(grain.MapTransform):
    """A record as an array."""

    def __init__(self, dtype: str, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, shape

    def map(self, element: bytes) -> Array:
        return np.frombuffer(element, self.dtype).reshape(self.shape)


class Session:
    """The loader of one benchmark run."""

    def open(
        self, file: str, dtype: str, shape: list[int], batch_size: int, num_workers: int
    ) -> dict[str, Any]:
        """Start an endless loader, workers and all."""
        # Otherwise its worker processes fail outside absl programs (google/grain#1355).
        absl.flags.FLAGS.mark_as_parsed()
        source = grain.ArrayRecordDataSource(file)
        self.loader = partial(
            self._loader, source, Decode(dtype, tuple(shape)), batch_size, num_workers
        )
        self.iterator = iter(self.loader(epochs=None))
        next(self.iterator)
        return {}

    def digest(self) -> dict[str, str]:
        """That of one epoch, whatever its order."""
        digests = [
            hashlib.blake2b(row.tobytes(), digest_size=16).digest()
            for rows in self.loader(epochs=1)
            for row in rows
        ]
        return {"digest": hashlib.blake2b(b"".join(sorted(digests))).hexdigest()}

    def run(self, batches: int) -> dict[str, float]:
        """Time `batches` batches."""
        return timed(self._sizes(), batches, READY)

    def _sizes(self) -> Iterator[int]:
        while True:
            yield len(next(self.iterator))

    def _loader(
        self, source: Any, decode: Decode, batch_size: int, num_workers: int, epochs: int | None
    ) -> grain.DataLoader:
        return grain.DataLoader(
            data_source=source,
            sampler=grain.IndexSampler(
                len(source), grain.NoSharding(), shuffle=True, num_epochs=epochs, seed=0
            ),
            operations=[decode, grain.Batch(batch_size, drop_remainder=False)],
            worker_count=num_workers,
        )


if __name__ == "__main__":
    serve(Session())
