"""Chunks of a Riegeli file in memory: checked, decompressed, and their records copied to their destination.

Nothing in a file is trusted. Every size and offset is compared with its limits before a byte is read, and only its hash
proves that a chunk is intact. A function that fails returns the reason as a number below 0; the caller, which knows the
file, names it in the message.
"""

from typing import Any

import numpy as np
from numba import carray
from numpy.typing import NDArray

from .blocks import BLOCK, BLOCK_HEADER, CHUNK_HEADER, end_of, position_of
from .calls import decompress, fetch
from .compilation import gil_kernel, jitable, kernel
from .gathering import part_of
from .highway import RIEGELI_KEY, finish_hash, hash_bytes, highway_hash, new_state, start_hash
from .memory import copy_bytes, pointer

# Reasons why a record cannot be read.
OUTSIDE, HEADER_HASH, DATA_HASH, KIND, CONTRADICTION = range(-1, -6, -1)
ROW_SIZE, STEP_SIZE, FRAME, ROOM, MISPLACED = range(-6, -11, -1)
NEVER, FIRST, ALWAYS = 0, 1, 2
SIMPLE, ZSTD, PLAIN = ord("r"), ord("z"), 0

# State of a thread that reads records, as words: the decompressor and its context, memory, and then the facts about the
# current chunk. Bytes of a chunk are numbered as in blocks.py.
DECOMPRESSOR, CONTEXT, SCRATCH, SCRATCH_SIZE = range(4)
HEADER = 4
TYPE, RECORDS, DECODED, COMPRESSION, SIZES, VALUES, END = range(9, 16)
WORKER_WORDS = 16

# Address of a record: the settings of its file, the address of the file's first byte, the beginning of its chunk, the
# position at or before which the chunk ends, and the number of the record. A row that is already at BASE has a BEGIN
# below 0.
SETTINGS, BASE, BEGIN, LIMIT, CHUNK = range(5)
ENTRY_WORDS = 5
# Settings for all records of a file: how they are verified, one bit for each chunk that was read before, and the form
# of a row. If STEP is above 0, a record of any number of whole steps becomes one row: it is cut, or filled up from
# PADDING. If SHORTCUT is not 0, it is the byte of its chunk that a row begins at, because the file is not compressed.
# If LISTED is not 0, it is the address of the lower 32 bits of the size of every record, as the index of the file has
# them.
VERIFY, SEEN, ROW, STEP, PADDING, ALIGNMENT, SHORTCUT, LISTED = range(8)
SETTINGS_WORDS = 8


@jitable
def byte_at(address: Any) -> Any:
    """Return one byte of memory."""
    return np.int64(carray(pointer(address), (1,), np.uint8)[0])


@jitable
def copy_part(base: Any, begin: Any, first: Any, count: Any, target: Any) -> None:
    """Copy bytes of a chunk from number `first` on, without the block headers between them."""
    position = position_of(begin, first)
    while count > 0:
        size = min(count, BLOCK - position % BLOCK)
        copy_bytes(target, base + position, size)
        target += size
        count -= size
        position += size + BLOCK_HEADER


@jitable
def hash_part(base: Any, begin: Any, first: Any, count: Any) -> Any:
    """Return the hash of bytes of a chunk."""
    state = new_state()
    start_hash(RIEGELI_KEY, state)
    position = position_of(begin, first)
    while count > 0:
        size = min(count, BLOCK - position % BLOCK)
        hash_bytes(base + position, size, state)
        count -= size
        position += size + BLOCK_HEADER
    return finish_hash(state)


@jitable
def part_at(base: Any, begin: Any, first: Any, count: Any, scratch: Any) -> Any:
    """Return the address of contiguous bytes of a chunk.

    That is in the file, or in `scratch` if a block header is between the bytes in the file.
    """
    position = position_of(begin, first)
    if position % BLOCK + count <= BLOCK:
        return base + position
    copy_part(base, begin, first, count, scratch)
    return scratch


@jitable
def varint_at(base: Any, begin: Any, byte: Any, stop: Any) -> Any:
    """Return a varint, and the byte after it, which is -1 if the varint does not end before `stop`."""
    value, shift = np.int64(0), np.int64(0)
    while byte < stop and shift < 63:
        seven = byte_at(base + position_of(begin, byte))
        byte += 1
        value |= (seven & 127) << shift
        if seven < 128:
            return value, byte
        shift += 7
    return np.int64(0), np.int64(-1)


@jitable
def varint_in(content: Any, byte: Any, stop: Any) -> Any:
    """Return what `varint_at` returns, from contiguous bytes."""
    value, shift = np.int64(0), np.int64(0)
    while byte < stop and shift < 63:
        seven = np.int64(content[byte])
        byte += 1
        value |= (seven & 127) << shift
        if seven < 128:
            return value, np.int64(byte)
        shift += 7
    return np.int64(0), np.int64(-1)


