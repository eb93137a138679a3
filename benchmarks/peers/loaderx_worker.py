"""loaderx as a contestant; see worker.py for the requests.

Settings are its defaults, but for two: batches are NumPy arrays, as those of its peers are, unless they are for a
training loop, and there are as many workers as the peers have. `variant` is where JPEG files are: in a folder, in a
"tar" file, or in one of its own ("converted").
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loaderx as lx
from benchmarks.images import CROPPED, MEAN, PAD, STD
from benchmarks.peers import amounts as of
from benchmarks.peers.worker import Actions, Session, serve
from benchmarks.photographs import convert
from benchmarks.workloads import Batch, Workload
from loaderx import transforms as T  # noqa: N812 - as its users write it

CHAINS: dict[str, list[Any]] = {
    "cifar": [T.RandomCrop((32, 32), pad=PAD), T.RandomFlip(), T.Normalize(MEAN, STD)],
    "imagenet": [
        T.RandomResizedCrop(CROPPED, antialias=False),
        T.RandomFlip(),
        T.Normalize(MEAN, STD),
    ],
    "simclr": [
        T.RandomResizedCrop(CROPPED, antialias=False),
        T.RandomFlip(),
        T.Maybe(of.SIMCLR_JITTERED, T.ColorJitter(*of.SIMCLR_JITTER)),
        T.Grayscale(of.SIMCLR_GREY),
        T.Maybe(of.SIMCLR_BLURRED, T.GaussianBlur(of.SIMCLR_SIGMA, of.SIMCLR_KERNEL)),
        T.Normalize(MEAN, STD),
    ],
}
# With antialiasing, as by the other contestants, because photographs are shrunk.
OF_JPEG = [T.RandomResizedCrop(CROPPED), T.RandomFlip(), T.Normalize(MEAN, STD)]


def fields_of(work: Workload, variant: str) -> Any:
    """Return the source of a workload."""
    if work.kind == "jpeg":
        if variant == "converted":
            return lx.ARDataset(convert(Path(work.folder), work.max_side))
        if variant == "tar":
            return lx.TarDataset(work.tar, {"data": "jpg", "label": ("int32", "cls")})
        return {"data": lx.EncodedFiles(work.data), "label": lx.NPDataset(work.label)}
    if work.kind == "windows":
        return lx.TokenDataset(work.data, length=work.shape[0], dtype=work.dtype, stride=1)
    if work.kind == "records":
        return lx.ARDataset(work.data, work.dtype, work.shape)
    return {"data": lx.NPDataset(work.data), "label": lx.NPDataset(work.label)}


class Loaderx(Session):
    ready = 3

    @classmethod
    def prepare(cls, work: Workload) -> None:
        if work.kind == "jpeg":
            convert(Path(work.folder), work.max_side)

    def open(self) -> None:
        self.source = fields_of(self.work, self.variant)
        self.iterator = iter(self._loader())

    def epoch(self) -> Iterator[Batch]:
        return self._batches(self._loader(num_epochs=1))

    def stream(self) -> Iterator[Batch]:
        return self._batches(self.iterator)

    def close(self) -> None:
        self.iterator.close()

    def _loader(self, **options: Any) -> lx.DataLoader:
        work = self.work
        if work.chain is not None:
            chain = OF_JPEG if work.kind == "jpeg" else CHAINS[work.chain]
            options["transforms"] = {"data": chain}
        return lx.DataLoader(
            self.source,
            batch_size=work.batch_size,
            workers=max(self.workers, 1),
            output="jax" if self.on_device else "numpy",
            **options,
        )

    def _batches(self, batches: Any) -> Iterator[Batch]:
        for batch in batches:
            yield tuple(batch.values()) if isinstance(batch, dict) else (batch,)


if __name__ == "__main__":
    serve(Actions(Loaderx))
