"""Restart markers for JPEG files: compressed pixels are written anew with a marker after every row of blocks (MCU row).

Coefficients stay as they are. Huffman symbols are decoded only to find where a block ends, and their bits are copied.
The first value of each component (DC) after a marker is the exception: it is a difference to 0 from then on. Any bytes
may come here, so nothing is read or written outside of the arrays.
"""

from typing import Any

import numpy as np

from .compilation import jitable, kernel
from .jpeg_markers import RESTART

(
    FINE,
    CUT,  # it ends, or a marker follows, before the last block
    WRONG_CODE,  # bits that are not a Huffman code
    WRONG_RESTART,  # a restart marker is missing, or is another one
    WRONG_END,  # more bytes than the last block needs
    WRONG_TABLE,  # a Huffman table with more codes than there are
    NO_CODE,  # a difference for which the new Huffman table has no code
    FULL,  # no room in `out`
) = range(8)
# The entries of `result`. The last four are bits: the categories of differences that were written with each table.
STATUS, SIZE, PLACE, USED = range(4)
RESULTS = USED + 4
# Tables are rows: the numbers of codes of 1 to 16 bits, and then their symbols. First four for DC, then four for AC,
# as in the file, and then the four for DC that are written.
TABLES, LENGTHS, SYMBOLS, NEW = 12, 16, 256, 8
CATEGORIES = 16
# Codes of at most so many bits are looked up, and longer ones are rare.
LOOKUP_BITS = 9
# A row of `decoders`: symbol and length for the next bits, and of each length the number after its last code, and how
# far its symbols are from its codes.
LIMITS = 1 << LOOKUP_BITS
OFFSETS = LIMITS + LENGTHS + 1
DECODER = OFFSETS + LENGTHS + 1
COEFFICIENTS = 64
# A run of 16 zeros.
ZEROS = 15
ONES = (1 << 32) - 1
# Bytes that 32 bits, padding and a marker need at most.
MOST_BYTES = 16


@jitable
def _read_table(table: Any, decoder: Any) -> bool:
    """Compute how codes of a table are decoded; return whether there are such codes."""
    decoder[:LIMITS] = 0
    code = index = 0
    for length in range(1, LENGTHS + 1):
        decoder[OFFSETS + length] = index - code
        count = np.int64(table[length - 1])
        if code + count > 1 << length or index + count > SYMBOLS:
            return False
        for _ in range(count):
            if length <= LOOKUP_BITS:
                rest = LOOKUP_BITS - length
                entry = length << 8 | np.int64(table[LENGTHS + index])
                decoder[code << rest : (code + 1) << rest] = entry
            code += 1
            index += 1
        decoder[LIMITS + length] = code
        code <<= 1
    return True


@jitable
def _write_codes(table: Any, codes: Any) -> bool:
    """Compute the code of each category, with its length in the lower 5 bits; return whether there are such codes."""
    codes[:] = 0
    code = index = 0
    for length in range(1, LENGTHS + 1):
        count = np.int64(table[length - 1])
        if code + count > 1 << length or index + count > SYMBOLS:
            return False
        for _ in range(count):
            symbol = table[LENGTHS + index]
            if symbol < CATEGORIES:
                codes[symbol] = code << 5 | length
            code += 1
            index += 1
        code <<= 1
    return True


@jitable
def _has_255(word: Any) -> Any:
    """Return whether one of four bytes is 255."""
    return ((word ^ ONES) - 0x01010101) & word & 0x80808080 != 0


@jitable
def _read_bytes(data: Any, place: Any, held: Any, count: Any) -> Any:
    """Hold 32 bits, fewer only before a marker and at the end; return the place, the bits and their number."""
    size = data.shape[0]
    while count < 32 and place < size:
        byte = np.int64(data[place])
        after = place + 1
        if byte == 255:
            # Any number of 255 may precede the 0 that makes it pixels.
            while after < size and data[after] == 255:
                after += 1
            if after >= size or data[after] != 0:
                break
            after += 1
        held = held << 8 | byte
        count += 8
        place = after
    return place, held, count


@jitable
def _long_symbol(tables: Any, decoders: Any, row: Any, bits: Any) -> Any:
    """Return the symbol that 16 bits begin with, with the length of its code in the upper bits, or -1."""
    for length in range(LOOKUP_BITS + 1, LENGTHS + 1):
        code = bits >> (16 - length)
        if code < decoders[row, LIMITS + length]:
            index = code + np.int64(decoders[row, OFFSETS + length])
            return np.int64(length << 8) | np.int64(tables[row, LENGTHS + index])
    return np.int64(-1)


@jitable
def _write_bytes(out: Any, target: Any, bits: Any, number: Any) -> Any:
    """Write the last `number` bytes of some bits, with a 0 after every 255; return the next place."""
    for k in range(number - 1, -1, -1):
        byte = bits >> (8 * k) & 255
        out[target] = byte
        target += 1
        if byte == 255:
            out[target] = 0
            target += 1
    return target


@jitable
def _category(value: Any) -> Any:
    """Return how many bits a difference needs."""
    size, rest = 0, abs(value)
    while rest > 0:
        size += 1
        rest >>= 1
    return size


@jitable
def _after_restart(data: Any, place: Any, number: Any) -> Any:
    """Return the place after a restart marker, or -1 if there is another one or none."""
    size = data.shape[0]
    while place < size and data[place] == 255:
        place += 1
    if place >= size or data[place] != RESTART + number:
        return -1
    return place + 1


