"""From Loadax to loaderx: the same batches, written with both.

Loadax chains a builder: datasets wrap datasets, a batcher makes a batch of a list of items. In loaderx one call
receives the rows and the transforms. The Loadax half runs where Loadax is installed (pip install loadax).
"""

import argparse
import importlib.util
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

import loaderx as lx

Numbers = NDArray[np.int32]


def with_loadax(numbers: list[int], batch_size: int) -> list[jax.Array]:
    """Return items of a list times two, one pass in their order, as jax.Arrays."""
    import jax.numpy as jnp
    from loadax import Batcher, DataloaderBuilder, InMemoryDataset, MappedDataset

    dataset = MappedDataset(InMemoryDataset(numbers), lambda item: item * 2)
    builder = DataloaderBuilder(Batcher(jnp.stack)).batch_size(batch_size)
    return list(builder.workers(2).prefetch(3).build(dataset))


@lx.transform
def double(x: Any) -> None:
    """Double an item, like MappedDataset's function, but compiled; a number is an array of one element."""
    x[0] *= 2


def with_loaderx(numbers: list[int], batch_size: int, **options: Any) -> list[jax.Array]:
    """Return the same batches; a batcher is not needed, because rows are written into the batch."""
    loader = lx.DataLoader(
        numbers,
        batch_size=batch_size,
        shuffle=False,
        num_epochs=1,
        transforms=[double()],
        workers=2,
        prefetch=3,
        **options,
    )
    return list(loader)


def with_a_batcher(numbers: list[int], batch_size: int) -> list[jax.Array]:
    """Return sums of batches: a batcher that computes something is the `transform` of a loader."""
    return with_loaderx(numbers, batch_size, transform=lambda batch: batch.sum(keepdims=True))


def two_walks(numbers: list[int], batch_size: int) -> tuple[Numbers, Numbers]:
    """Iterate twice: a loader is a definition in both libraries, and every `iter` advances on its own."""
    loader = lx.DataLoader(numbers, batch_size=batch_size, shuffle=False)
    with iter(loader) as fast, iter(loader) as slow:
        next(fast)
        return np.asarray(next(fast)), np.asarray(next(slow))


def shuffled(numbers: list[int], batch_size: int, seed: int) -> tuple[Numbers, Numbers]:
    """Return shuffled epochs: each has its own order, given by `seed`; ShuffledDataset(dataset, key) has one order."""
    loader = lx.DataLoader(numbers, batch_size=batch_size, seed=seed, num_epochs=2, output="numpy")
    rows = np.concatenate(list(loader))
    return rows[: len(numbers)], rows[len(numbers) :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=10, help="number of items")
    parser.add_argument("--batch-size", type=int, default=4)
    options = parser.parse_args()

    numbers = list(range(1, options.items + 1))
    ours = with_loaderx(numbers, options.batch_size)
    print("loaderx:", [batch.tolist() for batch in ours])
    if importlib.util.find_spec("loadax") is None:
        print("loadax is not installed: only the part for loaderx ran")
    else:
        theirs = with_loadax(numbers, options.batch_size)
        print("loadax: ", [batch.tolist() for batch in theirs])
        assert len(ours) == len(theirs)
        assert all(map(np.array_equal, ours, theirs))
        print(f"{len(ours)} batches, equal in both")

    sums = with_a_batcher(numbers, options.batch_size)
    print("sums of the batches:", [int(batch[0]) for batch in sums])
    second, first = two_walks(numbers, options.batch_size)
    print(f"two iterators: one is at {second.tolist()}, the other at {first.tolist()}")
    for epoch, rows in enumerate(shuffled(numbers, options.batch_size, seed=0)):
        assert sorted(rows) == numbers
        print(f"epoch {epoch}, shuffled: {rows.tolist()}")


if __name__ == "__main__":
    main()
