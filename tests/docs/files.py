"""Files that the documentation reads, by the names it uses: a page that names one of them finds it in its folder."""

import re

import numpy as np

IMAGES = np.random.default_rng(0).integers(0, 256, (300, 32, 32, 3), np.uint8)
LABELS = np.arange(300, dtype=np.int32) % 10

ARRAYS = {
    "train_data.npy": IMAGES,
    "train_label.npy": LABELS,
    "folder/data.npy": IMAGES,
    "folder/label.npy": LABELS,
    "x.npy": IMAGES,
    "y.npy": LABELS,
    "mask.npy": IMAGES[..., 0] // 128,
}
TEXTS = {
    # For `loaderx bench train.py:loader` and its like.
    "train.py": """import loaderx as lx
from loaderx import transforms as T

loader = lx.DataLoader(
    {"image": lx.NPDataset("train_data.npy"), "label": lx.NPDataset("train_label.npy")},
    batch_size=64,
    transforms={"image": [T.RandomCrop(32, pad=4), T.RandomFlip(), T.ToFloat()]},
)
""",
}


def named(text):
    """Return the names of the files above that a text names, and of those that these name."""
    texts = [text, *(content for name, content in TEXTS.items() if _names(text, name))]
    return [name for name in (*ARRAYS, *TEXTS) if any(_names(text, name) for text in texts)]


def _names(text, name):
    # The folder and the file may be two arguments.
    return all(re.search(rf"(?<![\w.]){re.escape(part)}(?!\w)", text) for part in name.split("/"))


def write(text, folder):
    """Write the files that a text names."""
    for name in named(text):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if name in ARRAYS:
            np.save(path, ARRAYS[name])
        else:
            path.write_text(TEXTS[name], encoding="utf-8")
