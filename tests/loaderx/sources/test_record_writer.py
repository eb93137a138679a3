"""Files by write_array_record equal those of array_record, which reads them; a file is complete or absent."""

import contextlib
import io
import json
import os
import stat
import sys
import threading
import time

import ml_dtypes
import numpy as np
import pytest
import zstandard

from loaderx.errors import ArgumentError, DataError
from loaderx.kernels.blocks import chunk_end
from loaderx.sources.records import writer
from loaderx.sources.records.writer import write_array_record

module = pytest.importorskip("array_record.python.array_record_module")

BLOCK = 65536
CODECS = {None: "uncompressed", "uncompressed": "uncompressed", "zstd": "zstd:3"}
LARGE_RECORDS = (0, 1, 100, 3072, *range(65_472, 65_600, 16), 65_600, 180_000, 1_200_000)


def random_bytes(size, seed=0):
    return np.random.default_rng([size, seed]).bytes(size)


def records_of(path):
    reader = module.ArrayRecordReader(str(path))
    try:
        return reader.read_all()
    finally:
        reader.close()


def options_of(path):
    reader = module.ArrayRecordReader(str(path))
    try:
        return reader.writer_options_string()
    finally:
        reader.close()


def written_by_array_record(path, records, options):
    peer = module.ArrayRecordWriter(str(path), options)
    for record in records:
        peer.write(record)
    peer.close()
    return path.read_bytes()


def varint(data, place=0):
    number = shift = 0
    while True:
        number |= (data[place] & 127) << shift
        shift, place = shift + 7, place + 1
        if data[place - 1] < 128:
            return number, place


def footer_of(path):
    """Return the position of the footer and its first record; the footer must not span a block header."""
    content = path.read_bytes()
    # The postscript: block header, chunk header, no compression, one byte for three sizes, the sizes, tag.
    offset, _ = varint(content, len(content) - BLOCK + 24 + 40 + 5 + 1)
    data = content[offset + 40 + (24 if offset % BLOCK == 0 else 0) :]
    size, place = varint(data, 1)
    sizes, values = data[place : place + size], data[place + size :]
    if data[0]:
        _, skipped = varint(sizes)
        sizes = zstandard.ZstdDecompressor().decompress(sizes[skipped:])
        _, skipped = varint(values)
        values = zstandard.ZstdDecompressor().decompressobj().decompress(values[skipped:])
    return offset, values[: varint(sizes)[0]]


def content_of(path):
    """Return the dtype and shape in the footer, or None."""
    _, metadata = footer_of(path)
    place = 0
    while place < len(metadata):
        tag, place = varint(metadata, place)
        size, place = varint(metadata, place)
        if tag == 1000 << 3 | 2:
            return json.loads(metadata[place : place + size])
        place += size
    return None


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.array_record"


def assert_nothing_left(path):
    assert list(path.parent.iterdir()) == []


# Files are readable by other readers.


@pytest.mark.parametrize("group_size", [1, 7, 1000])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_array_record_reads_records_of_all_sizes(path, compression, group_size):
    records = [random_bytes(size) for size in LARGE_RECORDS]
    write_array_record(path, records, compression=compression, group_size=group_size)
    assert records_of(path) == records


@pytest.mark.parametrize("count", [1, 2, 10, 3000])
@pytest.mark.parametrize("group_size", [1, 7, 1000])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_array_record_reads_any_number_of_records(path, compression, group_size, count):
    records = [random_bytes(i % 301, i) for i in range(count)]
    write_array_record(path, iter(records), compression=compression, group_size=group_size)
    assert records_of(path) == records


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("group_size", [1, 32])
def test_the_footer_names_the_options_as_array_record_does(path, compression, group_size):
    options = f"group_size:{group_size},{CODECS[compression]}"
    written_by_array_record(path, [b"x"], options)
    expected = options_of(path)
    write_array_record(path, [b"x"], compression=compression, group_size=group_size)
    assert options_of(path) == expected


