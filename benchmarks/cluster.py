"""Batches built by actors of Ray on this machine, against the threads of a local loader; and the price of the way.

Two actors, or two threads. Everything is bound to 127.0.0.1. The "other node" has an object store of its own, and its
batches pass through a TCP connection, as between two machines, but on one.
"""

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import loaderx as lx
from benchmarks.harness import Comparison, Contestant, interleave
from benchmarks.images import CROPPED, write_images
from benchmarks.peers.loaderx_worker import CHAINS
from benchmarks.peers.worker import timed
from benchmarks.photographs import write_photographs
from benchmarks.rows import write_rows
from loaderx import transforms as T  # noqa: N812 - as its users write it

REPEATS = 5
WORKERS = 2
# Longer than a loader takes to fill its queue of batches after its turn.
PAUSE = 0.5
# Settings of Ray, which it reads when it is imported: no statistics over the network, 127.0.0.1 left as it is.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Ray gives its workers a nice value of 15: other load on the machine would slow down one side only.
    "RAY_worker_niceness": "0",
}
NODE: dict[str, Any] = {
    "node_ip_address": "127.0.0.1",
    "include_dashboard": False,
    "object_store_memory": 2 << 30,
}
THREADS = f"{WORKERS} threads"
ACTORS = f"{WORKERS} actors"


