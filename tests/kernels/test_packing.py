"""Documents go to the first row with room for them, and rows hold the documents of the plan."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderx.kernels import packing
from tests import reference


def tree(rows):
    return np.empty(2 << (rows - 1).bit_length(), np.int32)


def planned(sizes, length, room, kernels=packing):
    rows = np.full(len(sizes), -1, np.int32)
    kernels.first_fit(np.asarray(sizes, np.int32), length, room, rows)
    return rows


@settings(deadline=None, max_examples=200)
@given(data=st.data(), length=st.integers(1, 30))
def test_the_tree_finds_the_row_that_looking_at_every_row_finds(data, length):
    sizes = data.draw(st.lists(st.integers(1, length), min_size=1, max_size=60))
    room = tree(len(sizes))
    np.testing.assert_array_equal(
        planned(sizes, length, room), planned(sizes, length, room, reference)
    )


def test_a_tree_for_as_many_rows_as_can_be_needed_is_enough():
    # Just above a half each: the most rows that first-fit can take for so many tokens.
    sizes, length = np.full(999, 51), 100
    rows = planned(sizes, length, tree(2 * (int(sizes.sum()) // length) + 2))
    np.testing.assert_array_equal(rows, np.arange(999))


def test_the_known_example_of_first_fit_is_packed_as_published():
    # Johnson et al. 1974, in small: first-fit takes 5 rows where 3 would be enough.
    sizes = [6, 6, 6, 15, 15, 15, 22, 22, 22]
    assert planned(sizes, 43, tree(9)).tolist() == [0, 0, 0, 0, 1, 1, 2, 3, 4]


@settings(deadline=None, max_examples=100)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=20),
    length=st.integers(1, 12),
)
def test_documents_are_cut_as_the_twin_cuts_them(sizes, length):
    sizes = np.array(sizes, np.int64)
    starts = np.cumsum(sizes) - sizes + 5
    count = int(np.sum(-(-sizes // length)))
    found, expected = (
        (np.full(count, -1, np.int64), np.full(count, -1, np.int32)) for _ in range(2)
    )
    packing.cut_documents(starts, sizes, length, *found)
    reference.cut_documents(starts, sizes, length, *expected)
    for array, twin in zip(found, expected, strict=True):
        np.testing.assert_array_equal(array, twin)


@settings(deadline=None, max_examples=100)
@given(rows=st.lists(st.integers(0, 9), min_size=1, max_size=50))
def test_pieces_are_sorted_by_row_and_keep_their_order(rows):
    rows = np.array(rows, np.int32)
    starts, sizes = np.arange(len(rows)) * 100, np.arange(len(rows), dtype=np.int32)
    found, expected = (
        (np.full(11, -1, np.int64), np.empty_like(starts), np.empty_like(sizes)) for _ in range(2)
    )
    packing.sort_pieces(rows, starts, sizes, *found)
    reference.sort_pieces(rows, starts, sizes, *expected)
    for array, twin in zip(found, expected, strict=True):
        np.testing.assert_array_equal(array, twin)


def test_rows_of_tokens_of_any_width_are_those_of_the_twin():
    random = np.random.default_rng(0)
    firsts = np.array([0, 3, 4, 4, 6], np.int64)
    sizes = np.array([5, 1, 7, 13, 4, 9], np.int32)
    starts = np.array([40, 3, 11, 20, 0, 60], np.int64)
    rows = np.array([3, 0, 2, 1, 0], np.int64)
    for dtype in (np.uint8, np.uint16, np.int32, np.int64):
        source = random.integers(0, 100, 80).astype(dtype)
        padding = np.full(13, 77, dtype).view(np.uint8)
        results = []
        for kernels in (packing, reference):
            tokens = np.zeros((5, 13), dtype)
            segments, positions = np.full((2, 5, 13), -1, np.int32)
            kernels.pack_rows(
                rows,
                firsts,
                starts,
                sizes,
                source.ctypes.data,
                padding,
                tokens.reshape(-1).view(np.uint8),
                segments,
                positions,
            )
            results.append((tokens, segments, positions))
        for array, twin in zip(*results, strict=True):
            np.testing.assert_array_equal(array, twin)
        np.testing.assert_array_equal(results[0][0][3], source[20:33])
