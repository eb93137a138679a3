"""From Grain to loaderx: a data source, a sampler and operations become one loader.

The Grain half runs where Grain is installed (pip install grain). Both shuffle, each in an order of its own; without
shuffling they give the same batches.
"""

import argparse
import importlib.util
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import loaderx as lx
from loaderx.transforms import ToFloat

Row = dict[str, Any]


class Source:
    """Data source with the interface of grain.RandomAccessDataSource. loaderx accepts it, too."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> Row:
        image = np.full((32, 32, 3), row % 255, np.uint8)
        return {"image": image, "label": np.int32(row % 10)}


def with_grain(source: Source, batch_size: int, shuffle: bool, epochs: int) -> Any:
    """Return Grain's loader: DataSource, Sampler and Operations."""
    import grain.python as grain

    class ImageToFloat(grain.MapTransform):  # type: ignore[misc, unused-ignore]
        def map(self, element: Row) -> Row:
            image = element["image"].astype(np.float32) / np.float32(255)
            return {**element, "image": image}

    return grain.DataLoader(
        data_source=source,
        sampler=grain.IndexSampler(
            num_records=len(source),
            shard_options=grain.NoSharding(),
            shuffle=shuffle,
            num_epochs=epochs,
            seed=42,
        ),
        operations=[ImageToFloat(), grain.Batch(batch_size, drop_remainder=True)],
        worker_count=0,
    )


def with_loaderx(
    source: Source | Row,
    batch_size: int,
    shuffle: bool,
    epochs: int | None,
    operations: Sequence[Any] = (),
) -> lx.DataLoader[dict[str, jax.Array]]:
    """Return the loader: sampler and batching are options, operations are compiled, threads replace workers."""
    return lx.DataLoader(
        source,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=42,
        num_epochs=epochs,
        remainder="drop",
        transforms={"image": [ToFloat(), *operations]},
    )


@lx.transform
def random_scale(x: Any, rng: Any, low: float, high: float) -> None:
    """Scale at random, as a grain.RandomMapTransform; `rng` belongs to the sample, as in Grain."""
    factor = np.float32(rng.uniform(low, high))
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            for c in range(x.shape[2]):
                x[i, j, c] *= factor


def arrays_of(source: Source) -> Row:
    """Return whole arrays, which compiled code reads faster, as it does .npy and ArrayRecord files."""
    rows = [source[row] for row in range(len(source))]
    return {name: np.stack([row[name] for row in rows]) for name in ("image", "label")}


def equal(ours: Row, theirs: Row, tolerance: float = 0.0) -> bool:
    """Compare with a tolerance: ToFloat multiplies by 1/255, whose last bit differs from a division by 255."""
    close = np.allclose(ours["image"], theirs["image"], rtol=tolerance, atol=0)
    return close and np.array_equal(ours["label"], theirs["label"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    source, size = Source(options.rows), options.batch_size

    ours = list(with_loaderx(source, size, shuffle=False, epochs=1))
    print(f"loaderx: {len(ours)} batches, image {ours[0]['image'].shape} {ours[0]['image'].dtype}")
    if importlib.util.find_spec("grain") is None:
        print("grain is not installed: only the part for loaderx ran")
    else:
        theirs = list(with_grain(source, size, shuffle=False, epochs=1))
        assert all(equal(*pair, tolerance=2e-7) for pair in zip(ours, theirs, strict=True))
        print(f"grain:   {len(theirs)} batches, equal in both but for the last bit of a division")

    files = with_loaderx(arrays_of(source), size, shuffle=True, epochs=None)
    objects = with_loaderx(source, size, shuffle=True, epochs=None)
    assert all(map(equal, itertools.islice(objects, 20), itertools.islice(files, 20)))
    print("shuffled without end: Python rows and arrays give the same 20 batches")

    scale = [random_scale(low=0.8, high=1.2)]
    scaled = with_loaderx(arrays_of(source), size, shuffle=True, epochs=None, operations=scale)
    before, after = (np.asarray(loader.batch(0)["image"][:, 0, 0, 0]) for loader in (files, scaled))
    factors = after[before > 0] / before[before > 0]
    print(f"random_scale: factors from {factors.min():.2f} to {factors.max():.2f}")

    # Grain's iterator has get_state and set_state as well. This state is a dict of a few numbers.
    with iter(scaled) as batches:
        next(batches)
        state = batches.get_state()
        second = next(batches)
    with iter(scaled) as batches:
        batches.set_state(state)
        assert equal(next(batches), second)
    print(f"resumed at step {state['step']}: the same batch again")


if __name__ == "__main__":
    main()
