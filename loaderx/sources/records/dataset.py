"""`ARDataset`: records of ArrayRecord files as rows."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import DTypeLike

from loaderx.errors import ArgumentError, DataError
from loaderx.sources.object import ObjectSource
from loaderx.sources.open_files import OpenFiles
from loaderx.sources.source import (
    Array,
    FieldsSource,
    Rows,
    RowSpec,
    RowSpec_co,
    Source,
    owners_of,
    resolve_rows,
)
from loaderx.spec import Spec, check_dtype

from .field_rows import field_rows
from .fields import RecordFields, is_valid, noted_fields
from .file import VERIFY, Verify
from .paths import PathLike, record_paths
from .reader import ChunkCache, PackageReader, Reader, open_reader
from .rows import LengthRows, RecordRows, checked_rows

Shape: TypeAlias = Sequence[int | None]
Paths: TypeAlias = PathLike | Sequence[PathLike]


class ARDataset(Source[RowSpec_co]):
    """Rows of one or several ArrayRecord files.

    `path` is a file, a pattern such as `train-*.ar` or `train-{00..11}.ar`, `train@4` for the files
    train-00000-of-00004 and so on, or a list of these. `dtype` and `shape` describe a record; files by
    `write_array_record` contain them.

    A `shape` that begins with None means records of any length. They are padded with `pad_value` to the length
    `pad_to`, or cut to it, and rows have the fields "data" and "length".

    A dict in place of the dtype declares records of several fields: `{"image": Encoded(), "label": "int64"}`, each an
    encoded image, a dtype, or a dtype and a shape. A record is the numbers in this order, little endian, and then the
    images, with the length of each but the last in front of it in four bytes. Files by `write_array_record(fields=...)`
    and `loaderx convert` contain the fields; a dict then selects some of them.

    Without a dtype rows are `bytes`; `decode` is a function that turns them into an array, or a dict of arrays.

    `verify` selects when the hash of a record is checked: at its "first" use, "always" or "never". With `mmap=False`
    files are read and not mapped. A mapped file that shrinks ends the process. It also stays open, and by default
    a process may have 1,024 files open.
    """

    # fmt: off
    @overload
    def __init__(self: "ARDataset[dict[str, Spec]]", path: Paths, dtype: Mapping[str, Any], *,
                 verify: Verify = ..., mmap: bool = ...) -> None: ...
    @overload
    def __init__(self: "ARDataset[dict[str, Spec]]", path: Paths, dtype: DTypeLike | None = ...,
                 shape: Shape | None = ..., *, pad_to: int, pad_value: float = ..., decode: None = ...,
                 verify: Verify = ..., mmap: bool = ...) -> None: ...
    @overload
    def __init__(self: "ARDataset[Spec]", path: Paths, dtype: type[Any] | np.dtype[Any] | str,
                 shape: Shape | None = ..., *, pad_to: None = ..., pad_value: float = ..., decode: None = ...,
                 verify: Verify = ..., mmap: bool = ...) -> None: ...
    @overload
    def __init__(self: "ARDataset", path: Paths, dtype: None = ..., shape: None = ..., *,
                 decode: Callable[[bytes], Any] | None = ..., verify: Verify = ..., mmap: bool = ...) -> None: ...
    # fmt: on
    def __init__(
        self,
        path: Paths,
        dtype: DTypeLike | Mapping[str, Any] | None = None,
        shape: Shape | None = None,
        *,
        pad_to: int | None = None,
        pad_value: float = 0,
        decode: Callable[[bytes], Any] | None = None,
        verify: Verify = "first",
        mmap: bool = True,
    ) -> None:
        if verify not in tuple(VERIFY):
            raise ArgumentError(
                f"`verify` (={verify!r}) must be one of {', '.join(map(repr, VERIFY))}."
            )
        if decode is not None and (dtype is not None or shape is not None):
            raise ArgumentError("`decode` makes the rows; leave `dtype` and `shape` out.")
        if decode is not None and not callable(decode):
            raise ArgumentError(f"`decode` (={decode!r}) must be callable.")
        cache, files = ChunkCache(), OpenFiles()
        readers = [
            open_reader(file, VERIFY[verify], bool(mmap), cache, files)
            for file in record_paths(path)
        ]
        self._paths = [reader.path for reader in readers]
        slow = [str(reader.path) for reader in readers if isinstance(reader, PackageReader)]
        if slow:
            more = f" and {len(slow) - 1} more files" if len(slow) > 1 else ""
            warnings.warn(
                f"{slow[0]}{more}: compressed with brotli or snappy, or transposed, so the array_record "
                "package reads it, record by record. For speed rewrite it with `write_array_record`, or with the "
                "package's writer and the options 'group_size:1,zstd' or 'group_size:1,uncompressed'.",
                stacklevel=2,
            )
        if sum(map(len, readers)) == 0:
            raise DataError(f"{self._paths[0]} has no records.")
        self.rows: Source[Any]
        declared = dtype if isinstance(dtype, Mapping) else None
        by_file = decode is None and (dtype is None or declared is not None)
        noted = _noted_fields(readers) if by_file else None
        if noted is not None or isinstance(dtype, Mapping):
            if shape is not None or pad_to is not None:
                raise ArgumentError(
                    "records of several fields need no `shape` and no `pad_to`; leave them out."
                )
            self.rows = field_rows(readers, noted, declared, VERIFY[verify])
            return
        described = None if decode is not None else _described(readers, dtype, shape)
        if described is None:
            if pad_to is not None:
                raise ArgumentError(f"`pad_to` (={pad_to!r}) needs `dtype` and `shape`.")
            self.rows = ByteRows(readers)
            if decode is not None:
                self.rows = ObjectSource(_DecodedRecords(self.rows, decode))
            return
        element, sizes = described
        if sizes[:1] != (None,):
            if pad_to is not None:
                raise ArgumentError(
                    f"`pad_to` (={pad_to!r}) is for a `shape` that begins with None, not {sizes}."
                )
            spec = Spec(_all_known(sizes), element)
            self.rows = checked_rows(readers, spec, VERIFY[verify], None)
            return
        if isinstance(pad_to, bool) or not isinstance(pad_to, int | np.integer) or pad_to < 1:
            raise ArgumentError(
                f"`pad_to` (={pad_to!r}) must be an integer of at least 1 for records of shape {sizes}."
            )
        spec = Spec((int(pad_to), *_all_known(sizes[1:])), element)
        if spec.nbytes == 0:
            raise ArgumentError(f"`shape` (={sizes}) has no elements.")
        padding = _padding(spec, pad_value)
        fields = {
            "data": RecordRows(readers, spec, VERIFY[verify], padding),
            "length": LengthRows(readers, spec.nbytes // int(pad_to), int(pad_to)),
        }
        self.rows = FieldsSource(fields, main="data")

    @property
    def spec(self) -> RowSpec_co:
        return self.rows.spec  # type: ignore[no-any-return]

    @property
    def unwrapped(self) -> Source[RowSpec_co]:
        return self.rows

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, rows: Rows, out: Sequence[Array]) -> None:
        self.rows.read(rows, out)

    def __getitem__(self, key: Any) -> Any:
        return self.rows[key]

    def __repr__(self) -> str:
        more = f" and {len(self._paths) - 1} more files" if len(self._paths) > 1 else ""
        inside = repr(self.rows).partition("(")[2]
        return f"ARDataset({str(self._paths[0])!r}{more}: {inside}"


class ByteRows(Source):
    """Records as `bytes`."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = tuple(readers)
        self._starts = np.cumsum([0] + [len(reader) for reader in readers], dtype=np.int64)

    @property
    def spec(self) -> RowSpec:
        raise _no_spec()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, rows: Rows, out: Sequence[Array]) -> None:  # noqa: ARG002
        raise _no_spec()

    def __getitem__(self, key: Any) -> Any:
        single, rows = resolve_rows(key, len(self))
        found = self.bytes_of(rows)
        return found[0] if single else found

    def bytes_of(self, rows: Rows) -> list[bytes]:
        """Return these records."""
        found = [b""] * len(rows)
        for owner, places in owners_of(rows, self._starts).items():
            numbers = rows[places] - self._starts[owner]
            for place, record in zip(
                places, self._readers[owner].records(numbers.tolist()), strict=True
            ):
                found[place] = record.tobytes()
        return found

    def __repr__(self) -> str:
        return f"ByteRows({len(self)} rows of bytes)"


