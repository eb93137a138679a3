"""A file by `write_array_record` describes its own records."""

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader

from loaderx import ARDataset, ArgumentError, DataError, NPDataset, Spec, write_array_record
from loaderx import transforms as T  # noqa: N812 - as its users call it
from tests.loaderx.sources.record_files import assert_reads_as, write
from tests.loaderx.sources.rows import (
    NUMBERS,
    assert_delivers,
    assert_same,
    native,
    one_pass,
    values,
)

WAYS = [
    {"compression": "zstd"},
    {"compression": "uncompressed"},
    {"compression": "zstd", "group_size": 7},
    {"compression": None, "group_size": 7},
]


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_rows_come_back_as_they_were_written(tmp_path, options, mmap):
    for shape, dtype in (((30, 4, 3), "f4"), ((30,), ">i8"), ((30, 0), "u1"), ((3, 70000), "u1")):
        array = values(shape, dtype)
        path = tmp_path / "rows.ar"
        write_array_record(path, array, progress=False, **options)
        assert_reads_as(ARDataset(path, mmap=mmap), array)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_of_every_dtype_are_noted(tmp_path, dtype):
    array = values((20, 3), dtype)
    write_array_record(tmp_path / "rows.ar", array, progress=False)
    source = ARDataset(tmp_path / "rows.ar")
    assert source.spec == Spec((3,), np.dtype(dtype).newbyteorder("="))
    assert_delivers(source, array)
    records = ArrayRecordReader(str(tmp_path / "rows.ar")).read_all()
    # In the byte order of the machine, whatever the byte order of the array.
    assert records == [row.tobytes() for row in native(array)]


def test_a_loader_needs_no_more(tmp_path):
    array = values((40, 8, 8, 3), "u1")
    write_array_record(tmp_path / "rows.ar", array, progress=False)
    transforms = [T.RandomFlip(), T.ToFloat()]
    assert_same(
        one_pass(ARDataset(tmp_path / "rows.ar"), transforms=transforms),
        one_pass(NPDataset(array), transforms=transforms),
    )


def test_arguments_of_the_caller_have_priority(tmp_path):
    array = values((20, 6), "f4")
    path = tmp_path / "rows.ar"
    write_array_record(path, array, progress=False)
    assert_same(ARDataset(path, shape=(2, 3))[:], array.reshape(20, 2, 3))
    assert_same(ARDataset(path, "i4")[:], array.view("i4"))
    assert_same(ARDataset(path, ">f4")[:], native(array.view(">f4")))
    assert_same(ARDataset(path, "u1", (24,))[:], array.view("u1"))
    decoded = ARDataset(path, decode=lambda record: np.frombuffer(record, "f4"))
    assert_same(decoded[:], array)


def test_a_dtype_that_contradicts_the_file_needs_a_shape(tmp_path):
    write_array_record(tmp_path / "rows.ar", values((20, 6), "f4"), progress=False)
    with pytest.raises(ArgumentError, match=r"the files hold <?f.*4, not float64; give a `shape`"):
        ARDataset(tmp_path / "rows.ar", np.float64)
    with pytest.raises(DataError, match=r"rows\.ar, record 0: it has 24 bytes, and float64\[6\]"):
        ARDataset(tmp_path / "rows.ar", np.float64, (6,))


def test_records_of_any_length_need_the_length_of_a_row_only(tmp_path):
    arrays = [values((length, 4), "f4", length) for length in (3, 0, 9, 5)]
    path = tmp_path / "texts.ar"
    write_array_record(path, arrays, progress=False)
    source = ARDataset(path, pad_to=5, pad_value=-1)
    rows = source[:]
    assert_same(rows["length"], np.array([3, 0, 5, 5], np.int32))
    for row, array in zip(rows["data"], arrays, strict=True):
        wanted = np.full((5, 4), -1, np.float32)
        wanted[: len(array)] = array[:5]
        assert_same(row, wanted)
    with pytest.raises(ArgumentError, match=r"`pad_to` .* integer of at least 1"):
        ARDataset(path)


def test_bytes_are_noted_as_nothing(tmp_path):
    records = [b"a", b"", b"bcd"]
    write_array_record(tmp_path / "texts.ar", records, progress=False)
    assert ARDataset(tmp_path / "texts.ar")[:] == records


def test_files_that_say_the_same_are_one_data_set(tmp_path):
    array = values((20, 6), "f4")
    for number in range(2):
        write_array_record(
            tmp_path / f"a-{number}-of-2",
            array[number::2],
            progress=False,
            group_size=1 + 6 * number,
        )
    expected = np.concatenate([array[::2], array[1::2]])
    assert_reads_as(ARDataset(tmp_path / "a@2"), expected)


def test_files_that_say_different_things_need_a_dtype_and_a_shape(tmp_path):
    array = values((20, 6), "f4")
    write_array_record(tmp_path / "a", array, progress=False)
    write_array_record(tmp_path / "b", array.reshape(20, 2, 3), progress=False)
    write(tmp_path / "c", array)
    for names in (("a", "b"), ("a", "c")):
        paths = [tmp_path / name for name in names]
        for arguments in ((), ("f4",)):
            with pytest.raises(DataError, match="records of different kinds"):
                ARDataset(paths, *arguments)
        assert_same(ARDataset(paths, "f4", (6,))[:], np.concatenate([array, array]))


def test_the_quick_start(tmp_path, monkeypatch):
    from loaderx import DataLoader

    monkeypatch.chdir(tmp_path)
    array, labels = values((20, 3, 30, 5, 2), "f4"), np.arange(20)
    np.save("train_data.npy", array)
    np.save("train_label.npy", labels)
    write_array_record(
        "train_data.ar", np.load("train_data.npy", mmap_mode="r"), compression="zstd"
    )
    dataset = ARDataset("train_data.ar", dtype=np.float32, shape=(3, 30, 5, 2))
    loader = DataLoader(dataset, NPDataset("train_label.npy"), batch_size=6, output="numpy")
    rows = loader.indices(2)
    assert_same(loader.batch(2), {"data": array[rows], "label": labels[rows]})
