"""`loaderx inspect`: show the content of arrays and of image data sets."""

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loaderx.errors import DataError, LoaderxError

from .summary_lines import histogram, line
from .terminal import (
    DONE,
    FAILED,
    WRONG_INPUT,
    UsageError,
    axis_length,
    count_from,
    progress,
    readable_bytes,
    readable_shape,
    write_line,
    write_note,
)

if TYPE_CHECKING:
    from loaderx.sources.records.reader import Reader

    from .images import ImageSummary
    from .statistics import Moments
    from .tables import Table

EPILOG = """\
Mean and standard deviation are those of a sample of rows, per channel (the last axis) if there are at most four,
and in the unit of `Normalize`: white is 1, so those of uint8 are divided by 255. The line can be pasted into a list
of transforms. Files of single integers have a histogram of their labels instead.

Image data sets are folders of images, and tar, TFRecord, Bagz and ArrayRecord files. Formats and sizes of images are
those of a sample. Without --fields, the fields are the extensions of a tar file that are images or integers, the
features of a TFRecord file that hold images or one integer, the fields that an ArrayRecord file notes, or the image
that a record is. --verify decodes every image, on all cores, and lists the damaged ones: a loader raises there, or
reads other rows with on_error="replace".

The exit status is 1 if --verify finds damage, and 2 if a file cannot be read.

examples:
  loaderx inspect train_data.npy train_label.npy
  loaderx inspect train.array_record --verify
  loaderx inspect data.npz --sample 50000 --json
  loaderx inspect photos --verify
  loaderx inspect "train-{000000..000146}.tar" --fields jpg seg.png=P cls=int64
"""
# Labels that are read at once.
LABELS_AT_ONCE = 1 << 16
# Records of the array_record package that are read at once.
RECORDS_AT_ONCE = 64


def add(commands: Any) -> None:
    """Add the parser of this command."""
    parser = commands.add_parser(
        "inspect",
        help="show rows, dtypes, sizes, mean and deviation, and labels of arrays and images",
        description="Show what is in .npy, .npz and ArrayRecord files, and in image data sets.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a .npy, .npz or ArrayRecord file, a folder of images, or a tar, TFRecord or Bagz file, or a pattern",
    )
    parser.add_argument(
        "--sample",
        type=count_from(0),
        default=1000,
        metavar="N",
        help="rows for mean and deviation, or for sizes of images, 0 for none (default: 1000)",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="read everything, compare checksums, and decode every image",
    )
    parser.add_argument(
        "--dtype", metavar="NAME", help="dtype of records, for files that do not contain it"
    )
    parser.add_argument(
        "--shape",
        nargs="*",
        type=axis_length,
        metavar="N",
        help="shape of one record, for these files; the first may be `any`",
    )
    parser.add_argument(
        "--fields",
        nargs="+",
        metavar="NAME",
        help="fields of an image data set: NAME for images, NAME=MODE for those of another mode, NAME=DTYPE or "
        "NAME=DTYPE:SHAPE for numbers; of Bagz and ArrayRecord files in their order",
    )
    parser.add_argument(
        "--mode", choices=("RGB", "L", "RGBA", "P", "I;16"), help="mode of images (default: RGB)"
    )
    parser.add_argument(
        "--max-pixels",
        type=count_from(1),
        metavar="N",
        help="limit for the pixels of an image (default: 178956970)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print a JSON list with an object per array"
    )
    parser.set_defaults(run=run)


@dataclass
class Summary:
    """Summary of an array. `shape` is that of one row, and None in it means any length."""

    file: str
    array: str | None
    format: str
    rows: int
    dtype: str | None
    shape: list[int | None] | None
    bytes: int
    stored_bytes: int
    compression: str
    chunking: str
    statistics: "Moments | None" = None
    labels: dict[int, int] | None = None
    verified: str | None = None
    damage: str | None = None

    def lines(self) -> Iterator[str]:
        """Yield the text for people."""
        yield self.file if self.array is None else f"{self.file}, array {self.array!r}"
        yield line("format", f"{self.format}, {self.chunking}")
        yield line("compression", _compression(self))
        yield line("rows", f"{self.rows:,}")
        if self.dtype is None or self.shape is None:
            yield line("a row", "bytes; nothing in the file says of what (--dtype and --shape do)")
        else:
            yield line("a row", f"{readable_shape(self.shape)}, {self.dtype}")
        each = f", {self.bytes // self.rows:,} bytes per row" if self.rows else ""
        yield line("bytes", f"{readable_bytes(self.bytes)}{each}")
        if self.verified is not None:
            yield line("verified", self.verified)
        if self.statistics is not None:
            yield from _statistics_lines(self.statistics, self.rows)
        if self.labels is not None:
            yield from histogram("labels", self.labels, self.rows)


