"""FFCV as a contestant; see worker.py for how it is asked.

    {"do": "open", "image": "x.npy", "label": "y.npy", "beton": "xy.beton", "batch_size": 512,
     "num_workers": 2, "field": "rgb", "chain": "cifar"}     -> {"seconds": ...}
    {"do": "digest"}                                         -> {"digest": "..."}
    {"do": "summary"}                                        what one epoch of a chain is like
    {"do": "run", "epochs": 3}                               -> {"images": ..., "seconds": ...}

Run by the Python of .venv-ffcv, as `python -m benchmarks.peers.ffcv_worker` in the repository.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ffcv.fields import IntField, NDArrayField, RGBImageField
from ffcv.fields.decoders import (
    IntDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, RandomTranslate, ToTensor
from ffcv.writer import DatasetWriter

from benchmarks.images import CROPPED, MEAN, PAD, STD, epoch_summary
from benchmarks.peers.worker import serve
from benchmarks.rows import Array, epoch_digest

# NDArrayField is the field for arrays, and its decoder is serial: FFCV marks `is_parallel` on the
# decoders of RGBImageField only. Uncompressed RGBImageField is the same bytes, copied in parallel.
FIELDS = ("ndarray", "rgb")


class Dataset:
    """The rows of two .npy files as the (image, label) samples that FFCV's writer asks for."""

    def __init__(self, image: str, label: str) -> None:
        self.image = np.load(image, mmap_mode="r")
        self.label = np.load(label, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, row: int) -> tuple[Array, int]:
        return np.asarray(self.image[row]), int(self.label[row])


def write_beton(dataset: Dataset, path: Path, field: str, num_workers: int) -> None:
    """Write `dataset` to `path` in FFCV's own format."""
    shape, dtype = dataset.image.shape[1:], dataset.image.dtype
    image = RGBImageField(write_mode="raw") if field == "rgb" else NDArrayField(dtype, shape)
    writer = DatasetWriter(
        str(path), {"image": image, "label": IntField()}, num_workers=num_workers
    )
    writer.from_indexed_dataset(dataset)


def chain_pipelines(chain: str) -> dict[str, list[Any]]:
    """The chain in FFCV's compiled ops, up to float32 tensors.

    Measured against it: `RandomTranslate` before the flip, and the recipe of its CIFAR example, which converts
    and normalises in torch. Both are slower.
    """
    normalise = NormalizeImage(255 * np.array(MEAN), 255 * np.array(STD), np.float32)
    if chain == "cifar":
        ops = [SimpleRGBImageDecoder(), RandomHorizontalFlip(), RandomTranslate(PAD)]
    else:
        ops = [RandomResizedCropRGBImageDecoder((CROPPED, CROPPED)), RandomHorizontalFlip()]
    return {"image": [*ops, normalise, ToTensor()], "label": [IntDecoder(), ToTensor()]}


def open_loader(
    beton: str, batch_size: int, num_workers: int, batches_ahead: int = 3, chain: str | None = None
) -> Loader:
    """A shuffled loader over a file in the page cache; it compiles at its first batch."""
    return Loader(
        beton,
        batch_size=batch_size,
        num_workers=num_workers,
        order=OrderOption.RANDOM,
        os_cache=True,
        seed=0,
        drop_last=False,
        batches_ahead=batches_ahead,
        pipelines={} if chain is None else chain_pipelines(chain),
    )


class Session:
    """The loader of one benchmark run."""

    def open(
        self,
        image: str,
        label: str,
        beton: str,
        batch_size: int,
        num_workers: int,
        field: str,
        batches_ahead: int = 3,
        chain: str | None = None,
    ) -> dict[str, float]:
        """Write the .beton file, open it, and run an epoch, which compiles the pipeline."""
        if field not in FIELDS:
            raise ValueError(f"`field` (={field!r}) must be one of {FIELDS}.")
        self.image = Path(image)
        write_beton(Dataset(image, label), Path(beton), field, num_workers)
        started = time.perf_counter()
        self.loader = open_loader(beton, batch_size, num_workers, batches_ahead, chain)
        for _ in self.loader:
            pass
        return {"seconds": time.perf_counter() - started}

    def digest(self) -> dict[str, str]:
        """Digest the rows of one epoch."""
        return {"digest": epoch_digest(self._batches())}

    def summary(self) -> dict[str, Any]:
        """Summarise one epoch."""
        return epoch_summary(self._batches(), self.image)

    def run(self, epochs: int) -> dict[str, float]:
        """Time `epochs` epochs; the start of each, which FFCV pays every time, is in it."""
        images = 0
        started = time.perf_counter()
        for _ in range(epochs):
            for image, _label in self.loader:
                images += len(image)
        return {"images": images, "seconds": time.perf_counter() - started}

    def _batches(self) -> Iterator[tuple[Array, Array]]:
        for image, label in self.loader:
            yield image.numpy(), label.numpy()[:, 0]


if __name__ == "__main__":
    serve(Session())
