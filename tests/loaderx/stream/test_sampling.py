"""Rows of a mixture and rows by weight: exact shares, no row twice too early, and any position without a walk."""

import itertools
import json
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from loaderx import ArgumentError, DataLoader, Mixture, StateError
from loaderx.stream.sampling import MixtureSampler, WeightedSampler

# Number of samples by which a part may miss its share of any range of the stream.
MOST = 3
LONG = 60_000
LENGTH = 10**6

MIXTURES = {
    "one part": [1],
    "halves": [1, 1],
    "thirds": [1, 1, 1],
    "a third and the rest": [1 / 3, 2 / 3],
    "tenths": [0.7, 0.2, 0.1],
    "tenths, the small ones first": [0.1, 0.2, 0.7],
    "one in ten thousand": [1, 1e-4],
    "ten thousand to one": [1e-4, 1],
    "seven parts": [3.1, 2.7, 1.3, 0.9, 0.7, 5.5, 2.2],
    "seven of the same": [1] * 7,
    "no short decimals": [np.pi, np.e, np.sqrt(2), 1 / 7],
    "far apart": [1, 10, 100, 1000],
}
# Parts with next to all of a node that has next to all of another one.
ADVERSE = {
    "four parts": [0.4571, 0.0513, 0.4833, 0.0083],
    "eight parts": [
        3.102565,
        4.639019,
        5.169155,
        34.936587,
        8.836794,
        0.415748,
        6.038938,
        0.001203,
    ],
    "powers of ten": [1, 10, 100, 1000, 10_000],
    "one large": [0.0001, 0.1968, 0.0012, 0.1672, 0.0005, 0.6058, 0.0074, 0.0007, 0.0199],
}
mixtures = pytest.mark.parametrize("name", MIXTURES)


def shares_of(weights):
    exact = [Fraction(str(float(weight))) for weight in weights]
    return [weight / sum(exact) for weight in exact]


def mixed(weights, lengths=None, *, seed=0, shuffle=True):
    return MixtureSampler(lengths or [LENGTH] * len(weights), shares_of(weights), seed, shuffle)


def stretch(sampler, start, count):
    return sampler.rows_at(start + np.arange(count, dtype=np.int64))


def excess(parts, part, share):
    """Return by how much the samples of a part among the first n differ from n times its share, for every n."""
    counts = np.concatenate([[0], np.cumsum(parts == part)])
    return counts - np.arange(len(counts)) * float(share)


def worst_window(parts, shares):
    """Return the largest difference that any part has in any window of any length."""
    return max(np.ptp(excess(parts, part, share)) for part, share in enumerate(shares))


def test_the_measure_of_this_file_sees_a_window_without_a_part():
    parts = np.array([0, 1] * 50 + [1] * 6 + [0, 1] * 50)
    assert worst_window(parts, [0.5, 0.5]) == 3.5


@mixtures
@pytest.mark.parametrize("start", [0, 10**12 + 7, 2**62])
def test_a_part_has_its_share_of_every_window(name, start):
    weights = MIXTURES[name]
    parts = stretch(mixed(weights), start, LONG) // LENGTH
    assert worst_window(parts, shares_of(weights)) <= MOST


@pytest.mark.parametrize("name", ADVERSE)
def test_a_part_has_its_share_of_every_window_whatever_the_weights(name):
    weights = ADVERSE[name]
    parts = stretch(mixed(weights), 0, 10 * LONG) // LENGTH
    assert worst_window(parts, shares_of(weights)) <= MOST


@settings(max_examples=40)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=12))
def test_a_part_has_its_share_of_every_window_of_any_mixture(weights):
    parts = stretch(mixed(weights), 0, 20_000) // LENGTH
    assert worst_window(parts, shares_of(weights)) <= MOST


