"""Records are found in a chunk wherever block headers are, and stay in the file if they can be used as rows there."""

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
    random_bytes,
)
from tests.kernels.chunk_reading import BOTH_CODECS, decode_as_defined, read_as_defined

# Plain Python takes a millisecond to read a chunk.
BEGINS = AROUND_A_BLOCK[::3] if config.DISABLE_JIT else AROUND_A_BLOCK


@BOTH_CODECS
def test_a_block_header_may_fall_anywhere_in_a_chunk(codec):
    record = random_bytes(60).tobytes()
    for begin in BEGINS:
        built = built_record(record, codec, begin=begin)
        row = read_as_defined(built.chunk, 60, verify=chunks.ALWAYS)
        if isinstance(row, tuple):
            assert codec == "plain"
            row = built.memory[row[1] : row[1] + 60].tobytes()
        assert row == record
        assert decode_as_defined(built.chunk) == [record]


@BOTH_CODECS
def test_a_block_header_may_fall_anywhere_among_the_sizes_of_records(codec):
    records = [random_bytes(size).tobytes() for size in (0, 200, 1, 130, 0)]
    data = data_of(*records, codec=codec)
    for begin in range(BLOCK - CHUNK_HEADER - 30, BLOCK - CHUNK_HEADER + 1):
        built = BuiltChunk(data, 331, begin=begin, records=5)
        assert decode_as_defined(built.chunk) == records


def test_bytes_around_a_chunk_and_in_its_block_headers_are_not_part_of_it():
    record = random_bytes(150).tobytes()
    for seed in range(5):
        built = built_record(record, begin=BLOCK - 100, seed=seed)
        assert decode_as_defined(built.chunk) == [record]


def test_a_row_stays_in_the_file_where_it_lies_in_one_piece():
    record = random_bytes(60).tobytes()
    for begin in BEGINS:
        built = built_record(record, begin=begin)
        first, last = int(built.places[-60]), int(built.places[-1])
        answer = read_as_defined(built.chunk, 60)
        assert answer == (("in the file", first) if last - first == 59 else record)


@pytest.mark.parametrize("alignment", [1, 2, 4, 8, 16])
def test_a_row_stays_in_the_file_where_its_address_suits_its_dtype(alignment):
    record = random_bytes(64).tobytes()
    stayed = 0
    for begin in range(SIGNATURE_END, SIGNATURE_END + 16):
        built = built_record(record, begin=begin)
        first = int(built.places[-64])
        suits = (built.chunk.base + first) % alignment == 0
        stayed += suits
        answer = read_as_defined(built.chunk, 64, alignment=alignment)
        assert answer == (("in the file", first) if suits else record)
    assert stayed == 16 // alignment


@BOTH_CODECS
@pytest.mark.parametrize("begin", [SIGNATURE_END, BLOCK - 70, BLOCK])
def test_records_are_cut_and_filled_up_to_a_row(codec, begin):
    padding = random_bytes(24, seed=9).tobytes()
    for size in range(0, 60, 4):
        record = random_bytes(size, seed=1).tobytes()
        built = built_record(record, codec, begin=begin)
        row = read_as_defined(built.chunk, 24, step=4, padding=padding)
        assert row == (record + padding[size:])[:24]


@BOTH_CODECS
def test_a_record_of_another_size_than_the_index_says_is_in_the_wrong_place(codec):
    record = random_bytes(16).tobytes()
    built = built_record(record, codec)
    assert read_as_defined(built.chunk, 24, step=4, number=3, listed=16) == record + bytes(8)
    for listed in (0, 12, 20):
        answer = read_as_defined(built.chunk, 24, step=4, number=3, listed=listed)
        assert answer == chunks.MISPLACED


def test_a_record_that_is_a_row_as_it_is_may_have_steps_too():
    record = random_bytes(24).tobytes()
    assert read_as_defined(built_record(record).chunk, 24, step=8) == record


def test_a_row_that_was_brought_elsewhere_before_lies_there():
    for module in (chunks, reference):
        entry = np.array([0, 123_456, -1, -1, 7], np.int64)
        assert module.read_record(entry.ctypes.data, 0, 0) == 123_456
