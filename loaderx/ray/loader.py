"""`RayLoader`: a loader whose batches are built by the actors of a Ray cluster."""

import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from loaderx.batch.batch_types import Batch_co
from loaderx.errors import ArgumentError
from loaderx.loader import DataLoader, _count
from loaderx.run.iterator import History, LoaderIterator
from loaderx.stream import ranges
from loaderx.stream.order import Order

from .fingerprint import fingerprint
from .fleet import Fleet
from .iterator import RayIterator
from .remote_builder import RemoteBuilder
from .scheduler import RemoteScheduler
from .session import connect
from .shared_memory import SharedMemory
from .worker_setup import WorkerSetup, on_worker

# Part of the object store of a node that batches of the consumer may share.
SHARED_PART = 0.25


class RayLoader(DataLoader[Batch_co]):
    """Loader of the same batches as another one, bytes and order, which actors of a Ray cluster build.

    The cluster is the one that the program is connected to, or that of RAY_ADDRESS; without either a local Ray is
    started. Actors are started by the first `iter(loader)`. A piece of a batch that is lost with its worker is built by
    another one, or here. Attributes, states and iterators are those of the given loader.

    loader           a DataLoader, which is sent to the workers, or a function that makes one, which each worker calls
    workers          number of actors; None: as many as the CPUs of the cluster allow
    cpus_per_worker  CPUs of an actor, and its threads. 1 is best for Python code, which runs under the GIL
    prefetch         number of batches that are kept ready, besides those that are being built; None: as the loader
    timeout          seconds after which a piece that no worker has built is built here
    """

    def __init__(
        self,
        loader: DataLoader[Batch_co] | Callable[[], DataLoader[Batch_co]],
        *,
        workers: int | None = None,
        cpus_per_worker: float = 1,
        prefetch: int | None = None,
        timeout: float = 60.0,
    ) -> None:
        given: Any = loader
        made: Any = given() if callable(given) and not isinstance(given, DataLoader) else given
        if not isinstance(made, DataLoader) or isinstance(made, RayLoader):
            raise ArgumentError(
                f"`loader` (={loader!r}) must be a DataLoader, or a function that makes one."
            )
        if workers is not None:
            workers = _count("workers", workers)
        if not cpus_per_worker > 0:
            raise ArgumentError(f"`cpus_per_worker` (={cpus_per_worker!r}) must be more than 0.")
        if not timeout > 0:
            raise ArgumentError(f"`timeout` (={timeout!r}) must be more than 0 seconds.")
        self._local = made
        self._make: Callable[[], DataLoader] = on_worker(made) if given is made else given
        self._wanted = workers
        self._cpus = cpus_per_worker
        self._timeout = timeout
        self._fleet: Fleet | None = None
        self._ray: Any = None
        self._builder = made._builder
        self._iterators: weakref.WeakSet[LoaderIterator[Batch_co]] = weakref.WeakSet()
        self._history = None if made._history is None else History()
        self._dataset, self._labelset = made._dataset, made._labelset
        # Threads of a local loader, for commands that measure the work of a batch.
        self._workers = made._workers
        self._prefetch = made.prefetch if prefetch is None else _count("prefetch", prefetch)
        self._output, self._sharding = made._output, made._sharding

    @property
    def workers(self) -> int:
        """Number of actors, whether they are ready or not."""
        if self._fleet is None and self._wanted is not None:
            return self._wanted
        return self._start().workers

    def resize(self, workers: int) -> None:
        """Change the number of actors, also while iterators are in use."""
        self._wanted = _count("workers", workers)
        if self._fleet is not None:
            self._fleet.resize(self._wanted)

    def close(self) -> None:
        """Dismiss the actors. Another iterator would start them again."""
        if self._fleet is not None:
            self._fleet.close()
            self._fleet = None

    def explain(self) -> str:
        """Return a table of the transforms, measured here; and what the cluster does with them."""
        text = super().explain()
        return f"{text}\nEach of {self.workers} workers of the Ray cluster runs all of it, with {self._cpus:g} CPUs."

    def _start(self) -> Fleet:
        """Return the fleet, which is started at the first call."""
        fleet = self._fleet
        if fleet is not None and not fleet.closed:
            return fleet
        self._ray = connect()
        workers = self._wanted
        if workers is None:
            total = float(self._ray.cluster_resources().get("CPU", 1))
            workers = max(1, math.floor(total * self._own_share() / self._cpus + 1e-9))
        builder = self._builder
        dtypes = {field.name: np.dtype(field.spec.dtype) for field in builder.planner.fields}
        threads = max(1, math.ceil(self._cpus))
        setup = WorkerSetup(self._make, threads, dtypes, fingerprint(self._local, builder))
        self._fleet = Fleet(self._ray, setup, workers, self._cpus)
        self._shared = SharedMemory(int(SHARED_PART * self._fleet.store_bytes))
        return self._fleet

    def _own_share(self) -> float:
        """Return the part of a batch that this process holds: others, which hold the rest, start actors, too."""
        planner, size = self._builder.planner, self.batch_size
        local = ranges.union(each for own in planner.blocks(size) for each in own)
        return ranges.count(local) / size

    def _make_iterator(
        self,
        history: History | None = None,
        *,
        order: Order | None = None,
        steps: range | None = None,
    ) -> LoaderIterator[Batch_co]:
        fleet, builder = self._start(), self._builder
        planner = builder.planner
        remote = RemoteBuilder(
            planner=planner,
            structure=builder.structure,
            hook=builder.hook,
            hand_off=builder.hand_off,
            mask_pool=builder.mask_pool,
            local=builder,
            ray=self._ray,
            fleet=fleet,
            remote_scheduler=RemoteScheduler(
                local=planner.scheduler,
                fleet=fleet,
                prefetch=self._prefetch,
                nbytes=planner.nbytes(planner.blocks(self.batch_size)),
                splittable=builder.hook is None and planner.phases == 1,
            ),
            shared=self._shared,
            timeout=self._timeout,
        )
        return RayIterator(remote, 1, history, order=order, steps=steps)

    def __repr__(self) -> str:
        workers = "all" if self._wanted is None else self._wanted
        return f"RayLoader({super().__repr__()}, workers={workers}, cpus_per_worker={self._cpus:g})"
