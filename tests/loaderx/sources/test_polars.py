"""PolarsDataset reads the numbers of a frame or a file in place, and refuses other types."""

import sys

import numpy as np
import polars as pl
import pytest

from loaderx import ArgumentError, DataError, DataLoader, Spec
from loaderx.sources import AddressableSource
from loaderx.sources.polars import PolarsDataset
from tests.loaderx.sources.loading import assert_loads
from tests.loaderx.sources.rows import assert_delivers, assert_same, values

IMAGES = values((7, 8, 5, 3), "u1")
ROWS = {"image": IMAGES, "label": values((7,), "i8")}
NUMBERS = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]


def frame_of(rows):
    return pl.DataFrame({name: pl.Series(column) for name, column in rows.items()})


def test_the_columns_of_a_frame_are_fields():
    source = PolarsDataset(frame_of(ROWS))
    assert source.spec == {"image": Spec((8, 5, 3), np.uint8), "label": Spec((), np.int64)}
    assert repr(source) == "PolarsDataset(7 rows of {image: uint8[8, 5, 3], label: int64[]})"
    assert_loads(source, ROWS)


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 3)])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_and_arrays_of_any_dtype_are_read(dtype, shape):
    array = values(shape, dtype)
    assert_delivers(PolarsDataset(frame_of({"x": array})), {"x": array})


def test_numbers_are_read_in_place():
    frame = frame_of(ROWS)
    source = PolarsDataset(frame)
    for name, field in source.fields.items():
        assert isinstance(field, AddressableSource)
        address = frame[name].to_numpy(allow_copy=False).ctypes.data
        assert field.locate(np.zeros(1, np.int64)).addresses[0] == address


def test_the_chunks_of_a_frame_follow_one_another():
    parts = [
        frame_of({name: column[a:b] for name, column in ROWS.items()})
        for a, b in [(0, 2), (2, 3), (3, 7)]
    ]
    frame = pl.concat(parts, rechunk=False)
    assert frame.n_chunks() == 3
    assert_loads(PolarsDataset(frame), ROWS)


def test_a_slice_of_a_frame_is_its_own_rows():
    source = PolarsDataset(frame_of(ROWS)[2:6])
    assert_delivers(source, {name: column[2:6] for name, column in ROWS.items()})


@pytest.mark.parametrize("chunks", [1, 2])
def test_lists_of_one_length_are_arrays(chunks):
    rows = values((6, 2, 3), "i4")
    lists = pl.Series("x", rows.tolist(), dtype=pl.List(pl.List(pl.Int32))).to_frame()
    if chunks == 2:
        lists = pl.concat([lists[:4], lists[4:]], rechunk=False)
    assert_delivers(PolarsDataset(lists), {"x": rows})


def test_a_source_outlives_the_frame():
    source = PolarsDataset(frame_of(ROWS))
    assert_same(source[:], ROWS)


WRITERS = {
    ".parquet": pl.DataFrame.write_parquet,
    ".arrow": pl.DataFrame.write_ipc,
    ".ipc": pl.DataFrame.write_ipc,
    ".feather": pl.DataFrame.write_ipc,
}


@pytest.mark.parametrize("ending", WRITERS)
def test_a_file_is_read_as_its_frame(tmp_path, ending):
    WRITERS[ending](frame_of(ROWS), tmp_path / f"rows{ending}")
    assert_delivers(PolarsDataset(tmp_path / f"rows{ending}"), ROWS)
    assert_delivers(
        PolarsDataset(str(tmp_path / f"rows{ending}"), ["label"]), {"label": ROWS["label"]}
    )


def test_a_csv_file_is_read_as_its_frame(tmp_path):
    (tmp_path / "rows.csv").write_text("a,name,b\n1,x,0.5\n2,y,1.5\n")
    expected = {"a": np.array([1, 2]), "b": np.array([0.5, 1.5])}
    assert_delivers(PolarsDataset(tmp_path / "rows.csv", ["a", "b"]), expected)


