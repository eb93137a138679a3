"""Chunks of a Riegeli file for tests: their bytes, right or wrong, and their places in memory."""

from typing import Any, NamedTuple

import numpy as np
import zstandard

from loaderx.kernels.blocks import BLOCK, BLOCK_HEADER
from loaderx.kernels.highway import highway_hash
from tests.reference import own_places, varint

SIGNATURE_END = 64
# From no byte of a chunk in the next block to all bytes but one, and after the block header.
AROUND_A_BLOCK = [
    begin
    for begin in range(BLOCK - 130, BLOCK + 30)
    if begin % BLOCK == 0 or begin % BLOCK > BLOCK_HEADER
]
# Random bytes after a chunk, for code that reads too far.
BEHIND = 64


def random_bytes(count, seed=0, values=256):
    return np.random.default_rng(seed).integers(0, values, count, dtype=np.uint8)


def hash_of(data):
    memory = np.frombuffer(data, np.uint8)
    return int(highway_hash(memory.ctypes.data, len(memory)))


def packed(content, promised=None):
    """Return a part of a chunk: a zstd frame after its size, or after the `promised` size."""
    return varint(len(content) if promised is None else promised) + zstandard.compress(content)


def joined(compression, listed, values):
    """Return the data of a chunk from two parts that are already compressed."""
    return compression + varint(len(listed)) + listed + values


def data_of(*records, codec="plain", listed=None, promised=None):
    """Return the data of a chunk, which is intact unless sizes or zstd's promise are given."""
    listed = b"".join(varint(len(record)) for record in records) if listed is None else listed
    values = b"".join(records)
    if codec == "plain":
        return joined(b"\0", listed, values)
    return joined(b"z", packed(listed), packed(values, promised))


def header_of(data, kind, records, decoded, size=None):
    """Return the header of a chunk, with right hashes, whatever the numbers are."""
    words = len(data) if size is None else size, hash_of(data), kind + 256 * records, decoded
    content = np.array([word % 2**64 for word in words], "<u8").tobytes()
    return hash_of(content).to_bytes(8, "little") + content


def entry_of(offset, size, count):
    """Return the entry of a chunk in an index."""
    return b"\x08" + varint(offset) + b"\x10" + varint(size) + b"\x18" + varint(count)


class Chunk(NamedTuple):
    """Place of a chunk, and the object that owns its memory."""

    base: int
    begin: int
    limit: int
    hold: Any


class BuiltChunk:
    """Chunk with true hashes in memory that is random around it, and in its block headers."""

    def __init__(self, data, decoded, begin=SIGNATURE_END, kind="r", records=1, size=None, seed=0):
        content = header_of(data, ord(kind), records, decoded, size) + data
        room = len(content) + BLOCK_HEADER * (2 + len(content) // BLOCK)
        self.places = own_places(begin, begin + room)[: len(content)]
        self.begin, self.limit = begin, int(self.places[-1]) + 1
        self.memory = random_bytes(self.limit + BEHIND, seed)
        self.memory[self.places] = np.frombuffer(content, np.uint8)

    @property
    def chunk(self):
        return Chunk(self.memory.ctypes.data, self.begin, self.limit, self.memory)


def built_record(record, codec="plain", **options):
    return BuiltChunk(data_of(record, codec=codec), len(record), **options)
