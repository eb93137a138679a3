"""What goes into a file: rows of an array or records of an iterable, as blocks of bytes."""

from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError

from .content import Content, check_storable

Numbers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

# What a record costs besides its bytes, so that a block of empty ones has an end too.
RECORD_BYTES = 64


@dataclass(frozen=True)
class Records:
    """Records side by side."""

    values: Bytes
    sizes: Numbers


# Making a block is left to the threads.
Block = Callable[[], Records]


class ArrayInput:
    """The rows of an array."""

    def __init__(self, array: NDArray[Any], group: int, check: Callable[[], None]) -> None:
        self.count: int | None = len(array)
        self._array, self._group, self._check = array, group, check
        self._dtype = array.dtype.newbyteorder("<")

    def content(self) -> Content:
        """What the records hold."""
        return Content(self._dtype, self._array.shape[1:])

    def blocks(self, nbytes: int) -> Iterator[Block]:
        """Parts of the array of some `nbytes`, each of whole chunks."""
        chunk = self._group * (self._array[:1].nbytes + RECORD_BYTES)
        step = self._group * max(1, nbytes // chunk)
        for start in range(0, len(self._array), step):
            self._check()
            yield partial(straightened, self._array[start : start + step], self._dtype)


class IterableInput:
    """The records of an iterable, of which nothing is known before."""

    def __init__(self, data: Iterable[Any], group: int, given: Content | None) -> None:
        self.count = len(data) if isinstance(data, Sized) else None
        self._data, self._group, self._given = data, group, given
        self._content: Content | None = None

    def content(self) -> Content:
        """What the records hold, once all of them were seen."""
        return self._given or self._content or Content()

    def blocks(self, nbytes: int) -> Iterator[Block]:
        """Records gathered to blocks of some `nbytes`, each of whole chunks."""
        gathered: list[bytes] = []
        size = 0
        for number, record in enumerate(self._data):
            gathered.append(self._bytes_of(number, record))
            size += len(gathered[-1]) + RECORD_BYTES
            if size >= nbytes and len(gathered) % self._group == 0:
                yield partial(joined, gathered)
                gathered, size = [], 0
        if gathered:
            yield partial(joined, gathered)

    def _bytes_of(self, number: int, record: Any) -> bytes:
        """One record, copied: many generators fill the same array again and again."""
        if isinstance(record, bytes | bytearray | memoryview):
            value, content = bytes(record), Content()
        elif hasattr(record, "__array__"):
            array = np.asarray(record)
            check_storable(array.dtype, f"record {number} of `data`")
            content = Content(array.dtype.newbyteorder("<"), array.shape)
            value = array.astype(content.dtype, copy=False).tobytes()
        else:
            raise TypeError(
                f"record {number} of `data` is a {type(record).__name__}: records are arrays or bytes."
            )
        self._check(number, content, len(value))
        return value

    def _check(self, number: int, content: Content, nbytes: int) -> None:
        if self._given is not None:
            if content.dtype is not None:
                raise ArgumentError(
                    f"`dtype` (={self._given.dtype}) and `shape` are for records of bytes, and record "
                    f"{number} of `data` is {content}, an array."
                )
            if not self._given.fits(nbytes):
                raise DataError(
                    f"record {number} of `data` has {nbytes} bytes, which is not {self._given}."
                )
        elif self._content is None:
            self._content = content
        elif self._content != content:
            if not self._content.admits(content):
                raise DataError(
                    f"record {number} of `data` is {content}, and those before it are {self._content}: "
                    "records of one file have one dtype, and one shape but for the first axis."
                )
            self._content = Content(content.dtype, (None, *content.shape[1:]))


def straightened(rows: NDArray[Any], dtype: np.dtype[Any]) -> Records:
    """Rows of an array in C order, in one piece of memory."""
    straight = np.ascontiguousarray(rows, dtype)
    sizes = np.full(len(straight), straight[:1].nbytes, np.int64)
    return Records(straight.reshape(-1).view(np.uint8), sizes)


def joined(records: list[bytes]) -> Records:
    """Records in one piece of memory."""
    sizes = np.fromiter(map(len, records), np.int64, len(records))
    return Records(np.frombuffer(b"".join(records), np.uint8), sizes)
