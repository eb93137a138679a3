"""Chunks are written as the Riegeli format says, byte for byte like those of array_record."""

import numpy as np
import pytest
from numba.core import config

from loaderx.kernels import framing
from loaderx.kernels.blocks import BLOCK, BLOCK_HEADER, CHUNK_HEADER
from tests import reference

# Around each step from one byte of a varint to the next, up to the largest of 63 bits.
NUMBERS = np.array(
    [max(0, 2**bits + d) for bits in range(0, 63, 7) for d in (-1, 0, 1)] + [2**63 - 1]
)
UNTOUCHED = 0xA5
# Chunks that are compared with the twin, which takes milliseconds for one: all, or every fifth.
STEP = 5 if config.DISABLE_JIT else 1

# The first 64 bytes of every file by array_record 0.8.6.
SIGNATURE = bytes.fromhex(
    "83af70d10d884a3f0000000000000000400000000000000091bac23c9287e1a9"
    "0000000000000000e19f13c0e9b1c37273000000000000000000000000000000"
)


def random_bytes(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def both(name, *arguments, ends, room):
    """Return the output of a kernel and of its twin, with the places they report."""
    results = []
    for module in (framing, reference):
        out, places = np.full(room, UNTOUCHED, np.uint8), np.empty(ends, np.int64)
        getattr(module, name)(*arguments, places, out)
        results.append((places.tolist(), out.tobytes()))
    return results


def place_and_lay(module, begin, kind, records, decoded, pieces):
    """Return begins and bytes of chunks; pieces[i] are the arrays of the data of chunk i."""
    addresses = np.array([[piece.ctypes.data for piece in row] for row in pieces], np.int64)
    sizes = np.array([[len(piece) for piece in row] for row in pieces], np.int64)
    records, decoded = np.array(records, np.int64), np.array(decoded, np.int64)
    begins = np.empty(len(pieces) + 1, np.int64)
    module.place_chunks(begin, sizes, records, begins)
    out = np.full(begins[-1] - begin + 64, UNTOUCHED, np.uint8)
    module.write_chunks(begins, kind, records, decoded, addresses, sizes, out[:-64])
    assert (out[-64:] == UNTOUCHED).all()
    return begins.tolist(), out[:-64].tobytes()


def assert_as_defined(begin, records, pieces, kind=framing.SIMPLE):
    decoded = [sum(map(len, row)) + 7 for row in pieces]
    begins, built = place_and_lay(framing, begin, kind, records, decoded, pieces)
    expected = place_and_lay(reference, begin, kind, records, decoded, pieces)
    assert begins == expected[0]
    assert built == expected[1]
    return begins, built


def test_varints_are_as_defined():
    result, expected = both("write_varints", NUMBERS, ends=len(NUMBERS), room=len(NUMBERS) * 9)
    assert result == expected
    assert np.diff(result[0]).max() == framing.VARINT_BYTES


def test_known_varints():
    out, ends = np.empty(9, np.uint8), np.empty(3, np.int64)
    framing.write_varints(np.array([1, 300, 180_000]), ends, out)
    assert out[: ends[-1]].tobytes() == bytes.fromhex("01 ac02 a0fe0a")


@pytest.mark.parametrize("group", [1, 2, 7, 24, 28, 100])
def test_heads_list_the_sizes_of_their_chunk(group):
    chunks = -(-len(NUMBERS) // group)
    room = len(NUMBERS) * 9 + chunks * 10
    result, expected = both("write_heads", NUMBERS, group, ends=chunks, room=room)
    assert result == expected


def test_the_head_of_one_record():
    out, ends = np.empty(19, np.uint8), np.empty(1, np.int64)
    framing.write_heads(np.array([5]), 1, ends, out)
    assert out[: ends[0]].tobytes() == bytes.fromhex("00 01 05")


def test_entries_are_as_defined():
    numbers = NUMBERS, NUMBERS[::-1].copy(), np.roll(NUMBERS, 5)
    result, expected = both(
        "write_entries", *numbers, ends=len(NUMBERS), room=len(NUMBERS) * framing.ENTRY_BYTES
    )
    assert result == expected


def test_a_known_entry():
    out, ends = np.empty(framing.ENTRY_BYTES, np.uint8), np.empty(1, np.int64)
    framing.write_entries(*(np.array([number]) for number in (64, 100, 1)), ends, out)
    assert out[: ends[0]].tobytes() == bytes.fromhex("08 40 10 64 18 01")


def test_the_signature_is_a_chunk_without_anything():
    nothing = [[np.empty(0, np.uint8)]]
    built = place_and_lay(framing, 0, framing.SIGNATURE, [0], [0], nothing)
    assert built == ([0, 64], SIGNATURE)


# All in one block, in two, with a header that is cut, at the beginning of a block, directly before one.
@pytest.mark.parametrize(
    "begin", [64, 25, 65_000, *range(65_490, 65_537, 3), 65_535, 65_561, 10 * BLOCK]
)
def test_small_chunks_lie_as_defined(begin):
    pieces = [[random_bytes(3, i), random_bytes(size, i)] for i, size in enumerate((0, 1, 100, 33))]
    begins, built = assert_as_defined(begin, [1] * 4, pieces)
    assert begins[1] - begin in (CHUNK_HEADER + 3, CHUNK_HEADER + 3 + BLOCK_HEADER)
    assert len(built) == begins[-1] - begin


@pytest.mark.parametrize("size", [65_432, 65_433, 65_472, 65_473, 66_000, 131_100])
def test_large_chunks_lie_as_defined(size):
    pieces = [[random_bytes(size - 20), random_bytes(20)], [random_bytes(9), random_bytes(0)]]
    begins, _ = assert_as_defined(64, [1, 1], pieces)
    assert begins[1] > BLOCK - 40


def test_every_legal_position_near_a_block_can_be_the_begin_of_a_chunk():
    begins = set()
    for size in range(65_340, 65_500):
        place = np.empty(3, np.int64)
        framing.place_chunks(64, np.array([[size], [50]]), np.array([1, 1]), place)
        begins.add(int(place[1]))
        if size % STEP == 0:
            assert place[1] == 64 + reference.framed_length(64, size, 1)
    near = {*range(65_444, BLOCK + 1), *range(BLOCK + BLOCK_HEADER + 1, 65_628)}
    assert begins == near


@pytest.mark.parametrize("records", [0, 43, 44, 65_471, 65_472, 65_473, 65_496, 65_497, 140_000])
def test_a_chunk_is_at_least_as_long_as_it_has_records(records):
    begins, built = assert_as_defined(64, [records, 1], [[random_bytes(3)], [random_bytes(4)]])
    assert begins[1] - 64 >= max(records, 43)
    padding = built[43 : begins[1] - 64]
    assert not any(padding[: BLOCK - 64 - 43])


def test_the_kind_of_a_chunk_is_in_its_header():
    _, built = assert_as_defined(100, [0], [[np.zeros(30, np.uint8)]], kind=framing.PADDING)
    assert built[24:25] == b"p"


def test_the_same_chunks_in_two_calls_are_those_of_one():
    pieces = [[random_bytes(20_000, i), random_bytes(i, i)] for i in range(8)]
    _, whole = place_and_lay(framing, 64, framing.SIMPLE, [1] * 8, [5] * 8, pieces)
    begins, first = place_and_lay(framing, 64, framing.SIMPLE, [1] * 3, [5] * 3, pieces[:3])
    _, rest = place_and_lay(framing, begins[-1], framing.SIMPLE, [1] * 5, [5] * 5, pieces[3:])
    assert first + rest == whole
