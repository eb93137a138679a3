"""Nothing in a chunk leads to memory outside of it, even without hashes that would detect arbitrary content."""

import ctypes
import os

import numpy as np
import pytest
from numba.core import config

from loaderx.kernels import chunks
from loaderx.kernels.blocks import BLOCK
from tests.kernels.built_chunks import SIGNATURE_END, Chunk, built_record, random_bytes
from tests.kernels.chunk_reading import BOTH_CODECS, decode_as_defined, read_as_defined
from tests.kernels.guard_pages import between_guard_pages

# Plain Python takes a millisecond to read a chunk.
BITS = (0, 7) if config.DISABLE_JIT else range(8)
ROUNDS = 30 if config.DISABLE_JIT else 150


def put_between_walls(built, at_end):
    """Copy a chunk to directly after a guard page or directly before one; return the copy and its bytes."""
    content = between_guard_pages(built.limit - built.begin, at_end)
    content[:] = built.memory[built.begin : built.limit]
    return Chunk(content.ctypes.data - built.begin, built.begin, built.limit, content), content


def read_unverified(chunk):
    """Read a chunk of 24 bytes as a row, as a row that it is cut to, and as records; return the rows."""
    rows = [
        read_as_defined(chunk, 24),
        read_as_defined(chunk, 16, step=8, padding=b"x" * 16, scratch=60),
    ]
    decode_as_defined(chunk, verify=False)
    return rows


@BOTH_CODECS
@pytest.mark.parametrize(("begin", "at_end"), [(SIGNATURE_END, True), (BLOCK - 50, False)])
def test_no_flipped_bit_leads_out_of_a_chunk(codec, begin, at_end):
    record = random_bytes(24, values=4).tobytes()
    built = built_record(record, codec, begin=begin)
    chunk, content = put_between_walls(built, at_end)
    outcomes = set()
    for place in built.places - built.begin:
        for bit in BITS:
            content[place] ^= 1 << bit
            rows = read_unverified(chunk)
            outcomes |= {row for row in rows if isinstance(row, int)}
            content[place] ^= 1 << bit
    assert outcomes >= {chunks.OUTSIDE, chunks.KIND, chunks.CONTRADICTION, chunks.ROW_SIZE}


@BOTH_CODECS
@pytest.mark.parametrize("at_end", [False, True])
def test_nothing_in_a_chunk_leads_out_of_it(codec, at_end):
    rng = np.random.default_rng(at_end)
    large = np.array([0, 1, 127, 128, 255], np.uint8)
    for begin in (SIGNATURE_END, BLOCK - 41, BLOCK - 3):
        built = built_record(random_bytes(24, values=4).tobytes(), codec, begin=begin)
        chunk, content = put_between_walls(built, at_end)
        intact = content.copy()
        for _ in range(ROUNDS):
            # Not all of the sizes and hashes at once, because nearly always the first one would be refused.
            places = rng.choice(built.places, rng.integers(1, 6)) - built.begin
            content[places] = rng.choice(large, len(places))
            read_unverified(chunk)
            content[:] = intact


def test_memory_beyond_a_wall_cannot_be_touched():
    out, pipe = os.pipe()

    def can_be_read(address):
        # The operating system reports this where an ordinary access would end the process.
        return ctypes.CDLL(None).write(pipe, ctypes.c_void_p(address), ctypes.c_size_t(1)) == 1

    for at_end in (False, True):
        chunk, _ = put_between_walls(built_record(random_bytes(100).tobytes()), at_end)
        begin, end = chunk.base + chunk.begin, chunk.base + chunk.limit
        assert can_be_read(begin)
        assert can_be_read(end - 1)
        assert can_be_read(end) != at_end
        assert can_be_read(begin - 1) == at_end
    os.close(out)
    os.close(pipe)
