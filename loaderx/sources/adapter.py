"""What a user passes -> a source."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError

from .array import NPDataset
from .object import ObjectSource
from .source import RecordSource, Source


class RangeRows:
    """A range as rows, by arithmetic: also a range of a billion costs nothing."""

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitems__(self, rows: list[int]) -> NDArray[np.int64]:
        return self._numbers.start + np.asarray(rows, np.int64) * self._numbers.step


def as_source(data: Any) -> Source:
    """A source as it is, an array, a range, a list, or any object with `__len__` and `__getitem__`."""
    if isinstance(data, Source):
        return data.inner
    if isinstance(data, Mapping):
        raise ArgumentError(
            f"a dict (of {list(data)}) stands where one source is expected; pass its fields one by one."
        )
    if isinstance(data, str | os.PathLike):
        raise TypeError(
            f"{data!r} is a path; open it with `NPDataset({str(data)!r})` or `ARDataset({str(data)!r})`."
        )
    if isinstance(data, range):
        return ObjectSource(RangeRows(data))
    if isinstance(data, list) and all(isinstance(value, bool | int | float) for value in data):
        return NPDataset(np.asarray(data)) if data else ObjectSource(data)
    if isinstance(data, np.ndarray):
        return NPDataset(data)
    if hasattr(data, "__len__") and (hasattr(data, "__getitem__") or hasattr(data, "__getitems__")):
        # jax.Array and others that are arrays in all but type: their memory is read in place where it can be.
        return NPDataset(np.asarray(data)) if hasattr(data, "__array__") else ObjectSource(data)
    raise TypeError(
        f"a source must be an NPDataset, an array, a list, a range, or an object with `__len__` and "
        f"`__getitem__`, not {type(data).__name__}."
    )


def as_rows(data: Any) -> Source:
    """A source as above, or one of a dict of fields."""
    if isinstance(data, Mapping):
        return RecordSource({str(name): as_source(value) for name, value in data.items()})
    return as_source(data)
