"""Shuffled gather against memory bandwidth: 32x32x3 uint8 images and int32 labels, batches of 512, warm files."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Comparison, Contestant, interleave
from benchmarks.rows import SHAPE, Array, Output, epoch_digest, write_rows
from loaderx import DataLoader, NPDataset
from loaderx.kernels.gathering import copy_rows
from loaderx.run.iterator import LoaderIterator

ROWS = 100_000
BATCH_SIZE = 512
EPOCHS = 5  # per measurement: at least a tenth of a second for the fastest contestant
REPEATS = 9
THREADS = 2
REFERENCE = "np.take(out=), one thread"

Rows = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Batch = tuple[Array, Array]


@dataclass(frozen=True)
class Workload:
    """Two mapped files, the rows of every batch of an epoch, and arrays to gather them into."""

    images: Array
    labels: Array
    batches: Sequence[Rows]
    # As many as a loader uses with two batches ahead: a single one would stay in the cache.
    outs: Sequence[Batch]


def make_workload(image: Path, label: Path) -> Workload:
    """Map the files and draw the order of one epoch."""
    order = np.random.default_rng(1).permutation(ROWS)
    outs = [
        (np.empty((BATCH_SIZE, *SHAPE), np.uint8), np.empty(BATCH_SIZE, np.int32)) for _ in range(4)
    ]
    return Workload(
        images=np.asarray(np.load(image, mmap_mode="r")),
        labels=np.asarray(np.load(label, mmap_mode="r")),
        batches=[order[start : start + BATCH_SIZE] for start in range(0, ROWS, BATCH_SIZE)],
        outs=outs,
    )


def np_take(work: Workload, mode: Literal["raise", "clip"] = "raise") -> Iterator[Batch]:
    """Yield one epoch with np.take, on one thread."""
    for rows, (images, labels) in zip(work.batches, cycle(work.outs)):
        images, labels = images[: len(rows)], labels[: len(rows)]
        # "raise", the default, goes through a second buffer, so that an error leaves `out` unchanged.
        np.take(work.images, rows, axis=0, out=images, mode=mode)
        np.take(work.labels, rows, axis=0, out=labels, mode=mode)
        yield images, labels


def contiguous_copy(work: Workload) -> Iterator[Batch]:
    """Yield one epoch in the order of the file, on one thread: the bandwidth without a shuffle."""
    starts = range(0, ROWS, BATCH_SIZE)
    for start, (images, labels) in zip(starts, cycle(work.outs)):
        rows = slice(start, min(start + BATCH_SIZE, ROWS))
        images, labels = images[: rows.stop - start], labels[: rows.stop - start]
        np.copyto(images, work.images[rows])
        np.copyto(labels, work.labels[rows])
        yield images, labels


class BareKernel:
    """Gather kernel alone: THREADS threads, each with its part of every batch.

    Addresses, and the views the parts are written to, are made beforehand.
    """

    def __init__(self, work: Workload, pool: ThreadPoolExecutor) -> None:
        self.work = work
        self.pool = pool
        # calls[thread][step]: the arguments of that thread's calls for that batch, one per field
        self.calls = [
            [
                self._arguments(rows, out, thread)
                for rows, out in zip(work.batches, cycle(work.outs))
            ]
            for thread in range(THREADS)
        ]

    def run(self) -> None:
        """Run one epoch; the threads do not wait for each other."""
        self._gather(slice(None))

    def batches(self) -> Iterator[Batch]:
        """Yield one epoch batch by batch, to be checked."""
        for step, rows in enumerate(self.work.batches):
            self._gather(slice(step, step + 1))
            images, labels = self.work.outs[step % len(self.work.outs)]
            yield images[: len(rows)], labels[: len(rows)]

    def _gather(self, steps: slice) -> None:
        list(self.pool.map(lambda calls: _copy_all(calls[steps]), self.calls))

    def _arguments(self, rows: Rows, out: Batch, thread: int) -> list[tuple[Rows, int, Bytes]]:
        part = slice(len(rows) * thread // THREADS, len(rows) * (thread + 1) // THREADS)
        return [
            (
                field.ctypes.data + rows[part] * field.strides[0],
                field.strides[0],
                target[part].reshape(-1).view(np.uint8),
            )
            for field, target in zip((self.work.images, self.work.labels), out, strict=True)
        ]


def _copy_all(steps: Iterable[Iterable[tuple[Rows, int, Bytes]]]) -> None:
    for fields in steps:
        for addresses, size, out in fields:
            copy_rows(addresses, size, out)


class WholeLoader:
    """DataLoader that stays open, as it does in a training loop."""

    def __init__(self, image: Path, label: Path, output: Output, stack: ExitStack) -> None:
        self.loader: DataLoader = DataLoader(
            {"image": NPDataset(str(image)), "label": NPDataset(str(label))},
            batch_size=BATCH_SIZE,
            shuffle=True,
            seed=0,
            output=output,
        )
        self.iterator: LoaderIterator = stack.enter_context(iter(self.loader))
        self.output = output

    def run(self) -> None:
        """Gather as many images as an epoch has, rounded up to whole batches."""
        for batch in islice(self.iterator, -(-ROWS // BATCH_SIZE)):
            if self.output == "jax":
                # Dispatch is asynchronous: a batch counts when it has arrived.
                batch["image"].block_until_ready()
                batch["label"].block_until_ready()

    def batches(self) -> Iterator[Batch]:
        """Yield the first epoch; its last batch straddles into the next one and is cut."""
        left = ROWS
        with iter(self.loader) as iterator:
            while left > 0:
                batch = next(iterator)
                yield np.asarray(batch["image"])[:left], np.asarray(batch["label"])[:left]
                left -= BATCH_SIZE


def run() -> Iterator[Comparison]:
    """Check that all contestants deliver the same rows, then measure them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loaderx-")))
        image, label = write_rows(folder, ROWS)
        work = make_workload(image, label)
        kernel = BareKernel(work, stack.enter_context(ThreadPoolExecutor(THREADS)))
        numpy_loader = WholeLoader(image, label, "numpy", stack)
        jax_loader = WholeLoader(image, label, "jax", stack)

        rates: dict[str, Contestant] = {
            REFERENCE: _rate(lambda: _exhaust(np_take(work))),
            'np.take(out=, mode="clip"), one thread': _rate(
                lambda: _exhaust(np_take(work, "clip"))
            ),
            "contiguous copy, one thread": _rate(lambda: _exhaust(contiguous_copy(work))),
            "loaderx: the kernel alone": _rate(kernel.run),
            "loaderx: output='numpy'": _rate(numpy_loader.run),
            "loaderx: output='jax'": _rate(jax_loader.run),
        }
        digests = {
            name: epoch_digest(batches)
            for name, batches in zip(
                rates,
                (
                    np_take(work),
                    np_take(work, "clip"),
                    contiguous_copy(work),
                    kernel.batches(),
                    numpy_loader.batches(),
                    jax_loader.batches(),
                ),
                strict=True,
            )
        }
        check_equal(epoch_digest([(work.images, work.labels)]), digests)
        title = f"shuffled gather, {ROWS:,} rows of 32x32x3, batches of {BATCH_SIZE}"
        yield interleave(title, "images/s", rates, reference=REFERENCE, repeats=REPEATS)


def check_equal(expected: str, digests: Mapping[str, str]) -> None:
    """Raise if contestants do not deliver the same rows, because their speeds are then not comparable."""
    wrong = [name for name, digest in digests.items() if digest != expected]
    if wrong:
        raise ValueError(f"an epoch of {wrong} does not hold the rows of the files, once each.")


def _rate(epoch: Callable[[], None]) -> Contestant:
    """Return images per second over EPOCHS epochs."""

    def measure() -> float:
        started = time.perf_counter()
        for _ in range(EPOCHS):
            epoch()
        return EPOCHS * ROWS / (time.perf_counter() - started)

    return measure


def _exhaust(batches: Iterable[Batch]) -> None:
    for _ in batches:
        pass