def test_the_level_is_used_and_named(path):
    data = np.repeat(np.random.default_rng(0).integers(0, 4, 40_000, dtype="u1"), 2)[None]
    sizes = []
    for level in (-50, 1, 19):
        write_array_record(path, data, level=level)
        sizes.append(footer_of(path)[0])
        assert f"zstd:{level},window_log:20" in options_of(path)
        assert records_of(path) == [data.tobytes()]
    assert sizes[0] > sizes[1] > sizes[2]


def test_a_data_source_reads_dtype_and_shape_or_not(path):
    sources = pytest.importorskip("array_record.python.array_record_data_source")
    array = np.arange(600, dtype="f4").reshape(20, 3, 10)
    write_array_record(path, array)
    with sources.ArrayRecordDataSource([str(path)]) as source:
        assert len(source) == 20
        assert source.__getitems__([19, 0]) == [array[19].tobytes(), array[0].tobytes()]


# The bytes equal those of array_record.


@pytest.mark.parametrize("group_size", [1, 7, 1000])
def test_an_uncompressed_file_of_bytes_is_that_of_array_record(path, group_size):
    records = [random_bytes(size) for size in LARGE_RECORDS]
    records += [random_bytes(i % 211, i) for i in range(3000)]
    expected = written_by_array_record(path, records, f"group_size:{group_size},uncompressed")
    write_array_record(path, records, compression=None, group_size=group_size)
    assert path.read_bytes() == expected


@pytest.mark.parametrize("group_size", [1, 7])
def test_an_uncompressed_file_of_an_array_is_that_of_array_record_up_to_the_footer(
    path, group_size
):
    array = np.random.default_rng(0).standard_normal((300, 500)).astype("f4")
    records = [row.tobytes() for row in array]
    expected = written_by_array_record(path, records, f"group_size:{group_size},uncompressed")
    end, metadata = footer_of(path)
    write_array_record(path, array, compression=None, group_size=group_size)
    assert footer_of(path)[0] == end
    assert path.read_bytes()[:end] == expected[:end]
    assert footer_of(path)[1].startswith(metadata)


def test_a_chunk_may_begin_at_any_legal_position_near_a_block(path):
    begins = set()
    for first in range(65_351, 65_458):
        records = [random_bytes(first), b"second", random_bytes(70_000), b""]
        expected = written_by_array_record(path, records, "group_size:1,uncompressed")
        write_array_record(path, records, compression=None, workers=1)
        assert path.read_bytes() == expected, first
        # Five bytes of data precede an uncompressed record of this length.
        begins.add(chunk_end(64, 5 + first, 1))
    assert begins == {*range(65_460, 65_537), *range(65_561, 65_591)}


def test_the_footer_may_end_at_any_legal_position_near_a_block(path):
    # About 160 bytes of footer follow the one record; if there is too little room, padding needs one more block.
    sizes = set()
    for first in range(65_536 - 109 - 240, 65_536 - 109 - 120):
        expected = written_by_array_record(path, [random_bytes(first)], "group_size:1,uncompressed")
        write_array_record(path, [random_bytes(first)], compression=None, workers=1)
        assert path.read_bytes() == expected, first
        sizes.add(len(expected))
    assert sizes == {2 * BLOCK, 3 * BLOCK}


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_chunks_of_more_records_than_bytes_are_padded(path, compression):
    records = [b""] * 70_000
    options = f"group_size:66000,{CODECS[compression]}"
    expected = written_by_array_record(path, records, options)
    write_array_record(path, records, compression=compression, group_size=66_000)
    assert records_of(path) == records
    assert len(path.read_bytes()) == len(expected)
    if compression is None:
        assert path.read_bytes() == expected


# Input.

