"""Damage to a file with all hashes corrected: a different file, which must be consistent or raise an error."""

import json

import numpy as np
import zstandard

from loaderx.kernels.blocks import BLOCK_HEADER, CHUNK_HEADER, end_of
from loaderx.kernels.chunks import SIMPLE
from loaderx.sources.records.format import CONTENT_FIELD, MAGIC
from tests.kernels.built_chunks import data_of, entry_of, header_of, joined
from tests.loaderx.sources.fuzz_damage import forged
from tests.loaderx.sources.fuzz_originals import STEP, chunk_at, places, records_at, records_of
from tests.reference import entry_fields, varint


def lay(buffer, begin, kind, content, data_size=None):
    """Write a chunk with right hashes over the file, as far as there is room."""
    array = np.frombuffer(buffer, np.uint8)
    total = len(buffer)
    if begin < 0 or begin + CHUNK_HEADER + 2 * BLOCK_HEADER > total:
        return
    where = places(begin, CHUNK_HEADER, len(content))
    inside = where < total
    array[where[inside]] = np.frombuffer(content, np.uint8)[inside]
    if data_size is not None and end_of(begin, CHUNK_HEADER + data_size) <= total:
        content = array[places(begin, CHUNK_HEADER, data_size)].tobytes()
    header = header_of(content, *kind, data_size)
    array[places(begin, 0, CHUNK_HEADER)] = np.frombuffer(header, np.uint8)


def field(number, content):
    """Return a field of bytes in a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def forge_header(rng, original, buffer):
    """Forge numbers in the header of a chunk."""
    begin = rng.choice(original.begins)
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
    """Forge bytes of a chunk's data, mostly the first ones: compression, size of the sizes, sizes."""
    begin = rng.choice(original.begins)
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
    """Forge zstd frames: other content, another decoded size, several frames, or none at all."""
    begin = rng.choice(original.begins)
    kind, content = chunk_at(buffer, begin)
    records = records_of(content, kind[1])
    parts = []
    for part in (b"".join(varint(len(record)) for record in records), b"".join(records)):
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
    lay(buffer, begin, (*kind[:2], forged_size), joined(b"z", *parts))
    return buffer


def forge_footer(rng, original, buffer):
    """Forge the footer: offsets, sizes and counts, other entries, or entries that are not valid."""
    entries = original.footer_messages[1:]
    numbers = [list(entry_fields(entry)) for entry in entries]
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
    """Write a footer with these entries, and these numbers of chunks and records; the codec may be wrong, too."""
    codec = rng.choice([b"uncompressed", b"zstd:3,window_log:20"])
    options = field(4, b"group_size:1,transpose:false," + codec + b",max_parallelism:1")
    counts = b"\x10" + varint(promised[0]) + b"\x18" + varint(promised[1])
    made = [
        field(1, b"\x08\x01" + counts + options),
        *(entry_of(*entry) for entry in numbers),
    ]
    if broken:
        which = rng.randrange(len(made))
        made[which] = any_message(rng, made[which])
    lay_records(rng, buffer, original.footer, made)


def lay_records(rng, buffer, begin, records, zstd=0.5):
    """Write an intact chunk of these records, compressed with probability `zstd`."""
    content = data_of(*records, codec=any_codec(rng, zstd))
    lay(buffer, begin, (SIMPLE, len(records), sum(map(len, records))), content)


def any_codec(rng, zstd=0.5):
    return "zstd" if rng.random() < zstd else "plain"


def forge_everywhere(rng, original, buffer):
    """Forge a chunk, its header and the footer: they agree on sizes or counts that its data may contradict."""
    number = rng.randrange(len(original.chunks))
    begin = original.chunks[number].begin
    records = records_at(buffer, begin)
    if rng.random() < 0.7:
        records[-1] = records[-1][: STEP * rng.randrange(len(records[-1]) // STEP + 1)]
    sizes, values = [len(record) for record in records], b"".join(records)
    decoded, count = len(values), len(records)
    if rng.random() < 0.6:
        decoded = forged(rng, original, decoded) % 2**63
        sizes[-1] = max(0, decoded - sum(sizes[:-1]))
    if rng.random() < 0.3:
        count = forged(rng, original, count) % 2**56
    listed = b"".join(map(varint, sizes))
    content = data_of(values, codec=any_codec(rng), listed=listed, promised=decoded)
    lay(buffer, begin, (SIMPLE, count, decoded), content)
    numbers = [list(entry_fields(entry)) for entry in original.footer_messages[1:]]
    numbers[number][1:] = decoded, count
    lay_footer(rng, original, buffer, numbers, [len(numbers), sum(entry[2] for entry in numbers)])
    return buffer


def any_message(rng, message):
    """Return a protobuf message that differs from the given one."""
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
    """Forge the postscript: another position of the footer, or another message."""
    offset = original.footer
    if rng.random() < 0.6:
        offset = forged(rng, original, offset) % 2**64
    message = b"\x08" + varint(offset) + b"\x10" + varint(MAGIC)
    if rng.random() < 0.4:
        message = any_message(rng, message)
    made = [message] * rng.choice([0, 1, 3, 3, 3])
    lay_records(rng, buffer, original.postscript, made, zstd=0.2)
    return buffer


def forge_description(rng, original, buffer):
    """Forge the description of rows in files by this library."""
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


WITH_HASHES = {
    "header": forge_header,
    "content": forge_content,
    "frame": forge_frame,
    "footer": forge_footer,
    "everywhere": forge_everywhere,
    "postscript": forge_postscript,
    "description": forge_description,
}
