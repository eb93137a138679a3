"""jax-dataloader as a contestant; see worker.py for the requests.

The backend is "jax", the only one of its own: its batches are NumPy arrays, which a training loop gives to JAX. It
works in the thread of the caller, and ignores `num_workers`, so that workers make no difference.
"""

from collections.abc import Iterator

import jax_dataloader
import numpy as np

from benchmarks.peers.worker import Actions, CannotError, Session, serve
from benchmarks.workloads import Batch


class JaxDataloader(Session):
    def open(self) -> None:
        work = self.work
        if work.kind == "records":
            raise CannotError("jax-dataloader has no reader of ArrayRecord")
        if work.kind == "windows":
            raise CannotError("jax-dataloader has no windows: it loads rows of arrays")
        if work.chain is not None:
            raise CannotError("jax-dataloader has no transforms")
        # Mapped, which was as fast as arrays read into memory first, and begins at once.
        arrays = (np.load(path, mmap_mode="r") for path in (work.data, work.label))
        self.loader = jax_dataloader.DataLoader(
            jax_dataloader.ArrayDataset(*arrays), "jax", batch_size=work.batch_size, shuffle=True
        )

    def epoch(self) -> Iterator[Batch]:
        return iter(self.loader)

    def stream(self) -> Iterator[Batch]:
        while True:
            yield from self.loader


if __name__ == "__main__":
    serve(Actions(JaxDataloader))
