"""Files by array_record are read back: the index of a file, the records of its chunks, and rows in one array."""

import itertools

import numpy as np
import pytest
from numba.core import config

from loaderx.kernels import chunks
from loaderx.kernels.blocks import BLOCK, CHUNK_HEADER
from loaderx.kernels.calls import function_address
from tests import reference
from tests.kernels.built_chunks import SIGNATURE_END, Chunk, random_bytes
from tests.kernels.chunk_reading import (
    FOUND,
    MODULES,
    ROOM,
    UNTOUCHED,
    WORKER,
    Guarded,
    Scratch,
    decode,
    decode_as_defined,
    index_of,
    read_as_defined,
)
from tests.reference import own_places

pytest.importorskip("array_record.python.array_record_module")

from tests.loaderx.sources.record_files import write


def sizes_that_part_headers(distances):
    """Return sizes of records after which an uncompressed chunk begins so many bytes before the end of its block."""
    begin, sizes = SIGNATURE_END, []
    for distance in distances:
        # The first block that leaves room for a size of three bytes.
        end = (begin + CHUNK_HEADER + 2**14) // BLOCK * BLOCK + BLOCK - distance
        sizes.append(len(own_places(begin, end)) - CHUNK_HEADER - 5)
        begin = end
    return sizes


# Plain Python takes 0.4 us to hash a byte.
if config.DISABLE_JIT:
    DISTANCES = [0, 24, 41, 0]
    LARGE, OTHER_SIZES = 132_000, [0, 1, 100, 3072, 132_000, 0, 7]
    LAST, ROWS = 5427, 24
else:
    DISTANCES = [0, 0, 1, 8, 24, 39, 40, 41, 42, 43, 44, 45, 0]
    LARGE, OTHER_SIZES = 180_000, [0, 1, 100, 3072, 65_400, 65_512, 65_560, 180_000, 0, 7]
    LAST, ROWS = 65_427, 50


