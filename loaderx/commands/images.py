"""Summary of an image data set for `loaderx inspect`: formats, sizes, labels, and its damaged images."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loaderx.errors import DataError
from loaderx.process.cores import cores
from loaderx.sources.encoded.source import EncodedImage, EncodedSource
from loaderx.sources.records.writer import in_order
from loaderx.sources.source import Rows, Source
from loaderx.spec import Spec

from .image_sets import ImageSet
from .statistics import count_labels, sampled_rows
from .summary_lines import histogram, line, printable
from .terminal import progress, readable_bytes

# Errors of a row that a loader can replace, as `loaderx.batch.encoded_rows` has them.
DAMAGES = (DataError, OSError)
# Rows that a thread decodes before the bar moves, and numbers that are read at once.
ROWS_AT_ONCE, NUMBERS_AT_ONCE = 16, 1 << 16
ADVICE = 'a loader raises there, or reads other rows with on_error="replace"'


@dataclass(frozen=True)
class Damage:
    """Damaged image or number: its field, its row, where it is, and the reason."""

    field: str
    row: int
    where: str
    reason: str

    def __str__(self) -> str:
        place = "" if self.where in self.reason else f"{self.where}: "
        return f"{place}{self.reason}"


@dataclass
class Images:
    """Encoded images of a field: formats and sizes, as (height, width), of a sample."""

    mode: str
    sampled: int
    formats: dict[str, int] = field(default_factory=dict)
    smallest: tuple[int, int] | None = None
    median: tuple[int, int] | None = None
    largest: tuple[int, int] | None = None


@dataclass
class Numbers:
    """Numbers of a field, with the count of each value if they are labels."""

    dtype: str
    shape: list[int]
    labels: dict[int, int] | None = None


@dataclass
class ImageSummary:
    """Summary of an image data set; `bytes` are those of its files."""

    file: str
    format: str
    rows: int
    files: int
    bytes: int
    fields: dict[str, Images | Numbers]
    classes: dict[str, int] | None
    verified: str | None = None
    damage: str | None = None
    damaged_files: list[str] = field(default_factory=list)
    damaged_rows: list[Damage] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the text for people."""
        yield self.file
        files = f", in {self.files:,} files" if 1 < self.files < self.rows else ""
        yield line("format", f"{self.format}{files}")
        yield line("rows", f"{self.rows:,}")
        yield line(
            "bytes", f"{readable_bytes(self.bytes)}, {self.bytes // self.rows:,} bytes per row"
        )
        for name, own in self.fields.items():
            yield from (
                _image_lines(name, own, self.rows)
                if isinstance(own, Images)
                else (_number_lines(name, own, self.rows))
            )
        if self.classes:
            yield from histogram("classes", self.classes, self.rows)
        if self.verified is not None:
            yield line("verified", self.verified)
        for one in [*self.damaged_files, *map(str, self.damaged_rows)]:
            yield f"    {printable(one)}"


def image_summary(file: str, found: ImageSet, options: Any) -> ImageSummary:
    """Return the summary of an image data set."""
    rows = len(found.source)
    total = sum(path.stat().st_size for path in found.files if path.exists())
    fields = {
        name: _images(own, options.sample) if isinstance(own, EncodedSource) else _numbers(own)
        for name, own in found.source.fields.items()
    }
    summary = ImageSummary(file, found.format, rows, len(found.files), total, fields, found.classes)
    if options.verify:
        summary.damaged_files = found.damage
        with progress(rows, 0, "images") as bar:
            summary.damaged_rows = list(damages(found.source.fields, rows, bar.update))
        _conclude(summary)
    return summary


def _conclude(summary: ImageSummary) -> None:
    """Say in a line what was found."""
    damaged = len({one.row for one in summary.damaged_rows})
    summary.verified = f"all {summary.rows:,} rows are intact"
    if damaged:
        summary.verified = (
            f"{damaged:,} of {summary.rows:,} rows {'is' if damaged == 1 else 'are'} damaged"
        )
        summary.damage = f"{summary.file}: {summary.verified}: {ADVICE}"
    if summary.damaged_files:
        count = len(summary.damaged_files)
        files = f"{count:,} of {summary.files:,} files cannot be opened"
        summary.verified = f"{files}; of the others, {summary.verified}"
        summary.damage = f"{summary.file}: {files}, so a data set of all of them raises" + (
            f"; {damaged:,} rows of the others are damaged: {ADVICE}" if damaged else ""
        )


