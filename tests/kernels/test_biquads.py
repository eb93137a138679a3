"""Filters are those of SciPy."""

import numpy as np
import pytest
from scipy import signal

from loaderx.kernels import biquads
from tests import reference

KINDS = [biquads.LOW_PASS, biquads.HIGH_PASS, biquads.BAND_PASS]
NOTHING = np.array([1.0, 0, 0, 0, 0])


def designed(kind, order, low, high):
    count = order if kind == biquads.BAND_PASS else (order + 1) // 2
    found, expected = np.full((2, count, 5), np.nan)
    biquads.design_butterworth(kind, order, low, high, found)
    reference.design_butterworth(kind, order, low, high, expected)
    return found, expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize(("low", "high"), [(0.1, 0.2), (0.01, 0.49), (0.24, 0.26)])
def test_a_butterworth_filter_is_scipys(kind, order, low, high):
    found, expected = designed(kind, order, low, high)
    frequencies = np.linspace(0.001, np.pi - 0.001, 101)
    responses = [
        signal.sosfreqz(reference.whole_sections(sections), frequencies)[1]
        for sections in (found, expected)
    ]
    np.testing.assert_allclose(*responses, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("order", [2, 3, 5])
def test_sections_are_applied_as_scipy_does(channels, order):
    sections, _ = designed(biquads.BAND_PASS, order, 0.1, 0.3)
    x = np.random.default_rng(0).normal(size=(60, channels)).astype(np.float32)
    out, expected = x.copy(), x.copy()
    biquads.filter_channels(out, sections, NOTHING)
    reference.filter_channels(expected, sections, NOTHING)
    np.testing.assert_allclose(out, expected, atol=1e-5)
    twice, expected = np.full((2, 60), np.nan, np.float32)
    biquads.filter_twice(x[:, 0], sections[0], sections[1], twice)
    reference.filter_twice(x[:, 0], sections[0], sections[1], expected)
    np.testing.assert_allclose(twice, expected, atol=1e-6)
