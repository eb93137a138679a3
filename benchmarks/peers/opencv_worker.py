"""OpenCV in threads as a contestant: what one writes without a loader; see worker.py for how it is asked.

{"do": "open", "chain": "imagenet", "image": "x.npy", "label": "y.npy", "batch_size": 256, "num_workers": 2,
 "normalise": "broadcast"}
{"do": "summary"}                       what one epoch is like
{"do": "run", "batches": 8}             -> {"images": ..., "seconds": ...}

Run by the Python of .venv-grain, as `python -m benchmarks.peers.opencv_worker` in the repository.
"""

import math
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.images import CROPPED, MEAN, STD, epoch_summary
from benchmarks.peers.worker import serve, timed
from benchmarks.rows import Array

OUTS = 4  # as many as a loader has in use with two batches ahead
SAMPLES_PER_TASK = 16
SCALE = (1 / (255 * np.array(STD))).astype(np.float32)
BIAS = (-np.array(MEAN) / np.array(STD)).astype(np.float32)
AFFINE = np.column_stack([np.diag(SCALE), BIAS])


def broadcast(pixels: Array, out: Array) -> None:
    """Normalise as it is usually written, in NumPy; three channels at a time, it is slow."""
    np.multiply(pixels, SCALE, out=out)
    np.add(out, BIAS, out=out)


def affine(pixels: Array, out: Array) -> None:
    """Normalise as an affine map of colours in OpenCV, the fastest way found."""
    np.copyto(out, pixels)
    cv2.transform(out, AFFINE, dst=out)


NORMALISE: dict[str, Callable[[Array, Array], None]] = {"broadcast": broadcast, "affine": affine}


def random_window(height: int, width: int) -> tuple[slice, slice]:
    """The part of an image that RandomResizedCrop takes, drawn as torchvision does."""
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if across <= width and down <= height:
            top, left = random.randint(0, height - down), random.randint(0, width - across)
            return slice(top, top + down), slice(left, left + across)
    return slice(0, height), slice(0, width)


class Session:
    """The threads and arrays of one benchmark run."""

    def open(
        self,
        chain: str,
        image: str,
        label: str,
        batch_size: int,
        num_workers: int,
        normalise: str,
    ) -> dict[str, Any]:
        """Map the files and start the threads."""
        if chain != "imagenet":
            raise ValueError(f"OpenCV takes part in the chain 'imagenet' only, not in {chain!r}.")
        cv2.setNumThreads(1)
        random.seed(0)
        self.image = Path(image)
        self.images = np.asarray(np.load(image, mmap_mode="r"))
        self.labels = np.load(label)
        self.batch_size = batch_size
        self.normalise = NORMALISE[normalise]
        self.pool = ThreadPoolExecutor(num_workers)
        self.outs = [np.zeros((batch_size, CROPPED, CROPPED, 3), np.float32) for _ in range(OUTS)]
        return {}

    def summary(self) -> dict[str, Any]:
        """Summarise one epoch."""
        epoch = -(-len(self.labels) // self.batch_size)
        return epoch_summary(islice(self._batches(), epoch), self.image)

    def run(self, batches: int) -> dict[str, float]:
        """Time `batches` batches."""
        return timed((len(images) for images, _ in self._batches()), batches, ready=1)

    def _batches(self) -> Iterator[tuple[Array, Array]]:
        generator = np.random.default_rng(0)
        outs = cycle(self.outs)
        while True:
            order = generator.permutation(len(self.labels))
            for start in range(0, len(order), self.batch_size):
                rows = order[start : start + self.batch_size]
                out = next(outs)[: len(rows)]
                parts = [
                    (rows[place : place + SAMPLES_PER_TASK], out[place : place + SAMPLES_PER_TASK])
                    for place in range(0, len(rows), SAMPLES_PER_TASK)
                ]
                list(self.pool.map(self._fill, parts))
                yield out, self.labels[rows]

    def _fill(self, part: tuple[Array, Array]) -> None:
        rows, out = part
        resized, mirrored = np.empty((2, CROPPED, CROPPED, 3), np.uint8)
        for row, target in zip(rows, out, strict=True):
            image = self.images[row]
            window = random_window(*image.shape[:2])
            size = (CROPPED, CROPPED)
            pixels = cv2.resize(image[window], size, dst=resized, interpolation=cv2.INTER_LINEAR)
            if random.random() < 0.5:
                pixels = cv2.flip(pixels, 1, dst=mirrored)
            self.normalise(pixels, target)


if __name__ == "__main__":
    serve(Session())
