"""TFRecord files of `tf.train.Example`, written by hand."""

import struct

from tests.loaderx.sources.tar_files import long_ago
from tests.reference import crc32c


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def delimited(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def feature(value, packed=True):
    """Return the message of a feature: bytes or a list of them, ints, or floats."""
    values = value if isinstance(value, list) else [value]
    if isinstance(values[0], bytes):
        return delimited(1, b"".join(delimited(1, one) for one in values))
    if isinstance(values[0], float):
        if packed:
            return delimited(2, delimited(1, struct.pack(f"<{len(values)}f", *values)))
        return delimited(2, b"".join(b"\x0d" + struct.pack("<f", one) for one in values))
    if packed:
        return delimited(3, delimited(1, b"".join(map(varint, values))))
    return delimited(3, b"".join(b"\x08" + varint(one) for one in values))


def entry(name, message):
    return delimited(1, delimited(1, name.encode()) + delimited(2, message))


def example(row, packed=True):
    """Return the bytes of an Example with these features."""
    inside = b"".join(entry(name, feature(value, packed)) for name, value in row.items())
    return delimited(1, inside)


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(records):
    """Return the content of a TFRecord file."""
    parts = []
    for record in records:
        length = struct.pack("<Q", len(record))
        parts += [length, masked(length), record, masked(record)]
    return b"".join(parts)


def write_tfrecord(path, rows, packed=True):
    """Write a file of these rows, each a dict of features or bytes; return its path."""
    records = [row if isinstance(row, bytes) else example(row, packed) for row in rows]
    path.write_bytes(framed(records))
    return long_ago(path)
