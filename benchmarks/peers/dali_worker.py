"""DALI on the CPU as a contestant, fed by an external source; see worker.py for how it is asked.

{"do": "open", "chain": "cifar", "image": "x.npy", "label": "y.npy", "batch_size": 512, "num_workers": 2}
{"do": "summary"}                       what one epoch is like
{"do": "run", "batches": 98}            -> {"images": ..., "seconds": ...}

Run by the Python of .venv-dali, as `python -m benchmarks.peers.dali_worker` in the repository.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types

from benchmarks.images import CROPPED, MEAN, PAD, STD, epoch_summary
from benchmarks.peers.worker import serve, timed
from benchmarks.rows import Array

QUEUE = 2  # batches DALI keeps ready; more did not make it faster


def feed(images: Array, labels: Array, batch_size: int, listed: bool) -> Iterator[tuple[Any, Any]]:
    """Shuffled batches without end, as one array or as a list of rows."""
    generator = np.random.default_rng(0)
    while True:
        order = generator.permutation(len(labels))
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            yield [images[row] for row in rows] if listed else images[rows], labels[rows]


def cropped(image: Any) -> Any:
    """Part of the padded image. `fn.slice` alone pads on all sides and crops in one pass."""
    places = [float(place) for place in range(-PAD, PAD + 1)]
    start = fn.cast(fn.random.uniform(values=places, shape=[2]), dtype=types.INT32)
    return fn.slice(
        image,
        start=start,
        shape=[32, 32],
        axes=[0, 1],
        out_of_bounds_policy="pad",
        fill_values=0,
    )


def resized(image: Any) -> Any:
    """Part of the image, scaled. Without antialiasing, which the others do not do, it is faster."""
    return fn.random_resized_crop(
        image,
        size=[CROPPED, CROPPED],
        random_area=[0.08, 1.0],
        random_aspect_ratio=[3 / 4, 4 / 3],
        interp_type=types.INTERP_LINEAR,
        antialias=False,
    )


@pipeline_def
def chain_pipeline(chain: str, source: Iterator[tuple[Any, Any]]) -> tuple[Any, Any]:
    """The whole chain; flip and normalise are one op."""
    image, label = fn.external_source(source=source, num_outputs=2, batch=True, layout=["HWC", ""])
    image = fn.crop_mirror_normalize(
        cropped(image) if chain == "cifar" else resized(image),
        mirror=fn.random.coin_flip(),
        mean=[255 * value for value in MEAN],
        std=[255 * value for value in STD],
        dtype=types.FLOAT,
        output_layout="HWC",
    )
    return image, label


class Session:
    """The pipeline of one benchmark run."""

    def open(
        self, chain: str, image: str, label: str, batch_size: int, num_workers: int
    ) -> dict[str, Any]:
        """Map the files and build the pipeline."""
        self.image = Path(image)
        images = np.asarray(np.load(image, mmap_mode="r"))
        labels = np.load(label)
        self.epoch = -(-len(labels) // batch_size)
        # Large rows are better copied once, by DALI, than gathered first.
        source = feed(images, labels, batch_size, listed=chain == "imagenet")
        self.pipeline = chain_pipeline(
            chain,
            source,
            batch_size=batch_size,
            num_threads=num_workers,
            device_id=None,
            prefetch_queue_depth=QUEUE,
            seed=0,
        )
        self.pipeline.build()
        return {}

    def summary(self) -> dict[str, Any]:
        """Summarise one epoch; asked right after `open` it is the first."""
        return epoch_summary(islice(self._batches(), self.epoch), self.image)

    def run(self, batches: int) -> dict[str, float]:
        """Time `batches` batches, each as one contiguous tensor."""
        return timed((len(image) for image, _ in self._batches()), batches, QUEUE + 1)

    def _batches(self) -> Iterator[tuple[Array, Array]]:
        while True:
            image, label = self.pipeline.run()
            yield np.asarray(image.as_tensor()), np.asarray(label.as_tensor())


if __name__ == "__main__":
    serve(Session())
