"""Records -> the bytes of a Riegeli file: chunks with their headers and hashes, interrupted by block headers.

Numbers of variable length are varints: seven bits per byte, the lowest first, the top bit set on all but the last.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .blocks import BLOCK, BLOCK_HEADER, CHUNK_HEADER, chunk_end, end_of
from .compilation import jitable, kernel
from .highway import RIEGELI_KEY, finish_hash, hash_bytes, new_state, start_hash
from .memory import copy_bytes

Numbers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

# The kinds of chunks in a chunk header.
SIGNATURE = ord("s")
SIMPLE = ord("r")
PADDING = ord("p")

# The longest varint, of an integer of 63 bits.
VARINT_BYTES = 9

# Protobuf tags of fields 1, 2 and 3 of an entry of the footer.
OFFSET_TAG, SIZE_TAG, RECORDS_TAG = 0x08, 0x10, 0x18
ENTRY_BYTES = 3 * (1 + VARINT_BYTES)


@jitable
def put_varint(number: Any, place: Any, out: Bytes) -> Any:
    """Write a varint at a place and return the place after it."""
    while number > 127:
        out[place] = number & 127 | 128
        number >>= 7
        place += 1
    out[place] = number
    return place + 1


@jitable
def varint_bytes(number: Any) -> Any:
    """Return the number of bytes of a varint."""
    count = 1
    while number > 127:
        number >>= 7
        count += 1
    return count


@kernel
def write_varints(numbers: Numbers, ends: Numbers, out: Bytes) -> None:
    """Write varints one after the other; ends[i] is the place after number i."""
    place = 0
    for i in range(numbers.shape[0]):
        place = put_varint(numbers[i], place, out)
        ends[i] = place


@kernel
def write_heads(sizes: Numbers, group: int, ends: Numbers, out: Bytes) -> None:
    """Write the heads of uncompressed chunks of `group` records each: no compression, and the sizes."""
    place = 0
    for i in range(ends.shape[0]):
        first = i * group
        stop = min(first + group, sizes.shape[0])
        length = 0
        for j in range(first, stop):
            length += varint_bytes(sizes[j])
        out[place] = 0
        place = put_varint(length, place + 1, out)
        for j in range(first, stop):
            place = put_varint(sizes[j], place, out)
        ends[i] = place


@kernel
def write_entries(
    begins: Numbers, decoded: Numbers, records: Numbers, ends: Numbers, out: Bytes
) -> None:
    """Write the entries of the footer, one per chunk; ends[i] is the place after entry i."""
    place = 0
    for i in range(ends.shape[0]):
        out[place] = OFFSET_TAG
        place = put_varint(begins[i], place + 1, out)
        out[place] = SIZE_TAG
        place = put_varint(decoded[i], place + 1, out)
        out[place] = RECORDS_TAG
        place = put_varint(records[i], place + 1, out)
        ends[i] = place


@kernel
def place_chunks(begin: int, sizes: Numbers, records: Numbers, begins: Numbers) -> None:
    """Compute the beginning of every chunk, and the end of the last one.

    The data of a chunk has the sizes of one row of `sizes`.
    """
    begins[0] = begin
    for i in range(sizes.shape[0]):
        data_size = 0
        for j in range(sizes.shape[1]):
            data_size += sizes[i, j]
        begins[i + 1] = chunk_end(begins[i], data_size, records[i])


@jitable
def write_piece(address: Any, size: Any, position: Any, base: Any) -> Any:
    """Write bytes of a chunk around block headers and return the position after them; position 0 is at `base`."""
    while size > 0:
        inside = position % BLOCK
        if inside == 0:
            position += BLOCK_HEADER
            inside = BLOCK_HEADER
        taken = min(size, BLOCK - inside)
        copy_bytes(base + position, address, taken)
        address += taken
        position += taken
        size -= taken
    return position


@kernel
def write_chunks(
    begins: Numbers,
    kind: int,
    records: Numbers,
    decoded: Numbers,
    addresses: Numbers,
    sizes: Numbers,
    out: Bytes,
) -> None:
    """Write chunks at the positions that `place_chunks` computed, each with data by a row of addresses and sizes."""
    state = new_state()
    # Scratch memory for all chunks of a call: a header, and a block header.
    words = np.empty(CHUNK_HEADER // 8, np.uint64)
    header = words.ctypes.data
    base = out.ctypes.data - begins[0]
    for i in range(records.shape[0]):
        begin, end = begins[i], begins[i + 1]
        start_hash(RIEGELI_KEY, state)
        data_size = 0
        # The header has the same length at any position, so the data is written first, and hashed while it is in the
        # cache.
        position = end_of(begin, CHUNK_HEADER)
        for j in range(addresses.shape[1]):
            hash_bytes(addresses[i, j], sizes[i, j], state)
            position = write_piece(addresses[i, j], sizes[i, j], position, base)
            data_size += sizes[i, j]
        # A chunk with more records than bytes.
        out[position - begins[0] : end - begins[0]] = 0

        words[1] = data_size
        words[2] = finish_hash(state)
        words[3] = kind | records[i] << 8
        words[4] = decoded[i]
        start_hash(RIEGELI_KEY, state)
        hash_bytes(header + 8, CHUNK_HEADER - 8, state)
        words[0] = finish_hash(state)
        write_piece(header, CHUNK_HEADER, begin, base)

        for block in range((begin + BLOCK - 1) // BLOCK * BLOCK, end, BLOCK):
            words[1] = block - begin
            words[2] = end - block
            start_hash(RIEGELI_KEY, state)
            hash_bytes(header + 8, BLOCK_HEADER - 8, state)
            words[0] = finish_hash(state)
            copy_bytes(base + block, header, BLOCK_HEADER)
