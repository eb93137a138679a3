"""Positions in a Riegeli file: blocks of 64 KiB that each begin with a header, whatever it interrupts.

A chunk is numbered by its own bytes, as if there were no block headers: its header is bytes 0 to 39, its data begins at
byte 40. These functions tell where in the file they lie.
"""

from typing import Any

from .compilation import jitable

BLOCK = 65536
BLOCK_HEADER = 24
USABLE = BLOCK - BLOCK_HEADER
CHUNK_HEADER = 40


@jitable
def end_of(begin: Any, size: Any) -> Any:
    """The position behind `size` bytes of a chunk that begins at `begin`."""
    return begin + size + (size + (begin + USABLE - 1) % BLOCK) // USABLE * BLOCK_HEADER


@jitable
def position_of(begin: Any, byte: Any) -> Any:
    """The position of one byte of a chunk."""
    # By the end of the byte: behind the last one before a block header lies that header.
    return end_of(begin, byte + 1) - 1


@jitable
def next_boundary(position: Any) -> Any:
    """The first position from this one on at which a chunk may begin: not in a block header, nor right behind one."""
    inside = position % BLOCK
    return position + BLOCK_HEADER + 1 - inside if 0 < inside <= BLOCK_HEADER else position


@jitable
def chunk_end(begin: Any, data_size: Any, records: Any) -> Any:
    """The position behind a chunk, which is at least as long as it has records."""
    return max(end_of(begin, CHUNK_HEADER + data_size), next_boundary(begin + records))