ARRAY = np.random.default_rng(1).integers(-999, 999, (50, 6, 4), dtype="i4")
INPUTS = {
    "array": lambda folder: ARRAY,
    "list": lambda folder: list(ARRAY),
    "generator": lambda folder: (row for row in ARRAY),
    "fortran order": lambda folder: np.asfortranarray(ARRAY),
    "every second row": lambda folder: np.repeat(ARRAY, 2, axis=0)[::2],
    "rows backwards": lambda folder: ARRAY[::-1].copy()[::-1],
    "transposed rows": lambda folder: ARRAY.transpose(0, 2, 1).copy().transpose(0, 2, 1),
    "part of each row": lambda folder: np.pad(ARRAY, ((0, 0), (1, 1), (2, 0)))[:, 1:-1, 2:],
    "big-endian": lambda folder: ARRAY.astype(">i4"),
    "generator, big-endian": lambda folder: (row for row in ARRAY.astype(">i4")),
    "generator, transposed rows": lambda folder: (row.T.copy().T for row in ARRAY),
    "read-only": lambda folder: np.frombuffer(ARRAY.tobytes(), "i4").reshape(ARRAY.shape),
    "not aligned": lambda folder: (
        np.frombuffer(b"x" + ARRAY.tobytes(), "u1")[1:].view("i4").reshape(ARRAY.shape)
    ),
    "path of .npy": lambda folder: saved(folder, ARRAY),
    "str of .npy": lambda folder: str(saved(folder, ARRAY)),
    "path of .npy, big-endian": lambda folder: saved(folder, ARRAY.astype(">i4")),
    "path of .npy, fortran order": lambda folder: saved(folder, np.asfortranarray(ARRAY)),
    "mapped": lambda folder: np.load(saved(folder, ARRAY), mmap_mode="r"),
}


def saved(folder, array):
    np.save(folder / "x.npy", array)
    return folder / "x.npy"


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("kind", INPUTS)
def test_rows_are_stored_in_c_order_and_little_endian(tmp_path_factory, path, kind, compression):
    data = INPUTS[kind](tmp_path_factory.mktemp("inputs"))
    write_array_record(path, data, compression=compression, group_size=3)
    assert records_of(path) == [row.tobytes() for row in ARRAY]
    assert content_of(path) == {"loaderx": 1, "dtype": "<i4", "shape": [6, 4]}


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        ("u1", "|u1"),
        ("?", "|b1"),
        ("f2", "<f2"),
        (">c8", "<c8"),
        ("U3", "<U3"),
        ("M8[ns]", "<M8[ns]"),
        (ml_dtypes.bfloat16, "bfloat16"),
    ],
)
def test_the_dtype_is_stored(path, dtype, stored):
    array = np.arange(6).astype(dtype).reshape(3, 2)
    for data in (array, iter(array)):
        write_array_record(path, data)
        assert content_of(path) == {"loaderx": 1, "dtype": stored, "shape": [2]}
        values = b"".join(records_of(path))
        assert (np.frombuffer(values, np.dtype(stored)).reshape(3, 2) == array).all()


def test_scalars_are_records_too(path):
    write_array_record(path, np.arange(5, dtype="i8"))
    assert content_of(path)["shape"] == []
    assert records_of(path) == [np.int64(i).tobytes() for i in range(5)]


def test_rows_without_bytes_are_records_too(path):
    write_array_record(path, np.empty((5, 0, 3), "f4"))
    assert content_of(path)["shape"] == [0, 3]
    assert records_of(path) == [b""] * 5


def test_arrays_of_various_lengths_have_none_as_the_first_length(path):
    arrays = [np.full((length, 2), length, "f4") for length in (3, 3, 0, 5, 3)]
    write_array_record(path, iter(arrays))
    assert records_of(path) == [array.tobytes() for array in arrays]
    assert content_of(path) == {"loaderx": 1, "dtype": "<f4", "shape": [None, 2]}


def test_bytes_have_no_dtype_unless_it_is_given(path):
    write_array_record(path, [b"abcd", bytearray(b"efgh"), memoryview(b"ijkl")])
    assert content_of(path) is None
    assert records_of(path) == [b"abcd", b"efgh", b"ijkl"]
    write_array_record(path, [b"abcd", b"efgh"], dtype=">i2", shape=(2,))
    assert content_of(path) == {"loaderx": 1, "dtype": ">i2", "shape": [2]}
    write_array_record(path, [b"abcd", b"", b"abcdefgh"], dtype="u2", shape=(None, 2))
    assert content_of(path) == {"loaderx": 1, "dtype": "<u2", "shape": [None, 2]}
    assert records_of(path) == [b"abcd", b"", b"abcdefgh"]


