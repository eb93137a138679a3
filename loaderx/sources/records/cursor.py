"""Positions of chunks in a file, their bytes, and the padding chunks between them."""

import numpy as np

from loaderx.kernels.blocks import BLOCK, BLOCK_HEADER, CHUNK_HEADER
from loaderx.kernels.framing import PADDING, SIGNATURE, place_chunks, write_chunks

from .encoding import Chunks
from .inputs import Bytes, Numbers

# Chunks, the position of each, and the end of the last.
PlacedChunks = tuple[Chunks, Numbers]


class FileCursor:
    """Write position in the file."""

    def __init__(self) -> None:
        self.position = 0

    def place(self, chunks: Chunks) -> PlacedChunks:
        """Advance past the next chunks; return the position of each and the end of the last."""
        begins = np.empty(len(chunks.records) + 1, np.int64)
        place_chunks(self.position, chunks.sizes, chunks.records, begins)
        self.position = int(begins[-1])
        return chunks, begins


def frame(placed: PlacedChunks) -> Bytes:
    """Return the bytes of chunks as they are in the file."""
    chunks, begins = placed
    # Reusing this memory gains nothing: writing the file takes several times as long as all of this function.
    out = np.empty(begins[-1] - begins[0], np.uint8)
    write_chunks(
        begins, chunks.kind, chunks.records, chunks.decoded, chunks.addresses, chunks.sizes, out
    )
    return out


def signature() -> Chunks:
    """Return the chunk that a file begins with."""
    return _marker(SIGNATURE, 0)


def padding_from(position: int) -> list[Chunks]:
    """Return a padding chunk up to the next block, or to the one after it if too little room is left.

    The list is empty at the beginning of a block.
    """
    room = -position % BLOCK
    if room == 0:
        return []
    if room < CHUNK_HEADER:
        room += BLOCK - BLOCK_HEADER
    return [_marker(PADDING, room - CHUNK_HEADER)]


def _marker(kind: int, zeros: int) -> Chunks:
    """Return a chunk without records."""
    memory, nothing = np.zeros(zeros, np.uint8), np.zeros(1, np.int64)
    address = np.array([[memory.ctypes.data]], np.int64)
    return Chunks(kind, nothing, nothing, address, np.array([[zeros]], np.int64), (memory,))
