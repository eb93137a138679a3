"""NPDataset reads arrays of any memory layout."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from loaderx import NPDataset
from tests.loaderx.sources.rows import DTYPES, assert_delivers, assert_same, native, values


def unaligned(array, offset=1):
    """Return the same values at an address that is not a multiple of their size."""
    memory = bytearray(array.nbytes + offset)
    memory[offset:] = array.tobytes()
    return np.frombuffer(memory, array.dtype, offset=offset).reshape(array.shape)


def column(array):
    """Return the same values as a column of a packed table."""
    table = np.zeros(array.shape, [("flag", "u1"), ("value", array.dtype)])
    table["value"] = array
    return table["value"]


def read_only(array):
    array.flags.writeable = False
    return array


ARRANGEMENTS = {
    "contiguous": lambda array: array,
    "fortran": np.asfortranarray,
    "rows backwards": lambda array: array[::-1],
    "everything backwards": lambda array: array[::-1, ::-1, ::-1],
    "columns backwards": lambda array: array[:, ::-1],
    "every other row": lambda array: array[::2],
    "every other row backwards": lambda array: array[-2::-2],
    "every other column": lambda array: array[:, ::2],
    "a part of every row": lambda array: array[:, 1:, :-1],
    "transposed": lambda array: array.transpose(2, 1, 0),
    "rows transposed": lambda array: array.transpose(0, 2, 1),
    "one row many times": lambda array: np.broadcast_to(array[0], array.shape),
    "one element many times": lambda array: np.broadcast_to(array[0, 0, 0], array.shape),
    "one column many times": lambda array: np.broadcast_to(array[:, :1], array.shape),
    "a new axis": lambda array: array[:, None],
    "a new first axis": lambda array: array[None],
    "scalars of rows": lambda array: array[:, 1, 1],
    "windows": lambda array: np.lib.stride_tricks.sliding_window_view(array, 2, axis=0),
    "unaligned": unaligned,
    "unaligned backwards": lambda array: unaligned(array)[::-1, :, ::-1],
    "a column of a table": column,
    "read-only": read_only,
    "read-only and strided": lambda array: read_only(array[:, ::-1]),
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_of_any_dtype_is_read(dtype):
    array = values((7, 2), dtype)
    assert_delivers(NPDataset(array), array)
    assert_delivers(NPDataset(array[:, ::-1]), array[:, ::-1])


@pytest.mark.parametrize("dtype", ["u1", "f2", "i8", ">i4", ">f8", ">c8", "U3", "S5"])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_an_array_is_read_whatever_its_layout(arrangement, dtype):
    array = ARRANGEMENTS[arrangement](values((8, 4, 3), dtype))
    assert_delivers(NPDataset(array), array)


@settings(deadline=None)  # The first call may compile.
@given(data=st.data())
def test_an_array_is_read_after_any_slicing_and_transposing(data):
    dtype = data.draw(st.sampled_from(["u1", ">i2", "f4", ">c16", "U3"]))
    shape = data.draw(arrays.array_shapes(max_dims=5, max_side=4))
    array = values(shape, dtype).transpose(data.draw(st.permutations(range(len(shape)))))
    array = array[data.draw(arrays.basic_indices(array.shape, allow_newaxis=True))]
    array = np.atleast_1d(array)
    if len(array) == 0:
        array = values((1, *array.shape[1:]), dtype)
    assert_same(NPDataset(array)[:], native(array))
    rows = data.draw(st.lists(st.integers(0, len(array) - 1), max_size=6))
    assert_same(NPDataset(array)[rows], native(array)[rows])


@pytest.mark.parametrize("dtype", ["i8", "u8", ">i8", ">u8"])
def test_integers_of_64_bits_keep_all_their_bits(dtype):
    limits = np.iinfo(dtype)
    array = np.array([limits.min, limits.max, limits.max // 3], dtype)
    assert_same(NPDataset(array)[:], native(array))


def test_a_subclass_of_an_array_is_read_as_an_array(tmp_path):
    mapped = np.memmap(tmp_path / "rows.bin", np.int16, "w+", shape=(5, 2))
    mapped[:] = values((5, 2), "i2")
    source = NPDataset(mapped)
    assert_delivers(source, np.asarray(mapped))
    assert type(source[:]) is np.ndarray


def test_an_array_is_not_copied():
    array = values((5, 2), "f4")
    source = NPDataset(array)
    array[3] = 7
    assert_same(source[3], array[3])


def test_an_array_lives_as_long_as_its_source():
    memory = np.arange(10.0)
    gone = weakref.ref(memory)
    source = NPDataset(memory[::-1])
    selected = source.select([3])
    del memory, source
    gc.collect()
    assert gone() is not None
    assert_same(selected[0], np.float64(6.0))
    del selected
    gc.collect()
    assert gone() is None


def test_an_empty_list_of_rows_reads_nothing():
    assert_same(NPDataset(values((5, 2), ">f4"))[[]], np.empty((0, 2), np.float32))