def test_a_generator_may_fill_the_same_array_again(path):
    def refilled():
        row = np.zeros(1000, "u1")
        for i in range(200):
            row[:] = i
            yield row

    write_array_record(path, refilled())
    assert records_of(path) == [bytes([i]) * 1000 for i in range(200)]


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("group_size", [1, 30])
def test_neither_threads_nor_blocks_change_the_file(path, monkeypatch, compression, group_size):
    array = np.random.default_rng(0).integers(0, 9, (1000, 700), dtype="u1")
    files = set()
    for block_bytes in (1000, 100_000, 2 << 20):
        monkeypatch.setattr(writer, "BLOCK_BYTES", block_bytes)
        for workers in (1, 4):
            for data in (array, iter(array)):
                write_array_record(
                    path, data, compression=compression, group_size=group_size, workers=workers
                )
                files.add(path.read_bytes())
    assert len(files) == 1
    assert records_of(path) == [row.tobytes() for row in array]


def test_a_long_iterable_is_never_held_as_a_whole(path, monkeypatch):
    monkeypatch.setattr(writer, "BLOCK_BYTES", 10_000)
    placed, held = [], []
    place = writer.FileCursor.place

    def counting():
        for taken in range(2000):
            held.append(taken - sum(placed))
            yield bytes(1000)

    def placing(self, chunks):
        placed.append(len(chunks.records))
        return place(self, chunks)

    monkeypatch.setattr(writer.FileCursor, "place", placing)
    write_array_record(path, counting(), workers=2)
    assert len(held) == 2000
    assert max(held) <= 60


# All or nothing.


class BrokenError(Exception):
    pass


@pytest.mark.parametrize("error", [BrokenError, KeyboardInterrupt])
@pytest.mark.parametrize("after", [0, 1, 500])
def test_a_failing_generator_leaves_nothing(path, monkeypatch, error, after):
    monkeypatch.setattr(writer, "BLOCK_BYTES", 10_000)

    def failing():
        for i in range(after):
            yield random_bytes(1000, i)
        raise error

    with pytest.raises(error):
        write_array_record(path, failing())
    assert_nothing_left(path)
    path.write_bytes(b"precious")
    with pytest.raises(error):
        write_array_record(path, failing())
    assert path.read_bytes() == b"precious"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_in_a_thread_arrives_and_leaves_nothing(path, monkeypatch):
    def failing(placed):
        if threading.current_thread() is not threading.main_thread():
            raise BrokenError
        return frame(placed)

    frame = writer.frame
    monkeypatch.setattr(writer, "frame", failing)
    with pytest.raises(BrokenError):
        write_array_record(path, ARRAY)
    assert_nothing_left(path)


def test_the_file_appears_when_it_is_complete(path):
    def looking():
        for i in range(3):
            assert not path.exists()
            yield bytes([i])

    write_array_record(path, looking())
    assert list(path.parent.iterdir()) == [path]


def test_a_file_is_replaced_and_may_be_read_while_it_is(path):
    write_array_record(path, [b"old"] * 3)
    reader = module.ArrayRecordReader(str(path))
    write_array_record(path, [b"new"] * 5)
    assert reader.read_all() == [b"old"] * 3
    reader.close()
    assert records_of(path) == [b"new"] * 5


