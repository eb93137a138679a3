"""Indexing a source means the same as indexing the array of its rows."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loaderx import NPDataset, concatenate
from loaderx.sources import FieldsSource, as_source
from tests.loaderx.sources.rows import assert_same, values

ROWS = 9
ARRAY = values((ROWS, 2), "f4")
LABELS = values((ROWS,), ">i8")


class Answers:
    """Object that is asked for many rows at once."""

    def __len__(self):
        return ROWS

    def __getitems__(self, rows):
        return ARRAY[rows]


SOURCES = {
    "array": NPDataset(ARRAY),
    "object": as_source(list(ARRAY)),
    "object that reads many rows": as_source(Answers()),
    "selection": NPDataset(np.concatenate([ARRAY, ARRAY])).select(range(ROWS, 2 * ROWS)),
    "selection of an object": as_source(list(ARRAY[::-1])).select(slice(None, None, -1)),
    "concatenation": NPDataset(ARRAY[:4]) + NPDataset(ARRAY[4:]),
    "concatenation of views": concatenate(
        [NPDataset(ARRAY).select(range(4)), NPDataset(ARRAY).select(range(4, ROWS))]
    ),
    "concatenation of layouts": NPDataset(ARRAY[:4]) + NPDataset(np.asfortranarray(ARRAY[4:])),
}

numbers = st.integers(-2 * ROWS, 2 * ROWS)
inside = st.integers(-ROWS, ROWS - 1)
keys = st.one_of(
    numbers,
    numbers.map(np.int32),
    numbers.map(np.array),
    st.builds(slice, *[st.none() | numbers] * 2, st.none() | numbers.filter(bool)),
    st.lists(numbers, max_size=12),
    st.lists(inside, max_size=12),
    st.lists(inside, min_size=1).map(lambda rows: np.array(rows, np.int8)),
    st.lists(st.integers(0, ROWS - 1), min_size=1).map(lambda rows: np.array(rows, np.uint64)),
    st.lists(st.booleans(), min_size=ROWS, max_size=ROWS),
    st.lists(st.booleans(), min_size=1).map(np.array),
)


def outcome(rows, key):
    """Return the rows, or the type of the error."""
    try:
        return rows[key]
    except IndexError:
        return IndexError


@pytest.mark.parametrize("kind", SOURCES)
@settings(deadline=None)  # The first call may compile.
@given(key=keys)
@example(key=-1)
@example(key=ROWS)
@example(key=-ROWS - 1)
@example(key=[])
@example(key=[0, -1, 0])
@example(key=[0, ROWS])
@example(key=slice(None, None, -1))
@example(key=slice(5, 2))
@example(key=np.zeros(ROWS, bool))
@example(key=np.ones(ROWS - 1, bool))
@example(key=np.uint64(3))
def test_rows_are_selected_as_in_numpy(kind, key):
    expected = outcome(ARRAY, key)
    if expected is IndexError:
        assert outcome(SOURCES[kind], key) is IndexError
    else:
        assert_same(outcome(SOURCES[kind], key), expected)


@settings(deadline=None)  # The first call may compile.
@given(key=keys)
def test_a_record_selects_the_rows_of_all_its_fields(key):
    record = FieldsSource({"data": NPDataset(ARRAY), "label": NPDataset(LABELS)})
    expected = outcome(ARRAY, key)
    if expected is IndexError:
        assert outcome(record, key) is IndexError
    else:
        assert_same(record[key], {"data": expected, "label": LABELS.astype("i8")[key]})


def test_a_range_selects_the_rows_it_names():
    assert_same(NPDataset(ARRAY)[range(1, 8, 3)], ARRAY[1:8:3])
    assert_same(NPDataset(ARRAY)[range(-1, -4, -1)], ARRAY[:-4:-1])


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize(
    "key",
    [1.0, np.float32(1), [1.0], "data", None, ..., True, [[0, 1], [1, 0]], (1, 1), (slice(2), 0)],
    ids=repr,
)
def test_a_key_that_does_not_name_rows_is_an_index_error(kind, key):
    with pytest.raises(IndexError):
        SOURCES[kind][key]


def test_the_error_names_the_row_and_the_number_of_rows():
    with pytest.raises(IndexError, match="row -10 is outside of 9 rows"):
        NPDataset(ARRAY)[[0, -10, 11]]
    with pytest.raises(IndexError, match=r"mask of shape \(3,\) cannot select from 9 rows"):
        NPDataset(ARRAY)[np.ones(3, bool)]


@pytest.mark.parametrize("kind", SOURCES)
def test_a_source_iterates_over_its_rows_like_any_sequence(kind):
    assert_same(np.stack(list(SOURCES[kind])), ARRAY)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_source_shows_its_length_and_the_spec_of_its_rows(kind):
    assert repr(SOURCES[kind]).endswith("(9 rows of float32[2])")
