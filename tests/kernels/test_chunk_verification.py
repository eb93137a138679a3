"""Records are verified on request, and chunks that were verified or read are marked and not checked again."""

import numpy as np
import pytest
from numba.core import config

from loaderx.kernels import chunks
from loaderx.kernels.blocks import BLOCK, CHUNK_HEADER
from tests import reference
from tests.kernels.built_chunks import (
    AROUND_A_BLOCK,
    SIGNATURE_END,
    BuiltChunk,
    built_record,
    data_of,
    joined,
    packed,
    random_bytes,
)
from tests.kernels.chunk_reading import (
    BOTH_CODECS,
    MODULES,
    decode_as_defined,
    read,
    read_as_defined,
)
from tests.reference import varint

# Of an uncompressed record whose size takes one byte.
FIRST_BYTE = CHUNK_HEADER + 3
# Plain Python takes a millisecond to verify a chunk.
BITS = (0, 7) if config.DISABLE_JIT else range(8)
BEGINS = AROUND_A_BLOCK[::3] if config.DISABLE_JIT else AROUND_A_BLOCK


def damaged(record):
    """Return a chunk whose last byte differs from the hashed one."""
    built = built_record(record)
    built.memory[built.limit - 1] ^= 1
    return built


@MODULES
@pytest.mark.parametrize("number", [0, 7, 8, 21])
def test_verified_the_first_time_means_once(module, number):
    record = random_bytes(40).tobytes()
    built, bits = built_record(record), np.zeros(4, np.uint8)
    options = {"verify": chunks.FIRST, "bits": bits, "number": number, "alignment": 2**40}

    assert read(module, built.chunk, 40, **options) == record
    assert np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist() == [number]

    built.memory[built.limit - 1] ^= 1
    assert read(module, built.chunk, 40, **options) == built.memory[built.places[-40:]].tobytes()
    bits[number >> 3] ^= 1 << (number & 7)
    assert read(module, built.chunk, 40, **options) == chunks.DATA_HASH
    assert not bits.any()


@MODULES
def test_that_others_are_verified_does_not_count(module):
    bits = np.full(3, 255, np.uint8)
    bits[1] ^= 1 << 5
    before, built = bits.tolist(), damaged(b"abcd")
    options = {"verify": chunks.FIRST, "bits": bits}
    assert read(module, built.chunk, 4, number=13, **options) == chunks.DATA_HASH
    assert bits.tolist() == before
    assert read(module, built_record(b"abcd").chunk, 4, number=13, **options)[0] == "in the file"
    assert bits.tolist() == [255] * 3


@MODULES
def test_verified_always_means_every_time(module):
    for before in (0, 255):
        bits = np.array([before], np.uint8)
        options = {"verify": chunks.ALWAYS, "bits": bits, "shortcut": FIRST_BYTE}
        assert read(module, damaged(b"abcd").chunk, 4, **options) == chunks.DATA_HASH
        assert bits[0] == before
        assert read(module, built_record(b"abcd").chunk, 4, **options)[0] == "in the file"
        assert bits[0] == before | 1


@MODULES
def test_verified_never_means_that_damage_is_read(module):
    built = damaged(b"abcd")
    assert read(module, built.chunk, 4, verify=chunks.NEVER, alignment=2**40) == b"abce"


@MODULES
@pytest.mark.parametrize("verify", [chunks.NEVER, chunks.FIRST, chunks.ALWAYS])
def test_only_what_could_be_had_is_noted(module, verify):
    record = b"abcd" * 4
    cases = [
        (built_record(record), {}, True),
        (built_record(record, "zstd"), {}, True),
        (built_record(record), {"step": 8}, True),
        (built_record(record), {"shortcut": FIRST_BYTE}, True),
        # Uncompressed, but at another byte than records of this size; not uncompressed; of many lengths.
        (BuiltChunk(data_of(record, listed=b"\x90\0"), 16), {"shortcut": FIRST_BYTE}, False),
        (built_record(record, "zstd"), {"shortcut": FIRST_BYTE}, False),
        (built_record(record), {"shortcut": FIRST_BYTE, "step": 8}, False),
    ]
    for built, options, noted in cases:
        bits = np.zeros(2, np.uint8)
        options = {"verify": verify, "bits": bits, "number": 9, "alignment": 2**40, **options}
        assert read(module, built.chunk, 16, **options) == record
        assert bits.tolist() == [0, 2 * noted]
    no_frame = BuiltChunk(joined(b"z", packed(varint(100)), varint(100)), 100)
    for built, row in [(no_frame, 100), (built_record(record), 15)]:
        bits = np.zeros(2, np.uint8)
        assert read(module, built.chunk, row, verify=verify, bits=bits) < 0
        assert not bits.any()


@pytest.mark.parametrize("verify", [chunks.NEVER, chunks.FIRST])
def test_the_header_of_a_record_seen_before_is_not_looked_at(verify):
    record = random_bytes(60).tobytes()
    for begin in BEGINS:
        built, bits = built_record(record, begin=begin), np.ones(1, np.uint8)
        built.memory[built.places[:FIRST_BYTE]] = 0
        options = {"verify": verify, "bits": bits, "shortcut": FIRST_BYTE}
        answer, first = read_as_defined(built.chunk, 60, **options), int(built.places[-60])
        in_one_piece = built.places[-1] - first == 59
        assert answer == (("in the file", first) if in_one_piece else record)
        assert read_as_defined(built.chunk, 60, alignment=2**40, **options) == record
        assert bits[0] == 1


@MODULES
def test_a_shortcut_leads_to_the_same_row(module):
    for size in (0, 1, 127, 128, 20_000):
        record = random_bytes(size).tobytes()
        built, bits = built_record(record), np.zeros(1, np.uint8)
        shortcut = CHUNK_HEADER + 2 + len(varint(size))
        options = {"verify": chunks.FIRST, "bits": bits, "shortcut": shortcut}
        rows = [read(module, built.chunk, size, **options) for _ in range(2)]
        assert rows == [("in the file", int(built.places[shortcut - 1]) + 1)] * 2
        assert bits[0] == 1


@BOTH_CODECS
@pytest.mark.parametrize("begin", [SIGNATURE_END, BLOCK - 20])
def test_every_bit_of_a_chunk_is_verified(codec, begin):
    built = built_record(random_bytes(20).tobytes(), codec, begin=begin)
    assert read(chunks, built.chunk, 20, verify=chunks.ALWAYS) in (
        ("in the file", int(built.places[-20])),
        random_bytes(20).tobytes(),
    )
    for number, place in enumerate(built.places):
        expected = chunks.HEADER_HASH if number < CHUNK_HEADER else chunks.DATA_HASH
        for bit in BITS:
            built.memory[place] ^= 1 << bit
            assert read(chunks, built.chunk, 20, verify=chunks.ALWAYS) == expected
            built.memory[place] ^= 1 << bit
        built.memory[place] ^= 4
        assert read(reference, built.chunk, 20, verify=chunks.ALWAYS) == expected
        assert decode_as_defined(built.chunk) == expected
        built.memory[place] ^= 4
