"""Cost of reading records: groups decoded once, bounded memory, no open files left, a small index."""

import gc
import os
import pathlib
import time

import numpy as np
import psutil
import pytest

from loaderx import ARDataset, DataLoader, NPDataset
from loaderx import transforms as T  # noqa: N812 - as its users call it
from loaderx.kernels import chunks
from loaderx.sources.records import reader
from loaderx.sources.records.file import RecordFile
from loaderx.sources.records.worker import worker
from tests.descriptors import descriptors
from tests.loaderx.sources.record_files import GROUPS, KINDS, SLOW, opened, write
from tests.loaderx.sources.rows import assert_same, one_pass, values
from tests.waiting import join, started

ARRAY = values((700, 50), "f4")


@pytest.fixture(scope="module", autouse=True)
def _quick_collections():
    """Freeze the objects that other tests left: most of these tests run the garbage collector."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def decoded(monkeypatch):
    """Return the chunks decoded from now on, by number."""
    found = []
    read_chunk = RecordFile.read_chunk

    def counted(self, number):
        found.append(int(number))
        return read_chunk(self, number)

    monkeypatch.setattr(RecordFile, "read_chunk", counted)
    return found


@pytest.mark.parametrize("transforms", [None, [T.Normalize(0.5, 0.25)]], ids=["plain", "compiled"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_group_is_decoded_once_per_batch(tmp_path, decoded, monkeypatch, transforms, workers):
    monkeypatch.setattr(reader, "CACHE_BYTES", 0)
    source = ARDataset(write(tmp_path / "rows.ar", ARRAY, GROUPS["7"]), "f4", (50,))
    loader = DataLoader(
        source, batch_size=350, output="numpy", transforms=transforms, workers=workers, num_epochs=1
    )
    decoded.clear()
    loader.batch(0)
    assert sorted(decoded) == sorted(set(loader.indices(0) // 7))
    decoded.clear()
    with iter(loader) as iterator:
        steps = len(list(iterator))
    assert steps == 2
    wanted = [chunk for step in range(2) for chunk in set(loader.indices(step) // 7)]
    assert sorted(decoded) == sorted(wanted)


@pytest.mark.parametrize("batch_size", [3, 10, 64])
def test_in_order_a_group_is_decoded_once_overall(tmp_path, decoded, batch_size):
    source = ARDataset(write(tmp_path / "rows.ar", ARRAY, GROUPS["7"]), "f4", (50,))
    loader = DataLoader(source, batch_size=batch_size, shuffle=False, output="numpy", num_epochs=1)
    decoded.clear()
    batches = [loader.batch(step) for step in range(len(loader))]
    assert_same(np.concatenate(batches), ARRAY)
    # The first chunk was decoded when the file was opened, to compare its records with the shape, and is cached.
    assert decoded == list(range(1, 100))


def test_groups_that_fit_into_memory_are_decoded_once_for_many_epochs(tmp_path, decoded):
    source = ARDataset(write(tmp_path / "rows.ar", ARRAY, GROUPS["7"]), "f4", (50,))
    decoded.clear()
    loader = DataLoader(source, batch_size=64, output="numpy", num_epochs=3)
    assert sum(len(loader.batch(step)) for step in range(len(loader))) == 2100
    assert sorted(decoded) == list(range(1, 100))


# Bytes of one group of seven rows, and of the ends of its records.
GROUP = 7 * (200 + 8)


@pytest.mark.parametrize("files", [1, 5])
def test_chunks_that_are_kept_take_bounded_memory(tmp_path, decoded, monkeypatch, files):
    monkeypatch.setattr(reader, "CACHE_BYTES", 10 * GROUP + 1)
    path = write(tmp_path / "rows.ar", ARRAY, GROUPS["7"])
    source = ARDataset([path] * files, "f4", (50,))
    threads = [started(lambda: source[:]) for _ in range(3)]
    join(*threads)
    source[:]
    decoded.clear()
    # Backwards: the ten chunks used last are cached, all others are not.
    for row in range(700 * files - 1, 0, -7):
        source[row]
    assert decoded == [*range(89, -1, -1), *list(range(99, -1, -1)) * (files - 1)]


def test_a_chunk_that_two_threads_read_at_once_counts_once():
    chunk = np.zeros(100, np.uint8), np.zeros(1, np.int64)
    reads = []

    class File:
        def read_chunk(self, number):
            reads.append(number)
            if len(reads) == 1:
                # Meanwhile another thread reads it under its own lock, as the first lock was released.
                kept._busy.clear()
                kept.chunk(self, number)
            return chunk

    kept = reader.ChunkCache()
    file = File()
    for _ in range(3):
        assert kept.chunk(file, 0) is chunk
    assert reads == [0, 0]
    assert kept._bytes == 108


def test_threads_that_need_one_group_decode_it_once(tmp_path, monkeypatch):
    source = ARDataset(write(tmp_path / "rows.ar", ARRAY, GROUPS["7"]), "f4", (50,))
    read_chunk = RecordFile.read_chunk
    found = []

    def slow(self, number):
        found.append(number)
        time.sleep(0.2)
        return read_chunk(self, number)

    monkeypatch.setattr(RecordFile, "read_chunk", slow)
    threads = [started(lambda: source[7]) for _ in range(4)]
    join(*threads)
    assert found == [1]


def test_a_chunk_larger_than_what_is_kept_is_read_and_not_kept(tmp_path, decoded, monkeypatch):
    monkeypatch.setattr(reader, "CACHE_BYTES", GROUP - 1)
    source = ARDataset(write(tmp_path / "rows.ar", ARRAY, GROUPS["7"]), "f4", (50,))
    assert_same(source[:], ARRAY)
    decoded.clear()
    assert_same(source[[699, 695]], ARRAY[[699, 695]])
    source[699]
    assert decoded == [99, 99]


def test_of_records_alone_in_their_chunk_none_is_decoded_in_python(tmp_path, decoded):
    for options in ("zstd", "uncompressed"):
        source = ARDataset(write(tmp_path / "rows.ar", ARRAY, KINDS[options]), "f4", (50,))
        decoded.clear()
        one_pass(source, batch_size=64)
        assert decoded == []


def maps_of(folder):
    """Return how many mappings of files in a folder this process has."""
    return pathlib.Path("/proc/self/maps").read_text().count(str(folder))


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("kind", [*KINDS, "padded", "bytes", "decoded", "failing"])
def test_nothing_stays_open(tmp_path, kind, mmap):
    array = ARRAY[:20]
    options = KINDS.get(kind, KINDS["zstd"])
    path = write(tmp_path / "rows.ar", array, options)

    def use():
        if kind == "padded":
            ARDataset(path, "f4", (None,), pad_to=60, mmap=mmap)[:]
        elif kind == "bytes":
            ARDataset(path, mmap=mmap)[:]
        elif kind == "decoded":
            ARDataset(path, decode=lambda record: np.frombuffer(record, "f4"), mmap=mmap)[:]
        elif kind == "failing":
            with pytest.raises(ValueError, match="record 0"):
                ARDataset(path, "f4", (49,), mmap=mmap)
        else:
            source = opened(path, array, options, mmap=mmap)
            source.select([3, 4])[:]
            (source + source)[:]

    use()
    gc.collect()
    before = descriptors()
    for _ in range(50 if kind in ("zstd", "7") else 5):
        use()
    gc.collect()
    assert descriptors() - before == set()
    assert maps_of(tmp_path) == 0


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_stays_open_after_a_loader(tmp_path, kind, mmap):
    path = write(tmp_path / "rows.ar", ARRAY, KINDS[kind])
    gc.collect()
    before = descriptors()
    for _ in range(5):
        source = opened(path, ARRAY, KINDS[kind], mmap=mmap)
        loader = DataLoader(source, batch_size=64, output="numpy", workers=2)
        with iter(loader) as iterator:
            next(iterator)
        del source, loader, iterator
    gc.collect()
    assert descriptors() - before == set()
    assert maps_of(tmp_path) == 0


def test_a_data_set_needs_one_descriptor_per_file(tmp_path):
    paths = [write(tmp_path / f"{number}.ar", ARRAY[:5]) for number in range(20)]
    for mmap in (True, False):
        gc.collect()
        before = descriptors()
        source = ARDataset(paths, "f4", (50,), mmap=mmap)
        assert len(descriptors() - before) <= 20
        view = source.select([99])
        del source
        assert_same(view[0], ARRAY[4])
        del view
        gc.collect()
        assert descriptors() - before == set()


def test_rows_outlive_their_data_set(tmp_path):
    for options in KINDS.values():
        source = opened(write(tmp_path / "rows.ar", ARRAY, options), ARRAY, options)
        rows = source[:]
        del source
        gc.collect()
        os.truncate(tmp_path / "rows.ar", 0)
        assert_same(rows, ARRAY)


# The index.


def owned_bytes(file):
    """Return the memory of the arrays of a file; an array of one repeated number has a stride of 0."""
    arrays = [
        array
        for array in vars(file).values()
        if isinstance(array, np.ndarray) and len(array) != file.size
    ]
    assert len(arrays) >= 3
    return sum(array.itemsize if array.strides == (0,) else array.nbytes for array in arrays)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Return a file of 200,000 records in chunks of their own."""
    folder = tmp_path_factory.mktemp("large")
    return write(folder / "rows.ar", (b"%04d" % (i % 9999) for i in range(200_000)))


