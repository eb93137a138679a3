"""Interface of all sources: length, NumPy indexing, subsets, splits, concatenation."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.kernels.chunks import fetch_rows
from loaderx.kernels.gathering import (
    collect_rows,
    copy_rows,
    copy_rows_holding_gil,
    narrow_floats,
    narrow_integers,
)
from loaderx.kernels.row_layout import RowLayout
from loaderx.spec import Spec

from .row_addresses import RowAddresses, addresses_in, addresses_of_rows

# Copying this many bytes needs a few microseconds.
FEW_BYTES = 32 * 1024
Rows: TypeAlias = NDArray[np.int64]
Array: TypeAlias = NDArray[Any]
# The spec of a source has the structure of its rows.
RowSpec: TypeAlias = Spec | dict[str, Spec] | tuple[Spec, ...]
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # With a default, so that `Source` alone is a complete annotation.
    RowSpec_co = TypeVar("RowSpec_co", bound=RowSpec, default=RowSpec, covariant=True)
else:
    from typing import TypeVar

    # Python 3.13 is the first with defaults.
    RowSpec_co = TypeVar("RowSpec_co", covariant=True)


class Source(ABC, Generic[RowSpec_co]):
    """Rows by number."""

    # Otherwise NumPy would compute `source + array` as a sum of numbers.
    __array_ufunc__ = None

    @property
    @abstractmethod
    def spec(self) -> RowSpec_co:
        """Shape and dtype of one row, or of each of its fields."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def unwrapped(self) -> "Source[RowSpec_co]":
        """Return the source that a loader reads in place of this one."""
        return self

    @property
    def splittable(self) -> bool:
        """True if sharing the rows of a batch among threads is worthwhile."""
        return True

    @abstractmethod
    def read(self, rows: Rows, out: Sequence[Array]) -> None:
        """Fill out[field][i] with the field of row rows[i]; `out` may be narrower than the rows."""

    def __getitem__(self, key: Any) -> Any:
        """Return copies of rows: `[i]`, `[start:stop:step]`, `[array of rows]` or `[array of bool]`."""
        single, rows = resolve_rows(key, len(self))
        out = [np.empty((len(rows), *spec.shape), spec.dtype) for spec in specs_of(self.spec)]
        self.read(rows, out)
        return assemble(self.spec, [array[0] for array in out] if single else out)

    def select(self, rows: Any) -> "Source[RowSpec_co]":
        """Return the given rows as a source: a slice, a range, row numbers or a boolean mask. Nothing is read."""
        from .subsets import select_rows

        return select_rows(self.unwrapped, rows)

    def split(
        self, fraction: float, *, seed: int = 0
    ) -> tuple["Source[RowSpec_co]", "Source[RowSpec_co]"]:
        """Return two sources that share no row: a random `fraction` of the rows, and the others.

        Sources of the same length are split alike by the same seed.
        """
        from .subsets import split_rows

        return split_rows(self.unwrapped, fraction, seed)

    def __add__(self, other: "Source") -> "Source":
        from .subsets import concatenate

        if not isinstance(other, Source):
            return NotImplemented
        return concatenate([self, other])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows of {describe(self.spec)})"

    def _repr_html_(self) -> str:
        from loaderx.display.html import source_html

        return source_html(self)


class AddressableSource(Source[Spec]):
    """Rows at addresses in memory, which compiled code reads."""

    @property
    @abstractmethod
    def spec(self) -> Spec: ...

    @property
    @abstractmethod
    def layout(self) -> RowLayout:
        """Layout of the elements of a row, from its address on."""

    @abstractmethod
    def locate(self, rows: Rows) -> RowAddresses:
        """Return the address of each row."""

    @property
    def has_fetcher(self) -> bool:
        """True if `locate` returns a fetcher."""
        return False

    @property
    def cpu_bound(self) -> bool:
        """True if making a row is much more work than copying its bytes."""
        return False

    def read(self, rows: Rows, out: Sequence[Array]) -> None:
        gather(self.spec, self.layout, rows, self.locate(rows), out[0])


