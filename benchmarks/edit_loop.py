"""Edit loop: seconds from a changed chain of transforms to its first batch, in a new process after its imports.

Each row prepares a cache folder of its own with an earlier run, then measures the next run.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.harness import Comparison, in_new_process, interleave

REPEATS = 3
SIZE = 96

PROGRAM = """
import json, sys, time
import numpy as np
import jax
import loaderx as lx
from loaderx import transforms as T

{definitions}
images = np.random.default_rng(0).integers(0, 256, (64, {size}, {size}, 3), dtype=np.uint8)
started = time.perf_counter()
loader = lx.DataLoader({{"image": images}}, batch_size=16, transforms={{"image": [{ops}]}})
with iter(loader) as batches:
    next(batches)["image"].block_until_ready()
    print(json.dumps({{"seconds": time.perf_counter() - started}}))
"""
TRANSFORM = """
@lx.transform
def vignette(x, rng, amount):
    height, width = x.shape[0], x.shape[1]
    top, left = rng.uniform(0.3, 0.7) * height, rng.uniform(0.3, 0.7) * width
    for i in range(height):
        for j in range(width):
            far = ((i - top) / height) ** 2 + ((j - left) / width) ** 2
            gain = 1 - amount * {factor} * far
            for c in range(x.shape[2]):
                x[i, j, c] = np.uint8(x[i, j, c] * max(gain, 0))
"""
CROP, NORMALIZE = "T.RandomResizedCrop(72)", "T.Normalize([0.5] * 3, [0.25] * 3)"
FLIP, JITTER, BLUR = "T.RandomFlip()", "T.ColorJitter(0.4, 0.4, 0.4, 0.1)", "T.GaussianBlur()"
POLICY, ERASING, OWN = "T.RandAugment(2)", "T.RandomErasing()", "vignette(amount=0.8)"


@dataclass(frozen=True)
class Run:
    """Program with one chain."""

    ops: tuple[str, ...]
    size: int = SIZE
    factor: float = 1.0

    def seconds(self, cache: Path) -> float:
        """Run it with this cache; return the seconds to its first batch."""
        script = PROGRAM.format(
            definitions=TRANSFORM.format(factor=self.factor),
            size=self.size,
            ops=", ".join(self.ops),
        )
        variables = {
            "LOADERX_CACHE_DIR": str(cache / "loaderx"),
            "NUMBA_CACHE_DIR": str(cache / "numba"),
        }
        return float(in_new_process(script, variables=variables)["seconds"])


def between(*ops: str, size: int = SIZE, factor: float = 1.0) -> Run:
    """Run ops between a crop and the scaling."""
    return Run((CROP, *ops, NORMALIZE), size, factor)


WHOLE = between(FLIP, JITTER, BLUR)
# Edit -> (the earlier runs, the measured run)
ROWS: dict[str, tuple[list[Run], Run]] = {
    "exchange two ops of a chain": ([WHOLE], between(FLIP, BLUR, JITTER)),
    "add GaussianBlur for the first time": ([between(FLIP, JITTER)], WHOLE),
    "add GaussianBlur, used elsewhere": ([between(FLIP, JITTER), between(BLUR)], WHOLE),
    "put Maybe around two ops": ([WHOLE], between(FLIP, f"T.Maybe(0.5, {JITTER}, {BLUR})")),
    "RandAugment for the first time": ([between(FLIP)], between(FLIP, POLICY)),
    "RandAugment + RandomErasing, both used": (
        [between(POLICY), between(ERASING)],
        between(POLICY, ERASING),
    ),
    "the same chain at another image size": ([WHOLE], between(FLIP, JITTER, BLUR, size=80)),
    "edit a 10-line transform": ([between(OWN)], between(OWN, factor=1.1)),
    "very first CIFAR chain": ([], Run(("T.RandomCrop(32, pad=4)", FLIP, NORMALIZE), 32)),
    "first batch, all cached": ([WHOLE], WHOLE),
}


def run() -> Iterator[Comparison]:
    """Measure every row, with fresh folders in each repeat; the reference is a first batch with everything cached."""

    def measured(before: list[Run], now: Run) -> float:
        with tempfile.TemporaryDirectory(prefix="loaderx-") as folder:
            for each in before:
                each.seconds(Path(folder))
            return now.seconds(Path(folder))

    yield interleave(
        "the edit loop: seconds to the first batch after imports",
        "seconds",
        {name: partial(measured, *row) for name, row in ROWS.items()},
        reference="first batch, all cached",
        repeats=REPEATS,
        lower_is_better=True,
    )
