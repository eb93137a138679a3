"""Subsets, splits and concatenations of any source, and that compiled code still reads them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderx import ArgumentError, DataLoader, NPDataset, concatenate, select, split
from loaderx.sources import AddressableSource, FieldsSource, as_source
from tests.loaderx.sources.rows import assert_delivers, assert_same, values

ROWS = 12
ARRAY = values((ROWS, 3), "f4")
LABELS = values((ROWS,), "i8")


class Rows:
    """Python object with rows of two fields."""

    def __init__(self, images=ARRAY, labels=LABELS):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, number):
        return {"image": self.images[number], "label": self.labels[number]}


LOCATED = {
    "array": lambda: NPDataset(ARRAY),
    "fortran array": lambda: NPDataset(np.asfortranarray(ARRAY)),
    "big-endian array": lambda: NPDataset(ARRAY.astype(">f4")),
    "selection": lambda: NPDataset(ARRAY[::-1]).select(range(ROWS - 1, -1, -1)),
    "concatenation": lambda: NPDataset(ARRAY[:5]) + NPDataset(ARRAY[5:]),
    "concatenation of views": lambda: (
        NPDataset(ARRAY).select(slice(0, 5)) + NPDataset(ARRAY).select(slice(5, None))
    ),
}
SOURCES = {
    **{name: (make, ARRAY) for name, make in LOCATED.items()},
    "list of arrays": (lambda: as_source(list(ARRAY)), ARRAY),
    "range": (lambda: as_source(range(ROWS)), np.arange(ROWS)),
    "record": (
        lambda: FieldsSource({"image": NPDataset(ARRAY), "label": NPDataset(LABELS)}),
        {"image": ARRAY, "label": LABELS},
    ),
    "object": (lambda: as_source(Rows()), {"image": ARRAY, "label": LABELS}),
    "tuples": (
        lambda: as_source([(image, label) for image, label in zip(ARRAY, LABELS, strict=True)]),
        (ARRAY, LABELS),
    ),
}
SELECTIONS = {
    "a slice": slice(2, 9),
    "a slice with a step": slice(1, None, 3),
    "a slice backwards": slice(None, None, -2),
    "a range": range(2, 9),
    "a range backwards": range(9, 2, -3),
    "a range of negative rows": range(-1, -6, -1),
    "row numbers": [3, 1, 1, 7],
    "negative row numbers": [-1, 0, -12],
    "an array of row numbers": np.array([5, 2, 9], np.uint16),
    "a mask": np.arange(ROWS) % 3 == 1,
    "a list of booleans": [True] + [False] * 10 + [True],
    "one row": 4,
    "all rows": slice(None),
}


def rows_of(expected, key):
    if isinstance(expected, dict):
        return {name: array[key] for name, array in expected.items()}
    if isinstance(expected, tuple):
        return tuple(array[key] for array in expected)
    return expected[key]


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("kind", SOURCES)
def test_select_gives_the_rows_that_brackets_give(kind, selection):
    make, expected = SOURCES[kind]
    key = SELECTIONS[selection]
    selected = make().select(key)
    key = [key] if isinstance(key, int) else key
    assert selected.spec == make().spec
    assert_delivers(selected, rows_of(expected, list(key) if isinstance(key, range) else key))


@pytest.mark.parametrize("kind", SOURCES)
def test_views_of_views_are_views(kind):
    make, expected = SOURCES[kind]
    view = make().select(range(1, 11)).select([9, 0, 3, 5]).select(slice(None, None, -1))
    assert_delivers(view, rows_of(expected, [6, 4, 1, 10]))
    first, second = make().select(range(1, 11)).split(0.4, seed=5)
    together = (second + first).select(np.argsort(np.r_[_numbers(second), _numbers(first)]))
    assert_delivers(together, rows_of(expected, range(1, 11)))


def _numbers(view):
    """Return the row number in the original source for every row of a view."""
    rows = view[:]
    if isinstance(rows, dict | tuple):
        rows = rows["image"] if isinstance(rows, dict) else rows[0]
    if rows.ndim == 1:
        return rows
    return np.array([int(np.flatnonzero((row == ARRAY).all(axis=1))[0]) for row in rows])


@pytest.mark.parametrize("kind", SOURCES)
def test_split_divides_all_rows_into_two_parts_that_share_none(kind):
    make, expected = SOURCES[kind]
    first, second = make().split(0.75, seed=1)
    assert (len(first), len(second)) == (9, 3)
    numbers = np.concatenate([_numbers(first), _numbers(second)])
    assert sorted(numbers) == list(range(ROWS))
    assert_delivers(first, rows_of(expected, _numbers(first)))
    assert_delivers(second, rows_of(expected, _numbers(second)))


@settings(deadline=None)  # The first call may compile.
@given(st.integers(2, 3000), st.floats(0, 1), st.integers(0, 2**64 - 1))
def test_split_is_exact_for_any_length_fraction_and_seed(length, fraction, seed):
    source = as_source(np.arange(length))
    if not 0 < round(length * fraction) < length:
        with pytest.raises(ArgumentError, match=r"`fraction` \(="):
            source.split(fraction, seed=seed)
        return
    first, second = source.split(fraction, seed=seed)
    assert len(first) == round(length * fraction)
    assert np.array_equal(np.sort(np.concatenate([first[:], second[:]])), np.arange(length))


def test_sources_of_one_length_are_split_alike():
    numbers = as_source(range(1000)).split(0.3, seed=7)
    tens = NPDataset(np.arange(1000) * 10).split(0.3, seed=7)
    for one, other in zip(numbers, tens, strict=True):
        assert_same(other[:], one[:] * 10)


def test_another_seed_is_another_split():
    splits = [as_source(range(1000)).split(0.5, seed=seed)[0][:] for seed in range(20)]
    for number, one in enumerate(splits):
        for other in splits[:number]:
            # Two random halves share half their rows: 250 of 500, give or take 8.
            assert 200 < len(np.intersect1d(one, other)) < 300


def test_every_row_is_as_likely_in_the_first_part():
    counts = np.zeros(20)
    for seed in range(2000):
        counts[as_source(np.arange(20)).split(0.25, seed=seed)[0][:]] += 1
    deviation = (counts - 500) / np.sqrt(2000 * 0.25 * 0.75)
    assert np.abs(deviation).max() < 4.5


def test_the_split_of_a_seed_never_changes():
    first, second = as_source(range(10)).split(0.6, seed=0)
    again = as_source(range(10)).split(0.6)
    assert_same(again[0][:], first[:])
    assert_same(again[1][:], second[:])


@pytest.mark.parametrize("kind", SOURCES)
def test_a_concatenation_has_the_rows_of_one_source_after_the_other(kind):
    make, expected = SOURCES[kind]
    twice = rows_of(expected, [*range(ROWS), *range(ROWS)])
    assert_delivers(make() + make(), twice)
    assert_delivers(concatenate([make(), make()]), twice)
    assert_delivers(concatenate((make(),)), expected)
    parts = [make().select(range(start, start + 3)) for start in range(0, ROWS, 3)]
    assert_delivers(concatenate(parts), expected)
    assert_delivers(sum(parts[1:], start=parts[0]), expected)


@pytest.mark.parametrize("first", [kind for kind in SOURCES if SOURCES[kind][1] is ARRAY])
@pytest.mark.parametrize("second", [kind for kind in SOURCES if SOURCES[kind][1] is ARRAY])
def test_sources_of_any_two_kinds_are_concatenated(first, second):
    both = SOURCES[first][0]() + SOURCES[second][0]().select(range(3))
    assert_delivers(both, np.concatenate([ARRAY, ARRAY[:3]]))


def test_a_record_and_an_object_with_the_same_fields_are_concatenated():
    record, fields = SOURCES["record"][0](), SOURCES["record"][1]
    twice = rows_of(fields, [*range(ROWS), *range(ROWS)])
    assert_delivers(record + as_source(Rows()), twice)
    assert_delivers(as_source(Rows()) + record, twice)


def test_fields_are_concatenated_by_name_and_not_by_place():
    one = as_source([{"left": 1, "right": 2}])
    other = as_source([{"right": 20, "left": 10}])
    record = FieldsSource({"right": as_source([200]), "left": as_source([100])})
    assert_same((one + other)[:], {"left": np.array([1, 10]), "right": np.array([2, 20])})
    assert_same((one + record)[:], {"left": np.array([1, 100]), "right": np.array([2, 200])})
    assert_same((record + one)[:], {"right": np.array([200, 2]), "left": np.array([100, 1])})


def test_dicts_of_fields_are_concatenated():
    both = concatenate([{"a": ARRAY[:5], "b": [1, 2, 3, 4, 5]}, {"a": ARRAY[5:7], "b": [6, 7]}])
    assert_same(both[:], {"a": ARRAY[:7], "b": np.arange(1, 8)})


def test_a_dict_where_one_source_is_expected_is_named():
    with pytest.raises(ArgumentError, match=r"'a' is a dict \(of \['b'\]\)\. .* one by one"):
        concatenate([{"a": {"b": ARRAY}}])
    with pytest.raises(ArgumentError, match="one by one"):
        DataLoader(({"b": ARRAY}, ARRAY))


def test_arrays_and_lists_are_concatenated_as_the_sources_they_are():
    assert_delivers(concatenate([ARRAY, NPDataset(ARRAY)]), np.concatenate([ARRAY, ARRAY]))


def test_adding_an_array_never_adds_numbers():
    with pytest.raises(TypeError):
        NPDataset(ARRAY) + ARRAY
    with pytest.raises(TypeError):
        ARRAY + NPDataset(ARRAY)


@pytest.mark.parametrize("kind", LOCATED)
def test_views_of_rows_in_memory_stay_on_the_compiled_path(kind):
    source = LOCATED[kind]()
    views = [
        source,
        source + source,
        *source.split(0.5),
        *[source.select(rows) for rows in SELECTIONS.values()],
        source.select([1, 2]) + source.select(range(3)) + source.split(0.5)[1],
        (source + source).split(0.3)[0].select(slice(None, None, -1)),
    ]
    for view in views:
        assert isinstance(view, AddressableSource)
        assert view.layout.same_as(source.layout)


def test_a_view_reads_nothing_of_its_source():
    class Counting(Rows):
        def __init__(self):
            super().__init__()
            self.read = []

        def __getitem__(self, number):
            self.read.append(number)
            return super().__getitem__(number)

    rows = Counting()
    source = as_source(rows)
    rows.read.clear()
    view = (source.select(range(3)) + source.split(0.5)[0]).select([0, -1])
    assert len(view) == 2
    assert rows.read == []
    view[0]
    assert rows.read == [0]


def test_a_view_of_a_billion_rows_costs_nothing():
    source = as_source(range(10**9))
    first, second = source.split(0.999)
    both = first.select(slice(None, None, 7)) + second + source.select(range(0, 10**9, 3))
    assert len(both) == 142_714_286 + 1_000_000 + 333_333_334
    assert both[-1] == 999_999_999
    assert_same(second[[0, 1]], second.select([0, 1])[:])


@pytest.mark.parametrize("rows", [[], range(0), slice(3, 3), np.zeros(ROWS, bool)], ids=repr)
def test_selecting_no_row_is_refused(rows):
    with pytest.raises(ArgumentError, match=r"(?s)`rows` \(=.*\) selects none of the 12 rows"):
        NPDataset(ARRAY).select(rows)


@pytest.mark.parametrize("rows", [[0, 12], [-13], range(5, 13), range(-13, 0), 12], ids=repr)
def test_selecting_a_row_that_is_not_there_is_an_index_error(rows):
    with pytest.raises(IndexError, match="is outside of 12 rows"):
        NPDataset(ARRAY).select(rows)


def test_selecting_by_a_mask_of_another_length_is_an_index_error():
    with pytest.raises(IndexError, match=r"a mask of shape \(3,\) cannot select from 12 rows"):
        NPDataset(ARRAY).select([True, False, True])


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, 0.04, 0.97, float("nan"), float("inf")])
def test_a_split_that_leaves_a_side_empty_is_refused(fraction):
    with pytest.raises(ArgumentError, match=r"`fraction` \(=.*\) must leave at least one"):
        NPDataset(ARRAY).split(fraction)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "1", True, None])
def test_a_split_by_an_invalid_seed_is_refused(seed):
    with pytest.raises(ArgumentError, match=r"`seed` \(="):
        NPDataset(ARRAY).split(0.5, seed=seed)


@pytest.mark.parametrize(
    "other",
    [values((4, 2), "f4"), values((4, 3), "f8"), values((4,), "f4"), [{"a": 1.0}], [(1.0,)]],
)
def test_concatenating_rows_that_differ_is_refused(other):
    with pytest.raises(ArgumentError, match=r"source 0 has rows of float32\[3\], source 1 of "):
        concatenate([NPDataset(ARRAY), as_source(other)])


def test_concatenating_nothing_is_refused():
    with pytest.raises(ArgumentError, match="`sources` is empty"):
        concatenate([])


FIELDS = {"image": ARRAY, "label": LABELS}


def test_a_dict_of_fields_is_split_as_its_sources_are():
    parts = split(FIELDS, 0.75, seed=5)
    for number, part in enumerate(parts):
        expected = {
            name: NPDataset(array).split(0.75, seed=5)[number][:] for name, array in FIELDS.items()
        }
        assert_delivers(part, expected)
    rows = np.concatenate([part[:]["label"] for part in parts])
    assert sorted(rows) == sorted(LABELS)


def test_rows_of_a_dict_of_fields_are_selected():
    assert_delivers(select(FIELDS, [3, 0]), {name: FIELDS[name][[3, 0]] for name in FIELDS})
    assert_delivers(select(FIELDS, slice(2, 9, 3)), {name: FIELDS[name][2:9:3] for name in FIELDS})


def test_a_tuple_is_split_into_tuples():
    first, second = split((ARRAY, LABELS), 0.5, seed=1)
    dicts = split(FIELDS, 0.5, seed=1)
    for part, twin in zip((first, second), dicts, strict=True):
        assert_same(tuple(source[:] for source in part), tuple(twin[:].values()))
        batch = DataLoader(part, batch_size=3, output="numpy").batch(0)
        assert isinstance(batch, tuple)
    assert_same(
        tuple(source[:] for source in select((ARRAY, LABELS), [1])), (ARRAY[[1]], LABELS[[1]])
    )


@pytest.mark.parametrize(
    "data", [ARRAY, NPDataset(ARRAY), list(ARRAY), Rows()], ids=lambda data: type(data).__name__
)
def test_whatever_is_a_source_is_split(data):
    parts = split(data, 0.5), as_source(data).split(0.5)
    assert_same(tuple(part[:] for part in parts[0]), tuple(part[:] for part in parts[1]))


def test_fields_of_different_lengths_are_not_split():
    for data in ({"a": ARRAY, "b": LABELS[1:]}, (ARRAY, LABELS[1:])):
        with pytest.raises(ArgumentError, match="the same number of rows"):
            split(data, 0.5)
        with pytest.raises(ArgumentError, match="the same number of rows"):
            select(data, [0])
