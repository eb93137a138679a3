"""Epochs over data on the device, as one scan and batch by batch, against Cyreal."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks.environments import interpreter
from benchmarks.harness import Comparison, Contestant, Peer, interleave, reason
from benchmarks.rows import Array

ROWS, SHAPE, BATCH_SIZE = 60_000, (28, 28), 128
BATCHES = 468
# Cyreal takes seconds for each.
CYREAL_BATCHES, CYREAL_JITTED_BATCHES = 1, 20
REPEATS = 3


def run(peers: bool) -> Iterator[Comparison]:
    """Measure the first epoch, later ones, and batches in a Python loop."""
    own = Own()
    contestants: dict[str, dict[str, Contestant]] = {
        "first": {"loaderx": own.first},
        "later": {"loaderx": own.later},
        "batches": {"loaderx": own.batches},
    }
    absent = {}
    with ExitStack() as stack:
        if peers:
            try:
                cyreal = stack.enter_context(
                    Peer(interpreter("cyreal"), "benchmarks.peers.cyreal_scan_worker")
                )
                cyreal.ask("open", rows=ROWS, shape=SHAPE, batch_size=BATCH_SIZE)
            except (OSError, RuntimeError) as error:
                absent["Cyreal"] = reason(error)
            else:
                for name, jitted in (("Cyreal", False), ("Cyreal in jit", True)):
                    contestants["first"][name] = _seconds(cyreal, "first", jitted=jitted)
                    contestants["later"][name] = _seconds(cyreal, "later", jitted=jitted)
                    count = CYREAL_JITTED_BATCHES if jitted else CYREAL_BATCHES
                    contestants["batches"][name] = _microseconds(cyreal, jitted, count)
        what = f"{ROWS} x {SHAPE[0]} x {SHAPE[1]} uint8 in batches of {BATCH_SIZE}"
        for kind, title, unit in (
            ("first", f"scan_epoch of {what}: the first epoch, with compilation", "s"),
            ("later", f"scan_epoch of {what}: later epochs", "s"),
            ("batches", f"a Python loop over {what}", "us/batch"),
        ):
            yield interleave(
                title,
                unit,
                contestants[kind],
                reference="loaderx",
                repeats=REPEATS,
                absent=absent,
            )


class Own:
    """`DeviceLoader` with the interface of the peer."""

    def __init__(self) -> None:
        self.data = numbered_images(ROWS, SHAPE)

    def first(self) -> float:
        """Return the seconds of the first epoch of a new loader."""
        self.loader, self.state = self._make()
        return self.later()

    def later(self) -> float:
        """Return the seconds of one more epoch."""
        import jax
        import jax.numpy as jnp

        began = time.perf_counter()
        answer = self.loader.scan_epoch(_body, jnp.uint32(0), self.state)
        total, self.state, labels = jax.block_until_ready(answer)
        spent = time.perf_counter() - began
        check_epoch(total, labels, self.data)
        return spent

    def batches(self) -> float:
        """Return the microseconds of a batch in a Python loop."""
        import jax

        loader, state = self._make()
        batch, state = jax.block_until_ready(loader.next(state))
        began = time.perf_counter()
        for _ in range(BATCHES):
            batch, state = loader.next(state)
            jax.block_until_ready(batch)
        return 1e6 * (time.perf_counter() - began) / BATCHES

    def _make(self) -> tuple[Any, Any]:
        import jax

        from loaderx import DeviceLoader

        loader = DeviceLoader(self.data, batch_size=BATCH_SIZE, remainder="drop")
        return loader, jax.block_until_ready(loader.init())


def _body(total: Any, batch: Any) -> Any:
    # It reads every pixel: XLA does not gather pixels that are not read.
    return total + batch["image"].sum(dtype=np.uint32), batch["label"]


def _seconds(peer: Peer, do: str, **arguments: object) -> Contestant:
    def measure() -> float:
        return float(peer.ask(do, **arguments)["seconds"])

    return measure


def _microseconds(peer: Peer, jitted: bool, count: int) -> Contestant:
    measure: Callable[[], float] = _seconds(peer, "batches", jitted=jitted, count=count)
    return lambda: 1e6 * measure() / count


def numbered_images(rows: int, shape: Sequence[int]) -> dict[str, Array]:
    """Return images whose pixels identify their row, and the number of the row as label."""
    labels = np.arange(rows, dtype=np.int32)
    pixels = (labels % 251).astype(np.uint8).reshape(rows, *(1 for _ in shape))
    return {"image": np.broadcast_to(pixels, (rows, *shape)).copy(), "label": labels}


def check_epoch(total: Any, labels: Any, data: dict[str, Array]) -> None:
    """Raise if an epoch repeats a row, or if its pixels are not those of its rows."""
    rows = np.asarray(labels).reshape(-1)
    if len(np.unique(rows)) != len(rows) or np.array_equal(rows, np.sort(rows)):
        raise ValueError("the epoch is not a shuffle of its rows.")
    pixels = data["image"][0].size
    if int(total) != int((rows % 251).sum(dtype=np.int64) * pixels) % 2**32:
        raise ValueError("the pixels of the epoch are not those of its rows.")
