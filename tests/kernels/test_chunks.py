"""Records are found in the chunks of a file wherever block headers fall, and damage is named, never followed."""

import ctypes
import itertools
import mmap
import os
from typing import Any, NamedTuple

import numpy as np
import pytest
import zstandard

from loaderx.kernels import chunks, highway
from loaderx.kernels.blocks import BLOCK, BLOCK_HEADER, CHUNK_HEADER
from loaderx.kernels.calls import address_of
from loaderx.sources.records.worker import Worker
from tests import reference
from tests.reference import own_places, varint

GUARD, UNTOUCHED = 64, 0xA5
# For the largest frame here.
ROOM = 2**17
SIGNATURE_END = 64
# All of the words that a thread gives; the others are what a kernel found out.
GIVEN = slice(0, chunks.HEADER)
FOUND = slice(chunks.HEADER, chunks.WORKER_WORDS)
WORKER = Worker()
# More than any caller has memory for.
MANY = 10**6

MODULES = pytest.mark.parametrize("module", [chunks, reference])
BOTH_CODECS = pytest.mark.parametrize("codec", ["plain", "zstd"])


def random_bytes(count, seed=0, values=256):
    return np.random.default_rng(seed).integers(0, values, count, dtype=np.uint8)


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
    """The worker, with guarded memory to work in."""

    def __init__(self, size):
        super().__init__(size)
        WORKER.words[:] = [*WORKER.words[: chunks.SCRATCH], self.address, size, *[-1] * 12]
        self._given = WORKER.words[GIVEN].tolist()

    def check(self):
        super().check()
        assert WORKER.words[GIVEN].tolist() == self._given


class Chunk(NamedTuple):
    """Where a chunk is, and what keeps its memory."""

    base: int
    begin: int
    limit: int
    hold: Any


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
    """What becomes of a row: bytes, a position in the file where it may stay, or why it could not be had."""
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
    """The same from kernel and twin."""
    results = [read(module, *arguments, **options) for module in (chunks, reference)]
    assert results[0] == results[1]
    return results[0]


def decode(module, chunk, verify=True, scratch=ROOM, sizes=None, values=None):
    """The records of a chunk, or why they could not be had."""
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
    """The same from kernel and twin."""
    results = [decode(module, *arguments, **options) for module in (chunks, reference)]
    assert results[0] == results[1]
    return results[0]


# Files by array_record.


def sizes_that_part_headers(distances):
    """Sizes of records after which an uncompressed chunk begins so many bytes before the end of its block."""
    begin, sizes = SIGNATURE_END, []
    for distance in distances:
        # The first block that leaves room for a size of three bytes.
        end = (begin + CHUNK_HEADER + 2**14) // BLOCK * BLOCK + BLOCK - distance
        sizes.append(len(own_places(begin, end)) - CHUNK_HEADER - 5)
        begin = end
    return sizes


DISTANCES = [0, 0, 1, 8, 24, 39, 40, 41, 42, 43, 44, 45, 0]
OTHER_SIZES = [0, 1, 100, 3072, 65_400, 65_512, 65_560, 180_000, 0, 7]


class File:
    """A file as bytes in memory, what was written to it, and its chunks."""

    def __init__(self, path, options, sizes):
        module = pytest.importorskip("array_record.python.array_record_module")
        # Numbers below 4, which zstd makes smaller.
        values = 256 if "uncompressed" in options else 4
        self.records = [random_bytes(size, i, values).tobytes() for i, size in enumerate(sizes)]
        writer = module.ArrayRecordWriter(str(path), options)
        for record in self.records:
            writer.write(record)
        writer.close()
        self.memory = np.fromfile(path, np.uint8)
        self.base = self.memory.ctypes.data
        self.group = int(options.split(",")[0].removeprefix("group_size:"))

    def open(self, module):
        """Offset, decoded size and records of each chunk, as the footer lists them, and where the footer begins."""
        end = len(self.memory)
        postscript = decode(module, Chunk(self.base, end - BLOCK, end, self))
        footer, _ = reference.split_varint(postscript[0][1:])
        entries = decode(module, Chunk(self.base, footer, end - BLOCK, self))[1:]
        values = np.frombuffer(b"metadata" + b"".join(entries), np.uint8)
        ends = 8 + np.cumsum([0, *map(len, entries)], dtype=np.int64)
        index = np.full((3, len(entries)), -1, np.int64)
        assert module.read_index(values, ends, *index) == -1
        return index, footer

    @property
    def chunks(self):
        """Where all chunks are."""
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
    """A file of one record per chunk."""
    sizes = [*sizes_that_part_headers(DISTANCES), *OTHER_SIZES]
    return File(folder / codec_of_file, f"group_size:1,{codec_of_file}", sizes)


