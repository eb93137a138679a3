"""FFCV over a .beton file in the page cache; see worker.py for the requests.

Settings are those that its performance guide recommends if data fits into memory: `os_cache=True` and
`OrderOption.RANDOM`. `workers` are the threads of its compiled code; without a number it would use all cores.

Its writer decodes JPEG files and encodes them again, here with the quality that they have, so that there are as many
bytes to decode.
"""

from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import cv2
import numpy as np
from ffcv.fields import IntField, NDArrayField, RGBImageField
from ffcv.fields.decoders import (
    IntDecoder,
    NDArrayDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, RandomTranslate
from ffcv.writer import DatasetWriter

from benchmarks.images import CROPPED, MEAN, PAD, STD
from benchmarks.peers.mapped import Rows
from benchmarks.peers.worker import Actions, CannotError, Session, serve
from benchmarks.photographs import CONVERTED_QUALITY, files_of
from benchmarks.workloads import Batch, Workload

AHEAD = 3  # batches, its default
WRITERS = 2  # processes
# Its writer lists every row before it begins, some 170 bytes of memory each, and takes some ten microseconds for one.
MOST_ROWS = 20_000_000

REFUSED = {
    "records": "FFCV has no reader of ArrayRecord: it reads its own format only",
    "windows": "FFCV has no windows: it stores rows of a fixed length that do not overlap",
}


def beton(work: Workload) -> Path:
    return Path(work.folder) / "data.beton"


def is_image(work: Workload) -> bool:
    return work.dtype == "uint8" and len(work.shape) == 3 and work.shape[-1] == 3


def field_of(work: Workload) -> Any:
    """Return the field of FFCV for such rows.

    NDArrayField is the field for arrays, and its decoder is serial: FFCV marks `is_parallel` on the decoders of
    RGBImageField only. An uncompressed RGBImageField is the same bytes, copied in parallel. Numbers it keeps in its
    table of samples, as int64.
    """
    if work.kind == "jpeg":
        quality = CONVERTED_QUALITY if work.max_side else work.quality
        return RGBImageField(write_mode="jpg", jpeg_quality=quality, max_resolution=work.max_side)
    if is_image(work):
        return RGBImageField(write_mode="raw")
    return NDArrayField(np.dtype(work.dtype), work.shape) if work.shape else IntField()


def operations_of(work: Workload) -> list[Any]:
    """Return the decoder and chain in FFCV's compiled ops, up to NumPy arrays.

    Measured against it: `RandomTranslate` before the flip, and the recipe of its CIFAR example, which converts
    and normalises in torch. Both are slower.
    """
    normalise = NormalizeImage(255 * np.array(MEAN), 255 * np.array(STD), np.float32)
    if work.chain == "cifar":
        return [SimpleRGBImageDecoder(), RandomHorizontalFlip(), RandomTranslate(PAD), normalise]
    if work.chain == "imagenet":
        size = (CROPPED, CROPPED)
        return [RandomResizedCropRGBImageDecoder(size), RandomHorizontalFlip(), normalise]
    if is_image(work):
        return [SimpleRGBImageDecoder()]
    return [NDArrayDecoder() if work.shape else IntDecoder()]


def lacking(work: Workload) -> str | None:
    """Return the reason why FFCV cannot do a workload; None if it can."""
    if work.chain == "simclr":
        return "FFCV has no ops for SimCLR: no jitter of the hue, no grey, no blur"
    if work.rows > MOST_ROWS and work.kind == "rows":
        return f"FFCV has no writer for {work.rows:,} rows: it makes a Python object of each first"
    return REFUSED.get(work.kind)


class Images:
    """Dataset of decoded JPEG files and their labels, for its writer."""

    def __init__(self, work: Workload) -> None:
        self.paths = files_of(Path(work.folder))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return cv2.imread(self.paths[row], cv2.IMREAD_COLOR_RGB), row


class FFCV(Session):
    # Its queue, and the batch that waits for a place there.
    ready = AHEAD + 1

    @classmethod
    def prepare(cls, work: Workload) -> None:
        if lacking(work) is None and not beton(work).exists():
            fields = {"data": field_of(work), "label": IntField()}
            writer = DatasetWriter(str(beton(work)), fields, num_workers=WRITERS)
            writer.from_indexed_dataset(Images(work) if work.kind == "jpeg" else Rows(work))

    def open(self) -> None:
        reason = lacking(self.work)
        if reason is not None:
            raise CannotError(reason)
        self.loader = Loader(
            str(beton(self.work)),
            batch_size=self.work.batch_size,
            num_workers=self.workers,
            order=OrderOption.RANDOM,
            os_cache=True,
            seed=0,
            drop_last=False,
            batches_ahead=AHEAD,
            pipelines={"data": operations_of(self.work), "label": [IntDecoder()]},
        )
        self.running: Any = None

    def epoch(self) -> Iterator[Batch]:
        # It compiles at its first batch, and has a thread and buffers of its own for every epoch.
        self.running = iter(self.loader)
        for data, label in self.running:
            if not self.work.shape:
                data = data[:, 0].astype(self.work.dtype)
            yield data, label[:, 0]

    def stream(self) -> Iterator[Batch]:
        while True:
            yield from self.epoch()

    def close(self) -> None:
        if self.running is None:
            return
        self.running.close()
        # Its thread does not check for closing at the end of the epoch.
        while self.running.is_alive():
            try:
                self.running.output_queue.get(timeout=0.1)
            except Empty:
                continue


if __name__ == "__main__":
    serve(Actions(FFCV))
