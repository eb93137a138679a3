"""Statistics of the shuffle: by each of them epochs look like `numpy.random.Generator.permutation`.

A statistic of a few thousand epochs must lie within 4 standard deviations of its mean over many runs of NumPy's. All
runs have fixed seeds, so a test that passes once passes always, until someone changes the shuffle.
"""

import itertools
import json
import math

import numpy as np
import pytest
from scipy import stats

from loaderx.kernels import feistel
from loaderx.kernels.keys import derive_key
from loaderx.kernels.random import ORDER
from loaderx.kernels.shuffling import Permutation
from loaderx.stream.order import Order
from tests import reference
from tests.loaderx import shuffles
from tests.loaderx.shuffles import EPOCHS, stacked

OF_NUMPY = json.loads(shuffles.FILE.read_text(encoding="utf-8"))


def loaderx_epoch(rows, seed, epoch):
    order = Order(rows, rows, shuffle=True, seed=seed, epochs=None, remainder="straddle")
    return order.rows_of(order.span(epoch * rows))


def loaderx_epochs(rows, seed=0):
    return stacked(loaderx_epoch(rows, seed, epoch) for epoch in range(EPOCHS[rows]))


def standardised(epochs):
    """Return the statistics of epochs, in standard deviations from NumPy's."""
    of_numpy = OF_NUMPY[str(epochs.shape[1])]
    return dict(
        zip(
            itertools.product((table.__name__ for table in shuffles.TABLES), ("sum", "largest")),
            (shuffles.statistics(epochs) - of_numpy["mean"]) / of_numpy["deviation"],
            strict=True,
        )
    )


@pytest.mark.parametrize("rows", EPOCHS)
def test_epochs_are_as_random_as_permutations_of_numpy(rows):
    for name, distance in standardised(loaderx_epochs(rows)).items():
        assert abs(distance) < 4, name


# To measure all of them takes seconds.
@pytest.mark.parametrize(
    "rows", [8, *(pytest.param(rows, marks=pytest.mark.long) for rows in EPOCHS if rows != 8)]
)
def test_the_known_statistics_of_numpy_are_right(rows):
    # Another NumPy may draw other permutations, which are as random.
    known, found = OF_NUMPY[str(rows)], shuffles.measured(rows)
    ratios = np.divide(found["deviation"], known["deviation"])
    assert np.all((ratios > 1 / 3) & (ratios < 3))
    distances = np.subtract(found["mean"], known["mean"]) / known["deviation"]
    assert np.all(np.abs(distances) < 4 * np.sqrt(2 / shuffles.NUMPY_RUNS))


def rotations(rows, generator):
    for _ in range(EPOCHS[rows]):
        yield np.roll(np.arange(rows), generator.integers(rows))


def flipped_bits(rows, generator):
    for _ in range(EPOCHS[rows]):
        yield np.arange(rows) ^ generator.integers(rows)


def swaps_with_any_place(rows, generator):
    """Shuffle with the classic mistake: Fisher and Yates swap with a place not yet settled."""
    for _ in range(EPOCHS[rows]):
        out = np.arange(rows)
        for place, other in enumerate(generator.integers(rows, size=rows)):
            out[place], out[other] = out[other], out[place]
        yield out


def four_rounds(rows, generator):
    """Return the shuffle of this library, stopped early."""
    side = math.isqrt(rows - 1) + 1
    places = np.arange(rows)
    keys, scratch = np.empty(4, np.uint32), np.empty((2, rows), np.uint32)
    for key in generator.integers(2**63, size=EPOCHS[rows]):
        out = np.empty_like(places)
        feistel.round_keys(np.uint64(key), keys)
        feistel.permute(places, rows, side, side, keys, scratch, out)
        yield out


@pytest.mark.parametrize(
    ("shuffle", "rows", "table"),
    [
        (rotations, 64, "rows_before_others"),
        (rotations, 64, "differences_of_neighbours"),
        (flipped_bits, 16, "differences_of_neighbours"),
        (flipped_bits, 64, "differences_at_places"),
        (swaps_with_any_place, 5, "rows_at_places"),
        (swaps_with_any_place, 16, "rows_before_others"),
        (four_rounds, 5, "rows_at_places"),
        (four_rounds, 16, "differences_of_neighbours"),
        (four_rounds, 5000, "differences_of_neighbours"),
    ],
)
def test_a_worse_shuffle_is_told_from_one_of_numpy(shuffle, rows, table):
    epochs = stacked(shuffle(rows, np.random.default_rng(0)))
    assert np.array_equal(np.sort(epochs, axis=1)[-1], np.arange(rows))
    assert standardised(epochs)[table, "sum"] > 4


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 6])
def test_every_order_of_a_few_rows_is_equally_likely(rows):
    orders = {order: number for number, order in enumerate(itertools.permutations(range(rows)))}
    epochs = 40 * len(orders)
    counts = np.zeros(len(orders))
    for epoch in range(epochs):
        counts[orders[tuple(loaderx_epoch(rows, 1, epoch))]] += 1
    assert stats.chisquare(counts).pvalue > 0.001


