"""ArrayRecord file: opening, index, and positions of its records."""

import errno
import json
import mmap
import os
import resource
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError
from loaderx.kernels import chunks
from loaderx.kernels.blocks import BLOCK, BLOCK_HEADER, CHUNK_HEADER
from loaderx.sources.files import open_file
from loaderx.sources.open_files import OpenFiles

from .format import CONTENT_FIELD, FIRST_CHUNK, MAGIC
from .worker import worker

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
Verify = Literal["always", "first", "never"]
VERIFY: dict[str, int] = {"never": chunks.NEVER, "first": chunks.FIRST, "always": chunks.ALWAYS}

REASONS = {
    chunks.OUTSIDE: "its chunk extends beyond its range in the file",
    chunks.HEADER_HASH: "the hash of its chunk's header is wrong",
    chunks.DATA_HASH: "the hash of its chunk's data is wrong",
    chunks.KIND: "its chunk is of a kind that only the array_record package reads, unlike the first of the file",
    chunks.CONTRADICTION: "the sizes in its chunk contradict one another",
    chunks.MISPLACED: "its chunk is not the one that the index of the file says",
    chunks.FRAME: "its zstd frame cannot be decompressed",
    chunks.ROOM: "its chunk has another size than the index of the file says",
}


class ForeignKindError(DataError):
    """Intact chunk of a kind that the kernels do not read."""


@dataclass(frozen=True)
class Metadata:
    """Description of a file besides its records."""

    records: int
    chunks: int
    options: str
    row: dict[str, Any] | None