def run(options: argparse.Namespace) -> int:
    """Print the summaries of every file; a file that cannot be read does not prevent others from being shown."""
    status = DONE
    summaries: list[Summary | ImageSummary] = []
    for file in options.files:
        try:
            for summary in summaries_of(file, options):
                summaries.append(summary)
                if not options.json:
                    write_line("\n".join(summary.lines()))
                if summary.damage is not None:
                    write_note(f"loaderx inspect: {summary.damage}")
                    status = max(status, FAILED)
        except (LoaderxError, OSError) as error:
            if isinstance(error, BrokenPipeError) or (len(options.files) == 1 and not options.json):
                raise
            reason = " ".join(str(error).split())
            write_note(f"loaderx inspect: {reason}")
            status = WRONG_INPUT
    if options.json:
        write_line(json.dumps([dataclasses.asdict(summary) for summary in summaries], indent=2))
    return status


def summaries_of(file: str, options: argparse.Namespace) -> "Iterator[Summary | ImageSummary]":
    """Yield a summary of every array in a file, or that of an image data set."""
    from .image_sets import image_set
    from .images import image_summary
    from .tables import kind_of, npz_tables

    kind = kind_of(file)
    images = image_set(file, kind, options)
    if images is not None:
        yield image_summary(file, images, options)
        return
    path = Path(file)
    for name in ("fields", "mode", "max_pixels"):
        if getattr(options, name) is not None:
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag} is for image data sets, and {file} has no images.")
    if kind in ("npy", "npz") and (options.dtype is not None or options.shape is not None):
        raise UsageError(
            f"--dtype and --shape are for ArrayRecord files; {file} contains them already."
        )
    if kind == "npy":
        yield _npy_summary(path, options)
    elif kind == "npz":
        tables, left_out = npz_tables(path)
        for table in tables:
            yield _npz_summary(path, table, options)
        for line in left_out:
            write_note(f"left out: {line}")
    elif kind == "records":
        yield _record_summary(file, options)
    else:
        raise UsageError(
            f"{file} is a {'folder without images' if kind == 'folder' else 'Parquet file'}: inspect reads .npy, "
            f".npz and ArrayRecord files, and image data sets. `loaderx convert {file} NAME.npy` makes one of it."
        )


def _npy_summary(path: Path, options: argparse.Namespace) -> Summary:
    from .tables import NpyTable

    table = NpyTable(path)
    array = table.file.array
    straight = "C order" if array.flags.c_contiguous else "Fortran order"
    size = path.stat().st_size
    summary = Summary(
        *(str(path), None, "npy", table.rows, *_row_of(table)),
        *(array.nbytes, size, "none", straight),
    )
    if options.verify:
        summary.verified = "nothing: a .npy file has no checksums"
    return _with_values(summary, table, options.sample)


def _npz_summary(path: Path, table: Any, options: argparse.Namespace) -> Summary:
    import zipfile

    codecs = {zipfile.ZIP_STORED: "none", zipfile.ZIP_DEFLATED: "deflate"}
    spec = table.columns[0].spec
    summary = Summary(
        *(str(path), table.columns[0].name, "npz", table.rows, *_row_of(table)),
        *(spec.nbytes * table.rows, table.info.compress_size),
        codecs.get(table.info.compress_type, f"zip method {table.info.compress_type}"),
        "one piece, C order" if table.order == "C" else "one piece, Fortran order",
    )
    try:
        if options.verify:
            with progress(table.info.file_size, 0, "bytes") as bar:
                table.verify(bar.update)
            summary.verified = "the checksum of the array is right"
        return _with_values(summary, table, options.sample)
    except DataError as error:
        summary.damage = str(error)
        return summary


def _record_summary(file: str, options: argparse.Namespace) -> Summary:
    from .tables import RecordTable, record_readers

    readers = record_readers(file)
    row = readers[0].metadata.row or {}
    dtype = options.dtype or row.get("dtype")
    shape = row.get("shape") if options.shape is None else options.shape
    records = sum(map(len, readers))
    groups = {_option(reader, "group_size:") for reader in readers}
    summary = Summary(
        *(file, None, "ArrayRecord", records, dtype, None if shape is None else list(shape)),
        *(_record_bytes(readers), sum(reader.path.stat().st_size for reader in readers)),
        ", ".join(sorted({_codec(reader) for reader in readers})),
        _chunking(readers, groups),
    )
    if options.verify:
        _verify(summary, readers)
    if records == 0 or dtype is None:
        return summary
    if list(shape or ())[:1] == [None]:
        return _with_varying(summary, readers, options.sample)
    try:
        table = RecordTable(file, options.dtype, options.shape)
        summary.dtype = str(table.columns[0].spec.dtype)
        return _with_values(summary, table, options.sample)
    except DataError as error:
        summary.damage = summary.damage or str(error)
        return summary


def _row_of(table: "Table") -> tuple[str, list[int | None]]:
    spec = table.columns[0].spec
    return str(spec.dtype), list(spec.shape)


def _record_bytes(readers: "list[Reader]") -> int:
    """Return the bytes of all records, by the index if there is one."""
    import numpy as np

    from loaderx.sources.records.reader import PackageReader

    total = 0
    for reader in readers:
        if isinstance(reader, PackageReader):
            # This reader has to read the records: not all at once.
            for start in range(0, len(reader), RECORDS_AT_ONCE):
                stop = min(start + RECORDS_AT_ONCE, len(reader))
                total += int(reader.sizes(np.arange(start, stop)).sum())
        else:
            total += int(_file(reader).sizes.sum(dtype=np.int64))
    return total


