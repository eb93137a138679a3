"""Chunks that contradict themselves, though their hashes are right, are reported and never followed."""

import pytest
import zstandard

from loaderx.kernels import chunks
from loaderx.kernels.blocks import BLOCK, BLOCK_HEADER, CHUNK_HEADER
from tests.kernels.built_chunks import (
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
    decode,
    decode_as_defined,
    read,
    read_as_defined,
)
from tests.reference import varint

RECORD = random_bytes(100, seed=5).tobytes()
FRAME = zstandard.compress(RECORD)
LISTED = packed(varint(100))
ENDLESS, TOO_LONG = b"\xff" * 30, b"\x80" * 9 + b"\0"


def zstd_data(values):
    return joined(b"z", LISTED, values)


WRONG = {
    "more data than there is": (BuiltChunk(data_of(RECORD), 100, size=104), chunks.OUTSIDE),
    "data beyond all files": (BuiltChunk(data_of(RECORD), 100, size=2**62), chunks.OUTSIDE),
    "data to the largest number": (BuiltChunk(data_of(RECORD), 100, size=2**63 - 1), chunks.OUTSIDE),
    "data of a negative size": (BuiltChunk(data_of(RECORD), 100, size=2**63), chunks.OUTSIDE),
    "data of size -1": (BuiltChunk(data_of(RECORD), 100, size=2**64 - 1), chunks.OUTSIDE),
    "less data than was hashed": (BuiltChunk(data_of(RECORD), 100, size=102), chunks.DATA_HASH),
    "transposed": (BuiltChunk(data_of(RECORD), 100, kind="t"), chunks.KIND),
    "padding": (BuiltChunk(data_of(RECORD), 100, kind="p"), chunks.KIND),
    "brotli": (BuiltChunk(b"b" + data_of(RECORD)[1:], 100), chunks.KIND),
    "snappy": (BuiltChunk(b"s" + data_of(RECORD)[1:], 100), chunks.KIND),
    "no data": (BuiltChunk(b"", 0), chunks.CONTRADICTION),
    "a signature": (BuiltChunk(b"", 0, kind="s", records=0), chunks.CONTRADICTION),
    "compression and nothing else": (BuiltChunk(b"\0", 100), chunks.CONTRADICTION),
    "a negative number of records": (BuiltChunk(data_of(RECORD), 100, records=2**55), chunks.CONTRADICTION),
    "a negative number of bytes": (BuiltChunk(data_of(RECORD), 2**63), chunks.CONTRADICTION),
    "sizes to beyond the data": (BuiltChunk(b"\0" + varint(103) + RECORD, 100), chunks.CONTRADICTION),
    "sizes of the largest number": (BuiltChunk(b"\0" + varint(2**63 - 1) + RECORD, 100), chunks.CONTRADICTION),
    "sizes of 64 bits": (BuiltChunk(b"\0" + varint(2**64 - 1) + RECORD, 100), chunks.CONTRADICTION),
    "sizes that never end": (BuiltChunk(b"\0" + ENDLESS + RECORD, 100), chunks.CONTRADICTION),
    "a number with needless zeros": (BuiltChunk(b"\0" + TOO_LONG + RECORD, 100), chunks.CONTRADICTION),
    "a number that the data ends in": (BuiltChunk(b"\0\xff\xff", 100), chunks.CONTRADICTION),
    "fewer values than promised": (BuiltChunk(data_of(RECORD)[:-1], 100), chunks.CONTRADICTION),
    "more values than promised": (BuiltChunk(data_of(RECORD) + b"x", 100), chunks.CONTRADICTION),
    "a frame of other size": (BuiltChunk(zstd_data(varint(99) + FRAME), 100), chunks.CONTRADICTION),
    "a frame of a negative size": (BuiltChunk(zstd_data(varint(2**64 - 1) + FRAME), 100), chunks.CONTRADICTION),
    "a frame whose size never ends": (BuiltChunk(zstd_data(ENDLESS), 100), chunks.CONTRADICTION),
    "no frame": (BuiltChunk(zstd_data(b""), 100), chunks.CONTRADICTION),
    "a frame of nothing": (BuiltChunk(zstd_data(varint(100)), 100), chunks.FRAME),
    "half a frame": (BuiltChunk(zstd_data(varint(100) + FRAME[:50]), 100), chunks.FRAME),
    "a frame and a byte": (BuiltChunk(zstd_data(varint(100) + FRAME + b"x"), 100), chunks.FRAME),
    "a frame of fewer bytes": (BuiltChunk(zstd_data(varint(100) + zstandard.compress(RECORD[1:])), 100), chunks.FRAME),
    "a frame of more bytes": (BuiltChunk(zstd_data(varint(100) + zstandard.compress(RECORD * 9)), 100), chunks.FRAME),
    "no frame at all": (BuiltChunk(zstd_data(varint(100) + RECORD), 100), chunks.FRAME),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_chunk_that_contradicts_itself_is_named(name):
    built, expected = WRONG[name]
    assert read_as_defined(built.chunk, 100, verify=chunks.ALWAYS) == expected
    assert decode_as_defined(built.chunk) == expected


@pytest.mark.parametrize("name", WRONG)
def test_a_chunk_that_contradicts_itself_is_noticed_without_hashes(name):
    built, expected = WRONG[name]
    if expected == chunks.DATA_HASH:
        expected = chunks.CONTRADICTION
    assert read_as_defined(built.chunk, 100) == expected
    assert decode_as_defined(built.chunk, verify=False) == expected


@MODULES
def test_a_chunk_ends_at_its_limit(module):
    chunk = built_record(RECORD).chunk
    begin, size = chunk.begin, chunk.limit - chunk.begin
    assert decode(module, chunk) == [RECORD]
    for limit in (-1, *(begin + count for count in (0, 1, 39, 40, 41, size - 1))):
        assert decode(module, chunk._replace(limit=limit)) == chunks.OUTSIDE
        assert read(module, chunk._replace(limit=limit), 100) == chunks.OUTSIDE
    assert decode(module, chunk._replace(begin=-1)) == chunks.OUTSIDE


@MODULES
def test_of_half_a_header_not_even_the_hash_is_looked_at(module):
    built = built_record(RECORD)
    built.memory[built.places[:CHUNK_HEADER]] = 0
    assert decode(module, built.chunk) == chunks.HEADER_HASH
    for size in (8, CHUNK_HEADER - 1):
        assert decode(module, built.chunk._replace(limit=built.begin + size)) == chunks.OUTSIDE


@MODULES
def test_the_bytes_of_block_headers_count_up_to_the_limit(module):
    chunk = built_record(RECORD, begin=BLOCK - 10).chunk
    assert chunk.limit - chunk.begin == CHUNK_HEADER + 3 + 100 + BLOCK_HEADER
    assert decode(module, chunk) == [RECORD]
    assert decode(module, chunk._replace(limit=chunk.limit - 1)) == chunks.OUTSIDE


@BOTH_CODECS
def test_records_of_another_size_than_a_row_are_named(codec):
    built = built_record(RECORD, codec)
    for row in (0, 1, 99, 101):
        assert read_as_defined(built.chunk, row) == chunks.ROW_SIZE
    for step in (3, 8, 101, 2**40):
        assert read_as_defined(built.chunk, 3 * 8 * 101, step=step) == chunks.STEP_SIZE
    for records in (0, 2, 100):
        built = BuiltChunk(data_of(RECORD, codec=codec), 100, records=records)
        assert read_as_defined(built.chunk, 100) == chunks.CONTRADICTION


def test_a_frame_must_fit_into_the_memory_there_is():
    for begin in (SIGNATURE_END, BLOCK - 100):
        built = built_record(RECORD, "zstd", begin=begin)
        assert read_as_defined(built.chunk, 100, scratch=len(FRAME)) == RECORD
        assert read_as_defined(built.chunk, 100, scratch=len(FRAME) - 1) == chunks.ROOM
        assert decode_as_defined(built.chunk, scratch=len(FRAME)) == [RECORD]
        assert decode_as_defined(built.chunk, scratch=len(FRAME) - 1) == chunks.ROOM


def test_a_frame_that_is_cut_must_fit_together_with_what_is_in_it():
    for begin in (SIGNATURE_END, BLOCK - 100):
        built, both = built_record(RECORD, "zstd", begin=begin), len(FRAME) + 100
        assert read_as_defined(built.chunk, 40, step=4, scratch=both) == RECORD[:40]
        for scratch in (0, 99, 100, both - 1):
            assert read_as_defined(built.chunk, 40, step=4, scratch=scratch) == chunks.ROOM


def test_sizes_of_no_compression_need_no_memory():
    built = built_record(RECORD, begin=BLOCK - 100)
    assert read_as_defined(built.chunk, 100, scratch=0) == RECORD
    assert decode_as_defined(built.chunk, scratch=0) == [RECORD]


LISTS = {
    "too small a sum": varint(40) + varint(59),
    "too large a sum": varint(40) + varint(61),
    "a record beyond the values": varint(101) + varint(0),
    "the largest number": varint(2**63 - 1) + varint(1),
    "a sum that wraps": varint(2**63 - 1) + varint(2**63 - 1),
    "a negative size": varint(2**64 - 1) + varint(1),
    "one size": varint(100),
    "three sizes": varint(40) + varint(60) + varint(0),
    "no sizes": b"",
    "sizes that end early": varint(40) + b"\xbc",
    "sizes that never end": b"\xff" * 20,
    "a number with needless zeros": varint(40) + b"\xbc" + b"\x80" * 8 + b"\0",
}


@BOTH_CODECS
@pytest.mark.parametrize("name", LISTS)
def test_sizes_of_records_must_add_up(codec, name):
    built = BuiltChunk(data_of(RECORD, codec=codec, listed=LISTS[name]), 100, records=2)
    assert decode_as_defined(built.chunk) == chunks.CONTRADICTION
    assert decode_as_defined(built.chunk, sizes=len(LISTS[name])) == chunks.CONTRADICTION


@BOTH_CODECS
def test_sizes_of_records_must_add_up_without_wrapping(codec):
    listed = varint(2**63 - 1) + varint(2**63 - 1) + varint(102)
    built = BuiltChunk(data_of(RECORD, codec=codec, listed=listed), 100, records=3)
    assert decode_as_defined(built.chunk) == chunks.CONTRADICTION


def test_a_number_may_have_zeros_in_front_up_to_nine_bytes():
    def long(number):
        return bytes([number | 128, *[128] * 7, 0])

    listed = varint(9) + zstandard.compress(long(100))
    for data in (
        b"\0" + long(1) + varint(100) + RECORD,
        b"\0" + varint(9) + long(100) + RECORD,
        joined(b"z", listed, long(100) + FRAME),
    ):
        built = BuiltChunk(data, 100)
        assert decode_as_defined(built.chunk) == [RECORD]
        assert read_as_defined(built.chunk, 100, alignment=2**40) == RECORD


@BOTH_CODECS
def test_the_memory_for_records_must_be_as_large_as_they_are(codec):
    built = BuiltChunk(data_of(RECORD[:40], RECORD[40:], codec=codec), 100, records=2)
    assert decode_as_defined(built.chunk, sizes=2) == [RECORD[:40], RECORD[40:]]
    assert decode_as_defined(built.chunk, sizes=1) == chunks.CONTRADICTION
    for values in (0, 99, 101):
        assert decode_as_defined(built.chunk, values=values) == chunks.CONTRADICTION


def test_sizes_in_a_broken_frame_are_named():
    whole = BuiltChunk(joined(b"z", LISTED[:-1] + b"\xff", packed(RECORD)), 100)
    short = BuiltChunk(joined(b"z", LISTED[:-1], packed(RECORD)), 100)
    for built in (whole, short):
        assert decode_as_defined(built.chunk) in (chunks.FRAME, chunks.CONTRADICTION)
    assert decode_as_defined(short.chunk) == chunks.FRAME
