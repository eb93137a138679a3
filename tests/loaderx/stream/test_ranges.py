"""Ranges of places, compared with sets of integers."""

import itertools

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from loaderx.stream import ranges

SIZE = 60
one_range = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(lambda ends: (min(ends), max(ends)))  # fmt: skip
any_ranges = st.lists(one_range, max_size=8)
unions = any_ranges.map(ranges.union)


def members(given_ranges):
    return {place for start, stop in given_ranges for place in range(start, stop)}


def in_order(given_ranges):
    return [place for start, stop in given_ranges for place in range(start, stop)]


@given(any_ranges)
@example([])
@example([(3, 3)])
@example([(0, 2), (2, 4)])
@example([(0, 9), (1, 2), (2, 5)])
@example([(5, 6), (0, 1)])
def test_a_union_has_the_places_of_all_in_as_few_ranges_as_can_be(given_ranges):
    joined = ranges.union(iter(given_ranges))
    assert in_order(joined) == sorted(members(given_ranges))
    assert all(start < stop for start, stop in joined)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(joined))
    assert ranges.union(joined) == joined


def test_a_union_can_be_compared_and_kept():
    assert ranges.union([(4, 6), (0, 2), (2, 3)]) == ((0, 3), (4, 6))
    assert ranges.union([]) == ()


@given(unions, st.integers(0, SIZE - 1))
@example(((0, SIZE),), 0)
@example(((0, SIZE),), 1)
@example(((SIZE - 1, SIZE),), SIZE - 1)
@example(((0, 1),), SIZE - 1)
def test_rotated_places_are_further_around(given_ranges, step):
    turned = list(ranges.rotated(given_ranges, step, SIZE))
    assert all(0 <= start < stop <= SIZE for start, stop in turned)
    assert sorted(in_order(turned)) == sorted((p + step) % SIZE for p in members(given_ranges))


@given(any_ranges)
def test_places_are_counted_and_listed(given_ranges):
    assert ranges.count(given_ranges) == len(in_order(given_ranges))
    listed = ranges.places(given_ranges)
    assert listed.dtype == np.int64
    assert listed.tolist() == in_order(given_ranges)


@given(unions, st.lists(st.integers(-3, SIZE + 3), max_size=10))
def test_cut_ranges_have_the_same_places_and_no_border_inside(given_ranges, borders):
    pieces = ranges.cut(given_ranges, iter(borders))
    assert in_order(pieces) == in_order(given_ranges)
    assert not any(start < border < stop for start, stop in pieces for border in borders)
    ends = {end for own in given_ranges for end in own}
    assert all(start in ends | set(borders) for start, _ in pieces)
    assert all(start < stop for start, stop in pieces)


@given(st.one_of(unions, any_ranges), st.integers(1, 12))
def test_divided_parts_have_the_same_places_and_about_the_same_size(given_ranges, parts):
    divided = ranges.divided(given_ranges, parts)
    assert len(divided) == parts
    assert [p for part in divided for p in in_order(part)] == in_order(given_ranges)
    sizes = [ranges.count(part) for part in divided]
    assert max(sizes) - min(sizes) <= 1
    assert all(start < stop for part in divided for start, stop in part)


def test_very_long_ranges_cost_nothing():
    long = ((0, 2**40), (2**50, 2**60))
    assert ranges.count(long) == 2**40 + 2**60 - 2**50
    assert ranges.count(ranges.rotated(long, 2**59, 2**60)) == ranges.count(long)
    assert [ranges.count(part) for part in ranges.divided(long, 2)] == [ranges.count(long) // 2] * 2
