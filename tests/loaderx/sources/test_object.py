"""Any Python object with rows is a source: one row at a time or many at once, in any structure."""

import threading

import numpy as np
import pytest

from loaderx import DataError, DataLoader, Spec
from loaderx.sources import ObjectSource, as_source
from tests.loaderx.sources.rows import assert_delivers, assert_same, values

ROWS = 8
IMAGES = values((ROWS, 3, 2), "f4")
LABELS = values((ROWS,), "i8")


class OneByOne:
    """Rows by `__getitem__`."""

    def __init__(self, row, length=ROWS):
        self.row, self.length = row, length

    def __len__(self):
        return self.length

    def __getitem__(self, number):
        return self.row(number)


class ManyAtOnce:
    """Rows by `__getitems__`, which records the requested numbers."""

    def __init__(self, rows, length=ROWS):
        self.rows, self.length, self.asked = rows, length, []

    def __len__(self):
        return self.length

    def __getitems__(self, numbers):
        self.asked.append(numbers)
        return self.rows(numbers)


STRUCTURES = {
    "array": (lambda number: IMAGES[number], IMAGES),
    "NumPy scalar": (lambda number: LABELS[number], LABELS),
    "Python integer": (lambda number: int(LABELS[number]), LABELS),
    "Python float": (lambda number: float(number), np.arange(ROWS, dtype="f8")),
    "Python bool": (lambda number: number % 3 == 0, np.arange(ROWS) % 3 == 0),
    "Python complex": (lambda number: 1j * number, 1j * np.arange(ROWS)),
    "nested list": (lambda number: IMAGES[number].astype("f8").tolist(), IMAGES.astype("f8")),
    "big-endian array": (lambda number: IMAGES.astype(">f4")[number], IMAGES),
    "strided array": (lambda number: IMAGES[number, ::-1], IMAGES[:, ::-1]),
    "array of zero size": (lambda number: np.empty((2, 0), "i8"), np.empty((ROWS, 2, 0), "i8")),
    "dict": (
        lambda number: {"image": IMAGES[number], "label": LABELS[number]},
        {"image": IMAGES, "label": LABELS},
    ),
    "dict of Python numbers": (
        lambda number: {"label": int(LABELS[number]), "weight": 0.5},
        {"label": LABELS, "weight": np.full(ROWS, 0.5)},
    ),
    "tuple": (lambda number: (IMAGES[number], int(LABELS[number])), (IMAGES, LABELS)),
    "tuple of one": (lambda number: (IMAGES[number],), (IMAGES,)),
}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_rows_are_read_one_by_one(structure):
    row, expected = STRUCTURES[structure]
    assert_delivers(as_source(OneByOne(row)), expected)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_many_rows_are_read_as_a_list(structure):
    row, expected = STRUCTURES[structure]
    assert_delivers(as_source(ManyAtOnce(lambda numbers: list(map(row, numbers)))), expected)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (lambda numbers: IMAGES[numbers], IMAGES),
        (lambda numbers: IMAGES.astype(">f4")[numbers], IMAGES),
        (lambda numbers: np.asfortranarray(IMAGES[numbers]), IMAGES),
        (lambda numbers: LABELS[numbers], LABELS),
        (
            lambda numbers: {"image": IMAGES[numbers], "label": LABELS[numbers]},
            {"image": IMAGES, "label": LABELS},
        ),
        (lambda numbers: (IMAGES[numbers], LABELS[numbers]), (IMAGES, LABELS)),
    ],
)
def test_many_rows_are_read_as_stacked_arrays(columns, expected):
    assert_delivers(as_source(ManyAtOnce(columns)), expected)


def test_an_object_that_reads_many_rows_is_asked_once_per_part_of_a_batch():
    rows = ManyAtOnce(lambda numbers: IMAGES[numbers])
    loader = DataLoader(rows, batch_size=4, output="numpy", workers=1)
    rows.asked.clear()
    loader.batch(0)
    assert rows.asked == [loader.indices(0).tolist()]
    assert all(type(number) is int for number in rows.asked[0])


def test_getitems_goes_before_getitem():
    class Both(ManyAtOnce):
        def __getitem__(self, number):
            raise AssertionError("one by one, although many at once is possible")

    assert_delivers(as_source(Both(lambda numbers: IMAGES[numbers])), IMAGES)


def test_fields_of_a_row_may_come_in_any_order():
    def row(number):
        fields = {"image": IMAGES[number], "label": LABELS[number]}
        return dict(reversed(fields.items())) if number % 2 else fields

    assert_delivers(as_source(OneByOne(row)), {"image": IMAGES, "label": LABELS})


def test_a_row_may_be_of_a_dtype_that_fits_into_that_of_row_0():
    source = as_source(OneByOne(lambda number: 0.5 if number == 0 else number))
    assert_same(source[:], np.array([0.5, 1, 2, 3, 4, 5, 6, 7]))


def test_field_names_need_not_be_strings():
    source = as_source(OneByOne(lambda number: {0: IMAGES[number], 1: LABELS[number]}))
    assert_same(source[:], {"0": IMAGES, "1": LABELS})


def test_the_spec_is_that_of_row_0():
    source = as_source(OneByOne(lambda number: {"image": IMAGES[number], "label": 3}))
    assert isinstance(source, ObjectSource)
    assert source.spec == {"image": Spec((3, 2), np.float32), "label": Spec((), np.int64)}
    assert repr(source) == "ObjectSource(8 rows of {image: float32[3, 2], label: int64[]})"


def test_opening_reads_row_0_only():
    asked = []
    as_source(OneByOne(lambda number: asked.append(number) or 1.0))
    assert asked == [0]


def test_rows_are_read_in_the_background():
    threads = set()

    def row(number):
        threads.add(threading.current_thread())
        return number

    source = OneByOne(row)
    loader = DataLoader(source, batch_size=2, num_epochs=1, output="numpy", workers=2)
    threads.clear()
    with iter(loader) as batches:
        assert sorted(np.concatenate(list(batches)).tolist()) == list(range(ROWS))
    assert threads
    assert threading.current_thread() not in threads


def test_an_array_that_changes_after_it_was_read_changes_no_batch():
    reused = np.zeros(2, np.float32)

    def row(number):
        reused[:] = number
        return reused

    loader = DataLoader(OneByOne(row), batch_size=4, shuffle=False, workers=1)
    batch = loader.batch(1)
    reused[:] = -1
    np.testing.assert_array_equal(batch, [[4, 4], [5, 5], [6, 6], [7, 7]])


def test_stacked_arrays_that_the_object_keeps_are_never_aliased():
    kept = IMAGES[:4].copy()
    rows = ManyAtOnce(lambda numbers: kept[: len(numbers)], 4)
    loader = DataLoader(rows, batch_size=4, shuffle=False, workers=1)
    batch = loader.batch(0)
    kept[:] = -1
    np.testing.assert_array_equal(batch, IMAGES[:4])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (lambda numbers: [1.0] * (len(numbers) + (len(numbers) > 1)), ["9 rows, expected 8"]),
        (lambda numbers: np.ones(max(1, len(numbers) - 1)), ["float64[7]", "float64[8]"]),
        (lambda numbers: {"a": np.ones(1)}, ["float64[1]", "float64[8]"]),
    ],
)
def test_an_answer_with_another_number_of_rows_is_refused(rows, words):
    source = as_source(ManyAtOnce(rows))
    with pytest.raises(DataError) as refusal:
        source[:]
    assert all(word in str(refusal.value) for word in ["ManyAtOnce", *words])