@kernel
def check_chunk(base: int, begin: int, limit: int, verify: bool, worker: int) -> Any:
    """Write the layout of a chunk into the words of the worker, and verify its hashes if asked."""
    words = carray(pointer(worker), (WORKER_WORDS,), np.int64)
    if begin < 0 or end_of(begin, CHUNK_HEADER) > limit:
        return OUTSIDE
    header = worker + 8 * HEADER
    copy_part(base, begin, 0, CHUNK_HEADER, header)
    if verify and np.uint64(highway_hash(header + 8, CHUNK_HEADER - 8)) != np.uint64(words[HEADER]):
        return HEADER_HASH
    size = words[HEADER + 1]
    if size < 0 or size > limit or end_of(begin, CHUNK_HEADER + size) > limit:
        return OUTSIDE
    stop = CHUNK_HEADER + size
    if verify and np.uint64(hash_part(base, begin, CHUNK_HEADER, size)) != np.uint64(
        words[HEADER + 2]
    ):
        return DATA_HASH
    words[TYPE] = words[HEADER + 3] & 255
    words[RECORDS] = words[HEADER + 3] >> 8
    words[DECODED] = words[HEADER + 4]
    words[END] = stop
    if words[RECORDS] < 0 or words[DECODED] < 0 or size < 1:
        return CONTRADICTION
    words[COMPRESSION] = byte_at(base + position_of(begin, CHUNK_HEADER))
    if words[TYPE] != SIMPLE or (words[COMPRESSION] != PLAIN and words[COMPRESSION] != ZSTD):
        return KIND
    length, sizes = varint_at(base, begin, CHUNK_HEADER + 1, stop)
    if sizes < 0 or length > stop - sizes:
        return CONTRADICTION
    words[SIZES] = sizes
    words[VALUES] = sizes + length
    return 0


@jitable
def unpack_part(
    base: Any, begin: Any, first: Any, stop: Any, words: Any, target: Any, size: Any
) -> Any:
    """Decompress bytes of a chunk that must become `size` bytes; return 0, or the reason of a failure."""
    promised, first = varint_at(base, begin, first, stop)
    if first < 0 or promised != size:
        return CONTRADICTION
    count = stop - first
    if count > words[SCRATCH_SIZE]:
        return ROOM
    frame = part_at(base, begin, first, count, words[SCRATCH])
    if decompress(words[DECOMPRESSOR], words[CONTEXT], target, size, frame, count) != size:
        return FRAME
    return 0


@jitable
def mark_verified(seen: Any, bit: Any) -> None:
    """Mark a chunk as read, and as intact if it was verified."""
    # A data race with another thread that sets a bit of the same byte can undo this. The chunk is then checked again.
    seen[0] |= bit


@jitable
def plain_row(base: Any, begin: Any, first: Any, size: Any, alignment: Any, target: Any) -> Any:
    """Return the address of an uncompressed record: in the file if contiguous and aligned, otherwise at `target`."""
    position = position_of(begin, first)
    if position % BLOCK + size <= BLOCK and (base + position) % alignment == 0:
        return base + position
    copy_part(base, begin, first, size, target)
    return target


@kernel
def read_record(entry: int, target: int, worker: int) -> Any:
    """Return the address of a row: its record is written to `target`, or stays in the file if it can be used there."""
    place = carray(pointer(entry), (ENTRY_WORDS,), np.int64)
    base, begin = place[BASE], place[BEGIN]
    if begin < 0:
        return base
    settings = carray(pointer(place[SETTINGS]), (SETTINGS_WORDS,), np.int64)
    words = carray(pointer(worker), (WORKER_WORDS,), np.int64)
    seen = carray(pointer(settings[SEEN] + (place[CHUNK] >> 3)), (1,), np.uint8)
    bit = np.uint8(1 << (place[CHUNK] & 7))
    new = settings[VERIFY] == ALWAYS or not seen[0] & bit
    shortcut, row = settings[SHORTCUT], settings[ROW]
    if shortcut > 0 and not new:
        # Reading its header would wait for one more cache line.
        return plain_row(base, begin, shortcut, row, settings[ALIGNMENT], target)
    status = check_chunk(base, begin, place[LIMIT], new and settings[VERIFY] != NEVER, worker)
    if status < 0:
        return status
    size, step = words[DECODED], settings[STEP]
    if words[RECORDS] != 1:
        return CONTRADICTION
    if step == 0 and size != row:
        return ROW_SIZE
    if settings[LISTED] != 0:
        listed = carray(pointer(settings[LISTED] + 4 * place[CHUNK]), (1,), np.uint32)[0]
        if size & 0xFFFFFFFF != np.int64(listed):
            return MISPLACED
    if step > 0 and size % step != 0:
        return STEP_SIZE
    values = words[VALUES]
    if words[COMPRESSION] == PLAIN:
        if size != words[END] - values:
            return CONTRADICTION
        if step == 0:
            if shortcut in (0, values):
                mark_verified(seen, bit)
            return plain_row(base, begin, values, row, settings[ALIGNMENT], target)
        copy_part(base, begin, values, min(size, row), target)
    elif size <= row:
        status = unpack_part(base, begin, values, words[END], words, target, size)
    else:
        # It is cut, and a frame cannot be decompressed in part.
        scratch = words[SCRATCH_SIZE]
        if size > scratch:
            return ROOM
        words[SCRATCH_SIZE] = scratch - size
        whole = words[SCRATCH] + scratch - size
        status = unpack_part(base, begin, values, words[END], words, whole, size)
        words[SCRATCH_SIZE] = scratch
        if status == 0:
            copy_bytes(target, whole, row)
    if status < 0:
        return status
    if size < row:
        copy_bytes(target + size, settings[PADDING] + size, row - size)
    if shortcut == 0:
        mark_verified(seen, bit)
    return target


