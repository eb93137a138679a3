"""Output files of a conversion: .npy and ArrayRecord files that grow in a workspace and can be resumed."""

import contextlib
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from loaderx.sources.records.content import Content
from loaderx.sources.records.cursor import FileCursor, PlacedChunks, frame, signature
from loaderx.sources.records.encoding import Encoding
from loaderx.sources.records.footer import trailer
from loaderx.sources.records.inputs import contiguous_records
from loaderx.spec import Spec

from .terminal import UsageError

# JSON for the journal; `bytes` is the size of the file.
State = dict[str, Any]


class Output(ABC):
    """File of a known number of rows that grows in `folder`. Blocks are encoded in threads, and appended in order."""

    def __init__(self, path: Path, folder: Path, spec: Spec, rows: int) -> None:
        self.path, self.spec, self.rows = path, spec, rows
        self.partial = folder / path.name
        self._file: BinaryIO | None = None

    @abstractmethod
    def encode(self, block: NDArray[Any]) -> Any:
        """Return the input of `append` for a block of rows."""

    @abstractmethod
    def append(self, encoded: Any) -> None:
        """Write a block."""

    @abstractmethod
    def _begin(self) -> None:
        """Write the bytes before the first row."""

    @abstractmethod
    def state(self) -> State:
        """Return the state that `open` needs to resume here."""

    def final_state(self) -> State:
        """Return the state of a finished file."""
        return {"bytes": self.partial.stat().st_size}

    def open(self, state: State | None) -> None:
        """Begin, or resume at a state."""
        if state is None:
            self._file = self.partial.open("wb")
            self._begin()
            return
        self._file = self.partial.open("r+b")
        self._file.truncate(state["bytes"])
        self._file.seek(state["bytes"])

    def usable(self, state: State) -> bool:
        """Return True if the unfinished file has the bytes of a state."""
        return self.partial.is_file() and self.partial.stat().st_size >= state["bytes"]

    @property
    def file(self) -> BinaryIO:
        """Open file."""
        assert self._file is not None
        return self._file

    def sync(self) -> None:
        """Sync the file to the disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def finish(self) -> None:
        """Write the bytes after the last row, and close."""
        self.sync()
        self.close()

    @property
    def names(self) -> list[str]:
        """Names of all its files in the folder."""
        return [self.partial.name]

    def close(self) -> None:
        """Close, finished or not. The journal's part of an unfinished file is on the disk already."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def publish(self) -> None:
        """Give the finished file its name."""
        self.partial.replace(self.path)


class NpyOutput(Output):
    """.npy file, byte for byte as `np.save` writes it."""

    def __init__(self, path: Path, folder: Path, spec: Spec, rows: int) -> None:
        super().__init__(path, folder, spec, rows)
        if np.dtype(spec.dtype.str) != spec.dtype:
            raise UsageError(
                f"{path}: a .npy file cannot represent {spec.dtype}; convert to an ArrayRecord file instead."
            )

    def encode(self, block: NDArray[Any]) -> Any:
        return np.ascontiguousarray(block, self.spec.dtype).reshape(-1).view(np.uint8).data

    def append(self, encoded: Any) -> None:
        self.file.write(encoded)

    def _begin(self) -> None:
        header = {
            "descr": np.lib.format.dtype_to_descr(self.spec.dtype),
            "fortran_order": False,
            "shape": (self.rows, *self.spec.shape),
        }
        np.lib.format.write_array_header_1_0(self.file, header)

    def state(self) -> State:
        return {"bytes": self.file.tell()}


class RecordOutput(Output):
    """ArrayRecord file, byte for byte as `write_array_record` writes it; its index grows in a second file."""

    def __init__(self, path: Path, folder: Path, spec: Spec, rows: int, encoding: Encoding) -> None:
        super().__init__(path, folder, spec, rows)
        self._encoding = encoding
        self._dtype = spec.dtype.newbyteorder("<")
        self._cursor = FileCursor()
        self._index_partial = folder / f"{path.name}.index"
        self._index: BinaryIO | None = None

    def encode(self, block: NDArray[Any]) -> Any:
        return self._encoding.encode(lambda: contiguous_records(block, self._dtype))

    def append(self, encoded: Any) -> None:
        chunks, begins = placed = self._cursor.place(encoded)
        self._write_chunks(placed)
        entries = np.stack([begins[:-1], chunks.decoded, chunks.records], axis=1)
        self.index.write(entries.astype(np.int64).tobytes())

    @property
    def index(self) -> BinaryIO:
        """Index file, with three numbers for each chunk: its position, its bytes and its records."""
        assert self._index is not None
        return self._index

    def open(self, state: State | None) -> None:
        self._index = self._index_partial.open("w+b" if state is None else "r+b")
        if state is not None:
            self._index.truncate(state["index"])
            self._index.seek(state["index"])
            self._cursor.position = state["bytes"]
        super().open(state)

    def usable(self, state: State) -> bool:
        return super().usable(state) and (
            "index" not in state
            or (
                self._index_partial.is_file()
                and self._index_partial.stat().st_size >= state["index"]
            )
        )

    def _begin(self) -> None:
        self._write_chunks(self._cursor.place(signature()))

    def _write_chunks(self, placed: PlacedChunks) -> None:
        self.file.write(frame(placed).data)

    def state(self) -> State:
        return {"bytes": self._cursor.position, "index": self.index.tell()}

    def sync(self) -> None:
        super().sync()
        if self._index is not None:
            self._index.flush()
            os.fsync(self._index.fileno())

    def finish(self) -> None:
        self.index.seek(0)
        entries = np.frombuffer(self.index.read(), np.int64).reshape(-1, 3)
        begins, decoded, records = np.ascontiguousarray(entries.T)
        index = [(begins, decoded, records)]
        for placed in trailer(self._cursor, index, self._encoding, self._content()):
            self._write_chunks(placed)
        super().finish()

    def _content(self) -> Content:
        """Return what the file notes of its records."""
        return Content(self._dtype, self.spec.shape)

    @property
    def names(self) -> list[str]:
        return [self.partial.name, self._index_partial.name]

    def close(self) -> None:
        super().close()
        if self._index is not None:
            with contextlib.suppress(OSError):
                self._index.close()
            self._index = None
