"""Batches laid out over 8 CPU devices, against one; and the cost of resuming at a distant step.

The number of devices is fixed when JAX starts, so all of this runs in a process of its own.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.harness import ROOT, Comparison, Contestant, interleave

DEVICES = 8
ROWS = 4096
BATCH_SIZE = 256
BATCHES = 200
REPEATS = 15
FAR = 10**9


def run() -> Iterator[Comparison]:
    """Run both in a process of their own, and return their figures."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sharded"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the measured process failed:\n{done.stderr[-2000:]}")
    for facts in json.loads(done.stdout.splitlines()[-1]):
        yield Comparison(**facts)


def hand_off(stack: ExitStack, row: tuple[int, ...], dtype: str) -> Comparison:
    """Measure microseconds per batch, until it has arrived on all devices."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    import loaderx as lx

    rows = np.arange(ROWS * int(np.prod(row)), dtype=dtype).reshape(ROWS, *row)
    mesh = jax.make_mesh((DEVICES,), ("data",))
    spread = NamedSharding(mesh, PartitionSpec("data"))

    def microseconds(sharding: Any) -> Contestant:
        loader = lx.DataLoader(rows, batch_size=BATCH_SIZE, sharding=sharding)
        batch = loader.batch(3)
        if not np.array_equal(batch, rows[loader.indices(3)]):
            raise ValueError("a batch does not hold its rows.")
        iterator = stack.enter_context(iter(loader))

        def measure() -> float:
            for batch in islice(iterator, 8):
                batch.block_until_ready()
            began = time.perf_counter()
            for batch in islice(iterator, BATCHES):
                batch.block_until_ready()
            return 1e6 * (time.perf_counter() - began) / BATCHES

        return measure

    size = int(np.prod(row)) * np.dtype(dtype).itemsize
    return interleave(
        f"batches of {BATCH_SIZE} rows of {size} bytes, {DEVICES} CPU devices",
        "us/batch",
        {"one device": microseconds(None), f"over {DEVICES} devices": microseconds(spread)},
        reference="one device",
        repeats=REPEATS,
    )


def far_step() -> Comparison:
    """Measure milliseconds from `set_state` to the next batch."""
    import loaderx as lx

    loader = lx.DataLoader(np.arange(10**6, dtype=np.int32), batch_size=BATCH_SIZE)
    with iter(loader) as iterator:
        state = iterator.get_state()

    def resumed(step: int) -> Contestant:
        there = {**state, "position": step * BATCH_SIZE, "step": step}
        expected = loader.batch(step)

        def measure() -> float:
            with iter(loader) as iterator:
                began = time.perf_counter()
                iterator.set_state(there)
                batch = next(iterator)
                spent = time.perf_counter() - began
            if not np.array_equal(batch, expected):
                raise ValueError(f"not the batch of step {step}.")
            return 1e3 * spent

        return measure

    contestants = {f"step {step:,}": resumed(step) for step in (0, FAR)}
    return interleave(
        "set_state and the next batch", "ms", contestants, reference="step 0", repeats=REPEATS
    )


def main() -> int:
    """Measure, and print all figures as one line of JSON."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    with ExitStack() as stack:
        measured = [hand_off(stack, (32, 32, 3), "uint8"), hand_off(stack, (), "int32"), far_step()]
    facts = [
        {
            "title": comparison.title,
            "unit": comparison.unit,
            "reference": comparison.reference,
            "samples": {name: list(own) for name, own in comparison.samples.items()},
        }
        for comparison in measured
    ]
    print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
