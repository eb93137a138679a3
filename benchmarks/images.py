"""Images of the chain benchmarks, and the checks of an epoch of a chain by any contestant."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Images = npt.NDArray[Any]

# Of pixels from 0 to 1.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
PAD = 4
CROPPED = 224

CHUNK = 256
# Two epochs draw different crops: their means and standard deviations differ by less than this.
TOLERANCE = 0.03
# Libraries change colours differently, most of all the hue.
COLOURED_TOLERANCE = 0.2
# Crops of photographs differ from each other, and libraries shrink them by different filters.
PHOTOGRAPHS_TOLERANCE = 0.15
# A correlation of rows that have nothing to do with each other is less than so many of its standard deviations.
DEVIATIONS = 4


def write_images(folder: Path, rows: int, size: int, seed: int = 0) -> tuple[Path, Path]:
    """Write square RGB images and labels, the label being the row; return the two paths.

    The images are smooth, so that ways of interpolating agree, and each has a brightness of its own.
    """
    generator = np.random.default_rng(seed)
    image, label = folder / f"image{size}.npy", folder / f"label{size}.npy"
    np.save(label, np.arange(rows, dtype=np.int32))
    shape = (rows, size, size, 3)
    target = np.lib.format.open_memmap(image, mode="w+", dtype=np.uint8, shape=shape)
    knots = np.linspace(0, 4, size)
    weights = np.maximum(0, 1 - np.abs(knots[:, None] - np.arange(5))).astype(np.float32)
    for start in range(0, rows, CHUNK):
        part = target[start : start + CHUNK]
        field = generator.normal(0, 25, (len(part), 5, 5, 3)).astype(np.float32)
        field += generator.uniform(60, 190, (len(part), 1, 1, 1)).astype(np.float32)
        smooth = np.einsum("ia,nabc,jb->nijc", weights, field, weights, optimize=True)
        part[...] = np.clip(smooth, 0, 255)
    target.flush()
    return image, label


def epoch_summary(batches: Iterable[tuple[Images, Images]], expected: Images) -> dict[str, Any]:
    """Summarise one epoch of (images, labels), and its similarity to the rows, whose traits are `expected`."""
    labels, of_samples, moments = [], [], []
    shape: tuple[int, ...] = ()
    dtype = ""
    for samples, numbers in batches:
        shape, dtype = samples.shape[1:], str(samples.dtype)
        labels.append(np.array(numbers).reshape(-1))
        for start in range(0, len(samples), CHUNK):
            part = np.asarray(samples[start : start + CHUNK], np.float32)
            of_samples.append(traits(part))
            axes = (0, 1, 2)
            sums = part.sum(axes, dtype=np.float64), np.square(part).sum(axes, dtype=np.float64)
            moments.append(np.stack(sums))
    found = np.concatenate(labels)
    rows = expected.shape[1]
    total = np.sum(moments, axis=0) / (len(found) * shape[0] * shape[1])
    light, lean, tint = np.concatenate(of_samples, axis=1)
    row_light, row_lean, row_tint = expected[:, found]
    return {
        "shape": list(shape),
        "dtype": dtype,
        "every row once": bool(np.array_equal(np.sort(found), np.arange(rows))),
        "mean": total[0].tolist(),
        "std": np.sqrt(total[1] - total[0] ** 2).tolist(),
        "likeness": float(np.corrcoef(light, row_light)[0, 1]),
        "rows": rows,
        "handedness": float(np.corrcoef(lean, row_lean)[0, 1]),
        "tint": float(np.corrcoef(tint, row_tint)[0, 1]),
    }


def traits_of_rows(image: Path) -> Images:
    """Return the traits of all rows of a .npy file."""
    rows = np.load(image, mmap_mode="r")
    parts = [traits(rows[start : start + CHUNK]) for start in range(0, len(rows), CHUNK)]
    return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class Limits:
    """Limits for the differences between two epochs of one chain."""

    moments: float = TOLERANCE  # of means and standard deviations
    likeness: float = 0.8  # least correlation of samples and their rows
    handedness: float = 0.12  # half of the images are mirrored
    spread: float = 1.0  # of that correlation by chance, relative to independent rows
    tint: float = 0.2  # least correlation of the tints of samples and their rows


# Colours are changed, so that the brightness of a sample says less about its row.
COLOURED = Limits(COLOURED_TOLERANCE, likeness=0.2, tint=-1)
# A crop of a photograph may be its sky or its ground.
# Windows of the same photograph are alike. [Standard deviation of the correlation: 0.115 for 200 rows, 0.058 for 1,000]
OF_PHOTOGRAPHS = Limits(PHOTOGRAPHS_TOLERANCE, likeness=0.4, spread=1.6)


def check_summary(
    summary: dict[str, Any], expected: dict[str, Any], limits: Limits = Limits()
) -> None:
    """Raise if the epoch of a contestant is not that of the same chain over the same rows."""
    for fact in ("shape", "dtype", "every row once"):
        if summary[fact] != expected[fact]:
            raise ValueError(f"{fact} is {summary[fact]}, not {expected[fact]}")
    for fact in ("mean", "std"):
        if not np.allclose(summary[fact], expected[fact], rtol=0, atol=limits.moments):
            raise ValueError(f"{fact} is {summary[fact]}, not about {expected[fact]}")
    if summary["likeness"] < limits.likeness:
        raise ValueError(f"images and labels do not match: correlation {summary['likeness']:.2f}")
    if summary["tint"] < limits.tint:
        raise ValueError(f"red and blue are exchanged: correlation {summary['tint']:.2f}")
    # The lighter side of a sample then says nothing about the row. A correlation of few rows is less exact.
    handedness = max(limits.handedness, limits.spread * DEVIATIONS / np.sqrt(summary["rows"]))
    if abs(summary["handedness"]) > handedness:
        raise ValueError(f"not half are mirrored: correlation {summary['handedness']:.2f}")


def normalised(pixels: Images) -> npt.NDArray[np.float64]:
    """Return (pixel / 255 - MEAN) / STD in float64."""
    return (np.asarray(pixels, np.float64) / 255 - MEAN) / STD


def traits(images: Images) -> Images:
    """Return for each image the mean, how much lighter its left half is than its right one, and red less blue."""
    half = images.shape[2] // 2
    left = images[:, :, :half].mean(axis=(1, 2, 3), dtype=np.float64)
    right = images[:, :, half:].mean(axis=(1, 2, 3), dtype=np.float64)
    red, blue = (images[..., channel].mean(axis=(1, 2), dtype=np.float64) for channel in (0, 2))
    return np.stack([(left + right) / 2, left - right, red - blue])
