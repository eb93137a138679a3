"""Convert what a user passes to a source."""

import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.spec import plain_array

from .array import NPDataset
from .object import ObjectSource
from .source import FieldsSource, Source


class RangeRows:
    """Rows of a range, computed: a range of a billion needs no memory."""

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitems__(self, rows: list[int]) -> NDArray[np.int64]:
        return self._numbers.start + np.asarray(rows, np.int64) * self._numbers.step


def as_source(data: Any) -> Source:
    """Return the source for a source, an array, a range, a list, or any object with `__len__` and `__getitem__`."""
    if isinstance(data, Source):
        return data.unwrapped
    if isinstance(data, Mapping):
        raise ArgumentError(
            f"one source is expected, got a dict (of {list(data)}); pass its fields one by one."
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
    frame = _frame(data)
    if frame is not None:
        return frame
    if hasattr(data, "__len__") and (hasattr(data, "__getitem__") or hasattr(data, "__getitems__")):
        # jax.Array and other array types: their memory is read in place where possible.
        if hasattr(data, "__array__"):
            _check_nulls(data, f"the source of type {type(data).__name__}")
            return NPDataset(plain_array(data, f"the source of type {type(data).__name__}"))
        return ObjectSource(data)
    raise TypeError(
        f"a source must be an NPDataset, an array, a list, a range, or an object with `__len__` and "
        f"`__getitem__`, not {type(data).__name__}."
    )


def as_rows(data: Any) -> Source:
    """Return the source for whatever `as_source` accepts, or for a dict of such fields."""
    if not isinstance(data, Mapping):
        return as_source(data)
    for name, value in data.items():
        if isinstance(value, Mapping):
            raise ArgumentError(
                f"field {name!r} is a dict (of {list(value)}). Pass its fields one by one."
            )
    fields: dict[str, Source] = {}
    for name, value in data.items():
        source = as_source(value)
        own = {str(name): source}
        if isinstance(source, FieldsSource) and source.main is not None:
            own = source.named(str(name))
        twice = sorted(own.keys() & (fields.keys() | data.keys() - {name}))
        if twice:
            raise ArgumentError(
                f"field {name!r} brings a field {twice[0]!r} with it, which exists already; rename one of them."
            )
        fields.update(own)
    return FieldsSource(fields)


def _frame(data: Any) -> Source | None:
    """Return the columns of a table as fields: converted to an array they would become one matrix of one dtype."""
    package, kind = type(data).__module__.partition(".")[0], type(data).__name__
    polars, pandas = sys.modules.get("polars"), sys.modules.get("pandas")
    if polars is not None and isinstance(data, polars.DataFrame | polars.LazyFrame):
        from .polars import PolarsDataset

        return PolarsDataset(data)
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return _pandas_columns(data)
    advice = {
        (
            "pyarrow",
            "Table",
        ): "Give its columns as a dict, such as {name: table[name].to_numpy()}, or "
        "`PolarsDataset(polars.from_arrow(table))`.",
        (
            "pyarrow",
            "RecordBatch",
        ): "Give its columns as a dict, such as {name: batch[name].to_numpy()}.",
    }.get((package, kind))
    if package == "scipy" and hasattr(data, "toarray"):
        advice = "Give `matrix.toarray()`, or an object with `__len__` and `__getitem__` that makes a row of it."
    if advice is not None:
        raise ArgumentError(f"a {package} {kind} is not an array of rows. {advice}")
    return None


def _check_nulls(column: Any, where: str) -> None:
    """Refuse nulls that the dtype cannot hold: a column of integers would become one of floats."""
    nulls = getattr(column, "null_count", 0)  # an attribute in pyarrow, a method in polars
    nulls = nulls() if callable(nulls) else nulls
    if not isinstance(getattr(column, "dtype", None), np.dtype) and hasattr(column, "isna"):
        nulls = int(np.sum(column.isna()))  # pandas marks nulls in its own dtypes
    if nulls:
        raise ArgumentError(f"{where} has {nulls} nulls. Fill them or drop their rows first.")


def _pandas_columns(frame: Any) -> Source:
    if len({str(name) for name in frame.columns}) != max(frame.shape[1], 1):
        raise ArgumentError(
            f"a DataFrame is read as a dict of its columns, whose names must differ, got {list(frame.columns)}."
        )
    for name in frame.columns:
        _check_nulls(frame[name], f"column {name!r} of the DataFrame")
    columns = {str(name): frame[name].to_numpy() for name in frame.columns}
    for name, column in columns.items():
        if column.dtype.kind not in "biufcmM":
            raise ArgumentError(
                f"column {name!r} of the DataFrame has dtype {frame.dtypes.iloc[list(columns).index(name)]}, and rows "
                "are numbers. Turn it into numbers, such as by `frame[name].astype('category').cat.codes`, or drop it; "
                "for one matrix of all columns give `frame.to_numpy()`."
            )
    return FieldsSource({name: NPDataset(column) for name, column in columns.items()})
