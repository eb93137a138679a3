"""FFCV as a contestant of the catalogue, in those rows where it resizes: by means of areas, its only filter.

The requests are those of per_image.py. It has no ops to call, only loaders over its own files: all images are in one,
uncompressed and in the page cache, and an epoch repeats them in their order, many times. The threads are those of its
compiled code, which makes a batch of all images at a time.

Run in FFCV's environment, as `python -m benchmarks.peers.ffcv_catalogue_worker`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ffcv.fields import RGBImageField
from ffcv.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.writer import DatasetWriter

from benchmarks.peers import amounts as of
from benchmarks.peers.worker import serve, timed
from benchmarks.rows import Array

AHEAD = 3  # batches, its default
# Batches of an epoch: at its end FFCV starts a thread and takes new memory.
EPOCH = 1000
RESIZED = (of.RESIZED, of.RESIZED)

DECODERS: dict[str, Callable[[], Any]] = {
    # The crop is all of a square image.
    "Resize area": lambda: CenterCropRGBImageDecoder(RESIZED, ratio=1.0),
    "RandomResizedCrop by area": lambda: RandomResizedCropRGBImageDecoder(
        RESIZED, scale=of.AREA, ratio=of.RATIO
    ),
}


class Images:
    """Dataset of the images of a run, for its writer."""

    def __init__(self, images: Array) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Array]:
        return (self.images[row],)


class Session:
    """Loaders of one benchmark run."""

    def open(self, files: dict[str, str]) -> dict[str, Any]:
        """Remember the files of all samples; each is written in FFCV's format when it is first needed."""
        self.files = files
        self.batches: dict[tuple[str, int], Iterator[Array]] = {}
        return {"cases": list(DECODERS)}

    def result(self, case: str, inputs: list[str], file: str) -> dict[str, Any]:
        """Save the results of all samples."""
        np.save(file, next(self._batches(case, inputs, 1)))
        return {}

    def run(self, case: str, inputs: list[str], threads: int, rounds: int) -> dict[str, float]:
        """Time `rounds` batches."""
        batches = self._batches(case, inputs, threads)
        return timed((len(batch) for batch in batches), rounds, AHEAD + 1)

    def _batches(self, case: str, inputs: list[str], threads: int) -> Iterator[Array]:
        # One at a time: threads of others would wait for the same cores.
        if (case, threads) not in self.batches:
            self.batches.clear()
            self.batches[case, threads] = endless(self._loader(case, inputs[0], threads))
        return self.batches[case, threads]

    def _loader(self, case: str, name: str, threads: int) -> Any:
        images = np.load(self.files[name])
        file = Path(self.files[name]).with_suffix(".beton")
        if not file.exists():
            writer = DatasetWriter(str(file), {"image": RGBImageField(write_mode="raw")})
            writer.from_indexed_dataset(Images(images))
        return Loader(
            str(file),
            batch_size=len(images),
            num_workers=threads,
            os_cache=True,
            order=OrderOption.SEQUENTIAL,
            indices=np.tile(np.arange(len(images)), EPOCH),
            batches_ahead=AHEAD,
            pipelines={"image": [DECODERS[case]()]},
        )


def endless(loader: Any) -> Iterator[Array]:
    """Yield the batches of one epoch after another."""
    while True:
        for (images,) in loader:
            yield images


if __name__ == "__main__":
    serve(Session())
