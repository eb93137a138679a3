"""`PolarsDataset`: columns of a Polars frame, or of a file that Polars reads, in place."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError

from .array import NPDataset
from .extras import require
from .parts import ColumnArrays
from .source import FieldsSource

READERS = {
    ".parquet": "scan_parquet",
    ".csv": "scan_csv",
    ".arrow": "scan_ipc",
    ".feather": "scan_ipc",
    ".ipc": "scan_ipc",
}


class PolarsDataset(FieldsSource):
    """Columns of a frame, as fields of the same names.

    data     a DataFrame, a LazyFrame, or the path of a .parquet, .csv, .arrow, .feather or .ipc file
    columns  names of the columns to read; None is all. Others are not read from the file

    Columns are numbers or booleans, or arrays or lists of these that have one length in all rows. They are read in
    place from the frame, which is held in memory; booleans and lists may be copied, once. Nulls are not supported.
    """

    def __init__(self, data: Any, columns: Sequence[str] | None = None) -> None:
        polars = require("polars", "polars", "PolarsDataset")
        path = Path(data).absolute() if isinstance(data, str | os.PathLike) else None
        if path is not None:
            data = _scan(polars, path)
        if not isinstance(data, polars.DataFrame | polars.LazyFrame):
            raise TypeError(
                "`data` must be a polars.DataFrame, a polars.LazyFrame or a path, not "
                f"{type(data).__name__}."
            )
        known = data.collect_schema().names()
        names = known if columns is None else list(columns)
        if isinstance(columns, str) or not names:
            raise ArgumentError(f"`columns` (={columns!r}) must be a list of at least one name.")
        missing = [name for name in names if name not in known]
        if missing:
            raise ArgumentError(f"`columns` names {missing}, and the frame has {known}.")
        frame = data.lazy().select(names).collect()
        if frame.height == 0:
            raise DataError("`data` has no rows.")
        columns_of = FrameColumns(path, names, frame)
        super().__init__({name: NPDataset.of_column(columns_of, name) for name in names})


class FrameColumns(ColumnArrays):
    """Columns of a frame, which is pickled as the path of its file if it has one."""

    def __init__(self, path: Path | None, names: list[str], frame: Any) -> None:
        super().__init__()
        self._path, self._names, self._frame = path, names, frame

    def read(self, name: str) -> list[NDArray[Any]]:
        return _arrays(require("polars", "polars", "PolarsDataset"), self._frame[name])

    def __repr__(self) -> str:
        return str(self._path or "the frame")

    def __reduce__(self) -> tuple[Any, ...]:
        if self._path is None:
            return FrameColumns, (None, self._names, self._frame)
        return _read_columns, (self._path, self._names)


def _read_columns(path: Path, names: list[str]) -> FrameColumns:
    polars = require("polars", "polars", "PolarsDataset")
    return FrameColumns(path, names, _scan(polars, path).select(names).collect())


def _scan(polars: Any, path: Path) -> Any:
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ArgumentError(
            f"{path} does not end with one of {', '.join(READERS)}; read it with polars, and pass the frame."
        )
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return getattr(polars, reader)(path)


def _arrays(polars: Any, column: Any) -> list[NDArray[Any]]:
    shape: list[int] = []
    numbers = column
    while isinstance(numbers.dtype, polars.Array | polars.List):
        _check_nulls(column, numbers, shape)
        if isinstance(numbers.dtype, polars.Array):
            shape.append(numbers.dtype.size)
        else:
            shape.append(_length_of_lists(column, numbers, shape))
        if shape[-1] == 0:
            raise DataError(f"column {column.name!r} has lists of no elements.")
        numbers = numbers.explode()
    kind = numbers.dtype
    boolean = kind == polars.Boolean
    # NumPy does not have integers of 128 bits.
    if not (boolean or kind.is_float() or (kind.is_integer() and not str(kind).endswith("128"))):
        raise DataError(
            f"column {column.name!r} is {column.dtype}; it must be numbers, booleans, or arrays of these. Turn "
            "it into numbers, such as by `cast(pl.Categorical).to_physical()`, or leave it out by `columns`."
        )
    _check_nulls(column, numbers, shape)
    if boolean or isinstance(column.dtype, polars.List):
        # Polars stores booleans as bits, which must be unpacked.
        return [numbers.to_numpy().reshape(len(column), *shape)]
    parts: list[NDArray[Any]] = [part.to_numpy(allow_copy=False) for part in column.get_chunks()]
    return [part for part in parts if len(part)]


def _check_nulls(column: Any, numbers: Any, shape: list[int]) -> None:
    if numbers.null_count():
        row = int(numbers.is_null().arg_max()) // math.prod(shape)
        raise DataError(
            f"column {column.name!r} has {numbers.null_count()} nulls, the first in row {row}. Use "
            "`frame.drop_nulls()` or `frame.fill_null(...)`."
        )


def _length_of_lists(column: Any, lists: Any, shape: list[int]) -> int:
    lengths = lists.list.len()
    other = lengths != lengths[0]
    if other.any():
        place = int(other.arg_max())
        raise DataError(
            f"column {column.name!r} has lists of different lengths: {lengths[place]} in row "
            f"{place // math.prod(shape)}, {lengths[0]} in row 0. Pad them to one length, or leave the column out by "
            "`columns`."
        )
    return int(lengths[0])
