"""A sample is mixed with what was made of it by shares that add up to 1."""

import numpy as np
import pytest
from numba.core import config
from scipy import stats

from loaderx.kernels.blending import add_share, draw_shares
from loaderx.kernels.distributions import Draws
from tests import reference

# Shares cost 50 us in plain Python.
COUNT = 600 if config.DISABLE_JIT else 4000


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_shares_of_samples_add_up(dtype):
    rng = np.random.default_rng(0)
    samples = (rng.random((3, 40)) * 200).astype(dtype)
    shares = np.array([0.5, 0.2, 0.3], np.float32)
    ours, twin = np.empty(40, np.float32), np.empty(40, np.float32)
    for number, sample in enumerate(samples):
        add_share(sample, shares, number, ours)
        reference.add_share(sample, shares, number, twin)
    np.testing.assert_allclose(ours, twin, rtol=1e-6)
    np.testing.assert_allclose(ours, shares @ samples.astype(np.float32), rtol=1e-5)


def drawn(alpha, width, count=COUNT):
    shares = np.empty((count, width + 1), np.float32)
    for number, row in enumerate(shares):
        draw_shares(Draws(number * 7919), alpha, row)
    return shares


@pytest.mark.parametrize("alpha", [0.5, 1.0, 4.0])
def test_shares_are_beta_and_dirichlet(alpha):
    shares = drawn(alpha, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-6)
    assert stats.kstest(shares[:, 0], stats.beta(alpha, alpha).cdf).pvalue > 1e-3
    parts = shares[:, 1] / (1 - shares[:, 0])
    assert stats.kstest(parts, stats.beta(alpha, 2 * alpha).cdf).pvalue > 1e-3


def test_a_tiny_alpha_still_gives_shares():
    shares = drawn(1e-9, 3, 100)
    assert np.all(np.isfinite(shares))
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-6)
