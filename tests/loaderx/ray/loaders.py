"""Loaders, ops and hooks of the tests, in a module that workers import."""

import hashlib
import time

import numpy as np

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it

ROWS = 90
IMAGES = np.random.default_rng(0).integers(0, 256, (ROWS, 20, 18, 3), np.uint8)
LABELS = np.arange(ROWS)
CHAIN = [T.RandomResizedCrop(12), T.RandomFlip(), T.ToFloat()]


@lx.transform
def brighten(x, rng, amount):
    gain = 1 + rng.uniform(-amount, amount)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            for c in range(x.shape[2]):
                x[i, j, c] *= gain


def negative(x):
    """Python code that is called per sample."""
    return 255 - x


def hook(batch):
    """Return what a user's hook may: other fields, and other objects than arrays."""
    return {**batch, "count": len(batch["label"]), "double": batch["label"] * 2, "name": "batch"}


def in_worker():
    """Tell whether this process is a worker of Ray."""
    import ray

    return ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE


def fields(images=IMAGES):
    return {"image": images, "label": LABELS}


OPTIONS = {
    "plain": {},
    "chain": {"transforms": {"image": CHAIN}},
    "own op": {"transforms": {"image": [T.ToFloat(), brighten(amount=0.3)]}},
    "python": {"transforms": {"image": [negative, T.RandomFlip()]}},
    "hook": {"transforms": {"image": CHAIN}, "transform": hook},
    "padded": {"transforms": {"image": CHAIN}, "remainder": "pad", "num_epochs": 2},
    "padded hook": {"remainder": "pad", "num_epochs": 2, "transform": hook},
    "keep": {"transforms": {"image": CHAIN}, "remainder": "keep", "num_epochs": 2},
    "mixup": {
        "transforms": {
            "image": [T.ToFloat()],
            "label": [T.OneHot(ROWS)],
            ("image", "label"): [T.MixUp(0.4)],
        }
    },
    "bfloat16": {"transforms": {"image": [T.RandomFlip(), T.ToFloat(dtype="bfloat16")]}},
    "weights": {"weights": np.arange(ROWS) % 7},
    "in order": {"shuffle": False},
    "views": {"transforms": {"image": [T.Views(2, CHAIN)]}},
}


def make(name="chain", output="numpy", batch_size=32, images=IMAGES, **more):
    return lx.DataLoader(
        fields(images),
        batch_size=batch_size,
        seed=3,
        output=output,
        **{"workers": 2, **OPTIONS[name], **more},
    )


def digest(batch):
    """Return a digest of a batch of any structure."""
    found = hashlib.sha256()

    def put(value):
        if isinstance(value, dict):
            for name in sorted(value):
                found.update(name.encode())
                put(value[name])
        else:
            array = np.asarray(value)
            found.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())

    put(batch)
    return found.hexdigest()[:16]


def digests(loader, steps):
    with iter(loader) as it:
        return [digest(next(it)) for _ in range(steps)]


class Failing:
    """Op that fails at one row, in the way of a user's mistake."""

    def __init__(self, row):
        self.row = row

    def __call__(self, x):
        if x == self.row:
            raise KeyError(f"row {self.row} is bad")
        return x


class OutOfMemory:
    """Op that needs too much memory, on any worker."""

    def __call__(self, x):
        if in_worker() and x == 7:
            raise MemoryError("no memory left")
        return x


class UnpicklableError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def raise_unpicklable(x):
    if x == 5:
        raise UnpicklableError("this", "that")
    return x


def make_differing():
    """Make a loader whose op has another parameter on workers."""
    return make("own op", transforms={"image": [T.ToFloat(), brighten(amount=0.3 + in_worker())]})


class make_differing_on:  # noqa: N801 - called like a function
    """Make such a loader on one node only."""

    def __init__(self, node):
        self.node = node

    def __call__(self):
        import ray

        there = in_worker() and ray.get_runtime_context().get_node_id() == self.node
        return make_differing() if there else make("own op")


def make_failing():
    if in_worker():
        raise FileNotFoundError("the data is not on this node")
    return make()


def slow(x):
    time.sleep(0.01)
    return x
