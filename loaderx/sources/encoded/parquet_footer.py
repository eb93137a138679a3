"""Footers of Parquet files: where the parts of each column are.

pyarrow has the same, but ends the process when it is asked for a column that is encrypted.
"""

from dataclasses import dataclass
from pathlib import Path

from loaderx.errors import DataError

from .examples import DamagedError
from .index import Shard
from .thrift import Fields, integer, read_struct, structure, structures

MAGIC, ENCRYPTED_MAGIC = b"PAR1", b"PARE"
TAIL_BYTES = 8
MOST_OFFSET = (1 << 63) - 1
# Codecs by their numbers in the format.
CODECS = (
    "UNCOMPRESSED",
    "SNAPPY",
    "GZIP",
    "LZO",
    "BROTLI",
    "LZ4 in frames of Hadoop",
    "ZSTD",
    "LZ4",
)
STORED, SNAPPY = 0, 1
READABLE = (0, 1, 2, 4, 6, 7)


@dataclass(frozen=True)
class Chunk:
    """Column chunk: the part of a column that is in a row group.

    begin   place in the file of its first page
    values  number of values
    codec   index in `CODECS`
    """

    begin: int
    values: int
    codec: int


class Footer:
    """Footer of a Parquet file.

    rows  number of rows of each row group
    """

    def __init__(self, shard: Shard) -> None:
        tail = shard.read(TAIL_BYTES, max(0, shard.size - TAIL_BYTES))
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] == ENCRYPTED_MAGIC:
            raise _encrypted(shard.path)
        if tail[4:] != MAGIC or not 0 < length <= shard.size - TAIL_BYTES - len(MAGIC):
            raise DataError(
                f"{shard.path} is not a Parquet file, or it is truncated: it does not end with a footer."
            )
        try:
            fields, _ = read_struct(shard.read(length, shard.size - TAIL_BYTES - length))
            if 8 in fields:
                raise _encrypted(shard.path)
            self._groups = structures(fields, 4)
            self.rows = [integer(group, 3, most=MOST_OFFSET) for group in self._groups]
        except DamagedError as error:
            raise DataError(f"{shard.path}: its footer is damaged: {error}.") from error

    def chunk(self, group: int, column: int) -> Chunk:
        """Return a column chunk; raise DamagedError if it cannot be read."""
        columns = structures(self._groups[group], 1)
        if column >= len(columns):
            raise DamagedError(f"its row group has {len(columns)} columns only")
        if columns[column].get(1):
            raise DamagedError("it is in another file")
        known = structure(columns[column], 3)
        codec = integer(known, 4)
        if codec not in READABLE:
            name = CODECS[codec] if codec < len(CODECS) else f"codec {codec}"
            raise DamagedError(f"it is compressed with {name}, which cannot be read")
        values = integer(known, 5, most=MOST_OFFSET)
        if values != self.rows[group]:
            raise DamagedError(f"it has {values} values for {self.rows[group]} rows")
        return Chunk(_first_page(known), values, codec)


def _first_page(known: Fields) -> int:
    begin = integer(known, 9, len(MAGIC), MOST_OFFSET)
    # Some writers give a place to dictionaries that are not there.
    dictionary = integer(known, 11, most=MOST_OFFSET) if 11 in known else 0
    return dictionary if len(MAGIC) <= dictionary < begin else begin


def _encrypted(path: Path) -> DataError:
    return DataError(f"{path} is encrypted. Decrypt it first.")
