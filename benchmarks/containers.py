"""Containers of JPEG files: what each costs in disk, first scan and images per second; writes the table of the docs."""

import io
import os
import statistics
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import loaderx as lx
from benchmarks.harness import ROOT, Comparison, interleave, reason, status
from benchmarks.photographs import WRITERS, encoded, name_of, photograph
from benchmarks.report import write_between
from loaderx import transforms as T  # noqa: N812 - as its users write it
from loaderx.kernels.crc32c import crc32c

PAGE = ROOT / "docs" / "how-to" / "image-data-sets.md"
BEGIN, END = "<!-- containers: begin -->", "<!-- containers: end -->"
# As in the benchmark `jpeg`.
HEIGHT, WIDTH, QUALITY = 375, 500, 97
ROWS, CLASSES = 800, 8
BATCH_SIZE, WORKERS = 64, 2
OPS = [T.RandomResizedCrop(224), T.RandomFlip()]
NORMALIZE = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# An index counts only if its shard is older than two seconds.
LONG_AGO = 1_000_000_000
SCANS = 5
SECONDS, REPEATS, WARM_UP_BATCHES = 1.5, 5, 4
FOLDER = "folder"


@dataclass(frozen=True)
class Container:
    """Container of one data set: how it is written from a folder, how it is opened, and when to choose it."""

    name: str
    choose: str
    write: Callable[[Path, Path], None]
    open: Callable[[Path], Any]


def labelled(images: Path) -> Iterator[tuple[str, bytes, int]]:
    """Yield the name, the bytes and the label of every image of a folder, in the order of `ImageFolder`."""
    for label, folder in enumerate(sorted(images.iterdir())):
        for path in sorted(folder.iterdir()):
            yield path.name, path.read_bytes(), label


def write_folder(images: Path) -> None:
    """Write photographs as JPEG files, in a sub-folder per class."""
    for label in range(CLASSES):
        (images / f"class{label}").mkdir(parents=True)

    def write(row: int) -> None:
        folder = images / f"class{row * CLASSES // ROWS}"
        (folder / name_of(row)).write_bytes(encoded(photograph(row, HEIGHT, WIDTH), QUALITY))

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(ROWS)))


def write_tar(images: Path, target: Path) -> None:
    """Write a shard as WebDataset has it."""
    with tarfile.open(target, "w") as tar:
        for name, data, label in labelled(images):
            for member, content in (
                (name, data),
                (f"{Path(name).stem}.cls", str(label).encode()),
            ):
                header = tarfile.TarInfo(member)
                header.size = len(content)
                tar.addfile(header, io.BytesIO(content))


def write_tfrecord(images: Path, target: Path) -> None:
    """Write a file of `tf.train.Example` with the names of features that ImageNet has there."""
    with target.open("wb") as file:
        for _, data, label in labelled(images):
            record = _example(
                {"image/encoded": (1, data), "image/class/label": (3, bytes([label]))}
            )
            length = struct.pack("<Q", len(record))
            file.write(length + _masked(length) + record + _masked(record))


def _example(features: Mapping[str, tuple[int, bytes]]) -> bytes:
    entries = b""
    for name, (kind, value) in features.items():
        feature = _delimited(kind, _delimited(1, value))
        entries += _delimited(1, _delimited(1, name.encode()) + _delimited(2, feature))
    return _delimited(1, entries)


def _delimited(number: int, content: bytes) -> bytes:
    """Return a field of protobuf: its number and type, its length as a varint, and its content."""
    length, size = bytearray(), len(content)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


