"""Iterator over batches that a cluster builds."""

import warnings
from typing import Any

from loaderx.batch.batch_types import Batch_co
from loaderx.run.iterator import LoaderIterator
from loaderx.run.worker_pool import BatchTask

from .remote_builder import RemoteBuilder
from .stats import RayStats


class RayIterator(LoaderIterator[Batch_co]):
    """Iterator over batches in order, built ahead by the actors of a fleet. Made by `iter(loader)`.

    Its threads wait, one for each step under way. State, order and errors are those of a local iterator.
    """

    _builder: RemoteBuilder
    # Seconds until the first batch.
    _startup: float | None = None

    def _start_pool(self) -> None:
        self._workers = self._scheduler.ahead
        super()._start_pool()
        self._builder = self._builder.for_pool(self._pool)

    def __next__(self) -> Batch_co:
        # Before the batch is consumed: where warnings are errors, none is lost.
        self._warn()
        batch = super().__next__()
        if self._startup is None:
            self._startup = self._waiting
        return batch

    def _warn(self) -> None:
        for message in self._builder.news():
            warnings.warn(message, RuntimeWarning, stacklevel=3)

    def _schedule(self, last: BatchTask | None = None) -> None:
        # The loader may have been resized.
        self._pool.grow(self._scheduler.ahead)
        super()._schedule(last)

    def stats(self) -> RayStats:
        """Return the statistics so far, with those of the workers and of the transport."""
        own, counted, fleet = super().stats(), self._builder.counters, self._builder.fleet
        specs = [field.spec for field in self._builder.planner.fields]
        facts: dict[str, Any] = {
            name: getattr(own, name)
            for name in ("batches", "waiting_seconds", "total_seconds", "bytes", "replaced")
        }
        return RayStats(
            **facts,
            building_seconds=counted.building_seconds,
            workers=fleet.ready,
            cpus_per_worker=fleet.cpus,
            hedged=counted.hedged,
            lost=counted.lost,
            built_here=counted.built_here,
            transport_seconds=counted.transport_seconds,
            transport_bytes=counted.transport_bytes,
            startup_seconds=self._startup or 0.0,
            wide=any(spec.dtype.kind == "f" and spec.dtype.itemsize >= 4 for spec in specs),
        )

    def __repr__(self) -> str:
        return super().__repr__().replace("LoaderIterator", "RayIterator", 1)
