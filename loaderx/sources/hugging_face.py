"""`HFDataset`: a Hugging Face data set whose columns of numbers are read in place from Arrow memory."""

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError

from .array import NPDataset
from .extras import require
from .object import ObjectSource
from .parts import ColumnArrays
from .source import FieldsSource, Source
from .subsets import RowList, view


class HFDataset(FieldsSource):
    """Columns of a Hugging Face data set, as fields of the same names.

    dataset  a `datasets.Dataset`, or the folder that its `save_to_disk` wrote
    columns  names of the columns to read; None is all

    Numbers, and lists and arrays of numbers with one shape in all rows, are read in place from memory or from the
    mapped files, without Python code per row. Lists of no declared length are read in place, too, if all have the same
    length, which is checked once here. Images and other features that need decoding are read row by row through
    `datasets`. A selection, a shuffle or a filter of the data set is respected. Nulls and text are not supported.
    """

    def __init__(self, dataset: Any, columns: Sequence[str] | None = None) -> None:
        datasets = require("datasets", "huggingface", "HFDataset")
        saved = isinstance(dataset, str | os.PathLike)
        if isinstance(dataset, str | os.PathLike):
            path = os.fspath(dataset)
            # `datasets` pickles the paths of files as given. This may also be a URL.
            path = os.path.abspath(path) if os.path.exists(path) else path  # noqa: PTH100, PTH110
            dataset = datasets.load_from_disk(path)
            if isinstance(dataset, datasets.DatasetDict):
                raise ArgumentError(
                    f"{path} holds the data sets {list(dataset)}; open one of them, such as "
                    f"HFDataset({f'{path}/{next(iter(dataset))}'!r})."
                )
        if isinstance(dataset, datasets.DatasetDict):
            raise ArgumentError(
                f"`dataset` is a dict of the data sets {list(dataset)}; pass one of them."
            )
        if not isinstance(dataset, datasets.Dataset):
            raise TypeError(
                "`dataset` must be a datasets.Dataset or the path of a saved one, not "
                f"{type(dataset).__name__}."
            )
        if dataset.format["type"] == "custom":
            raise ArgumentError(
                "`dataset` has its own transform (`set_transform`), which runs per row: pass the data set itself "
                "to the loader, or call `dataset.reset_format()`."
            )
        names = _chosen(columns, dataset)
        if len(dataset) == 0:
            raise DataError("`dataset` has no rows.")
        rows = _chosen_rows(dataset)
        columns_of = ArrowColumns(dataset)
        fields: dict[str, Source] = {}
        for name in names:
            # The list is empty if the values need decoding.
            if columns_of.arrays(name)[0]:
                source = NPDataset.of_column(columns_of, name)
                fields[name] = source if rows is None else view(source, RowList(rows))
                continue
            if saved:
                for chunk in dataset.data.column(name).chunks:
                    _check_inside(chunk, name)
            fields[name] = ObjectSource(DecodedColumn(dataset, name))
        super().__init__(fields)


class ArrowColumns(ColumnArrays):
    """Columns of a data set, which `datasets` pickles as the paths of its files if it has files."""

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        self._dataset = dataset

    def read(self, name: str) -> list[NDArray[Any]]:
        return _arrays_in_place(self._dataset.data.column(name), name)

    def __repr__(self) -> str:
        return "the data set"

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowColumns, (self._dataset,)


class DecodedColumn:
    """Column whose values `datasets` decodes."""

    def __init__(self, dataset: Any, name: str) -> None:
        self._rows = dataset.select_columns([name]).with_format("numpy")
        self._name = name

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> NDArray[Any]:
        value = self._rows[row][self._name]
        array = np.asarray(value)
        if value is None or array.dtype.kind not in "biufc":
            raise DataError(
                f"row {row} of column {self._name!r} is a {type(value).__name__}, not numbers. Turn it into numbers "
                "with `dataset.map`, or leave it out by `columns`."
            )
        return array


def _chosen(columns: Sequence[str] | None, dataset: Any) -> list[str]:
    if columns is None:
        return list(dataset.format["columns"])
    if isinstance(columns, str) or not columns:
        raise ArgumentError(f"`columns` (={columns!r}) must be a list of at least one name.")
    missing = [name for name in columns if name not in dataset.column_names]
    if missing:
        raise ArgumentError(
            f"`columns` names {missing}, and the data set has {list(dataset.column_names)}."
        )
    return list(columns)


