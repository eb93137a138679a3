"""Rows that every contestant of the gather benchmark delivers, and a digest to tell them apart."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Output = Literal["numpy", "jax"]

SHAPE = (32, 32, 3)


def write_rows(folder: Path, rows: int, seed: int = 0) -> tuple[Path, Path]:
    """Write `rows` images and labels as .npy files; return the two paths."""
    generator = np.random.default_rng(seed)
    image, label = folder / "image.npy", folder / "label.npy"
    np.save(image, generator.integers(0, 256, (rows, *SHAPE), dtype=np.uint8))
    np.save(label, generator.integers(0, 1000, rows, dtype=np.int32))
    return image, label


def epoch_digest(batches: Iterable[tuple[Array, Array]]) -> str:
    """Return one digest of the multiset of (image, label) rows in `batches`, in any order."""
    digests = [
        hashlib.blake2b(image.tobytes() + int(label).to_bytes(8), digest_size=16).digest()
        for images, labels in batches
        for image, label in zip(images, labels, strict=True)
    ]
    return hashlib.blake2b(b"".join(sorted(digests))).hexdigest()
