"""Ways to the records of a file: by compiled code one by one, in groups, or by the array_record package."""

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError
from loaderx.kernels import chunks

from .file import Bytes, ForeignKindError, Metadata, Numbers, RecordFile, reopened

# Decompressed chunks that are kept because the next batch may need them again.
KEPT_BYTES = 128 * 1024 * 1024


class Reader(ABC):
    """The records of one file."""

    path: Path
    metadata: Metadata

    def __len__(self) -> int:
        return self.metadata.records

    def check_size(self) -> None:
        """Raise if the file shrank and is mapped."""
        return

    @abstractmethod
    def records(self, numbers: Sequence[int]) -> list[Bytes]:
        """The bytes of these records."""

    def sizes(self, numbers: Numbers) -> Numbers:
        """How many bytes these records have."""
        return np.array([len(record) for record in self.records(numbers.tolist())], np.int64)


class DirectReader(Reader):
    """A file of one record per chunk."""

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


class ChunkCache:
    """Decompressed chunks of all files of a data set, those used last. Threads that need one at once wait for it."""

    def __init__(self) -> None:
        self._chunks: OrderedDict[tuple[RecordFile, int], tuple[Bytes, Numbers]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._busy: dict[tuple[RecordFile, int], threading.Lock] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkCache, ()

    def chunk(self, file: RecordFile, number: int) -> tuple[Bytes, Numbers]:
        """A chunk of a file, which is read unless it is kept."""
        key = (file, number)
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
                    # A thread that waited until the chunk was there, and gone again, reads beside one that came later:
                    # both must not count.
                    if size <= KEPT_BYTES and key not in self._chunks:
                        self._chunks[key] = chunk
                        self._bytes += size
                    while self._bytes > KEPT_BYTES:
                        _, (values, ends) = self._chunks.popitem(last=False)
                        self._bytes -= values.nbytes + ends.nbytes
            finally:
                with self._lock:
                    self._busy.pop(key, None)
        return chunk


class GroupReader(Reader):
    """A file of several records per chunk, of which all must be decompressed for any of them."""

    def __init__(self, file: RecordFile, kept: ChunkCache) -> None:
        self._file = file
        self.path = file.path
        self.metadata = file.metadata
        self._kept = kept

    def __reduce__(self) -> tuple[Any, ...]:
        return GroupReader, (self._file, self._kept)

    def records(self, numbers: Sequence[int]) -> list[Bytes]:
        wanted = np.asarray(numbers, np.int64)
        groups = wanted // self._file.group
        found: list[Bytes] = [np.empty(0, np.uint8)] * len(wanted)
        # One after the other: a batch may need more chunks than there is memory for.
        for group in np.unique(groups).tolist():
            values, ends = self._kept.chunk(self._file, group)
            for place in np.flatnonzero(groups == group):
                number = int(wanted[place] - group * self._file.group)
                if number >= len(ends):
                    raise self._file.failure(f"record {wanted[place]}", chunks.CONTRADICTION)
                start = int(ends[number - 1]) if number else 0
                # A copy, or the whole chunk would stay.
                found[place] = values[start : ends[number]].copy()
        return found


class PackageReader(Reader):
    """A file that only the array_record package reads."""

    def __init__(self, path: Path) -> None:
        from array_record.python.array_record_module import ArrayRecordReader

        self.path = path
        self._absolute = path.absolute()
        # It does not say whether several threads may use one.
        self._threads = threading.local()
        # By number: the path may name another file, or none, when another thread begins to read.
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


def open_reader(path: Path, verify: int, mapped: bool, kept: ChunkCache) -> Reader:
    """The fastest way there is to the records of a file."""
    file = None
    try:
        file = RecordFile(path, verify, mapped)
        if len(file):
            # The chunks of a file are all of one kind. If this one is damaged, that is said when it is read.
            file.read_chunk(0)
    except ForeignKindError:
        return PackageReader(path)
    except DataError:
        if file is None:
            raise
    return DirectReader(file) if file.group == 1 else GroupReader(file, kept)


def as_row(record: Bytes, row: NDArray[np.uint8], step: int, padding: Bytes) -> int:
    """Copy a record into the memory of a row; 0, or why it does not fit."""
    if step == 0 and len(record) != len(row):
        return chunks.ROW_SIZE
    if step > 0 and len(record) % step:
        return chunks.STEP_SIZE
    count = min(len(record), len(row))
    row[:count] = record[:count]
    row[count:] = padding[count:]
    return 0
