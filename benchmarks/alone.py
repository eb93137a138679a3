"""One transform alone: against the bandwidth of memory, and against the same loops written by hand."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

import loaderx as lx
from benchmarks.harness import Comparison, Contestant, interleave
from benchmarks.images import MEAN, STD, Images, normalised, write_images
from benchmarks.peers.worker import timed
from loaderx import transforms as T  # noqa: N812 - as its users write it

REPEATS = 7
THREADS = 2
PREFETCH = 2
# Longer than a loader takes to fill its queue of batches after its turn.
PAUSE = 0.3
ROWS = 1024
SIZE = 224
AMOUNT = 0.1
COPIES = 16  # of a transform in a chain, so that it outweighs the rest

Floats = npt.NDArray[np.float32]


def run() -> Iterator[Comparison]:
    """Run all of them, one after the other."""
    for benchmark in (normalise, authored, styles):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loaderx-")))
            yield benchmark(folder, stack)


class Loader:
    """DataLoader that stays open, as it does in a training loop."""

    def __init__(
        self,
        fields: dict[str, Path],
        transforms: Sequence[Any],
        batch_size: int,
        batches: int,
        stack: ExitStack,
    ) -> None:
        self.image = fields["image"]
        self.loader = lx.DataLoader(
            {name: lx.NPDataset(str(path)) for name, path in fields.items()},
            batch_size=batch_size,
            transforms={"image": list(transforms)},
            prefetch=PREFETCH,
            workers=THREADS,
            output="numpy",
        )
        self.iterator = stack.enter_context(iter(self.loader))
        self.batches = batches

    def rate(self) -> float:
        """Return images per second."""
        sizes = (len(batch["image"]) for batch in self.iterator)
        answer = timed(sizes, self.batches, PREFETCH + 1)
        return answer["images"] / answer["seconds"]


def normalise(folder: Path, stack: ExitStack) -> Comparison:
    """Measure bytes only: for each one read, four are written. The copy reads as many as it writes."""
    batch_size, batches = 256, 12
    image, _ = write_images(folder, ROWS, SIZE)
    loader = Loader({"image": image}, [T.Normalize(MEAN, STD)], batch_size, batches, stack)
    samples, rows = _first(loader)
    np.testing.assert_allclose(samples, normalised(rows), rtol=0, atol=1e-5)
    threads = _Threads(batch_size, batches, stack)
    source = np.ones_like(threads.outs[0])

    def copy(out: Floats, part: slice, _step: int) -> None:
        np.copyto(out, source[part])

    def fill(out: Floats, _part: slice, _step: int) -> None:
        out.fill(0.5)

    gigabytes = source[0].nbytes / 1e9
    reference = f"copy of float32, {THREADS} threads"
    contestants: dict[str, Contestant] = {
        reference: lambda: threads.rate(copy) * gigabytes,
        f"fill with a number, {THREADS} threads": lambda: threads.rate(fill) * gigabytes,
        "loaderx: [Normalize]": lambda: loader.rate() * gigabytes,
    }
    title = f"{SIZE}x{SIZE}x3 uint8 normalised to float32, batches of {batch_size}"
    return _interleave(title, "GB/s written", contestants, reference)


@lx.transform
def channel_gain(x: Any, rng: Any, amount: float) -> None:
    """Transform of the README's example."""
    for c in range(x.shape[-1]):
        g = 1 + rng.uniform(-amount, amount)
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                x[i, j, c] *= g


@numba.njit(nogil=True, error_model="numpy")
def gain_by_hand(images: Any, rows: Any, amount: float, out: Any) -> None:
    """Apply ToFloat and channel_gain, as written by hand without loaderx."""
    for k in range(rows.shape[0]):
        row, x = images[rows[k]], out[k]
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                for c in range(x.shape[2]):
                    x[i, j, c] = row[i, j, c] * np.float32(1 / 255)
        for c in range(x.shape[2]):
            g = 1 + np.random.uniform(-amount, amount)  # noqa: NPY002 - what Numba knows
            for i in range(x.shape[0]):
                for j in range(x.shape[1]):
                    x[i, j, c] *= g


