"""Cyreal as a contestant, over data in memory; see worker.py for the requests.

{"do": "open", "rows": 60000, "shape": [28, 28], "batch_size": 128}
{"do": "first", "jitted": false}    a new loader -> {"seconds": ...} of its first epoch, with compilation
{"do": "later", "jitted": false}    the same loader -> {"seconds": ...} of one more epoch
{"do": "batches", "jitted": false, "count": 2}      -> {"seconds": ...} of so many batches, after one

`jitted` tells whether the caller puts `scan_epoch` or `next` into a jitted function; otherwise it is `scan_epoch`
alone, or `iterate`. Run in Cyreal's environment, as `python -m benchmarks.peers.cyreal_scan_worker`.
"""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
from cyreal.loader import DataLoader
from cyreal.sources import ArraySource
from cyreal.transforms import BatchTransform, DevicePutTransform

from benchmarks.on_device import check_epoch, numbered_images
from benchmarks.peers.worker import serve


def body(total: Any, batch: Any, mask: Any) -> Any:  # noqa: ARG001
    return total + batch["image"].sum(dtype=jnp.uint32), batch["label"]


class Session:
    """Loaders of one benchmark run."""

    def open(self, rows: int, shape: list[int], batch_size: int) -> dict[str, Any]:
        """Make the data."""
        self.data, self.batch_size = numbered_images(rows, shape), batch_size
        self.epochs: dict[bool, Any] = {}
        self.states: dict[bool, Any] = {}
        return {}

    def first(self, jitted: bool) -> dict[str, float]:
        """Time the first epoch of a new loader."""
        loader, self.states[jitted] = self._make()

        def epoch(state: Any, total: Any) -> Any:
            return loader.scan_epoch(state, total, body)

        self.epochs[jitted] = jax.jit(epoch) if jitted else epoch
        return self.later(jitted)

    def later(self, jitted: bool) -> dict[str, float]:
        """Time one more epoch."""
        began = time.perf_counter()
        answer = self.epochs[jitted](self.states[jitted], jnp.uint32(0))
        self.states[jitted], total, labels = jax.block_until_ready(answer)
        spent = time.perf_counter() - began
        check_epoch(total, labels, self.data)
        return {"seconds": spent}

    def batches(self, jitted: bool, count: int) -> dict[str, float]:
        """Time batches that a Python loop asks for."""
        loader, state = self._make()
        batches = self._jitted(loader, state) if jitted else loader.iterate(state)
        jax.block_until_ready(next(batches))
        began = time.perf_counter()
        for batch in islice(batches, count):
            jax.block_until_ready(batch)
        return {"seconds": time.perf_counter() - began}

    def _jitted(self, loader: DataLoader, state: Any) -> Iterator[Any]:
        following = jax.jit(loader.next)
        while True:
            batch, state, _ = following(state)
            yield batch

    def _make(self) -> tuple[DataLoader, Any]:
        stages = [
            ArraySource(self.data, ordering="shuffle"),
            BatchTransform(batch_size=self.batch_size, drop_last=True),
            DevicePutTransform(),
        ]
        loader = DataLoader(stages)
        return loader, jax.block_until_ready(loader.init_state(jax.random.PRNGKey(0)))


if __name__ == "__main__":
    serve(Session())
