"""Signals between their moments are weighted sums under SciPy's window."""

import numpy as np
import pytest
from numba.core import config
from scipy import signal

from loaderx.kernels import resampling
from tests import reference

# Enough results for weights that are kept.
MANY = 2 * resampling.PHASES
TABLE = resampling.sinc_table()


def resampled(x, start, pace, steps, fill=0.0, kernel=resampling.resample_sinc):
    weights = np.zeros(resampling.weights_size(steps, pace), np.float32)
    out = np.full((steps, x.shape[1]), np.nan, np.float32)
    kernel(x, start, pace, fill, TABLE, weights, out)
    return out


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("pace", [0.3, 1.0, 1.9])
@pytest.mark.parametrize("steps", [30, MANY])
def test_a_resampled_signal_equals_its_twin(channels, pace, steps):
    steps = 30 if config.DISABLE_JIT else steps
    x = np.random.default_rng(0).normal(size=(round(steps * pace), channels)).astype(np.float32)
    for start in (0.0, 0.37, -4.2):
        out = resampled(x, start, pace, steps, 7.0)
        expected = resampled(x, start, pace, steps, 7.0, reference.resample_sinc)
        np.testing.assert_allclose(out, expected, atol=2e-4)
        assert np.any(out == 7.0) == (start == -4.2) or start == 0.37


def test_every_third_moment_is_scipys():
    x = np.random.default_rng(0).normal(size=(301, 1)).astype(np.float32)
    # The middle of three moments is the second of them.
    out = resampled(x[:300], 0.0, 3.0, 100)[:, 0]
    expected = signal.resample_poly(x[1:, 0].astype(np.float64), 1, 3)
    np.testing.assert_allclose(out[11:-11], expected[11:-11], atol=1e-4)


@pytest.mark.parametrize("pace", [0.7, 2.5])
def test_constant_signals_stay_so_up_to_their_ends(pace):
    x = np.full((50, 1), 3, np.float32)
    np.testing.assert_allclose(resampled(x, 0.0, pace, int(50 / pace)), 3, rtol=1e-5)


def test_infinity_stays_where_it_is():
    x = np.ones((30, 1), np.float32)
    x[7] = np.inf
    np.testing.assert_array_equal(resampled(x, 0.0, 1.0, 30), x)