@pytest.fixture(scope="module")
def grouped(codec_of_file, folder):
    """A file of five records per chunk, fewer in the last."""
    sizes = [*OTHER_SIZES, 3, 65_427]
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


def test_what_a_chunk_consists_of_is_as_defined(single, grouped):
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
    compressed = single.chunks[0][2] < 60_000
    # Of the large ones the first, which fills its block to the end, and some that have one to themselves.
    assert {0, 1, 7, 100, 65_427} <= set(stayed) or (compressed and stayed == [])
    assert 180_000 not in stayed


def test_a_verified_row_is_the_same(single):
    for chunk, record in zip(single.chunks[-6:], single.records[-6:], strict=True):
        unverified = read_as_defined(chunk, len(record))
        assert read_as_defined(chunk, len(record), verify=chunks.ALWAYS) == unverified


def test_a_chunk_of_several_records_is_no_row(grouped):
    for chunk in grouped.chunks:
        row = len(b"".join(decode(reference, chunk, verify=False)))
        assert read_as_defined(chunk, row) == chunks.CONTRADICTION


@MODULES
def test_a_file_without_records_has_an_empty_index(module, folder):
    index, footer = File(folder / "none", "group_size:1,uncompressed", []).open(module)
    assert index.shape == (3, 0)
    assert footer == SIGNATURE_END


# Chunks as a test wants them.


def hash_of(data):
    memory = np.frombuffer(bytes(data) + b"\0", np.uint8)
    return int(highway.highway_hash(memory.ctypes.data, len(data)))


def packed(content):
    """A part of a chunk as zstd leaves it."""
    return varint(len(content)) + zstandard.compress(content)


def data_of(*records, codec="plain", listed=None):
    """What follows the header of an intact chunk."""
    listed = b"".join(varint(len(record)) for record in records) if listed is None else listed
    values = b"".join(records)
    if codec == "plain":
        return b"\0" + varint(len(listed)) + listed + values
    return b"z" + varint(len(packed(listed))) + packed(listed) + packed(values)


