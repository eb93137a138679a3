"""Setup of a worker of Ray: what it makes its loader and its builder from."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loaderx.batch.builder import BatchBuilder
from loaderx.batch.planner import BatchPlanner
from loaderx.errors import ArgumentError
from loaderx.loader import DataLoader
from loaderx.spec import Spec


@dataclass(frozen=True)
class WorkerSetup:
    """Setup of a worker: a function that makes the loader, its threads, and what it must agree on.

    `dtypes` are the dtypes in which the consumer delivers the fields: a worker narrows numbers as the consumer would.
    """

    make: Callable[[], DataLoader]
    threads: int
    dtypes: Mapping[str, np.dtype[Any]]
    fingerprint: Mapping[str, str]

    def builder(self) -> tuple[BatchBuilder, DataLoader]:
        """Return the builder of a worker, of NumPy arrays with the dtypes of the consumer, and its loader."""
        loader = self.make()
        if not isinstance(loader, DataLoader):
            raise ArgumentError(
                f"the function given to RayLoader must return a DataLoader, not {type(loader).__name__}."
            )
        if loader.output != "numpy" or loader.sharding is not None:
            loader = on_worker(loader)()
        built = loader._builder
        groups = [
            dataclasses.replace(
                group,
                fields=tuple(
                    dataclasses.replace(
                        field,
                        spec=Spec(field.spec.shape, self.dtypes.get(field.name, field.spec.dtype)),
                    )
                    for field in group.fields
                ),
            )
            for group in built.planner.groups
        ]
        hooked = built.hook is not None
        planner = BatchPlanner(groups, built.order, self.threads, 1, hooked=hooked)
        return dataclasses.replace(built, planner=planner), loader


def on_worker(loader: DataLoader) -> Callable[[], DataLoader]:
    """Return a function that makes the same loader in another process, of NumPy arrays and without a sharding."""
    remake, (kind, given, named, _, stream) = loader.__reduce__()
    named = {**named, "output": "numpy"}
    return functools.partial(remake, kind, given, named, None, stream)