def damages(fields: dict[str, Source], rows: int, seen: Callable[[int], Any]) -> Iterator[Damage]:
    """Decode all images, on all cores, and yield the damaged ones by their rows."""
    stop = threading.Event()

    def of_rows(start: int) -> tuple[int, list[Damage]]:
        numbers = np.arange(start, min(start + ROWS_AT_ONCE, rows), dtype=np.int64)
        found: list[Damage] = []
        if not stop.is_set():
            for name, source in fields.items():
                found += _damages_of(name, source, numbers)
        return len(numbers), sorted(found, key=lambda one: one.row)

    jobs = cores()
    # Not `with`: after Ctrl-C nobody waits for the other rows.
    pool = ThreadPoolExecutor(jobs, "loaderx-inspect")
    try:
        for count, found in in_order(pool, of_rows, range(0, rows, ROWS_AT_ONCE), 4 * jobs):
            seen(count)
            yield from found
    finally:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _damages_of(name: str, source: Source, rows: Rows) -> Iterator[Damage]:
    """Read rows of a field and decode its images; yield the damaged ones."""
    try:
        values = _read(source, rows)
    except DAMAGES as error:
        if len(rows) == 1:
            yield _damage(name, source, int(rows[0]), error)
            return
        for place in range(len(rows)):
            yield from _damages_of(name, source, rows[place : place + 1])
        return
    for row, image in zip(rows.tolist(), values, strict=True):
        if isinstance(image, EncodedImage):
            try:
                image.decode()
            except DAMAGES as error:
                yield _damage(name, source, row, error)


def _damage(name: str, source: Source, row: int, error: Exception) -> Damage:
    where = source.where(row) if isinstance(source, EncodedSource) else f"row {row}"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Damage(name, row, where, reason)


def _read(source: Source, rows: Rows) -> Any:
    spec = source.spec
    assert isinstance(spec, Spec)
    values = np.empty((len(rows), *spec.shape), spec.dtype)
    source.read(rows, [values])
    return values


def _images(source: EncodedSource, sample: int) -> Images:
    """Read the headers of a sample of rows. Damaged ones have the format "damaged"."""
    rows = sampled_rows(len(source), sample) if sample else np.empty(0, np.int64)
    formats: Counter[str] = Counter()
    sizes: list[tuple[int, int]] = []
    for row in rows.tolist():
        try:
            header = _read(source, np.array([row]))[0].header()
        except DAMAGES:
            formats["damaged"] += 1
            continue
        formats[header.format.upper()] += 1
        sizes.append((header.height, header.width))
    found = Images(source.spec.encoded.mode, len(rows), dict(formats.most_common()))
    if sizes:
        sizes.sort(key=lambda size: (size[0] * size[1], size))
        found.smallest, found.median, found.largest = sizes[0], sizes[len(sizes) // 2], sizes[-1]
    return found


def _numbers(source: Source) -> Numbers:
    """Count the labels of a field of single integers."""
    spec = source.spec
    assert isinstance(spec, Spec)
    found = Numbers(str(spec.dtype), list(spec.shape))
    if spec.shape == () and spec.dtype.kind in "iub":
        step, rows = NUMBERS_AT_ONCE, len(source)
        ranges = (np.arange(start, min(start + step, rows)) for start in range(0, rows, step))
        try:
            found.labels = count_labels(_read(source, part) for part in ranges)
        except DAMAGES:  # --verify names them.
            found.labels = None
    return found


def _image_lines(name: str, images: Images, rows: int) -> Iterator[str]:
    of = "" if images.sampled == rows else f", of {images.sampled:,} of {rows:,} rows"
    formats = ", ".join(f"{count:,} {form}" for form, count in images.formats.items())
    yield line(name, f"encoded, mode {images.mode}" + (f": {formats}{of}" if formats else ""))
    if images.smallest and images.median and images.largest:
        small, median, large = (
            f"{height} x {width}"
            for height, width in (images.smallest, images.median, images.largest)
        )
        size = (
            f"{small} pixels" if small == large else f"{small} to {large} pixels, median {median}"
        )
        yield line("", f"{size} (height x width){of}")


def _number_lines(name: str, numbers: Numbers, rows: int) -> Iterator[str]:
    if numbers.labels:
        yield from histogram(name, numbers.labels, rows)
    else:
        yield line(name, str(Spec(tuple(numbers.shape), np.dtype(numbers.dtype))))