@numba.njit(nogil=True, error_model="numpy")
def flat_gain_by_hand(images: Any, rows: Any, amount: float, out: Any) -> None:
    """Apply the same ops over flat rows of three channels: faster, and harder to get right."""
    for k in range(rows.shape[0]):
        row, x = images[rows[k]].reshape(-1), out[k].reshape(-1)
        for p in range(x.shape[0]):
            x[p] = row[p] * np.float32(1 / 255)
        for c in range(3):
            g = 1 + np.random.uniform(-amount, amount)  # noqa: NPY002 - what Numba knows
            for p in range(x.shape[0] // 3):
                x[3 * p + c] *= g


def authored(folder: Path, stack: ExitStack) -> Comparison:
    """Measure a user's transform in a loader, and the same loops written by hand."""
    batch_size, batches = 64, 32
    image, _ = write_images(folder, ROWS, SIZE)
    images = np.asarray(np.load(image, mmap_mode="r"))
    order = np.random.default_rng(0).permutation(ROWS)
    chain = [T.ToFloat(), channel_gain(amount=AMOUNT)]
    loader = Loader({"image": image}, chain, batch_size, batches, stack)
    _check_gain(*_first(loader))
    threads = _Threads(batch_size, batches, stack)

    def by_hand(kernel: Callable[..., None]) -> Contestant:
        out = threads.outs[0][:8]
        kernel(images, order[:8], AMOUNT, out)
        _check_gain(out, images[order[:8]])

        def fill(out: Floats, part: slice, step: int) -> None:
            start = batch_size * step % ROWS
            kernel(images, order[start : start + batch_size][part], AMOUNT, out)

        return lambda: threads.rate(fill)

    reference = "by hand, one njit function"
    contestants: dict[str, Contestant] = {
        reference: by_hand(gain_by_hand),
        "by hand, flat rows": by_hand(flat_gain_by_hand),
        "loaderx: [ToFloat, channel_gain]": loader.rate,
    }
    title = f"a user's transform, {SIZE}x{SIZE}x3, batches of {batch_size}, {THREADS} threads"
    return _interleave(title, "images/s", contestants, reference)


@lx.transform
def nested_loops(x: Any, a: float) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            for c in range(x.shape[2]):
                x[i, j, c] *= a


@lx.transform
def flat_loop(x: Any, a: float) -> None:
    flat = x.reshape(-1)
    for k in range(flat.shape[0]):
        flat[k] *= a


@lx.transform
def array_expression(x: Any, a: float) -> None:
    x *= a


@lx.transform
def array_temporary(x: Any, a: float) -> None:
    x[:] = x * a


def styles(folder: Path, stack: ExitStack) -> Comparison:
    """Measure a transform by the way it is written: a chain of COPIES of it, minus a chain of none."""
    batch_size, batches = 64, 16
    image, _ = write_images(folder, ROWS, SIZE)
    none = Loader({"image": image}, [T.ToFloat()], batch_size, batches, stack)

    def per_sample(author: Any) -> Contestant:
        chain = [T.ToFloat(), *(author(a=1.01) for _ in range(COPIES))]
        many = Loader({"image": image}, chain, batch_size, batches, stack)
        samples, rows = _first(many)
        np.testing.assert_allclose(samples, rows / 255 * 1.01**COPIES, rtol=1e-5)
        # A thread makes one in THREADS samples, so each takes that many times as long.
        return lambda: 1e6 * THREADS * (1 / many.rate() - 1 / none.rate()) / COPIES

    contestants = {
        "flat loop": per_sample(flat_loop),
        "loops over row, column, channel": per_sample(nested_loops),
        "x *= a": per_sample(array_expression),
        "x[:] = x * a": per_sample(array_temporary),
    }
    title = f"ways to write x *= a, {SIZE}x{SIZE}x3 float32, one thread"
    return _interleave(title, "us/sample", contestants, "flat loop")


class _Threads:
    """Pool of THREADS threads that fill arrays of a batch, each its part of every batch."""

    def __init__(self, batch_size: int, batches: int, stack: ExitStack) -> None:
        # As many as a loader uses; written here, so that their pages are allocated.
        self.outs = [np.ones((batch_size, SIZE, SIZE, 3), np.float32) for _ in range(PREFETCH + 2)]
        self.batches = batches
        self.pool = stack.enter_context(ThreadPoolExecutor(THREADS))

    def rate(self, fill: Callable[[Floats, slice, int], None]) -> float:
        """Return samples per second; the threads do not wait for each other."""
        size = len(self.outs[0])

        def fill_parts(thread: int) -> None:
            part = slice(size * thread // THREADS, size * (thread + 1) // THREADS)
            for step, out in enumerate(islice(cycle(self.outs), self.batches)):
                fill(out[part], part, step)

        started = time.perf_counter()
        list(self.pool.map(fill_parts, range(THREADS)))
        return size * self.batches / (time.perf_counter() - started)


def _first(loader: Loader) -> tuple[Images, Images]:
    """Return the first samples, and the rows from which they were made."""
    rows = np.load(loader.image, mmap_mode="r")[loader.loader.indices(0)[:8]]
    return loader.loader.batch(0)["image"][:8], rows


def _check_gain(samples: Images, rows: Images) -> None:
    """Raise if samples are not their rows times one gain per channel."""
    gain = np.asarray(samples, np.float64).sum(axis=(1, 2)) / (rows / 255).sum(axis=(1, 2))
    if np.abs(gain - 1).max() > AMOUNT or np.ptp(gain) < AMOUNT / 10:
        raise ValueError(f"the gains of channels are {gain}, not drawn from 1 +- {AMOUNT}.")
    np.testing.assert_allclose(samples, rows / 255 * gain[:, None, None], rtol=1e-4, atol=1e-6)


def _interleave(
    title: str, unit: str, contestants: dict[str, Contestant], reference: str
) -> Comparison:
    return interleave(title, unit, contestants, reference=reference, repeats=REPEATS, pause=PAUSE)
