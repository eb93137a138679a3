"""Arrays that hold the rows of a source, and how another process opens them again."""

import bisect
import copy
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError


class Part:
    """Array and the arguments that make it again: pickling stores the arguments only.

    A copy in the same process shares the memory, because nobody writes to it.
    """

    array: NDArray[Any]
    # Arguments of the class that make the part again.
    arguments: tuple[Any, ...]

    def check(self) -> None:
        """Raise if the memory of the array must not be touched any more, as after a file shrank."""
        return

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Part":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        array = self.array
        return remade, (type(self), self.arguments, array.shape, array.strides, array.dtype)


class ArrayPart(Part):
    """Array in memory: pickled by value, unless it is all of a .npy file that NumPy mapped read-only."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        self.path = _mapped_path(array)

    def __deepcopy__(self, memo: dict[int, Any]) -> "ArrayPart":
        return ArrayPart(copy.deepcopy(np.asarray(self.array), memo))

    def __reduce__(self) -> tuple[Any, ...]:
        from .npy import MappedFile

        if self.path is not None:
            array = self.array
            try:
                return remade(
                    MappedFile, (self.path,), array.shape, array.strides, array.dtype
                ).__reduce__()
            except (OSError, DataError):
                pass  # The array is a part of the file, or the file is gone.
        return ArrayPart, (np.asarray(self.array),)


class ColumnArrays(ABC):
    """Columns by name, each in one or several arrays."""

    def __init__(self) -> None:
        self._columns: dict[str, tuple[list[NDArray[Any]], list[int]]] = {}

    @abstractmethod
    def read(self, name: str) -> list[NDArray[Any]]:
        """Read a column; return its arrays, each of which has rows."""

    def arrays(self, name: str) -> tuple[list[NDArray[Any]], list[int]]:
        """Return the arrays of a column, which is read once, and the first row of each."""
        if name not in self._columns:
            arrays = self.read(name)
            self._columns[name] = arrays, np.cumsum([0] + [len(array) for array in arrays]).tolist()
        return self._columns[name]

    def rows(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Return some rows of a column, in place if they are in one array."""
        arrays, starts = self.arrays(name)
        first = max(0, bisect.bisect_right(starts, start) - 1)
        found = [
            array[max(0, start - begin) : stop - begin]
            for array, begin in zip(arrays[first:], starts[first:], strict=False)
            if begin < stop
        ]
        return found[0] if len(found) == 1 else np.concatenate(found or [arrays[0][:0]])


class ColumnPart(Part):
    """Rows `start` to `stop` of a column, which may be divided into other arrays when it is read again."""

    def __init__(self, table: ColumnArrays, name: str, start: int, stop: int) -> None:
        self.arguments = table, name, start, stop
        self.array = table.rows(name, start, stop)


def remade(
    kind: type[Part],
    arguments: tuple[Any, ...],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
) -> Part:
    """Make a part again and raise if its rows are not as they were when it was pickled."""
    part = kind(*arguments)
    found = part.array
    if (found.shape, found.strides, found.dtype) != (shape, strides, dtype):
        raise DataError(
            f"{arguments[0]} has changed since a data set of it was pickled: it held {dtype}{list(shape)}, and now "
            f"{found.dtype}{list(found.shape)}. Open it anew."
        )
    return part


def _mapped_path(array: NDArray[Any]) -> Path | None:
    if not isinstance(array, np.memmap) or array.mode != "r" or array.filename is None:
        return None
    # NumPy makes the path absolute when it maps the file.
    path = Path(os.fspath(array.filename))
    return path if path.suffix == ".npy" else None
