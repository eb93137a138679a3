"""From torch.utils.data to loaderx: a Dataset with augmentation becomes files and compiled ops.

The torch half runs where PyTorch is installed. Without shuffling both give the same batches, bit for bit.
"""

import argparse
import importlib.util
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import loaderx as lx
from loaderx.transforms import Normalize, RandomCrop

MEAN, STD = 0.3, 0.4


class Digits:
    """Map-style torch Dataset. It needs nothing of torch, so loaderx accepts it, too."""

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int32]) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[NDArray[np.float32], np.int32]:
        image = self.images[row].astype(np.float32) / np.float32(255)
        return (image - np.float32(MEAN)) / np.float32(STD), self.labels[row]


def with_torch(dataset: Any, batch_size: int) -> Any:
    """Return batches of tensors, made of rows from a Python object one by one."""
    from torch.utils.data import DataLoader

    return DataLoader(dataset, batch_size=batch_size, shuffle=False, num_workers=0)


def with_the_same_dataset(dataset: Digits, batch_size: int) -> lx.DataLoader:
    """Return the loader of the first step: only the loader changes. Rows are still made in Python, under the GIL."""
    return lx.DataLoader(dataset, batch_size=batch_size, shuffle=False, num_epochs=1)


def with_compiled_ops(folder: Path, batch_size: int) -> lx.DataLoader[tuple[jax.Array, ...]]:
    """Return the loader of the second step: the data is in files, and the work of __getitem__ is compiled."""
    return lx.DataLoader(
        (lx.NPDataset(folder / "images.npy"), lx.NPDataset(folder / "labels.npy")),
        batch_size=batch_size,
        shuffle=False,
        num_epochs=1,
        transforms={"0": [Normalize(MEAN, STD)]},  # fields of a tuple are named by their index
    )


def for_training(folder: Path, batch_size: int) -> lx.DataLoader[dict[str, jax.Array]]:
    """Return the loader of the third step: shuffled, random crops, weighted sampling; endless, so `islice` it."""
    labels = np.load(folder / "labels.npy")
    return lx.DataLoader(
        {"image": lx.NPDataset(folder / "images.npy"), "label": labels},
        batch_size=batch_size,
        seed=0,  # replaces manual_seed, generator= and worker_init_fn=
        weights=1 / np.bincount(labels)[labels],
        transforms={"image": [RandomCrop((8, 8), pad=1), Normalize(MEAN, STD)]},
    )


def difference(left: Iterable[Any], right: Iterable[Any]) -> float:
    """Return the largest difference of images, after checking that all labels are equal."""
    pairs = list(zip(left, right, strict=True))
    assert all(np.array_equal(a[1], b[1]) for a, b in pairs)
    return max(float(np.abs(np.asarray(a[0]) - np.asarray(b[0])).max()) for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()

    digits = load_digits()
    images = (digits.images[: options.rows, ..., np.newaxis] * 15).astype(np.uint8)
    labels = digits.target[: options.rows].astype(np.int32)
    dataset = Digits(images, labels)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "images.npy", images)
        np.save(folder / "labels.npy", labels)

        first = list(with_the_same_dataset(dataset, options.batch_size))
        second = list(with_compiled_ops(folder, options.batch_size))
        print(f"loaderx: {len(first)} batches of a torch-style Dataset")
        print(
            f"compiled ops differ from its __getitem__ by at most {difference(first, second):.1e}"
        )
        if importlib.util.find_spec("torch") is None:
            print("torch is not installed: only the part for loaderx ran")
        else:
            theirs = list(with_torch(dataset, options.batch_size))
            assert difference(first, theirs) == 0
            print(f"torch:   {len(theirs)} batches, equal in both")

        loader = for_training(folder, options.batch_size)
        drawn = np.concatenate([np.asarray(loader.batch(step)["label"]) for step in range(50)])
        counts = np.bincount(drawn, minlength=10) / len(drawn)
        print(f"weighted: every class is {counts.min():.1%} to {counts.max():.1%} of the samples")


if __name__ == "__main__":
    main()