@mixtures
@pytest.mark.parametrize("length", [1, 2, 10, 64, 1000, 4096])
def test_windows_of_one_length_hold_about_the_same(name, length):
    shares = shares_of(MIXTURES[name])
    parts = stretch(mixed(MIXTURES[name]), 12_345, LONG) // LENGTH
    windows = parts[: LONG // length * length].reshape(-1, length)
    for part, share in enumerate(shares):
        counts = np.sum(windows == part, axis=1)
        assert np.all(np.abs(counts - length * float(share)) <= MOST)


@pytest.mark.parametrize("power", [20, 40, 55, 62])
@pytest.mark.parametrize("name", ["thirds", "tenths", "one in ten thousand"])
def test_shares_do_not_drift(name, power):
    """Compare numbers of samples: that of the next sample of a part is the count of its samples before."""
    weights, length = MIXTURES[name], 2**61
    sampler = mixed(weights, [length] * len(weights), shuffle=False)
    rows = stretch(sampler, 2**power, 20_001)
    for part, share in enumerate(shares_of(weights)):
        place = int(np.flatnonzero(rows // length == part)[0])
        number = int(rows[place]) % length
        expected = (2**power + place) * share % length
        assert abs(number - expected) <= MOST


def test_every_part_comes_however_small_its_share_or_is_refused():
    """Check that no part is left out without an error."""
    tiny = 1e-11
    try:
        mixture = Mixture({"much": (range(10**18), 1 - tiny), "little": (range(10), tiny)})
    except ArgumentError as error:
        assert "little" in str(error)  # noqa: PT017
        return
    loader = DataLoader(mixture, batch_size=1, shuffle=False)
    # The samples of the first part before this step are all but one in 10**11.
    assert abs(10**17 - int(loader.indices(10**17)[0]) - 10**6) <= MOST


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("weights", [[1], [1, 1], [0.7, 0.2, 0.1], [5, 1, 1, 1, 3]])
def test_every_part_is_walked_through_row_by_row_again_and_again(weights, shuffle):
    lengths = [7, 31, 12, 1, 50][: len(weights)]
    sampler = mixed(weights, lengths, shuffle=shuffle)
    rows = stretch(sampler, 0, 3000)
    starts = np.cumsum([0, *lengths])
    for part, length in enumerate(lengths):
        own = rows[(rows >= starts[part]) & (rows < starts[part + 1])] - starts[part]
        epochs = [own[i : i + length].tolist() for i in range(0, len(own), length)]
        assert len(epochs) > 4
        for epoch in epochs[:-1]:
            assert sorted(epoch) == list(range(length))
        assert len(set(epochs[-1])) == len(epochs[-1])
        if not shuffle:
            assert all(epoch == sorted(epoch) for epoch in epochs)
        elif length > 10:
            assert len({tuple(epoch) for epoch in epochs[:-1]}) == len(epochs) - 1


def test_two_parts_of_one_length_are_shuffled_on_their_own():
    rows = stretch(mixed([1, 1], [1000, 1000]), 0, 2000)
    first, second = rows[rows < 1000], rows[rows >= 1000] - 1000
    assert len(first) == len(second) == 1000
    # Two unrelated permutations agree at one place in the mean.
    assert np.sum(first == second) < 10
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.15


def test_another_seed_shuffles_otherwise_and_mixes_alike():
    one, other = (stretch(mixed([2, 1], [500, 500], seed=seed), 0, 600) for seed in (1, 2))
    np.testing.assert_array_equal(one // 500, other // 500)
    assert np.mean(one == other) < 0.05
    np.testing.assert_array_equal(stretch(mixed([2, 1], [500, 500], seed=1), 0, 600), one)


@mixtures
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_row_depends_on_the_position_and_not_on_the_way_there(name, shuffle):
    weights = MIXTURES[name]
    sampler = mixed(weights, [17 + part for part in range(len(weights))], shuffle=shuffle)
    whole = stretch(sampler, 0, 300)
    for size in (1, 7, 64):
        pieces = [stretch(sampler, start, min(size, 300 - start)) for start in range(0, 300, size)]
        np.testing.assert_array_equal(np.concatenate(pieces), whole)
    anywhere = np.random.default_rng(0).permutation(300)
    np.testing.assert_array_equal(sampler.rows_at(anywhere), whole[anywhere])
    repeated = np.array([5, 5, 299, 0, 5])
    np.testing.assert_array_equal(sampler.rows_at(repeated), whole[repeated])
    assert len(sampler.rows_at(np.empty(0, np.int64))) == 0


def counted_rows(shares, lengths, tree, position):
    """Return the row at a position by Python integers of any size, without shuffling."""
    number = position
    while not isinstance(tree, int):
        share, left, right = tree
        before = number * share.numerator // share.denominator
        goes_left = (number + 1) * share.numerator // share.denominator > before
        tree, number = (left, before) if goes_left else (right, number - before)
    return sum(lengths[:tree]) + number % lengths[tree]


@settings(max_examples=200)
@given(
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6),
    st.lists(st.integers(0, 2**62), min_size=1, max_size=20),
)
@example([1 / 3, 2 / 3], [2**62])
@example([1e-3, 1e3, 0.1 + 0.2], [2**62, 2**62 - 1])
def test_positions_up_to_2_to_the_62_do_not_overflow(weights, positions):
    lengths = [10**9 + 7 * part for part in range(len(weights))]
    sampler = mixed(weights, lengths, shuffle=False)
    expected = [counted_rows(sampler._shares, lengths, sampler._tree, p) for p in positions]
    assert sampler.rows_at(np.array(positions)).tolist() == expected
    shuffled = mixed(weights, lengths).rows_at(np.array(positions))
    starts = np.cumsum(lengths)
    np.testing.assert_array_equal(
        np.searchsorted(starts, shuffled, "right"), np.searchsorted(starts, expected, "right")
    )


def test_a_mixture_keeps_nothing_of_earlier_batches():
    sampler = mixed([0.7, 0.2, 0.1], [10**10] * 3)
    stretch(sampler, 0, 512)
    tracemalloc.start()
    try:
        for start in range(0, 2**62, 2**52):
            stretch(sampler, start, 512)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 20_000
    assert peak < 200_000


def test_a_mixture_tells_others_apart():
    described = {
        mixed(weights, lengths).describe()
        for weights, lengths in [
            ([1, 1], [10, 10]),
            ([1, 2], [10, 10]),
            ([1, 1], [11, 9]),
            ([2, 1, 1], [10, 5, 5]),
        ]
    }
    assert len(described) == 4
    # Only their ratio matters.
    assert mixed([7, 3], [10, 10]).describe() == mixed([0.7, 0.3], [10, 10]).describe()


# Rows by weight.


def weighted(weights, rows=None, **options):
    defaults = {"batch_size": 64, "seed": 5, "output": "numpy", "workers": 1}
    data = np.arange(len(weights) if rows is None else rows)
    return DataLoader(data, weights=weights, **(defaults | options))


def drawn(loader, steps):
    with iter(loader) as iterator:
        return list(itertools.islice(iterator, steps))


CLASSES = np.repeat([1 / 90, 1 / 9, 1.0], [90, 9, 1])


@pytest.mark.parametrize(
    "weights",
    [CLASSES, CLASSES.tolist(), CLASSES.astype("f4"), np.arange(10), [True, False, True, True]],
)
def test_a_loader_draws_rows_as_often_as_their_weights_say(weights):
    loader = weighted(weights, batch_size=20_000)
    rows = np.concatenate(drawn(loader, 2))
    numbers = np.asarray(weights, np.float64)
    expected = numbers / numbers.sum() * len(rows)
    counts = np.bincount(rows, minlength=len(numbers))
    assert np.all(counts[numbers == 0] == 0)
    assert stats.chisquare(counts[numbers > 0], expected[numbers > 0]).pvalue > 1e-4


def test_batches_by_weight_are_the_rows_at_their_positions():
    loader = weighted(CLASSES, batch_size=48)
    sampler = WeightedSampler(CLASSES, 5)
    for step, batch in enumerate(drawn(loader, 5)):
        np.testing.assert_array_equal(batch, stretch(sampler, step * 48, 48))
        np.testing.assert_array_equal(batch, loader.indices(step))
        np.testing.assert_array_equal(batch, loader.batch(step))


def test_the_batch_size_does_not_change_what_is_drawn():
    small, large = (
        np.concatenate(drawn(weighted(CLASSES, batch_size=size), 240 // size)) for size in (24, 80)
    )
    np.testing.assert_array_equal(small, large)


def test_another_seed_draws_other_rows():
    one, other = (drawn(weighted(np.arange(1000), seed=seed), 1)[0] for seed in (1, 2))
    assert np.mean(one == other) < 0.1


def test_any_number_of_workers_draws_the_same():
    alone, together = (drawn(weighted(CLASSES, workers=workers), 20) for workers in (1, 3))
    np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize("remainder", ["straddle", "keep", "drop", "pad"])
def test_an_epoch_by_weight_has_as_many_samples_as_rows(remainder):
    loader = weighted(CLASSES, batch_size=30, num_epochs=2, remainder=remainder)
    batches = drawn(loader, 100)
    assert len(batches) == len(loader)
    valid = [batch[0][batch[1]] if remainder == "pad" else batch for batch in batches]
    assert sum(map(len, valid)) == (180 if remainder == "drop" else 200)
    if remainder != "drop":
        np.testing.assert_array_equal(
            np.concatenate(valid), stretch(WeightedSampler(CLASSES, 5), 0, 200)
        )


def test_a_stream_by_weight_resumes_where_it_was():
    loader = weighted(CLASSES)
    batches = drawn(loader, 8)
    with iter(loader) as iterator:
        drawn_first = [next(iterator) for _ in range(3)]
        state = json.loads(json.dumps(iterator.get_state()))
    np.testing.assert_array_equal(drawn_first, batches[:3])
    with iter(weighted(CLASSES, workers=3)) as restored:
        restored.set_state(state)
        np.testing.assert_array_equal([next(restored) for _ in range(5)], batches[3:])


def state_of(loader):
    with iter(loader) as iterator:
        next(iterator)
        return iterator.get_state()


def test_a_state_of_other_weights_is_refused_unless_asked_for():
    state = state_of(weighted([1.0, 2.0, 3.0]))
    with iter(weighted([1.0, 2.0, 4.0])) as other:
        with pytest.raises(StateError, match=r"its data is .*weights.* strict=False continues"):
            other.set_state(state)
        other.set_state(state, strict=False)
        np.testing.assert_array_equal(next(other), weighted([1.0, 2.0, 4.0]).batch(1))
    with iter(weighted(None, 3)) as unweighted, pytest.raises(StateError, match="its data is"):
        unweighted.set_state(state)
    assert state == state_of(weighted([2.0, 4.0, 6.0]))


def test_no_two_tables_are_described_alike():
    """Check that the same weights in another order are another stream."""
    tables = {}
    for weights in itertools.product(range(4), repeat=4):
        if any(weights):
            sampler = WeightedSampler(np.array(weights, np.float64), 0)
            table = (sampler._thresholds.tobytes(), sampler._aliases.tobytes())
            tables.setdefault(sampler.describe(), set()).add(table)
    assert len(tables) > 100
    assert [described for described, found in tables.items() if len(found) > 1] == []


@pytest.mark.parametrize("scale", [1e-320, 1e-310, 1e-300, 1e300, 5e307])
def test_the_size_of_weights_does_not_matter_but_their_ratio(scale):
    weights = np.array([0.0, 1.0, 1.0, 1.0, 0.0, 1.0]) * scale
    assert set(np.concatenate(drawn(weighted(weights), 3)).tolist()) == {1, 2, 3, 5}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0] * 9, r"`weights` must be 10 numbers, one per row, not float64\[9\]"),
        ([1.0] * 11, r"`weights` must be 10 numbers, one per row, not float64\[11\]"),
        (np.ones((10, 1)), r"`weights` must be 10 numbers, one per row, not float64\[10, ?1\]"),
        (1.0, r"`weights` must be 10 numbers, one per row, not "),
        ([], r"`weights` must be 10 numbers, one per row, not "),
        (["a"] * 10, r"`weights` must be 10 numbers, one per row, not "),
        ([1j] * 10, r"`weights` must be 10 numbers, one per row, not complex128\[10\]"),
        ([1.0] * 9 + [-1e-9], "`weights` must be finite, not below 0, and not all 0"),
        ([1] * 9 + [-1], "`weights` must be finite, not below 0, and not all 0"),
        ([1.0] * 9 + [np.nan], "`weights` must be finite, not below 0, and not all 0"),
        ([1.0] * 9 + [np.inf], "`weights` must be finite, not below 0, and not all 0"),
        ([0.0] * 10, "`weights` must be finite, not below 0, and not all 0"),
        ([0] * 10, "`weights` must be finite, not below 0, and not all 0"),
    ],
)
def test_invalid_weights_are_refused(weights, message):
    with pytest.raises(ArgumentError, match=message):
        weighted(weights, 10)


def test_weights_without_shuffling_are_refused():
    with pytest.raises(ArgumentError, match=r"`weights` draws rows at random.*shuffle=True"):
        weighted([1.0, 2.0], shuffle=False)


def test_weights_are_copied_when_the_loader_is_made():
    weights = np.array([1.0, 0.0, 0.0])
    loader = weighted(weights)
    weights[:] = [0, 0, 1]
    assert set(loader.batch(0).tolist()) == {0}
    np.testing.assert_array_equal(weights, [0, 0, 1])
