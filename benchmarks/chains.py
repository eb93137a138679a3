"""Chains of transforms over whole loaders: loaderx, FFCV, DALI, Grain, OpenCV; and the first batch of a process."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import alone
from benchmarks.entrants import PAUSE, THREADS, Entrant, Loader, Remote
from benchmarks.harness import (
    Comparison,
    Contestant,
    environment,
    in_new_process,
    interleave,
    reason,
)
from benchmarks.images import (
    CROPPED,
    MEAN,
    PAD,
    STD,
    check_summary,
    check_variant,
    cropped_variants,
    resized_variants,
    write_images,
)
from benchmarks.rows import Array
from loaderx import transforms as T  # noqa: N812 - as its users write it

REPEATS = 7
FIRST_REPEATS = 3  # each takes FFCV about 20 seconds
REFERENCE = "loaderx"


@dataclass(frozen=True)
class Workload:
    """Images, and a chain that all contestants know by its name."""

    chain: str
    what: str
    rows: int
    size: int
    batch_size: int
    batches: int  # per measurement of loaderx; for the peers, which are slower, see below
    transforms: Sequence[Any]


CIFAR = Workload(
    chain="cifar",
    what=f"pad-{PAD} crop, flip, normalise to float32",
    rows=50_000,
    size=32,
    batch_size=512,
    batches=400,
    transforms=(T.RandomCrop((32, 32), pad=PAD), T.RandomFlip(), T.Normalize(MEAN, STD)),
)
IMAGENET = Workload(
    chain="imagenet",
    what=f"RandomResizedCrop {CROPPED}, flip, normalise to float32",
    rows=2_000,
    size=256,
    batch_size=256,
    batches=24,
    transforms=(T.RandomResizedCrop(CROPPED), T.RandomFlip(), T.Normalize(MEAN, STD)),
)


def run(peers: bool = True) -> Iterator[Comparison]:
    """All of them, one after the other."""
    for benchmark in (
        partial(cifar, peers=peers),
        partial(imagenet, peers=peers),
        alone.normalise,
        alone.authored,
        alone.styles,
        partial(first_batch, peers=peers),
    ):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loaderx-")))
            yield benchmark(folder, stack)


class Files:
    """The files of a workload, and ways to open them."""

    def __init__(self, folder: Path, work: Workload, stack: ExitStack) -> None:
        self.work = work
        self.stack = stack
        self.beton = folder / "image.beton"
        self.image, self.label = write_images(folder, work.rows, work.size)

    def loaderx(self) -> Loader:
        """A loader with the chain of the workload."""
        return self._loader(self.work.transforms, self.work.batch_size, self.work.batches)

    def remote(
        self, venv: str, module: str, amount: dict[str, int], **arguments: object
    ) -> Callable[[], Remote]:
        """Opens a peer with that chain."""
        common = {
            "chain": self.work.chain,
            "image": str(self.image),
            "label": str(self.label),
            "batch_size": self.work.batch_size,
            "num_workers": THREADS,
        }
        return lambda: Remote(venv, module, amount, self.stack, **common | arguments)

    def ffcv(self) -> Remote:
        """Writes the images in FFCV's own format, and opens it."""
        open_ffcv = self.remote(
            "ffcv", "ffcv_worker", {"epochs": 1}, field="rgb", beton=str(self.beton)
        )
        return open_ffcv()

    def check_against_numpy(
        self,
        transforms: Sequence[Any],
        variants: Callable[[Array], Iterator[npt.NDArray[Any]]],
        tolerance: float,
    ) -> None:
        """Refuse to measure a loaderx whose samples are not what NumPy makes of their rows."""
        batch = next(self._loader(transforms, batch_size=32, batches=1).iterator)
        rows = np.load(self.image, mmap_mode="r")
        for sample, label in zip(batch["image"], batch["label"], strict=True):
            check_variant(sample, variants(rows[label]), tolerance)

    def _loader(self, transforms: Sequence[Any], batch_size: int, batches: int) -> Loader:
        fields = {"image": self.image, "label": self.label}
        return Loader(fields, transforms, batch_size, batches, self.stack)


def cifar(folder: Path, stack: ExitStack, peers: bool, work: Workload = CIFAR) -> Comparison:
    """Small images: what a sample costs beside its pixels."""
    files = Files(folder, work, stack)
    files.check_against_numpy(work.transforms, cropped_variants, tolerance=1e-5)
    entrants: dict[str, Callable[[], Entrant]] = {REFERENCE: files.loaderx}
    if peers:
        grain = partial(files.remote, "grain", "grain_worker", {"batches": 6})
        entrants |= {
            "FFCV": files.ffcv,
            "DALI, CPU": files.remote("dali", "dali_worker", {"batches": 40}),
            "Grain, no workers": grain(num_workers=0),
            f"Grain, {THREADS} workers": grain(),
        }
    return compare(work, entrants)


