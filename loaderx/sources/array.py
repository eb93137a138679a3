"""`NPDataset`: rows of mapped .npy files or of an array, read by compiled code."""

import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.kernels.gathering import locate_rows
from loaderx.kernels.row_layout import RowLayout, row_layout
from loaderx.spec import Spec, check_dtype, plain_array

from .npy import MappedFile
from .parts import ArrayPart, ColumnArrays, ColumnPart, Part
from .row_addresses import RowAddresses
from .source import AddressableSource, Rows

Path = str | os.PathLike[str]
# Checking the sizes of this many files is faster than finding out which of them a batch needs.
FEW_FILES = 16


class NPDataset(AddressableSource):
    """Rows of one or several `.npy` files, mapped, or of an array.

    `data` is a path, a list of paths whose rows follow one another, or an array. Rows are the entries along the
    first axis, of any shape, dtype, memory order and byte order; they are delivered in native byte order.

    Files are pickled by their absolute paths, as are arrays that `np.load(path, mmap_mode="r")` gave as a whole; all
    other arrays are pickled by value.
    """

    def __init__(self, data: Path | Sequence[Path] | NDArray[Any]) -> None:
        parts: list[Part]
        if isinstance(data, np.ndarray):
            parts, names = [ArrayPart(plain_array(data, "`data`"))], ["the array"]
            check_dtype(data.dtype, "the array")
        else:
            paths: list[Path] = []
            if isinstance(data, str | os.PathLike):
                paths = [data]
            elif hasattr(data, "__iter__"):
                paths = list(data)
            if not paths or not all(isinstance(path, str | os.PathLike) for path in paths):
                raise ArgumentError(
                    f"`data` (={data!r}) must be a path, a list of paths, or a NumPy array."
                )
            parts, names = [MappedFile(path) for path in paths], [str(path) for path in paths]
        arrays = [part.array for part in parts]
        for array, name in zip(arrays, names, strict=True):
            _check_rows(array, name, arrays[0], names[0])
        layouts = [row_layout(array) for array in arrays]
        for layout, name in zip(layouts, names, strict=True):
            if not layout.same_as(layouts[0]):
                raise ArgumentError(
                    f"{names[0]} and {name} have different memory layouts (C and Fortran order, or byte "
                    "order). Open them as two data sets and concatenate these with `+`."
                )
        self._hold(parts, layouts[0])

    def _hold(self, parts: Sequence[Part], layout: RowLayout) -> None:
        self._parts = tuple(parts)
        # A reference: the memory must live as long as addresses point into it.
        self._arrays = arrays = tuple(part.array for part in parts)
        self._layout = layout
        first = arrays[0]
        self._spec = Spec(first.shape[1:], first.dtype.newbyteorder("="))
        self._starts = np.cumsum([0] + [len(array) for array in arrays], dtype=np.int64)
        self._bases = np.array([array.ctypes.data for array in arrays], np.int64)
        self._strides = np.array([array.strides[0] for array in arrays], np.int64)

    @classmethod
    def joined(cls, sources: Sequence["NPDataset"]) -> "NPDataset":
        """Return the rows of several data sets with the same layout, one after the other."""
        joined = cls.__new__(cls)
        joined._hold([part for source in sources for part in source._parts], sources[0]._layout)
        return joined

    @classmethod
    def of_column(cls, table: ColumnArrays, name: str) -> "NPDataset":
        """Return the rows of a column of a table."""
        column = cls.__new__(cls)
        _, starts = table.arrays(name)
        parts = [ColumnPart(table, name, *ends) for ends in itertools.pairwise(starts)]
        column._hold_any(parts)
        return column

    def _hold_any(self, parts: Sequence[Part]) -> None:
        layouts = [row_layout(part.array) for part in parts]
        if not all(layout.same_as(layouts[0]) for layout in layouts):
            # The layouts differ. Gaps between rows are lost by pickling, for example.
            plain = [np.require(part.array, requirements=["C", "A"]) for part in parts]
            parts = [ArrayPart(array) for array in plain]
        self._hold(parts, row_layout(parts[0].array))

    def __getstate__(self) -> dict[str, Any]:
        # No addresses and no memory: both follow from the parts.
        held = ("_arrays", "_layout", "_spec", "_starts", "_bases", "_strides")
        return {name: value for name, value in self.__dict__.items() if name not in held}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._hold_any(self._parts)

    @property
    def spec(self) -> Spec:
        return self._spec

    @property
    def layout(self) -> RowLayout:
        return self._layout

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def array(self) -> NDArray[Any] | None:
        """Array of all rows, or None if they are in several arrays."""
        return self._arrays[0] if len(self._arrays) == 1 else None

    @property
    def single(self) -> tuple[int, int] | None:
        """Address of row 0 and stride in bytes, or None unless all rows are C-contiguous in one array."""
        if len(self._arrays) > 1 or self._layout.offsets is not None:
            return None
        return int(self._bases[0]), int(self._strides[0])

    def check(self) -> None:
        """Raise if a file shrank since it was opened."""
        for part in self._parts:
            part.check()

    def locate(self, rows: Rows) -> RowAddresses:
        # All reads of rows pass through here: batches, indexing and views.
        touched: Iterable[int] = range(len(self._parts))
        if len(self._parts) > FEW_FILES:
            touched = np.unique(np.searchsorted(self._starts, rows, side="right") - 1)
        for number in touched:
            self._parts[number].check()
        addresses = np.empty(len(rows), np.int64)
        locate_rows(rows, self._starts, self._bases, self._strides, addresses)
        return RowAddresses(addresses, hold=self._arrays)


def _check_rows(array: NDArray[Any], name: str, first: NDArray[Any], first_name: str) -> None:
    if array.ndim == 0:
        raise DataError(f"{name} holds a single value of shape (); rows need at least one axis.")
    if len(array) == 0:
        raise DataError(f"{name} has no rows: its shape is {array.shape}.")
    if (array.shape[1:], array.dtype) != (first.shape[1:], first.dtype):
        raise ArgumentError(
            f"all files must have rows of the same shape and dtype: {first_name} has "
            f"{Spec(first.shape[1:], first.dtype)}, {name} has {Spec(array.shape[1:], array.dtype)}."
        )
