"""Positions in a Riegeli file: blocks of 64 KiB that each begin with a header, whatever it interrupts.

The bytes of a chunk are numbered as if there were no block headers: its header is bytes 0 to 39, its data begins at
byte 40. These functions convert such numbers to positions in the file.
"""

from typing import Any

from .compilation import jitable

BLOCK = 65536
BLOCK_HEADER = 24
USABLE = BLOCK - BLOCK_HEADER
CHUNK_HEADER = 40


@jitable
def end_of(begin: Any, size: Any) -> Any:
    """Return the position after `size` bytes of a chunk that begins at `begin`."""
    return begin + size + (size + (begin + USABLE - 1) % BLOCK) // USABLE * BLOCK_HEADER


@jitable
def position_of(begin: Any, byte: Any) -> Any:
    """Return the position of one byte of a chunk."""
    # By the end of the byte: after the last byte before a block header comes that header.
    return end_of(begin, byte + 1) - 1


@jitable
def next_boundary(position: Any) -> Any:
    """Return the first position from this one on at which a chunk may begin.

    A chunk begins neither in a block header nor directly after one.
    """
    inside = position % BLOCK
    return position + BLOCK_HEADER + 1 - inside if 0 < inside <= BLOCK_HEADER else position


@jitable
def chunk_end(begin: Any, data_size: Any, records: Any) -> Any:
    """Return the position after a chunk, which has at least one byte per record."""
    return max(end_of(begin, CHUNK_HEADER + data_size), next_boundary(begin + records))
