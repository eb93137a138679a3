"""SQLiteDataset reads numbers and BLOBs of a table by rowid, from any number of threads."""

import gc
import sqlite3

import numpy as np
import pytest

from loaderx import ArgumentError, DataError, DataLoader, Spec
from loaderx.sources import sqlite
from loaderx.sources.sqlite import SQLiteDataset
from tests.descriptors import descriptors
from tests.loaderx.sources.loading import assert_loads
from tests.loaderx.sources.rows import assert_delivers, assert_same, values

IMAGES = values((7, 8, 5, 3), "u1")
ROWS = {"image": IMAGES, "label": values((7,), "i8"), "weight": values((7,), "f4")}
COLUMNS = {"image": ("uint8", (8, 5, 3)), "label": "int64", "weight": np.float32}


def execute(path, *statements):
    """Run statements, each a text or a text and its rows."""
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            if isinstance(statement, str):
                connection.execute(statement)
            else:
                connection.executemany(*statement)
    connection.close()
    return path


@pytest.fixture
def path(tmp_path):
    rows = [
        (row * 10 - 30, image.tobytes(), int(label), float(weight), "train" if row < 5 else "test")
        for row, (image, label, weight) in enumerate(zip(*ROWS.values(), strict=True))
    ]
    return execute(
        tmp_path / "rows #1?.db",
        "CREATE TABLE samples (id INTEGER PRIMARY KEY, image BLOB, label INT, weight REAL, part TEXT)",
        # Not in the order of their numbers, which also may be negative.
        ("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", rows[::-1]),
    )


def test_the_rows_of_a_table_are_numbers_and_arrays(path):
    source = SQLiteDataset(path, "samples", COLUMNS)
    assert source.spec == {
        "image": Spec((8, 5, 3), np.uint8),
        "label": Spec((), np.int64),
        "weight": Spec((), np.float32),
    }
    assert repr(source).startswith("SQLiteDataset(7 rows of {image: uint8[8, 5, 3], label: int64[]")
    assert_loads(source, ROWS)


def test_a_condition_selects_rows(path):
    source = SQLiteDataset(str(path), "samples", COLUMNS, where="part = 'train' OR part = '100%'")
    assert_delivers(source, {name: column[:5] for name, column in ROWS.items()})


def test_columns_are_chosen_and_ordered_by_name_in_any_case(path):
    source = SQLiteDataset(path, "Samples", {"LABEL": "int32"})
    assert_delivers(source, {"LABEL": ROWS["label"].astype("i4")})


def test_any_number_of_rows_is_read_at_once_each_as_often_as_asked(tmp_path):
    count = 2 * sqlite.ROWS_PER_QUERY + 5
    path = execute(
        tmp_path / "many.db",
        "CREATE TABLE t (x INT)",
        ("INSERT INTO t VALUES (?)", [(3 * row,) for row in range(count)]),
    )
    source = SQLiteDataset(path, "t", {"x": "int64"})
    rows = np.random.default_rng(0).integers(0, count, 3 * count)
    assert_same(source[rows], {"x": 3 * rows})
    for workers in (1, 4):
        loader = DataLoader(source, batch_size=1000, seed=1, workers=workers, output="numpy")
        with iter(loader) as batches:
            for step in range(4):
                assert_same(next(batches)["x"], 3 * loader.indices(step))


@pytest.mark.parametrize(
    "dtype", ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "f2", "f4", "f8"]
)
def test_numbers_of_any_dtype_are_read(tmp_path, dtype):
    array = values((5,), dtype)
    path = execute(
        tmp_path / "x.db",
        "CREATE TABLE t (x)",
        ("INSERT INTO t VALUES (?)", [(value.item(),) for value in array]),
    )
    assert_delivers(SQLiteDataset(path, "t", {"x": dtype}), {"x": array})


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("dtype", ["b1", "u1", "i8", "f2", "f8", "c8", ">i4", ">f8"])
def test_blobs_of_any_dtype_shape_and_byte_order_are_read(tmp_path, dtype, shape):
    array = values((5, *shape), dtype)
    path = execute(
        tmp_path / "x.db",
        "CREATE TABLE t (x)",
        ("INSERT INTO t VALUES (?)", [(array[row : row + 1].tobytes(),) for row in range(5)]),
    )
    assert_delivers(SQLiteDataset(path, "t", {"x": (dtype, shape)}), {"x": array})


