"""Subsets, splits and concatenations: views of a source by index arithmetic."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.keys import derive_key
from loaderx.kernels.random import SPLIT
from loaderx.kernels.row_layout import RowLayout
from loaderx.kernels.shuffling import Permutation
from loaderx.spec import Spec

from .adapter import as_rows, as_source
from .array import NPDataset
from .data_types import Fields, Single, Unknown, Untyped
from .row_addresses import RowAddresses
from .source import (
    AddressableSource,
    Array,
    FieldsSource,
    Rows,
    RowSpec,
    RowSpec_co,
    Source,
    check_lengths,
    check_same_rows,
    gather,
    owners_of,
    resolve_rows,
)


class RowMap(ABC):
    """Map from rows of a view to rows of its source."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __call__(self, rows: Rows) -> Rows: ...


@dataclass(frozen=True)
class Stride(RowMap):
    """Every `step`-th row from `start`."""

    start: int
    step: int
    length: int

    def __len__(self) -> int:
        return self.length

    def __call__(self, rows: Rows) -> Rows:
        return self.start + rows * self.step


@dataclass(frozen=True, eq=False)
class RowList(RowMap):
    """Rows given as a list."""

    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def __call__(self, rows: Rows) -> Rows:
        return self.rows[rows]


@dataclass(frozen=True, eq=False)
class Shuffled(RowMap):
    """`length` rows of a permutation from its index `first`: a random subset without a list of it."""

    permutation: Permutation
    first: int
    length: int

    def __len__(self) -> int:
        return self.length

    def __call__(self, rows: Rows) -> Rows:
        return self.permutation.at(rows + self.first)


class Selection(Source[RowSpec_co]):
    """Some rows of a source, in their own order."""

    def __init__(self, source: Source[RowSpec_co], rows: RowMap) -> None:
        self._source = source
        self._map = rows

    @property
    def spec(self) -> RowSpec_co:
        return self._source.spec

    def __len__(self) -> int:
        return len(self._map)

    def read(self, rows: Rows, out: Sequence[Array]) -> None:
        self._source.read(self._map(rows), out)


class AddressableSelection(AddressableSource):
    """Some rows of a source in memory."""

    def __init__(self, source: AddressableSource, rows: RowMap) -> None:
        self._source = source
        self._map = rows

    @property
    def spec(self) -> Spec:
        return self._source.spec

    @property
    def layout(self) -> RowLayout:
        return self._source.layout

    def __len__(self) -> int:
        return len(self._map)

    @property
    def has_fetcher(self) -> bool:
        return self._source.has_fetcher

    @property
    def cpu_bound(self) -> bool:
        return self._source.cpu_bound

    @property
    def splittable(self) -> bool:
        return self._source.splittable

    def locate(self, rows: Rows) -> RowAddresses:
        return self._source.locate(self._map(rows))


