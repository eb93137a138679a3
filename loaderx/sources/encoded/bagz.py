"""`BagzDataset`: Bagz files, whose records are encoded images and numbers."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zstandard

from loaderx.errors import ArgumentError, DataError
from loaderx.kernels.chunks import NEVER
from loaderx.sources.files import open_file
from loaderx.sources.open_files import OpenFiles
from loaderx.sources.records.field_rows import field_rows
from loaderx.sources.records.file import Bytes, Metadata, Numbers, reopened
from loaderx.sources.records.paths import PathLike, record_paths
from loaderx.sources.records.reader import Reader
from loaderx.sources.source import FieldsSource

# `x@4.bagz` is x-00000-of-00004.bagz and so on.
SHARDS = re.compile(r"(?P<name>[^@]*)@(?P<count>\d{1,5})(?P<suffix>\.[^@/]*)?", re.DOTALL)
LIMIT_BYTES = 8
# The first bytes of a frame, which have the size of its content.
FRAME_HEADER = 18
# A record is an image. A frame that claims to be more is damaged, or an attack on the memory.
MOST_BYTES = 1 << 31
Compression = Literal["auto", "zstd", "none"]


class BagzDataset(FieldsSource):
    """Rows of Bagz files, whose records are encoded images, or images and numbers.

    path         a file, "train@100.bagz" for train-00000-of-00100.bagz and so on, a pattern, or a list of these, whose
                 rows follow one another
    fields       the fields of a record, in their order: {"image": Encoded()} is the bytes of an image. Of several
                 fields the numbers are first, as for `ARDataset`
    compression  "auto": every record of .bagz files is compressed with zstd, and none of other files; "zstd" or "none"

    The places of the records are read from the end of each file, or from the file "limits.<name>" next to it if there
    is one.

        train = lx.BagzDataset("train@100.bagz", {"image": lx.Encoded(), "label": "int64"})
    """

    def __init__(
        self,
        path: PathLike | Sequence[PathLike],
        fields: Mapping[str, Any],
        *,
        compression: Compression = "auto",
    ) -> None:
        if compression not in ("auto", "zstd", "none"):
            raise ArgumentError(
                f'`compression` (={compression!r}) must be "auto", "zstd" or "none".'
            )
        if not hasattr(fields, "items"):
            raise ArgumentError(
                f'`fields` (={fields!r}) must be a dict of the fields of a record, such as {{"image": Encoded()}}.'
            )
        parts = [path] if isinstance(path, str | os.PathLike) else path
        names = [name for part in parts for name in bagz_names(os.fspath(part))]
        files = OpenFiles()
        readers = [
            BagzReader(
                file.absolute(),
                compression == "zstd" or (compression == "auto" and file.suffix == ".bagz"),
                files,
            )
            for file in record_paths(names, "a Bagz file")
        ]
        if sum(map(len, readers)) == 0:
            raise DataError(f"{readers[0].path} has no records.")
        super().__init__(field_rows(readers, None, fields, NEVER).fields)


def bagz_names(name: str) -> list[str]:
    """Return the files that `train@100.bagz` means; any other name is itself."""
    match = SHARDS.fullmatch(name)
    if match is None or os.path.lexists(name):
        return [name]
    count = int(match["count"])
    return [
        f"{match['name']}-{number:05}-of-{count:05}{match['suffix'] or ''}"
        for number in range(count)
    ]


class BagzReader(Reader):
    """Reader of one Bagz file: records, one after the other, and then the end of each as 64 bits."""

    def __init__(self, path: Path, compressed: bool, files: OpenFiles) -> None:
        self.path = path
        self._compressed = compressed
        self._files = files
        with open_file(path, "a Bagz file") as file:
            status = os.fstat(file.fileno())
        self._stamp = status.st_size, status.st_mtime_ns
        limits_file = path.with_name(f"limits.{path.name}")
        if limits_file.exists():
            with open_file(limits_file, "a file of limits") as limits:
                content, records = limits.read(), status.st_size
        else:
            content, records = self._tail(status.st_size)
        if len(content) % LIMIT_BYTES:
            raise DataError(
                f"{path} is not a Bagz file, or it is damaged: its limits have {len(content)} bytes."
            )
        ends = np.frombuffer(content, "<i8")
        self._ends = np.concatenate([np.zeros(1, np.int64), ends])
        if np.any(np.diff(self._ends) < 0) or self._ends[-1] != records:
            raise DataError(
                f"{path} is not a Bagz file, or it is damaged: the limits of its records contradict one another or "
                f"its size, {records} bytes of records."
            )
        # It changes when the file does: a copy that is opened elsewhere then raises.
        stamp = f"{status.st_size} bytes, {status.st_mtime_ns}"
        self.metadata = Metadata(len(ends), 0, stamp, None)

    def __deepcopy__(self, memo: dict[int, Any]) -> "BagzReader":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (BagzReader, (self.path, self._compressed, self._files), self.metadata)

    def records(self, numbers: Sequence[int]) -> list[Bytes]:
        stored = [self._stored(number) for number in numbers]
        if self._compressed:
            # Not kept: threads must not share it.
            engine = zstandard.ZstdDecompressor()
            stored = [
                self._decompressed(engine, number, frame)
                for number, frame in zip(numbers, stored, strict=True)
            ]
        return [np.frombuffer(record, np.uint8) for record in stored]

    def heads(self, numbers: Numbers, count: int) -> tuple[Numbers, list[Bytes]]:
        if self._compressed:
            return super().heads(numbers, count)
        sizes = self._ends[numbers + 1] - self._ends[numbers]
        heads = [self._stored(number, count) for number in numbers.tolist()]
        return sizes, [np.frombuffer(head, np.uint8) for head in heads]

    def _tail(self, size: int) -> tuple[bytes, int]:
        """Return the limits at the end of the file, and where they begin: this is the last of them."""
        last = self._read(LIMIT_BYTES, max(0, size - LIMIT_BYTES))
        begin = int.from_bytes(last, "little")
        if size == 0:
            return b"", 0
        if size < LIMIT_BYTES or begin > size - LIMIT_BYTES:
            raise DataError(
                f"{self.path} is truncated, or not a Bagz file: it does not end with the limits of its records, and "
                f"there is no file limits.{self.path.name}."
            )
        return self._read(size - begin, begin), begin

    def _read(self, length: int, offset: int) -> bytes:
        return self._files.read(self.path, "a Bagz file", self._stamp, length, offset)

    def _stored(self, number: int, most: int | None = None) -> bytes:
        begin, end = self._ends[number : number + 2].tolist()
        length = end - begin if most is None else min(most, end - begin)
        found = self._read(length, begin)
        if len(found) < length:
            raise DataError(
                f"{self.path}, record {number}: the file ends after {len(found)} of its {length} bytes; it has been "
                "cut since it was opened."
            )
        return found

    def _decompressed(self, engine: zstandard.ZstdDecompressor, number: int, frame: bytes) -> bytes:
        if not frame:
            return b""  # As it is: an empty record has no frame.
        try:
            size = zstandard.frame_content_size(frame)
            if not 0 <= size <= MOST_BYTES:
                raise DataError(
                    f"{self.path}, record {number}: its zstd frame claims {size} bytes, and at most {MOST_BYTES} are "
                    "decompressed."
                )
            return engine.decompress(frame, max_output_size=max(size, 1), allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise DataError(
                f"{self.path}, record {number}: its zstd frame cannot be decompressed: {error}."
            ) from error