def _no_spec() -> ArgumentError:
    return ArgumentError(
        "the records of these files are bytes of unknown content: give ARDataset `dtype` and "
        "`shape`, or `decode`, a function that makes an array of a record."
    )


class _DecodedRecords:
    """Records passed through `decode`, as rows for `ObjectSource`."""

    def __init__(self, rows: ByteRows, decode: Callable[[bytes], Any]) -> None:
        self._rows = rows
        self._decode = decode

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, rows: Sequence[int]) -> list[Any]:
        return [self._decode(record) for record in self._rows.bytes_of(np.asarray(rows, np.int64))]


def _noted_fields(readers: Sequence[Reader]) -> RecordFields | None:
    """Return the fields of the records if all files note the same, None if none notes any."""
    notes = {
        str(reader.metadata.row): (reader.path, reader.metadata.row)
        for reader in readers
        if len(reader)
    }
    if not any("fields" in (row or ()) for _, row in notes.values()):
        return None
    if len(notes) > 1:
        raise DataError(f"the files hold records of different kinds: {', '.join(notes)}.")
    ((path, row),) = notes.values()
    return noted_fields((row or {})["fields"], str(path))


def _described(
    readers: Sequence[Reader], dtype: DTypeLike | None, shape: Shape | None
) -> tuple[np.dtype[Any], tuple[int | None, ...]] | None:
    """Return the row spec from the caller or from the files; None for bytes."""
    noted = {str(reader.metadata.row): reader.metadata.row for reader in readers if len(reader)}
    if len(noted) > 1 and (dtype is None or shape is None):
        raise DataError(f"the files hold records of different kinds: {', '.join(noted)}.")
    row: Mapping[str, Any] = next((row for row in noted.values() if row), {})
    if row and not is_valid(row):
        raise DataError(
            f"the files describe their records by something other than dtype and shape: {row}."
        )
    if dtype is None:
        if shape is not None and row.get("dtype") is None:
            raise ArgumentError(f"`shape` (={shape!r}) needs a `dtype`.")
        dtype = row.get("dtype")
        if dtype is None:
            return None
    try:
        # Importing this registers bfloat16 and similar dtypes with NumPy.
        import ml_dtypes  # noqa: F401

        element = np.dtype(dtype)
    except TypeError as error:
        raise ArgumentError(f"`dtype` (={dtype!r}) is not a dtype: {error}") from error
    check_dtype(element, "`dtype`")
    if shape is None:
        if row.get("shape") is None:
            raise ArgumentError(f"`dtype` (={dtype!r}) needs a `shape`; use () for single numbers.")
        if row.get("dtype") is not None and np.dtype(row["dtype"]).itemsize != element.itemsize:
            raise ArgumentError(
                f"the files hold {row['dtype']}, not {element}; give a `shape` as well to read them as {element}."
            )
        shape = row["shape"]
    if not isinstance(shape, Sequence | np.ndarray):
        shape = (shape,)
    for place, size in enumerate(shape):
        if not (size is None and place == 0) and (
            isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0
        ):
            raise ArgumentError(
                f"`shape` (={tuple(shape)!r}) must consist of integers of at least 0; the first may be None."
            )
    return element, tuple(size if size is None else int(size) for size in shape)


def _all_known(shape: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(size for size in shape if size is not None)


def _padding(spec: Spec, value: float) -> Array:
    row = np.zeros(spec.shape, spec.dtype)
    given = np.asarray(value)
    try:
        # A float may be rounded, as everywhere in NumPy; any other type must keep its value exactly.
        if given.dtype.kind not in "biuf" and spec.dtype.kind != "c":
            raise TypeError(f"it is of dtype {given.dtype}")
        with np.errstate(over="raise", invalid="raise"):
            row[...] = given.astype(spec.dtype)
    except (TypeError, ValueError, OverflowError, FloatingPointError) as error:
        raise ArgumentError(
            f"`pad_value` (={value!r}) must be a value of {spec.dtype}: {error}"
        ) from error
    exact = spec.dtype.kind in "fc" or np.array_equal(row.reshape(-1)[:1], given.reshape(-1))
    if given.ndim or not exact:
        raise ArgumentError(f"`pad_value` (={value!r}) must be a value of {spec.dtype}.")
    return row
