"""Readers of one file: by compiled code record by record, in groups, or by the array_record package."""

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError
from loaderx.kernels import chunks
from loaderx.sources.open_files import OpenFiles

from .file import Bytes, ForeignKindError, Metadata, Numbers, RecordFile, reopened

# Size of the cache of decompressed chunks, which the next batch may need again.
CACHE_BYTES = 128 * 1024 * 1024


class Reader(ABC):
    """Reader of the records of one file."""

    path: Path
    metadata: Metadata

    def __len__(self) -> int:
        return self.metadata.records

    def check_size(self) -> None:
        """Raise if a mapped file shrank."""
        return

    @abstractmethod
    def records(self, numbers: Sequence[int]) -> list[Bytes]:
        """Return these records."""

    def sizes(self, numbers: Numbers) -> Numbers:
        """Return the sizes of these records in bytes."""
        return np.array([len(record) for record in self.records(numbers.tolist())], np.int64)

    def heads(self, numbers: Numbers, count: int) -> tuple[Numbers, list[Bytes]]:
        """Return the sizes of these records, and at most the first `count` bytes of each."""
        records = self.records(numbers.tolist())
        sizes = np.array([len(record) for record in records], np.int64)
        return sizes, [record[:count] for record in records]


class DirectReader(Reader):
    """Reader of a file of one record per chunk."""

    def __init__(self, file: RecordFile) -> None:
        self.file = file
        self.path = file.path
        self.metadata = file.metadata

    def __reduce__(self) -> tuple[Any, ...]:
        return DirectReader, (self.file,)

    def records(self, numbers: Sequence[int]) -> list[Bytes]:
        return [self.file.read_chunk(number)[0] for number in numbers]

    def sizes(self, numbers: Numbers) -> Numbers:
        return self.file.sizes[numbers].astype(np.int64)

    def check_size(self) -> None:
        self.file.check_size()


class ChunkFile(Protocol):
    """File of chunks that are decompressed as a whole."""

    def read_chunk(self, number: int) -> tuple[Bytes, Numbers]:
        """Return the bytes of a chunk, and the end of each record."""

    def __hash__(self) -> int: ...


class ChunkCache:
    """LRU cache of decompressed chunks of all files of a data set. Threads that need one chunk at once read it once.

    most  bound in bytes; None is `CACHE_BYTES`
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._chunks: OrderedDict[tuple[ChunkFile, int], tuple[Bytes, Numbers]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._busy: dict[tuple[ChunkFile, int], threading.Lock] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkCache, (self._most,)

    def chunk(self, file: ChunkFile, number: int) -> tuple[Bytes, Numbers]:
        """Return a chunk of a file, which is read if it is not in the cache."""
        key = (file, number)
        most = CACHE_BYTES if self._most is None else self._most
        with self._lock:
            if key in self._chunks:
                self._chunks.move_to_end(key)
                return self._chunks[key]
            busy = self._busy.setdefault(key, threading.Lock())
        with busy:
            with self._lock:
                if key in self._chunks:
                    self._chunks.move_to_end(key)
                    return self._chunks[key]
            try:
                chunk = file.read_chunk(number)
                size = chunk[0].nbytes + chunk[1].nbytes
                with self._lock:
                    # A thread that waited until the chunk was in the cache and evicted again may read at the same time
                    # as a later thread: only one of them may count.
                    if size <= most and key not in self._chunks:
                        self._chunks[key] = chunk
                        self._bytes += size
                    while self._bytes > most:
                        _, (values, ends) = self._chunks.popitem(last=False)
                        self._bytes -= values.nbytes + ends.nbytes
            finally:
                with self._lock:
                    self._busy.pop(key, None)
        return chunk


class GroupReader(Reader):
    """Reader of a file of several records per chunk, which are decompressed together."""

    def __init__(self, file: RecordFile, cache: ChunkCache) -> None:
        self._file = file
        self.path = file.path
        self.metadata = file.metadata
        self._cache = cache

    def __reduce__(self) -> tuple[Any, ...]:
        return GroupReader, (self._file, self._cache)

    def records(self, numbers: Sequence[int]) -> list[Bytes]:
        wanted = np.asarray(numbers, np.int64)
        groups = wanted // self._file.group
        found: list[Bytes] = [np.empty(0, np.uint8)] * len(wanted)
        # One after the other: the chunks of a batch may need more memory than there is.
        for group in np.unique(groups).tolist():
            values, ends = self._cache.chunk(self._file, group)
            for place in np.flatnonzero(groups == group):
                number = int(wanted[place] - group * self._file.group)
                if number >= len(ends):
                    raise self._file.failure(f"record {wanted[place]}", chunks.CONTRADICTION)
                start = int(ends[number - 1]) if number else 0
                # A copy: a view would keep the whole chunk alive.
                found[place] = values[start : ends[number]].copy()
        return found


class PackageReader(Reader):
    """Reader of a file by the array_record package."""

    def __init__(self, path: Path) -> None:
        from array_record.python.array_record_module import ArrayRecordReader

        self.path = path
        self._absolute = path.absolute()
        # The package does not document whether several threads may use one reader.
        self._threads = threading.local()
        # By descriptor: the path may name another file, or none, when another thread begins to read.
        number = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, number)
        self._open: Callable[[], Any] = lambda: ArrayRecordReader(f"/dev/fd/{number}")
        reader = self._open()
        if not reader.ok():
            raise DataError(f"{path} cannot be opened by the array_record package.")
        self.metadata = Metadata(reader.num_records(), 0, reader.writer_options_string(), None)

    def __deepcopy__(self, memo: dict[int, Any]) -> "PackageReader":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (PackageReader, (self._absolute,), self.metadata)

    def records(self, numbers: Sequence[int]) -> list[Bytes]:
        reader = getattr(self._threads, "reader", None)
        if reader is None:
            reader = self._threads.reader = self._open()
        try:
            found: list[bytes] = reader.read(list(numbers)) if len(numbers) else []
        except RuntimeError as error:
            raise DataError(
                f"{self.path}, one of the records {list(numbers)[:8]}: {error}"
            ) from error
        return [np.frombuffer(record, np.uint8) for record in found]


def open_reader(
    path: Path, verify: int, mapped: bool, cache: ChunkCache, files: OpenFiles | None = None
) -> Reader:
    """Return the fastest reader for the records of a file. The files of a data set share `cache` and `files`."""
    file = None
    try:
        file = RecordFile(path, verify, mapped, files)
        if len(file):
            # All chunks of a file are of one kind. If this one is damaged, a read of it raises later.
            file.read_chunk(0)
    except ForeignKindError:
        return PackageReader(path)
    except DataError:
        if file is None:
            raise
    return DirectReader(file) if file.group == 1 else GroupReader(file, cache)


def as_row(record: Bytes, row: NDArray[np.uint8], step: int, padding: Bytes) -> int:
    """Copy a record into the memory of a row; return 0, or the reason why it does not fit."""
    if step == 0 and len(record) != len(row):
        return chunks.ROW_SIZE
    if step > 0 and len(record) % step:
        return chunks.STEP_SIZE
    count = min(len(record), len(row))
    row[:count] = record[:count]
    row[count:] = padding[count:]
    return 0
