"""Blocks of Snappy streams, decompressed each for itself, are the stream."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from loaderx.kernels.snappy import DAMAGED, snappy_blocks
from tests import reference

RANDOM = np.random.default_rng(0)
TEXT = b" ".join(b"%d" % number for number in range(60_000))
CONTENTS = {
    "nothing": b"",
    "a byte": b"x",
    "noise": RANDOM.bytes(700_000),
    "text": TEXT,
    "zeros": bytes(300_000),
    "noise with repeated parts": b"".join([RANDOM.bytes(50_000), TEXT[:30_000]] * 5),
}


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def blocks_of(stream, begin, size, least, find=snappy_blocks):
    """Return the ends of the blocks in the unpacked bytes and in the stream, or None for a damaged one."""
    unpacked, packed = np.zeros((2, size // least + 2), np.int64)
    count = find(np.frombuffer(stream, np.uint8), begin, size, least, unpacked, packed)
    return (
        None if count == DAMAGED else (unpacked[: count + 1].tolist(), packed[: count + 1].tolist())
    )


@pytest.mark.parametrize("least", [1000, 1 << 16, 1 << 17])
@pytest.mark.parametrize("name", CONTENTS)
def test_every_block_is_a_stream_of_its_own(name, least):
    content = CONTENTS[name]
    stream = pa.compress(content, "snappy", asbytes=True)
    begin = len(varint(len(content)))
    unpacked, packed = blocks_of(stream, begin, len(content), least)
    twin = blocks_of(stream, begin, len(content), least, reference.snappy_blocks)
    assert (unpacked, packed) == twin
    assert unpacked[-1] == len(content)
    assert packed[-1] == len(stream)
    assert min(np.diff(unpacked[:-1]), default=least) >= least
    assert np.diff(unpacked).max(initial=0) < least + (1 << 16)
    found = b""
    for (first, last), (start, stop) in zip(
        itertools.pairwise(unpacked), itertools.pairwise(packed), strict=True
    ):
        part = varint(last - first) + stream[start:stop]
        found += pa.decompress(part, last - first, "snappy", asbytes=True)
        assert reference.snappy(part) == content[first:last]
    assert found == content


def literal(content):
    return bytes([(len(content) - 1) << 2]) + content


# Elements of every kind: lengths of one to four bytes, offsets of 11, 16 and 32 bits.
ELEMENTS = {
    "short": (literal(b"abcdef"), b"abcdef"),
    "length of one byte": (bytes([60 << 2, 5]) + b"abcdef", b"abcdef"),
    "length of two bytes": (bytes([61 << 2, 5, 0]) + b"abcdef", b"abcdef"),
    "length of three bytes": (bytes([62 << 2, 5, 0, 0]) + b"abcdef", b"abcdef"),
    "length of four bytes": (bytes([63 << 2, 5, 0, 0, 0]) + b"abcdef", b"abcdef"),
    "11 bits": (literal(b"abcdef") + bytes([1 | 1 << 2, 2]), b"abcdefefefe"),
    "16 bits": (literal(b"abcdef") + bytes([2 | 2 << 2, 6, 0]), b"abcdefabc"),
    "32 bits": (literal(b"abcdef") + bytes([3 | 2 << 2, 6, 0, 0, 0]), b"abcdefabc"),
    "far": (
        bytes([61 << 2, 255, 4]) + bytes(range(256)) * 5 + bytes([1 | 4 << 5, 2]),
        bytes(range(256)) * 5 + bytes([254, 255, 0, 1]),
    ),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_of_every_kind_are_understood(name):
    elements, content = ELEMENTS[name]
    stream = varint(len(content)) + elements
    assert pa.decompress(stream, len(content), "snappy", asbytes=True) == content
    assert reference.snappy(stream) == content
    whole = [0, len(content)], [0, len(elements)]
    assert blocks_of(elements, 0, len(content), 10_000) == whole
    assert blocks_of(elements, 0, len(content), 10_000, reference.snappy_blocks) == whole
    for size in (len(content) - 1, len(content) + 1):
        assert blocks_of(elements, 0, size, 10_000) is None
    for stop in range(len(elements)):
        assert blocks_of(elements[:stop], 0, len(content), 10_000) is None


def test_a_copy_joins_the_blocks_that_it_reaches_over():
    parts = [literal(RANDOM.bytes(50)) for _ in range(8)]
    alone = b"".join(parts)
    assert blocks_of(alone, 0, 400, 50)[0] == list(range(0, 401, 50))
    # Ten bytes from the third part, after the sixth.
    copy = bytes([2 | 9 << 2, 190, 0])
    joined = b"".join([*parts[:6], copy, *parts[6:]])
    assert blocks_of(joined, 0, 410, 50)[0] == [0, 50, 100, 310, 360, 410]
    for least in (1, 50, 70, 200):
        twin = blocks_of(joined, 0, 410, least, reference.snappy_blocks)
        assert blocks_of(joined, 0, 410, least) == twin


@pytest.mark.parametrize(
    "elements",
    [
        literal(b"abc") + bytes([1, 0]),  # An offset of zero.
        literal(b"abc") + bytes([1, 4]),  # Of four, after three bytes.
        bytes([1, 1]),
        literal(b"abc") + bytes([2, 9]),
        bytes([63 << 2, 255, 255, 255, 255]) + b"abc",
    ],
)
def test_streams_that_are_damaged_are_refused(elements):
    assert blocks_of(elements, 0, 7, 100) is None


def test_any_bytes_are_refused_or_are_what_the_definition_says():
    items = b"".join(b"item %d of these; " % number for number in range(40))
    outcomes = {True: 0, False: 0}
    for seed in range(3000):
        random = np.random.default_rng(seed)
        elements = bytearray(pa.compress(items, "snappy", asbytes=True)[2:])
        for _ in range(random.integers(1, 3)):
            elements[random.integers(len(elements))] = random.integers(256)
        try:
            expected = len(reference.snappy(varint(len(items)) + elements))
        except (IndexError, ValueError):
            expected = None
        found = blocks_of(elements, 0, len(items), 10_000)
        assert (found is not None) == (expected == len(items)), seed
        outcomes[found is not None] += 1
    assert min(outcomes.values()) > 100
