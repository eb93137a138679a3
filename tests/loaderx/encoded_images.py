"""Encoded images for tests: files of several sizes, in memory or in a folder."""

import io

import numpy as np
from PIL import Image

import loaderx as lx
from loaderx.sources.byte_rows import ByteRows
from loaderx.sources.encoded.source import EncodedSource

SIZES = ((61, 83), (120, 97), (45, 45), (80, 200), (33, 40))
ROWS = len(SIZES)


def smooth(height, width, seed=0, channels=3):
    """Return an image that JPEG compresses well: waves, and a little noise."""
    rng = np.random.default_rng(seed)
    i, j = np.mgrid[:height, :width]
    waves = [
        np.sin(i / rng.uniform(5, 40) + j / rng.uniform(5, 40) + rng.uniform(0, 6))
        for _ in range(channels)
    ]
    values = 128 + 100 * np.stack(waves, -1) + rng.normal(0, 4, (height, width, channels))
    return np.clip(values, 0, 255).astype(np.uint8)


def encode(pixels, form="JPEG", **options):
    """Return pixels as a file of some format."""
    file = io.BytesIO()
    Image.fromarray(np.squeeze(pixels)).save(file, form, **options)
    return file.getvalue()


class BytesInMemory(ByteRows):
    """Rows of bytes that tests make up."""

    def __init__(self, rows):
        self.rows = list(rows)

    def __len__(self):
        return len(self.rows)

    def fetch(self, rows):
        return [self.rows[row] for row in rows.tolist()]

    def where(self, row):
        return f"made-up file {row}"


def encoded(rows, **options):
    """Return a source of encoded images."""
    return EncodedSource(BytesInMemory(rows), lx.Encoded(**options))


def photographs(sizes=SIZES, form="PNG", **options):
    """Return encoded images of these sizes, and their pixels."""
    pixels = [smooth(*size, seed=number) for number, size in enumerate(sizes)]
    return [encode(each, form, **options) for each in pixels], pixels


def labels_of(pixels):
    """Return a mask of labels 0 to 5 for an image."""
    return (pixels[..., 0] // 51).astype(np.uint8)


def loader(data, transforms, **options):
    return lx.DataLoader(
        data, batch_size=options.pop("batch_size", ROWS), seed=5, output="numpy", transforms=transforms, **options
    )  # fmt: skip


def from_pixels(pixels, transforms, step, **others):
    """Return a batch as a loader makes it of images of one size, image by image: there is one loader for each."""
    found = None
    for place, row in enumerate(loader({"image": np.zeros((ROWS, 1, 1, 3))}, None).indices(step)):
        own = {name: np.broadcast_to(each[row], (ROWS, *each[row].shape)) for name, each in others.items()}  # fmt: skip
        whole = np.broadcast_to(pixels[row], (ROWS, *pixels[row].shape))
        batch = loader({"image": whole, **own}, transforms).batch(step)
        found = found or {name: np.empty_like(array) for name, array in batch.items()}
        for name, array in batch.items():
            found[name][place] = array[place]
    return found
