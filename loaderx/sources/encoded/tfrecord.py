"""`TFRecordDataset`: TFRecord files of `tf.train.Example`, read without TensorFlow."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.kernels.crc32c import crc32c
from loaderx.sources.byte_rows import Buffer, FileRanges
from loaderx.sources.files import open_file
from loaderx.sources.records.file import VERIFY, Verify
from loaderx.sources.records.paths import PathLike, record_paths
from loaderx.sources.source import FieldsSource

from .declared import Numbers, declared_fields, fits
from .examples import BYTES, FLOATS, INTEGERS, KINDS, DamagedError, Messages
from .field import Encoded
from .index import Columns, Shard, indexed
from .shards import Fields, Numbered, RowColumns, field_sources, is_consistent, is_inside

LENGTH_BYTES, CRC_BYTES = 8, 4
HEADER_BYTES = LENGTH_BYTES + CRC_BYTES
# The column of an index with the ranges of whole records; no field has such a name.
RECORDS = "\0records"
# The dtypes of the values of features; byte strings have none.
COMPRESSED = {b"\x1f\x8b": "GZIP", b"\x78\x01": "ZLIB", b"\x78\x9c": "ZLIB", b"\x78\xda": "ZLIB"}


class TFRecordDataset(FieldsSource):
    """Rows of TFRecord files whose records are `tf.train.Example`, in any order and without TensorFlow.

    path    a file, a pattern such as "train-*.tfrecord" or "train-{00000..01023}-of-01024", or a list of these
    fields  the fields of a row by the names of their features: `Encoded("image/encoded")` is an encoded image,
            ("int64", "image/class/label") a number, and ("float32", "box", (4,)) a list of numbers of one length
    verify  when the checksum of a record is compared: at its "first" use, "always" or "never". Checksums of lengths are
            always compared

    The files are scanned once. An index with the places of the images and with the numbers is kept next to each file or
    in the cache folder. Files that are compressed as a whole cannot be read.

        train = lx.TFRecordDataset(
            "train-*-of-01024",
            {"image": lx.Encoded("image/encoded"), "label": ("int64", "image/class/label")},
        )
    """

    def __init__(
        self,
        path: PathLike | Sequence[PathLike],
        fields: Mapping[str, Any],
        *,
        verify: Verify = "first",
    ) -> None:
        if verify not in tuple(VERIFY):
            raise ArgumentError(
                f"`verify` (={verify!r}) must be one of {', '.join(map(repr, VERIFY))}."
            )
        declared = declared_fields(fields, lambda _: None)
        paths = [file.absolute() for file in record_paths(path, "a TFRecord file")]
        scan = _Scan(declared)
        found = indexed(paths, "a TFRecord file", scan.request, scan, scan.accepts)
        names = Numbered([len(columns[RECORDS]) for columns, _ in found])
        rows_of: Callable[..., FileRanges] = FileRanges
        if verify != "never":
            records = np.concatenate([columns[RECORDS] for columns, _ in found])
            rows_of = partial(VerifiedRanges, records=records, always=verify == "always")
        super().__init__(field_sources(paths, found, declared, names, rows_of))


def is_tfrecord(head: bytes) -> bool:
    """Return True for the first bytes of a file with records: a length, and its checksum."""
    return len(head) >= HEADER_BYTES and _masked(head[:LENGTH_BYTES]) == int.from_bytes(
        head[LENGTH_BYTES:HEADER_BYTES], "little"
    )


def first_features(path: Path, most: int = 1) -> Iterator[dict[str, tuple[int, list[Any]]]]:
    """Yield the features of each record by name, from the first on: their kinds, and at most `most` values and one."""
    with open_file(path, "a TFRecord file") as file:
        shard = Shard(path, file, lambda _: None)
        messages = Messages(shard)
        for number, (begin, length) in enumerate(_records(shard, messages)):
            try:
                found = {
                    name.decode("utf-8", "replace"): messages.values(*place, most)
                    for name, place in messages.features(begin, begin + length).items()
                }
            except DamagedError as error:
                raise DataError(f"{path}, record {number}: {error}.") from error
            yield {
                name: (
                    kind,
                    [shard.read(*reversed(value)) for value in values] if kind == BYTES else values,
                )
                for name, (kind, values) in found.items()
            }


class VerifiedRanges(FileRanges):
    """Ranges inside of records, whose checksums are compared at the first use of a row or always."""

    def __init__(self, *ranges: Any, records: NDArray[np.int64], always: bool) -> None:
        super().__init__(*ranges)
        self._records = records
        self._always = always
        self._verified = np.zeros(len(records), np.bool_)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_verified": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._verified = np.zeros(len(self._records), np.bool_)

    def read(self, row: int) -> Buffer:
        if self._verified[row] and not self._always:
            return super().read(row)
        offset, length = self._records[row].tolist()
        record = self.bytes_at(row, offset, length + CRC_BYTES)
        if _masked(record[:length]) != int.from_bytes(record[length:], "little"):
            raise DataError(f"{self.where(row)}: the checksum of its data is wrong.")
        self._verified[row] = True
        begin = int(self._offsets[row]) - offset
        return record[begin : begin + int(self._lengths[row])]


class _Scan:
    """Scan of TFRecord files for some features."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self.request = [
            [name, field.field, None]
            if isinstance(field, Encoded)
            else [name, field.field, field.spec.dtype.str, field.spec.shape]
            for name, field in fields.items()
        ]
        self._features = {name: (field.field or "").encode() for name, field in fields.items()}

    def accepts(self, columns: Columns, size: int) -> bool:
        """Return True if an index has what this scan finds."""
        records = columns.get(RECORDS)
        return (
            records is not None
            and records.ndim == 2
            and records.shape[1] == 2
            and is_consistent(columns, self._fields, size)
            and is_inside(records, size - CRC_BYTES)
            and all(
                len(columns[name]) == len(records)
                and (isinstance(field, Numbers) or _is_within(columns[name], records))
                for name, field in self._fields.items()
            )
        )

    def __call__(self, shard: Shard) -> Columns:
        messages, rows = Messages(shard), RowColumns(self._fields)
        records: list[tuple[int, int]] = []
        for begin, length in _records(shard, messages):
            try:
                rows.add(self._row(messages, begin, begin + length))
            except (DamagedError, ValueError) as error:
                raise DataError(f"{shard.path}, record {len(records)}: {error}.") from error
            records.append((begin, length))
            shard.reached(begin + length + CRC_BYTES)
        return {**rows.columns(), RECORDS: np.array(records, np.int64).reshape(-1, 2)}

    def _row(self, messages: Messages, begin: int, stop: int) -> dict[str, Any]:
        features = messages.features(begin, stop)
        row: dict[str, Any] = {}
        for name, field in self._fields.items():
            feature = self._features[name]
            if feature not in features:
                known = ", ".join(sorted(repr(one.decode("utf-8", "replace")) for one in features))
                raise ValueError(
                    f"it has no feature {feature.decode()!r} for the field {name!r}; it has {known or 'none'}"
                )
            most = field.spec.size if isinstance(field, Numbers) else 1
            kind, values = messages.values(*features[feature], most)
            row[name] = _value(name, field, kind, values)
        return row


