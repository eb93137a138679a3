"""Source of any object with `__len__` and `__getitem__`, read under the GIL on worker threads."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from loaderx.errors import ArgumentError, DataError, annotate
from loaderx.spec import Spec, plain_array

from .source import Array, Rows, RowSpec, Source, describe, narrow_into, specs_of


class ObjectSource(Source):
    """Rows of a Python object, each an array, a dict of arrays or a tuple of arrays.

    An object that has `__getitems__(rows)` is asked for many rows at once. It returns a list of rows, or arrays (a dict
    or a tuple of arrays) whose first axis is the rows. The object must allow reads from several threads at once;
    `workers=1` reads from one.
    """

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._name = type(rows).__name__
        self._read_many = getattr(rows, "__getitems__", None)
        if len(rows) == 0:
            raise DataError(f"the source of type {self._name} has no rows.")
        row = self._first_row()
        self._names = list(row) if isinstance(row, Mapping) else []
        self._spec = _spec_of_row(row, self._name)

    @property
    def spec(self) -> RowSpec:
        return self._spec

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, rows: Rows, out: Sequence[Array]) -> None:
        numbers: list[int] = rows.tolist()
        fetched: Iterable[Any]
        if self._read_many is None:
            fetched = (self._row(number) for number in numbers)
        else:
            fetched = self._read_many(numbers)
            if not isinstance(fetched, list):
                columns = [
                    plain_array(column, "a column") for column in self._fields(fetched, "many rows")
                ]
                for spec, column, array in zip(specs_of(self._spec), columns, out, strict=True):
                    self._check(column, Spec((len(rows), *spec.shape), spec.dtype), "many rows")
                    narrow_into(np.ascontiguousarray(column, spec.dtype), rows, array)
                return
            if len(fetched) != len(numbers):
                raise DataError(
                    f"{self._name}.__getitems__ gave {len(fetched)} rows, expected {len(numbers)}."
                )
        specs = specs_of(self._spec)
        columns = [np.empty((len(rows), *spec.shape), spec.dtype) for spec in specs]
        for place, row in enumerate(fetched):
            where = f"row {numbers[place]}"
            for spec, column, value in zip(specs, columns, self._fields(row, where), strict=True):
                array = plain_array(value, where)
                self._check(array, spec, where)
                column[place, ...] = array
        for column, array in zip(columns, out, strict=True):
            narrow_into(column, rows, array)

    def _row(self, number: int) -> Any:
        try:
            return self._rows[number]
        except Exception as error:
            annotate(error, "while reading row", f"{number} of {self._name}")
            raise

    def _first_row(self) -> Any:
        if self._read_many is None:
            return self._row(0)
        answer = self._read_many([0])
        if isinstance(answer, Mapping):
            return {name: column[0] for name, column in answer.items()}
        if isinstance(answer, tuple):
            return tuple(column[0] for column in answer)
        return answer[0]

    def _fields(self, row: Any, where: str) -> list[Any]:
        if isinstance(self._spec, Spec):
            return [row]
        if isinstance(self._spec, dict):
            if not isinstance(row, Mapping) or row.keys() != set(self._names):
                raise DataError(
                    f"{where} of {self._name} has the fields {_names(row)}, row 0 has "
                    f"{list(self._spec)}; all rows must have the same."
                )
            return [row[name] for name in self._names]
        if not isinstance(row, tuple) or len(row) != len(self._spec):
            raise DataError(
                f"{where} of {self._name} is not a tuple of {len(self._spec)} like row 0."
            )
        return list(row)

    def _check(self, value: Array, spec: Spec, where: str) -> None:
        if value.shape != spec.shape or not np.can_cast(value.dtype, spec.dtype, "safe"):
            raise DataError(
                f"{where} of {self._name} is {Spec(value.shape, value.dtype)}, expected {spec}, "
                f"as row 0 is {describe(self._spec)}; all rows must have one shape and dtype."
            )


def _names(row: Any) -> Any:
    return list(row) if isinstance(row, Mapping) else type(row).__name__


def _spec_of_row(row: Any, name: str) -> RowSpec:
    if isinstance(row, Mapping):
        return {str(field): _spec_of_value(value, name) for field, value in row.items()}
    if isinstance(row, tuple):
        return tuple(_spec_of_value(value, name) for value in row)
    return _spec_of_value(row, name)


def _spec_of_value(value: Any, name: str) -> Spec:
    try:
        array = plain_array(value, f"row 0 of {name}")
    except ArgumentError:
        raise
    except ValueError as error:  # a list of arrays of several shapes
        raise DataError(
            f"row 0 of {name} is a {type(value).__name__} that is not an array ({error}); a row of several values "
            "must be a tuple or a dict."
        ) from None
    if array.dtype.hasobject or array.dtype.names is not None or array.dtype.kind in "USV":
        raise DataError(
            f"row 0 of {name} is {type(value).__name__} with dtype {array.dtype}; rows must be "
            "numbers or arrays of numbers, or a dict or tuple of these."
        )
    return Spec(array.shape, array.dtype.newbyteorder("="))
