"""`ParquetDataset`: encoded images and numbers in Parquet files, with random access."""

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError, LoaderxError
from loaderx.sources.byte_rows import Buffer, FileRanges
from loaderx.sources.extras import require
from loaderx.sources.files import open_file
from loaderx.sources.records.paths import PathLike, record_paths
from loaderx.sources.records.reader import ChunkCache
from loaderx.sources.source import FieldsSource, Source

from .declared import Numbers, declared_fields
from .examples import DamagedError
from .field import Encoded
from .index import Columns, Shard, indexed
from .parquet_columns import GroupedRows, ParquetColumns
from .parquet_footer import CODECS, READABLE, SNAPPY, STORED, Footer
from .parquet_pages import (
    BLOCK_BYTES,
    Blocks,
    NullError,
    locate_values,
    snappy_stream,
    unpacked_page,
)
from .shards import Fields, field_sources, is_consistent

# Columns of an index that are not fields: the rows of each row group, and the blocks of a field.
GROUPS, BLOCKS = "\0groups", "\0blocks "
# Larger blocks, which are whole pages, are kept in the cache: they have many rows.
MOST_UNCACHED = 2 * BLOCK_BYTES
CACHE_BYTES = 1 << 28
# A scan holds a page in memory, which may be all of a column chunk.
SCANS_AT_ONCE = 4


