"""Tables of `convert --jpeg`: a single column of records with several fields, made of the rows of another table."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from loaderx.errors import DataError
from loaderx.sources.encoded.field import Encoded, EncodedSpec
from loaderx.sources.records.encoding import Encoding
from loaderx.sources.records.fields import RecordFields, encode_fields
from loaderx.sources.source import FieldsSource
from loaderx.spec import Spec

from .conversion import BLOCK_BYTES
from .jpeg_images import JpegOptions, Kind
from .jpeg_outputs import ConvertedRows, FieldsOutput
from .outputs import State
from .pictures import EncodedPicture
from .tables import Block, Column, Range, Table
from .terminal import readable_bytes

# Their sizes are not known before they are read. After Ctrl-C the running blocks are finished, so these are few.
ROWS_PER_BLOCK = 8


@dataclass(frozen=True)
class FieldsColumn(Column):
    """Column of records, with the names of the classes of some fields."""

    fields: RecordFields = field(default_factory=lambda: RecordFields(()))
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def row_bytes(self) -> int:
        return BLOCK_BYTES // ROWS_PER_BLOCK

    @property
    def image_fields(self) -> list[str]:
        return list(self.fields.images)

    @property
    def class_names(self) -> dict[str, tuple[str, ...]]:
        return dict(self.named)

    def record_file(self, path: Path, folder: Path, rows: int, encoding: Encoding) -> FieldsOutput:
        return FieldsOutput(path, folder, self.spec, rows, encoding, self.fields)

    def summary(self, states: Sequence[State]) -> list[str]:
        counts = np.sum([state["counts"] for state in states], axis=0)
        whole = counts.sum(axis=0).tolist()
        lines = [
            f"{whole[0]:,} images: {readable_bytes(whole[1])} became {readable_bytes(whole[2])}"
        ]
        for kind, (number, before, after) in zip(Kind, counts.tolist(), strict=True):
            if number:
                sizes = f"{readable_bytes(before)} -> {readable_bytes(after)}"
                lines.append(f"  {number:,} {kind.words}: {sizes}")
        return lines

    def __str__(self) -> str:
        return str(self.fields)


class SourceTable(Table):
    """Fields of a source, of which encoded images stay encoded."""

    def __init__(
        self, source: FieldsSource, classes: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self._source = source
        self.rows = len(source)
        named = classes or {}
        self.columns = [Column(name, spec, named.get(name)) for name, spec in source.spec.items()]

    def blocks(self, ranges: Iterable[Range]) -> Iterator[Callable[[], Block]]:
        for start, stop in ranges:
            yield lambda start=start, stop=stop: self._read(start, stop)  # type: ignore[misc]

    def _read(self, start: int, stop: int) -> Block:
        block: Block = self._source[start:stop]
        return {
            column.name: [EncodedPicture(image.where, image.data) for image in block[column.name]]
            if isinstance(column.spec, EncodedSpec)
            else block[column.name]
            for column in self.columns
        }


class JpegTable(Table):
    """Rows of another table as records, with JPEG images where that is possible."""

    def __init__(self, inner: Table, options: JpegOptions) -> None:
        self._inner, self._options = inner, options
        self.rows = inner.rows
        fields = RecordFields(tuple((one.name, _stored(one.spec)) for one in inner.columns))
        named = {name: of for one in inner.columns for name, of in one.class_names.items()}
        self._fields = fields
        # "data" is the name of the only column of a file.
        self.columns = [FieldsColumn("data", Spec((), np.object_), None, fields, named)]

    def blocks(self, ranges: Iterable[Range]) -> Iterator[Callable[[], Block]]:
        for read in self._inner.blocks(ranges):
            yield lambda read=read: {"data": self._converted(read())}  # type: ignore[misc]

    def _converted(self, block: Block) -> ConvertedRows:
        names = [name for name, _ in self._fields.fields]
        counts = np.zeros((len(Kind), 3), np.int64)
        records = []
        for values in zip(*(block[name] for name in names), strict=True):
            row = dict(zip(names, values, strict=True))
            for name, encoded in self._fields.images.items():
                picture = row[name]
                try:
                    row[name], kind = self._options(picture.data, encoded)
                except DataError as error:
                    raise DataError(f"{picture.where}: {error}") from error
                counts[kind] += 1, len(picture.data), len(row[name])
            records.append(encode_fields(self._fields, row))
        return ConvertedRows(records, counts)


def _stored(spec: Spec) -> Spec | Encoded:
    if isinstance(spec, EncodedSpec):
        return Encoded(mode=spec.encoded.mode)
    return Spec(spec.shape, spec.dtype.newbyteorder("<"))