def test_names_that_need_quotes_are_quoted(tmp_path):
    path = execute(
        tmp_path / "x.db",
        'CREATE TABLE "from ""a"" %s" ("select" INT, "x y" INT, rowid TEXT)',
        """INSERT INTO "from ""a"" %s" VALUES (1, 2, 'a'), (3, 4, 'b')""",
    )
    source = SQLiteDataset(path, 'from "a" %s', {"select": "int64", "x y": "int64"})
    assert_delivers(source, {"select": np.array([1, 3]), "x y": np.array([2, 4])})


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        ("NULL", "int64", "is NULL, where a number that fits into int64 is expected"),
        ("'text'", "int64", "is 'text'"),
        ("2.5", "int64", "is 2.5"),
        ("300", "uint8", "is 300, where a number that fits into uint8 is expected"),
        ("-1", "uint8", "is -1"),
        ("2", "bool", "is 2"),
        ("x'00'", "float32", "is a BLOB of 1 bytes"),
        ("NULL", "float32", "is NULL"),
        ("NULL", ("uint8", (2,)), r"is NULL, where a BLOB of 2 bytes for uint8\[2\] is expected"),
        ("x'000000'", ("uint8", (2,)), "is a BLOB of 3 bytes"),
        ("'ab'", ("uint8", (2,)), "is 'ab'"),
        ("5", ("uint8", (1,)), "is 5"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_column_row_and_rowid(tmp_path, value, kind, words):
    good = "x'0000'" if isinstance(kind, tuple) else "1"
    path = execute(
        tmp_path / "x.db",
        "CREATE TABLE t (x)",
        f"INSERT INTO t (rowid, x) VALUES (5, {good}), (9, {value})",
    )
    source = SQLiteDataset(path, "t", {"x": kind})
    if kind != ("uint8", (1,)):
        source[0]
    with pytest.raises(DataError, match=words) as refusal:
        source[1]
    assert "column 'x' in row 1 (rowid 9) of table 't'" in str(refusal.value)


def test_a_row_that_was_deleted_is_an_error_at_its_step(path):
    source = SQLiteDataset(path, "samples", COLUMNS)
    execute(path, "DELETE FROM samples WHERE id = 20")
    loader = DataLoader(source, batch_size=3, shuffle=False, num_epochs=1, output="numpy")
    with iter(loader) as batches:
        next(batches)
        with pytest.raises(DataError, match=r"row 5 \(rowid 20\) of table 'samples' of .* is gone"):
            next(batches)


def test_the_database_is_opened_read_only(path):
    with (
        pytest.raises(DataError, match="attempt to write a readonly database"),
        sqlite.Connections(path).lease() as connection,
    ):
        connection.execute("DELETE FROM samples")
    assert_same(SQLiteDataset(path, "samples", COLUMNS)[:], ROWS)


def test_a_condition_is_one_condition_and_no_other_statement(path):
    with pytest.raises(DataError, match="cannot be read: You can only execute one statement"):
        SQLiteDataset(path, "samples", COLUMNS, where="1); DELETE FROM samples; --")


def test_a_database_that_is_being_written_to_is_read_as_it_was_before(path):
    execute(path, "PRAGMA journal_mode = WAL")
    writer = sqlite3.connect(path)
    writer.execute("UPDATE samples SET label = 0")
    assert_same(SQLiteDataset(path, "samples", COLUMNS)[:], ROWS)
    writer.rollback()
    writer.close()


def test_connections_are_closed_with_the_source(path):
    gc.collect()
    before = descriptors()
    source = SQLiteDataset(path, "samples", COLUMNS)
    with iter(DataLoader(source, batch_size=2, workers=4, output="numpy")) as batches:
        for _ in range(10):
            next(batches)
    assert 0 < len(descriptors() - before) <= 5
    view = source.select([2])
    del source, batches
    gc.collect()
    assert_same(view[0]["image"], IMAGES[2])
    del view
    gc.collect()
    assert descriptors() - before == set()


def test_a_missing_file_is_not_made(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"rows\.db"):
        SQLiteDataset(tmp_path / "rows.db", "t", {"x": "int64"})
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_a_database_is_refused(tmp_path):
    (tmp_path / "x.db").write_text("not a database, but as long as the header of one: " * 10)
    with pytest.raises(DataError, match=r"x\.db cannot be read: file is not a database"):
        SQLiteDataset(tmp_path / "x.db", "t", {"x": "int64"})


def test_an_unknown_table_is_named_with_those_there_are(path):
    with pytest.raises(ArgumentError, match=r"has no table 'train'; it has \['samples'\]"):
        SQLiteDataset(path, "train", COLUMNS)


def test_an_unknown_column_is_named_with_those_there_are(path):
    with pytest.raises(ArgumentError, match=r"names \['size'\], .* has \['id', 'image', 'label'"):
        SQLiteDataset(path, "samples", {"size": "int64"})


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (x INTEGER PRIMARY KEY) WITHOUT ROWID",
        "CREATE VIEW t AS SELECT label AS x FROM samples",
    ],
)
def test_a_table_without_rowid_is_refused(path, statement):
    execute(path, statement)
    with pytest.raises(ArgumentError, match=r"table 't' of .* has no rowid"):
        SQLiteDataset(path, "t", {"x": "int64"})


def test_a_table_that_hides_its_rowid_is_refused(tmp_path):
    path = execute(tmp_path / "x.db", "CREATE TABLE t (rowid TEXT, oid TEXT, _ROWID_ TEXT)")
    with pytest.raises(ArgumentError, match="columns with all names of the rowid"):
        SQLiteDataset(path, "t", {"oid": "int64"})


@pytest.mark.parametrize("where", [None, "label IS NULL"])
def test_no_rows_are_refused(path, where):
    if where is None:
        execute(path, "DELETE FROM samples")
    with pytest.raises(DataError, match="has no rows" + (" where label IS NULL" if where else "")):
        SQLiteDataset(path, "samples", COLUMNS, where=where)


@pytest.mark.parametrize("columns", [{}, ["label"], None])
def test_columns_without_their_types_are_refused(path, columns):
    with pytest.raises(ArgumentError, match=r"`columns` .* must give the content of each column"):
        SQLiteDataset(path, "samples", columns)


@pytest.mark.parametrize(
    "kind",
    [
        "text",
        "U3",
        object,
        "complex64",
        ("uint8", 4),
        ("uint8", (0,)),
        ("uint8", ("a",)),
        ("U1", (2,)),
    ],
)
def test_a_type_that_is_not_of_numbers_is_refused(path, kind):
    with pytest.raises(ArgumentError, match=r"column 'label' .* must be a dtype of numbers"):
        SQLiteDataset(path, "samples", {"label": kind})