@kernel
def fetch_rows(
    function: int,
    entries: NDArray[np.int64],
    worker: int,
    size: int,
    out: NDArray[np.uint8],
    progress: NDArray[np.int64],
) -> None:
    """Copy rows of `size` bytes, one after the other; progress is (row that failed, reason), or (rows, 0)."""
    target = out.ctypes.data
    progress[0], progress[1] = entries.shape[0], 0
    for i in range(entries.shape[0]):
        row = fetch(function, entries[i], target + i * size, worker)
        if row < 0:
            progress[0], progress[1] = i, row
            return
        if row != target + i * size:
            copy_bytes(target + i * size, row, size)


@kernel
def decode_chunk(
    base: int,
    begin: int,
    worker: int,
    sizes: NDArray[np.uint8],
    ends: NDArray[np.int64],
    values: NDArray[np.uint8],
) -> Any:
    """Decode all records of a checked chunk: the end of each, and their bytes; `sizes` is scratch memory."""
    words = carray(pointer(worker), (WORKER_WORDS,), np.int64)
    first, stop, end = words[SIZES], words[VALUES], words[END]
    if words[COMPRESSION] == PLAIN:
        size, length = values.shape[0], stop - first
        if size != end - stop or length > sizes.shape[0]:
            return CONTRADICTION
        copy_part(base, begin, first, length, sizes.ctypes.data)
        copy_part(base, begin, stop, size, values.ctypes.data)
    else:
        length, _ = varint_at(base, begin, first, stop)
        if length > sizes.shape[0]:
            return CONTRADICTION
        status = unpack_part(base, begin, first, stop, words, sizes.ctypes.data, length)
        if status == 0:
            status = unpack_part(
                base, begin, stop, end, words, values.ctypes.data, np.int64(values.shape[0])
            )
        if status < 0:
            return status
    byte, total = np.int64(0), np.int64(0)
    for record in range(ends.shape[0]):
        value, byte = varint_in(sizes, byte, length)
        if byte < 0 or value > values.shape[0] - total:
            return CONTRADICTION
        total += value
        ends[record] = total
    return 0 if byte == length and total == values.shape[0] else CONTRADICTION


@kernel
def read_index(
    values: NDArray[np.uint8],
    ends: NDArray[np.int64],
    offsets: NDArray[np.int64],
    sizes: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> int:
    """Read offset, decoded size and records of every chunk from the messages of a footer.

    Return the number of the first message that is not valid, or -1.
    """
    for chunk in range(offsets.shape[0]):
        byte, stop = ends[chunk], ends[chunk + 1]
        offset, size, count = np.int64(-1), np.int64(-1), np.int64(-1)
        while byte < stop:
            tag = values[byte]
            byte += 1
            value, byte = varint_in(values, byte, stop)
            if byte < 0:
                return chunk
            if tag == 0x08:
                offset = value
            elif tag == 0x10:
                size = value
            elif tag == 0x18:
                count = value
            else:
                return chunk
        if offset < 0 or size < 0 or count < 0:
            return chunk
        offsets[chunk], sizes[chunk], counts[chunk] = offset, size, count
    return -1


@gil_kernel
def locate_records(
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    bases: NDArray[np.int64],
    settings: NDArray[np.int64],
    offsets: NDArray[np.int64],
    entries: NDArray[np.int64],
    addresses: NDArray[np.int64],
) -> None:
    """Write an entry for every row, and its address.

    File f holds the rows from starts[f] on. The address of its index is offsets[f], or 0 if another source reads the
    file.
    """
    for i in range(rows.shape[0]):
        file = part_of(rows[i], starts, bases.shape[0])
        chunk = rows[i] - starts[file]
        addresses[i] = entries.ctypes.data + 8 * ENTRY_WORDS * i
        entries[i, SETTINGS] = settings[file]
        entries[i, BASE] = bases[file]
        entries[i, CHUNK] = chunk
        if offsets[file] != 0:
            index = carray(pointer(offsets[file] + 8 * chunk), (2,), np.int64)
            entries[i, BEGIN] = index[0]
            entries[i, LIMIT] = index[1]
        else:
            entries[i, BEGIN] = -1
            entries[i, LIMIT] = -1
