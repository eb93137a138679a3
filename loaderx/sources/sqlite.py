"""`SQLiteDataset`: the rows of a table in an SQLite file, numbers and BLOBs of a fixed size."""

import math
import operator
import os
import sqlite3
import weakref
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.spec import Spec

from .source import Array, Rows, Source, narrow_into

# SQLite before 3.32 accepts 999 parameters.
ROWS_PER_QUERY = 900
# Names that SQLite gives to the number of every row; a column may use one of them.
ROWID_NAMES = ("rowid", "_rowid_", "oid")


class SQLiteDataset(Source):
    """Rows of a table, in the order of their rowid, as dicts of the given columns.

    path     the file of the database, which is opened read-only
    table    the name of a table that has a rowid
    columns  the content of each column: {"label": "int64", "image": ("uint8", (28, 28))} is a number, and a BLOB with
                      the bytes of an array
    where    an SQL condition on the rows, such as "split = 'train'"

    The rowids are read at opening, and need 8 bytes of memory each. Rows are read by their rowid, many at once and
    from any number of threads. Reads return the current content of the table: do not write to it meanwhile.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        table: str,
        columns: Mapping[str, Any],
        *,
        where: str | None = None,
    ) -> None:
        connections = _connections(Path(path))
        if not hasattr(columns, "items") or not columns:
            raise ArgumentError(
                f"`columns` (={columns!r}) must give the content of each column, such as "
                '{"label": "int64", "image": ("uint8", (28, 28))}.'
            )
        self._columns = [_column(name, kind) for name, kind in columns.items()]
        self._connections = connections
        self._table = f"table {table!r} of {path}"
        with self._connections.lease() as connection:
            rowid = _check_names(connection, table, columns, str(path))
            begin = f"FROM {_quoted(table)} WHERE"
            order = f"ORDER BY {rowid}"
            condition = "1" if where is None else f"({where})"
            self._rowids = self._read_rowids(
                connection, f"SELECT {rowid} {begin} {condition} {order}"
            )
        if len(self._rowids) == 0:
            raise DataError(f"{self._table} has no rows" + (f" where {where}." if where else "."))
        names = ", ".join([rowid, *map(_quoted, columns)])
        self._query = f"SELECT {names} {begin} {rowid} IN", order

    @property
    def spec(self) -> dict[str, Spec]:
        return {column.name: column.spec for column in self._columns}

    def __len__(self) -> int:
        return len(self._rowids)

    def read(self, rows: Rows, out: Sequence[Array]) -> None:
        wanted, places = np.unique(self._rowids[rows], return_inverse=True)
        fetched: list[tuple[Any, ...]] = []
        query, order = self._query
        with self._connections.lease() as connection:
            for first in range(0, len(wanted), ROWS_PER_QUERY):
                numbers = wanted[first : first + ROWS_PER_QUERY].tolist()
                marks = ", ".join("?" * len(numbers))
                fetched += connection.execute(f"{query} ({marks}) {order}", numbers)
        if len(fetched) != len(wanted):
            gone = np.setdiff1d(wanted, [row[0] for row in fetched])[0]
            raise DataError(
                f"{self._name(gone)} is gone: it was deleted after the data set was opened."
            )
        for number, (column, array) in enumerate(zip(self._columns, out, strict=True), start=1):
            values = [row[number] for row in fetched]
            misfit = column.first_misfit(values)
            if misfit is not None:
                raise DataError(
                    f"column {column.name!r} in {self._name(wanted[misfit])} is {_described(values[misfit])}, where "
                    f"{column.expected} is expected."
                )
            narrow_into(column.array(values)[places], rows, array)

    def _read_rowids(self, connection: sqlite3.Connection, query: str) -> NDArray[np.int64]:
        try:
            return np.fromiter((row[0] for row in connection.execute(query)), np.int64)
        except (TypeError, sqlite3.OperationalError) as error:
            # The rowids of a view are NULL; since SQLite 3.36 reading them is an error.
            if isinstance(error, TypeError) or str(error) == f"no such column: {ROWID_NAMES[0]}":
                raise ArgumentError(
                    f"{self._table} has no rowid: it is a view, or a table WITHOUT ROWID. Copy it to a plain table."
                ) from error
            raise

    def _name(self, rowid: int) -> str:
        return f"row {np.searchsorted(self._rowids, rowid)} (rowid {rowid}) of {self._table}"


@dataclass(frozen=True)
class Column:
    """Content of a column: a number in each row, or a BLOB."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None

    @property
    def spec(self) -> Spec:
        """Shape and dtype of a value as delivered."""
        return Spec(self.shape or (), self.dtype.newbyteorder("="))

    @property
    def expected(self) -> str:
        """Rule for every value, for messages."""
        if self.shape is None:
            return f"a number that fits into {self.spec.dtype}"
        return f"a BLOB of {self.spec.nbytes} bytes for {self.spec}"

    def first_misfit(self, values: Sequence[Any]) -> int | None:
        """Return the index of the first value that the column must not hold, or None."""
        if self.shape is None:
            types = (int, float) if self.dtype.kind == "f" else (int,)
            least, most = self._limits()
            fits = (isinstance(value, types) and least <= value <= most for value in values)
        else:
            size = self.spec.nbytes
            fits = (isinstance(value, bytes) and len(value) == size for value in values)
        return next((place for place, fit in enumerate(fits) if not fit), None)

    def _limits(self) -> tuple[float, float]:
        if self.dtype.kind == "f":
            return -math.inf, math.inf
        if self.dtype.kind == "b":
            return 0, 1
        limits = np.iinfo(self.dtype)
        return int(limits.min), int(limits.max)

    def array(self, values: Sequence[Any]) -> NDArray[Any]:
        """Return the values of many rows, in native byte order."""
        if self.shape is None:
            return np.array(values, self.spec.dtype)
        stored = np.frombuffer(b"".join(values), self.dtype)
        return stored.reshape(len(values), *self.shape).astype(self.spec.dtype, copy=False)


