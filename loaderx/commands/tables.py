"""Input tables: columns of rows, in blocks, from .npy, .npz and ArrayRecord files."""

import math
import tempfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError, LoaderxError
from loaderx.sources.encoded.bagz import bagz_names
from loaderx.sources.npy import MappedFile, read_header
from loaderx.sources.records.dataset import ARDataset
from loaderx.sources.records.encoding import Encoding
from loaderx.sources.records.file import VERIFY
from loaderx.sources.records.paths import record_paths
from loaderx.sources.records.reader import ChunkCache, Reader, open_reader
from loaderx.spec import Spec

from .outputs import RecordOutput, State
from .terminal import UsageError, readable_bytes, readable_shape

# Of each column an array, or a list of what only one kind of output knows.
Block = dict[str, Any]
Range = tuple[int, int]
# Limit for a row of compressed data, of which a few are unpacked at once: a small file can hold any number of bytes.
MAX_ROW_BYTES = 1 << 28
# Exceptions of zipfile on archives that are damaged, encrypted or compressed by an unknown method.
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError)


@dataclass(frozen=True)
class Column:
    """Column of a table; `classes` are the names of its integers."""

    name: str
    spec: Spec
    classes: tuple[str, ...] | None = None

    @property
    def row_bytes(self) -> int:
        """Size of a row, by which the size of a block is chosen."""
        return self.spec.nbytes

    @property
    def image_fields(self) -> list[str]:
        """Names of the fields that are encoded images."""
        return []

    @property
    def class_names(self) -> dict[str, tuple[str, ...]]:
        """Names of classes of each field that has some."""
        return {} if self.classes is None else {self.name: self.classes}

    def record_file(self, path: Path, folder: Path, rows: int, encoding: Encoding) -> RecordOutput:
        """Return the ArrayRecord file to which rows of this column are written."""
        return RecordOutput(path, folder, self.spec, rows, encoding)

    def summary(self, states: Sequence[State]) -> list[str]:  # noqa: ARG002 - of other columns
        """Return lines about what was done with the rows, from the final states of the files."""
        return []

    def __str__(self) -> str:
        return f"{self.name} {self.spec}"


class Table(ABC):
    """Columns of the same number of rows."""

    rows: int
    columns: Sequence[Column]

    @abstractmethod
    def blocks(self, ranges: Iterable[Range]) -> Iterator[Callable[[], Block]]:
        """Yield the rows of ascending ranges, each as a function for a thread to call."""


@dataclass
class Input:
    """Tables of a source, a stamp that changes with the source, and notes on what is not read."""

    tables: list[Table]
    identity: Any
    left_out: list[str] = field(default_factory=list)


class NpyTable(Table):
    """.npy file."""

    def __init__(self, path: Path, name: str = "data") -> None:
        self.file = MappedFile(path)
        array = self.file.array
        if array.ndim == 0:
            raise DataError(
                f"{path} holds a single value of shape (); rows need at least one axis."
            )
        self.rows = len(array)
        self.columns = [Column(name, Spec(array.shape[1:], array.dtype))]

    def blocks(self, ranges: Iterable[Range]) -> Iterator[Callable[[], Block]]:
        name = self.columns[0].name
        for start, stop in ranges:
            self.file.check()
            part = self.file.array[start:stop]
            yield lambda part=part: {name: np.ascontiguousarray(part)}  # type: ignore[misc]


class NpzTable(Table):
    """Array of a .npz file, which is decompressed from beginning to end."""

    def __init__(self, path: Path, member: str) -> None:
        self._path, self._member = path, member
        name = member.removesuffix(".npy")
        with zipfile.ZipFile(path) as archive:
            self.info = archive.getinfo(member)
            with self._errors(), archive.open(member) as stream:
                shape, self.order, dtype = read_header(stream, Path(f"{path}, array {name!r}"))  # type: ignore[arg-type]
                self._offset = stream.tell()
        if not shape:
            raise DataError(
                f"{path}, array {name!r} holds a single value of shape (); rows need at least one axis."
            )
        self.rows = shape[0]
        self.columns = [Column(name, Spec(shape[1:], dtype))]

    def _check_sizes(self) -> None:
        """Raise before memory is allocated for bytes that the archive does not hold, or for too much at once."""
        what = f"{self._path}, array {self.columns[0].name!r}"
        row_bytes = self.columns[0].spec.nbytes
        needed = self._offset + self.rows * row_bytes
        if self.info.file_size < needed:
            raise DataError(
                f"{what} is truncated: its header promises {needed:,} bytes, it has {self.info.file_size:,}."
            )
        if row_bytes > MAX_ROW_BYTES:
            raise DataError(
                f"{what}: a row has {readable_bytes(row_bytes)}, and at most {readable_bytes(MAX_ROW_BYTES)} are "
                "unpacked in memory; unpack the archive with `unzip`, and give the .npy file."
            )

    def _errors(self) -> "_ZipErrors":
        return _ZipErrors(f"{self._path}, array {self._member.removesuffix('.npy')!r}")

    def blocks(self, ranges: Iterable[Range]) -> Iterator[Callable[[], Block]]:
        (column,) = self.columns
        row_bytes = column.spec.nbytes
        self._check_sizes()
        with zipfile.ZipFile(self._path) as archive:
            with self._errors():
                stream = archive.open(self._member)
            with stream:
                if self.order == "F" and self.rows > 1 and math.prod(column.spec.shape) > 1:
                    with self._errors():
                        array = self._unpacked(stream)
                    for start, stop in ranges:
                        yield lambda part=array[start:stop]: {  # type: ignore[misc]
                            column.name: np.ascontiguousarray(part)
                        }
                    return
                for start, stop in ranges:
                    with self._errors():
                        stream.seek(self._offset + start * row_bytes)
                        values = stream.read((stop - start) * row_bytes)
                        if len(values) != (stop - start) * row_bytes:
                            raise EOFError("it ends before its last row")
                    block = np.frombuffer(values, column.spec.dtype)
                    block = block.reshape(stop - start, *column.spec.shape)
                    yield lambda block=block: {column.name: block}  # type: ignore[misc]

    def _unpacked(self, stream: IO[bytes]) -> NDArray[Any]:
        """Unpack an array in Fortran order, whose rows are strided, into an unnamed file and map it."""
        (column,) = self.columns
        with tempfile.TemporaryFile() as file:
            stream.seek(self._offset)
            while piece := stream.read(1 << 22):
                file.write(piece)
            file.flush()
            shape = (self.rows, *column.spec.shape)
            return np.memmap(file, column.spec.dtype, "r", 0, shape, "F")

    def verify(self, seen: Callable[[int], Any]) -> None:
        """Read all of it, which compares the checksum of the array."""
        with (
            zipfile.ZipFile(self._path) as archive,
            self._errors(),
            archive.open(self._member) as stream,
        ):
            while piece := stream.read(1 << 22):
                seen(len(piece))


