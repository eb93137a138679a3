"""Fixed costs: per batch, per import, for the first batch, and for the number of rows."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Contestant, in_new_process, interleave
from benchmarks.rows import Output, write_rows
from loaderx import DataLoader, NPDataset

BATCHES = 20_000
REPEATS = 7
MANY, FEW = 10**9, 10**4

IMPORT = """
import json, sys, time
started = time.perf_counter()
import {module}
seconds = time.perf_counter() - started
print(json.dumps({{"seconds": seconds, "jax": "jax" in sys.modules}}))
"""

# Imports before the clock starts are not counted; the backend of JAX starts after it.
FIRST_BATCH = """
import json, time
{not_counted}
started = time.perf_counter()
from loaderx import DataLoader, NPDataset
fields = {{"image": NPDataset({image!r}), "label": NPDataset({label!r})}}
with iter(DataLoader(fields, batch_size=512, shuffle=True, seed=0, output={output!r})) as batches:
    batch = next(batches)
    {arrive}
    seconds = time.perf_counter() - started
print(json.dumps({{"seconds": seconds}}))
"""

FIRST_DEVICE_PUT = """
import json, time
import jax, numpy
started = time.perf_counter()
jax.device_put(numpy.zeros((512, 32, 32, 3), numpy.uint8)).block_until_ready()
print(json.dumps({"seconds": time.perf_counter() - started}))
"""


def run() -> Iterator[Comparison]:
    """Measure all fixed costs, each against its own reference."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loaderx-")))
        yield imports()
        yield first_batch(folder)
        yield opening_range()
        yield opening_file(folder)
        yield per_batch(folder, stack)


def per_batch(folder: Path, stack: ExitStack) -> Comparison:
    """Measure microseconds per `next` of a minimal batch: one row of 4 bytes."""
    path = folder / "four_bytes.npy"
    np.save(path, np.arange(100_000, dtype=np.int32))

    def open_loader(output: Output) -> Contestant:
        loader = DataLoader(NPDataset(str(path)), batch_size=1, shuffle=True, seed=0, output=output)
        iterator = stack.enter_context(iter(loader))
        return _microseconds(lambda: next(iterator))

    mapped = np.asarray(np.load(path, mmap_mode="r"))
    generator = np.random.default_rng(0)
    contestants = {
        "NumPy by hand": _microseconds(lambda: mapped[generator.integers(len(mapped), size=1)]),
        "loaderx: output='numpy'": open_loader("numpy"),
        "loaderx: output='jax'": open_loader("jax"),
    }
    return interleave(
        f"a batch of one row of 4 bytes, over {BATCHES:,} batches",
        "us/batch",
        contestants,
        reference="NumPy by hand",
        repeats=REPEATS,
    )


def imports() -> Comparison:
    """Measure seconds to import loaderx in a new process, next to its dependencies."""
    jax_loaded = in_new_process(IMPORT.format(module="loaderx"))["jax"]
    contestants = {
        f"import {module}": partial(_seconds, IMPORT.format(module=module))
        for module in ("numpy", "numba", "loaderx")
    }
    return interleave(
        f"import in a new process (jax in sys.modules after loaderx: {jax_loaded})",
        "seconds",
        contestants,
        reference="import numba",
        repeats=REPEATS,
    )


def first_batch(folder: Path) -> Comparison:
    """Measure seconds from opening to the first batch of a process, kernels cached, imports done."""
    image, label = write_rows(folder, FEW)

    def opened(output: Output, not_counted: str, arrive: str = "pass") -> Contestant:
        paths = {"image": str(image), "label": str(label)}
        script = FIRST_BATCH.format(**paths, output=output, not_counted=not_counted, arrive=arrive)
        return partial(_seconds, script)

    names = "from loaderx import DataLoader, NPDataset"
    contestants: dict[str, Contestant] = {
        "jax.device_put alone": partial(_seconds, FIRST_DEVICE_PUT),
        "loaderx: output='numpy'": opened("numpy", names),
        # The first batch pays for everything that the import defers: this figure has both.
        "loaderx: output='numpy', and its import": opened("numpy", ""),
        "loaderx: output='jax'": opened(
            "jax", f"import jax; {names}", "jax.block_until_ready(batch)"
        ),
    }
    return interleave(
        "first batch of a new process, after the imports",
        "seconds",
        contestants,
        reference="jax.device_put alone",
        repeats=REPEATS,
    )


def opening_range() -> Comparison:
    """Measure milliseconds to open a shuffled loader over a range and read batch 0."""
    return _opening("a range", range)


def opening_file(folder: Path) -> Comparison:
    """Measure the same over .npy files of one byte per row; the large one is sparse."""
    paths = {rows: folder / f"{rows}.npy" for rows in (FEW, MANY)}
    for rows, path in paths.items():
        np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(rows,))
    return _opening("a .npy file", lambda rows: NPDataset(str(paths[rows])))


def _opening(what: str, source: Callable[[int], Any]) -> Comparison:
    def batch_zero(rows: int) -> float:
        started = time.perf_counter()
        loader = DataLoader(source(rows), batch_size=512, shuffle=True, seed=0, output="numpy")
        with iter(loader) as iterator:
            next(iterator)
            return 1e3 * (time.perf_counter() - started)

    contestants = {f"{rows:,} rows": partial(batch_zero, rows) for rows in (FEW, MANY)}
    return interleave(
        f"opening {what} and taking batch 0",
        "ms",
        contestants,
        reference=f"{FEW:,} rows",
        repeats=REPEATS,
    )


def _microseconds(call: Callable[[], object]) -> Contestant:
    """Return microseconds per call over BATCHES calls."""

    def measure() -> float:
        started = time.perf_counter()
        for _ in range(BATCHES):
            call()
        return 1e6 * (time.perf_counter() - started) / BATCHES

    return measure


def _seconds(script: str) -> float:
    return float(in_new_process(script)["seconds"])
