"""DALI on the CPU, fed by an external source; see worker.py for the requests.

Its readers require a file per row, or a format that they read from the front and shuffle within a buffer. So NumPy
feeds it the rows of a single file, as its documentation shows. JPEG files are read by its reader of files, with a list
that it shuffles as a whole. `workers` are the threads of its ops.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types

from benchmarks.images import PAD
from benchmarks.peers import amounts as of
from benchmarks.peers.dali_catalogue_worker import normalized, resized_crop, uniform
from benchmarks.peers.worker import (
    Actions,
    CannotError,
    Session,
    batches_per_epoch,
    numpy_epochs,
    serve,
)
from benchmarks.photographs import files_of
from benchmarks.workloads import Batch, Workload

QUEUE = 2  # batches DALI keeps ready; more did not make it faster
# Rows of more bytes are better copied once, by DALI from a list, than gathered first: half to two thirds of the CPU
# time. Smaller ones are better gathered, for a list costs some 5 microseconds per row. Callbacks in processes of its
# own (`parallel=True`) were two to seven times slower, and `no_copy=True` was slower without a chain, level with one.
LARGE = 32_768

Fields = tuple[Any, Any]


def rows_of(work: Workload) -> Iterator[Fields]:
    """Yield shuffled batches without end, as one array or as a list of rows."""
    data = np.asarray(np.load(work.data, mmap_mode="r"))
    label = np.asarray(np.load(work.label, mmap_mode="r"))
    for rows in numpy_epochs(work):
        large = work.row_bytes > LARGE
        yield [data[row] for row in rows] if large else data[rows], label[rows]


def windows_of(work: Workload) -> Iterator[Fields]:
    """Yield windows stacked by NumPy: about twice as fast as lists of them, because they are small."""
    tokens = np.asarray(np.memmap(work.data, work.dtype, mode="r"))
    length = work.shape[0]
    generator = np.random.default_rng(0)
    while True:
        starts = generator.integers(0, len(tokens) - length, work.batch_size)
        inputs = np.stack([tokens[start : start + length] for start in starts])
        yield inputs, np.stack([tokens[start + 1 : start + 1 + length] for start in starts])


def cropped(image: Any) -> Any:
    """Crop a part of the padded image; `fn.slice` alone pads on all sides and crops in one pass."""
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


def coloured(image: Any) -> Any:
    """Change colours as SimCLR does; turning to grey is a saturation of 0, and so part of the same pass."""
    brightness, contrast, saturation, hue = of.SIMCLR_JITTER
    jittered = fn.random.coin_flip(probability=of.SIMCLR_JITTERED)
    kept = fn.random.coin_flip(probability=1 - of.SIMCLR_GREY)
    return fn.color_twist(
        image,
        brightness=1 + jittered * uniform(-brightness, brightness),
        contrast=1 + jittered * uniform(-contrast, contrast),
        saturation=kept * (1 + jittered * uniform(-saturation, saturation)),
        hue=jittered * uniform(-360 * hue, 360 * hue),
    )


def sometimes_blurred(image: Any) -> Any:
    """Blur under a condition of DALI's, so that the other half is unchanged."""
    if fn.random.coin_flip(probability=of.SIMCLR_BLURRED, dtype=types.BOOL):
        sigma = uniform(*of.SIMCLR_SIGMA)
        blurred = fn.gaussian_blur(image, sigma=sigma, window_size=of.SIMCLR_KERNEL)
    else:
        blurred = image
    return blurred


@pipeline_def(enable_conditionals=True)
def pipeline_of(chain: str | None, source: Iterator[Fields]) -> Fields:
    """Return the pipeline of a whole chain; flip and normalise are one op."""
    layout = ["" if chain is None else "HWC", ""]
    data, label = fn.external_source(source=source, num_outputs=2, batch=True, layout=layout)
    if chain is None:
        return data, label
    data = cropped(data) if chain == "cifar" else resized_crop(data)
    if chain == "simclr":
        data = sometimes_blurred(coloured(data))
    return normalized(data, mirror=fn.random.coin_flip()), label


@pipeline_def
def pipeline_of_jpeg(work: Workload) -> Fields:
    """Return the pipeline of JPEG files, of which its decoder decodes the window alone."""
    data, label = fn.readers.file(
        files=files_of(Path(work.folder)),
        labels=np.load(work.label).tolist(),
        shuffle_after_epoch=True,
        name="files",
    )
    window = fn.decoders.image_random_crop(
        data, random_area=list(of.AREA), random_aspect_ratio=list(of.RATIO)
    )
    resized = fn.resize(window, size=[of.SIZE, of.SIZE], interp_type=types.INTERP_LINEAR)
    return normalized(resized, mirror=fn.random.coin_flip()), label


def arrays_of(pipeline: Any) -> Batch:
    """Return the next batch as contiguous arrays over DALI's memory, which it keeps as long as they exist."""
    data, label = pipeline.run()
    return np.asarray(data.as_tensor()), np.asarray(label.as_tensor())


class DALI(Session):
    # The queue, and the batch that is given out while the next one is scheduled.
    ready = QUEUE + 1

    def open(self) -> None:
        if self.work.kind == "records":
            raise CannotError("DALI has no reader of ArrayRecord")
        self.running: Any = self._pipeline()
        if self.on_device:
            from nvidia.dali.plugin.jax import DALIGenericIterator

            # Its own way to jax.Arrays, which wrap the memory of the batch.
            self.running = DALIGenericIterator(self.running, ["data", "label"])

    def epoch(self) -> Iterator[Batch]:
        # A new one, because a source begins with the first batch of an epoch.
        pipeline = self._pipeline()
        batches = (arrays_of(pipeline) for _ in range(batches_per_epoch(self.work)))
        if self.work.kind == "jpeg":
            # Its reader fills the last batch with files of the next epoch.
            return _without(batches, -self.work.rows % self.work.batch_size)
        return batches

    def stream(self) -> Iterator[Batch]:
        while True:
            if self.on_device:
                yield tuple(next(self.running).values())
            else:
                yield arrays_of(self.running)

    def close(self) -> None:
        # It ends its threads when no reference to it is left.
        self.running = None

    def _pipeline(self) -> Any:
        work = self.work
        options = {
            "batch_size": work.batch_size,
            "num_threads": self.workers,
            "device_id": None,
            "prefetch_queue_depth": QUEUE,
            "seed": 0,
        }
        if work.kind == "jpeg":
            pipeline = pipeline_of_jpeg(work, **options)
        else:
            source = windows_of(work) if work.kind == "windows" else rows_of(work)
            pipeline = pipeline_of(work.chain, source, **options)
        pipeline.build()
        return pipeline


def _without(batches: Iterator[Batch], surplus: int) -> Iterator[Batch]:
    """Yield batches, the last one without its last rows."""
    last: Batch | None = None
    for batch in batches:
        if last is not None:
            yield last
        last = batch
    assert last is not None
    data, label = last
    yield data[: len(data) - surplus], label[: len(data) - surplus]


if __name__ == "__main__":
    serve(Actions(DALI))
