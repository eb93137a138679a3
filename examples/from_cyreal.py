"""From Cyreal to loaderx: an epoch as one compiled scan, over data on the device or on the disk.

The Cyreal half runs where Cyreal is installed (pip install cyreal). Without shuffling both give the same batches, and
the same mask at the end of an epoch.
"""

import argparse
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import loaderx as lx
from loaderx.on_device.loader import DeviceState

Arrays = dict[str, Any]
Totals = tuple[jax.Array, jax.Array]


def update(total: jax.Array, batch: dict[str, jax.Array], mask: jax.Array) -> Totals:
    """Add up the ink of an epoch in place of a training step; return also the images of the batch that count."""
    images = jnp.where(mask[:, None, None], batch["image"], 0)
    return total + jnp.sum(images, dtype=jnp.int32), images


def with_cyreal(data: Arrays, batch_size: int, ordering: str) -> Totals:
    """Scan an epoch with Cyreal, whose loader has a state that is passed in and returned."""
    from cyreal.loader import DataLoader
    from cyreal.sources import ArraySource  # called ArraySampleSource at first
    from cyreal.transforms import BatchTransform, DevicePutTransform

    batches = BatchTransform(batch_size=batch_size, pad_last_batch=True)
    loader = DataLoader([ArraySource(data, ordering=ordering), batches, DevicePutTransform()])
    state = loader.init_state(jax.random.key(0))

    @jax.jit
    def train_epoch(total: jax.Array, state: Any) -> Any:
        state, total, images = loader.scan_epoch(state, total, update)
        return total, state, images

    total, _, images = train_epoch(jnp.int32(0), state)
    return total, images


def log(epoch: jax.Array, total: jax.Array) -> None:
    """Print from the compiled program, as a HostCallbackTransform would: any function of the host works."""
    print(f"  from within: {total} of ink in epoch {epoch}")


def with_loaderx(data: Arrays, batch_size: int, shuffle: bool) -> Totals:
    """Scan an epoch. The mask is a field of the batch, and the data an argument of the jitted function, not a constant.

    Cyreal's default, a last batch that continues into the next epoch, is remainder="straddle", the default here too.
    """
    loader = lx.DeviceLoader(data, batch_size=batch_size, shuffle=shuffle, remainder="pad")

    def body(total: jax.Array, batch: dict[str, jax.Array]) -> Totals:
        return update(total, batch, batch["mask"])

    @jax.jit
    def train_epoch(total: jax.Array, state: DeviceState, data: Arrays) -> Any:
        epoch = state.epoch
        total, state, images = loader.scan_epoch(body, total, state, data=data)
        jax.debug.callback(log, epoch, total)
        return total, state, images

    total, _, images = train_epoch(jnp.int32(0), loader.init(), loader.data)
    jax.effects_barrier()
    return total, images


def from_disk(data: Arrays, batch_size: int, folder: Path) -> Totals:
    """Read mapped files in place of make_disk_source: a compiled loop, and threads that keep batches ready."""
    for name, array in data.items():
        np.save(folder / f"{name}.npy", array)
    fields = {name: lx.NPDataset(folder / f"{name}.npy") for name in data}
    # Endless, and of one shape: a batch continues into the next epoch.
    with lx.DataLoader(fields, batch_size=batch_size).as_callback() as stream:

        @jax.jit
        def ten_steps(total: jax.Array) -> Totals:
            def body(total: jax.Array, _: None) -> Totals:
                return update(total, stream(), jnp.ones(batch_size, bool))

            return jax.lax.scan(body, total, length=10)

        total, images = jax.block_until_ready(ten_steps(jnp.int32(0)))
    return total, images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=128)
    options = parser.parse_args()

    digits = load_digits()
    data = {
        "image": digits.images[: options.rows].astype(np.uint8),
        "label": digits.target[: options.rows].astype(np.int32),
    }
    total, images = with_loaderx(data, options.batch_size, shuffle=False)
    print(f"loaderx: {len(images)} steps, {total} of ink")
    assert total == data["image"].sum()
    if importlib.util.find_spec("cyreal") is None:
        print("cyreal is not installed: only the part for loaderx ran")
    else:
        theirs, their_images = with_cyreal(data, options.batch_size, "sequential")
        assert np.array_equal(images, their_images)
        print(f"cyreal:  {len(their_images)} steps, {theirs} of ink, equal in every image")

    _, shuffled = with_loaderx(data, options.batch_size, shuffle=True)
    before, after = (
        sorted(np.reshape(batches, (-1, 64)).tolist()) for batches in (images, shuffled)
    )
    assert before == after
    print("shuffled: every row once")
    with tempfile.TemporaryDirectory() as folder:
        total, images = from_disk(data, options.batch_size, Path(folder))
    print(f"from disk, in a scan: {len(images)} steps, {total} of ink")


if __name__ == "__main__":
    main()