def _file(reader: Any) -> Any:
    return reader.file if hasattr(reader, "file") else reader._file


def _option(reader: "Reader", name: str) -> str | None:
    found = [part for part in reader.metadata.options.split(",") if part.startswith(name)]
    return found[0].removeprefix(name) if found else None


def _codec(reader: "Reader") -> str:
    for name in ("zstd", "brotli", "snappy"):
        level = _option(reader, name)
        if level is not None:
            return name + level
    return "none" if _option(reader, "uncompressed") is not None else "unknown"


def _chunking(readers: "list[Reader]", groups: set[str | None]) -> str:
    sizes = " or ".join(sorted(group or "?" for group in groups))
    chunks = sum(reader.metadata.chunks for reader in readers)
    counted = f"{chunks:,} chunks, " if chunks else ""
    files = f" in {len(readers)} files" if len(readers) > 1 else ""
    return f"{counted}group size {sizes}{files}"


def _verify(summary: Summary, readers: "list[Reader]") -> None:
    """Read all chunks of all files and count the damaged ones."""
    from loaderx.sources.records.file import VERIFY, RecordFile
    from loaderx.sources.records.reader import PackageReader

    damaged = 0
    with progress(summary.rows, 0, "records") as bar:
        for reader in readers:
            read: Callable[[int], Any]
            if isinstance(reader, PackageReader):
                group, count = 1, len(reader)
                read = lambda number, reader=reader: reader.records([number])  # type: ignore[misc]  # noqa: E731
            else:
                file = RecordFile(reader.path, VERIFY["always"], True)
                group, count, read = file.group, file.metadata.chunks, file.read_chunk
            left = len(reader)
            for number in range(count):
                try:
                    read(number)
                except DataError as error:
                    damaged += min(group, left)
                    summary.damage = summary.damage or str(error)
                bar.update(min(group, left))
                left -= group
    whole = f"all {summary.rows:,} records are intact"
    summary.verified = f"{damaged:,} of {summary.rows:,} records are damaged" if damaged else whole


def _with_values(summary: Summary, table: "Table", sample: int) -> Summary:
    """Add labels, or mean and standard deviation."""
    from .statistics import count_labels, moments_of, sampled_rows

    column = table.columns[0]
    if table.rows == 0:
        return summary
    if column.spec.shape == () and column.spec.dtype.kind in "iub":
        step = LABELS_AT_ONCE
        ranges = [(start, min(start + step, table.rows)) for start in range(0, table.rows, step)]
        summary.labels = count_labels(read()[column.name] for read in table.blocks(ranges))
    elif column.spec.dtype.kind in "iuf" and sample and column.spec.size:
        rows = sampled_rows(table.rows, sample).tolist()
        values = (read()[column.name][0] for read in table.blocks((row, row + 1) for row in rows))
        summary.statistics = moments_of(values, column.spec)
    return summary


def _with_varying(summary: Summary, readers: "list[Reader]", sample: int) -> Summary:
    """Add mean and standard deviation of records of any length, each value with the same weight."""
    import numpy as np

    from loaderx.spec import Spec

    from .statistics import moments_of, sampled_rows

    dtype = np.dtype(summary.dtype)
    inner = [size for size in (summary.shape or ())[1:] if size is not None]
    if dtype.kind not in "iuf" or not sample:
        return summary
    starts = np.cumsum([0, *map(len, readers)])
    rows = sampled_rows(summary.rows, sample)
    owners = np.searchsorted(starts, rows, side="right") - 1

    def values() -> Iterator[Any]:
        for row, owner in zip(rows.tolist(), owners.tolist(), strict=True):
            yield readers[owner].records([row - int(starts[owner])])[0].view(dtype)

    summary.dtype = str(dtype.newbyteorder("="))
    summary.statistics = moments_of(values(), Spec((1, *inner), dtype))
    return summary


def _compression(summary: Summary) -> str:
    if summary.compression == "none":
        return "none"
    share = f" ({summary.stored_bytes / summary.bytes:.0%})" if summary.bytes else ""
    return f"{summary.compression}, {readable_bytes(summary.stored_bytes)} on disk{share}"


def _statistics_lines(statistics: "Moments", rows: int) -> Iterator[str]:
    of = "all rows" if statistics.rows == rows else f"{statistics.rows:,} of {rows:,} rows"
    mean, std = _pasted(statistics.mean), _pasted(statistics.std)
    if min(statistics.std) > 0:
        yield line("values", f"Normalize(mean={mean}, std={std})  # of {of}")
    else:
        yield line("values", f"mean {mean}, deviation {std} (Normalize needs one above 0), of {of}")
    if statistics.not_finite:
        yield line("", f"{statistics.not_finite:,} sampled values are NaN or infinite; left out")


def _pasted(values: list[float]) -> str:
    return repr(values[0] if len(values) == 1 else values)
