"""Encoding of records as chunks, compressed with zstd or plain."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import zstandard

from loaderx.kernels.framing import SIMPLE, VARINT_BYTES, write_heads

from .inputs import Block, Bytes, Numbers, Records
from .varints import varint, varints_of

# The value of array_record's own writer, which notes it in the footer.
WINDOW_LOG = 20


@dataclass(frozen=True, eq=False)
class Chunks:
    """Chunks, each with one row of pieces of memory; `owners` keep that memory alive."""

    kind: int
    records: Numbers
    decoded: Numbers
    addresses: Numbers
    sizes: Numbers
    owners: tuple[Bytes, ...]


@dataclass(frozen=True)
class Encoding:
    """Encoder of records into chunks of `group` records, by zstd at a level or uncompressed."""

    level: int | None
    group: int

    def encode(self, block: Block) -> Chunks:
        """Return the chunks of a block of records; only the last may have fewer than `group`."""
        records = block()
        starts = np.arange(0, len(records.sizes), self.group)
        decoded = np.add.reduceat(records.sizes, starts)
        counts = np.diff(starts, append=len(records.sizes))
        if self.level is None:
            owners, lengths = self._plain(records, decoded, counts)
        else:
            owners, lengths = self._compressed(self.level, records, decoded, counts)
        # A column for each piece of memory, which holds that part of all chunks in sequence.
        ends = np.cumsum(lengths, axis=0)
        bases = np.array([owner.ctypes.data for owner in owners], np.int64)
        return Chunks(SIMPLE, counts, decoded, bases + ends - lengths, lengths, owners)

    @property
    def options(self) -> str:
        """Options in the spelling of array_record: its data source and Grain read the group size from them."""
        codec = (
            "uncompressed" if self.level is None else f"zstd:{self.level},window_log:{WINDOW_LOG}"
        )
        return (
            f"group_size:{self.group},transpose:false,pad_to_block_boundary:false,"
            f"{codec},max_parallelism:1"
        )

    def _plain(
        self, records: Records, decoded: Numbers, counts: Numbers
    ) -> tuple[tuple[Bytes, ...], Numbers]:
        room = len(counts) * (1 + VARINT_BYTES) + len(records.sizes) * VARINT_BYTES
        heads, ends = np.empty(room, np.uint8), np.empty(len(counts), np.int64)
        write_heads(records.sizes, self.group, ends, heads)
        return (heads, records.values), np.stack([np.diff(ends, prepend=0), decoded], axis=1)

    def _compressed(
        self, level: int, records: Records, decoded: Numbers, counts: Numbers
    ) -> tuple[tuple[Bytes, ...], Numbers]:
        compress = _compressor(level)
        varints, ends = varints_of(records.sizes)
        values = records.values.data
        heads: dict[bytes, bytes] = {}
        parts: list[bytes] = []
        first = place = begin = 0
        for size, count in zip(decoded.tolist(), counts.tolist(), strict=True):
            first += count
            end = int(ends[first - 1])
            sizes = varints[begin:end].tobytes()
            # Records of one size have the same head, and most files have records of one size.
            if sizes not in heads:
                packed = varint(len(sizes)) + compress(sizes)
                heads[sizes] = b"z" + varint(len(packed)) + packed + varint(size)
            parts += (heads[sizes], compress(values[place : place + size]))
            begin, place = end, place + size
        lengths = np.fromiter(map(len, parts), np.int64, len(parts)).reshape(-1, 2).sum(axis=1)
        return (np.frombuffer(b"".join(parts), np.uint8),), lengths.reshape(-1, 1)


def _compressor(level: int) -> Callable[[Any], bytes]:
    # One per thread: a compressor must not be used by two threads at once.
    parameters = zstandard.ZstdCompressionParameters(
        compression_level=level, window_log=WINDOW_LOG, write_content_size=True
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress
