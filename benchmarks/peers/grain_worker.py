"""Grain as a contestant, with transforms in plain NumPy; see worker.py for how it is asked.

{"do": "open", "chain": "cifar", "image": "x.npy", "label": "y.npy", "batch_size": 512, "num_workers": 2}
{"do": "summary"}                       what one epoch is like
{"do": "run", "batches": 8}             -> {"images": ..., "seconds": ...}

Run by the Python of .venv-grain, as `python -m benchmarks.peers.grain_worker` in the repository.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import absl.flags
import grain.python as grain
import numpy as np

from benchmarks.images import MEAN, PAD, STD, epoch_summary
from benchmarks.peers.worker import serve, timed
from benchmarks.rows import Array

# Batches in stock: one per worker, one in the queue between, one being handed over.
READY = 4
MEAN32, STD32 = np.array(MEAN, np.float32), np.array(STD, np.float32)

Element = dict[str, Array]


class Rows:
    """The rows of two .npy files, mapped anew in every process."""

    def __init__(self, image: str, label: str) -> None:
        self.files = image, label
        self.image, self.label = (np.load(file, mmap_mode="r") for file in self.files)

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, row: int) -> Element:
        return {"image": self.image[row], "label": self.label[row]}

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapped array would be pickled with all its bytes.
        return Rows, self.files


class RandomCrop(grain.RandomMapTransform):
    def random_map(self, element: Element, rng: np.random.Generator) -> Element:
        image = element["image"]
        height, width, _ = image.shape
        padded = np.pad(image, ((PAD, PAD), (PAD, PAD), (0, 0)))
        top, left = rng.integers(0, 2 * PAD + 1, size=2)
        return {**element, "image": padded[top : top + height, left : left + width]}


class RandomFlip(grain.RandomMapTransform):
    def random_map(self, element: Element, rng: np.random.Generator) -> Element:
        if rng.random() < 0.5:
            return {**element, "image": element["image"][:, ::-1]}
        return element


class Normalize(grain.MapTransform):
    def map(self, element: Element) -> Element:
        image = element["image"].astype(np.float32) / 255
        return {**element, "image": (image - MEAN32) / STD32}


class Session:
    """The loader of one benchmark run."""

    def open(
        self, chain: str, image: str, label: str, batch_size: int, num_workers: int
    ) -> dict[str, Any]:
        """Start an endless loader, workers and all."""
        if chain != "cifar":
            raise ValueError(f"Grain takes part in the chain 'cifar' only, not in {chain!r}.")
        # Otherwise its worker processes fail outside absl programs (google/grain#1355).
        absl.flags.FLAGS.mark_as_parsed()
        self.image = Path(image)
        self.loader = partial(self._loader, Rows(image, label), batch_size, num_workers)
        self.iterator = iter(self.loader(epochs=None))
        next(self.iterator)
        return {}

    def summary(self) -> dict[str, Any]:
        """Summarise one epoch."""
        batches = ((batch["image"], batch["label"]) for batch in self.loader(epochs=1))
        return epoch_summary(batches, self.image)

    def run(self, batches: int) -> dict[str, float]:
        """Time `batches` batches."""
        return timed(self._sizes(), batches, READY)

    def _sizes(self) -> Iterator[int]:
        while True:
            yield len(next(self.iterator)["label"])

    def _loader(
        self, rows: Rows, batch_size: int, num_workers: int, epochs: int | None
    ) -> grain.DataLoader:
        return grain.DataLoader(
            data_source=rows,
            sampler=grain.IndexSampler(
                len(rows), grain.NoSharding(), shuffle=True, num_epochs=epochs, seed=0
            ),
            operations=[RandomCrop(), RandomFlip(), Normalize(), grain.Batch(batch_size)],
            worker_count=num_workers,
        )


if __name__ == "__main__":
    serve(Session())
