"""Columns of Parquet files: found by name, also inside of structs, and read as arrays of numbers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.sources.extras import require
from loaderx.spec import Spec

from .declared import Numbers
from .field import Encoded
from .index import Columns
from .parquet_footer import Footer
from .paths import CompactList

# Rows whose numbers are read at once.
BATCH = 1 << 16
# A message with more names would help nobody.
MOST_SHOWN = 30


class GroupedRows(CompactList):
    """Names of rows for messages: the number of each in its file, and its row group."""

    def __init__(self, files: Iterable[Sequence[int]]) -> None:
        counts = list(files)
        self._numbers = np.array([n for groups in counts for n in range(len(groups))], np.int64)
        rows = np.concatenate([np.asarray(groups, np.int64) for groups in counts])
        self._ends = np.cumsum(rows)
        before = np.cumsum([0, *(sum(groups) for groups in counts)])[:-1]
        self._files = np.repeat(before, [len(groups) for groups in counts])

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def item(self, place: int) -> str:
        group = int(np.searchsorted(self._ends, place, side="right"))
        return f"row {place - int(self._files[group])} (row group {self._numbers[group]})"


class ParquetColumns:
    """Columns of an open Parquet file."""

    def __init__(self, path: Path, footer: Footer, file: Any) -> None:
        self.path, self.footer, self._file = path, footer, file
        schema = file.schema
        self.names = [schema.column(number).path for number in range(len(schema.names))]

    def plain(self, name: str) -> Encoded | Numbers:
        """Return the field that a column is by its type."""
        arrow = require("pyarrow", "parquet", "ParquetDataset")
        path, kind = self._found(name)
        if _bytes_of(arrow, path, kind) is not None:
            return Encoded(name)
        shape: list[int] = []
        while arrow.types.is_fixed_size_list(kind):
            shape.append(kind.list_size)
            kind = _storage(arrow, kind.value_type)
        if _is_list(arrow, kind):
            raise ArgumentError(
                f"the column {name!r} of {self.path} has lists of any length. Declare one length for all rows, such as "
                f'("float32", {name!r}, (4,)).'
            )
        if not _is_number(arrow, kind):
            raise DataError(f"the column {name!r} of {self.path} is {kind}, not numbers or images.")
        return Numbers(name, Spec(tuple(shape), kind.to_pandas_dtype()))

    def leaf(self, name: str, field: Encoded) -> int:
        """Return the number of the column with the bytes of encoded images."""
        arrow = require("pyarrow", "parquet", "ParquetDataset")
        path, kind = self._found(field.field or "", name)
        inside = _bytes_of(arrow, path, kind)
        if inside is None:
            raise DataError(
                f"the column {field.field!r} of {self.path}, for the field {name!r}, is {kind}, not binary."
            )
        leaf = ".".join(inside)
        if self.names.count(leaf) != 1:
            raise DataError(f"{self.path} has {self.names.count(leaf)} columns {leaf!r}.")
        return self.names.index(leaf)

    def numbers(self, fields: Mapping[str, Numbers]) -> Columns:
        """Read numbers."""
        parts: dict[str, list[NDArray[Any]]] = {
            name: [np.empty((0, *field.spec.shape), field.spec.dtype)]
            for name, field in fields.items()
        }
        paths = {name: self._found(field.field, name)[0] for name, field in fields.items()}
        if not fields:
            return {}
        columns = sorted({".".join(path) for path in paths.values()})
        first = 0
        for batch in self._file.iter_batches(BATCH, columns=columns, use_threads=False):
            for name, field in fields.items():
                parts[name].append(self._converted(batch, paths[name], name, field, first))
            first += batch.num_rows
        return {name: np.concatenate(found) for name, found in parts.items()}

    def levels(self, column: int) -> int:
        """Return the definition level of values that are not null."""
        return int(self._file.schema.column(column).max_definition_level)

    def where(self, row: int) -> str:
        """Return where a row is, for messages."""
        return f"{self.path}, {GroupedRows([self.footer.rows]).item(row)}"

    def _found(self, column: str, name: str | None = None) -> tuple[tuple[str, ...], Any]:
        """Return the names of the structs around a column and its own, and its type; `name` is that of the field."""
        arrow = require("pyarrow", "parquet", "ParquetDataset")
        found = _find(arrow, self._file.schema_arrow, column)
        if found is None:
            more = ", ..." if len(self.names) > MOST_SHOWN else ""
            known = ", ".join(map(repr, self.names[:MOST_SHOWN])) + more
            of = "" if name is None else f" for the field {name!r}"
            raise DataError(f"{self.path} has no column {column!r}{of}; it has {known or 'none'}.")
        return found

    def _converted(
        self, batch: Any, path: tuple[str, ...], name: str, field: Numbers, first: int
    ) -> NDArray[Any]:
        """Return the numbers of a batch of rows, of which `first` is the number of the first."""
        arrow = require("pyarrow", "parquet", "ParquetDataset")
        compute = require("pyarrow.compute", "parquet", "ParquetDataset")
        what = f"the column {field.field!r} of the field {name!r}"
        values = batch.column(batch.schema.get_field_index(path[0]))
        if len(path) > 1:
            values = compute.struct_field(values, list(path[1:]))
        shape: list[int] = []
        while True:
            if isinstance(values, arrow.ExtensionArray):
                values = values.storage
            if values.null_count:
                place = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
                raise DataError(f"{self.where(first + place // math.prod(shape))}: {what} is null.")
            if not _is_list(arrow, values.type):
                break
            lengths = compute.list_value_length(values).to_numpy()
            wanted = field.spec.shape[len(shape)] if len(shape) < len(field.spec.shape) else None
            wrong = lengths != wanted
            if np.any(wrong):
                place = int(np.argmax(wrong))
                raise DataError(
                    f"{self.where(first + place // math.prod(shape))}: {what} is a list of {lengths[place]}, not "
                    f"{field.spec}."
                )
            shape.append(int(wanted or 0))
            values = values.flatten()
        if not _is_number(arrow, values.type) or tuple(shape) != field.spec.shape:
            inside = "".join(f"[{length}]" for length in shape)
            raise DataError(f"{what} of {self.path} is {values.type}{inside}, not {field.spec}.")
        array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
        wrong_at = _misfit(array, field.spec.dtype)
        if wrong_at is not None:
            raise DataError(
                f"{self.where(first + wrong_at // math.prod(shape))}: {array[wrong_at]} of {what} does not fit into "
                f"{field.spec.dtype}."
            )
        with np.errstate(over="ignore"):
            array = array.astype(field.spec.dtype, copy=False)
        return array.reshape(batch.num_rows, *shape)


def _find(arrow: Any, fields: Iterable[Any], name: str) -> tuple[tuple[str, ...], Any] | None:
    """Return the names of the structs around a column and its own, and its type."""
    for field in fields:
        if field.name == name:
            return (name,), _storage(arrow, field.type)
    for field in fields:
        kind = _storage(arrow, field.type)
        if name.startswith(f"{field.name}.") and arrow.types.is_struct(kind):
            inside = _find(arrow, list(kind), name[len(field.name) + 1 :])
            if inside is not None:
                return (field.name, *inside[0]), inside[1]
    return None


def _bytes_of(arrow: Any, path: tuple[str, ...], kind: Any) -> tuple[str, ...] | None:
    """Return the path of a column of bytes, or of that in a struct as Hugging Face has; None if it is neither."""
    types = arrow.types
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        path, kind = (*path, "bytes"), _storage(arrow, kind.field("bytes").type)
    binary = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return path if binary else None


def _storage(arrow: Any, kind: Any) -> Any:
    return kind.storage_type if isinstance(kind, arrow.BaseExtensionType) else kind


def _is_list(arrow: Any, kind: Any) -> bool:
    types = arrow.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_number(arrow: Any, kind: Any) -> bool:
    types = arrow.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _misfit(values: NDArray[Any], dtype: np.dtype[Any]) -> int | None:
    """Return the first number that cannot be stored in a dtype without another value, but for rounded floats."""
    given = values.dtype
    if given == dtype or len(values) == 0:
        return None
    if given.kind == "b" or (given.kind == "f" and dtype.kind != "f"):
        return 0
    if dtype.kind == "f":
        return None
    wrong = values.astype(dtype) != values
    return int(np.argmax(wrong)) if np.any(wrong) else None
