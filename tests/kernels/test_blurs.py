"""Means of runs and medians of squares equal their twins, in images of any size."""

import itertools

import numpy as np
import pytest

from loaderx.kernels import blurs
from tests import reference

SHAPES = [(9, 31, 3), (12, 3, 1), (3, 11, 4), (2, 2, 2), (1, 1, 1)]
RUNS = {
    "one pixel": [(0, 0, 1)],
    "a row": [(0, -2, 3)],
    "a column": [(row, 0, 1) for row in range(-3, 4)],
    "a disc": [(-2, 0, 1), (-1, -1, 2), (0, -2, 3), (1, -1, 2), (2, 0, 1)],
}


def values_of(shape, dtype):
    values = np.random.default_rng(0).random(shape)
    return (values * (255.99 if dtype == np.uint8 else 1)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", RUNS)
def test_a_mean_of_runs_equals_its_twin(shape, dtype, name):
    x = values_of(shape, dtype)
    rows, begins, ends = np.array(RUNS[name]).T.copy()
    share = 1 / int(np.sum(ends - begins))
    total = np.int32 if dtype == np.uint8 else np.float64
    totals = np.zeros((shape[0], (shape[1] + 7) * shape[2]), total)
    sums = np.zeros(shape[1] * shape[2], total)
    out, expected = x.copy(), x.copy()
    blurs.mean_of_runs(out, rows, begins, ends, 3, share, totals, sums)
    reference.mean_of_runs(expected, rows, begins, ends, 3, share, totals, sums)
    if dtype == np.uint8:
        np.testing.assert_array_equal(out, expected)
    else:
        np.testing.assert_allclose(out, expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("side", [3, 5])
def test_a_median_of_a_square_equals_its_twin(shape, dtype, side):
    x = values_of(shape, dtype)
    at_once = blurs.sorted_at_once(x.itemsize)
    blocks = -(-shape[1] * shape[2] // at_once) * at_once
    ring = np.zeros((side, blocks + (side - 1) * shape[2]), dtype)
    spaces = ring, np.zeros(side, np.int64), np.zeros(at_once, dtype)
    out, expected = x.copy(), x.copy()
    blurs.median_of_square(out, side, *spaces)
    reference.median_of_square(expected, side, *spaces)
    np.testing.assert_array_equal(out, expected)


def exchanged(network, values):
    for lower, upper in network:
        pair = np.sort(values[:, [lower, upper]], axis=1)
        values[:, lower], values[:, upper] = pair.T
    return values


def test_a_network_finds_the_median_of_any_values():
    # A result that holds for zeros and ones holds for all values (Knuth's 0-1 principle).
    every = np.array(list(itertools.product([0, 1], repeat=9)))
    found = exchanged(blurs.median_network(9), every.copy())[:, 4]
    np.testing.assert_array_equal(found, every.sum(axis=1) > 4)
    some = np.random.default_rng(0).integers(0, 2, (20_000, 25))
    found = exchanged(blurs.median_network(25), some.copy())[:, 12]
    np.testing.assert_array_equal(found, some.sum(axis=1) > 12)
