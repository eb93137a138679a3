"""Levels are those of their definitions: peaks, BS.1770, percentiles."""

import re

import numpy as np
import pytest
from scipy import signal, stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.transforms.levels import k_weighting
from tests.loaderx.transforms.images import Applied, apply
from tests.loaderx.transforms.waveforms import RATE, check_padding, tone, waveforms


def loudness(x, rate):
    """Return the loudness by BS.1770-4, of (time, channels)."""
    weighted = signal.sosfilt(
        [[*section[:3], 1, *section[3:]] for section in k_weighting(rate)], x.astype(np.float64), axis=0
    )  # fmt: skip
    step = round(rate / 10)
    starts = range(0, max(len(x) - 4 * step, 0) + 1, step)
    powers = np.array([np.mean(weighted[s : s + 4 * step] ** 2, axis=0).sum() for s in starts])
    audible = powers[10 * np.log10(powers) - 0.691 > -70]
    gated = audible[audible > np.mean(audible) / 10]
    return 10 * np.log10(np.mean(gated)) - 0.691


def test_the_weighting_is_the_table_of_the_standard_at_48_khz():
    shelf, rumble = k_weighting(48000)
    wanted = [
        1.53512485958697,
        -2.69169618940638,
        1.19839281085285,
        -1.69065929318241,
        0.73248077421585,
    ]
    np.testing.assert_allclose(shelf, wanted, atol=1e-8)
    np.testing.assert_allclose(rumble, [1, -2, 1, -1.99004745483398, 0.99007225036621], atol=1e-8)


def test_a_sine_of_997_hertz_and_full_scale_has_the_loudness_that_the_standard_says():
    x = tone(997, 48000, 48000)
    np.testing.assert_allclose(loudness(x[0][:, None], 48000), -3.01, atol=0.01)
    # So scaling to that loudness changes nothing.
    out = apply(x, T.LoudnessNormalize(-3.01, sample_rate=48000))
    np.testing.assert_allclose(out, x, atol=2e-3)


@pytest.mark.parametrize("shape", [(8000,), (3600, 2), (600,), (1,)])
def test_a_normalised_signal_has_the_drawn_loudness(shape, monkeypatch):
    rate = 4000
    x = (
        waveforms(shape)
        * np.linspace(1, 0.001, shape[0], dtype=np.float32)[(..., *[None] * (len(shape) - 1))]
    )
    op = T.LoudnessNormalize((-30, -10), sample_rate=rate)
    applied = Applied(x, op)
    for before, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        found = loudness(out.reshape(len(out), -1), rate)
        np.testing.assert_allclose(found, rng.uniform(-30, -10), atol=1e-3)
        ratios = out / before
        np.testing.assert_allclose(ratios, ratios.flat[0], rtol=1e-5)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_allclose(apply(x[:1], op), applied.out[:1], rtol=1e-5)


@pytest.mark.parametrize("shape", [(50,), (40, 3), (1,)])
def test_the_peak_is_the_drawn_one(shape):
    x = waveforms(shape, 500)
    applied = Applied(x, T.PeakNormalize((-12, 0)))
    peaks = np.abs(applied.out.reshape(len(x), -1)).max(axis=1)
    expected = [10 ** (rng.uniform(-12, 0) / 20) for rng in applied.draws()]
    np.testing.assert_allclose(peaks, expected, rtol=1e-6)
    assert stats.kstest(20 * np.log10(peaks), stats.uniform(-12, 12).cdf).pvalue > 0.001
    factors = peaks / np.abs(x.reshape(len(x), -1)).max(axis=1)
    np.testing.assert_allclose(applied.out, x * factors.reshape(-1, *[1] * len(shape)), rtol=1e-5)


@pytest.mark.parametrize("shape", [(301,), (40, 3), (1,)])
def test_clipping_is_at_numpys_percentiles(shape, monkeypatch):
    x = waveforms(shape)
    applied = Applied(x, T.ClippingDistortion((0, 100)))
    for before, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        percent = rng.uniform(0, 100)
        ends = np.percentile(before.astype(np.float64), [percent / 2, 100 - percent / 2])
        np.testing.assert_allclose(out, np.clip(before, *ends), atol=1e-7)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(x, T.ClippingDistortion((0, 100))), applied.out)


LEVELS = [T.PeakNormalize(), T.LoudnessNormalize(sample_rate=4000), T.ClippingDistortion()]


@pytest.mark.parametrize("op", LEVELS, ids=repr)
def test_silence_stays_and_padding_does_not_count(op):
    silence = np.zeros((2, 300), np.float32)
    np.testing.assert_array_equal(apply(silence, op), silence)
    check_padding(op)


def test_no_percent_clips_nothing():
    x = waveforms()
    np.testing.assert_array_equal(apply(x, T.ClippingDistortion(0.0)), x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.PeakNormalize("loud"), "`decibels` (='loud') must be a number from -300 to 300"),
        (lambda: T.LoudnessNormalize(200, sample_rate=RATE), "`loudness` (=200) must be a number from -300 to 100"),
        (lambda: T.LoudnessNormalize(sample_rate=-9), "`sample_rate` (=-9) must be a finite number above 0."),
        (lambda: T.LoudnessNormalize(sample_rate=3000), "`sample_rate` (=3000) must be at least 4000"),
        (lambda: T.ClippingDistortion(101), "`percent` (=101) must be a number from 0 to 100"),
    ],
)  # fmt: skip
def test_levels_that_cannot_be_are_refused(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()
