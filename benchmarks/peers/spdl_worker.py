"""SPDL: a pipeline of threads over mapped files and ArrayRecord; see worker.py for the requests.

One stage makes whole batches in as many threads as there are workers, or in one: NumPy, OpenCV and ArrayRecord release
the GIL, and every further stage or smaller task costs another trip through its event loop. JPEG files are decoded by
OpenCV by hand, or, if `variant` is "decoder", by its own decoder with a filter graph, both of FFmpeg.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import spdl.io
from array_record.python.array_record_data_source import ArrayRecordDataSource
from spdl.pipeline import PipelineBuilder

from benchmarks.images import CROPPED
from benchmarks.peers.augment import CHAINS, normalize
from benchmarks.peers.jpeg_files import Files, size_of, window
from benchmarks.peers.worker import Actions, Session, batches_per_epoch, numpy_epochs, serve
from benchmarks.rows import Array
from benchmarks.workloads import Batch, Workload

BUFFERED = 2  # batches in the sink


def starts_of(work: Workload) -> Iterator[Array]:
    """Yield the beginnings of the windows of each batch, with replacement: an order of all is as large as the file."""
    generator = np.random.default_rng(0)
    while True:
        yield generator.integers(0, work.rows - work.shape[0], work.batch_size)


def rows_of(work: Workload) -> Callable[[Array], Batch]:
    """Return a function that reads rows of mapped files, by indexing: `take` is no faster."""
    data, label = (np.load(file, mmap_mode="r") for file in (work.data, work.label))
    return lambda rows: (data[rows], label[rows])


def chain_of(work: Workload) -> Callable[[Array], Batch]:
    """Return a function that reads rows of mapped files and runs them through a chain."""
    assert work.chain is not None
    cv2.setNumThreads(1)
    chain = CHAINS[work.chain]
    data, label = (np.load(file, mmap_mode="r") for file in (work.data, work.label))

    def fetch(rows: Array) -> Batch:
        # A generator per batch: one is not safe in several threads.
        random = np.random.default_rng()
        return np.stack([chain(data[row], random) for row in rows]), label[rows]

    return fetch


def by_hand_of(work: Workload) -> Callable[[Array], Batch]:
    """Return a function that makes samples of JPEG files by hand."""
    files = Files(work)

    def fetch(rows: Array) -> Batch:
        return np.stack(files.samples(rows, np.random.default_rng())), files.label[rows]

    return fetch


def decoder_of(work: Workload) -> Callable[[Array], Batch]:
    """Return a function that decodes, crops, resizes and mirrors JPEG files by filter graphs of FFmpeg.

    It has to read a header first, because a window is drawn for the size of an image.
    """
    files = Files(work)

    def sample(row: int, random: np.random.Generator) -> Array:
        data = Path(files.paths[row]).read_bytes()
        top, left, down, across = window(random, *size_of(data))
        mirrored = "hflip," if random.random() < 0.5 else ""
        graph = (
            f"crop={across}:{down}:{left}:{top},"
            f"scale={CROPPED}:{CROPPED}:flags=bilinear,{mirrored}format=pix_fmts=rgb24"
        )
        return normalize(spdl.io.to_numpy(spdl.io.load_image(data, filter_desc=graph)))

    def fetch(rows: Array) -> Batch:
        random = np.random.default_rng()
        return np.stack([sample(row, random) for row in rows.tolist()]), files.label[rows]

    return fetch


def records_of(work: Workload) -> Callable[[Array], Batch]:
    """Return a function that reads records of an ArrayRecord file, which has threads of its own for a batch."""
    source = ArrayRecordDataSource(str(work.data))

    def fetch(rows: Array) -> Batch:
        records = source.__getitems__(rows.tolist())
        return (np.stack([np.frombuffer(one, work.dtype).reshape(work.shape) for one in records]),)

    return fetch


def windows_of(work: Workload) -> Callable[[Array], Batch]:
    """Return a function that reads windows of a file of tokens, and the same one token further."""
    tokens = np.memmap(work.data, work.dtype, mode="r")
    length = work.shape[0]

    def fetch(starts: Array) -> Batch:
        inputs = np.stack([tokens[start : start + length] for start in starts.tolist()])
        targets = np.stack([tokens[start + 1 : start + 1 + length] for start in starts.tolist()])
        return inputs, targets

    return fetch


class Spdl(Session):
    def open(self) -> None:
        work = self.work
        self.threads = max(self.workers, 1)
        # In the sink, in the queues before and after the threads, and in the threads.
        self.ready = BUFFERED + 2 * self.threads + 2
        if work.kind == "jpeg":
            self.fetch = decoder_of(work) if self.variant == "decoder" else by_hand_of(work)
        elif work.kind == "rows":
            self.fetch = rows_of(work) if work.chain is None else chain_of(work)
        else:
            self.fetch = records_of(work) if work.kind == "records" else windows_of(work)
        self.pipeline = self._pipeline(self._numbers())
        self.pipeline.start()

    def epoch(self) -> Iterator[Batch]:
        pipeline = self._pipeline(islice(self._numbers(), batches_per_epoch(self.work)))
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()

    def stream(self) -> Iterator[Batch]:
        yield from self.pipeline.get_iterator()

    def close(self) -> None:
        self.pipeline.stop()

    def _numbers(self) -> Iterator[Array]:
        return starts_of(self.work) if self.work.kind == "windows" else numpy_epochs(self.work)

    def _pipeline(self, numbers: Iterator[Array]) -> Any:
        return (
            PipelineBuilder()
            .add_source(numbers)
            .pipe(self.fetch, concurrency=self.threads)
            .add_sink(BUFFERED)
            # A failure ends the pipeline, in place of the missing batch.
            .build(num_threads=self.threads, max_failures=0, use_thread_output_queue=True)
        )


if __name__ == "__main__":
    serve(Actions(Spdl))
