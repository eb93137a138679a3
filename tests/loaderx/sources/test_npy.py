"""NPDataset reads .npy files of every dtype, order, rank and version, one or several."""

import gc
import io
import os
import struct

import numpy as np
import pytest

from loaderx import ArgumentError, DataLoader, NPDataset, Spec
from tests.descriptors import descriptors
from tests.loaderx.sources.rows import (
    DTYPES,
    NUMBERS,
    assert_delivers,
    assert_same,
    for_jax,
    native,
    one_pass,
    values,
)

ORDERS = {"C": np.ascontiguousarray, "Fortran": np.asfortranarray}


@pytest.fixture
def save(tmp_path):
    def write(array, name="rows.npy"):
        path = tmp_path / name
        np.save(path, array)
        return path

    return write


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_file_of_any_dtype_and_order_is_read_as_numpy_loads_it(save, dtype, order):
    array = ORDERS[order](values((7, 3, 2), dtype))
    source = NPDataset(save(array))
    assert source.spec == Spec((3, 2), np.dtype(dtype).newbyteorder("="))
    assert_same(source[:], native(array))
    assert_same(source[5], native(array)[5])
    assert_same(one_pass(source), native(array))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_a_file_of_numbers_reaches_jax_in_the_dtype_jax_would_give_it(save, dtype, order):
    array = ORDERS[order](values((7, 3, 2), dtype))
    assert_same(one_pass(NPDataset(save(array)), "jax"), for_jax(array))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(9,), (9, 4), (9, 2, 3), (9, 2, 3, 4), (9, 2, 1, 3, 2)])
def test_rows_have_any_rank(save, shape, order):
    array = ORDERS[order](values(shape, "i4"))
    source = NPDataset(save(array))
    assert source.spec == Spec(shape[1:], np.int32)
    assert_delivers(source, array)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", ["f4", "i8", ">f8"])
@pytest.mark.parametrize("shape", [(5, 0), (5, 2, 0, 3)])
def test_rows_may_be_of_zero_size(save, shape, dtype, order):
    array = ORDERS[order](np.empty(shape, dtype))
    assert_delivers(NPDataset(save(array)), array)


def test_a_single_row_is_a_data_set(save):
    array = values((1, 3), "f4")
    assert_delivers(NPDataset(save(array)), array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_all_versions_of_the_format_are_read(tmp_path, version):
    array = values((6, 2), "f4")
    with (tmp_path / "rows.npy").open("wb") as file:
        np.lib.format.write_array(file, array, version=version)
    assert_delivers(NPDataset(tmp_path / "rows.npy"), array)


@pytest.mark.parametrize("padding", range(1, 8))
def test_a_header_that_leaves_the_rows_unaligned_is_read(tmp_path, padding):
    array = values((6, 2), "f8")
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (6, 2), }" + b" " * padding + b"\n"
    (tmp_path / "rows.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + array.tobytes()
    )
    assert_delivers(NPDataset(tmp_path / "rows.npy"), array)


def test_bytes_after_the_last_row_are_ignored(save):
    array = values((6, 2), "f4")
    path = save(array)
    with path.open("ab") as file:
        file.write(b"more")
    assert_delivers(NPDataset(path), array)


@pytest.mark.parametrize("kind", [str, os.fspath, lambda path: path])
def test_a_path_is_a_string_or_a_path(save, kind):
    array = values((6, 2), "f4")
    assert_same(NPDataset(kind(save(array)))[:], array)


def test_a_relative_path_is_relative_to_the_current_folder(save, tmp_path, monkeypatch):
    array = values((6, 2), "f4")
    save(array)
    monkeypatch.chdir(tmp_path)
    source = NPDataset("rows.npy")
    monkeypatch.chdir("/")
    assert_delivers(source, array)


@pytest.mark.parametrize("dtype", ["u1", ">i8", "f8", "U3"])
@pytest.mark.parametrize("lengths", [(4,), (4, 1), (1, 5, 2), (1,) * 9])
def test_the_rows_of_several_files_follow_one_another(save, lengths, dtype):
    parts = [values((length, 3), dtype, seed) for seed, length in enumerate(lengths)]
    paths = [save(part, f"{number}.npy") for number, part in enumerate(parts)]
    assert_delivers(NPDataset(paths), np.concatenate(parts))
    assert_delivers(NPDataset(tuple(map(str, paths))), np.concatenate(parts))


def test_one_file_may_be_named_twice(save):
    array = values((4, 3), "f4")
    path = save(array)
    assert_delivers(NPDataset([path, path]), np.concatenate([array, array]))


def test_several_fortran_files_of_one_length_are_one_data_set(save):
    parts = [np.asfortranarray(values((4, 3), "f4", seed)) for seed in range(3)]
    paths = [save(part, f"{number}.npy") for number, part in enumerate(parts)]
    assert_delivers(NPDataset(paths), np.concatenate(parts))


@pytest.mark.parametrize("first", ORDERS)
def test_files_of_different_layouts_are_one_data_set_after_adding_them(save, first):
    # In Fortran order the distance of two elements of a row depends on the number of rows.
    parts = [ORDERS[first](values((4, 3), "f4", 0)), np.asfortranarray(values((6, 3), "f4", 1))]
    paths = [save(part, f"{number}.npy") for number, part in enumerate(parts)]
    with pytest.raises(ArgumentError, match="Open them as two data sets and concatenate these"):
        NPDataset(paths)
    assert_delivers(NPDataset(paths[0]) + NPDataset(paths[1]), np.concatenate(parts))


def test_a_file_that_was_deleted_is_still_read(save):
    array = values((6, 2), "f4")
    path = save(array)
    source = NPDataset(path)
    path.unlink()
    assert_delivers(source, array)


def test_a_file_that_was_replaced_by_a_smaller_one_is_still_read(save):
    array = values((600, 200), "f4")
    path = save(array)
    source = NPDataset(path)
    save(array[:1], "new.npy").replace(path)
    assert_delivers(source, array)


def test_a_file_that_grew_is_read_as_it_was_opened(save):
    array = values((6, 2), "f4")
    path = save(array)
    source = NPDataset(path)
    with path.open("ab") as file:
        file.write(b"more")
    assert_delivers(source, array)


def test_rows_are_mapped_and_not_read_when_a_file_is_opened(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 32, 4)}
    )
    path = tmp_path / "sparse.npy"
    path.write_bytes(header.getvalue())
    os.truncate(path, len(header.getvalue()) + (1 << 36))  # 64 GB that need no space.
    source = NPDataset(path)
    assert_same(source[-1], np.zeros(4, np.float32))
    assert_same(
        DataLoader(source, batch_size=2, output="numpy").batch(0), np.zeros((2, 4), np.float32)
    )


def test_a_file_needs_one_descriptor_for_as_long_as_its_source_lives(save):
    paths = [save(values((4, 2), "f4"), f"{number}.npy") for number in range(20)]
    gc.collect()
    before = descriptors()
    source = NPDataset(paths)
    assert len(descriptors() - before) <= len(paths)
    view = source.select([79])
    del source
    assert_same(view[0], values((4, 2), "f4")[3])
    del view
    gc.collect()
    assert descriptors() - before == set()


def test_rows_are_copies(save):
    array = values((6, 2), "f4")
    source = NPDataset(save(array))
    for key in (2, slice(None), [2]):
        row = source[key]
        row[...] = -1
        assert_same(source[:], array)


def test_its_representation_says_how_many_rows_of_what(save):
    assert repr(NPDataset(save(values((6, 2), "f4")))) == "NPDataset(6 rows of float32[2])"
