"""Lists, ranges, arrays of any library and objects are accepted as sources."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from loaderx import (
    ArgumentError,
    DataLoader,
    DeviceLoader,
    NPDataset,
    Spec,
    TokenDataset,
    pipeline,
    transforms,
)
from loaderx.sources import AddressableSource, FieldsSource, as_source
from tests.loaderx.sources.rows import assert_delivers, assert_same, one_pass, values


def test_a_source_stays_what_it_is():
    source = NPDataset(values((4, 2), "f4"))
    assert as_source(source) is source


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [
        ([3, 1, 2], "i8"),
        ([3.5, 1, 2], "f8"),
        ([True, False, True], "?"),
        ([1j, 2], "c16"),
        ([np.int16(3), np.int16(4)], "i2"),
    ],
)
def test_a_list_of_numbers_is_a_source(numbers, dtype):
    assert_delivers(as_source(numbers), np.array(numbers, dtype))


def test_a_list_of_numbers_is_on_the_compiled_path():
    assert isinstance(as_source([3, 1, 2]), AddressableSource)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (list(values((5, 2), "f4")), values((5, 2), "f4")),
        ([[1, 2], [3, 4], [5, 6]], np.array([[1, 2], [3, 4], [5, 6]])),
        ([{"a": 1, "b": 2.0}] * 4, {"a": np.full(4, 1), "b": np.full(4, 2.0)}),
        ([(1, 2.0)] * 4, (np.full(4, 1), np.full(4, 2.0))),
    ],
)
def test_a_list_of_rows_is_a_source(rows, expected):
    assert_delivers(as_source(rows), expected)


@pytest.mark.parametrize("numbers", [range(7), range(3, 20, 4), range(5, -4, -2), range(9, 10)])
def test_a_range_is_a_source(numbers):
    assert_delivers(as_source(numbers), np.array(numbers))


def test_a_range_of_any_length_costs_nothing():
    loader = DataLoader(range(0, 3 * 10**17, 3), batch_size=4, output="numpy")
    assert_same(loader.batch(0), 3 * loader.indices(0))


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int32", "uint32", "float16", "bfloat16", "float32", "complex64"]
)
def test_a_jax_array_is_a_source(dtype):
    array = jnp.arange(12).reshape(6, 2).astype(dtype)
    source = as_source(array)
    assert isinstance(source, AddressableSource)
    assert source.spec == Spec((2,), array.dtype)
    assert_same(source[:], np.asarray(array))
    assert_same(one_pass(source), np.asarray(array))
    assert_same(one_pass(source, "jax"), np.asarray(array))


def test_an_array_of_a_dtype_of_ml_dtypes_is_a_source():
    array = np.arange(12.0).reshape(6, 2).astype(ml_dtypes.bfloat16)
    assert_same(one_pass(array), array)
    assert_same(one_pass(array[:, ::-1], "jax"), array[:, ::-1])


def test_any_array_for_numpy_is_a_source():
    class Table:
        def __len__(self):
            return 4

        def __getitem__(self, key):
            raise AssertionError("read row by row, although it is an array")

        def __array__(self, dtype=None, copy=None):
            return values((4, 2), "f4")

    assert_delivers(as_source(Table()), values((4, 2), "f4"))


def test_the_fields_of_a_loader_may_be_of_different_kinds():
    images = values((5, 2), "f4")
    loader = DataLoader(
        {"image": images, "number": range(5), "name": [10, 11, 12, 13, 14], "key": list(images)},
        batch_size=5,
    )
    batch, rows = loader.batch(0), loader.indices(0)
    assert all(isinstance(field, jax.Array) for field in batch.values())
    np.testing.assert_array_equal(batch["image"], images[rows])
    np.testing.assert_array_equal(batch["number"], rows)
    np.testing.assert_array_equal(batch["name"], rows + 10)
    np.testing.assert_array_equal(batch["key"], images[rows])


@pytest.mark.parametrize(
    "thing", [3, None, {1, 2}, iter([1, 2]), lambda: 1], ids=lambda thing: type(thing).__name__
)
def test_objects_without_rows_by_number_are_a_type_error(thing):
    with pytest.raises(TypeError, match=f"not {type(thing).__name__}"):
        as_source(thing)


FRAME = {"a": np.array([1, 2, 3]), "b": np.array([0.5, 1.5, 2.5]), "c": np.array([True, False, True])}  # fmt: skip


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pl.LazyFrame])
def test_a_frame_is_a_dict_of_its_columns(frame):
    source = as_source(frame(FRAME))
    assert isinstance(source, FieldsSource)
    assert_delivers(source, FRAME)


def test_a_frame_that_is_a_field_says_what_to_pass():
    for data in ({"x": pd.DataFrame(FRAME)}, (pd.DataFrame(FRAME), np.arange(3))):
        with pytest.raises(ArgumentError, match=r"with fields of its own .*one by one"):
            DataLoader(data)
    with pytest.raises(ArgumentError, match=r"'data' is a table .*columns as a dict of arrays"):
        DeviceLoader(pd.DataFrame(FRAME))


REFUSED = {
    "text": (lambda: pd.DataFrame({"name": ["x", "y"]}), r"column 'name'.*\.cat\.codes"),
    "objects": (lambda: pd.DataFrame({"o": [object(), 2]}), r"column 'o'.*frame\.to_numpy\(\)"),
    "same names": (lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]), "whose names must differ"),
    "no columns": (pd.DataFrame, "whose names must differ"),
    "nulls": (lambda: pd.DataFrame({"a": pd.array([1, None])}), "column 'a'.* has 1 nulls"),
    "a series": (lambda: pd.Series(pd.array([1, None])), "Series has 1 nulls"),
    "a series of polars": (lambda: pl.Series([None, 2, None]), "Series has 2 nulls"),
    "an Arrow array": (lambda: pa.array([1, None]), "Int64Array has 1 nulls"),
    "an Arrow table": (lambda: pa.table({"a": [1, 2]}), r"table\[name\]\.to_numpy\(\)"),
    "an Arrow batch": (lambda: pa.record_batch({"a": [1]}), r"batch\[name\]\.to_numpy\(\)"),
    "a sparse matrix": (lambda: scipy.sparse.csr_matrix(np.eye(3)), r"`matrix.toarray\(\)`"),
    "a sparse array": (lambda: scipy.sparse.coo_array(np.eye(3)), r"`matrix.toarray\(\)`"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_objects_that_would_lose_something_as_an_array_are_refused(kind):
    make, message = REFUSED[kind]
    with pytest.raises(ArgumentError, match=message):
        DataLoader(make())


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([0.5, np.nan]),
        pd.Series([4, 5], index=["unit", "units"]),
        pd.array([1, 2]),
        pl.Series([1, 2]),
        pa.chunked_array([[1], [2]]),
        pd.date_range("2020", periods=2),
        np.matrix([[1, 2], [3, 4]]),
    ],
    ids=lambda column: type(column).__name__,
)
def test_a_single_column_is_an_array(column):
    assert_same(as_source(column)[:], np.asarray(column))


MASKED = np.ma.masked_equal([[1, 2], [3, 4]], 2)


class Quantity(np.ndarray):
    """Array with a unit, as those of astropy and unyt."""

    unit = object()


class Magnitude:
    """Array with a unit in an attribute, as in pint."""

    @property
    def units(self):
        return Quantity.unit

    def __len__(self):
        return 3

    def __getitem__(self, row):
        return row

    def __array__(self, dtype=None, copy=None):
        return np.arange(3)


WITH_A_UNIT = np.arange(3).view(Quantity)
MASKED_PLACES = {
    "NPDataset": lambda array: NPDataset(array),
    "a loader": lambda array: DataLoader(array),
    "a field": lambda array: DataLoader({"x": array}),
    "rows": lambda array: as_source([array, array]),
    "later rows": lambda array: as_source([np.asarray(array), array])[:],
    "weights": lambda array: DataLoader(np.arange(4), weights=array[0]),
    "a device": lambda array: DeviceLoader(array),
    "samples": lambda array: pipeline([transforms.Identity()])(array),
    "tokens": lambda array: TokenDataset(array[0], 1),
}


@pytest.mark.parametrize("place", MASKED_PLACES)
def test_a_mask_is_never_dropped(place):
    with pytest.raises(
        ArgumentError, match=r"is a masked array, .*`array.filled\(\.\.\.\)`, or two"
    ):
        MASKED_PLACES[place](MASKED)


@pytest.mark.parametrize("data", [WITH_A_UNIT, Magnitude(), [WITH_A_UNIT]])
def test_a_unit_is_never_dropped(data):
    with pytest.raises(ArgumentError, match=r"with a unit, which would be lost\. Give its numbers"):
        DataLoader(data)