def imagenet(folder: Path, stack: ExitStack, peers: bool, work: Workload = IMAGENET) -> Comparison:
    """Large images: what a pixel costs that is interpolated."""
    files = Files(folder, work, stack)
    # The whole image, scaled: what is left to chance is the flip. Half a grey level, for rounding.
    whole = T.RandomResizedCrop(CROPPED, scale=(1, 1), ratio=(1, 1))
    half = 0.51 / 255 / min(STD)
    files.check_against_numpy((whole, *work.transforms[1:]), resized_variants, tolerance=half)
    entrants: dict[str, Callable[[], Entrant]] = {REFERENCE: files.loaderx}
    if peers:
        opencv = partial(files.remote, "grain", "opencv_worker", {"batches": 8})
        entrants |= {
            "FFCV": files.ffcv,
            "DALI, CPU": files.remote("dali", "dali_worker", {"batches": 8}),
            f"OpenCV, {THREADS} threads": opencv(normalise="broadcast"),
            f"OpenCV, {THREADS} threads, cv2.transform": opencv(normalise="affine"),
        }
    return compare(work, entrants)


def compare(work: Workload, entrants: dict[str, Callable[[], Entrant]]) -> Comparison:
    """Open, check and measure all; the table names who cannot be opened or does something else."""
    rates: dict[str, Contestant] = {}
    absent: dict[str, str] = {}
    expected: dict[str, Any] = {}
    for name, open_entrant in entrants.items():
        try:
            entrant = open_entrant()
            summary = entrant.summary()
            # The reference, whose samples were compared with NumPy's, comes first.
            expected = expected or summary | {"every row once": True}
            check_summary(summary, expected)
        except Exception as error:
            if name == REFERENCE:
                raise
            absent[name] = reason(error)
        else:
            rates[name] = entrant.rate
    return interleave(
        f"{work.size}x{work.size}x3 uint8: {work.what}, batches of {work.batch_size}",
        "images/s",
        rates,
        reference=REFERENCE,
        repeats=REPEATS,
        pause=PAUSE,
        absent=absent,
    )


LOADERX_FIRST = """
import json, time
started = time.perf_counter()
import loaderx as lx
from loaderx import transforms as T
loader = lx.DataLoader(
    {{"image": lx.NPDataset({image!r}), "label": lx.NPDataset({label!r})}},
    batch_size={batch_size},
    output="numpy",
    transforms={{"image": [T.RandomCrop((32, 32), pad={pad}), T.RandomFlip(), T.Normalize({mean}, {std})]}},
)
with iter(loader) as batches:
    next(batches)
    print(json.dumps({{"seconds": time.perf_counter() - started}}))
"""

# Left after one batch it would not end by itself: its thread waits for a consumer.
FFCV_FIRST = """
import json, os, time
started = time.perf_counter()
from benchmarks.peers.ffcv_worker import open_loader
next(iter(open_loader({beton!r}, batch_size={batch_size}, num_workers={threads}, chain="cifar")))
print(json.dumps({{"seconds": time.perf_counter() - started}}), flush=True)
os._exit(0)
"""


def first_batch(folder: Path, stack: ExitStack, peers: bool, work: Workload = CIFAR) -> Comparison:
    """Seconds from the first import of a new process to its first batch of the cifar chain."""
    files = Files(folder, work, stack)
    image, label = str(files.image), str(files.label)
    script = LOADERX_FIRST.format(
        image=image, label=label, batch_size=work.batch_size, pad=PAD, mean=MEAN, std=STD
    )

    def loaderx(cache: str) -> float:
        variables = {"LOADERX_CACHE_DIR": cache, "NUMBA_CACHE_DIR": cache}
        return float(in_new_process(script, variables=variables)["seconds"])

    def cold() -> float:
        with tempfile.TemporaryDirectory(prefix="loaderx-cache-") as cache:
            return loaderx(cache)

    warm = stack.enter_context(tempfile.TemporaryDirectory(prefix="loaderx-cache-"))
    contestants: dict[str, Contestant] = {
        "loaderx, nothing compiled yet": cold,
        "loaderx, afterwards": lambda: loaderx(warm),
    }
    absent = {}
    if peers:
        name = "FFCV, every time"
        ffcv = FFCV_FIRST.format(
            beton=str(files.beton), batch_size=work.batch_size, threads=THREADS
        )
        try:
            files.ffcv()
        except Exception as error:
            absent[name] = reason(error)
        else:
            contestants[name] = lambda: float(in_new_process(ffcv, environment("ffcv"))["seconds"])
    return interleave(
        f"first batch of a new process, imports included: {work.what}",
        "seconds",
        contestants,
        reference="loaderx, afterwards",
        repeats=FIRST_REPEATS,
        absent=absent,
    )