class Connections:
    """Pool of read-only connections to one file. They are closed when their owner is garbage collected.

    A read borrows a connection. A connection per thread would stay open after the end of its thread.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._absolute = path.resolve()
        self._address = f"{self._absolute.as_uri()}?mode=ro"
        self._free: deque[sqlite3.Connection] = deque()
        weakref.finalize(self, _close, self._free)

    def __reduce__(self) -> tuple[Any, ...]:
        return _connections, (self._absolute,)

    @contextmanager
    def lease(self) -> Generator[sqlite3.Connection]:
        """Yield a connection for the block; exceptions of SQLite become a DataError."""
        try:
            connection = self._free.pop()
        except IndexError:
            # Two threads never use it at once, which is all that SQLite requires.
            connection = sqlite3.connect(self._address, uri=True, check_same_thread=False)
        try:
            yield connection
        # Some releases of Python raise a Warning on several statements at once.
        except (sqlite3.Error, sqlite3.Warning) as error:
            connection.close()
            raise DataError(f"{self._path} cannot be read: {error}") from error
        except BaseException:
            connection.close()
            raise
        self._free.append(connection)


def _connections(path: Path) -> Connections:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return Connections(path)


def _close(connections: deque[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()


def _column(name: str, kind: Any) -> Column:
    dtype, shape = kind if isinstance(kind, tuple | list) and len(kind) == 2 else (kind, None)
    try:
        dtype = np.dtype(dtype)
        shape = shape if shape is None else tuple(operator.index(size) for size in shape)
    except TypeError:
        dtype = np.dtype(object)
        shape = None
    if dtype.kind not in ("biuf" if shape is None else "biufc") or min(shape or (1,)) < 1:
        raise ArgumentError(
            f'column {name!r} (={kind!r}) must be a dtype of numbers, such as "int64", or a dtype and a shape, such as '
            '("uint8", (28, 28)).'
        )
    return Column(name, dtype, shape)


def _check_names(
    connection: sqlite3.Connection, table: str, columns: Mapping[str, Any], path: str
) -> str:
    """Return the name of the rowid in a table that has the given columns."""
    found = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
    if not found:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        raise ArgumentError(
            f"{path} has no table {table!r}; it has {[name for (name,) in tables]}."
        )
    known = {name.lower() for (name,) in found}  # SQLite ignores case.
    missing = [name for name in columns if name.lower() not in known]
    if missing:
        raise ArgumentError(
            f"`columns` names {missing}, and table {table!r} of {path} has {[name for (name,) in found]}."
        )
    free = [name for name in ROWID_NAMES if name not in known]
    if not free:
        raise ArgumentError(
            f"table {table!r} of {path} has columns with all names of the rowid: {', '.join(ROWID_NAMES)}."
        )
    return free[0]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _described(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"a BLOB of {len(value)} bytes"
    return f"{value!r}"