RELATIONS = {
    "an epoch and the next": lambda k: ((0, k), (0, k + 1)),
    "an epoch of two seeds": lambda k: ((0, k), (1, k)),
    "an epoch of a seed and of the next": lambda k: ((k, 0), (k + 1, 0)),
    "epoch 1 of a seed and epoch 0 of the next": lambda k: ((k, 1), (k + 1, 0)),
    "seed and epoch exchanged": lambda k: ((k, k + 7), (k + 7, k)),
    "seed and epoch of the same sum": lambda k: ((3, k + 2), (5, k)),
    "epochs that agree in their low words": lambda k: ((0, k), (0, k + 2**32)),
    "seeds that agree in their low words": lambda k: ((k, 0), (k + 2**32, 0)),
    "seeds that differ in the highest bit": lambda k: ((k, 0), (k + 2**63, 0)),
}


@pytest.mark.parametrize("relation", RELATIONS)
def test_different_epochs_and_seeds_have_nothing_to_do_with_each_other(relation):
    rows = 16
    pairs = [RELATIONS[relation](k) for k in range(EPOCHS[rows])]
    first, second = (stacked(loaderx_epoch(rows, *pair[i]) for pair in pairs) for i in (0, 1))

    # Two unrelated permutations agree in 1 place on average, with a variance of 1.
    agreeing = np.count_nonzero(first == second, axis=1)
    assert abs(np.mean(agreeing) - 1) * np.sqrt(len(pairs)) < 4
    # One written in terms of the other is as random as each by itself.
    place_in_first = np.argsort(first, axis=1)
    for name, distance in standardised(np.take_along_axis(place_in_first, second, axis=1)).items():
        assert abs(distance) < 4, name


def test_related_epochs_are_told_from_unrelated_ones():
    rows = 16
    first = loaderx_epochs(rows)
    second = (first + np.arange(len(first), dtype=np.int32)[:, None]) % rows
    relative = np.take_along_axis(np.argsort(first, axis=1), second, axis=1)
    assert max(standardised(relative).values()) > 4


@pytest.mark.parametrize("rows", [4096, 10**6, 10**9, 10**12])
def test_batches_of_many_rows_are_spread_evenly(rows):
    batch = Permutation(rows, 1).at(np.arange(4000))
    differences = np.diff(batch) % rows
    assert stats.kstest(batch / rows, "uniform").pvalue > 0.001
    assert stats.kstest(differences / rows, "uniform").pvalue > 0.001
    # Neighbours of neighbours as well: rows of the grid are as long as its height.
    height = int(np.ceil(np.sqrt(rows)))
    strided = Permutation(rows, 1).at(np.arange(0, rows, height)[:4000])
    assert stats.kstest(strided / rows, "uniform").pvalue > 0.001


@pytest.mark.parametrize("rows", [1, 2, 5, 100, 4095, 4096, 10_000])
@pytest.mark.parametrize("key", [0, 2**64 - 1])
def test_a_permutation_holds_every_row_once_and_equals_its_twin(rows, key):
    places = np.arange(rows)
    out = Permutation(rows, key).at(places)

    height = next(side for side in itertools.count(1) if side * side >= rows)
    width = next(side for side in itertools.count(1) if side * height >= rows)
    keys = np.empty(32 if rows < 4096 else 12, np.uint32)
    reference.round_keys(key, keys)
    expected = np.empty_like(places)
    reference.permute(places, rows, height, width, keys, None, expected)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(np.sort(out), places)


@pytest.mark.parametrize("rows", [10**9, 10**12, 2**62])
def test_single_places_of_a_huge_permutation_stay_inside_and_apart(rows):
    shuffled = Permutation(rows, 7)
    places = np.array([0, 1, rows // 2, rows - 1])
    out = shuffled.at(places)
    assert np.all((out >= 0) & (out < rows))
    assert len(set(out)) == 4
    assert [int(shuffled.at(places[i : i + 1])[0]) for i in range(4)] == out.tolist()


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_keys_are_folded_number_by_number(seed):
    assert derive_key(seed) == seed
    assert derive_key(seed, ORDER) == reference.fold(seed, ORDER)
    assert derive_key(seed, ORDER, 2**40) == reference.fold(reference.fold(seed, ORDER), 2**40)
    assert derive_key(seed, 1, 2) != derive_key(seed, 2, 1)
