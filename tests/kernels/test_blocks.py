"""Positions in a file of blocks are those that a walk through it finds, byte after byte."""

import numba
import numpy as np
import pytest

from loaderx.kernels import blocks
from loaderx.kernels.blocks import BLOCK, BLOCK_HEADER, CHUNK_HEADER, USABLE
from tests import reference


def is_boundary(position):
    """Tell whether a chunk may begin here.

    It begins at a block header, or after one if a byte of another chunk is in between.
    """
    return position % BLOCK == 0 or position % BLOCK > BLOCK_HEADER


AROUND_A_BLOCK = [place for place in range(BLOCK - 45, BLOCK + 70) if is_boundary(place)]
BEGINS = [0, 64, 30_000, *AROUND_A_BLOCK, *(5 * BLOCK + place for place in (0, 25, 26, 60_000))]
SIZES = [1, 2, 39, 40, 41, 100, USABLE - 1, USABLE, USABLE + 1, 2 * USABLE, 2 * USABLE + 1, 180_000]


@pytest.fixture(params=["plain", "compiled"])
def function(request):
    """Return the functions as Python calls them, or as a kernel does."""

    def choose(name):
        plain = getattr(blocks, name)
        if request.param == "plain":
            return plain
        if name == "chunk_end":
            return numba.njit(lambda a, b, c: plain(a, b, c))
        if name == "next_boundary":
            return numba.njit(lambda a: plain(a))
        return numba.njit(lambda a, b: plain(a, b))

    return choose


def test_a_byte_is_where_one_finds_it_by_counting(function):
    position_of = function("position_of")
    for begin in BEGINS:
        places = reference.own_places(begin, begin + 3 * BLOCK)
        numbers = [size - 1 for size in SIZES]
        assert [position_of(begin, number) for number in numbers] == places[numbers].tolist()


def test_every_byte_around_a_block_header_is_where_one_finds_it():
    places = reference.own_places(64, BLOCK + 200)
    numbers = np.arange(len(places))[-400:]
    assert [blocks.position_of(64, int(number)) for number in numbers] == places[numbers].tolist()


def test_bytes_end_after_the_last_of_them(function):
    end_of = function("end_of")
    for begin in BEGINS:
        places = reference.own_places(begin, begin + 3 * BLOCK)
        assert [end_of(begin, size) for size in SIZES] == [places[size - 1] + 1 for size in SIZES]


def test_no_bytes_end_where_they_begin(function):
    end_of = function("end_of")
    assert [end_of(begin, 0) for begin in BEGINS] == BEGINS


def test_the_next_boundary_is_the_first_from_here_on(function):
    next_boundary = function("next_boundary")
    for position in [*range(60), *range(BLOCK - 5, BLOCK + 60), 7 * BLOCK + 24, 7 * BLOCK + 25]:
        expected = next(place for place in range(position, position + 30) if is_boundary(place))
        assert next_boundary(position) == expected


def test_a_chunk_ends_after_its_data_and_is_no_shorter_than_its_records_are_many(function):
    chunk_end = function("chunk_end")
    cases = [
        (begin, size, records)
        for begin in (0, 64, BLOCK - 45, BLOCK - 30, BLOCK, BLOCK + 25)
        for size in (0, 10, 3000)
        for records in (0, 1, 60, 3041, BLOCK - 64, BLOCK - 50, BLOCK + 10)
    ]
    for begin, size, records in cases:
        expected = begin + reference.framed_length(begin, size, records)
        assert chunk_end(begin, size, records) == expected
        assert is_boundary(expected)


def test_chunks_of_a_whole_file_follow_one_another():
    """Compare with the places that array_record 0.8.6 chose for records of 65427, 65467 and 0 bytes."""
    assert blocks.chunk_end(0, 0, 0) == 64
    assert blocks.chunk_end(64, 5 + 65_427, 1) == BLOCK
    assert blocks.chunk_end(BLOCK, 5 + 65_467, 1) == 2 * BLOCK
    assert blocks.chunk_end(2 * BLOCK, 3, 1) == 2 * BLOCK + BLOCK_HEADER + CHUNK_HEADER + 3