class File:
    """File as bytes in memory, the records written to it, and its chunks."""

    def __init__(self, path, options, sizes):
        # Numbers below 4, which zstd compresses.
        values = 256 if "uncompressed" in options else 4
        self.records = [random_bytes(size, i, values).tobytes() for i, size in enumerate(sizes)]
        self.memory = np.fromfile(write(path, self.records, options), np.uint8)
        self.base = self.memory.ctypes.data
        self.group = int(options.split(",")[0].removeprefix("group_size:"))

    def open(self, module):
        """Return offset, decoded size and records of each chunk from the footer, and the beginning of the footer."""
        end = len(self.memory)
        postscript = decode(module, Chunk(self.base, end - BLOCK, end, self))
        footer, _ = reference.split_varint(postscript[0][1:])
        entries = decode(module, Chunk(self.base, footer, end - BLOCK, self))[1:]
        wrong, rows = index_of(module, entries)
        assert wrong == -1
        return np.array(rows, np.int64).reshape(-1, 3).T, footer

    @property
    def chunks(self):
        """Return the places of all chunks."""
        index, footer = self.open(reference)
        edges = [*index[0].tolist(), footer]
        return [Chunk(self.base, *pair, self) for pair in itertools.pairwise(edges)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module", params=["uncompressed", "zstd"])
def codec_of_file(request):
    return request.param


@pytest.fixture(scope="module")
def single(codec_of_file, folder):
    """Return a file of one record per chunk."""
    sizes = [*sizes_that_part_headers(DISTANCES), *OTHER_SIZES]
    return File(folder / codec_of_file, f"group_size:1,{codec_of_file}", sizes)


@pytest.fixture(scope="module")
def grouped(codec_of_file, folder):
    """Return a file of five records per chunk, fewer in the last."""
    sizes = [*OTHER_SIZES, 3, LAST]
    return File(folder / f"{codec_of_file}-5", f"group_size:5,{codec_of_file}", sizes)


def test_the_file_is_one_with_chunks_in_every_awkward_place(folder):
    file = File(folder / "places", "group_size:1,uncompressed", sizes_that_part_headers(DISTANCES))
    begins = [chunk.begin for chunk in file.chunks]
    assert [-begin % BLOCK for begin in begins[1:]] == DISTANCES[:-1]
    assert all(65_400 <= len(record) <= 65_560 for record in file.records)


def test_a_file_opens_as_defined(single, grouped):
    for file in (single, grouped):
        (found, footer), (expected, place) = file.open(chunks), file.open(reference)
        assert footer == place
        assert found.tolist() == expected.tolist()
        groups = range(0, len(file.records), file.group)
        records = [file.records[i : i + file.group] for i in groups]
        assert found[1].tolist() == [len(b"".join(group)) for group in records]
        assert found[2].tolist() == [len(group) for group in records]


def test_every_chunk_of_a_file_gives_the_records_that_were_written(single, grouped):
    for file in (single, grouped):
        records = [decode_as_defined(chunk) for chunk in file.chunks]
        assert [*itertools.chain(*records)] == file.records
        assert {len(group) for group in records[:-1]} == {file.group}


def test_the_parts_of_a_chunk_are_as_defined(single, grouped):
    for file in (single, grouped):
        for base, begin, limit, _ in file.chunks:
            words = []
            for module in (chunks, reference):
                Scratch(0)
                assert module.check_chunk(base, begin, limit, False, WORKER.address) == 0
                words.append(WORKER.words.tolist()[FOUND])
            assert words[0] == words[1]
            assert words[0][chunks.TYPE - chunks.HEADER] == chunks.SIMPLE


def test_every_row_of_a_file_is_the_record_that_was_written(single):
    stayed = []
    for chunk, record in zip(single.chunks, single.records, strict=True):
        row = read_as_defined(chunk, len(record))
        if isinstance(row, tuple):
            stayed.append(len(record))
            row = single.memory[row[1] : row[1] + len(record)].tobytes()
        assert row == record
    compressed = single.chunks[0].limit < 60_000
    # Of the large ones the first, which fills its block to the end, and some that fill a block alone.
    assert {0, 1, 7, 100, 65_427} <= set(stayed) or (compressed and stayed == [])
    assert LARGE not in stayed


def test_a_verified_row_is_the_same(single):
    for chunk, record in zip(single.chunks[-6:], single.records[-6:], strict=True):
        unverified = read_as_defined(chunk, len(record))
        assert read_as_defined(chunk, len(record), verify=chunks.ALWAYS) == unverified


def test_a_chunk_of_several_records_is_not_a_row(grouped):
    for chunk in grouped.chunks:
        row = len(b"".join(decode(reference, chunk, verify=False)))
        assert read_as_defined(chunk, row) == chunks.CONTRADICTION


@MODULES
def test_a_file_without_records_has_an_empty_index(module, folder):
    index, footer = File(folder / "none", "group_size:1,uncompressed", []).open(module)
    assert index.shape == (3, 0)
    assert footer == SIGNATURE_END


# Rows in one array.


class Rows:
    """Entries for the records of one size in a file."""

    def __init__(self, file, row, alignment=1, verify=chunks.ALWAYS):
        (index, footer), count = file.open(chunks), len(file.records)
        self._bits = np.zeros(count // 8 + 1, np.uint8)
        self._settings = np.array(
            [verify, self._bits.ctypes.data, row, 0, 0, alignment, 0, 0], np.int64
        )
        self.index = np.array([*index[0], footer], np.int64)
        self._entries = np.empty((count, chunks.ENTRY_WORDS), np.int64)
        self.addresses = np.empty(count, np.int64)
        chunks.locate_records(
            np.arange(count),
            np.array([0, count]),
            np.array([file.base]),
            np.array([self._settings.ctypes.data]),
            np.array([self.index.ctypes.data]),
            self._entries,
            self.addresses,
        )


@pytest.fixture(params=["uncompressed", "zstd"])
def even(request, tmp_path):
    """Return a file of rows of 3000 bytes, some of them in two blocks."""
    return File(tmp_path / "even", f"group_size:1,{request.param}", [3000] * ROWS)


def fetch(module, rows, size, places):
    out, progress = Guarded(size * len(places)), np.full(2, -1, np.int64)
    room = Scratch(ROOM)
    function, addresses = function_address(chunks.read_record, 3), rows.addresses[places]
    module.fetch_rows(function, addresses, WORKER.address, size, out.array, progress)
    out.check()
    room.check()
    return out.array.reshape(-1, size), progress.tolist()


@MODULES
@pytest.mark.parametrize("alignment", [1, 2**40])
def test_rows_are_fetched_into_one_array(module, alignment, even):
    rows = Rows(even, 3000, alignment)
    places = np.random.default_rng(0).permutation(ROWS)
    out, progress = fetch(module, rows, 3000, places)
    assert progress == [ROWS, 0]
    assert [row.tobytes() for row in out] == [even.records[place] for place in places]


@MODULES
def test_no_rows_are_fetched_at_once(module, even):
    _, progress = fetch(module, Rows(even, 3000), 3000, np.arange(0))
    assert progress == [0, 0]


@MODULES
def test_fetching_ends_at_the_first_row_that_cannot_be_had(module, even):
    rows = Rows(even, 3000)
    even.memory[rows.index[8] - 1] ^= 1
    even.memory[rows.index[5] + 30] ^= 1
    out, progress = fetch(module, rows, 3000, np.arange(3, 12))
    assert progress == [2, chunks.HEADER_HASH]
    assert [row.tobytes() for row in out[:2]] == even.records[3:5]
    assert (out[3:] == UNTOUCHED).all()
    out, progress = fetch(module, rows, 3000, np.arange(ROWS - 1, -1, -1))
    assert progress == [ROWS - 8, chunks.DATA_HASH]


@MODULES
def test_rows_of_another_size_are_not_fetched(module, even):
    out, progress = fetch(module, Rows(even, 2999), 2999, np.arange(4))
    assert progress == [0, chunks.ROW_SIZE]
    assert (out == UNTOUCHED).all()
