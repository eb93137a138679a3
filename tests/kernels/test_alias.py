"""An alias table holds every weight exactly, and a draw from it depends on the position alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core import config
from scipy import stats

from loaderx.kernels.alias import build_alias, draw_rows
from tests import reference

UNIT = 2**32
# Plain Python takes 50 us for a draw.
MANY_ROWS = 2000 if config.DISABLE_JIT else 1_000_000
MANY_DRAWS = 1500 if config.DISABLE_JIT else 400_000

WEIGHTS = {
    "one row": [3.0],
    "two rows": [1.0, 3.0],
    "equal": [2.5] * 7,
    "equal but for rounding": [0.1] * 10,
    "rising": list(range(1, 50)),
    "falling": list(range(50, 0, -1)),
    "zeros": [0, 0, 5, 0, 1, 0, 0],
    "one of many": [0.0] * 30 + [1.0] + [0.0] * 30,
    "extreme": [1e-300, 1e300, 1.0, 1e-10, 1e299],
    "far apart": [10.0**power for power in range(-20, 20)],
    "random": np.random.default_rng(0).random(200).tolist(),
    "classes": np.repeat([1 / 900, 1 / 90, 1 / 10], [900, 90, 10]).tolist(),
}
all_weights = pytest.mark.parametrize("name", WEIGHTS)


def shares_of(weights):
    weights = np.asarray(weights, np.float64)
    return weights * (len(weights) / weights.sum())


def table_of(shares, kernel=build_alias):
    thresholds, aliases = np.empty(len(shares), np.uint32), np.empty(len(shares), np.int64)
    kernel(shares.copy(), thresholds, aliases)
    return thresholds, aliases


def draw(positions, table, key=7, kernel=draw_rows):
    positions = np.asarray(positions, np.int64)
    out = np.full(len(positions), -1, np.int64)
    kernel(np.uint64(key), positions, *table, out)
    return out


def represented(thresholds, aliases):
    """Return how many of all slots each row has, and in how many slots it has a part."""
    rows = np.arange(len(aliases))
    # A row that is its own alias has its slot for itself, whatever the threshold.
    own = np.where(aliases == rows, 1.0, thresholds / UNIT)
    slots = own + np.bincount(aliases, 1 - own, len(aliases))
    return slots, 1 + np.bincount(aliases, minlength=len(aliases))


def assert_exact(weights):
    """Check the shares: a threshold is truncated to 32 bits, which is the largest error per slot of a row."""
    shares = shares_of(weights)
    slots, parts = represented(*table_of(shares))
    assert np.max(np.abs(slots - shares) / parts) < 2**-30


@all_weights
def test_a_table_holds_the_weights_exactly(name):
    assert_exact(WEIGHTS[name])


def test_a_table_of_many_rows_holds_the_weights_exactly():
    random = np.random.default_rng(1)
    assert_exact(random.random(MANY_ROWS))
    assert_exact(random.pareto(1.2, MANY_ROWS))
    assert_exact(np.where(random.random(MANY_ROWS) < 0.9, 0, 0.1))


@given(st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e6)), min_size=1, max_size=60))
def test_any_table_holds_the_weights_exactly(weights):
    assert_exact([*weights, 1.0])


def test_the_comparison_of_this_file_sees_another_table():
    shares = shares_of(WEIGHTS["random"])
    thresholds, aliases = table_of(shares)
    thresholds[np.argmin(thresholds)] += 100
    slots, parts = represented(thresholds, aliases)
    assert np.max(np.abs(slots - shares) / parts) > 2**-30


@all_weights
def test_a_table_equals_the_twin(name):
    shares = shares_of(WEIGHTS[name])
    for array, twin in zip(table_of(shares), table_of(shares, reference.build_alias), strict=True):
        np.testing.assert_array_equal(array, twin)


@given(st.lists(st.one_of(st.just(0.0), st.floats(0, 1e6)), min_size=1, max_size=60))
def test_any_table_equals_the_twin(weights):
    shares = shares_of([*weights, 1.0])
    for array, twin in zip(table_of(shares), table_of(shares, reference.build_alias), strict=True):
        np.testing.assert_array_equal(array, twin)


@all_weights
@pytest.mark.parametrize("key", [0, 2**64 - 1])
def test_draws_equal_the_twin(name, key):
    table = table_of(shares_of(WEIGHTS[name]))
    positions = [*range(50), 2**31, 2**32 + 1, 2**62, 2**63 - 1]
    expected = draw(positions, table, key, reference.draw_rows)
    np.testing.assert_array_equal(draw(positions, table, key), expected)


@pytest.mark.parametrize(
    # At the last positions the lower half of the bits decides on the slot.
    ("rows", "decided"),
    [(2**16 + 1, [176_979, 230_174]), (2**20 - 1, [14_411, 16_231, 27_591])],
)
def test_draws_from_many_slots_equal_the_twin(rows, decided):
    table = np.full(rows, UNIT - 1, np.uint32), np.arange(rows)
    positions = [*range(200), *decided]
    expected = draw(positions, table, 3, reference.draw_rows)
    np.testing.assert_array_equal(draw(positions, table, 3), expected)
    assert expected.max() > rows * 0.9
    upper = [
        reference.draw_bits(reference.fold(3, position), 0) // UNIT * rows // UNIT
        for position in decided
    ]
    np.testing.assert_array_equal(expected[-len(decided) :] - upper, 1)


@all_weights
def test_a_weight_of_zero_is_never_drawn(name):
    weights = np.asarray(WEIGHTS[name])
    slots, _ = represented(*table_of(shares_of(weights)))
    assert np.all(slots[weights == 0] == 0)
    drawn = draw(range(MANY_DRAWS // 10), table_of(shares_of(weights)))
    assert np.all((drawn >= 0) & (drawn < len(weights)))
    assert np.all(weights[drawn] > 0)


def test_among_many_rows_a_weight_of_zero_is_never_drawn():
    random = np.random.default_rng(5)
    for share in (0.001, 0.5, 0.999):
        weights = np.where(random.random(MANY_ROWS) < share, 0, random.random(MANY_ROWS))
        slots, _ = represented(*table_of(shares_of(weights)))
        assert np.all(slots[weights == 0] == 0)


@pytest.mark.parametrize("name", ["two rows", "equal", "rising", "falling", "zeros", "classes"])
def test_rows_are_drawn_as_often_as_their_weights_say(name):
    weights = np.asarray(WEIGHTS[name], np.float64)
    counts = np.bincount(draw(range(MANY_DRAWS), table_of(shares_of(weights))))
    counts = np.pad(counts, (0, len(weights) - len(counts)))
    expected = weights / weights.sum() * MANY_DRAWS
    wanted = expected > 0
    assert stats.chisquare(counts[wanted], expected[wanted]).pvalue > 1e-4
    # The same counts with other weights would be noticed.
    assert name == "equal" or stats.chisquare(counts).pvalue < 1e-4


def test_a_row_does_not_follow_from_the_one_before():
    rows = draw(range(MANY_DRAWS), table_of(shares_of([1.0, 2.0, 1.0, 4.0])))
    pairs = np.bincount(rows[:-1] * 4 + rows[1:], minlength=16).reshape(4, 4)
    assert stats.chi2_contingency(pairs).pvalue > 1e-4


def test_a_row_depends_on_key_and_position_and_not_on_the_batch():
    table = table_of(shares_of(WEIGHTS["random"]))
    positions = np.random.default_rng(2).integers(0, 2**62, 300)
    whole = draw(positions, table)
    np.testing.assert_array_equal(draw(positions[::-1], table), whole[::-1])
    np.testing.assert_array_equal([draw([p], table)[0] for p in positions], whole)
    np.testing.assert_array_equal(draw(positions[100:107], table), whole[100:107])
    assert np.mean(draw(positions, table, key=8) == whole) < 0.1


def test_no_position_draws_nothing():
    assert len(draw([], table_of(shares_of([1.0, 2.0])))) == 0
