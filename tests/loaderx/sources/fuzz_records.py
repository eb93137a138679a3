"""Reads damaged ArrayRecord files by the thousand, and says of each whether its bytes were right or there was an error.

    python -m tests.loaderx.sources.fuzz_records FOLDER FIRST COUNT [SEED]

Mutation `number` of a seed is the same in every run, whatever was run before it. FOLDER/current holds its number while
it is read, for the case that the process ends with it. The last line of the output is JSON: what became of how many
mutations of each class, and what should not have happened. The exit code is 0 if there is nothing of the latter.
"""

import ctypes
import itertools
import json
import math
import mmap
import os
import random
import resource
import sys
import traceback
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cached_property
from pathlib import Path

import numpy as np
import zstandard
from array_record.python.array_record_module import ArrayRecordWriter

from loaderx import ARDataset, ArgumentError, DataError, DataLoader
from loaderx.kernels.blocks import BLOCK, BLOCK_HEADER, CHUNK_HEADER, end_of
from loaderx.kernels.highway import highway_hash
from loaderx.sources.records.dataset import ByteRows
from loaderx.sources.source import specs_of
from loaderx.transforms import ToFloat

SIMPLE, ZSTD, PLAIN = ord("r"), ord("z"), 0
MAGIC = 0x71930E704FDAE05E
# Of the footer's metadata: dtype and shape, in files by this library.
CONTENT_FIELD = 1000

# A record is a number of these bytes.
STEP = 12
PAD_TO, PAD_VALUE = 300, 7
# More than any of the files needs, above what the process has when they are read.
ROOM = 3 << 30
# From here on memory is not guarded: it is a forged size that asks for it.
LARGE = 64 << 20
PAGE = mmap.PAGESIZE
MOST_FAILURES = 20
LOADER_EVERY = 100
# It is half of the time.
GUARDED_EVERY = 4


# Memory that ends the process if something is read or written behind it.


