"""Rows of bytes: where the bytes of each row are, whatever the container."""

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError

from .files import open_file

Buffer: TypeAlias = bytes | memoryview
# Open files are kept, but not so many that a process reaches its limit, which is 1,024 by default.
MOST_OPEN = 64


class ByteRows(ABC):
    """Rows of bytes, each a part of a file."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def fetch(self, rows: NDArray[np.int64]) -> list[Buffer]:
        """Return the bytes of each row. Several threads may call it at once."""

    @abstractmethod
    def where(self, row: int) -> str:
        """Return where a row is, for messages: its file, and its place or name there."""


class FileRanges(ByteRows):
    """Rows that are ranges of files: row r is `lengths[r]` bytes at `offsets[r]` of the file `paths[files[r]]`.

    `names`, if there are any, say for messages which row of its file each is.
    `stamps` are the sizes and times of modification of the files when the ranges were found; a file that has another
    one now is refused.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        files: NDArray[np.int32],
        offsets: NDArray[np.int64],
        lengths: NDArray[np.int64],
        names: Sequence[str] | None = None,
        stamps: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self._paths = tuple(paths)
        self._files, self._offsets, self._lengths = files, offsets, lengths
        self._names = names
        self._stamps = stamps
        self._open_files()

    def _open_files(self) -> None:
        self._lock = threading.Lock()
        self._descriptors: OrderedDict[int, _Descriptor] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        own = ("_lock", "_descriptors")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open_files()

    def __len__(self) -> int:
        return len(self._files)

    def fetch(self, rows: NDArray[np.int64]) -> list[Buffer]:
        return [self.read(row) for row in rows.tolist()]

    def where(self, row: int) -> str:
        path = self._paths[self._files[row]]
        if self._names is not None:
            return f"{path}, {self._names[row]}"
        return f"{path}, {self._lengths[row]} bytes at {self._offsets[row]}"

    def read(self, row: int) -> Buffer:
        """Return the bytes of a row."""
        return self.bytes_at(row, int(self._offsets[row]), int(self._lengths[row]))

    def bytes_at(self, row: int, offset: int, length: int) -> bytes:
        """Return bytes of the file of a row."""
        found = self._descriptor(int(self._files[row])).read(length, offset)
        if len(found) < length:
            raise DataError(
                f"{self.where(row)}: the file ends after {len(found)} of these bytes; it has been cut since it was "
                "opened."
            )
        return found

    def _descriptor(self, file: int) -> "_Descriptor":
        """Return an open file. Another thread may drop it meanwhile: it is closed when nobody reads it."""
        with self._lock:
            found = self._descriptors.get(file)
            if found is None:
                stamp = None if self._stamps is None else self._stamps[file]
                found = self._descriptors[file] = _Descriptor(self._paths[file], stamp)
                if len(self._descriptors) > MOST_OPEN:
                    self._descriptors.popitem(last=False)
            self._descriptors.move_to_end(file)
            return found


class _Descriptor:
    """Open file, read at any place by any thread."""

    def __init__(self, path: Path, stamp: tuple[int, int] | None) -> None:
        with open_file(path, "a file of images") as file:
            status = os.fstat(file.fileno())
            if stamp is not None and stamp != (status.st_size, status.st_mtime_ns):
                raise DataError(
                    f"{path} has changed since it was indexed: it is {status.st_size} bytes now and was {stamp[0]}. "
                    "Open the data set anew."
                )
            # Closed when the last thread that reads it is done.
            self._number = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._number)

    def read(self, length: int, offset: int) -> bytes:
        # Not mapped: reading a mapped file that was cut ends the process.
        return os.pread(self._number, length, offset)
