"""Workloads: rows, batches and chains that every contestant is given, and the proof that it delivers them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks import photographs
from benchmarks.images import (
    COLOURED,
    OF_PHOTOGRAPHS,
    Limits,
    check_summary,
    epoch_summary,
    traits_of_rows,
    write_images,
)
from benchmarks.rows import Array

# Token p of a long file of tokens is p modulo this, so that every window can be checked.
VOCABULARY = 50_021
CHUNK = 64

# (rows, labels), (rows,) of records, (inputs, targets) of windows.
Batch = tuple[Array, ...]


@dataclass(frozen=True)
class Workload:
    """Task of a contestant: shuffled batches of rows, without end.

    - "rows": `data` is a .npy file of rows and `label` one of int32 numbers, of which the k-th is k; a batch is
      (rows, labels). With a `chain`, the rows are images that go through it.
    - "records": `data` is an ArrayRecord file, a record holds the bytes of a row, and its first element is the number
      of the row; a batch is (rows,).
    - "windows": `data` is a file of nothing but tokens; a batch is (inputs, targets), of windows that begin anywhere in
      the file, the targets one token further.
    - "jpeg": `data` is a folder of JPEG files of about `shape`, of which `tar` has the same, and `label` one of int32
      numbers, of which that of the k-th file is k; a batch is (images, labels), through the `chain`.
    """

    name: str
    title: str
    kind: Literal["rows", "records", "windows", "jpeg"]
    dtype: str
    shape: tuple[int, ...]  # of a row; of a window its length
    rows: int  # number of rows, or of tokens
    batch_size: int
    chain: Literal["cifar", "imagenet", "simclr"] | None = None
    compression: Literal["zstd", "uncompressed"] = "uncompressed"  # of records
    quality: int = 0  # of JPEG files
    # Pixels on the longer side to which images are shrunk once, in a file of the contestant's own.
    max_side: int | None = None
    folder: str = ""

    @property
    def data(self) -> Path:
        names = {
            "rows": "data.npy",
            "records": "data.array_record",
            "windows": "data.bin",
            "jpeg": "images",
        }
        return Path(self.folder) / names[self.kind]

    @property
    def tar(self) -> Path:
        return Path(self.folder) / "images.tar"

    @property
    def label(self) -> Path:
        return Path(self.folder) / "label.npy"

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Workload":
        """Return a workload from JSON, in which tuples are lists."""
        return cls(**{**facts, "shape": tuple(facts["shape"])})


def images(name: str, title: str, size: int, rows: int, batch_size: int, chain: Any) -> Workload:
    """Return a workload of square images that go through a chain."""
    return Workload(name, title, "rows", "uint8", (size, size, 3), rows, batch_size, chain)


SMALL = Workload(
    "gather-3KB",
    "shuffled gather, 3 KB: 32x32x3 uint8, batches of 512",
    "rows",
    "uint8",
    (32, 32, 3),
    50_000,
    512,
)
LARGE = replace(
    SMALL,
    name="gather-150KB",
    title="shuffled gather, 150 KB: 224x224x3 uint8, batches of 128",
    shape=(224, 224, 3),
    rows=4_000,
    batch_size=128,
)
TOKENS = replace(
    SMALL,
    name="gather-tokens",
    title="shuffled gather, 1 KB: 512 uint16 tokens, batches of 512",
    dtype="uint16",
    shape=(512,),
    rows=100_000,
)
CIFAR = images(
    "cifar",
    "32x32x3: pad-4 crop, flip, normalise to float32, batches of 512",
    32,
    25_000,
    512,
    "cifar",
)
IMAGENET = images(
    "imagenet",
    "256x256x3: RandomResizedCrop 224, flip, normalise to float32, batches of 256",
    256,
    2_000,
    256,
    "imagenet",
)
SIMCLR = images(
    "simclr",
    "256x256x3: RandomResizedCrop 224, flip, jitter, grey, blur, normalise, batches of 128",
    256,
    2_000,
    128,
    "simclr",
)
SKELETONS = Workload(
    "skeletons-npy",
    "3x300x25x2 float32 from .npy, batches of 256",
    "rows",
    "float32",
    (3, 300, 25, 2),
    1_500,
    256,
)
RECORDS = replace(
    SKELETONS,
    name="skeletons-ArrayRecord",
    title="3x300x25x2 float32 from ArrayRecord, uncompressed, batches of 256",
    kind="records",
)
ZSTD_RECORDS = replace(
    RECORDS,
    name="skeletons-zstd",
    title="3x300x25x2 float32 from ArrayRecord, zstd, batches of 256",
    compression="zstd",
)
WINDOWS = Workload(
    "windows",
    "windows of 1,024 uint16 tokens of a long file, inputs and targets, batches of 64",
    "windows",
    "uint16",
    (1_024,),
    50_000_000,
    64,
)
ONE_ROW = Workload(
    "per-batch", "a batch of one row of 4 bytes and its label", "rows", "int32", (), 2_000, 1
)
JPEG = Workload(
    "jpeg",
    "500x375 JPEG, 106 KB (4.5 bits per pixel): RandomResizedCrop 224, flip, normalise, batches of 256",
    "jpeg",
    "uint8",
    (375, 500, 3),
    1_000,
    256,
    "imagenet",
    quality=97,  # with as many bytes as ImageNet has at this size
)
LARGE_JPEG = replace(
    JPEG,
    name="jpeg-large",
    title="1600x1200 JPEG, 540 KB (2.2 bits per pixel): RandomResizedCrop 224, flip, normalise, batches of 64",
    shape=(1_200, 1_600, 3),
    rows=200,
    batch_size=64,
    quality=90,
)
SHRUNK_JPEG = replace(
    LARGE_JPEG,
    name="jpeg-shrunk",
    title="1600x1200 JPEG, shrunk to 512x384 once: RandomResizedCrop 224, flip, normalise, batches of 64",
    max_side=512,
)

THROUGHPUT = (
    SMALL,
    LARGE,
    TOKENS,
    CIFAR,
    IMAGENET,
    SIMCLR,
    SKELETONS,
    RECORDS,
    ZSTD_RECORDS,
    WINDOWS,
)


def write(work: Workload, folder: Path) -> Workload:
    """Write the files of a workload; return it with their folder."""
    work = replace(work, folder=str(folder))
    if work.kind == "jpeg":
        height, width, _ = work.shape
        photographs.write_photographs(folder, work.rows, height, width, work.quality)
    elif work.kind == "windows":
        (np.arange(work.rows) % VOCABULARY).astype(work.dtype).tofile(work.data)
    elif work.chain is not None:
        image, label = write_images(folder, work.rows, work.shape[0])
        image.rename(work.data)
        label.rename(work.label)
    else:
        rows = np.lib.format.open_memmap(
            folder / "data.npy", mode="w+", dtype=work.dtype, shape=(work.rows, *work.shape)
        )
        for start in range(0, work.rows, CHUNK):
            rows[start : start + CHUNK] = _rows(work, start, min(CHUNK, work.rows - start))
        np.save(work.label, np.arange(work.rows, dtype=np.int32))
        if work.kind == "records":
            _write_records(work, rows)
    return work


def _rows(work: Workload, start: int, count: int) -> Array:
    generator = np.random.default_rng((0, start))
    if work.dtype != "float32":
        bound = min(np.iinfo(work.dtype).max, VOCABULARY) + 1
        return generator.integers(0, bound, (count, *work.shape), work.dtype)
    # As in recordings of people: half of the frames are empty.
    rows = generator.normal(size=(count, *work.shape)).astype(np.float32)
    rows[:, :, work.shape[1] // 2 :] = 0
    rows.reshape(count, -1)[:, 0] = np.arange(start, start + count)
    return rows


def _write_records(work: Workload, rows: Array) -> None:
    # By array_record's own writer, with its defaults, as the users of the peers have it.
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(work.data), f"group_size:1,{work.compression}")
    for row in rows:
        writer.write(row.tobytes())
    writer.close()


def check_epoch(work: Workload, batches: Iterable[Batch]) -> dict[str, Any]:
    """Raise if a contestant does not deliver the workload; return a summary of the random part.

    Rows must be those of the file to the bit, each once, with their own labels, and not in the order of the file.
    """
    if work.kind == "windows":
        _check_windows(work, batches)
        return {}
    if work.chain is not None:
        pairs = ((data, label) for data, label in batches)
        if work.kind == "jpeg":
            return epoch_summary(pairs, np.load(Path(work.folder) / "traits.npy"))
        return epoch_summary(pairs, traits_of_rows(work.data))
    numbers = np.concatenate(list(_exact(work, batches)))
    if not np.array_equal(np.sort(numbers), np.arange(work.rows)):
        raise ValueError(f"an epoch has {len(numbers)} rows, not each of {work.rows} once.")
    if np.array_equal(numbers, np.arange(work.rows)):
        raise ValueError("the rows are not shuffled.")
    return {}


def same_chain(summary: dict[str, Any], expected: dict[str, Any], work: Workload) -> None:
    """Raise if the random chain of a contestant is not that of the reference."""
    if work.chain is not None:
        limits = COLOURED if work.chain == "simclr" else Limits()
        check_summary(summary, expected, OF_PHOTOGRAPHS if work.kind == "jpeg" else limits)


def _exact(work: Workload, batches: Iterable[Batch]) -> Iterator[Array]:
    source = np.load(Path(work.folder) / "data.npy", mmap_mode="r")
    for data, *labels in batches:
        rows = np.asarray(data)
        if rows.shape[1:] != work.shape or rows.dtype != work.dtype:
            raise ValueError(
                f"rows are {rows.dtype}{rows.shape[1:]}, not {work.dtype}{work.shape}."
            )
        numbers = np.asarray(labels[0] if labels else rows.reshape(len(rows), -1)[:, 0])
        numbers = numbers.reshape(-1).astype(np.int64)
        if not np.array_equal(rows, source[numbers]):
            raise ValueError("rows are not those of the file, or have labels of others.")
        yield numbers


def _check_windows(work: Workload, batches: Iterable[Batch]) -> None:
    first: list[Array] = []
    for inputs, targets in batches:
        expected = (inputs[:, :1].astype(np.int64) + np.arange(work.shape[0] + 1)) % VOCABULARY
        if inputs.dtype != work.dtype or inputs.shape[1:] != work.shape:
            raise ValueError(f"windows are {inputs.dtype}{inputs.shape[1:]}.")
        if not np.array_equal(np.asarray(inputs), expected[:, :-1]):
            raise ValueError("inputs are not a stretch of the file.")
        if not np.array_equal(np.asarray(targets), expected[:, 1:]):
            raise ValueError("targets are not the inputs one token further.")
        first.append(np.asarray(inputs[:, 0]))
    if len(np.unique(np.concatenate(first))) < 2:
        raise ValueError("all windows begin at the same token.")