@pytest.mark.parametrize("mmap", [True, False])
def test_the_index_of_rows_needs_at_most_16_bytes_per_record(large, mmap):
    source = ARDataset(large, "u1", (4,), mmap=mmap)
    source[:100]
    (own,) = source.rows._readers
    assert owned_bytes(own.file) <= 16 * 200_000
    for holder in (own, source, source.rows):
        long = [
            name
            for name, array in vars(holder).items()
            if isinstance(array, np.ndarray) and len(array) > 20_000
        ]
        assert long == []


@pytest.mark.parametrize("options", [{}, {"dtype": "u1", "shape": (None,), "pad_to": 5}])
def test_the_index_of_records_of_any_length_needs_no_more(large, options):
    source = ARDataset(large, **options)
    rows = source.rows.fields["data"] if options else source.rows
    assert owned_bytes(rows._readers[0].file) <= 16 * 200_000


def test_opening_a_file_leaves_no_memory_as_large_as_its_index(large):
    found = []

    def use():
        source = ARDataset(large, "u1", (4,))
        source[:10]
        found.append(int(worker(0).words[chunks.SCRATCH_SIZE]))

    join(started(use))
    # A record needs some hundred bytes of its file.
    assert found[0] < 65536


def test_many_records_are_found(large):
    source = ARDataset(large, "u1", (4,))
    rows = np.random.default_rng(0).integers(0, 200_000, 5000)
    wanted = np.array([list(b"%04d" % (row % 9999)) for row in rows.tolist()], np.uint8)
    assert_same(source[rows], wanted)
    assert_same(one_pass(source.select(rows), batch_size=512), wanted)


def test_a_large_file_for_the_package_is_opened_once_per_thread(tmp_path):
    path = write(tmp_path / "rows.ar", ARRAY, SLOW["brotli"])
    source = opened(path, ARRAY, SLOW["brotli"])
    source[0]
    before = descriptors()
    for row in range(50):
        assert_same(source[row], ARRAY[row])
    assert descriptors() - before == set()


def test_memory_does_not_grow_with_the_number_of_batches(tmp_path):
    array = values((64, 40000), "u1")
    source = ARDataset(write(tmp_path / "rows.ar", array, KINDS["zstd"]), "u1", (40000,))
    loader = DataLoader(source, NPDataset(np.arange(64)), batch_size=32, output="numpy", workers=2)
    process = psutil.Process()
    with iter(loader) as iterator:
        for _ in range(30):
            next(iterator)
        before = process.memory_info().rss
        for _ in range(300):
            next(iterator)
        # One leaked batch of those would be 1.3 MB.
        assert process.memory_info().rss - before < 40 << 20