class Concatenation(Source):
    """Rows of several sources, one after the other."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = tuple(sources)
        self._starts = np.cumsum([0] + [len(source) for source in sources], dtype=np.int64)

    @property
    def spec(self) -> RowSpec:
        return self._sources[0].spec

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, rows: Rows, out: Sequence[Array]) -> None:
        for owner, places in owners_of(rows, self._starts).items():
            if len(places) == len(rows):
                self._read_part(owner, rows, out)
                return
            part = [np.empty((len(places), *array.shape[1:]), array.dtype) for array in out]
            self._read_part(owner, rows[places], part)
            for array, values in zip(out, part, strict=True):
                array[places] = values

    def _read_part(self, owner: int, rows: Rows, out: Sequence[Array]) -> None:
        source = self._sources[owner]
        own_rows = rows - self._starts[owner]
        if isinstance(source, AddressableSource):
            # With the row numbers of this source, for the message about a value that does not fit.
            gather(source.spec, source.layout, rows, source.locate(own_rows), out[0])
            return
        if isinstance(self.spec, dict) and isinstance(source.spec, dict):
            # By name: two sources may have the same fields in another order.
            places = dict(zip(self.spec, out, strict=True))
            out = [places[name] for name in source.spec]
        source.read(own_rows, out)


class AddressableConcatenation(AddressableSource):
    """Rows of several sources in memory with the same layout, one after the other."""

    def __init__(self, sources: Sequence[AddressableSource]) -> None:
        self._sources = tuple(sources)
        self._starts = np.cumsum([0] + [len(source) for source in sources], dtype=np.int64)

    @property
    def spec(self) -> Spec:
        return self._sources[0].spec

    @property
    def layout(self) -> RowLayout:
        return self._sources[0].layout

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def has_fetcher(self) -> bool:
        return self._sources[0].has_fetcher

    @property
    def cpu_bound(self) -> bool:
        return any(source.cpu_bound for source in self._sources)

    @property
    def splittable(self) -> bool:
        return all(source.splittable for source in self._sources)

    def locate(self, rows: Rows) -> RowAddresses:
        addresses = np.empty(len(rows), np.int64)
        places = owners_of(rows, self._starts)
        parts = {
            owner: self._sources[owner].locate(rows[own] - self._starts[owner])
            for owner, own in places.items()
        }
        for owner, own in places.items():
            addresses[own] = parts[owner].addresses

        def failure(place: int, reason: int) -> Exception:
            owner = next(owner for owner, own in places.items() if place in own)
            explain = parts[owner].failure
            assert explain is not None
            return explain(int(np.searchsorted(places[owner], place)), reason)

        # The worker is the thread's own, and grew with every part, so the last one has room for all.
        last = parts[max(parts)] if parts else RowAddresses(addresses)
        hold = [part.hold for part in parts.values()]
        return RowAddresses(addresses, last.fetcher, last.worker, hold, failure)


def view(source: Source[Any], rows: RowMap) -> Source[Any]:
    """Return the mapped rows of a source, compiled if the source is."""
    if isinstance(source, FieldsSource):
        fields = {name: view(field, rows) for name, field in source.fields.items()}
        return FieldsSource(fields, source.main)
    if isinstance(source, AddressableSource):
        return AddressableSelection(source, rows)
    return Selection(source, rows)


@overload
def select(data: Untyped, rows: Any) -> Any: ...
@overload
def select(data: Fields, rows: Any) -> Source[dict[str, Spec]]: ...
@overload
def select(data: tuple[Any, ...], rows: Any) -> tuple[Source, ...]: ...
@overload
def select(data: Single, rows: Any) -> Source[Spec]: ...
@overload
def select(data: Unknown, rows: Any) -> Source: ...
def select(data: Any, rows: Any) -> Any:
    """Return rows of a source, an array, or a dict or tuple of these: `select({"image": x, "label": y}, range(9))`.

    `rows` is a slice, a range, row numbers or a boolean mask, as for `source.select`. Nothing is read. The result has
    the structure of `data`: a source of its fields for a dict, a tuple for a tuple.
    """
    if isinstance(data, tuple):
        return tuple(select_rows(source, rows) for source in _as_sources(data))
    return select_rows(as_rows(data), rows)


@overload
def split(data: Untyped, fraction: float, *, seed: int = ...) -> tuple[Any, Any]: ...
@overload
def split(
    data: Fields, fraction: float, *, seed: int = ...
) -> tuple[Source[dict[str, Spec]], Source[dict[str, Spec]]]: ...
@overload
def split(  # type: ignore[overload-overlap] # a tuple, unlike other sequences, is split by its fields
    data: tuple[Any, ...], fraction: float, *, seed: int = ...
) -> tuple[tuple[Source, ...], tuple[Source, ...]]: ...
@overload
def split(
    data: Single, fraction: float, *, seed: int = ...
) -> tuple[Source[Spec], Source[Spec]]: ...
@overload
def split(data: Unknown, fraction: float, *, seed: int = ...) -> tuple[Source, Source]: ...
def split(data: Any, fraction: float, *, seed: int = 0) -> tuple[Any, Any]:
    """Divide a source, an array, or a dict or tuple of these: `split({"image": x, "label": y}, 0.9)`.

    Return a random `fraction` of the rows, and the others. The same seed gives the same split as `source.split`;
    fields stay together. Both have the structure of `data`: a source of its fields for a dict, a tuple for a tuple.
    """
    if isinstance(data, tuple):
        first, second = zip(
            *(split_rows(one, fraction, seed) for one in _as_sources(data)), strict=True
        )
        return first, second
    return split_rows(as_rows(data), fraction, seed)


def _as_sources(data: tuple[Any, ...]) -> list[Source]:
    sources = [as_source(value) for value in data]
    check_lengths({str(number): source for number, source in enumerate(sources)})
    return sources


def select_rows(source: Source[RowSpec_co], rows: Any) -> Source[RowSpec_co]:
    """Return the given rows as a source."""
    length = len(source)
    if isinstance(rows, range) and all(0 <= end < length for end in (*rows[:1], *rows[-1:])):
        chosen: RowMap = Stride(rows.start, rows.step, len(rows))
    elif isinstance(rows, slice):
        start, stop, step = rows.indices(length)
        chosen = Stride(start, step, len(range(start, stop, step)))
    else:
        _, numbers = resolve_rows(rows, length)
        chosen = RowList(numbers)
    if len(chosen) == 0:
        raise ArgumentError(f"`rows` (={rows!r}) selects none of the {length} rows.")
    return view(source, chosen)


def split_rows(
    source: Source[RowSpec_co], fraction: Any, seed: Any
) -> tuple[Source[RowSpec_co], Source[RowSpec_co]]:
    """Return a random `fraction` of the rows, and the others."""
    length = len(source)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 1 << 64:
        raise ArgumentError(f"`seed` (={seed!r}) must be an integer from 0 to 2**64 - 1.")
    first = round(length * fraction) if 0 <= fraction <= 1 else 0
    if not 0 < first < length:
        raise ArgumentError(
            f"`fraction` (={fraction}) must leave at least one of the {length} rows on either side."
        )
    permutation = Permutation(length, derive_key(int(seed), SPLIT))
    return (
        view(source, Shuffled(permutation, 0, first)),
        view(source, Shuffled(permutation, first, length - first)),
    )


@overload
def concatenate(sources: Iterable[Untyped]) -> Any: ...
@overload
def concatenate(sources: Iterable[Fields]) -> Source[dict[str, Spec]]: ...
@overload
def concatenate(sources: Iterable[Single]) -> Source[Spec]: ...
@overload
def concatenate(sources: Iterable[Unknown]) -> Source: ...
def concatenate(sources: Iterable[Any]) -> Source:
    """Return the rows of several sources or dicts of sources, one after the other, as one source."""
    return _concatenated([as_rows(source) for source in sources])


def _concatenated(sources: Sequence[Source]) -> Source:
    if not sources:
        raise ArgumentError("`sources` is empty; give at least one source.")
    check_same_rows(sources)
    if len(sources) == 1:
        return sources[0]
    records = [source for source in sources if isinstance(source, FieldsSource)]
    if len(records) == len(sources):
        names = records[0].fields
        return FieldsSource(
            {name: concatenate([record.fields[name] for record in records]) for name in names},
            records[0].main,
        )
    addressable = [source for source in sources if isinstance(source, AddressableSource)]
    if len(addressable) == len(sources) and all(
        source.layout.same_as(addressable[0].layout)
        and source.has_fetcher == addressable[0].has_fetcher
        for source in addressable
    ):
        plain = [source for source in addressable if isinstance(source, NPDataset)]
        return (
            NPDataset.joined(plain)
            if len(plain) == len(addressable)
            else AddressableConcatenation(addressable)
        )
    return Concatenation(sources)