class Laid:
    """A chunk with true hashes in memory that is random around it, and in its block headers."""

    def __init__(self, data, decoded, begin=SIGNATURE_END, kind="r", records=1, size=None, seed=0):
        data_size = len(data) if size is None else size
        words = data_size, hash_of(data), ord(kind) + 256 * records, decoded
        header = np.array(words, np.uint64).tobytes()
        content = np.uint64(hash_of(header)).tobytes() + header + data
        room = len(content) + BLOCK_HEADER * (2 + len(content) // BLOCK)
        self.places = own_places(begin, begin + room)[: len(content)]
        self.begin, self.limit = begin, int(self.places[-1]) + 1
        self.memory = random_bytes(self.limit + GUARD, seed)
        self.memory[self.places] = np.frombuffer(content, np.uint8)

    @property
    def chunk(self):
        return Chunk(self.memory.ctypes.data, self.begin, self.limit, self.memory)


def laid_record(record, codec="plain", **options):
    return Laid(data_of(record, codec=codec), len(record), **options)


# From where nothing of a chunk lies in the next block to where all but one byte does, and behind the block header.
AROUND_A_BLOCK = [
    begin
    for begin in range(BLOCK - 130, BLOCK + 30)
    if begin % BLOCK == 0 or begin % BLOCK > BLOCK_HEADER
]


@BOTH_CODECS
def test_a_block_header_may_fall_anywhere_in_a_chunk(codec):
    record = random_bytes(60).tobytes()
    for begin in AROUND_A_BLOCK:
        laid = laid_record(record, codec, begin=begin)
        row = read_as_defined(laid.chunk, 60, verify=chunks.ALWAYS)
        if isinstance(row, tuple):
            assert codec == "plain"
            row = laid.memory[row[1] : row[1] + 60].tobytes()
        assert row == record
        assert decode_as_defined(laid.chunk) == [record]


@BOTH_CODECS
def test_a_block_header_may_fall_anywhere_among_the_sizes_of_records(codec):
    records = [random_bytes(size).tobytes() for size in (0, 200, 1, 130, 0)]
    data = data_of(*records, codec=codec)
    for begin in range(BLOCK - CHUNK_HEADER - 30, BLOCK - CHUNK_HEADER + 1):
        laid = Laid(data, 331, begin=begin, records=5)
        assert decode_as_defined(laid.chunk) == records


def test_a_row_stays_in_the_file_where_it_lies_in_one_piece():
    record = random_bytes(60).tobytes()
    for begin in AROUND_A_BLOCK:
        laid = laid_record(record, begin=begin)
        first, last = int(laid.places[-60]), int(laid.places[-1])
        answer = read_as_defined(laid.chunk, 60)
        assert answer == (("in the file", first) if last - first == 59 else record)


@pytest.mark.parametrize("alignment", [1, 2, 4, 8, 16])
def test_a_row_stays_in_the_file_where_its_address_suits_its_dtype(alignment):
    record = random_bytes(64).tobytes()
    stayed = 0
    for begin in range(SIGNATURE_END, SIGNATURE_END + 16):
        laid = laid_record(record, begin=begin)
        first = int(laid.places[-64])
        suits = (laid.chunk[0] + first) % alignment == 0
        stayed += suits
        answer = read_as_defined(laid.chunk, 64, alignment=alignment)
        assert answer == (("in the file", first) if suits else record)
    assert stayed == 16 // alignment


@BOTH_CODECS
@pytest.mark.parametrize("begin", [SIGNATURE_END, BLOCK - 70, BLOCK])
def test_records_are_cut_and_filled_up_to_a_row(codec, begin):
    padding = random_bytes(24, seed=9).tobytes()
    for size in range(0, 60, 4):
        record = random_bytes(size, seed=1).tobytes()
        laid = laid_record(record, codec, begin=begin)
        row = read_as_defined(laid.chunk, 24, step=4, padding=padding)
        assert row == (record + padding[size:])[:24]


@BOTH_CODECS
def test_a_record_of_another_size_than_the_index_says_is_in_the_wrong_place(codec):
    record = random_bytes(16).tobytes()
    laid = laid_record(record, codec)
    assert read_as_defined(laid.chunk, 24, step=4, number=3, listed=16) == record + bytes(8)
    for listed in (0, 12, 20):
        answer = read_as_defined(laid.chunk, 24, step=4, number=3, listed=listed)
        assert answer == chunks.MISPLACED


def test_a_record_that_is_a_row_as_it_is_may_have_steps_too():
    record = random_bytes(24).tobytes()
    assert read_as_defined(laid_record(record).chunk, 24, step=8) == record


def test_a_row_that_was_brought_elsewhere_before_lies_there():
    for module in (chunks, reference):
        entry = np.array([0, 123_456, -1, -1, 7], np.int64)
        assert module.read_record(entry.ctypes.data, 0, 0) == 123_456


# When records are verified.


def damaged(record, codec="plain"):
    """A chunk whose last byte is not what was hashed."""
    laid = laid_record(record, codec)
    laid.memory[laid.limit - 1] ^= 1
    return laid


@MODULES
@pytest.mark.parametrize("number", [0, 7, 8, 21])
def test_verified_the_first_time_means_once(module, number):
    record = random_bytes(40).tobytes()
    laid, bits = laid_record(record), np.zeros(4, np.uint8)
    options = {"verify": chunks.FIRST, "bits": bits, "number": number, "alignment": 2**40}

    assert read(module, laid.chunk, 40, **options) == record
    assert np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist() == [number]

    laid.memory[laid.limit - 1] ^= 1
    assert read(module, laid.chunk, 40, **options) == laid.memory[laid.places[-40:]].tobytes()
    bits[number >> 3] ^= 1 << (number & 7)
    assert read(module, laid.chunk, 40, **options) == chunks.DATA_HASH
    assert not bits.any()


@MODULES
def test_that_others_are_verified_does_not_count(module):
    bits = np.full(3, 255, np.uint8)
    bits[1] ^= 1 << 5
    before, laid = bits.tolist(), damaged(b"abcd")
    options = {"verify": chunks.FIRST, "bits": bits}
    assert read(module, laid.chunk, 4, number=13, **options) == chunks.DATA_HASH
    assert bits.tolist() == before
    assert read(module, laid_record(b"abcd").chunk, 4, number=13, **options)[0] == "in the file"
    assert bits.tolist() == [255] * 3


@MODULES
def test_verified_always_means_every_time(module):
    for before in (0, 255):
        bits = np.array([before], np.uint8)
        options = {"verify": chunks.ALWAYS, "bits": bits, "shortcut": FIRST_BYTE}
        assert read(module, damaged(b"abcd").chunk, 4, **options) == chunks.DATA_HASH
        assert bits[0] == before
        assert read(module, laid_record(b"abcd").chunk, 4, **options)[0] == "in the file"
        assert bits[0] == before | 1


@MODULES
def test_verified_never_means_that_damage_is_read(module):
    laid = damaged(b"abcd")
    assert read(module, laid.chunk, 4, verify=chunks.NEVER, alignment=2**40) == b"abce"


# Of an uncompressed record whose size takes one byte.
FIRST_BYTE = CHUNK_HEADER + 3


@MODULES
@pytest.mark.parametrize("verify", [chunks.NEVER, chunks.FIRST, chunks.ALWAYS])
def test_only_what_could_be_had_is_noted(module, verify):
    record = b"abcd" * 4
    cases = [
        (laid_record(record), {}, True),
        (laid_record(record, "zstd"), {}, True),
        (laid_record(record), {"step": 8}, True),
        (laid_record(record), {"shortcut": FIRST_BYTE}, True),
        # Uncompressed, but not where those of this size begin; not uncompressed; of many lengths.
        (Laid(data_of(record, listed=b"\x90\0"), 16), {"shortcut": FIRST_BYTE}, False),
        (laid_record(record, "zstd"), {"shortcut": FIRST_BYTE}, False),
        (laid_record(record), {"shortcut": FIRST_BYTE, "step": 8}, False),
    ]
    for laid, options, noted in cases:
        bits = np.zeros(2, np.uint8)
        options = {"verify": verify, "bits": bits, "number": 9, "alignment": 2**40, **options}
        assert read(module, laid.chunk, 16, **options) == record
        assert bits.tolist() == [0, 2 * noted]
    for laid, row in [(Laid(zstd_data(varint(100)), 100), 100), (laid_record(record), 15)]:
        bits = np.zeros(2, np.uint8)
        assert read(module, laid.chunk, row, verify=verify, bits=bits) < 0
        assert not bits.any()


@pytest.mark.parametrize("verify", [chunks.NEVER, chunks.FIRST])
def test_the_header_of_a_record_seen_before_is_not_looked_at(verify):
    record = random_bytes(60).tobytes()
    for begin in AROUND_A_BLOCK:
        laid, bits = laid_record(record, begin=begin), np.ones(1, np.uint8)
        laid.memory[laid.places[:FIRST_BYTE]] = 0
        options = {"verify": verify, "bits": bits, "shortcut": FIRST_BYTE}
        answer, first = read_as_defined(laid.chunk, 60, **options), int(laid.places[-60])
        in_one_piece = laid.places[-1] - first == 59
        assert answer == (("in the file", first) if in_one_piece else record)
        assert read_as_defined(laid.chunk, 60, alignment=2**40, **options) == record
        assert bits[0] == 1


@MODULES
def test_a_shortcut_leads_to_the_same_row(module):
    for size in (0, 1, 127, 128, 20_000):
        record = random_bytes(size).tobytes()
        laid, bits = laid_record(record), np.zeros(1, np.uint8)
        shortcut = CHUNK_HEADER + 2 + len(varint(size))
        options = {"verify": chunks.FIRST, "bits": bits, "shortcut": shortcut}
        rows = [read(module, laid.chunk, size, **options) for _ in range(2)]
        assert rows == [("in the file", int(laid.places[shortcut - 1]) + 1)] * 2
        assert bits[0] == 1


@BOTH_CODECS
@pytest.mark.parametrize("begin", [SIGNATURE_END, BLOCK - 20])
def test_every_bit_of_a_chunk_is_verified(codec, begin):
    laid = laid_record(random_bytes(20).tobytes(), codec, begin=begin)
    assert read(chunks, laid.chunk, 20, verify=chunks.ALWAYS) in (
        ("in the file", int(laid.places[-20])),
        random_bytes(20).tobytes(),
    )
    for number, place in enumerate(laid.places):
        expected = chunks.HEADER_HASH if number < CHUNK_HEADER else chunks.DATA_HASH
        for bit in range(8):
            laid.memory[place] ^= 1 << bit
            assert read(chunks, laid.chunk, 20, verify=chunks.ALWAYS) == expected
            laid.memory[place] ^= 1 << bit
        laid.memory[place] ^= 4
        assert read(reference, laid.chunk, 20, verify=chunks.ALWAYS) == expected
        assert decode_as_defined(laid.chunk) == expected
        laid.memory[place] ^= 4


def test_what_lies_around_a_chunk_and_in_its_block_headers_is_not_part_of_it():
    record = random_bytes(150).tobytes()
    for seed in range(5):
        laid = laid_record(record, begin=BLOCK - 100, seed=seed)
        assert decode_as_defined(laid.chunk) == [record]


# Chunks that are not what they say, with hashes that are right.

RECORD = random_bytes(100, seed=5).tobytes()
FRAME = zstandard.compress(RECORD)
LISTED = packed(varint(100))
ENDLESS, TOO_LONG = b"\xff" * 30, b"\x80" * 9 + b"\0"


def zstd_data(values):
    return b"z" + varint(len(LISTED)) + LISTED + values


WRONG = {
    "more data than there is": (Laid(data_of(RECORD), 100, size=104), chunks.OUTSIDE),
    "data beyond all files": (Laid(data_of(RECORD), 100, size=2**62), chunks.OUTSIDE),
    "data to the largest number": (Laid(data_of(RECORD), 100, size=2**63 - 1), chunks.OUTSIDE),
    "data of a negative size": (Laid(data_of(RECORD), 100, size=2**63), chunks.OUTSIDE),
    "data of size -1": (Laid(data_of(RECORD), 100, size=2**64 - 1), chunks.OUTSIDE),
    "less data than was hashed": (Laid(data_of(RECORD), 100, size=102), chunks.DATA_HASH),
    "transposed": (Laid(data_of(RECORD), 100, kind="t"), chunks.KIND),
    "padding": (Laid(data_of(RECORD), 100, kind="p"), chunks.KIND),
    "brotli": (Laid(b"b" + data_of(RECORD)[1:], 100), chunks.KIND),
    "snappy": (Laid(b"s" + data_of(RECORD)[1:], 100), chunks.KIND),
    "no data": (Laid(b"", 0), chunks.CONTRADICTION),
    "a signature": (Laid(b"", 0, kind="s", records=0), chunks.CONTRADICTION),
    "compression and nothing else": (Laid(b"\0", 100), chunks.CONTRADICTION),
    "a negative number of records": (Laid(data_of(RECORD), 100, records=2**55), chunks.CONTRADICTION),
    "a negative number of bytes": (Laid(data_of(RECORD), 2**63), chunks.CONTRADICTION),
    "sizes to beyond the data": (Laid(b"\0" + varint(103) + RECORD, 100), chunks.CONTRADICTION),
    "sizes of the largest number": (Laid(b"\0" + varint(2**63 - 1) + RECORD, 100), chunks.CONTRADICTION),
    "sizes of 64 bits": (Laid(b"\0" + varint(2**64 - 1) + RECORD, 100), chunks.CONTRADICTION),
    "sizes that never end": (Laid(b"\0" + ENDLESS + RECORD, 100), chunks.CONTRADICTION),
    "a number with needless zeros": (Laid(b"\0" + TOO_LONG + RECORD, 100), chunks.CONTRADICTION),
    "a number that the data ends in": (Laid(b"\0\xff\xff", 100), chunks.CONTRADICTION),
    "fewer values than promised": (Laid(data_of(RECORD)[:-1], 100), chunks.CONTRADICTION),
    "more values than promised": (Laid(data_of(RECORD) + b"x", 100), chunks.CONTRADICTION),
    "a frame of other size": (Laid(zstd_data(varint(99) + FRAME), 100), chunks.CONTRADICTION),
    "a frame of a negative size": (Laid(zstd_data(varint(2**64 - 1) + FRAME), 100), chunks.CONTRADICTION),
    "a frame whose size never ends": (Laid(zstd_data(ENDLESS), 100), chunks.CONTRADICTION),
    "no frame": (Laid(zstd_data(b""), 100), chunks.CONTRADICTION),
    "a frame of nothing": (Laid(zstd_data(varint(100)), 100), chunks.FRAME),
    "half a frame": (Laid(zstd_data(varint(100) + FRAME[:50]), 100), chunks.FRAME),
    "a frame and a byte": (Laid(zstd_data(varint(100) + FRAME + b"x"), 100), chunks.FRAME),
    "a frame of fewer bytes": (Laid(zstd_data(varint(100) + zstandard.compress(RECORD[1:])), 100), chunks.FRAME),
    "a frame of more bytes": (Laid(zstd_data(varint(100) + zstandard.compress(RECORD * 9)), 100), chunks.FRAME),
    "no frame at all": (Laid(zstd_data(varint(100) + RECORD), 100), chunks.FRAME),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_chunk_that_contradicts_itself_is_named(name):
    laid, expected = WRONG[name]
    assert read_as_defined(laid.chunk, 100, verify=chunks.ALWAYS) == expected
    assert decode_as_defined(laid.chunk) == expected


@pytest.mark.parametrize("name", WRONG)
def test_a_chunk_that_contradicts_itself_is_noticed_without_hashes(name):
    laid, expected = WRONG[name]
    if expected == chunks.DATA_HASH:
        expected = chunks.CONTRADICTION
    assert read_as_defined(laid.chunk, 100) == expected
    assert decode_as_defined(laid.chunk, verify=False) == expected


@MODULES
def test_a_chunk_ends_at_its_limit(module):
    chunk = laid_record(RECORD).chunk
    begin, size = chunk.begin, chunk.limit - chunk.begin
    assert decode(module, chunk) == [RECORD]
    for limit in (-1, *(begin + count for count in (0, 1, 39, 40, 41, size - 1))):
        assert decode(module, chunk._replace(limit=limit)) == chunks.OUTSIDE
        assert read(module, chunk._replace(limit=limit), 100) == chunks.OUTSIDE
    assert decode(module, chunk._replace(begin=-1)) == chunks.OUTSIDE


@MODULES
def test_of_half_a_header_not_even_the_hash_is_looked_at(module):
    laid = laid_record(RECORD)
    laid.memory[laid.places[:CHUNK_HEADER]] = 0
    assert decode(module, laid.chunk) == chunks.HEADER_HASH
    for size in (8, CHUNK_HEADER - 1):
        assert decode(module, laid.chunk._replace(limit=laid.begin + size)) == chunks.OUTSIDE


@MODULES
def test_the_bytes_of_block_headers_count_up_to_the_limit(module):
    chunk = laid_record(RECORD, begin=BLOCK - 10).chunk
    assert chunk.limit - chunk.begin == CHUNK_HEADER + 3 + 100 + BLOCK_HEADER
    assert decode(module, chunk) == [RECORD]
    assert decode(module, chunk._replace(limit=chunk.limit - 1)) == chunks.OUTSIDE


@BOTH_CODECS
def test_records_of_another_size_than_a_row_are_named(codec):
    laid = laid_record(RECORD, codec)
    for row in (0, 1, 99, 101):
        assert read_as_defined(laid.chunk, row) == chunks.ROW_SIZE
    for step in (3, 8, 101, 2**40):
        assert read_as_defined(laid.chunk, 3 * 8 * 101, step=step) == chunks.STEP_SIZE
    for records in (0, 2, 100):
        laid = Laid(data_of(RECORD, codec=codec), 100, records=records)
        assert read_as_defined(laid.chunk, 100) == chunks.CONTRADICTION


def test_a_frame_must_fit_into_the_memory_there_is():
    for begin in (SIGNATURE_END, BLOCK - 100):
        laid = laid_record(RECORD, "zstd", begin=begin)
        assert read_as_defined(laid.chunk, 100, scratch=len(FRAME)) == RECORD
        assert read_as_defined(laid.chunk, 100, scratch=len(FRAME) - 1) == chunks.ROOM
        assert decode_as_defined(laid.chunk, scratch=len(FRAME)) == [RECORD]
        assert decode_as_defined(laid.chunk, scratch=len(FRAME) - 1) == chunks.ROOM


def test_a_frame_that_is_cut_must_fit_together_with_what_is_in_it():
    for begin in (SIGNATURE_END, BLOCK - 100):
        laid, both = laid_record(RECORD, "zstd", begin=begin), len(FRAME) + 100
        assert read_as_defined(laid.chunk, 40, step=4, scratch=both) == RECORD[:40]
        for scratch in (0, 99, 100, both - 1):
            assert read_as_defined(laid.chunk, 40, step=4, scratch=scratch) == chunks.ROOM


def test_sizes_of_no_compression_need_no_memory():
    laid = laid_record(RECORD, begin=BLOCK - 100)
    assert read_as_defined(laid.chunk, 100, scratch=0) == RECORD
    assert decode_as_defined(laid.chunk, scratch=0) == [RECORD]


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
    laid = Laid(data_of(RECORD, codec=codec, listed=LISTS[name]), 100, records=2)
    assert decode_as_defined(laid.chunk) == chunks.CONTRADICTION
    assert decode_as_defined(laid.chunk, sizes=len(LISTS[name])) == chunks.CONTRADICTION


@BOTH_CODECS
def test_sizes_of_records_must_add_up_without_wrapping(codec):
    listed = varint(2**63 - 1) + varint(2**63 - 1) + varint(102)
    laid = Laid(data_of(RECORD, codec=codec, listed=listed), 100, records=3)
    assert decode_as_defined(laid.chunk) == chunks.CONTRADICTION


def test_a_number_may_have_zeros_in_front_up_to_nine_bytes():
    def long(number):
        return bytes([number | 128, *[128] * 7, 0])

    listed = varint(9) + zstandard.compress(long(100))
    for data in (
        b"\0" + long(1) + varint(100) + RECORD,
        b"\0" + varint(9) + long(100) + RECORD,
        b"z" + varint(len(listed)) + listed + long(100) + FRAME,
    ):
        laid = Laid(data, 100)
        assert decode_as_defined(laid.chunk) == [RECORD]
        assert read_as_defined(laid.chunk, 100, alignment=2**40) == RECORD


@BOTH_CODECS
def test_the_memory_for_records_must_be_as_large_as_they_are(codec):
    laid = Laid(data_of(RECORD[:40], RECORD[40:], codec=codec), 100, records=2)
    assert decode_as_defined(laid.chunk, sizes=2) == [RECORD[:40], RECORD[40:]]
    assert decode_as_defined(laid.chunk, sizes=1) == chunks.CONTRADICTION
    for values in (0, 99, 101):
        assert decode_as_defined(laid.chunk, values=values) == chunks.CONTRADICTION


def test_sizes_in_a_broken_frame_are_named():
    broken = b"z" + varint(len(LISTED)) + LISTED[:-1] + b"\xff" + packed(RECORD)
    whole = Laid(broken, 100)
    short = Laid(b"z" + varint(len(LISTED) - 1) + LISTED[:-1] + packed(RECORD), 100)
    for laid in (whole, short):
        assert decode_as_defined(laid.chunk) in (chunks.FRAME, chunks.CONTRADICTION)
    assert decode_as_defined(short.chunk) == chunks.FRAME


# Without hashes anything may stand in a file.


class Walled:
    """A chunk between pages that cannot be touched: at the beginning of those that can be, or at their end."""

    def __init__(self, laid, at_end):
        page, size = mmap.PAGESIZE, laid.limit - laid.begin
        middle = -(-size // page) * page
        self._map = mmap.mmap(-1, middle + 2 * page)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self.start = page + (middle - size if at_end else 0)
        self._bytes[self.start : self.start + size] = laid.memory[laid.begin : laid.limit]
        base = self._bytes.ctypes.data + self.start - laid.begin
        self.chunk = Chunk(base, laid.begin, laid.limit, self._bytes)
        self.content = self._bytes[self.start : self.start + size]
        self._walls = [self._bytes.ctypes.data, self._bytes.ctypes.data + page + middle]

    def _protect(self, protection):
        change = ctypes.CDLL(None, use_errno=True).mprotect
        for wall in self._walls:
            assert change(ctypes.c_void_p(wall), ctypes.c_size_t(mmap.PAGESIZE), protection) == 0

    def __enter__(self):
        self._protect(0)
        return self

    def __exit__(self, *exception):
        self._protect(mmap.PROT_READ | mmap.PROT_WRITE)


@BOTH_CODECS
@pytest.mark.parametrize(("begin", "at_end"), [(SIGNATURE_END, True), (BLOCK - 50, False)])
def test_no_flipped_bit_leads_out_of_a_chunk(codec, begin, at_end):
    record = random_bytes(24, values=4).tobytes()
    laid = laid_record(record, codec, begin=begin)
    outcomes = set()
    with Walled(laid, at_end) as walled:
        for place in laid.places - laid.begin:
            for bit in range(8):
                walled.content[place] ^= 1 << bit
                rows = [
                    read_as_defined(walled.chunk, 24),
                    read_as_defined(walled.chunk, 16, step=8, padding=b"x" * 16, scratch=60),
                ]
                decode_as_defined(walled.chunk, verify=False)
                outcomes |= {row for row in rows if isinstance(row, int)}
                walled.content[place] ^= 1 << bit
    assert outcomes >= {chunks.OUTSIDE, chunks.KIND, chunks.CONTRADICTION, chunks.ROW_SIZE}


@BOTH_CODECS
@pytest.mark.parametrize("at_end", [False, True])
def test_nothing_that_stands_in_a_chunk_leads_out_of_it(codec, at_end):
    rng = np.random.default_rng(at_end)
    large = np.array([0, 1, 127, 128, 255], np.uint8)
    for begin in (SIGNATURE_END, BLOCK - 41, BLOCK - 3):
        laid = laid_record(random_bytes(24, values=4).tobytes(), codec, begin=begin)
        with Walled(laid, at_end) as walled:
            intact = walled.content.copy()
            for _ in range(150):
                # Not all of the sizes and hashes at once, which would nearly always be refused for the first.
                places = rng.choice(laid.places, rng.integers(1, 6)) - laid.begin
                walled.content[places] = rng.choice(large, len(places))
                read_as_defined(walled.chunk, 24)
                read_as_defined(walled.chunk, 16, step=8, padding=b"x" * 16, scratch=60)
                decode_as_defined(walled.chunk, verify=False)
                walled.content[:] = intact


def test_what_lies_beyond_a_wall_cannot_be_touched():
    end, pipe = os.pipe()

    def can_be_read(address):
        # The operating system says so where an ordinary access would end the process.
        return ctypes.CDLL(None).write(pipe, ctypes.c_void_p(address), ctypes.c_size_t(1)) == 1

    for at_end in (False, True):
        with Walled(laid_record(RECORD), at_end) as walled:
            base, begin, limit, _ = walled.chunk
            assert can_be_read(base + begin)
            assert can_be_read(base + limit - 1)
            assert can_be_read(base + limit) != at_end
            assert can_be_read(base + begin - 1) == at_end
    os.close(end)
    os.close(pipe)


# The index.

ENTRY = b"\x08" + varint(64) + b"\x10" + varint(100) + b"\x18" + varint(1)
LARGEST = 2**63 - 1


def index_of(module, entries):
    values = np.frombuffer(b"metadata" + b"".join(entries) + b"\xff", np.uint8)
    ends = 8 + np.cumsum([0, *map(len, entries)], dtype=np.int64)
    index = np.full((3, len(entries)), -7, np.int64)
    return int(module.read_index(values, ends, *index)), index.T.tolist()


@MODULES
def test_an_index_has_three_numbers_of_each_chunk(module):
    numbers = [[64, 100, 1], [0, 0, 0], [LARGEST, 2**40, 127], [128, LARGEST, LARGEST]]
    entries = [
        b"\x08" + varint(offset) + b"\x10" + varint(size) + b"\x18" + varint(count)
        for offset, size, count in numbers
    ]
    assert index_of(module, entries) == (-1, numbers)
    turned = b"\x18" + varint(3) + b"\x08" + varint(300) + b"\x10" + varint(2)
    assert index_of(module, [turned]) == (-1, [[300, 2, 3]])
    assert index_of(module, [b"\x08\x05" + ENTRY]) == (-1, [[64, 100, 1]])


@MODULES
@pytest.mark.parametrize(
    "entry",
    [
        b"",
        ENTRY[:-2],
        ENTRY[:-1],
        ENTRY[2:],
        ENTRY[:-1] + b"\x80",
        ENTRY + b"\x08",
        ENTRY + b"\x20\0",
        ENTRY + b"\x0a\x01x",
        b"\x08" + varint(2**64 - 1) + ENTRY[2:],
        b"\x08" + b"\x80" * 9 + b"\0" + ENTRY[2:],
        b"\x08" + b"\xff" * 30,
    ],
)
def test_an_entry_of_an_index_that_is_none_is_named(module, entry):
    wrong, found = index_of(module, [ENTRY, ENTRY, entry, ENTRY])
    assert wrong == 2
    assert found == [[64, 100, 1], [64, 100, 1], [-7] * 3, [-7] * 3]


# Rows of several files.


@pytest.mark.parametrize("lengths", [[5], [1], [3, 4, 2], [0, 3, 0, 0, 2, 0], [1] * 20])
def test_a_row_is_located_in_the_file_that_holds_it(lengths):
    starts = np.cumsum([0, *lengths], dtype=np.int64)
    indices = [
        1000 * file + np.arange(length + 1, dtype=np.int64) ** 2
        for file, length in enumerate(lengths)
    ]
    bases = 10**9 + np.arange(len(lengths), dtype=np.int64)
    settings = 10**6 + np.arange(len(lengths), dtype=np.int64)
    # Every third file is read by other means.
    offsets = np.array(
        [0 if file % 3 == 2 else index.ctypes.data for file, index in enumerate(indices)], np.int64
    )
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(starts[-1]), 2))
    found = []
    for module in (chunks, reference):
        entries = np.full((len(rows), chunks.ENTRY_WORDS), -7, np.int64)
        addresses = np.full(len(rows), -7, np.int64)
        module.locate_records(rows, starts, bases, settings, offsets, entries, addresses)
        assert addresses.tolist() == [entry.ctypes.data for entry in entries]
        found.append(entries.tolist())

    assert found[0] == found[1]
    owners = np.repeat(np.arange(len(lengths)), lengths)
    assert entries[:, chunks.BASE].tolist() == bases[owners[rows]].tolist()
    assert (entries[:, chunks.CHUNK] == rows - starts[owners[rows]]).all()
    assert ((entries[:, chunks.BEGIN] == -1) == (owners[rows] % 3 == 2)).all()


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
    """A file of rows of 3000 bytes, some of them in two blocks."""
    return File(tmp_path / "even", f"group_size:1,{request.param}", [3000] * 50)


def fetch(module, rows, size, places):
    out, progress = Guarded(size * len(places)), np.full(2, -1, np.int64)
    room = Scratch(ROOM)
    function, addresses = address_of(chunks.read_record, 3), rows.addresses[places]
    module.fetch_rows(function, addresses, WORKER.address, size, out.array, progress)
    out.check()
    room.check()
    return out.array.reshape(-1, size), progress.tolist()


@MODULES
@pytest.mark.parametrize("alignment", [1, 2**40])
def test_rows_are_fetched_into_one_array(module, alignment, even):
    rows = Rows(even, 3000, alignment)
    places = np.random.default_rng(0).permutation(50)
    out, progress = fetch(module, rows, 3000, places)
    assert progress == [50, 0]
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
    out, progress = fetch(module, rows, 3000, np.arange(49, -1, -1))
    assert progress == [42, chunks.DATA_HASH]


@MODULES
def test_rows_of_another_size_are_not_fetched(module, even):
    out, progress = fetch(module, Rows(even, 2999), 2999, np.arange(4))
    assert progress == [0, chunks.ROW_SIZE]
    assert (out == UNTOUCHED).all()
