"""Rows of ArrayRecord files that compiled code reads."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError
from loaderx.kernels import chunks
from loaderx.kernels.calls import function_address
from loaderx.kernels.row_layout import RowLayout, row_layout
from loaderx.sources.array import FEW_FILES
from loaderx.sources.row_addresses import RowAddresses, addresses_in, addresses_of_rows
from loaderx.sources.source import AddressableSource, Rows, owners_of
from loaderx.spec import Spec

from .file import REASONS
from .reader import DirectReader, Reader, as_row
from .worker import worker


class RecordRows(AddressableSource):
    """Rows of one shape. `padding` is a row that fills up records of any length along the first axis, or None."""

    def __init__(
        self, readers: Sequence[Reader], stored: Spec, verify: int, padding: NDArray[Any] | None
    ) -> None:
        self._readers = tuple(readers)
        self._arguments = stored, verify, padding
        self._spec = Spec(stored.shape, stored.dtype.newbyteorder("="))
        self._layout = row_layout(np.empty((1, *stored.shape), stored.dtype))
        self._starts = np.cumsum([0] + [len(reader) for reader in readers], dtype=np.int64)
        self._step = 0 if padding is None else stored.nbytes // stored.shape[0]
        self._padding = (
            np.zeros(stored.nbytes, np.uint8)
            if padding is None
            else padding.astype(stored.dtype).reshape(-1).view(np.uint8)
        )
        direct = [reader for reader in readers if isinstance(reader, DirectReader)]
        self._direct = len(direct) == len(readers)
        # Checking the sizes of this many files is faster than finding out which of them a batch needs.
        few = len(direct) <= FEW_FILES
        self._mapped = self._direct and few and all(reader.file.base for reader in direct)
        self._scratch = max((reader.file.largest_chunk for reader in direct), default=0)
        if padding is not None:
            self._scratch += max(
                (int(reader.file.sizes.max(initial=0)) for reader in direct), default=0
            )
        sizes = self._sizes = [
            reader.file.sizes.astype(np.uint32, copy=False)
            if isinstance(reader, DirectReader) and padding is not None
            else np.empty(0, np.uint32)
            for reader in readers
        ]
        self._settings = np.zeros((len(readers), chunks.SETTINGS_WORDS), np.int64)
        self._bases = np.zeros(len(readers), np.int64)
        self._offsets = np.zeros(len(readers), np.int64)
        for number, reader in enumerate(readers):
            if isinstance(reader, DirectReader):
                self._settings[number] = (
                    *(
                        verify,
                        reader.file.verified_by_kernels.ctypes.data,
                        stored.nbytes,
                        self._step,
                    ),
                    *(self._padding.ctypes.data, stored.dtype.alignment),
                    reader.file.shortcut(stored.nbytes) if padding is None else 0,
                    0 if padding is None else sizes[number].ctypes.data,
                )
                self._bases[number] = reader.file.base
                self._offsets[number] = reader.file.offsets.ctypes.data
        self._addresses = self._settings.ctypes.data + np.arange(len(readers), dtype=np.int64) * (
            8 * chunks.SETTINGS_WORDS
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # No addresses and no sizes of records: they follow from the files that are opened again.
        return checked_rows, (self._readers, *self._arguments)

    @property
    def spec(self) -> Spec:
        return self._spec

    @property
    def layout(self) -> RowLayout:
        return self._layout

    @property
    def has_fetcher(self) -> bool:
        return True

    @property
    def cpu_bound(self) -> bool:
        return not np.all(self._settings[:, chunks.SHORTCUT])

    @property
    def splittable(self) -> bool:
        # Otherwise threads that share a batch would decompress the same chunks.
        return self._direct

    def __len__(self) -> int:
        return int(self._starts[-1])

    def locate(self, rows: Rows) -> RowAddresses:
        entries = np.empty((len(rows), chunks.ENTRY_WORDS), np.int64)
        addresses = np.empty(len(rows), np.int64)
        chunks.locate_records(
            *(rows, self._starts, self._bases, self._addresses, self._offsets, entries, addresses)
        )
        hold: list[Any] = [self, entries]
        if self._mapped:
            for reader in self._readers:
                reader.check_size()
        else:
            hold += self._read_unreachable(rows, entries)
        return RowAddresses(
            addresses,
            fetcher=function_address(chunks.read_record, 3),
            worker=worker(self._scratch).address,
            hold=hold,
            failure=lambda place, reason: self._failure(int(rows[place]), reason),
        )

    def _read_unreachable(self, rows: Rows, entries: NDArray[np.int64]) -> list[Any]:
        """Read the records that compiled code cannot reach into memory."""
        hold: list[Any] = []
        for owner, places in owners_of(rows, self._starts).items():
            reader = self._readers[owner]
            if isinstance(reader, DirectReader) and reader.file.base:
                reader.check_size()
                continue
            if isinstance(reader, DirectReader):
                hold.append(_read_chunks(reader, entries, places))
            else:
                hold.append(self._read_rows(reader, rows, entries, places, owner))
        return hold

    def _read_rows(
        self, reader: Reader, rows: Rows, entries: NDArray[np.int64], places: Rows, owner: int
    ) -> NDArray[np.uint8]:
        """Return rows of a reader that returns records."""
        memory = np.empty((len(places), len(self._padding)), np.uint8)
        numbers = rows[places] - self._starts[owner]
        for place, record in enumerate(reader.records(numbers.tolist())):
            reason = as_row(record, memory[place], self._step, self._padding)
            if reason < 0:
                raise self._failure(int(rows[places[place]]), reason, len(record))
        entries[places, chunks.BEGIN] = -1
        entries[places, chunks.BASE] = addresses_in(memory)
        return memory

    def _failure(self, row: int, reason: int, size: int | None = None) -> DataError:
        owner = int(np.searchsorted(self._starts, row, side="right")) - 1
        reader, number = self._readers[owner], row - int(self._starts[owner])
        if reason in (chunks.ROW_SIZE, chunks.STEP_SIZE):
            size = int(reader.sizes(np.array([number]))[0]) if size is None else size
            unit = len(self._padding) if reason == chunks.ROW_SIZE else self._step
            rule = f"{unit} bytes" if reason == chunks.ROW_SIZE else f"a multiple of {unit} bytes"
            if size == unit or (self._step and size % unit == 0):
                reason = chunks.ROOM
            else:
                return DataError(
                    f"{reader.path}, record {number}: it has {size} bytes, and {self._spec} needs {rule}."
                )
        return DataError(f"{reader.path}, record {number}: {REASONS[reason]}.")


def checked_rows(
    readers: Sequence[Reader], stored: Spec, verify: int, padding: NDArray[Any] | None
) -> RecordRows:
    """Return rows of files after checking the sizes of their records in the index."""
    if padding is None:
        check_sizes(readers, stored)
    return RecordRows(readers, stored, verify, padding)


def check_sizes(readers: Sequence[Reader], spec: Spec) -> None:
    """Refuse a spec that contradicts the sizes in the index of a file, before any record is read."""
    for reader in readers:
        if not isinstance(reader, DirectReader):
            # Before memory for such rows is allocated.
            size = len(reader.records([0])[0]) if len(reader) else spec.nbytes
            if size != spec.nbytes:
                raise DataError(
                    f"{reader.path}, record 0: it has {size} bytes, and {spec} needs {spec.nbytes} bytes."
                )
        else:
            wrong = np.flatnonzero(reader.file.sizes != spec.nbytes)
            if len(wrong):
                raise DataError(
                    f"{reader.path}, record {wrong[0]}: it has {reader.file.sizes[wrong[0]]} bytes, and {spec} "
                    f"needs {spec.nbytes} bytes."
                )
            # All are equal: not worth 8 bytes each.
            reader.file.sizes = np.broadcast_to(np.int64(spec.nbytes), len(reader))


class LengthRows(AddressableSource):
    """Length of each record along its first axis."""

    def __init__(self, readers: Sequence[Reader], step: int, most: int) -> None:
        self._readers = tuple(readers)
        self._starts = np.cumsum([0] + [len(reader) for reader in readers], dtype=np.int64)
        self._step = step
        self._most = most
        self._layout = RowLayout()

    @property
    def spec(self) -> Spec:
        return Spec((), np.int32)

    @property
    def layout(self) -> RowLayout:
        return self._layout

    def __len__(self) -> int:
        return int(self._starts[-1])

    def locate(self, rows: Rows) -> RowAddresses:
        sizes = np.empty(len(rows), np.int64)
        for owner, places in owners_of(rows, self._starts).items():
            sizes[places] = self._readers[owner].sizes(rows[places] - self._starts[owner])
        lengths = np.minimum(sizes // self._step, self._most).astype(np.int32)
        return addresses_of_rows(lengths)


def _read_chunks(
    reader: DirectReader, entries: NDArray[np.int64], places: Rows
) -> NDArray[np.uint8]:
    """Read chunks of a file that is not mapped, and set their addresses in `entries`."""
    begins, limits = entries[places, chunks.BEGIN], entries[places, chunks.LIMIT]
    starts = np.cumsum(np.concatenate([[0], limits - begins]))
    memory = np.empty(int(starts[-1]), np.uint8)
    for begin, start, stop in zip(
        begins.tolist(), starts.tolist(), starts[1:].tolist(), strict=False
    ):
        reader.file.read_into(memory[start:stop], begin)
    entries[places, chunks.BASE] = memory.ctypes.data + starts[:-1] - begins
    return memory