def _masked(data: bytes) -> bytes:
    crc = int(crc32c(np.frombuffer(data, np.uint8)))
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def write_parquet(images: Path, target: Path) -> None:
    """Write a file as Hugging Face has images: structs of bytes and a path, without compression."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names, files, labels = zip(*labelled(images), strict=True)
    structs = [{"bytes": data, "path": name} for name, data in zip(names, files, strict=True)]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    table = pa.table({"image": pa.array(structs, kind), "label": pa.array(labels, pa.int64())})
    pq.write_table(table, target, compression="none", row_group_size=100)


def write_bagz(images: Path, target: Path) -> None:
    """Write records of a label and an image, without compression, and where each of them ends."""
    limits, end = [], 0
    with target.open("wb") as file:
        for _, data, label in labelled(images):
            end += file.write(struct.pack("<q", label) + data)
            limits.append(end)
        file.write(np.array(limits, "<u8").tobytes())


def write_records(images: Path, target: Path) -> None:
    """Write an ArrayRecord file of a label and an image as they are."""
    rows = ({"image": data, "label": label} for _, data, label in labelled(images))
    fields = {"image": lx.Encoded(), "label": "int64"}
    lx.write_array_record(target, rows, fields=fields, compression=None, progress=False)


def write_converted(images: Path, target: Path) -> None:
    """Write an ArrayRecord file by `loaderx convert --jpeg`."""
    command = [sys.executable, "-m", "loaderx", "convert", str(images), str(target), "--jpeg", "90"]
    subprocess.run(command, check=True, capture_output=True)


CONTAINERS = (
    Container(FOLDER, "you have one: up to some million files", lambda *_: None, lx.ImageFolder),
    Container(
        "tar (WebDataset)",
        "you have shards, or other programs read them one after the other",
        write_tar,
        lambda path: lx.TarDataset(path, {"image": "jpg", "label": "cls"}),
    ),
    Container(
        "TFRecord",
        "you have them; with checksums",
        write_tfrecord,
        lambda path: lx.TFRecordDataset(
            path,
            {"image": lx.Encoded("image/encoded"), "label": ("int64", "image/class/label")},
        ),
    ),
    Container(
        "Parquet, not compressed",
        "you have them, or the data set is on the Hub",
        write_parquet,
        lambda path: lx.ParquetDataset(
            path, {"image": lx.Encoded("image.bytes"), "label": "label"}
        ),
    ),
    Container(
        "Bagz, not compressed",
        "you have them",
        write_bagz,
        lambda path: lx.BagzDataset(path, {"image": lx.Encoded(), "label": "int64"}),
    ),
    Container(
        "ArrayRecord with `Encoded`",
        "you have them; with checksums",
        write_records,
        lambda path: lx.ARDataset(path, {"image": lx.Encoded(), "label": "int64"}),
    ),
    Container(
        "`loaderx convert --jpeg`",
        "you train more than once: only the rows of a window are decoded; with checksums",
        write_converted,
        lx.ARDataset,
    ),
)
SUFFIXES = ("", ".tar", ".tfrecord", ".parquet", ".bag", ".ar", ".ar")


@dataclass(frozen=True)
class Figures:
    """Bytes of a container, and milliseconds to open it for the first time and later."""

    size: int
    first: float
    later: float


@dataclass(frozen=True)
class Table:
    """Figures of all containers."""

    figures: Mapping[str, Figures]
    rates: Comparison

    def table(self) -> str:
        """Return the table in Markdown."""
        lines = [
            "| container | choose it if | disk | first scan | later | images/s |",
            "|---|---|---:|---:|---:|---:|",
        ]
        whole = self.figures[FOLDER].size
        for one in CONTAINERS:
            if one.name in self.rates.absent:
                lines.append(f"| {one.name} | did not run: {self.rates.absent[one.name]} | | | | |")
                continue
            own = self.figures[one.name]
            disk = f"{own.size / 1e6:,.1f} MB"
            if one.name != FOLDER:
                disk += f" ({100 * (own.size / whole - 1):+.1f} %)"
            rate = f"{self.rates.median(one.name):,.0f}"
            if one.name != FOLDER:
                rate += f" ({self.rates.ratio(one.name):.2f}x)"
            lines.append(
                f"| {one.name} | {one.choose} | {disk} | {own.first:,.1f} ms | {own.later:,.1f} ms | {rate} |"
            )
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        figures = {name: vars(own) for name, own in self.figures.items()}
        return {"name": "containers", "figures": figures, "rates": self.rates.as_dict()}


def run(page: Path | None = PAGE) -> Iterator[Table]:
    """Measure all containers, and write the table into the page."""
    with tempfile.TemporaryDirectory(prefix="loaderx-") as folder:
        found = measure(Path(folder))
    if page is not None:
        write_between(f"{introduction()}\n\n{found.table()}\n", page, BEGIN, END)
    yield found


def introduction() -> str:
    """Say what was measured, and how to read the table."""
    return (
        f"{ROWS:,} photographs of {WIDTH}x{HEIGHT}, RandomResizedCrop 224, flip, normalise, {WORKERS} workers on "
        f"{len(os.sched_getaffinity(0))} cores, files in the page cache. The first scan finds the rows, and its result "
        "is kept in an index file where there is something to keep; `later` is with it. All deliver the same batches. "
        "Figures in brackets are relative to the folder. Written by `python -m benchmarks containers`."
    )


def measure(
    folder: Path, seconds: float = SECONDS, repeats: int = REPEATS, scans: int = SCANS
) -> Table:
    """Write all containers, compare their batches, and measure them."""
    images = folder / "images"
    status(f"containers: writing {ROWS:,} photographs")
    write_folder(images)
    figures: dict[str, Figures] = {}
    loaders: dict[str, lx.DataLoader] = {}
    absent: dict[str, str] = {}
    expected: list[tuple[int, list[int]]] = []
    for number, (one, suffix) in enumerate(zip(CONTAINERS, SUFFIXES, strict=True)):
        status(f"containers: {one.name}")
        target = folder / f"{number}{suffix}" if suffix else images
        try:
            one.write(images, target)
            if target.is_file():
                os.utime(target, (LONG_AGO, LONG_AGO))
            figures[one.name] = Figures(size_of(target), *_openings(one, target, scans))
            source = one.open(target)
            batches = checksums(source)
            expected = expected or batches
            if batches != expected:
                raise ValueError("its batches differ from those of the folder")
        except Exception as error:
            if not expected:
                raise
            absent[one.name] = reason(error)
        else:
            loaders[one.name] = _loader(source, [*OPS, NORMALIZE])
    rates = interleave(
        "images per second by container",
        "images/s",
        {name: partial(_rate, loader, seconds) for name, loader in loaders.items()},
        reference=FOLDER,
        repeats=repeats,
        absent=absent,
    )
    return Table(figures, rates)


def size_of(target: Path) -> int:
    """Return the bytes of a file, or of the files below a folder."""
    files = [target] if target.is_file() else [path for path in target.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files)


def _openings(one: Container, target: Path, scans: int) -> tuple[float, float]:
    """Return the milliseconds of opening a container without an index, and with one."""
    first: list[float] = []
    later: list[float] = []
    for _ in range(scans + 1):
        for index in target.parent.glob(".*.loaderx-index"):
            index.unlink()
        for spent in (first, later):
            began = time.perf_counter()
            one.open(target)
            spent.append(1e3 * (time.perf_counter() - began))
    # Those of the first round imported modules.
    return statistics.median(first[1:]), statistics.median(later[1:])


def checksums(source: Any) -> list[tuple[int, list[int]]]:
    """Return checksums of the images and the labels of two epochs: all of an image is decoded in the first only."""
    with iter(_loader(source, OPS, num_epochs=2)) as batches:
        return [(zlib.crc32(batch["image"]), batch["label"].tolist()) for batch in batches]


def _loader(source: Any, ops: list[Any], **options: Any) -> lx.DataLoader:
    return lx.DataLoader(
        source,
        batch_size=BATCH_SIZE,
        workers=WORKERS,
        transforms={"image": ops},
        output="numpy",
        **options,
    )


def _rate(loader: lx.DataLoader, seconds: float) -> float:
    """Return images per second, after the batches that an iterator may have in its queue."""
    with iter(loader) as batches:
        for _ in range(WARM_UP_BATCHES):
            next(batches)
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            next(batches)
            count += 1
        return count * BATCH_SIZE / (time.perf_counter() - began)