class GuardedNumpy:
    """NumPy, but with a page behind new memory that must not be touched, if `on`."""

    def __init__(self):
        self.on = False

    def __getattr__(self, name):
        return getattr(np, name)

    def empty(self, shape, dtype=np.float64):
        sizes = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        nbytes = math.prod(sizes) * np.dtype(dtype).itemsize
        if not self.on or not 0 <= nbytes < LARGE:
            return np.empty(shape, dtype)
        room = -(-nbytes // PAGE) * PAGE
        whole = np.frombuffer(mmap.mmap(-1, room + PAGE), np.uint8)
        address = ctypes.c_void_p(whole.ctypes.data + room)
        if LIBC.mprotect(address, PAGE, PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
        return np.ndarray(sizes, dtype, whole, room - nbytes)


PROT_NONE = 0
LIBC = ctypes.CDLL(None, use_errno=True)
GUARDED = GuardedNumpy()


# The files that are damaged.


@dataclass(frozen=True)
class Chunk:
    """A chunk in a file, and what the footer says about it."""

    begin: int
    end: int
    decoded: int
    count: int


@dataclass(frozen=True, eq=False)
class Original:
    """An intact file."""

    name: str
    data: bytes
    records: list[bytes]
    chunks: list[Chunk]
    footer: int
    fixed: bool
    # What a loader makes of the records.
    loaded: list[bytes] = dataclass_field(default_factory=list)

    @property
    def size(self):
        return len(self.data)

    @property
    def blocks(self):
        return len(self.data) // BLOCK

    @property
    def postscript(self):
        return self.size - BLOCK

    @cached_property
    def headers(self):
        """Where each byte of a header of a block or chunk lies, and what of a chunk's data comes first."""
        begins = [0, *(chunk.begin for chunk in self.chunks), self.footer, self.postscript]
        found = [places(begin, 0, CHUNK_HEADER + 8) for begin in begins]
        found += [np.arange(BLOCK_HEADER) + BLOCK * block for block in range(self.blocks)]
        return np.concatenate(found).tolist()

    @cached_property
    def index(self):
        """Where each byte of the footer and the postscript lies."""
        sizes = [len(chunk_at(self.data, begin)[1]) for begin in (self.footer, self.postscript)]
        return np.concatenate(
            [
                places(self.footer, 0, CHUNK_HEADER + sizes[0]),
                places(self.postscript, 0, CHUNK_HEADER + sizes[1]),
            ]
        ).tolist()

    @cached_property
    def words(self):
        """Where each number of 8 bytes of a header begins."""
        begins = [*(chunk.begin for chunk in self.chunks), self.footer, self.postscript]
        found = [places(begin, 0, CHUNK_HEADER)[::8] for begin in begins]
        found += [BLOCK * block + np.arange(0, BLOCK_HEADER, 8) for block in range(self.blocks)]
        return np.concatenate(found).tolist()

    @cached_property
    def footer_messages(self):
        """The records of the footer."""
        kind, data = chunk_at(self.data, self.footer)
        return records_of(data, kind[1])


def write_originals(folder):
    """Every combination of options and sizes."""
    made = []
    for codec, group, fixed, padded in itertools.product(
        ("uncompressed", "zstd"), (1, 5), (True, False), (True, False)
    ):
        name = f"{codec}-{group}-{'fixed' if fixed else 'varying'}{'-padded' if padded else ''}"
        made.append(write_original(folder / name, codec, group, fixed, padded))
    return made


def write_original(path, codec, group, fixed, padded):
    rng = np.random.default_rng(len(path.name))
    # Padded each chunk has a block of its own, unless it is larger; otherwise some lie across two.
    most = 12_000 if group == 1 else 5000
    count = 5 if padded and group == 1 else 12
    sizes = np.full(count, most // STEP * STEP)
    if not fixed:
        sizes = rng.integers(0, most // STEP, count) * STEP
        # The second is empty, and two are alike.
        sizes[[1, 4]] = 0, sizes[3]
    records = []
    for size in sizes.tolist():
        values = rng.integers(0, 256, size, dtype=np.uint8)
        values[size // 2 :] //= 64
        records.append(values.tobytes())
    writer = ArrayRecordWriter(
        str(path),
        f"group_size:{group},{codec},pad_to_block_boundary:{'true' if padded else 'false'}",
    )
    for record in records:
        writer.write(record)
    writer.close()
    data = path.read_bytes()
    footer = numbers_in(message_at(data, len(data) - BLOCK, 0))[0]
    count = chunk_at(data, footer)[0][1] - 1
    found = []
    for entry in range(count):
        begin, decoded, records_inside = numbers_in(message_at(data, footer, entry + 1))
        content = chunk_at(data, begin)[1]
        end = int(end_of(begin, CHUNK_HEADER + len(content)))
        found.append(Chunk(begin, end, decoded, records_inside))
    return Original(path.name, data, records, found, footer, fixed)


def places(begin, first, count):
    """Where bytes of a chunk lie in its file."""
    return end_of(begin, np.arange(first, first + count, dtype=np.int64) + 1) - 1


def chunk_at(data, begin):
    """The numbers of a chunk's header, (kind, records, decoded size), and its data."""
    data = np.frombuffer(data, np.uint8)
    header = data[places(begin, 0, CHUNK_HEADER)].view("<u8").tolist()
    content = data[places(begin, CHUNK_HEADER, header[1])].tobytes()
    return (header[3] & 255, header[3] >> 8, header[4]), content


def records_of(content, count):
    """The records in the data of an intact chunk."""
    zstd, place = content[0] == ZSTD, 1
    length, place = read_varint(content, place)
    sizes, values = content[place : place + length], content[place + length :]
    if zstd:
        sizes, values = unpacked(sizes), unpacked(values)
    place, start, found = 0, 0, []
    for _ in range(count):
        size, place = read_varint(sizes, place)
        found.append(values[start : start + size])
        start += size
    return found


def message_at(data, begin, number):
    """One record of a chunk."""
    kind, content = chunk_at(data, begin)
    return records_of(content, kind[1])[number]


def numbers_in(message):
    """The values of a message of numbers only."""
    place, found = 0, []
    while place < len(message):
        value, place = read_varint(message, place + 1)
        found.append(value)
    return found


def varint(number):
    """A number as 7 bits per byte."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number, content):
    """A field of bytes in a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def read_varint(content, place):
    value = shift = 0
    while True:
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7


def unpacked(part):
    size, place = read_varint(part, 0)
    return zstandard.ZstdDecompressor().decompress(part[place:], max_output_size=max(size, 1))


def packed(content, zstd):
    """A part of a chunk's data."""
    if not zstd:
        return content
    return varint(len(content)) + zstandard.ZstdCompressor().compress(content)


def encoded(records, zstd):
    """The data of a chunk with these records."""
    sizes = packed(b"".join(varint(len(record)) for record in records), zstd)
    values = packed(b"".join(records), zstd)
    return bytes([ZSTD if zstd else PLAIN]) + varint(len(sizes)) + sizes + values


def hash_of(content):
    content = np.frombuffer(content, np.uint8)
    return int(highway_hash(content.ctypes.data, len(content))) % 2**64


def lay(buffer, begin, kind, content, data_size=None):
    """Write a chunk with right hashes over what was there, as far as there is room."""
    array = np.frombuffer(buffer, np.uint8)
    total = len(buffer)
    if begin < 0 or begin + CHUNK_HEADER + 2 * BLOCK_HEADER > total:
        return
    where = places(begin, CHUNK_HEADER, len(content))
    inside = where < total
    array[where[inside]] = np.frombuffer(content, np.uint8)[inside]
    if data_size is None:
        data_size = len(content)
    elif data_size < total and int(end_of(begin, CHUNK_HEADER + data_size)) <= total:
        content = array[places(begin, CHUNK_HEADER, data_size)].tobytes()
    header = np.array(
        [
            data_size % 2**64,
            hash_of(content),
            (kind[0] | kind[1] << 8) % 2**64,
            kind[2] % 2**64,
        ],
        np.uint64,
    ).tobytes()
    header = hash_of(header).to_bytes(8, "little") + header
    array[places(begin, 0, CHUNK_HEADER)] = np.frombuffer(header, np.uint8)


# Mutations that some hash, or the size of the file, gives away if they touch what is read.


def flip_bits(rng, original, buffer):
    """One to eight bits, anywhere or where the structure of the file is."""
    where = rng.choice([range(original.size), original.headers, original.index])
    for _ in range(rng.randint(1, 8)):
        buffer[rng.choice(where)] ^= 1 << rng.randrange(8)
    return buffer


def change_length(rng, original, buffer):
    """Cut off, or something behind the end."""
    what = rng.randrange(6)
    if what == 0:
        return buffer[: rng.randrange(original.size + 1)]
    if what == 1:
        return buffer[: BLOCK * rng.randrange(original.blocks + 1)]
    if what == 2:
        return buffer[: rng.choice(original.headers + original.index)]
    if what == 3:
        return buffer + rng.randbytes(rng.choice([1, 8, 24, 1000, BLOCK, 2 * BLOCK]))
    if what == 4:
        return buffer + bytes(rng.choice([1, 8, 24, 1000, BLOCK, 2 * BLOCK]))
    # The last block again: the file is as valid as before.
    return buffer + buffer[-BLOCK:] * rng.randint(1, 2)


def move_blocks(rng, original, buffer):
    """Blocks swapped, overwritten by others, inserted or left out."""
    while True:
        order = list(range(original.blocks))
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            one, other = rng.randrange(len(order)), rng.randrange(len(order))
            what = rng.randrange(5)
            if what < 2:
                order[one], order[other] = order[other], order[one]
            elif what == 2:
                order[one] = order[other]
            elif what == 3:
                order.insert(one, order[other])
            elif len(order) > 2:
                del order[one]
        if not unnoticed(original, order):
            parts = [buffer[BLOCK * block : BLOCK * (block + 1)] for block in order]
            return bytearray().join(parts)


def unnoticed(original, order):
    """Whether blocks in this order put a chunk where another one belongs that looks like it from the footer.

    A limit of the format: the hash of a chunk covers its content and not its place, and the footer has offset, decoded
    size and number of records of each chunk. If two chunks begin at the same place in their blocks, as all do with
    `pad_to_block_boundary`, and agree in these numbers, then nothing in the file says which of them belongs where.
    """
    for chunk in original.chunks:
        for other in original.chunks:
            if chunk is other or (
                (chunk.begin % BLOCK, chunk.decoded, chunk.count)
                != (other.begin % BLOCK, other.decoded, other.count)
            ):
                continue
            first, stop = other.begin // BLOCK, (other.end - 1) // BLOCK + 1
            start = chunk.begin // BLOCK
            if order[start : start + stop - first] == list(range(first, stop)):
                return True
    return False


def zero_range(rng, original, buffer):
    """Zeros over a range of bytes."""
    size = min(1 << rng.randrange(18), original.size)
    anywhere = range(original.size)
    begin = rng.choice(rng.choice([anywhere, original.headers, original.index]))
    begin = max(begin - rng.randrange(size), 0)
    size = min(size, original.size - begin)
    buffer[begin : begin + size] = bytes(size)
    return buffer


def forge_word(rng, original, buffer):
    """Numbers of 8 bytes in headers, and elsewhere, without their hashes."""
    for _ in range(rng.randint(1, 2)):
        where = rng.choice([original.words, original.words, original.headers, original.index])
        place = min(rng.choice(where), original.size - 8)
        value = forged(rng, original, int.from_bytes(buffer[place : place + 8], "little"))
        buffer[place : place + 8] = (value % 2**64).to_bytes(8, "little")
    return buffer


def forged(rng, original, value):
    """A number in place of another one."""
    chunk = rng.choice(original.chunks)
    return rng.choice(
        [
            *(0, 1, 2, 127, 128, 2**31 - 1, 2**31, 2**32, 2**40),
            *(2**56 - 1, 2**62, 2**63 - 1, 2**63, -1, -2),
            *(original.size, original.size - 1, BLOCK, original.footer, original.postscript),
            *(value + 1, value - 1, value * 2, value // 2, value ^ 1 << rng.randrange(64)),
            *(chunk.begin, chunk.end, chunk.decoded, chunk.count, len(original.records)),
            rng.randrange(original.size),
        ]
    )


# Mutations after which all hashes are right: another file, which must be consistent or an error.


def forge_header(rng, original, buffer):
    """A chunk with other numbers in its header."""
    begin = any_chunk(rng, original)
    kind, content = chunk_at(buffer, begin)
    numbers = [*kind, len(content)]
    for _ in range(rng.choice([1, 1, 2])):
        which = rng.randrange(4)
        numbers[which] = (
            rng.choice([*b"rrstpm\0", 255]) if which == 0 else forged(rng, original, numbers[which])
        )
    numbers[1] %= 2**56
    lay(buffer, begin, tuple(numbers[:3]), content, numbers[3])
    return buffer


def forge_content(rng, original, buffer):
    """Bytes of a chunk's data, mostly those which come first: compression, size of the sizes, sizes."""
    begin = any_chunk(rng, original)
    kind, content = chunk_at(buffer, begin)
    content = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(min(len(content), rng.choice([1, 4, 32, 1 << 20])))
        what = rng.randrange(4)
        if what == 0:
            content[place] ^= 1 << rng.randrange(8)
        elif what == 1:
            content[place] = rng.choice([0, 1, 127, 128, 255, *b"zbs"])
        elif what == 2:
            number = forged(rng, original, content[place]) % 2**64
            content[place : place + 1] = varint(number)
        else:
            content[place : place + rng.randint(1, 10)] = b"\xff" * rng.randint(0, 10)
        content = content or bytearray(1)
    lay(buffer, begin, kind, bytes(content))
    return buffer


def forge_frame(rng, original, buffer):
    """zstd frames of other content, another promise, several of them, or none at all."""
    begin = any_chunk(rng, original)
    kind, content = chunk_at(buffer, begin)
    records = records_of(content, kind[1])
    sizes = b"".join(varint(len(record)) for record in records)
    values = b"".join(records)
    parts = []
    for part in (sizes, values):
        engine = zstandard.ZstdCompressor(
            write_content_size=rng.random() < 0.5, write_checksum=rng.random() < 0.2
        )
        promised = len(part)
        what = rng.randrange(10)
        if what == 0:
            part += bytes(rng.choice([1, 100, 1 << 20, 1 << 24]))
        elif what == 1:
            part = part[: rng.randrange(len(part) + 1)]
        frame = engine.compress(part)
        if what == 2:
            frame = frame[: rng.randrange(len(frame) + 1)]
        elif what == 3:
            frame += rng.choice([frame, engine.compress(b""), rng.randbytes(9), b"\0"])
        elif what == 4:
            frame = rng.choice([b"", rng.randbytes(40), b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + frame])
        elif what == 5:
            promised = forged(rng, original, promised) % 2**63
        elif what == 6:
            frame = bytearray(frame)
            frame[rng.randrange(min(14, len(frame)))] ^= 1 << rng.randrange(8)
        parts.append(varint(promised) + bytes(frame))
    forged_size = kind[2] if rng.random() < 0.8 else forged(rng, original, kind[2])
    content = b"z" + varint(len(parts[0])) + parts[0] + parts[1]
    lay(buffer, begin, (*kind[:2], forged_size), content)
    return buffer


def forge_footer(rng, original, buffer):
    """Entries of the footer: offsets, sizes and counts, or other entries, or what is no entry."""
    entries = original.footer_messages[1:]
    numbers = [numbers_in(entry) for entry in entries]
    promised = [len(entries), len(original.records)]
    what = rng.randrange(9)
    for _ in range(rng.choice([1, 1, 2])):
        entry = rng.choice(numbers)
        if what < 3:
            entry[what] = forged(rng, original, entry[what]) % 2**64
        elif what == 3:
            promised[rng.randrange(2)] = forged(rng, original, rng.choice(promised)) % 2**64
        elif what == 4:
            numbers[:] = rng.sample(numbers, rng.randint(1, len(numbers)))
            promised = [len(numbers), sum(entry[2] for entry in numbers)]
        elif what == 5:
            count = forged(rng, original, entry[2]) % 2**63
            for one in numbers:
                one[2] = count
            promised[1] = count * len(numbers) % 2**64
        elif what == 6:
            one, other = rng.choice(numbers), rng.choice(numbers)
            place = rng.randrange(3)
            one[place], other[place] = other[place], one[place]
    lay_footer(rng, original, buffer, numbers, promised, broken=what == 7)
    return buffer


def lay_footer(rng, original, buffer, numbers, promised, broken=False):
    """A footer with these entries, and these numbers of chunks and records; also the codec may be a lie."""
    codec = rng.choice([b"uncompressed", b"zstd:3,window_log:20"])
    options = field(4, b"group_size:1,transpose:false," + codec + b",max_parallelism:1")
    counts = b"\x10" + varint(promised[0]) + b"\x18" + varint(promised[1])
    made = [
        field(1, b"\x08\x01" + counts + options),
        *(b"\x08%b\x10%b\x18%b" % tuple(map(varint, entry)) for entry in numbers),
    ]
    if broken:
        which = rng.randrange(len(made))
        made[which] = any_message(rng, made[which])
    lay_records(rng, buffer, original.footer, made)


def lay_records(rng, buffer, begin, records):
    content = encoded(records, rng.random() < 0.5)
    lay(buffer, begin, (SIMPLE, len(records), sum(map(len, records))), content)


def forge_everywhere(rng, original, buffer):
    """A chunk, its header and the footer that agree on sizes or counts, which its data may not have."""
    number = rng.randrange(len(original.chunks))
    begin = original.chunks[number].begin
    kind, content = chunk_at(buffer, begin)
    records = records_of(content, kind[1])
    if rng.random() < 0.7:
        records[-1] = records[-1][: STEP * rng.randrange(len(records[-1]) // STEP + 1)]
    sizes, values = [len(record) for record in records], b"".join(records)
    decoded, count = len(values), len(records)
    if rng.random() < 0.6:
        decoded = forged(rng, original, decoded) % 2**63
        sizes[-1] = max(0, decoded - sum(sizes[:-1]))
    if rng.random() < 0.3:
        count = forged(rng, original, count) % 2**56
    zstd = rng.random() < 0.5
    written = packed(b"".join(map(varint, sizes)), zstd)
    if zstd:
        values = varint(decoded) + zstandard.ZstdCompressor().compress(values)
    start = bytes([ZSTD if zstd else PLAIN]) + varint(len(written))
    lay(buffer, begin, (SIMPLE, count, decoded), start + written + values)
    numbers = [numbers_in(entry) for entry in original.footer_messages[1:]]
    numbers[number][1:] = decoded, count
    lay_footer(rng, original, buffer, numbers, [len(numbers), sum(entry[2] for entry in numbers)])
    return buffer


def any_message(rng, message):
    """A protobuf message that is hardly the one it was."""
    what = rng.randrange(5)
    if what == 0:
        return rng.randbytes(rng.randrange(20))
    if what == 1:
        return message[: rng.randrange(len(message) + 1)]
    if what == 2:
        return message + rng.choice([message, field(1, b"x"), b"\x0d\0\0\0\0", b"\x80" * 11])
    message = bytearray(message)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(message))
        message[place] = rng.choice([message[place] ^ 1 << rng.randrange(8), 0x0A, 0x12, 255, 128])
    return bytes(message)


def forge_postscript(rng, original, buffer):
    """Another place for the footer, or another message."""
    offset, magic = original.footer, MAGIC
    if rng.random() < 0.6:
        offset = forged(rng, original, offset) % 2**64
    message = b"\x08" + varint(offset) + b"\x10" + varint(magic)
    if rng.random() < 0.4:
        message = any_message(rng, message)
    made = [message] * rng.choice([0, 1, 3, 3, 3])
    content = encoded(made, rng.random() < 0.2)
    lay(buffer, original.postscript, (SIMPLE, len(made), sum(map(len, made))), content)
    return buffer


def forge_description(rng, original, buffer):
    """What files by this library say about their rows."""
    size = len(original.records[0])
    numbers = [0, 1, -1, 2**31, 2**62, 2**63, 2**200, 1.5, True, None, "7", [3], size, size // 4]
    shape = [rng.choice(numbers) for _ in range(rng.randrange(4))]
    dtype = rng.choice(
        [
            *("uint8", "<i4", ">f8", "O", "V", "V8", "U3", "U", "M8[s]", "complex64"),
            *("bfloat16", "", "nothing", "i4,i4", "(2,3)i4", "2147483647u1"),
            *(None, 1, [], ["i4"], {}, [["a", "i4"]]),
            {"names": ["a"], "formats": ["i4"], "offsets": [2**40]},
        ]
    )
    shape = rng.choice([shape, shape, [size], [None], [None, 4], None, 7, "abc", {"a": 1}, 1.5])
    text = json.dumps({"dtype": dtype, "shape": shape}).encode()
    if rng.random() < 0.4:
        text = rng.choice(
            [
                *(b"", b"null", b"NaN", b"\xff\xfe", b"1" * 5000, text[:-1]),
                *(b"[" * 100_000, b'{"dtype":' * 100_000, text.replace(b"dtype", b"shape")),
            ]
        )
    metadata, *entries = original.footer_messages
    records = [metadata + field(CONTENT_FIELD, text), *entries]
    lay_records(rng, buffer, original.footer, records)
    return buffer


def any_chunk(rng, original):
    return rng.choice(
        [*(chunk.begin for chunk in original.chunks), original.footer, original.postscript]
    )


PLAIN_DAMAGE = {
    "flipped": flip_bits,
    "length": change_length,
    "blocks": move_blocks,
    "zeroed": zero_range,
    "forged": forge_word,
}
WITH_HASHES = {
    "header": forge_header,
    "content": forge_content,
    "frame": forge_frame,
    "footer": forge_footer,
    "everywhere": forge_everywhere,
    "postscript": forge_postscript,
    "description": forge_description,
}
# The more that can be wrong the more often.
CLASSES = [*PLAIN_DAMAGE, "flipped", "forged", *WITH_HASHES, "footer"]


# Reading.


class WrongError(Exception):
    """A mutation had an outcome that it must not have."""


def open_as(view, original, path, verify, mapped):
    """The records of a file in one of the ways to see them."""
    options = {"verify": verify, "mmap": mapped}
    steps = len(original.records[0]) // STEP
    if view == "numbers":
        return ARDataset(path, "<i4", (steps, STEP // 4), **options)
    if view == "pixels":
        return ARDataset(path, "u1", (steps, STEP), **options)
    if view == "padded":
        return ARDataset(path, "u1", (None, STEP), pad_to=PAD_TO, pad_value=PAD_VALUE, **options)
    return ARDataset(path, **options)


def seen_as(view, record):
    """What a record is in such a view."""
    if view == "padded":
        room = PAD_TO * STEP
        length = np.int32(min(len(record) // STEP, PAD_TO))
        return record[:room].ljust(room, bytes([PAD_VALUE])), length.tobytes()
    return record if view == "bytes" else (record,)


def read(dataset, rows):
    """Rows as bytes, or as the bytes of each of their fields."""
    rows = np.asarray(rows, np.int64)
    if isinstance(dataset.rows, ByteRows):
        return dataset[rows]
    fields = [
        GUARDED.empty((len(rows), *spec.shape), spec.dtype) for spec in specs_of(dataset.spec)
    ]
    dataset.read(rows, fields)
    return [tuple(field[i].tobytes() for field in fields) for i in range(len(rows))]


def read_each(dataset, rows, errors, singly):
    """All rows at once, or one by one, also if all at once is an error; None stands for an error."""
    if not singly:
        with suppress(*errors):
            return read(dataset, rows)
    found = []
    for row in rows:
        try:
            found += read(dataset, [row])
        except errors:
            found.append(None)
    return found


def load(dataset):
    """Rows as a loader with a compiled transform gives them; None stands for an error."""
    found = []
    loader = DataLoader(
        dataset,
        batch_size=4,
        shuffle=False,
        num_epochs=1,
        remainder="keep",
        transforms=[ToFloat()],
        output="numpy",
    )
    with iter(loader) as batches:
        try:
            for batch in itertools.islice(batches, 6):
                found += [row.tobytes() for row in batch]
        except DataError:
            found.append(None)
    return found


@dataclass(frozen=True)
class Mutation:
    """One damaged file, and how it is to be read."""

    kind: str
    original: Original
    content: bytes
    view: str
    verify: str
    mapped: bool
    singly: bool
    loaded: bool

    def __str__(self):
        return (
            f"{self.kind} of {self.original.name} as {self.view}, verify={self.verify!r}, mmap={self.mapped}"
            f"{', one by one' if self.singly else ''}{', by a loader' if self.loaded else ''}"
        )


def mutation(number, seed, originals):
    """The mutation of this number."""
    rng = random.Random(f"{seed}/{number}")
    kind, original = rng.choice(CLASSES), rng.choice(originals)
    loaded = number % LOADER_EVERY == LOADER_EVERY - 1
    if loaded:
        original = rng.choice([one for one in originals if one.fixed])
    view = rng.choice(
        ["bytes", "numbers", "pixels", "padded"] if original.fixed else ["bytes", "padded"]
    )
    verify = rng.choice(["first", "first", "first", "always", "never"])
    mapped, singly = rng.random() < 0.6, rng.random() < 0.3
    change = PLAIN_DAMAGE.get(kind) or WITH_HASHES[kind]
    content = change(rng, original, bytearray(original.data))
    view = "pixels" if loaded else view
    return Mutation(kind, original, content, view, verify, mapped, singly, loaded)


def outcome(damaged, path):
    """ "right", "error" or, where that may be, "other"; raises if it is none of them."""
    if damaged.kind in WITH_HASHES:
        return forged_outcome(damaged, path)
    original, verified = damaged.original, damaged.verify != "never"
    try:
        dataset = open_as(damaged.view, original, path, damaged.verify, damaged.mapped)
    except DataError:
        return "error"
    if len(dataset) != len(original.records):
        raise WrongError(f"{len(dataset)} records instead of {len(original.records)}")
    if damaged.loaded:
        expected, found = original.loaded, load(dataset)
    else:
        expected = [seen_as(damaged.view, record) for record in original.records]
        found = read_each(dataset, range(len(dataset)), (DataError,), damaged.singly)
    wrong = [
        row for row, record in enumerate(found) if record is not None and record != expected[row]
    ]
    if wrong and verified:
        raise WrongError(f"the records {wrong} have wrong bytes")
    if wrong:
        return "other"
    return "error" if None in found else "right"


def forged_outcome(damaged, path):
    """All hashes are right: whatever can be read must be the same in every view."""
    original, errors = damaged.original, (DataError, ArgumentError)
    seen = {}
    for view in ("bytes", damaged.view):
        try:
            dataset = open_as(view, original, path, damaged.verify, damaged.mapped)
            if damaged.loaded and view == damaged.view:
                load(dataset)
            rows = sorted({*range(min(len(dataset), 16)), len(dataset) - 1})
            seen[view] = read_each(dataset, rows, errors, damaged.singly)
        except errors:
            continue
        described = view == "bytes" and not isinstance(dataset.rows, ByteRows)
        if described:
            seen[view] = [None if row is None else b"".join(row) for row in seen[view]]
    if len(seen) < len({"bytes", damaged.view}):
        return "error"
    records, others = seen["bytes"], seen[damaged.view]
    for row, (record, same) in enumerate(zip(records, others, strict=True)):
        readable = record is not None and same is not None and damaged.view != "bytes"
        if readable and seen_as(damaged.view, record) != same:
            raise WrongError(f"record {row} is another one as bytes")
    if None in records or None in others:
        return "error"
    return "right" if records == original.records else "other"


def limit_memory():
    """So that no forged size gets the memory that it asks for."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * PAGE + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main(folder, first, count, seed=0):
    folder = Path(folder)
    warnings.simplefilter("ignore")
    originals = write_originals(folder)
    path = folder / "damaged"
    for original in originals:
        path.write_bytes(original.data)
        if original.fixed:
            original.loaded.extend(load(open_as("pixels", original, path, "always", True)))
    for name, module in list(sys.modules.items()):
        if name.startswith("loaderx.sources.records.") and hasattr(module, "np"):
            module.np = GUARDED
    limit_memory()
    counts, failures = Counter(), []
    current, target = (
        os.open(folder / name, os.O_RDWR | os.O_CREAT) for name in ("current", path.name)
    )
    for number in range(first, first + count):
        os.pwrite(current, b"%-20d" % number, 0)
        damaged = mutation(number, seed, originals)
        # Not `write_bytes`: a file that is emptied first gives its memory back.
        os.pwrite(target, damaged.content, 0)
        os.ftruncate(target, len(damaged.content))
        GUARDED.on = number % GUARDED_EVERY == 0
        try:
            result = outcome(damaged, path)
        except Exception as error:  # noqa: BLE001 - of whatever type: that is what is tested
            where = traceback.format_exc(limit=-4)
            failures.append(f"{number} ({damaged}): {type(error).__name__}: {error}\n{where}")
            result = "failed"
            if len(failures) >= MOST_FAILURES:
                break
        counts[f"{damaged.kind} {result}"] += 1
        counts[f"loaded {result}"] += damaged.loaded
    json.dump({"counts": counts, "failures": failures}, sys.stdout)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