def test_a_link_keeps_pointing_to_the_file(path):
    target = path.with_name("target")
    path.symlink_to(target)
    write_array_record(path, [b"x"])
    assert path.is_symlink()
    assert records_of(target) == [b"x"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_the_file_has_the_rights_of_any_new_file(path, umask):
    before = os.umask(umask)
    try:
        write_array_record(path, [b"x"])
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


# Errors.


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"compression": "gzip"}, ArgumentError, "`compression` (='gzip') must be"),
        ({"level": 23}, ArgumentError, "`level` (=23) must be from -131072 to 22."),
        ({"level": -131_073}, ArgumentError, "`level` (=-131073)"),
        ({"level": "3"}, TypeError, "`level` (='3') must be an integer."),
        ({"group_size": 0}, ArgumentError, "`group_size` (=0) must be from 1"),
        ({"group_size": True}, TypeError, "`group_size` (=True) must be an integer."),
        ({"workers": 0}, ArgumentError, "`workers` (=0) must be from 1"),
        ({"data": np.array([None, 1])}, ArgumentError, "`data` has dtype object"),
        ({"data": np.zeros(3, "i4,f4")}, ArgumentError, "structured dtype"),
        ({"data": np.float32(3)}, ArgumentError, "`data` has no axes"),
        ({"data": np.empty((0, 3))}, ArgumentError, "`data` has no rows: its shape is (0, 3)."),
        ({"data": []}, ArgumentError, "`data` has no records"),
        ({"data": b"abc"}, TypeError, "`data` is one record of bytes"),
        ({"data": 5}, TypeError, "`data` is a int"),
        ({"data": [b"a", 5]}, TypeError, "record 1 of `data` is a int; records must be arrays or"),
        ({"data": [np.array([None])]}, ArgumentError, "record 0 of `data` has dtype object"),
        ({"data": "missing.npy"}, FileNotFoundError, "missing.npy"),
        ({"dtype": "f4", "shape": (3,)}, ArgumentError, "are for records of bytes"),
        ({"data": [b"abcd"], "dtype": "f4"}, ArgumentError, "give both or none"),
        ({"data": [b"abcd"], "shape": (1,)}, ArgumentError, "give both or none"),
        ({"data": [b"a"], "dtype": "O", "shape": ()}, ArgumentError, "`dtype` has dtype object"),
        (
            {"data": [b"a"], "dtype": "u1", "shape": (1, None)},
            ArgumentError,
            "only as its first entry",
        ),
        ({"data": [b"a"], "dtype": "u1", "shape": (-1,)}, ArgumentError, "`shape` (=-1)"),
        (
            {"data": [np.zeros(2, "f4")], "dtype": "f4", "shape": (2,)},
            ArgumentError,
            "record 0 of `data` is float32[2], an array; leave them out.",
        ),
    ],
)
def test_wrong_arguments_say_what_is_wrong_and_leave_nothing(path, arguments, error, message):
    with pytest.raises(error) as caught:
        write_array_record(path, **{"data": ARRAY, **arguments})
    assert message in str(caught.value)
    assert_nothing_left(path)


@pytest.mark.parametrize(
    ("sixth", "described"),
    [
        (np.zeros((3, 2), "f8"), "is float64[3, 2]"),
        (np.zeros((3, 3), "f4"), "is float32[3, 3]"),
        (np.zeros(3, "f4"), "is float32[3]"),
        (b"bytes", "is bytes"),
    ],
)
def test_a_record_unlike_those_before_is_named_with_both_specs(path, sixth, described):
    with pytest.raises(DataError) as caught:
        write_array_record(path, [*np.zeros((5, 3, 2), "f4"), sixth])
    message = f"record 5 of `data` {described}, and those before it are float32[3, 2]"
    assert message in str(caught.value)
    assert_nothing_left(path)


@pytest.mark.parametrize(("shape", "wrong"), [((2,), b"a"), ((None, 2), b"abc"), ((), b"")])
def test_bytes_that_are_not_what_was_promised_are_named(path, shape, wrong):
    good = bytes(2 * np.prod([length or 3 for length in shape], dtype=int))
    with pytest.raises(DataError, match=rf"record 2 of `data` has {len(wrong)} bytes"):
        write_array_record(path, [good, good, wrong], dtype="u2", shape=shape)
    assert_nothing_left(path)


def test_a_folder_that_is_missing_is_noticed_before_anything_is_read(tmp_path):
    def untouched():
        raise BrokenError
        yield

    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_array_record(tmp_path / "missing" / "x", untouched())
    with pytest.raises(ArgumentError, match="is a folder"):
        write_array_record(tmp_path, untouched())
    with pytest.raises(ArgumentError, match="not a regular file"):
        write_array_record("/dev/null", untouched())
    assert_nothing_left(tmp_path / "x")


