"""Chunks are read by kernels and by their twins, in memory whose surroundings must stay as they are."""

import itertools

import numpy as np
import pytest

from loaderx.kernels import chunks
from loaderx.sources.records.worker import Worker
from tests import reference

GUARD, UNTOUCHED = 64, 0xA5
# Room for the largest frame here.
ROOM = 2**17
# The words that a thread sets; a kernel writes the others.
GIVEN = slice(0, chunks.HEADER)
FOUND = slice(chunks.HEADER, chunks.WORKER_WORDS)
WORKER = Worker()
# More memory than any caller has.
MANY = 10**6

MODULES = pytest.mark.parametrize("module", [chunks, reference])
BOTH_CODECS = pytest.mark.parametrize("codec", ["plain", "zstd"])


class Guarded:
    """Memory whose surroundings must stay as they are."""

    def __init__(self, size):
        self._whole = np.full(size + 2 * GUARD, UNTOUCHED, np.uint8)
        self.array = self._whole[GUARD : GUARD + size]
        self.address = self.array.ctypes.data

    def check(self):
        assert (self._whole[:GUARD] == UNTOUCHED).all()
        assert (self._whole[len(self._whole) - GUARD :] == UNTOUCHED).all()


class Scratch(Guarded):
    """Worker with guarded memory to work in."""

    def __init__(self, size):
        super().__init__(size)
        WORKER.words[:] = [*WORKER.words[: chunks.SCRATCH], self.address, size, *[-1] * 12]
        self._given = WORKER.words[GIVEN].tolist()

    def check(self):
        super().check()
        assert WORKER.words[GIVEN].tolist() == self._given


def read(
    module,
    chunk,
    row,
    step=0,
    padding=b"",
    alignment=1,
    verify=chunks.NEVER,
    bits=None,
    number=0,
    shortcut=0,
    scratch=ROOM,
    listed=None,
):
    """Read a row: return its bytes, its position in the file if it may stay there, or the reason of a failure."""
    base, begin, limit, _ = chunk
    target, room = Guarded(row), Scratch(scratch)
    filler = np.frombuffer(padding.ljust(row, b"\0") + b"\0", np.uint8)
    bits = np.zeros(number // 8 + 1, np.uint8) if bits is None else bits
    sizes = np.full(number + 1, listed or 0, np.uint32)
    settings = np.array(
        [
            *(verify, bits.ctypes.data, row, step, filler.ctypes.data, alignment, shortcut),
            0 if listed is None else sizes.ctypes.data,
        ],
        np.int64,
    )
    entry = np.array([settings.ctypes.data, base, begin, limit, number], np.int64)
    answer = int(module.read_record(entry.ctypes.data, target.address, WORKER.address))
    target.check()
    room.check()
    if answer == target.address:
        return target.array.tobytes()
    if answer >= 0:
        assert (target.array == UNTOUCHED).all()
        return "in the file", answer - base
    return answer


def read_as_defined(*arguments, **options):
    """Return the row from the kernel, which must equal that of the twin."""
    results = [read(module, *arguments, **options) for module in (chunks, reference)]
    assert results[0] == results[1]
    return results[0]


def decode(module, chunk, verify=True, scratch=ROOM, sizes=None, values=None):
    """Return the records of a chunk, or the reason of a failure."""
    base, begin, limit, _ = chunk
    room = Scratch(scratch)
    status = int(module.check_chunk(base, begin, limit, verify, WORKER.address))
    if status < 0:
        return status
    count, decoded = (int(WORKER.words[word]) for word in (chunks.RECORDS, chunks.DECODED))
    if count > MANY or decoded > MANY:
        return count, decoded
    listed = Guarded(10 * count if sizes is None else sizes)
    content, ends = Guarded(decoded if values is None else values), Guarded(8 * count)
    found = WORKER.words[FOUND].tolist()
    status = int(
        module.decode_chunk(
            base, begin, WORKER.address, listed.array, ends.array.view(np.int64), content.array
        )
    )
    for memory in (room, listed, content, ends):
        memory.check()
    assert WORKER.words[FOUND].tolist() == found
    if status < 0:
        return status
    edges = [0, *ends.array.view(np.int64).tolist()]
    assert edges[-1] == len(content.array)
    pairs = itertools.pairwise(edges)
    return [content.array[start:stop].tobytes() for start, stop in pairs]


def decode_as_defined(*arguments, **options):
    """Return the records from the kernel, which must equal those of the twin."""
    results = [decode(module, *arguments, **options) for module in (chunks, reference)]
    assert results[0] == results[1]
    return results[0]


def index_of(module, entries):
    """Return the number of the first wrong entry, or -1, and the three numbers of all entries before it."""
    values = np.frombuffer(b"metadata" + b"".join(entries) + b"\xff", np.uint8)
    ends = 8 + np.cumsum([0, *map(len, entries)], dtype=np.int64)
    index = np.full((3, len(entries)), -7, np.int64)
    return int(module.read_index(values, ends, *index)), index.T.tolist()
