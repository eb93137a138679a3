"""Rows of bytes: where the bytes of each row are, whatever the container."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError

from .open_files import OpenFiles, Stamp

Buffer: TypeAlias = bytes | memoryview


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
        stamps: Sequence[Stamp] | None = None,
    ) -> None:
        self._paths = tuple(paths)
        self._files, self._offsets, self._lengths = files, offsets, lengths
        self._names = names
        self._stamps = stamps
        self._open = OpenFiles()

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
        found = self.bytes_of(int(self._files[row]), offset, length)
        if len(found) < length:
            raise DataError(
                f"{self.where(row)}: the file ends after {len(found)} of these bytes; it has been cut since it was "
                "opened."
            )
        return found

    def bytes_of(self, file: int, offset: int, length: int) -> bytes:
        """Return bytes of a file, fewer at its end."""
        stamp = None if self._stamps is None else self._stamps[file]
        return self._open.read(self._paths[file], "a file of images", stamp, length, offset)