@kernel
def insert_restarts(
    data: Any,
    begin: int,
    rows: int,
    per_row: int,
    interval: int,
    blocks: Any,
    tables: Any,
    decoders: Any,
    codes: Any,
    last: Any,
    out: Any,
    result: Any,
) -> None:
    """Write the compressed pixels that begin at `begin`, with a restart marker between rows of `per_row` MCU.

    `interval` is that of the markers in `data`, or 0. `blocks` are the blocks of an MCU: component, DC table and AC
    table of each. `decoders`, `codes` and `last` are memory for the tables and for the last DC values, as they are read
    and as they are written. `result` gets a status, the bytes written, the place of the marker after the last block,
    and the categories that were used.
    """
    result[:] = 0
    result[PLACE] = begin
    for block in range(blocks.shape[0]):
        dc, ac = blocks[block, 1], 4 + blocks[block, 2]
        if not (
            _read_table(tables[dc], decoders[dc])
            and _read_table(tables[ac], decoders[ac])
            and _write_codes(tables[NEW + dc], codes[dc])
        ):
            result[STATUS] = WRONG_TABLE
            return
    room = out.shape[0] - MOST_BYTES
    place, held, count = np.int64(begin), np.int64(0), np.int64(0)
    target, kept, waiting = np.int64(0), np.int64(0), np.int64(0)
    restarts, left = 0, interval
    last[:] = 0
    for row in range(rows):
        last[1] = 0
        for _ in range(per_row):
            if interval > 0:
                if left == 0:
                    place, held, count = _read_bytes(data, place, held, count)
                    place = _after_restart(data, place, restarts % 8) if count < 8 else np.int64(-1)
                    if place < 0:
                        result[STATUS], result[PLACE] = WRONG_RESTART, restarts
                        return
                    held, count = np.int64(0), np.int64(0)
                    last[0] = 0
                    restarts += 1
                    left = interval
                left -= 1
            for block in range(blocks.shape[0]):
                k: Any = 0
                while k < COEFFICIENTS:
                    if count < 32:
                        # Here and not in a function. [110 KB: 1.3 ms; with calls for bits and codes 3 to 5 ms]
                        word = np.int64(255)
                        if place + 4 <= data.shape[0]:
                            part = data[place : place + 4]
                            word = np.int64(part[0]) << 24 | np.int64(part[1]) << 16
                            word |= np.int64(part[2]) << 8 | np.int64(part[3])
                        if _has_255(word):
                            place, held, count = _read_bytes(data, place, held, count)
                        else:
                            place, held, count = place + 4, held << 32 | word, count + 32
                    # Past the end there are zeros, which are noticed by `count`.
                    ahead = (held >> (count - 16) if count >= 16 else held << (16 - count)) & 0xFFFF
                    row_of_table = blocks[block, 1] if k == 0 else 4 + blocks[block, 2]
                    found = np.int64(decoders[row_of_table, ahead >> (16 - LOOKUP_BITS)])
                    if found == 0:
                        found = _long_symbol(tables, decoders, row_of_table, ahead)
                    size = found & 15
                    used = (found >> 8) + size
                    if found < 0 or used > count or (k == 0 and found & 255 >= CATEGORIES):
                        result[STATUS] = CUT if found >= 0 and used > count else WRONG_CODE
                        result[PLACE] = place
                        return
                    count -= used
                    bits = held >> count & ((1 << used) - 1)
                    if k > 0:
                        run = found >> 4 & 15
                        k = COEFFICIENTS if size == 0 and run != ZEROS else k + run + 1
                    else:
                        # The difference of the first value.
                        component, table = blocks[block, 0], blocks[block, 1]
                        value = bits & ((1 << size) - 1)
                        if size > 0 and value < 1 << (size - 1):
                            value -= (1 << size) - 1
                        last[0, component] += value
                        value = last[0, component] - last[1, component]
                        last[1, component] = last[0, component]
                        size = _category(value)
                        code = np.int64(codes[table, size]) if size < CATEGORIES else np.int64(0)
                        if code == 0:
                            result[STATUS], result[PLACE] = NO_CODE, place
                            return
                        result[USED + table] |= 1 << size
                        if value < 0:
                            value += (1 << size) - 1
                        bits = (code >> 5) << size | value
                        used = (code & 31) + size
                        k = 1
                    kept = kept << used | bits
                    waiting += used
                    if waiting >= 32:
                        if target > room:
                            result[STATUS] = FULL
                            return
                        waiting -= 32
                        word = kept >> waiting & ONES
                        if _has_255(word):
                            target = _write_bytes(out, target, word, 4)
                        else:
                            copy = out[target : target + 4]
                            copy[0], copy[1] = word >> 24, word >> 16 & 255
                            copy[2], copy[3] = word >> 8 & 255, word & 255
                            target += 4
        # Ones up to the next byte, and a marker.
        if target > room:
            result[STATUS] = FULL
            return
        padding = -waiting & 7
        kept = kept << padding | ((1 << padding) - 1)
        target = _write_bytes(out, target, kept, (waiting + padding) >> 3)
        kept, waiting = np.int64(0), np.int64(0)
        if row + 1 < rows:
            out[target], out[target + 1] = 255, RESTART + row % 8
            target += 2
    place, held, count = _read_bytes(data, place, held, count)
    while place < data.shape[0] and data[place] == 255:
        place += 1
    result[STATUS] = FINE if count < 8 else WRONG_END
    if place >= data.shape[0]:
        result[STATUS] = CUT
    result[SIZE], result[PLACE] = target, place
