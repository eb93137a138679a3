"""Photographs of the JPEG benchmarks: their pixels, their files, and what is known of every one of them."""

import functools
import io
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.images import traits

Pixels = npt.NDArray[np.uint8]

# Windows of the photographs are this many times as large as the images that are made of them, on each axis.
SHRINKING = 1.1, 1.5
EXPOSURE = 0.65, 1.35
# Of so many images one is upright, so that sizes differ.
UPRIGHT = 4
# The two photographs of scikit-learn, and how often each is seen: a building, and a flower before a plain ground.
BUILDING, FLOWER = 0, 1
BUILDINGS = 0.85
WRITERS = 2
# Of images that are made smaller, by `loaderx convert --jpeg 90` and by FFCV's default.
CONVERTED_QUALITY = 90


@functools.cache
def _originals() -> list[Pixels]:
    from sklearn.datasets import load_sample_images

    return [np.ascontiguousarray(image) for image in load_sample_images().images]


def photograph(row: int, height: int, width: int) -> Pixels:
    """Return the pixels of one image, which are the same whenever they are made.

    It shows a window of a plane that is tiled with mirrored copies of a real photograph, a little smaller than it is
    there. So its details are those of photographs at any size, and decoding it takes as long.
    """
    from PIL import Image

    generator = np.random.default_rng((0, row))
    if row % UPRIGHT == UPRIGHT - 1:
        height, width = width, height
    original = _originals()[BUILDING if generator.random() < BUILDINGS else FLOWER]
    shrinking = generator.uniform(*SHRINKING)
    places = []
    for axis, size in enumerate((height, width)):
        extent = original.shape[axis]
        seen = int(generator.integers(2 * extent)) + np.arange(round(size * shrinking))
        place = seen % (2 * extent)
        places.append(np.minimum(place, 2 * extent - 1 - place))
    window = Image.fromarray(original[np.ix_(*places)])
    small = np.asarray(window.resize((width, height), Image.Resampling.LANCZOS), np.float32)
    exposed: Pixels = np.clip(small * generator.uniform(*EXPOSURE), 0, 255).astype(np.uint8)
    return exposed


def write_photographs(folder: Path, rows: int, height: int, width: int, quality: int) -> None:
    """Write JPEG files, a tar of them, their labels, of which the k-th is k, and the traits of their pixels.

    A second folder has the same images with a restart marker after every row of blocks.
    """
    plain, marked = folder / "images", folder / "marked"
    plain.mkdir()
    marked.mkdir()

    def write(row: int) -> npt.NDArray[np.float64]:
        pixels = photograph(row, height, width)
        (plain / name_of(row)).write_bytes(encoded(pixels, quality))
        (marked / name_of(row)).write_bytes(encoded(pixels, quality, restart_marker_rows=1))
        return traits(pixels[None])[:, 0]

    with ThreadPoolExecutor(WRITERS) as pool:
        found = list(pool.map(write, range(rows)))
    np.save(folder / "traits.npy", np.stack(found, axis=1))
    np.save(folder / "label.npy", np.arange(rows, dtype=np.int32))
    with tarfile.open(folder / "images.tar", "w") as tar:
        for row in range(rows):
            name = name_of(row)
            tar.add(plain / name, name)
            label = tarfile.TarInfo(str(Path(name).with_suffix(".cls")))
            text = str(row).encode()
            label.size = len(text)
            tar.addfile(label, io.BytesIO(text))


def encoded(pixels: Pixels, quality: int, **options: Any) -> bytes:
    """Return a JPEG file with colours of half the size on both axes, as cameras and most programs write them."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality, subsampling="4:2:0", **options)
    return file.getvalue()


def name_of(row: int) -> str:
    """Return the name of the file of a row; sorted by name, they are in the order of the rows."""
    return f"{row:06}.jpg"


def files_of(folder: Path) -> list[str]:
    """Return the paths of all files, in the order of the rows."""
    return sorted(str(path) for path in (folder / "images").iterdir())


def convert(folder: Path, longer: int | None) -> Path:
    """Write the images as one file of loaderx, as `loaderx convert --jpeg` does, and return its path.

    Unless they are made smaller, to `longer` pixels on the longer side, their pixels remain the same.
    """
    # The environments of the peers import this module, and have no loaderx.
    import loaderx as lx

    target = folder / f"{longer or 'whole'}.array_record"
    if not target.exists():
        fields = {"data": lx.Encoded(), "label": "int32"}
        records = _records(folder, longer)
        lx.write_array_record(target, records, fields=fields, compression=None, progress=False)
    return target


def _records(folder: Path, longer: int | None) -> Iterator[dict[str, Any]]:
    from PIL import Image

    for row, path in enumerate(sorted((folder / "marked").iterdir())):
        data = path.read_bytes()
        if longer is not None:
            with Image.open(io.BytesIO(data)) as image:
                image.thumbnail((longer, longer), Image.Resampling.LANCZOS)
                data = encoded(np.asarray(image), CONVERTED_QUALITY, restart_marker_rows=1)
        yield {"data": data, "label": row}