class FieldsSource(Source[dict[str, Spec]]):
    """Several sources of one length, as the fields of one row.

    In a row with other sources the field `main`, if there is one, takes the name that these fields have there.
    """

    def __init__(self, fields: Mapping[str, Source], main: str | None = None) -> None:
        self.fields = dict(fields)
        self.main = main
        for name, source in self.fields.items():
            if not isinstance(source.spec, Spec):
                raise ArgumentError(
                    f"field {name!r} is a source with fields of its own ({source!r}). Pass those "
                    "fields one by one."
                )
        check_lengths(self.fields)

    @property
    def spec(self) -> dict[str, Spec]:
        return {name: source.spec for name, source in self.fields.items()}  # type: ignore[misc]

    def named(self, name: str) -> dict[str, Source]:
        """Return the fields under the names they have in a row in which this source is called `name`."""
        return {name if own == self.main else own: source for own, source in self.fields.items()}

    def __len__(self) -> int:
        return len(next(iter(self.fields.values())))

    def read(self, rows: Rows, out: Sequence[Array]) -> None:
        for source, array in zip(self.fields.values(), out, strict=True):
            source.read(rows, [array])


def gather(spec: Spec, layout: RowLayout, rows: Rows, located: RowAddresses, out: Array) -> None:
    """Copy rows into a C-contiguous `out` of the row's dtype or of the narrower one."""
    if located.fetcher:
        straight = layout.offsets is None and out.dtype == spec.dtype
        fetched = out if straight else np.empty((len(rows), *spec.shape), spec.dtype)
        fetch_into(located, spec.nbytes, as_bytes(fetched))
        if straight:
            return
        located = addresses_of_rows(fetched)
    addresses = located.addresses
    flat = out.reshape(len(rows), spec.size)
    if layout.offsets is not None:
        # Strided or byte-swapped rows are first collected in native order, then narrowed like any others.
        if out.dtype == spec.dtype:
            collect_rows(addresses, layout.offsets, layout.unit, layout.swap, as_bytes(flat))
            return
        collected = np.empty((len(rows), spec.size), spec.dtype)
        collect_rows(addresses, layout.offsets, layout.unit, layout.swap, as_bytes(collected))
        narrow_into(collected, rows, out)
    elif out.dtype == spec.dtype:
        copy = copy_rows_holding_gil if out.nbytes <= FEW_BYTES else copy_rows
        copy(addresses, spec.nbytes, as_bytes(flat))
    else:
        narrow_rows(spec, rows, addresses, flat)


def fetch_into(located: RowAddresses, size: int, out: NDArray[np.uint8]) -> None:
    """Make rows of `size` bytes by their fetcher."""
    progress = np.empty(2, np.int64)
    fetch_rows(located.fetcher, located.addresses, located.worker, size, out, progress)
    if progress[1] < 0:
        located.raise_failure(int(progress[0]), int(progress[1]))


def narrow_into(values: Array, rows: Rows, out: Array) -> None:
    """Copy C-contiguous rows into `out` of their dtype or of the narrower one."""
    if out.dtype == values.dtype:
        np.copyto(out, values.reshape(out.shape))
        return
    spec = Spec(values.shape[1:], values.dtype)
    narrow_rows(spec, rows, addresses_in(values), out.reshape(len(rows), spec.size))


def narrow_rows(spec: Spec, rows: Rows, addresses: NDArray[np.int64], out: Array) -> None:
    """Narrow 64-bit rows to 32 bits; raise if an integer does not fit."""
    wide = np.empty(0, spec.dtype)
    if spec.dtype.kind not in "iu":
        narrow_floats(addresses, wide, out)
        return
    misfit = np.empty(1, np.int64)
    narrow_integers(addresses, wide, out, misfit)
    if misfit[0] >= 0:
        row, element = divmod(int(misfit[0]), spec.size)
        raise DataError(
            f"row {rows[row]}, element {element}: a value of {spec.dtype} does not fit into "
            f"{out.dtype}, which JAX uses while x64 is off. Turn on `jax_enable_x64`, use "
            'output="numpy", or store smaller numbers.'
        )