class ParquetDataset(FieldsSource):
    """Rows of Parquet files with encoded images and numbers, in any order.

    path         a file, a pattern such as "train-*.parquet" or "train-{00000..00041}-of-00042.parquet", or a list of
                 these
    fields       the fields of a row by their columns: `Encoded("image.bytes")` is the encoded image in the column
                 "bytes" of the struct "image", and so is `Encoded("image")`; ("int64", "label") a number,
                 ("float32", "box", (4,)) a list of numbers of one length. A name alone, such as "label", has the
                 dtype of the column
    cache_bytes  bound of the cache of decompressed pages; a larger page is not kept

    The files are read once. An index with the places of the images and with the numbers is kept next to each file or in
    the cache folder. From then on only the bytes of an image are read if its column is not compressed, as `datasets` of
    Hugging Face writes it since version 5, and little more if it is compressed with Snappy, the default of most
    writers. With Zstd and other codecs a whole page must be decompressed, often all of a row group. Such pages are kept
    in the cache. A warning says if they do not fit.

        train = lx.ParquetDataset(
            "train-*.parquet", {"image": lx.Encoded("image.bytes"), "label": "label"}
        )
    """

    def __init__(
        self,
        path: PathLike | Sequence[PathLike],
        fields: Mapping[str, Any],
        *,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        if type(cache_bytes) is not int or cache_bytes < 0:
            raise ArgumentError(
                f"`cache_bytes` (={cache_bytes!r}) must be a number of bytes of at least 0."
            )
        paths = [file.absolute() for file in record_paths(path, "a Parquet file")]
        declared = declared_fields(fields, partial(_by_column, paths[0]))
        scan = _Scan(declared)
        found = indexed(paths, "a Parquet file", scan.request, scan, scan.accepts)
        names = GroupedRows([columns[GROUPS].tolist() for columns, _ in found])
        cache = ChunkCache(cache_bytes)
        sources: dict[str, Source] = {}
        for name, field in declared.items():
            rows_of = FileRanges
            if isinstance(field, Encoded):
                tables = [columns[BLOCKS + name] for columns, _ in found]
                rows_of = partial(BlockRanges, tables=tables, cache=cache)  # type: ignore[assignment]
                _warn_of_pages(paths[0], name, tables, cache_bytes)
            sources |= field_sources(paths, found, {name: field}, names, rows_of)
        super().__init__(sources)


class BlockRanges(FileRanges):
    """Ranges of the unpacked bytes of blocks, of which those that a row needs are decompressed.

    tables  the blocks of each file, as `Blocks.table` returns them
    """

    def __init__(
        self, *ranges: Any, tables: Sequence[NDArray[np.int64]], cache: ChunkCache
    ) -> None:
        super().__init__(*ranges)
        self._cache = cache
        # The unpacked bytes of all files follow one another.
        self._firsts = np.cumsum([0, *(int(table[-1, 0]) for table in tables)])
        self._blocks_before = np.cumsum([0, *(len(table) - 1 for table in tables)])
        columns = np.concatenate([table[:-1] for table in tables]).T.copy()
        columns[0] += np.repeat(self._firsts[:-1], np.diff(self._blocks_before))
        self._begins = np.append(columns[0], self._firsts[-1])
        self._packed, self._packed_lengths = columns[1], columns[2]
        self._codecs = columns[3].astype(np.uint8)

    def read(self, row: int) -> Buffer:
        file, length = int(self._files[row]), int(self._lengths[row])
        if length == 0:
            return b""
        begin = int(self._offsets[row] + self._firsts[file])
        first = int(np.searchsorted(self._begins, begin, side="right")) - 1
        inside = begin - int(self._begins[first])
        if self._codecs[first] == STORED:
            return self.bytes_at(row, int(self._packed[first]) + inside, length)
        last = int(np.searchsorted(self._begins, begin + length, side="left")) - 1
        size = int(self._begins[last + 1] - self._begins[first])
        try:
            if first == last and size > MOST_UNCACHED:
                page, _ = self._cache.chunk(self, first)
                # A copy: a view would keep the page in memory when the cache has dropped it.
                return page[inside : inside + length].tobytes()
            return bytes(self._unpacked(first, last)[inside : inside + length])
        except DamagedError as error:
            raise DataError(f"{self.where(row)}: {error}.") from error

    def read_chunk(self, number: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the unpacked bytes of a block, for the cache."""
        return np.frombuffer(self._unpacked(number, number), np.uint8), np.empty(0, np.int64)

    def _unpacked(self, first: int, last: int) -> Buffer:
        """Return the unpacked bytes of blocks that follow one another."""
        file = int(np.searchsorted(self._blocks_before, first, side="right")) - 1
        begin = int(self._packed[first])
        length = int(self._packed[last] + self._packed_lengths[last]) - begin
        data = self.bytes_of(file, begin, length)
        if len(data) < length:
            raise DamagedError("the file has been cut since it was opened")
        size = int(self._begins[last + 1] - self._begins[first])
        codec = int(self._codecs[first])
        if codec == SNAPPY:
            data = snappy_stream(size, data)
        return unpacked_page(codec, data, size)


class _Scan:
    """Scan of Parquet files for some columns."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._few = threading.BoundedSemaphore(SCANS_AT_ONCE)
        self.request = [BLOCK_BYTES] + [
            [name, field.field, None]
            if isinstance(field, Encoded)
            else [name, field.field, field.spec.dtype.str, field.spec.shape]
            for name, field in fields.items()
        ]

    def accepts(self, columns: Columns, size: int) -> bool:
        """Return True if an index has what this scan finds."""
        groups = columns.get(GROUPS)
        if groups is None or groups.dtype != np.int64 or groups.ndim != 1 or np.any(groups < 0):
            return False
        for name, field in self._fields.items():
            end = size
            if isinstance(field, Encoded):
                table = columns.get(BLOCKS + name)
                if table is None or not _is_table(table, size):
                    return False
                end = int(table[-1, 0])
            if not is_consistent(columns, {name: field}, end):
                return False
            if len(columns[name]) != groups.sum():
                return False
        return True

    def __call__(self, shard: Shard) -> Columns:
        with self._few, _parquet(shard) as columns:
            found = self._scanned(shard, columns)
        shard.reached(shard.size)
        return found

    def _scanned(self, shard: Shard, columns: ParquetColumns) -> Columns:
        encoded = {
            name: columns.leaf(name, field)
            for name, field in self._fields.items()
            if isinstance(field, Encoded)
        }
        found = columns.numbers(
            {name: field for name, field in self._fields.items() if isinstance(field, Numbers)}
        )
        blocks = {name: Blocks() for name in encoded}
        places: dict[str, list[NDArray[np.int64]]] = {
            name: [np.empty((0, 2), np.int64)] for name in encoded
        }
        for group in np.flatnonzero(columns.footer.rows).tolist():
            for name, number in encoded.items():
                what = f"{shard.path}, row group {group}, column {columns.names[number]!r}"
                try:
                    chunk = columns.footer.chunk(group, number)
                    levels = columns.levels(number)
                    places[name].append(
                        locate_values(shard.read, chunk, levels, blocks[name], shard.reached)
                    )
                except NullError as null:
                    row = sum(columns.footer.rows[:group]) + null.row
                    raise DataError(
                        f"{columns.where(row)}: the column {columns.names[number]!r} of the field {name!r} is null. "
                        "Leave such rows out, or embed images of which only the path is stored."
                    ) from None
                except DamagedError as error:
                    raise DataError(f"{what}: {error}.") from error
        for name in encoded:
            found[name] = np.concatenate(places[name])
            found[BLOCKS + name] = blocks[name].table()
        return {**found, GROUPS: np.array(columns.footer.rows, np.int64)}


@contextmanager
def _parquet(shard: Shard) -> Iterator[ParquetColumns]:
    """Open a Parquet file by pyarrow, and name it in what pyarrow raises."""
    arrow = require("pyarrow", "parquet", "ParquetDataset")
    parquet = require("pyarrow.parquet", "parquet", "ParquetDataset")
    footer = Footer(shard)
    try:
        with shard.opened() as file, parquet.ParquetFile(file, pre_buffer=False) as opened:
            yield ParquetColumns(shard.path, footer, opened)
    except LoaderxError:
        raise
    except (
        arrow.ArrowException,
        OSError,
        ValueError,
    ) as error:  # Such as a name that is not UTF-8.
        raise DataError(f"{shard.path} is damaged, or cannot be read: {error}") from error


def _by_column(path: Path, name: str) -> Encoded | Numbers:
    with (
        open_file(path, "a Parquet file") as file,
        _parquet(Shard(path, file, lambda _: None)) as columns,
    ):
        return columns.plain(name)


def _is_table(table: NDArray[Any], size: int) -> bool:
    """Return True if blocks follow one another, and are inside of a file of that size."""
    if table.dtype != np.int64 or table.ndim != 2 or table.shape[1] != 4 or len(table) == 0:
        return False
    begins, (_, packed, lengths, codecs) = table[:, 0], table[:-1].T
    sizes = np.diff(begins)
    return bool(
        begins[0] == 0
        and np.all((sizes > 0) & (sizes < 1 << 31))
        and np.all((packed >= 0) & (lengths >= 0) & (packed <= size) & (lengths <= size - packed))
        and np.isin(codecs, READABLE).all()
    )


def _warn_of_pages(
    path: Path, name: str, tables: Sequence[NDArray[np.int64]], cache_bytes: int
) -> None:
    """Warn if most rows that are read in random order need a page that is not in the cache."""
    sizes = np.concatenate([np.diff(table[:, 0]) for table in tables])
    codecs = np.concatenate([table[:-1, 3] for table in tables])
    whole = (codecs != STORED) & (sizes > MOST_UNCACHED)
    large = sizes[whole]
    if large.sum() > cache_bytes:
        codec = CODECS[int(codecs[whole][0])]
        warnings.warn(
            f"the field {name!r} of {path} is compressed with {codec} in pages of {large.mean() / 1e6:.1f} MB, and "
            f"all {large.sum() / 1e6:.0f} MB of them do not fit into `cache_bytes` (={cache_bytes}): in random order "
            "nearly every row decompresses a page. Raise `cache_bytes`, or write the files again without compression, "
            "which hardly makes images larger.",
            stacklevel=3,
        )