def _records(shard: Shard, messages: Messages) -> Iterator[tuple[int, int]]:
    """Yield where each record begins, and its length."""
    position, number = 0, 0
    while position < shard.size:
        begin, length = _framed(shard, messages, position, number)
        yield begin, length
        position, number = begin + length + CRC_BYTES, number + 1


def _framed(shard: Shard, messages: Messages, position: int, number: int) -> tuple[int, int]:
    """Return where a record begins, and its length."""
    begin = position + HEADER_BYTES
    if begin > shard.size:
        raise DataError(f"{shard.path} is truncated: it ends in the header of record {number}.")
    header = messages.at(position, HEADER_BYTES)
    length = int.from_bytes(header[:LENGTH_BYTES], "little")
    if _masked(header[:LENGTH_BYTES]) != int.from_bytes(header[LENGTH_BYTES:], "little"):
        if number:
            raise DataError(
                f"{shard.path}, record {number}: the checksum of its length is wrong, at {position}."
            )
        for magic, name in COMPRESSED.items():
            if header.startswith(magic):
                raise DataError(
                    f"{shard.path} is compressed with {name} as a whole, so its records cannot be read in any "
                    "order. Write it without compression; encoded images hardly become larger."
                )
        raise DataError(f"{shard.path} is not a TFRecord file: its first checksum is wrong.")
    if begin + length + CRC_BYTES > shard.size:
        raise DataError(
            f"{shard.path} is truncated: record {number} has {length} bytes at {begin}, and the file has "
            f"{shard.size}."
        )
    return begin, length


def _value(name: str, field: Encoded | Numbers, kind: int, values: list[Any]) -> Any:
    """Return the range of an image, or numbers of the shape of the field."""
    found = f"{len(values)} {KINDS.get(kind, 'values')}"
    if isinstance(field, Encoded):
        if kind != BYTES or len(values) != 1:
            raise ValueError(
                f"the feature {field.field!r} of the field {name!r} is {found}, not 1 byte string"
            )
        return values[0]
    if kind not in (FLOATS, INTEGERS) or len(values) != field.spec.size:
        more = "more than " if len(values) > field.spec.size else ""
        count = min(len(values), field.spec.size)
        raise ValueError(
            f"the feature {field.field!r} of the field {name!r} is {more}{count} {KINDS.get(kind, 'values')}, not "
            f"{field.spec}"
        )
    dtype = field.spec.dtype
    for value in values:
        if not fits(value, dtype):
            raise ValueError(f"{value!r} of the field {name!r} does not fit into {dtype}")
    return np.array(values, dtype).reshape(field.spec.shape)


def _is_within(ranges: NDArray[np.int64], records: NDArray[np.int64]) -> bool:
    inside = ranges[:, 0] - records[:, 0]
    return bool(np.all((inside >= 0) & (inside + ranges[:, 1] <= records[:, 1])))


def _masked(data: bytes) -> int:
    """Return the checksum of bytes as TFRecord files store it."""
    crc = crc32c(np.frombuffer(data, np.uint8))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFF_FFFF