class _ZipErrors:
    """Context manager that turns exceptions of zipfile into a DataError."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ZIP_ERRORS):
            raise DataError(f"{self._what}: {error}") from error


class RecordTable(Table):
    """ArrayRecord files whose records are arrays of one shape, or are padded to one by `pad_to`."""

    def __init__(
        self,
        path: str,
        dtype: str | None = None,
        shape: Sequence[int | None] | None = None,
        pad_to: int | None = None,
    ) -> None:
        noted = record_readers(path)[0].metadata.row or {}
        if dtype is None and "fields" in noted:
            raise UsageError(
                f"{path}: its records have several fields, which only --jpeg converts; `lx.ARDataset` reads "
                "them as they are."
            )
        if dtype is None and "dtype" not in noted:
            raise UsageError(
                f"{path}: nothing in the file says what its records hold; give --dtype and --shape."
            )
        lengths = noted.get("shape", ()) if shape is None else shape
        if pad_to is None and list(lengths)[:1] == [None]:
            raise UsageError(
                f"{path}: its records have different lengths, {readable_shape(lengths)}; give --pad-to N, "
                "the length to which they are padded or cut."
            )
        opened: Any = ARDataset
        self._dataset = opened(path, dtype, shape, pad_to=pad_to)
        self.rows = len(self._dataset)
        spec = self._dataset.spec
        fields = spec if isinstance(spec, dict) else {"data": spec}
        self.columns = [Column(name, row) for name, row in fields.items()]

    def blocks(self, ranges: Iterable[Range]) -> Iterator[Callable[[], Block]]:
        for start, stop in ranges:
            yield lambda start=start, stop=stop: self._read(start, stop)  # type: ignore[misc]

    def _read(self, start: int, stop: int) -> Block:
        block = {
            column.name: np.empty((stop - start, *column.spec.shape), column.spec.dtype)
            for column in self.columns
        }
        self._dataset.read(np.arange(start, stop, dtype=np.int64), list(block.values()))
        return block


def record_readers(path: str) -> list[Reader]:
    """Return the readers of an ArrayRecord file, or of all files of a set."""
    cache = ChunkCache()
    return [open_reader(file, VERIFY["first"], True, cache) for file in record_paths(path)]


def kind_of(path: str) -> str:
    """Return the kind of a file by its content: "folder", "npy", "npz", "parquet" or "records"."""
    if not path:
        raise UsageError("the name of a file is empty; give the path of a file.")
    file = Path(path)
    if file.is_dir():
        return "folder"
    if not file.exists():
        # The path may be the name of a set of files, or a pattern.
        for name in bagz_names(path):
            record_paths(name)
        return "records"
    if not file.is_file():
        raise DataError(f"{path} is not a regular file.")
    with file.open("rb") as opened:
        start = opened.read(6)
    if start == b"":
        raise DataError(f"{path} is empty.")
    if start == b"\x93NUMPY":
        return "npy"
    if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return "npz"
    if start[:4] == b"PAR1":
        return "parquet"
    if file.suffix in (".npy", ".npz", ".parquet"):
        raise DataError(f"{path} is not a {file.suffix} file: it begins with {start!r}.")
    return "records"


def npz_tables(path: Path) -> tuple[list[NpzTable], list[str]]:
    """Return the arrays of a .npz file, and notes on the members that are not arrays of numbers."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except ZIP_ERRORS as error:
        raise DataError(f"{path} is not a .npz file: {error}") from error
    tables: list[NpzTable] = []
    left_out: list[str] = []
    for name in names:
        if not name.endswith(".npy"):
            left_out.append(f"{path}, {name!r} is not an array.")
            continue
        try:
            tables.append(NpzTable(path, name))
        except LoaderxError as error:
            left_out.append(str(error))
    if not tables:
        raise DataError(" ".join([f"{path} has no array of rows in it.", *left_out[:1]]))
    return tables, left_out


def stamp(files: Iterable[Path]) -> list[list[Any]]:
    """Return names, sizes and times of files, by which a later run notices that they changed."""
    found = []
    for file in files:
        facts = file.stat()
        found.append([str(file.resolve()), facts.st_size, facts.st_mtime_ns])
    return found