def _chosen_rows(dataset: Any) -> NDArray[np.int64] | None:
    # The indices of `select`, `shuffle` and `filter` have no public name; `flatten_indices` would copy the data.
    indices = dataset._indices
    return None if indices is None else indices.column(0).to_numpy().astype(np.int64)


def _check_inside(values: Any, name: str) -> None:
    """Refuse values that are paths of files: a data set from someone else could have any file of ours read."""
    arrow = require("pyarrow", "huggingface", "HFDataset")
    if isinstance(values, arrow.ExtensionArray):
        values = values.storage
    kind = values.type
    if (
        arrow.types.is_list(kind)
        or arrow.types.is_large_list(kind)
        or arrow.types.is_fixed_size_list(kind)
    ):
        _check_inside(values.flatten(), name)
    elif arrow.types.is_struct(kind):
        inside = {field.name: values.field(field.name) for field in kind}
        if {"bytes", "path"} <= inside.keys():
            nowhere, named = inside["bytes"].is_null(), inside["path"].is_valid()
            outside = arrow.compute.and_(nowhere, named).to_numpy(zero_copy_only=False)
            if outside.any():
                path = inside["path"][int(np.flatnonzero(outside)[0])].as_py()
                raise DataError(
                    f"column {name!r} holds paths of files, such as {path!r}, and not their content. If you trust "
                    "them, load the data set yourself: HFDataset(datasets.load_from_disk(...))."
                )
        for field in inside.values():
            _check_inside(field, name)


def _arrays_in_place(column: Any, name: str) -> list[NDArray[Any]]:
    """Return the rows of a column in place, or an empty list if they need decoding."""
    parts: list[NDArray[Any]] = []
    first = 0
    for chunk in column.chunks:
        if len(chunk):
            array = _array(chunk, name, first)
            if array is None:
                return []
            if parts and array.shape[1:] != parts[0].shape[1:]:
                raise _uneven_lists(name, first, array.shape[1:], parts[0].shape[1:])
            parts.append(array)
            first += len(chunk)
    return parts


def _array(chunk: Any, name: str, first: int) -> NDArray[Any] | None:
    """Return a view of an Arrow array whose rows are numbers of one shape; `first` is its first row in the column."""
    arrow = require("pyarrow", "huggingface", "HFDataset")
    types = arrow.types
    rows = len(chunk)
    shape: list[int] = []
    while True:
        if isinstance(chunk, arrow.ExtensionArray):
            chunk = chunk.storage
        kind = chunk.type
        if types.is_string(kind) or types.is_large_string(kind):
            raise DataError(
                f"column {name!r} is text. Turn it into numbers with `dataset.map`, or leave it out by `columns`."
            )
        number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
        fixed = types.is_fixed_size_list(kind)
        varying = types.is_list(kind) or types.is_large_list(kind)
        if not (number or fixed or varying):
            return None
        if chunk.null_count:
            place = int(np.flatnonzero(chunk.is_null().to_numpy(zero_copy_only=False))[0])
            row = first + place // math.prod(shape)
            raise DataError(
                f"column {name!r} has {chunk.null_count} nulls, the first in row {row} of its table. Fill them with "
                "`dataset.map`, or filter these rows out and call `dataset.flatten_indices()`."
            )
        if number:
            break
        if fixed:
            shape.append(kind.list_size)
        else:
            lengths = np.diff(chunk.offsets.to_numpy())
            other = np.flatnonzero(lengths != lengths[0])
            if len(other):
                row = first + int(other[0]) // math.prod(shape)
                raise _uneven_lists(name, row, int(lengths[other[0]]), int(lengths[0]))
            shape.append(int(lengths[0]))
        if shape[-1] == 0:
            raise DataError(f"column {name!r} has lists of no elements.")
        chunk = chunk.flatten()
    # Arrow stores booleans as bits, which must be unpacked.
    flat = chunk.to_numpy(zero_copy_only=not types.is_boolean(kind))
    array: NDArray[Any] = flat.reshape(rows, *shape)
    return array


def _uneven_lists(name: str, row: int, given: Any, expected: Any) -> DataError:
    return DataError(
        f"column {name!r} has lists of different lengths: {given} in row {row} of its table, {expected} in earlier "
        "rows. Pad them to one length with `dataset.map`, or leave the column out by `columns`."
    )
