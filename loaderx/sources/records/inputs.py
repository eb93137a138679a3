"""Input of the writer: rows of an array or records of an iterable, as blocks of bytes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError

from .content import Content, check_storable
from .fields import encode_fields

Numbers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

# Overhead of a record, so that a block of empty records ends, too.
RECORD_BYTES = 64


@dataclass(frozen=True)
class Records:
    """Records in one piece of memory."""

    values: Bytes
    sizes: Numbers


# A function, because the threads make the block.
Block = Callable[[], Records]


class ArrayInput:
    """Rows of an array."""

    def __init__(self, array: NDArray[Any], group: int, check: Callable[[], None]) -> None:
        self.count: int | None = len(array)
        self._array, self._group, self._check = array, group, check
        self._dtype = array.dtype.newbyteorder("<")

    def content(self) -> Content:
        """Content of the records."""
        return Content(self._dtype, self._array.shape[1:])

    def blocks(self, nbytes: int) -> Iterator[Block]:
        """Yield parts of the array of about `nbytes`, each of whole chunks."""
        chunk = self._group * (self._array[:1].nbytes + RECORD_BYTES)
        step = self._group * max(1, nbytes // chunk)
        for start in range(0, len(self._array), step):
            self._check()
            yield partial(contiguous_records, self._array[start : start + step], self._dtype)


class IterableInput:
    """Records of an iterable, of unknown number and content."""

    def __init__(self, data: Iterable[Any], group: int, given: Content | None) -> None:
        self.count = len(data) if isinstance(data, Sized) else None
        self._data, self._group, self._given = data, group, given
        self._content: Content | None = None

    def content(self) -> Content:
        """Content of the records, known after all of them were read."""
        return self._given or self._content or Content()

    def blocks(self, nbytes: int) -> Iterator[Block]:
        """Yield blocks of records of about `nbytes`, each of whole chunks."""
        gathered: list[bytes] = []
        size = 0
        for number, record in enumerate(self._data):
            gathered.append(self._bytes_of(number, record))
            size += len(gathered[-1]) + RECORD_BYTES
            if size >= nbytes and len(gathered) % self._group == 0:
                yield partial(joined_records, gathered)
                gathered, size = [], 0
        if gathered:
            yield partial(joined_records, gathered)

    def _bytes_of(self, number: int, record: Any) -> bytes:
        """Return a copy of one record: many generators fill the same array again and again."""
        if isinstance(record, bytes | bytearray | memoryview):
            value, content = bytes(record), Content()
        elif isinstance(record, Mapping) and self._given and self._given.fields:
            try:
                value, content = encode_fields(self._given.fields, record), Content()
            except (ArgumentError, TypeError) as error:
                raise type(error)(f"record {number} of `data`: {error}") from error
        elif hasattr(record, "__array__"):
            array = np.asarray(record)
            check_storable(array.dtype, f"record {number} of `data`")
            content = Content(array.dtype.newbyteorder("<"), array.shape)
            value = array.astype(content.dtype, copy=False).tobytes()
        else:
            raise TypeError(
                f"record {number} of `data` is a {type(record).__name__}; records must be arrays or bytes."
            )
        self._check(number, content, len(value))
        return value

    def _check(self, number: int, content: Content, nbytes: int) -> None:
        if self._given is not None:
            if content.dtype is not None:
                raise ArgumentError(
                    f"{self._given.named} are for records of bytes, and record {number} of `data` is {content}, an "
                    "array; leave them out."
                )
            if not self._given.fits(nbytes):
                raise DataError(
                    f"record {number} of `data` has {nbytes} bytes, which does not fit {self._given}."
                )
        elif self._content is None:
            self._content = content
        elif self._content != content:
            if not self._content.admits(content):
                raise DataError(
                    f"record {number} of `data` is {content}, and those before it are {self._content}: "
                    "records of one file must have one dtype, and one shape but for the first axis."
                )
            self._content = Content(content.dtype, (None, *content.shape[1:]))


def contiguous_records(rows: NDArray[Any], dtype: np.dtype[Any]) -> Records:
    """Return rows of an array in C order, in one piece of memory."""
    straight = np.ascontiguousarray(rows, dtype)
    sizes = np.full(len(straight), straight[:1].nbytes, np.int64)
    return Records(straight.reshape(-1).view(np.uint8), sizes)


def joined_records(records: list[bytes]) -> Records:
    """Return records in one piece of memory."""
    sizes = np.fromiter(map(len, records), np.int64, len(records))
    return Records(np.frombuffer(b"".join(records), np.uint8), sizes)
