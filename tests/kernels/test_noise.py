"""Noise equals its twin to the last bit, and is as random as it claims to be."""

import itertools

import numpy as np
import pytest
from numba.core import config
from scipy import stats

from loaderx.kernels import noise
from loaderx.kernels.distributions import Draws, next_bits
from tests import reference

KEYS = [0, 1, 0xDEADBEEFCAFE1234, 2**64 - 1]
# A number costs 100 us in plain Python.
COUNT = 1 << (10 if config.DISABLE_JIT else 18)
LONG = 300 if config.DISABLE_JIT else 2000
PAIRS = 500 if config.DISABLE_JIT else 3000
STREAMS = 4 if config.DISABLE_JIT else 16


def normals(key, count):
    """Return noise around the middle, ten deviations away from where it is clipped."""
    values = np.full(count, 0.5, np.float64)
    noise.add_noise(values, np.uint64(key), 0.0, 0.05, 1.0)
    return (values - 0.5) / np.float64(np.float32(0.05))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 2, 33, LONG])
@pytest.mark.parametrize("key", KEYS)
def test_added_noise_equals_its_twin(dtype, count, key):
    white = 255.0 if dtype == np.uint8 else 1.0
    x = (np.random.default_rng(0).random(count) * white).astype(dtype)
    out, expected = x.copy(), x.copy()
    noise.add_noise(out, np.uint64(key), 0.02 * white, 0.2 * white, white)
    reference.add_noise(expected, np.uint64(key), 0.02 * white, 0.2 * white, white)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(("first", "limit"), [(0, 0), (0, 2**24), (2**24, 2**24), (10**6, 5 * 10**6)])  # fmt: skip
def test_marked_pixels_equal_their_twin(key, first, limit):
    out, expected = np.empty(1001, np.uint8), np.empty(1001, np.uint8)
    noise.mark_pixels(np.uint64(key), first, limit, out)
    reference.mark_pixels(np.uint64(key), first, limit, expected)
    np.testing.assert_array_equal(out, expected)
    if first in (0, 2**24) and limit in (0, 2**24):
        assert set(out) == {1 if first else 2 if limit else 0}


def test_pairs_are_those_of_box_and_muller():
    random = np.random.default_rng(0).integers(0, 2**32, PAIRS).tolist()
    for bits in [0, 2**32 - 1, 0x7FF, 0x800, *random]:
        share, angle = ((bits >> 12) + 0.5) / 2**20, ((bits & 0x7FF) + 0.5) / 2**11 - 0.5
        radius = np.sqrt(-2 * np.log(share)) * (-1 if bits & 0x800 else 1)
        expected = radius * np.cos(np.pi * angle), radius * np.sin(np.pi * angle)
        np.testing.assert_allclose(noise.normal_pair(np.uint32(bits)), expected, atol=1e-4)


@pytest.mark.parametrize("key", KEYS)
def test_numbers_are_normal(key):
    z = normals(key, COUNT)
    for part in (z, z[: COUNT // 2], z[COUNT // 2 :], z[::3]):
        assert stats.kstest(part, "norm").pvalue > 1e-4
    # The deviations of the first four moments of as many normal numbers.
    for power, moment, deviation in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(z**power) - moment) < 4 * np.sqrt(deviation / COUNT)


def test_tails_are_as_heavy_as_they_should_be():
    z = np.concatenate([normals(key, COUNT) for key in range(STREAMS)])
    for limit in (1, 2, 3, 3.5, 4, 4.5):
        for side in (z, -z):
            hits = int(np.sum(side > limit))
            assert stats.binomtest(hits, len(z), stats.norm.sf(limit)).pvalue > 1e-4
    assert np.abs(z).max() < 5.5


@pytest.mark.parametrize("key", KEYS)
def test_neighbours_channels_and_pairs_have_nothing_to_do_with_each_other(key):
    z = normals(key, COUNT)
    for distance in (1, 2, 3, 4, 16, 672, COUNT // 2):
        for first, second in (
            (z, z),
            ((z**2 - 1) / np.sqrt(2), (z**2 - 1) / np.sqrt(2)),
            (z, (z**2 - 1) / np.sqrt(2)),
        ):
            products = first[:-distance] * second[distance:]
            assert abs(products.mean()) < 5 / np.sqrt(len(products))


def test_samples_in_a_row_have_other_noise():
    # A key is the output of a generator, so those of neighbouring samples are independent.
    noises = [normals(next_bits(Draws(number)), COUNT) for number in range(6)]
    for z, other in itertools.combinations(noises, 2):
        for first, second in ((z, other), (z[1:], other[:-1]), (z[:-1], other[1:])):
            assert abs(np.mean(first * second)) < 5 / np.sqrt(COUNT)
            assert np.mean(first == second) < 0.001


def test_bits_of_an_index_change_half_of_the_hash():
    hashes = reference.hash_index(1 << 14, 77).astype(np.uint32)
    for bit in range(14):
        flipped = hashes[np.arange(1 << 14) ^ (1 << bit)]
        changed = np.unpackbits((hashes ^ flipped).view(np.uint8)).mean()
        assert abs(changed - 0.5) < 0.01


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("key", KEYS)
def test_any_values_equal_their_twin(dtype, key):
    white = 1.0 if np.dtype(dtype).kind == "f" else float(np.iinfo(dtype).max)
    out, expected = np.empty(301, dtype), np.empty(301, dtype)
    noise.fill_any(np.uint64(key), 77, white, out)
    reference.fill_any(np.uint64(key), 77, white, expected)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("key", KEYS)
def test_shares_equal_their_twin(key, repeats):
    out, expected = np.empty(300, np.float32), np.empty(300, np.float32)
    noise.fill_shares(np.uint64(key), 5, repeats, out)
    reference.fill_shares(np.uint64(key), 5, repeats, expected)
    np.testing.assert_array_equal(out, expected)
    assert stats.kstest(out[::repeats], "uniform").pvalue > 0.001


@pytest.mark.parametrize("mean", [0.0, 0.3, 4.0, 9.99, 10.0, 37.5, 1000.0])
def test_poisson_numbers_have_their_distribution(mean):
    rng, count = Draws(5), 300 if config.DISABLE_JIT else 3000
    numbers = np.array([noise.draw_poisson(rng, mean) for _ in range(count)])
    assert np.all(numbers == np.floor(numbers))
    if mean == 0:
        assert not numbers.any()
        return
    # Spread over the share that each number has, they are uniform.
    law = stats.poisson(mean)
    places = law.cdf(numbers - 1) + np.random.default_rng(0).random(count) * law.pmf(numbers)
    assert stats.kstest(places, "uniform").pvalue > 0.001


@pytest.mark.parametrize("mean", [0.0, 0.3, 4.0, 37.5, 600.0])
def test_a_table_of_a_poisson_law_gives_its_quantiles(mean):
    law, guides = np.empty(1024), np.empty(256, np.int32)
    assert noise.fill_poisson(mean, law, guides)
    np.testing.assert_allclose(law[:-1], stats.poisson(mean).cdf(np.arange(1023)), atol=1e-12)
    shares = np.append(np.random.default_rng(0).random(300), [0.0, 1 - 2.0**-53])
    found = [noise.poisson_at(share, law, guides) for share in shares]
    # The first count whose distribution function is above the share.
    np.testing.assert_array_equal(found, np.searchsorted(law, shares, side="right"))


def test_a_table_does_not_hold_the_law_of_a_large_mean():
    assert not noise.fill_poisson(600.5, np.empty(1024), np.empty(256, np.int32))
