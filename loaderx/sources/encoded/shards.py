"""Rows of indexed shards: the common part of the scans of containers with ranges of bytes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError
from loaderx.sources.array import NPDataset
from loaderx.sources.byte_rows import ByteRows, FileRanges
from loaderx.sources.source import Source

from .declared import Numbers
from .field import Encoded
from .index import Columns, Stamp
from .paths import CompactList, Strings
from .source import EncodedSource

Fields = Mapping[str, Encoded | Numbers]


class Numbered(CompactList):
    """Names of rows for messages: the number of each in its shard."""

    def __init__(self, counts: Sequence[int]) -> None:
        self._starts = np.cumsum([0, *counts], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def item(self, place: int) -> str:
        shard = int(np.searchsorted(self._starts, place, side="right")) - 1
        return f"record {place - int(self._starts[shard])}"


class Keyed(CompactList):
    """Names of rows for messages: the key of each."""

    def __init__(self, keys: Strings) -> None:
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)

    def item(self, place: int) -> str:
        return f"key {self.keys.item(place)!r}"


class RowColumns:
    """Columns of an index while a shard is scanned: a range for each encoded field, and the numbers."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._columns: dict[str, list[Any]] = {name: [] for name in fields}

    def add(self, values: Mapping[str, Any]) -> None:
        """Add a row: (offset, length) of each encoded field, and the value of each number."""
        for name, column in self._columns.items():
            column.append(values[name])

    def columns(self) -> Columns:
        """Return the columns as arrays."""
        found: Columns = {}
        for name, field in self._fields.items():
            values = self._columns[name]
            if isinstance(field, Encoded):
                found[name] = np.array(values, np.int64).reshape(-1, 2)
            else:
                shape = len(values), *field.spec.shape
                found[name] = np.array(values, field.spec.dtype).reshape(shape)
        return found


def is_consistent(columns: Columns, fields: Fields, size: int) -> bool:
    """Return True if the columns of an index have these fields, one length, and ranges inside of the shard."""
    counts = set()
    for name, field in fields.items():
        column = columns.get(name)
        if column is None:
            return False
        counts.add(len(column))
        if isinstance(field, Numbers):
            known = column.shape[1:] == field.spec.shape and column.dtype == field.spec.dtype
        else:
            known = column.ndim == 2 and column.shape[1] == 2 and is_inside(column, size)
        if not known:
            return False
    return len(counts) == 1


def is_inside(ranges: NDArray[Any], size: int) -> bool:
    """Return True if (offset, length) of each row is inside of a file of that size."""
    offsets, lengths = ranges[:, 0], ranges[:, 1]
    return bool(
        ranges.dtype == np.int64
        and np.all(
            (offsets >= 0) & (lengths >= 0) & (offsets <= size) & (lengths <= size - offsets)
        )
    )


def field_sources(
    paths: Sequence[Path],
    found: Sequence[tuple[Columns, Stamp]],
    fields: Fields,
    names: Sequence[str],
    rows_of: Callable[..., ByteRows] = FileRanges,
) -> dict[str, Source]:
    """Return the fields of the rows of indexed shards; `rows_of` has the arguments of `FileRanges`."""
    first = next(iter(fields))
    counts = [len(columns[first]) for columns, _ in found]
    if sum(counts) == 0:
        raise DataError(
            f"{paths[0]}{_more(paths)} no rows with the fields {list(fields)}. Compare their names in `fields` "
            "with those in the files."
        )
    files = np.repeat(np.arange(len(paths), dtype=np.int32), counts)
    stamps = [stamp for _, stamp in found]
    sources: dict[str, Source] = {}
    for name, field in fields.items():
        column = np.concatenate([columns[name] for columns, _ in found])
        if isinstance(field, Encoded):
            offsets, lengths = (np.ascontiguousarray(part) for part in column.T)
            rows = rows_of(paths, files, offsets, lengths, names, stamps)
            sources[name] = EncodedSource(rows, field)
        else:
            sources[name] = NPDataset(column)
    return sources


def joined_strings(parts: Iterable[tuple[NDArray[np.uint8], NDArray[np.int64]]]) -> Strings:
    """Return the texts of several indexes, each the bytes of its texts and the end of each, as one list."""
    memory: list[NDArray[np.uint8]] = []
    lengths: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
    for content, ends in parts:
        memory.append(content)
        lengths.append(ends - np.concatenate([[0], ends[:-1]]))
    return Strings.of(np.concatenate(memory).tobytes(), np.cumsum(np.concatenate(lengths)))


def _more(paths: Sequence[Path]) -> str:
    return f" and {len(paths) - 1} more files have" if len(paths) > 1 else " has"
