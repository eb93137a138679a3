"""`NPDataset`: rows of mapped .npy files or of an array, read by compiled code."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.kernels.gather import locate_rows
from loaderx.spec import Spec, check_dtype

from .layout import Layout, layout_of
from .located import Located
from .npy import MappedFile
from .source import LocatedSource, Rows

Path = str | os.PathLike[str]
# Asking all of so few files for their size takes less time than finding out which of them a batch needs.
FEW_FILES = 16


class NPDataset(LocatedSource):
    """Rows of one or several `.npy` files, mapped, or of an array.

    `data` is a path, a list of paths whose rows follow one another, or an array. Rows are the entries along the
    first axis, of any shape, dtype, memory order and byte order; they are delivered in native byte order.
    """

    def __init__(self, data: Path | Sequence[Path] | NDArray[Any]) -> None:
        files: list[MappedFile | None] = []
        if isinstance(data, np.ndarray):
            arrays, names = [data], ["the array"]
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
            mapped = [MappedFile(path) for path in paths]
            arrays, names = [file.array for file in mapped], [str(file.path) for file in mapped]
            files = list(mapped)
        for array, name in zip(arrays, names, strict=True):
            _check_rows(array, name, arrays[0], names[0])
        layouts = [layout_of(array) for array in arrays]
        for layout, name in zip(layouts, names, strict=True):
            if not layout.same_as(layouts[0]):
                raise ArgumentError(
                    f"{names[0]} and {name} lie differently in memory (C and Fortran order, or byte "
                    "order). Open them as two data sets and add these."
                )
        self._hold(arrays, files or [None], layouts[0])

    def _hold(
        self, arrays: Sequence[NDArray[Any]], files: Sequence[MappedFile | None], layout: Layout
    ) -> None:
        self._arrays = tuple(arrays)  # Their memory must stay while addresses point into it.
        self._files = tuple(files)
        self._layout = layout
        first = arrays[0]
        self._spec = Spec(first.shape[1:], first.dtype.newbyteorder("="))
        self._starts = np.cumsum([0] + [len(array) for array in arrays], dtype=np.int64)
        self._bases = np.array([array.ctypes.data for array in arrays], np.int64)
        self._strides = np.array([array.strides[0] for array in arrays], np.int64)

    @classmethod
    def joined(cls, sources: Sequence["NPDataset"]) -> "NPDataset":
        """The rows of several data sets with the same layout, one after the other."""
        joined = cls.__new__(cls)
        joined._hold(
            [array for source in sources for array in source._arrays],
            [file for source in sources for file in source._files],
            sources[0]._layout,
        )
        return joined

    @property
    def spec(self) -> Spec:
        return self._spec

    @property
    def layout(self) -> Layout:
        return self._layout

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def single(self) -> tuple[int, int] | None:
        """The address of row 0 and the bytes from row to row, where all rows are C-contiguous in one array."""
        if len(self._arrays) > 1 or self._layout.offsets is not None:
            return None
        return int(self._bases[0]), int(self._strides[0])

    def check(self) -> None:
        """Raise if a file shrank since it was opened."""
        for file in self._files:
            if file is not None:
                file.check()

    def locate(self, rows: Rows) -> Located:
        # Every way to the rows leads through here: batches, brackets and views.
        touched: Iterable[int] = range(len(self._files))
        if len(self._files) > FEW_FILES:
            touched = np.unique(np.searchsorted(self._starts, rows, side="right") - 1)
        for number in touched:
            file = self._files[number]
            if file is not None:
                file.check()
        addresses = np.empty(len(rows), np.int64)
        locate_rows(rows, self._starts, self._bases, self._strides, addresses)
        return Located(addresses, hold=self._arrays)


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