def test_a_parquet_file_of_several_row_groups_is_one_data_set(tmp_path):
    frame_of(ROWS).write_parquet(tmp_path / "rows.parquet", row_group_size=2)
    assert_delivers(PolarsDataset(tmp_path / "rows.parquet"), ROWS)


def test_a_lazy_frame_is_collected():
    lazy = frame_of(ROWS).lazy().filter(pl.col("label") > 0)
    keep = ROWS["label"] > 0
    assert_delivers(PolarsDataset(lazy), {name: column[keep] for name, column in ROWS.items()})


def test_columns_are_chosen_and_ordered_by_name():
    frame = frame_of(ROWS).with_columns(name=pl.lit("text"))
    source = PolarsDataset(frame, ["label", "image"])
    assert list(source[:]) == ["label", "image"]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (["a", "b"], "column 'x' is String; it must be .* or leave it out by `columns`"),
        (pl.Series(["a", "b"], dtype=pl.Categorical), "is Categorical"),
        (pl.Series([b"a", b"b"]), "is Binary"),
        (pl.Series([1, 2]).cast(pl.Date), "is Date"),
        (pl.Series([1, 2]).cast(pl.Int128), "is Int128"),
        (pl.Series([1, 2]).cast(pl.Decimal(10, 2)), "is Decimal"),
        ([{"a": 1}, {"a": 2}], "is Struct"),
        ([["a"], ["b"]], r"is List\(String\)"),
        ([1, None], "column 'x' has 1 nulls, the first in row 1"),
        ([[1, 2], None], "column 'x' has 1 nulls, the first in row 1"),
        ([[1, 2], [3, None]], "column 'x' has 1 nulls, the first in row 1"),
        (
            pl.Series([[1, 2], [3, None]], dtype=pl.Array(pl.Int64, 2)),
            "1 nulls, the first in row 1",
        ),
        (pl.Series([None, [1, 2]], dtype=pl.Array(pl.Int64, 2)), "1 nulls, the first in row 0"),
        ([[1, 2], [3]], "lists of different lengths: 1 in row 1, 2 in row 0"),
        ([[[1], [2]], [[3], [4, 5]]], "lists of different lengths: 2 in row 1, 1 in row 0"),
        (pl.Series([[], []], dtype=pl.List(pl.Int64)), "lists of no elements"),
    ],
)
def test_columns_that_are_not_numbers_of_one_shape_are_refused(column, words):
    with pytest.raises(DataError, match=words):
        PolarsDataset(pl.DataFrame({"y": [1, 2], "x": column}))


def test_an_empty_frame_is_refused():
    with pytest.raises(DataError, match="has no rows"):
        PolarsDataset(pl.DataFrame({"x": [1.0]})[:0])


@pytest.mark.parametrize("columns", [[], "label"])
def test_columns_that_are_not_a_list_are_refused(columns):
    with pytest.raises(ArgumentError, match="`columns`"):
        PolarsDataset(frame_of(ROWS), columns)


def test_an_unknown_column_is_named_with_those_there_are():
    with pytest.raises(ArgumentError, match=r"names \['weight'\], .* has \['image', 'label'\]"):
        PolarsDataset(frame_of(ROWS), ["label", "weight"])


def test_an_unknown_ending_is_refused(tmp_path):
    with pytest.raises(
        ArgumentError, match=r"rows\.xlsx does not end with one of \.parquet, \.csv"
    ):
        PolarsDataset(tmp_path / "rows.xlsx")


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"rows\.parquet"):
        PolarsDataset(tmp_path / "rows.parquet")


def test_anything_but_a_frame_is_a_type_error():
    with pytest.raises(TypeError, match="not list"):
        PolarsDataset([1, 2])


def test_a_number_that_jax_cannot_hold_is_named_by_its_row():
    loader = DataLoader(PolarsDataset(pl.DataFrame({"x": [1, 1 << 40]})), batch_size=2)
    with pytest.raises(DataError, match="does not fit into int32"):
        loader.batch(0)


def test_without_polars_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ModuleNotFoundError, match=r'PolarsDataset needs polars.*"\.\[polars\]"'):
        PolarsDataset("rows.parquet")
