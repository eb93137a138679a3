"""Columns of Parquet files and of Hugging Face `datasets` directories as rows of one shape."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError
from loaderx.sources.encoded.field import Encoded, EncodedSpec
from loaderx.spec import Spec

from .pictures import Decoding, EncodedPicture, decoding_of
from .tables import MAX_ROW_BYTES, Block, Column, Input, Range, Table, stamp
from .terminal import UsageError, readable_bytes, required

# Largest number of rows read from a Parquet file at once.
BATCH_ROWS = 1 << 16
# Size of a number in memory, however small it is in the file; 1 for types that may be small integers.
VALUE_BYTES = {"INT64": 8, "DOUBLE": 8, "FLOAT": 4}


@dataclass(frozen=True)
class Wanted:
    """Options of the user about columns and pictures, which stay `encoded` on request."""

    columns: Sequence[str] | None
    mode: str
    size: tuple[int, int] | None
    encoded: Encoded | None = None


class ArrowTable(Table):
    """Columns of a source that returns Arrow tables by ranges of rows."""

    def __init__(
        self,
        name: str,
        rows: int,
        readers: "Mapping[str, ColumnReader]",
        tables: Callable[[Iterable[Range]], Iterator[Any]],
    ) -> None:
        self._name, self._readers, self._tables = name, readers, tables
        self.rows = rows
        self.columns = [reader.column for reader in readers.values()]

    def blocks(self, ranges: Iterable[Range]) -> Iterator[Callable[[], Block]]:
        ranges = list(ranges)
        for (start, _), table in zip(ranges, self._tables(ranges), strict=True):
            yield lambda start=start, table=table: self._read(start, table)  # type: ignore[misc]

    def _read(self, start: int, table: Any) -> Block:
        return {
            name: reader.read(table.column(name), start) for name, reader in self._readers.items()
        }


@dataclass(frozen=True)
class ColumnReader:
    """Conversion of an Arrow column to an array: decoded pictures, or numbers in lists of equal length."""

    source: str
    # Folder of the source: paths of pictures in cells are relative to it.
    folder: Path
    column: Column
    decoding: Decoding | None

    def read(self, values: Any, start: int) -> NDArray[Any] | list[EncodedPicture]:
        """Return rows as an array, or encoded pictures; `start` is the first row of the source, for messages."""
        spec = self.column.spec
        if isinstance(spec, EncodedSpec):
            return [
                self._encoded(value.as_py(), start + place) for place, value in enumerate(values)
            ]
        if self.decoding is not None:
            pixels = np.empty((len(values), *spec.shape), spec.dtype)
            for place, value in enumerate(values):
                name = self._row(start + place)
                pixels[place] = self.decoding(content_of(value.as_py(), self.folder, name), name)
            return pixels
        arrow = required("pyarrow.compute", "huggingface", "reading Arrow columns")
        array = _one_array(values)
        self._refuse_missing(array, start, 1)
        unit = 1
        for length in spec.shape:
            lengths = arrow.list_value_length(array).to_numpy(zero_copy_only=False)
            wrong = np.flatnonzero(lengths != length)
            if len(wrong):
                raise DataError(
                    f"{self._row(start + int(wrong[0]) // unit)} has a list of length {lengths[wrong[0]]}, and the "
                    f"first row has one of length {length}: all lists of a column must have the same length."
                )
            array = _storage(array.flatten())
            unit *= length
            self._refuse_missing(array, start, max(unit, 1))
        numbers: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return numbers.astype(spec.dtype, copy=False).reshape(len(values), *spec.shape)

    def _encoded(self, value: Any, row: int) -> EncodedPicture:
        content = content_of(value, self.folder, self._row(row))
        data = content if isinstance(content, bytes) else content.read_bytes()
        return EncodedPicture(self._row(row), data)

    def _refuse_missing(self, array: Any, start: int, unit: int) -> None:
        if array.null_count:
            missing = array.is_null().to_numpy(zero_copy_only=False)
            row = int(np.flatnonzero(missing)[0]) // unit
            raise DataError(f"{self._row(start + row)} has no value (null).")

    def _row(self, row: int) -> str:
        return f"{self.source}, column {self.column.name!r}, row {row}"


def content_of(value: Any, folder: Path, name: str) -> Path | bytes:
    """Return an encoded picture: bytes, or a struct of bytes and path, as `datasets` stores them."""
    if isinstance(value, Mapping):
        encoded = value.get("bytes")
        if encoded is None and value.get("path"):
            return _inside(folder, value["path"], name)
        value = encoded
    if not isinstance(value, bytes):
        raise DataError(f"{name} has no value (null).")
    return value


def _inside(folder: Path, path: Any, name: str) -> Path:
    """Return a file that the data names. The author of the data must not choose which of our files are copied."""
    root = folder.resolve()
    try:
        file = (root / str(path)).resolve()
        # An absolute path comes from another machine, or is a guess at this one.
        inside = not Path(path).is_absolute() and file.is_relative_to(root)
        found = file.is_file()
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{name} names the file {path!r}: {reason}.") from error
    if not inside:
        raise DataError(
            f"{name} holds only the path {path!r} of a picture, and only files below {folder} are read by path: "
            "copy the file there and name it by a relative path, or store its bytes."
        )
    if not found:
        raise DataError(f"{name} names the file {path!r}, and {folder} has no such file.")
    return file


def parquet_input(path: Path, wanted: Wanted) -> Input:
    """Open a Parquet file."""
    arrow = required("pyarrow", "huggingface", "reading Parquet files")
    parquet = required("pyarrow.parquet", "huggingface", "reading Parquet files")
    try:
        file = parquet.ParquetFile(path)
    except (arrow.ArrowInvalid, OSError) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise DataError(f"{path} is not a Parquet file, or it is damaged: {error}") from error
    schema, rows = file.schema_arrow, file.metadata.num_rows
    if rows == 0:
        raise DataError(f"{path} has no rows.")
    try:
        noted = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        classes = {
            name: tuple(map(str, feature["names"]))
            for name, feature in noted.get("info", {}).get("features", {}).items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path}: its metadata for Hugging Face `datasets` is damaged: {error!r}."
        ) from error

    def first(name: str) -> Any:
        return next(file.iter_batches(1, columns=[name])).column(0)

    for group in map(file.metadata.row_group, range(file.num_row_groups)):
        _refuse_large_rows(path, group, wanted.columns)
    readers, left_out = _readers(str(path), path.parent, schema, first, classes, wanted)
    ends = np.cumsum([file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)])

    def tables(ranges: Iterable[Range]) -> Iterator[Any]:
        opened = parquet.ParquetFile(path)
        batches: Iterator[Any] | None = None
        held = None
        position = 0
        for start, stop in ranges:
            if batches is None:
                group = int(np.searchsorted(ends, start, side="right"))
                position = int(ends[group - 1]) if group else 0
                batches = opened.iter_batches(
                    min(BATCH_ROWS, stop - start),
                    range(group, opened.num_row_groups),
                    list(readers),
                )
            # `held` are the rows from `position` on.
            pieces: list[Any] = [] if held is None else [held]
            have = sum(len(piece) for piece in pieces)
            while position + have < stop:
                pieces.append(arrow.Table.from_batches([next(batches)]))
                have += len(pieces[-1])
                while position + len(pieces[0]) <= start:
                    position += len(pieces[0])
                    have -= len(pieces.pop(0))
                    if not pieces:
                        break
            whole = arrow.concat_tables(pieces)
            yield whole.slice(start - position, stop - start)
            held, position = whole.slice(stop - position), stop

    return Input([ArrowTable(str(path), rows, readers, tables)], stamp([path]), left_out)


def _refuse_large_rows(path: Path, group: Any, wanted: Sequence[str] | None) -> None:
    """Refuse rows that would fill the memory. A few compressed bytes can expand to any number of values."""
    for place in range(group.num_columns):
        column = group.column(place)
        name = column.path_in_schema.partition(".")[0]
        each = VALUE_BYTES.get(column.physical_type, 1)
        nbytes = max(column.total_uncompressed_size, column.num_values * each)
        row_bytes = nbytes // max(group.num_rows, 1)
        if (wanted is None or name in wanted) and row_bytes > MAX_ROW_BYTES:
            raise DataError(
                f"{path}, column {name!r}: a row has {readable_bytes(row_bytes)}, and at most "
                f"{readable_bytes(MAX_ROW_BYTES)} are unpacked in memory; leave it out by --columns."
            )


def is_dataset(folder: Path) -> bool:
    """Return True if `save_to_disk` of Hugging Face `datasets` wrote this folder."""
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    )


def dataset_input(folder: Path, split: str | None, wanted: Wanted) -> Input:
    """Open a folder by `save_to_disk`."""
    library = required("datasets", "huggingface", "reading a folder of Hugging Face `datasets`")
    try:
        dataset = library.load_from_disk(str(folder))
    # `datasets` raises these on folders that only look like its own.
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder} cannot be opened by `datasets`: {error}") from error
    if isinstance(dataset, library.DatasetDict):
        if split not in dataset:
            raise UsageError(
                f"{folder} has the splits {', '.join(dataset)}; choose one of them with --split."
            )
        dataset = dataset[split]
    elif split is not None:
        raise UsageError(f"{folder} has no splits: leave --split out.")
    rows = len(dataset)
    if rows == 0:
        raise DataError(f"{folder} has no rows.")
    classes = {
        name: tuple(feature.names)
        for name, feature in dataset.features.items()
        if isinstance(feature, library.ClassLabel) and feature.names
    }
    plain = dataset.with_format("arrow")
    schema = plain[:1].schema

    def first(name: str) -> Any:
        return plain[:1].column(name)

    readers, left_out = _readers(str(folder), folder, schema, first, classes, wanted)
    chosen = plain.select_columns(list(readers))

    def tables(ranges: Iterable[Range]) -> Iterator[Any]:
        for start, stop in ranges:
            yield chosen[start:stop]

    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return Input([ArrowTable(str(folder), rows, readers, tables)], stamp(files), left_out)


def _readers(
    source: str,
    folder: Path,
    schema: Any,
    first: Callable[[str], Any],
    classes: Mapping[str, tuple[str, ...]],
    wanted: Wanted,
) -> tuple[dict[str, ColumnReader], list[str]]:
    """Return readers of the wanted columns, or of all readable ones, and notes on those left out."""
    names = list(schema.names)
    unknown = [name for name in wanted.columns or () if name not in names]
    if unknown:
        raise UsageError(
            f"{source} has no column {unknown[0]!r}; it has {', '.join(map(repr, names))}."
        )
    readers: dict[str, ColumnReader] = {}
    left_out: list[str] = []
    for name in wanted.columns or names:
        kind = schema.field(name).type
        value = first(name)
        decoding = None
        spec: Spec | str
        if _is_picture(kind) and wanted.encoded is not None:
            spec = EncodedSpec(wanted.encoded)
        elif _is_picture(kind):
            where = f"{source}, column {name!r}, row 0"
            content = content_of(value[0].as_py(), folder, where)
            decoding = decoding_of(content, where, wanted.mode, wanted.size)
            spec = decoding.spec
        else:
            spec = _spec_of(_one_array(value))
        if isinstance(spec, str):
            problem = f"column {name!r} is of type {kind}, {spec}"
            if wanted.columns is not None:
                raise UsageError(f"{source}: {problem}.")
            left_out.append(problem)
            continue
        column = Column(name, spec, classes.get(name))
        readers[name] = ColumnReader(source, folder, column, decoding)
    if not readers:
        raise UsageError(f"{source} has no column of numbers or pictures: {'; '.join(left_out)}.")
    return readers, left_out


def _spec_of(array: Any) -> Spec | str:
    """Return the spec of a row of a column, by its first row, or the reason why rows have none."""
    arrow = required("pyarrow", "huggingface", "reading Arrow columns")
    kinds = arrow.types
    shape: list[int] = []
    while (
        kinds.is_list(array.type)
        or kinds.is_large_list(array.type)
        or kinds.is_fixed_size_list(array.type)
    ):
        if array.null_count or len(array) == 0:
            return "whose first row has no value, so its shape is unknown"
        shape.append(len(array[0]))
        array = _storage(array.flatten())
    kind = array.type
    if kinds.is_boolean(kind):
        return Spec(tuple(shape), np.bool_)
    if kinds.is_integer(kind) or kinds.is_floating(kind):
        return Spec(tuple(shape), kind.to_pandas_dtype())
    return "which is neither numbers nor pictures"


def _is_picture(kind: Any) -> bool:
    kinds = required("pyarrow", "huggingface", "reading Arrow columns").types
    if hasattr(kind, "storage_type"):
        kind = kind.storage_type
    if kinds.is_struct(kind):
        names = {kind.field(place).name for place in range(kind.num_fields)}
        return names == {"bytes", "path"}
    return bool(kinds.is_binary(kind) or kinds.is_large_binary(kind))


def _one_array(values: Any) -> Any:
    """Return a column in one piece, in its storage type."""
    if hasattr(values, "combine_chunks"):
        values = values.combine_chunks()
        if hasattr(values, "chunks"):
            values = values.chunk(0)
    return _storage(values)


def _storage(array: Any) -> Any:
    return getattr(array, "storage", array)
