"""Fields of records as sources: the numbers, and the bytes of encoded images."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.kernels.row_layout import RowLayout
from loaderx.sources.byte_rows import Buffer, ByteRows
from loaderx.sources.encoded.field import Encoded
from loaderx.sources.encoded.source import EncodedSource
from loaderx.sources.row_addresses import RowAddresses, addresses_of_rows
from loaderx.sources.source import (
    AddressableSource,
    FieldsSource,
    Rows,
    Source,
    fetch_into,
    owners_of,
)
from loaderx.spec import Spec

from .fields import RecordFields, record_fields
from .reader import DirectReader, Reader
from .rows import RecordRows


def field_rows(
    readers: Sequence[Reader],
    noted: RecordFields | None,
    given: Mapping[str, Any] | None,
    verify: int,
) -> FieldsSource:
    """Return the fields that a caller declares, or those of them that the files note."""
    declared = noted if given is None else record_fields(given)
    layout = noted or declared
    assert declared is not None
    assert layout is not None
    for reader in readers:
        if isinstance(reader, DirectReader):
            check_sizes(reader, np.arange(len(reader)), reader.file.sizes, layout)
    heads = Heads(readers, layout, verify)
    stored = dict(layout.fields)
    fields: dict[str, Source] = {}
    for name, field in declared.fields:
        own = name if isinstance(field, Spec) else field.field or name
        found = stored.get(own)
        if not isinstance(found, type(field)) or (isinstance(field, Spec) and found != field):
            raise ArgumentError(
                f"field {name!r} ({field}) is not in the records, whose fields are {layout}."
            )
        if isinstance(field, Encoded):
            fields[name] = EncodedSource(RecordImages(readers, layout, own), field)
        else:
            fields[name] = NumberRows(heads, *layout.numbers[own])
    return FieldsSource(fields)


def check_sizes(
    reader: Reader, numbers: Rows, sizes: NDArray[np.integer[Any]], layout: RecordFields
) -> None:
    """Raise if the fields contradict the sizes of these records."""
    wrong = sizes < layout.least if layout.images else sizes != layout.head
    for place in np.flatnonzero(wrong)[:1].tolist():
        reason = layout.misfit(int(sizes[place]))
        raise DataError(f"{reader.path}, record {numbers[place]}: {reason}.")


class RecordImages(ByteRows):
    """Encoded images of one field of the records."""

    def __init__(self, readers: Sequence[Reader], layout: RecordFields, name: str) -> None:
        self._readers = tuple(readers)
        self._starts = np.cumsum([0] + [len(reader) for reader in readers], dtype=np.int64)
        self._layout = layout
        self._name = name

    def __len__(self) -> int:
        return int(self._starts[-1])

    def fetch(self, rows: Rows) -> list[Buffer]:
        found: list[Buffer] = [b""] * len(rows)
        for owner, places in owners_of(rows, self._starts).items():
            reader, numbers = self._readers[owner], rows[places] - self._starts[owner]
            reader.check_size()
            records = reader.records(numbers.tolist())
            for place, record in zip(places.tolist(), records, strict=True):
                try:
                    found[place] = self._layout.images_in(record.data)[self._name]
                except DataError as error:
                    raise DataError(f"{self.where(int(rows[place]))}: {error}") from None
        return found

    def where(self, row: int) -> str:
        owner = int(np.searchsorted(self._starts, row, side="right")) - 1
        return f"{self._readers[owner].path}, record {row - int(self._starts[owner])}"


class Heads:
    """The numbers of all fields of a record, which are its first bytes."""

    def __init__(self, readers: Sequence[Reader], layout: RecordFields, verify: int) -> None:
        self._readers = tuple(readers)
        self._starts = np.cumsum([0] + [len(reader) for reader in readers], dtype=np.int64)
        self._layout = layout
        self._records: RecordRows | None = None
        if layout.head and all(isinstance(reader, DirectReader) for reader in readers):
            # Records with images are longer, and are cut to their numbers.
            cut = np.zeros(layout.head, np.uint8) if layout.images else None
            self._records = RecordRows(readers, Spec((layout.head,), np.uint8), verify, cut)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def of(self, rows: Rows) -> NDArray[np.uint8]:
        """Return the first bytes of these records, which are a row of an array each."""
        size = self._layout.head
        found = np.empty((len(rows), size), np.uint8)
        if self._records is not None:
            fetch_into(self._records.locate(rows), size, found.reshape(-1))
            return found
        for owner, places in owners_of(rows, self._starts).items():
            reader, numbers = self._readers[owner], rows[places] - self._starts[owner]
            sizes, heads = reader.heads(numbers, size)
            check_sizes(reader, numbers, sizes, self._layout)
            found[places] = np.reshape(heads, (-1, size))
        return found


class NumberRows(AddressableSource):
    """Numbers of one field, which are at one offset of every record."""

    def __init__(self, heads: Heads, stored: Spec, offset: int) -> None:
        self._heads, self._stored, self._offset = heads, stored, offset
        self._layout = RowLayout()

    @property
    def spec(self) -> Spec:
        return Spec(self._stored.shape, self._stored.dtype.newbyteorder("="))

    @property
    def layout(self) -> RowLayout:
        return self._layout

    def __len__(self) -> int:
        return len(self._heads)

    def locate(self, rows: Rows) -> RowAddresses:
        own = self._heads.of(rows)[:, self._offset : self._offset + self._stored.nbytes]
        numbers = np.ascontiguousarray(own).view(self._stored.dtype)
        return addresses_of_rows(numbers.astype(self.spec.dtype, copy=False))
