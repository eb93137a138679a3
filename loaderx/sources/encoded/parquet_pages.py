"""Pages of a Parquet column: where each binary value is, and the blocks that are decompressed to read it."""

import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.kernels.snappy import DAMAGED, snappy_blocks
from loaderx.sources.byte_rows import Buffer
from loaderx.sources.extras import require

from .examples import DamagedError
from .parquet_footer import CODECS, SNAPPY, STORED, Chunk
from .thrift import Fields, TruncatedError, integer, read_struct, read_varint, structure

# Names of codecs that pyarrow has.
PYARROW = {SNAPPY: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_2 = range(4)
# Encodings of values, as the format numbers them.
PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8
ENCODINGS = {5: "DELTA_BINARY_PACKED", 6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY"}
# A row is read with the blocks around it, and each block has an entry in the index. An image is about as large.
BLOCK_BYTES = 1 << 17
# Headers with statistics may contain a value. The largest that is read:
MOST_HEADER = 1 << 26
HEADER_WINDOW = 1 << 10
Read = Callable[[int, int], bytes]
Places = NDArray[np.int64]


class NullError(Exception):
    """Raised for a value that is null, with the number of the value in its column chunk."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class Blocks:
    """Blocks of a column, whose unpacked bytes follow one another from 0 on."""

    def __init__(self) -> None:
        self._found: list[Places] = []
        self._end = 0

    def add(self, unpacked: Places, offsets: Places, codec: int) -> int:
        """Add the blocks of a page, between the ends of each unpacked and in the file; return where it begins."""
        begin = self._end
        if unpacked[-1] == 0:
            return begin
        table = np.empty((len(unpacked) - 1, 4), np.int64)
        table[:, 0] = unpacked[:-1] + begin
        table[:, 1] = offsets[:-1]
        table[:, 2] = np.diff(offsets)
        table[:, 3] = codec
        self._found.append(table)
        self._end = begin + int(unpacked[-1])
        return begin

    def table(self) -> Places:
        """Return (begin unpacked, begin in the file, length in the file, codec) of each block, and a last entry."""
        last = np.array([[self._end, 0, 0, STORED]], np.int64)
        return np.concatenate([*self._found, last])


def locate_values(
    read: Read, chunk: Chunk, levels: int, blocks: Blocks, reached: Callable[[int], None]
) -> Places:
    """Add the blocks of a column chunk; return (begin, length) in the unpacked bytes of each of its values.

    read     function (length, offset) -> bytes of the file, fewer at its end
    levels   greatest definition level of the column: values of a lower one are null
    reached  called with the place in the file after each page
    """
    position, done = chunk.begin, 0
    found: list[Places] = [np.empty((0, 2), np.int64)]
    dictionary: Places | None = None
    while done < chunk.values:
        header, begin = _page_header(read, position)
        kind, size, packed = header.get(1), integer(header, 2), integer(header, 3)
        position = begin + packed
        if kind == INDEX_PAGE:
            continue
        data = read(packed, begin)
        if len(data) < packed:
            raise DamagedError(f"a page of {packed} bytes at {begin} ends beyond the file")
        if 4 in header and zlib.crc32(data) != integer(header, 4, least=-(1 << 31)) & 0xFFFF_FFFF:
            raise DamagedError(f"the checksum of the page at {begin} is wrong")
        if kind == DICTIONARY_PAGE:
            inside = structure(header, 7)
            if integer(inside, 2) not in (PLAIN, PLAIN_DICTIONARY):
                raise DamagedError(f"the dictionary at {begin} has the encoding {inside[2]}")
            values = unpacked_page(chunk.codec, data, size)
            dictionary = _plain(values, 0, integer(inside, 1))
            dictionary[:, 0] += _add_page(blocks, chunk.codec, data, begin, size)
        elif kind in (DATA_PAGE, DATA_PAGE_2):
            places = _data_page(header, chunk, levels, data, begin, done, blocks, dictionary)
            found.append(places)
            done += len(places)
        else:
            raise DamagedError(f"the page at {begin} has the unknown type {kind}")
        reached(position)
    return np.concatenate(found)


def _data_page(
    header: Fields,
    chunk: Chunk,
    greatest: int,
    data: bytes,
    begin: int,
    done: int,
    blocks: Blocks,
    dictionary: Places | None,
) -> Places:
    """Return the places of the values of a page."""
    codec, size = chunk.codec, integer(header, 2)
    if header[1] == DATA_PAGE:
        inside = structure(header, 5)
        encoding = integer(inside, 2)
        values = unpacked_page(codec, data, size)
        first, levels = 0, b""
        if greatest:
            if integer(inside, 3) != RLE:
                raise DamagedError(
                    f"the levels of the page at {begin} have the encoding {inside[3]}"
                )
            first = 4 + int.from_bytes(values[:4], "little")
            levels = bytes(values[4:first])
    else:
        inside = structure(header, 8)
        encoding = integer(inside, 4)
        repeated, defined = integer(inside, 6), integer(inside, 5)
        before = repeated + defined
        if before > min(size, len(data)):
            raise DamagedError(f"the levels of the page at {begin} are longer than the page")
        levels = data[repeated:before]
        data, begin, size, first = data[before:], begin + before, size - before, 0
        if inside.get(7) is False:
            codec = STORED
        values = unpacked_page(codec, data, size)
    count = integer(inside, 1)
    if count > chunk.values - done:
        raise DamagedError(f"its pages have more values than the {chunk.values} of the row group")
    if greatest:
        null = _runs(levels, greatest.bit_length(), count) != greatest
        if np.any(null):
            raise NullError(done + int(np.argmax(null)))
    if encoding == PLAIN:
        places = _plain(values, first, count)
        places[:, 0] += _add_page(blocks, codec, data, begin, size)
        return places
    if encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY):
        if count == 0:
            return np.empty((0, 2), np.int64)
        if dictionary is None or first >= len(values):
            raise DamagedError(f"the page at {begin} has no dictionary, or no values")
        numbers = _runs(bytes(values[first + 1 :]), values[first], count)
        if np.any(numbers >= len(dictionary)):
            raise DamagedError(f"the page at {begin} has values that its dictionary has not")
        return dictionary[numbers]
    name = ENCODINGS.get(encoding, encoding)
    raise DamagedError(
        f"its encoding is {name}, and only PLAIN and dictionaries have random access. Write it again, for example "
        'by pyarrow: `pq.write_table(table, path, use_dictionary=False, compression="none")`'
    )


def unpacked_page(codec: int, data: bytes, size: int) -> Buffer:
    """Return the unpacked bytes of a page or of a block, which are `size`."""
    found: Buffer = b""
    if codec == STORED:
        found = data
    elif size:  # Some compressors write a few bytes for none.
        arrow = require("pyarrow", "parquet", "ParquetDataset")
        try:
            found = _decompressed(arrow, codec, data, size)
        except (arrow.ArrowException, OSError) as error:
            raise DamagedError(
                f"{len(data)} bytes of {CODECS[codec]} cannot be decompressed: {str(error).rstrip('.')}"
            ) from error
    if len(found) != size:
        raise DamagedError(f"{len(data)} bytes of {CODECS[codec]} are not {size} bytes unpacked")
    return found


def _decompressed(arrow: Any, codec: int, data: bytes, size: int) -> Buffer:
    """Decompress to `size` bytes. Where there are fewer, pyarrow's function returns memory that nobody has filled."""
    name = PYARROW[codec]
    if name in ("gzip", "brotli"):
        stream = arrow.CompressedInputStream(arrow.BufferReader(data), name)
        found = stream.read(size + 1)
        return bytes(found)
    if name == "lz4_raw":
        with suppress(arrow.ArrowException, OSError):
            arrow.decompress(data, size - 1, name)
            return b""
    return memoryview(arrow.decompress(data, size, name)).cast("B")


def _add_page(blocks: Blocks, codec: int, data: bytes, begin: int, size: int) -> int:
    """Add the blocks of a page; return where it begins in the unpacked bytes."""
    if codec != SNAPPY or size == 0:
        ends = np.array([0, size], np.int64), np.array([begin, begin + len(data)], np.int64)
        return blocks.add(*ends, codec)
    length, first = read_varint(data, 0)
    unpacked, packed = np.zeros((2, size // BLOCK_BYTES + 2), np.int64)
    count = snappy_blocks(np.frombuffer(data, np.uint8), first, size, BLOCK_BYTES, unpacked, packed)
    if count == DAMAGED or length != size:
        raise DamagedError(f"the page at {begin} is not {size} bytes of Snappy")
    return blocks.add(unpacked[: count + 1], packed[: count + 1] + begin, codec)


def snappy_stream(size: int, elements: bytes) -> bytes:
    """Return a Snappy stream of these elements, which unpack to `size` bytes."""
    header = bytearray()
    while size > 127:
        header.append(size & 127 | 128)
        size >>= 7
    return bytes([*header, size]) + elements


def _plain(values: Buffer, place: int, count: int) -> Places:
    """Return (begin, length) of byte strings, each after its length as 32 bits."""
    found = []
    size = len(values)
    for _ in range(count):
        begin = place + 4
        length = int.from_bytes(values[place:begin], "little")
        place = begin + length
        if place > size:
            raise DamagedError(f"a value of {length} bytes ends beyond its page")
        found.append((begin, length))
    return np.array(found, np.int64).reshape(-1, 2)


def _runs(data: bytes, width: int, count: int) -> Places:
    """Return numbers of `width` bits: runs of one number, and groups of eight in packed bits."""
    found = np.zeros(count, np.int64)
    place, done = 0, 0
    if width > 32:
        raise DamagedError(f"numbers have {width} bits")
    while done < count:
        header, place = read_varint(data, place)
        if header & 1:
            stop = place + (header >> 1) * width
            # The last group may be cut.
            packed = np.frombuffer(data[place:stop], np.uint8)
            bits = np.unpackbits(packed, bitorder="little")
            most = min((header >> 1) * 8, count - done)
            if len(bits) < most * width:
                raise TruncatedError("packed numbers end early")
            numbers = bits[: most * width].reshape(most, width) @ (1 << np.arange(width))
        else:
            stop = place + (width + 7) // 8
            if stop > len(data):
                raise TruncatedError("a run ends early")
            most = min(header >> 1, count - done)
            numbers = np.full(most, int.from_bytes(data[place:stop], "little"), np.int64)
        found[done : done + most] = numbers
        done, place = done + most, stop
    return found


def _page_header(read: Read, position: int) -> tuple[Fields, int]:
    """Return the header of a page by the numbers of its fields, and the position after it."""
    window = HEADER_WINDOW
    while True:
        data = read(window, position)
        try:
            header, length = read_struct(data)
        except TruncatedError:
            if len(data) < window or window >= MOST_HEADER:
                raise DamagedError(f"the header of a page at {position} does not end") from None
            window *= 8
            continue
        return header, position + length
