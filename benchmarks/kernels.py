"""Kernels called without a loader: `kernels.gather`, `kernels.normalize`, and a pipeline on rows of an array."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

import loaderx as lx
from benchmarks.harness import Comparison, Contestant, interleave
from benchmarks.images import CROPPED, MEAN, PAD, STD, write_images
from loaderx import kernels
from loaderx import transforms as T  # noqa: N812 - as its users write it

REPEATS = 9
THREADS = 2
PREFETCH = 2
# Longer than a loader takes to fill its queue of batches after its turn, and OpenMP's threads to sleep.
PAUSE = 0.3
SECONDS = 0.4
ROWS = 1024
SEED = 7

Array = npt.NDArray[Any]


def run() -> Iterator[Comparison]:
    """Run all of them, one after the other."""
    for benchmark in (gather_small, gather_large, normalize, pipeline, one_sample):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loaderx-")))
            yield benchmark(folder, stack)


def gather_small(_folder: Path, _stack: ExitStack) -> Comparison:
    """Gather rows of 3 KB, 512 at once."""
    return _gather(rows=100_000, shape=(32, 32, 3), batch_size=512)


def gather_large(_folder: Path, _stack: ExitStack) -> Comparison:
    """Gather rows of 150 KB, 128 at once."""
    return _gather(rows=2_000, shape=(224, 224, 3), batch_size=128)


def _gather(rows: int, shape: tuple[int, ...], batch_size: int) -> Comparison:
    source = np.random.default_rng(0).integers(0, 256, (rows, *shape), np.uint8)
    order = kernels.permutation(rows, SEED)
    outs = [np.empty((batch_size, *shape), np.uint8) for _ in range(PREFETCH + 2)]
    batches = [order[start : start + batch_size] for start in range(0, rows, batch_size)][:-1]
    gigabytes = outs[0].nbytes / 1e9

    def ours(threads: int | None) -> Callable[[Array, Array], object]:
        return lambda numbers, out: kernels.gather(source, numbers, out, threads=threads)

    def take(numbers: Array, out: Array) -> object:
        # "raise", the default, goes through a second buffer.
        return np.take(source, numbers, axis=0, out=out, mode="clip")

    ways = {"kernels.gather": ours(None), "kernels.gather, threads=1": ours(1), "np.take": take}
    for way in ways.values():
        way(batches[0], outs[0])
        np.testing.assert_array_equal(outs[0], source[batches[0]])
    title = f"gather of {batch_size} rows of {outs[0][0].nbytes:,} bytes"
    contestants = {name: _rate(_steps(way, batches, outs), gigabytes) for name, way in ways.items()}
    return _interleave(title, "GB/s", contestants, "np.take")


def normalize(_folder: Path, _stack: ExitStack) -> Comparison:
    """Normalise 256 images of 224x224x3 from uint8 to float32: bytes written."""
    batch = np.random.default_rng(0).integers(0, 256, (256, 224, 224, 3), np.uint8)
    outs = [np.zeros(batch.shape, np.float32) for _ in range(2)]
    mean, std = np.array(MEAN, np.float32), np.array(STD, np.float32)

    def ours(threads: int | None) -> Callable[[Array, Array], object]:
        return lambda images, out: kernels.normalize(images, MEAN, STD, out, threads=threads)

    def expression(images: Array, out: npt.NDArray[np.float32]) -> object:
        out[...] = (images / np.float32(255) - mean) / std
        return out

    ways = {
        "kernels.normalize": ours(None),
        "kernels.normalize, threads=1": ours(1),
        "(batch / 255 - mean) / std": expression,
    }
    expected: Any = expression(batch, outs[0].copy())
    for way in ways.values():
        way(batch, outs[0])
        np.testing.assert_allclose(outs[0], expected, rtol=0, atol=1e-5)
    contestants = {
        name: _rate(_steps(way, [batch], outs), outs[0].nbytes / 1e9) for name, way in ways.items()
    }
    title = "normalise 256 images of 224x224x3 from uint8 to float32"
    return _interleave(title, "GB/s written", contestants, "(batch / 255 - mean) / std")


def pipeline(folder: Path, stack: ExitStack) -> Comparison:
    """Run 256 rows of 256x256x3 through RandomResizedCrop, flip and normalise, by a loader and by a call."""
    batch_size = 256
    image, _ = write_images(folder, ROWS, 256)
    chain = [T.RandomResizedCrop(CROPPED), T.RandomFlip(), T.Normalize(MEAN, STD)]
    loader = lx.DataLoader(
        lx.NPDataset(str(image)),
        batch_size=batch_size,
        seed=SEED,
        transforms=chain,
        prefetch=PREFETCH,
        workers=THREADS,
        output="numpy",
    )
    images = np.load(image, mmap_mode="r")
    augment = lx.pipeline(chain, seed=SEED)
    batches = [
        (loader.indices(step), np.arange(batch_size * step, batch_size * (step + 1)))
        for step in range(ROWS // batch_size)
    ]
    outs = [np.zeros((batch_size, CROPPED, CROPPED, 3), np.float32) for _ in range(PREFETCH + 2)]

    def ours(threads: int | None) -> Callable[[tuple[Array, Array], Array], object]:
        return lambda batch, out: augment(
            images, rows=batch[0], positions=batch[1], out=out, threads=threads
        )

    for threads in (None, 1):
        for step, batch in enumerate(batches):
            ours(threads)(batch, outs[0])
            np.testing.assert_array_equal(outs[0], loader.batch(step))
    iterator = stack.enter_context(iter(loader))
    contestants = {
        "DataLoader": _rate(lambda: next(iterator), batch_size, PREFETCH + 1),
        "lx.pipeline": _rate(_steps(ours(None), batches, outs), batch_size),
        "lx.pipeline, threads=1": _rate(_steps(ours(1), batches, outs), batch_size),
    }
    title = "256 rows of 256x256x3: RandomResizedCrop 224, flip, normalise to float32"
    return _interleave(title, "images/s", contestants, "DataLoader")


@numba.njit(nogil=True)
def nothing(image: Array, out: Array) -> None:
    """Do nothing: the cost of calling any compiled function."""


def one_sample(_folder: Path, _stack: ExitStack) -> Comparison:
    """Run one image of 32x32x3 through a pad-4 crop, flip and normalise."""
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    out = np.zeros(image.shape, np.float32)
    augment = lx.pipeline([T.RandomCrop(32, pad=PAD), T.RandomFlip(), T.Normalize(MEAN, STD)])
    np.testing.assert_array_equal(augment(image, out=out), augment(image[None])[0])
    calls: dict[str, Callable[[], object]] = {
        "augment(image)": lambda: augment(image),
        "augment(image, out=out)": lambda: augment(image, out=out),
        "an empty njit function": lambda: nothing(image, out),
    }
    contestants = {name: _microseconds(call) for name, call in calls.items()}
    title = "one image of 32x32x3: pad-4 crop, flip, normalise to float32"
    return _interleave(title, "us/call", contestants, "an empty njit function", lower=True)


def _steps(
    way: Callable[[Any, Any], object], batches: Sequence[Any], outs: Sequence[Array]
) -> Callable[[], object]:
    """Return a function that processes the next batch into the next array."""
    turns = zip(cycle(batches), cycle(outs))
    return lambda: way(*next(turns))


def _rate(step: Callable[[], object], amount: float, first: int = 1) -> Contestant:
    """Return the rate of a step that processes `amount`; the `first` steps are not counted."""

    def measure() -> float:
        for _ in range(first):
            step()
        count, began = 0, time.perf_counter()
        while time.perf_counter() < began + SECONDS:
            step()
            count += 1
        return amount * count / (time.perf_counter() - began)

    return measure


def _microseconds(call: Callable[[], object]) -> Contestant:
    rate = _rate(call, 1)
    return lambda: 1e6 / rate()


def _interleave(
    title: str,
    unit: str,
    contestants: dict[str, Contestant],
    reference: str,
    *,
    lower: bool = False,
) -> Comparison:
    return interleave(
        title,
        unit,
        contestants,
        reference=reference,
        repeats=REPEATS,
        pause=PAUSE,
        lower_is_better=lower,
    )