def run() -> Iterator[Comparison]:
    """Run all cases, one after the other: of the consumer's node first, then of another one."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loaderx-")))
        with cluster({"num_cpus": WORKERS}):
            yield jpeg(folder)
            yield pillow(folder)
            yield python(folder)
            yield simclr(folder)
            yield gather(folder)
            same = _prices(folder)
        with cluster({"num_cpus": 0}, {"num_cpus": WORKERS}):
            other = _prices(folder)
        for name in same:
            yield Comparison(
                f"{name}, of one actor",
                "ms/batch",
                "on the node of the consumer",
                {"on the node of the consumer": same[name], "on another node": other[name]},
                lower_is_better=True,
            )


@contextmanager
def cluster(head: Mapping[str, Any], *others: Mapping[str, Any]) -> Iterator[None]:
    """Run a cluster of several nodes on this machine."""
    os.environ.update(SETTINGS)
    import ray
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(
        prefix="lx", dir="/tmp"
    )  # short: paths of sockets have at most 107 bytes
    nodes = Cluster(initialize_head=True, head_node_args={**NODE, **head, "temp_dir": folder})
    try:
        for node in others:
            nodes.add_node(**NODE, **node)
        ray.init(address=nodes.address, log_to_driver=False, logging_level=40)
        yield
    finally:
        ray.shutdown()
        nodes.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


class Stream:
    """Loader that stays open, as in a training loop; `close` ends it, and its actors."""

    def __init__(self, loader: lx.DataLoader, batches: int) -> None:
        self.loader, self.batches = loader, batches
        self.iterator = iter(loader)
        self.check()

    def check(self) -> None:
        """Raise if the first batch is not that of the loader itself."""
        batch, expected = next(self.iterator), self.loader.batch(0)
        for name in expected:
            if not np.array_equal(batch[name], expected[name]):
                raise ValueError(f"{name!r} of the first batch differs")

    def rate(self) -> float:
        """Return rows per second."""
        sizes = (len(next(iter(batch.values()))) for batch in self.iterator)
        answer = timed(sizes, self.batches, self.iterator._scheduler.ahead + 1)
        return answer["images"] / answer["seconds"]

    def close(self) -> None:
        self.iterator.close()
        if hasattr(self.loader, "close"):
            self.loader.close()


def compare(
    title: str,
    data: Any,
    chain: Any,
    batch_size: int,
    batches: int,
    unit: str = "images/s",
    *,
    one_core: bool = False,
) -> Comparison:
    """Measure the same loader with threads and with actors."""
    from loaderx.ray import RayLoader

    def made(threads: int) -> lx.DataLoader:
        transforms = None if chain is None else {"data": chain}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python code
            return lx.DataLoader(
                data,
                batch_size=batch_size,
                transforms=transforms,
                workers=threads,
                output="numpy",
            )

    with ExitStack() as stack:

        def opened(loader: lx.DataLoader) -> Contestant:
            stream = Stream(loader, batches)
            stack.callback(stream.close)
            return stream.rate

        contestants = {THREADS: opened(made(WORKERS))}
        if one_core:
            contestants["1 thread"] = opened(made(1))
        contestants[ACTORS] = opened(RayLoader(made(WORKERS), workers=WORKERS))
        reference = "1 thread" if one_core else THREADS
        return interleave(
            title, unit, contestants, reference=reference, repeats=REPEATS, pause=PAUSE
        )


def jpeg(folder: Path) -> Comparison:
    """Measure a chain of more than 2 ms per image, with a result of one byte per number."""
    files = folder / "jpeg"
    files.mkdir()
    write_photographs(files, 400, 375, 500, quality=97)
    data = {"data": lx.EncodedFiles(str(files / "images"))}
    chain = [T.RandomResizedCrop(CROPPED), T.RandomFlip(), T.RandAugment()]
    return compare(
        "JPEG 500x375: decode, RandomResizedCrop 224, RandAugment, uint8", data, chain, 64, 24
    )


def emboss(x: npt.NDArray[np.uint8], rng: Any) -> npt.NDArray[np.uint8]:
    """Filter and enhance an image by Pillow, which cannot be compiled."""
    from PIL import Image, ImageEnhance, ImageFilter

    image = Image.fromarray(x).filter(ImageFilter.EMBOSS)
    return np.asarray(ImageEnhance.Color(image).enhance(rng.uniform(0.5, 1.5)))


def augment(x: npt.NDArray[np.uint8], rng: Any) -> npt.NDArray[np.uint8]:
    """Augment an image by Pillow as torchvision does: crop, flip, jitter, turn, blur."""
    from PIL import Image, ImageEnhance, ImageFilter

    image = Image.fromarray(x)
    side = rng.uniform(0.5, 1.0) * x.shape[0]
    left, top = (rng.uniform(0, x.shape[0] - side) for _ in range(2))
    box = (left, top, left + side, top + side)
    image = image.resize((CROPPED, CROPPED), Image.Resampling.BILINEAR, box)
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    for kind in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = kind(image).enhance(rng.uniform(0.6, 1.4))
    image = image.rotate(rng.uniform(-15, 15), Image.Resampling.BILINEAR)
    return np.asarray(image.filter(ImageFilter.GaussianBlur(rng.uniform(0.1, 2.0))))


def python_noise(x: npt.NDArray[np.uint8], rng: Any) -> npt.NDArray[np.uint8]:
    """Change pixels one by one in Python, as tokenizers and parsers do with text: all of it under the GIL."""
    level = int(rng.integers(1, 9))
    row = bytes(
        (value + level * (place % 3)) & 255 for place, value in enumerate(x[0].ravel().tolist())
    )
    out = x.copy()
    out[0] = np.frombuffer(row, np.uint8).reshape(out[0].shape)
    return out


def pillow(folder: Path) -> Comparison:
    """Measure a chain of Pillow, as people write it with torchvision, against one core."""
    image, _ = write_images(folder, 512, 256)
    data = {"data": lx.NPDataset(str(image))}
    title = "256x256x3 by Pillow (crop, flip, jitter, turn, blur), uint8"
    return compare(title, data, [augment], 32, 24, one_core=True)


def python(folder: Path) -> Comparison:
    """Measure code of Pillow and of Python that takes about 1 ms per sample, against one core."""
    image, _ = write_images(folder, 512, CROPPED)
    data = {"data": lx.NPDataset(str(image))}
    return compare(
        "224x224x3 by Pillow (emboss, colour) and Python, uint8",
        data,
        [emboss, python_noise],
        32,
        24,
        one_core=True,
    )


def simclr(folder: Path) -> Comparison:
    """Measure a compiled chain to float32: four times the bytes."""
    image, label = write_images(folder, 1024, 256)
    data = {"data": lx.NPDataset(str(image)), "label": lx.NPDataset(str(label))}
    return compare("SimCLR, 256 to 224, float32", data, CHAINS["simclr"], 64, 24)


def gather(folder: Path) -> Comparison:
    """Measure rows of 3 KB that are only copied."""
    image, label = write_rows(folder, 50_000)
    data = {"data": lx.NPDataset(str(image)), "label": lx.NPDataset(str(label))}
    return compare("gather of rows of 3 KB, uint8", data, None, 512, 200, unit="rows/s")


def _prices(folder: Path) -> dict[str, list[float]]:
    """Return milliseconds per batch of rows that are only copied, by their size: the price of the way alone."""
    from loaderx.ray import RayLoader

    found = {}
    for name, size, batches in (
        ("batches of 1 KB", 1 << 10, 400),
        ("batches of 1 MB", 1 << 20, 200),
        ("batches of 38 MB", 38 << 20, 30),
    ):
        path = folder / f"price{size}.npy"
        if not path.exists():
            np.save(path, np.ones((64, size // 16), np.uint8))
        local = lx.DataLoader(
            {"data": lx.NPDataset(str(path))}, batch_size=16, seed=1, output="numpy", workers=1
        )
        stream = Stream(RayLoader(local, workers=1), batches)
        try:
            stream.rate()
            found[name] = [16e3 / stream.rate() for _ in range(REPEATS)]
        finally:
            stream.close()
    return found