class RecordFile:
    """Open file, mapped, or read with `preadv` if it may shrink.

    A mapped file stays open. Others are opened by `files` when they are read, so there may be any number of them.
    """

    def __init__(
        self, path: Path, verify: int, mapped: bool, files: OpenFiles | None = None
    ) -> None:
        self.path = path
        self.verify = verify
        self._files = files or OpenFiles()
        # Absolute: the current folder may be another one when the file is opened again.
        self._absolute = path.absolute()
        self._arguments = self._absolute, verify, mapped, self._files
        with _naming_the_limit(path), open_file(path, "an ArrayRecord file") as file:
            status = os.fstat(file.fileno())
            self.size, self._stamp = status.st_size, (status.st_size, status.st_mtime_ns)
            if self.size < 2 * BLOCK or self.size % BLOCK:
                raise DataError(
                    f"{path} is truncated, or not an ArrayRecord file: it has {self.size} bytes, and ArrayRecord files "
                    f"have a multiple of {BLOCK}, at least {2 * BLOCK}. Was its writer closed?"
                )
            # The mapping keeps the file open even if the path names another file later.
            self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if mapped else None
        self._array = None if self._mapping is None else np.frombuffer(self._mapping, np.uint8)
        self.base = 0 if self._array is None else self._array.ctypes.data
        footer = self._read_postscript()
        values, ends = self._read_part(footer, self.size - BLOCK, "its footer")
        self.metadata = self._read_metadata(values, ends)
        self._read_index(values, ends, footer)
        # Release the buffer: the footer of 10 million records would keep 100 MB of this thread's memory.
        worker(0).grow(0)
        # One bit for each chunk: verified by compiled code, and verified here.
        self.verified_by_kernels = np.zeros(len(self.offsets) // 8 + 1, np.uint8)
        self._verified = np.zeros_like(self.verified_by_kernels)

    def __len__(self) -> int:
        return self.metadata.records

    def __deepcopy__(self, memo: dict[int, Any]) -> "RecordFile":
        return self  # Mapped memory is read-only.

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (RecordFile, self._arguments, self.metadata)

    @property
    def largest_chunk(self) -> int:
        """Largest distance between the beginnings of two chunks, in bytes."""
        return int(np.diff(self.offsets).max(initial=0))

    def check_size(self) -> None:
        """Raise if a mapped file shrank: touching the missing part would end the process."""
        if self._mapping is not None and self._mapping.size() < self.size:
            raise DataError(
                f"{self.path} shrank from {self.size} to {self._mapping.size()} bytes while it was mapped; "
                "write a new file and rename it over the old one instead, or open it with mmap=False."
            )

    def memory(self, begin: int, end: int) -> tuple[Any, int]:
        """Return the owner of these bytes of the file, and the address that byte 0 of the file has or would have."""
        if self._mapping is not None:
            self.check_size()
            return self._mapping, self.base
        part = np.empty(end - begin, np.uint8)
        self.read_into(part, begin)
        return part, part.ctypes.data - begin

    def read_into(self, part: Bytes, begin: int) -> None:
        """Fill memory with the bytes of the file from `begin` on."""
        done = 0
        file = self._files.descriptor(self._absolute, "an ArrayRecord file", self._stamp)
        while done < len(part):
            count = os.preadv(file.number, [part[done:]], begin + done)  # type: ignore[list-item]
            if count == 0:
                raise DataError(
                    f"{self.path} shrank from {self.size} to {begin + done} bytes or less while it was open."
                )
            done += count

    def read_chunk(self, number: int) -> tuple[Bytes, Numbers]:
        """Return the bytes of all records of a chunk, and the end of each."""
        first = int(number * self.group)
        return self._read_part(
            int(self.offsets[number]), int(self.offsets[number + 1]), f"record {first}", number
        )

    def shortcut(self, size: int) -> int:
        """Offset in its chunk of an uncompressed record of that size, or 0 if a record is compressed."""
        if ",uncompressed," not in f",{self.metadata.options},":
            return 0
        # After the chunk's header: the kind of compression, the length of the size, and the size, of 7 bits per byte.
        return CHUNK_HEADER + 2 + max(1, -(-size.bit_length() // 7))

    def failure(self, what: str, reason: int) -> DataError:
        """Return the exception for a chunk that could not be read."""
        return DataError(f"{self.path}, {what}: {REASONS[reason]}.")

    def _read_part(
        self, begin: int, end: int, what: str, number: int | None = None
    ) -> tuple[Bytes, Numbers]:
        hold, base = self.memory(begin, end)
        own = worker(max(end - begin, 0))
        verify = number is None or self.must_verify(number)
        status = chunks.check_chunk(base, begin, end, verify, own.address)
        if status == chunks.KIND:
            raise ForeignKindError(f"{self.path}, {what}: {REASONS[status]}.")
        if status < 0:
            raise self.failure(what, status)
        records, decoded = (int(own.words[word]) for word in (chunks.RECORDS, chunks.DECODED))
        if number is not None:
            # The hash shows that a chunk is intact, not that it is in its place: blocks may have been exchanged.
            expected = min(self.group, len(self) - number * self.group), int(self.sizes[number])
            if (records, decoded) != expected:
                raise self.failure(what, chunks.MISPLACED)
            self._verified[number >> 3] |= np.uint8(1 << (number & 7))
        try:
            # A size has at most ten bytes.
            sizes = np.empty(10 * records, np.uint8)
            ends, values = np.empty(records, np.int64), np.empty(decoded, np.uint8)
        except (MemoryError, ValueError) as error:
            raise DataError(
                f"{self.path}, {what}: its chunk claims {records} records of {decoded} bytes, more than "
                "there is memory for."
            ) from error
        status = chunks.decode_chunk(base, begin, own.address, sizes, ends, values)
        del hold
        if status < 0:
            raise self.failure(what, status)
        return values, ends

    def must_verify(self, number: int) -> bool:
        """Return True if the hashes of a chunk are to be checked."""
        verified = self._verified[number >> 3] >> (number & 7) & 1
        return self.verify == chunks.ALWAYS or (self.verify == chunks.FIRST and not verified)

    def _read_postscript(self) -> int:
        """Return the position of the footer."""
        begin = self.size - BLOCK
        try:
            values, ends = self._read_part(begin, self.size, "its postscript")
        except DataError as error:
            raise DataError(
                f"{self.path} is damaged, or not an ArrayRecord file: its last block has no valid "
                f"postscript: {error}"
            ) from error
        try:
            fields = dict(messages(values[: ends[0]].tobytes()))
        except (IndexError, ValueError):
            # The bytes are not a message: the file may be cut off before a chunk that begins with its block.
            fields = {}
        footer = fields.get(1)
        if (
            fields.get(2) != MAGIC
            or not isinstance(footer, int)
            or not FIRST_CHUNK <= footer <= begin - CHUNK_HEADER
        ):
            raise DataError(
                f"{self.path} is damaged, or not an ArrayRecord file: its postscript names no footer."
            )
        return footer

    def _read_metadata(self, values: Bytes, ends: Numbers) -> Metadata:
        try:
            fields = dict(messages(values[: ends[0]].tobytes()))
            inner = dict(messages(fields[1]))
            row = json.loads(fields[CONTENT_FIELD]) if CONTENT_FIELD in fields else None
            records, count = inner.get(3, 0), inner.get(2, 0)
            # Files written before 2022 do not have options.
            options = inner.get(4, b"").decode()
        except (
            IndexError,
            KeyError,
            ValueError,
            AttributeError,
            TypeError,
            RecursionError,
        ) as error:
            raise DataError(f"{self.path}: its footer does not begin with metadata.") from error
        if inner.get(1) != 1:
            raise DataError(f"{self.path}: its footer is of version {inner.get(1)}, not 1.")
        if count != len(ends) - 1:
            raise DataError(
                f"{self.path}: its footer promises {count} chunks and lists {len(ends) - 1}."
            )
        return Metadata(records, count, options, row if isinstance(row, dict) else None)

    def _read_index(self, values: Bytes, ends: Numbers, footer: int) -> None:
        """Read the offset of every chunk, its number of records and their size."""
        count = self.metadata.chunks
        offsets = np.empty(count + 1, np.int64)
        sizes, counts = np.empty(count, np.int64), np.empty(count, np.int64)
        wrong = int(chunks.read_index(values, ends, offsets[:-1], sizes, counts))
        if wrong >= 0:
            raise DataError(f"{self.path}: entry {wrong} of its footer does not describe a chunk.")
        offsets[-1] = footer
        self.group = int(counts[0]) if count else 1
        beginnings = offsets[:-1]
        # Only the last chunk may have fewer records than the others.
        regular = (
            self.group > 0
            and np.all(counts[:-1] == self.group)
            and 0 < counts[-1:].max(initial=1) <= self.group
        )
        if not regular or counts.sum() != self.metadata.records:
            raise DataError(
                f"{self.path}: the numbers of records in its footer contradict one another."
            )
        inside = beginnings % BLOCK
        if (
            np.any(np.diff(offsets) < CHUNK_HEADER)
            or beginnings.min(initial=FIRST_CHUNK) < FIRST_CHUNK
            or np.any((inside > 0) & (inside <= BLOCK_HEADER))
        ):
            raise DataError(
                f"{self.path}: the offsets of chunks in its footer contradict one another."
            )
        self.offsets = offsets
        # Sizes of records if each chunk has one record, otherwise of chunks; there may be many.
        small = sizes.max(initial=0) <= np.iinfo(np.uint32).max
        self.sizes: NDArray[np.integer[Any]] = sizes.astype(np.uint32) if small else sizes


@contextmanager
def _naming_the_limit(path: Path) -> Generator[None]:
    """Say what to do about more files than a process may have open."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EMFILE:
            most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            error.strerror = (
                f"this process may have {most} files open, and every mapped file is one. Raise the limit by "
                "`ulimit -n`, or read the files with `mmap=False`"
            )
            error.filename = str(path)
        raise


def reopened(kind: Any, arguments: tuple[Any, ...], metadata: Metadata) -> Any:
    """Open a file again and raise if its records are not as they were when it was pickled."""
    file = kind(*arguments)
    if file.metadata != metadata:
        raise DataError(
            f"{file.path} has changed since a data set of it was pickled: it held {metadata.records} records; "
            f"now it has {file.metadata.records} records, or other ones. Open it anew."
        )
    return file


def messages(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protobuf message: numbers and bytes."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            if shift > 63:
                raise ValueError("a number of more than 64 bits")
            byte = message[place]
            place += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    while place < len(message):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 2:
            length = varint()
            if length > len(message) - place:
                raise ValueError("a field beyond the end of its message")
            yield tag >> 3, message[place : place + length]
            place += length
        else:
            raise ValueError(f"a field of the unknown type {tag & 7}")