def as_bytes(array: Array) -> NDArray[np.uint8]:
    """Return the memory of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8)


def owners_of(rows: Rows, starts: NDArray[np.int64]) -> dict[int, Rows]:
    """Return the places in `rows` of what each part holds; part p holds the rows from starts[p] to starts[p + 1]."""
    if len(starts) == 2:
        return {0: np.arange(len(rows), dtype=np.int64)}
    owners = np.searchsorted(starts, rows, side="right") - 1
    return {int(owner): np.flatnonzero(owners == owner) for owner in np.unique(owners)}


def resolve_rows(key: Any, length: int) -> tuple[bool, Rows]:
    """Return row numbers for an index in brackets, and whether it named a single row."""
    if isinstance(key, slice):
        return False, np.arange(*key.indices(length), dtype=np.int64)
    if isinstance(key, range):
        return resolve_rows(np.arange(key.start, key.stop, key.step), length)
    if isinstance(key, tuple):
        raise IndexError(f"rows have one axis; a tuple (={key!r}) would select along several")
    numbers = np.asarray(key)
    if numbers.dtype == np.bool_:
        if numbers.shape != (length,):
            raise IndexError(f"a mask of shape {numbers.shape} cannot select from {length} rows")
        return False, np.flatnonzero(numbers).astype(np.int64)
    if numbers.size == 0:
        numbers = numbers.astype(np.int64)
    if numbers.dtype.kind not in "iu" or numbers.ndim > 1:
        raise IndexError(
            f"rows are selected by an integer, a slice, or a 1-d array of integers or booleans, "
            f"not by {type(key).__name__} {key!r}"
        )
    outside = (numbers < -length) | (numbers >= length)
    if np.any(outside):
        raise IndexError(f"row {numbers[outside].flat[0]} is outside of {length} rows")
    rows = np.atleast_1d(numbers).astype(np.int64)
    return numbers.ndim == 0, np.where(rows < 0, rows + length, rows)


def specs_of(spec: RowSpec) -> list[Spec]:
    """Return the specs of the fields in their order."""
    if isinstance(spec, Spec):
        return [spec]
    return list(spec.values() if isinstance(spec, dict) else spec)


def assemble(spec: RowSpec, values: Sequence[Any]) -> Any:
    """Return values of the fields in the structure of the rows."""
    if isinstance(spec, Spec):
        return values[0]
    return dict(zip(spec, values, strict=True)) if isinstance(spec, dict) else tuple(values)


def describe(spec: RowSpec) -> str:
    """Return the spec in one line."""
    if isinstance(spec, Spec):
        return str(spec)
    if isinstance(spec, dict):
        return "{" + ", ".join(f"{name}: {field}" for name, field in spec.items()) + "}"
    return "(" + ", ".join(str(field) for field in spec) + ")"


def check_lengths(fields: Mapping[str, Source]) -> None:
    """Raise unless all fields have the same number of rows."""
    if not fields:
        raise ArgumentError("`dataset` has no fields; give it at least one source.")
    lengths = {name: len(source) for name, source in fields.items()}
    if len(set(lengths.values())) > 1:
        raise ArgumentError(f"all fields must have the same number of rows, got {lengths}.")


def check_same_rows(sources: Iterable[Source]) -> None:
    """Raise unless the rows of all sources have one spec."""
    specs = [source.spec for source in sources]
    for number, spec in enumerate(specs):
        if spec != specs[0]:
            raise ArgumentError(
                f"sources can be concatenated if their rows have one spec: source 0 has rows of "
                f"{describe(specs[0])}, source {number} of {describe(spec)}."
            )