# Progress.


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "progress", "shown"),
    [(Terminal, True, True), (Terminal, False, False), (io.StringIO, True, False)],
)
def test_a_bar_is_shown_on_a_terminal_only(path, monkeypatch, stream, progress, shown):
    monkeypatch.setattr(sys, "stderr", stream())
    write_array_record(path, ARRAY, progress=progress)
    assert ("50/50" in sys.stderr.getvalue()) == shown
    assert bool(sys.stderr.getvalue()) == shown


# Files of others, and files that a killed writer leaves.

ENDLESS = """
import itertools, sys
import numpy as np
from loaderx import write_array_record
write_array_record(sys.argv[1], (np.zeros(1 << 20, np.uint8) for _ in itertools.count()), workers=1)
"""


@contextlib.contextmanager
def writing(forking, path):
    """Yield a process that writes an endless file, once it has begun."""
    before = set(path.parent.iterdir())
    with forking.started(ENDLESS, path) as process:
        while not any(file.stat().st_size for file in set(path.parent.iterdir()) - before):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.01)
        yield process


def test_files_of_a_killed_writer_are_removed_by_the_next_and_no_others(forking, tmp_path):
    path = tmp_path / "x.ar"
    theirs = [
        "x.ar.partial",
        ".x.ar.unfinished",
        ".x.ar.0123456789ag.unfinished",
        ".y.0123456789ab.unfinished",
    ]
    for name in theirs:
        (tmp_path / name).write_text("not ours")
    # By their names these could be temporary files of the writer.
    (tmp_path / ".x.ar.0123456789aa.unfinished").mkdir()
    (tmp_path / ".x.ar.0123456789ab.unfinished").symlink_to(tmp_path / theirs[0])
    os.mkfifo(tmp_path / ".x.ar.0123456789ac.unfinished")
    before = set(tmp_path.iterdir())
    with writing(forking, path):
        pass
    (left,) = set(tmp_path.iterdir()) - before
    assert left.name.startswith(".x.ar.")
    write_array_record(path, np.arange(3), progress=False)
    assert set(tmp_path.iterdir()) - before == {path}
    assert before - set(tmp_path.iterdir()) == set()
    assert [(tmp_path / name).read_text() for name in theirs] == ["not ours"] * 4


def test_a_writer_at_work_keeps_its_file_while_another_writes_to_the_same_path(forking, tmp_path):
    path = tmp_path / "x.ar"
    with writing(forking, path):
        (growing,) = tmp_path.iterdir()
        write_array_record(path, np.arange(3), progress=False)
        assert set(tmp_path.iterdir()) == {growing, path}
    assert len(records_of(path)) == 3


@pytest.mark.parametrize("way", ["same", "relative", "link", "second name"])
def test_a_file_is_not_written_over_itself(tmp_path, monkeypatch, way):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.arange(5))
    before = (tmp_path / "x.npy").read_bytes()
    path = {"same": tmp_path / "x.npy", "relative": "../" + tmp_path.name + "/x.npy"}.get(
        way, "y.npy"
    )
    if way == "link":
        (tmp_path / "y.npy").symlink_to("x.npy")
    elif way == "second name":
        (tmp_path / "y.npy").hardlink_to("x.npy")
    with pytest.raises(ArgumentError, match="is the file that `data` names"):
        write_array_record(path, "x.npy", progress=False)
    assert (tmp_path / "x.npy").read_bytes() == before


def test_a_full_disk_names_the_file_and_leaves_nothing(forking, tmp_path):
    program = """
import resource, signal, sys
import numpy as np
from loaderx import write_array_record
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    write_array_record("x.ar", [b"x" * 70_000] * 5, compression=None)
except OSError as error:
    print(error.strerror, error.filename)
"""
    finished = forking.run(program, cwd=tmp_path)
    assert finished.stdout == f"File too large {tmp_path / 'x.ar'}\n", finished.stderr
    assert list(tmp_path.iterdir()) == []
