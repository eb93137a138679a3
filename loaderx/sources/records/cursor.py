"""Where in the file chunks lie, their bytes there, and the chunks without records that stand between them."""

import numpy as np

from loaderx.kernels.blocks import BLOCK, BLOCK_HEADER, CHUNK_HEADER
from loaderx.kernels.framing import PADDING, SIGNATURE, place_chunks, write_chunks

from .encoding import Chunks
from .inputs import Bytes, Numbers

# Chunks, where each of them begins, and where the last ends.
Placed = tuple[Chunks, Numbers]


class FileCursor:
    """How far the file reaches."""

    def __init__(self) -> None:
        self.position = 0

    def place(self, chunks: Chunks) -> Placed:
        """Where the next chunks begin, and where the last ends."""
        begins = np.empty(len(chunks.records) + 1, np.int64)
        place_chunks(self.position, chunks.sizes, chunks.records, begins)
        self.position = int(begins[-1])
        return chunks, begins


def frame(placed: Placed) -> Bytes:
    """The bytes of chunks as they stand in the file."""
    chunks, begins = placed
    # Reusing this memory gains nothing: writing to the file takes several times as long as all of framing.
    out = np.empty(begins[-1] - begins[0], np.uint8)
    write_chunks(
        begins, chunks.kind, chunks.records, chunks.decoded, chunks.addresses, chunks.sizes, out
    )
    return out


def signature() -> Chunks:
    """The chunk that a file begins with."""
    return _marker(SIGNATURE, 0)


def padding_from(position: int) -> list[Chunks]:
    """A chunk up to the next block, or to the one behind if too little room is left; none at its beginning."""
    room = -position % BLOCK
    if room == 0:
        return []
    if room < CHUNK_HEADER:
        room += BLOCK - BLOCK_HEADER
    return [_marker(PADDING, room - CHUNK_HEADER)]


def _marker(kind: int, zeros: int) -> Chunks:
    """A chunk without records."""
    memory, nothing = np.zeros(zeros, np.uint8), np.zeros(1, np.int64)
    address = np.array([[memory.ctypes.data]], np.int64)
    return Chunks(kind, nothing, nothing, address, np.array([[zeros]], np.int64), (memory,))
