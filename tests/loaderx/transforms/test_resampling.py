"""Resampled signals hold the frequencies that their sample rate can hold, and no others."""

import numpy as np
import pytest

from loaderx import transforms as T  # noqa: N812 - as users write it
from tests import reference
from tests.loaderx.transforms.images import Applied, apply
from tests.loaderx.transforms.waveforms import RATE, strongest, tone, waveforms


@pytest.mark.parametrize("shape", [(900,), (900, 2), (1,)])
@pytest.mark.parametrize("length", [70, 600])
def test_band_limited_resampling_equals_its_twin(shape, length, monkeypatch):
    x = waveforms(shape)
    op = T.Resample(length, speed=(0.5, 2.0), fill=3.0)
    applied = Applied(x, op)
    for before, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        extent = len(before) * rng.uniform(0.5, 2.0)
        spare = len(before) - extent
        start = rng.uniform(min(spare, 0.0), max(spare, 0.0))
        expected = np.zeros((length, before.size // len(before)))
        rows = before.reshape(len(before), -1)
        reference.resample_sinc(rows, start, extent / length, 3.0, None, None, expected)
        np.testing.assert_allclose(out.reshape(length, -1), expected, atol=1e-4)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    if length == 70:
        np.testing.assert_allclose(apply(x[:1], op), applied.out[:1], atol=1e-6)


def test_a_tone_that_the_lower_rate_cannot_hold_is_left_out():
    high, low = tone(3500, 4000), tone(1000, 4000)
    # A third of the rate holds up to 2667 Hz: linear interpolation hears 3500 Hz as 1833 Hz.
    aliased = apply(high, T.Resample(1333, antialias=False))[0]
    assert abs(strongest(aliased, RATE / 3) - (RATE / 3 - 3500)) < 10
    assert np.sqrt(np.mean(aliased**2)) > 0.3
    clean = apply(high, T.Resample(1333))[0][20:-20]
    assert np.sqrt(np.mean(clean**2)) < 0.01
    kept = apply(low, T.Resample(1333))[0]
    assert abs(strongest(kept, RATE / 3) - 1000) < 10
    np.testing.assert_allclose(np.sqrt(np.mean(kept[20:-20] ** 2)), np.sqrt(0.5), rtol=0.01)


def test_more_moments_are_those_of_the_tone_between():
    x = tone(3000, 500)
    out = apply(x, T.Resample(1500))[0]
    places = ((np.arange(1500) + 0.5) / 3 - 0.5)[60:-60]
    exact = np.sin(2 * np.pi * 3000 * places / RATE)
    linear = apply(x, T.Resample(1500, antialias=False))[0]
    assert np.max(np.abs(out[60:-60] - exact)) < 0.005
    assert np.max(np.abs(linear[60:-60] - exact)) > 0.1
