"""Stretched signals have their pitch and another tempo, shifted ones their tempo and another pitch."""

import itertools
import re

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests import reference
from tests.loaderx.transforms.images import Applied, apply
from tests.loaderx.transforms.waveforms import RATE, check_padding, strongest, tone, waveforms

MOMENTS = 6000
SIZE = 512


def bursts(moments, *places):
    """Return short tones that begin at these moments."""
    x = np.zeros((1, moments), np.float32)
    burst = tone(2000, 400)[0] * np.hanning(400).astype(np.float32)
    for place in places:
        x[0, place : place + 400] += burst
    return x


def middles(signal, parts):
    """Return the centre of the energy of each part of a signal."""
    begins = np.linspace(0, len(signal), parts + 1).astype(int)
    energy = signal.astype(np.float64) ** 2
    return [
        np.average(np.arange(begin, end), weights=energy[begin:end] + 1e-12)
        for begin, end in itertools.pairwise(begins)
    ]


def windows(size):
    return np.hanning(size + 1)[:-1]


@pytest.mark.parametrize("rate", [0.8, 1.25])
def test_a_stretched_tone_keeps_its_pitch_and_ends_earlier(rate):
    out = apply(tone(1000, MOMENTS), T.TimeStretch(rate, n_fft=SIZE, fill=3.0))[0]
    end = min(round(MOMENTS / rate), MOMENTS)
    assert np.all(out[end:] == 3.0)
    assert abs(strongest(out[:end]) - 1000) < 2 * RATE / end
    middle = out[SIZE : end - SIZE]
    np.testing.assert_allclose(np.sqrt(np.mean(middle**2)), np.sqrt(0.5), rtol=0.15)


@pytest.mark.parametrize("rate", [0.8, 1.25])
def test_bursts_are_where_the_rate_puts_them(rate):
    # To half of a frame, over which a phase vocoder spreads short sounds.
    x = bursts(MOMENTS, 800, 3000)
    out = apply(x, T.TimeStretch(rate, n_fft=SIZE))[0]
    end = min(round(MOMENTS / rate), MOMENTS)
    found = middles(out[: round(4400 / rate)], 2)
    np.testing.assert_allclose(found, np.array([1000, 3200]) / rate, atol=SIZE / 2)
    assert np.all(out[end:] == 0)


@pytest.mark.parametrize("semitones", [-5.0, 0.5, 7.0])
def test_a_shifted_tone_has_the_other_pitch_and_bursts_stay(semitones):
    op = T.PitchShift(semitones, n_fft=SIZE)
    factor = 2 ** (semitones / 12)
    found = strongest(apply(tone(1000, MOMENTS), op)[0])
    assert abs(found - 1000 * factor) < 2 * RATE / MOMENTS
    out = apply(bursts(MOMENTS, 1000, 4000), op)[0]
    np.testing.assert_allclose(middles(out, 2), [1200, 4200], atol=SIZE / 2)
    assert abs(strongest(out) - 2000 * factor) < 60


def test_frequencies_that_a_higher_pitch_cannot_hold_are_left_out():
    out = apply(tone(6000, MOMENTS), T.PitchShift(12.0, n_fft=SIZE))[0]
    assert np.sqrt(np.mean(out[SIZE:-SIZE] ** 2)) < 0.02


@pytest.mark.parametrize("shape", [(200,), (150, 2), (1,)])
def test_ops_equal_the_definition(shape, monkeypatch):
    x = waveforms(shape)
    stretching, shifting = T.TimeStretch((0.5, 2), n_fft=32), T.PitchShift((-9, 9), n_fft=32, hop=5)
    stretched, shifted = Applied(x, stretching), Applied(x, shifting)
    spaces = [None] * 7
    for before, out, rng in zip(x, stretched.out, stretched.draws(), strict=True):
        rate = rng.uniform(0.5, 2)
        end = min(round(len(before) / rate), len(before))
        for column, found in zip(
            before.reshape(len(x[0]), -1).T, out.reshape(len(x[0]), -1).T, strict=True
        ):
            expected = np.zeros(len(before))
            reference.stretch(column, rate, 8, windows(32), *spaces, expected[:end])
            # Next to the ends windows are almost 0, and so are both sides of the division.
            np.testing.assert_allclose(found[1 : end - 8], expected[1 : end - 8], atol=1e-4)
            assert np.all(found[end:] == 0)
    for before, out, rng in zip(x, shifted.out, shifted.draws(), strict=True):
        factor = 2 ** (rng.uniform(-9, 9) / 12)
        steps = max(round(len(before) * factor), 1)
        for column, found in zip(
            before.reshape(len(x[0]), -1).T, out.reshape(len(x[0]), -1).T, strict=True
        ):
            longer, expected = np.zeros((steps, 1)), np.zeros((len(before), 1))
            reference.stretch(column, 1 / factor, 5, windows(32), *spaces, longer[:, 0])
            start = 0.5 - 0.5 * factor
            reference.resample_sinc(longer, start, factor, 0.0, None, None, expected)
            np.testing.assert_allclose(found[20:-20], expected[20:-20, 0], atol=1e-4)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_allclose(apply(x[:1], stretching), stretched.out[:1], atol=1e-4)
    np.testing.assert_allclose(apply(x[:1], shifting), shifted.out[:1], atol=1e-4)


def test_nothing_to_do_gives_the_signal_back_bit_for_bit():
    x = waveforms((100, 2))
    np.testing.assert_array_equal(apply(x, T.TimeStretch(1.0)), x)
    np.testing.assert_array_equal(apply(x, T.PitchShift(0.0)), x)


def test_silence_stays_silent():
    x = np.zeros((1, 300), np.float32)
    np.testing.assert_array_equal(apply(x, T.TimeStretch(0.7, n_fft=64)), x)
    np.testing.assert_array_equal(apply(x, T.PitchShift(3.0, n_fft=64)), x)


def test_labels_of_moments_follow_a_stretched_signal():
    x = bursts(MOMENTS, 800, 3000)
    labels = (np.abs(x) > 1e-3).astype(np.int16)
    data = {"signal": x, "moment": labels}
    for rate in (0.8, 1.25):
        op = T.TimeStretch(rate, n_fft=SIZE, fill=5.0)
        loader = lx.DataLoader(
            data, batch_size=1, output="numpy", transforms={("signal", "moment"): [op]}
        )
        signal, moments = (values[0] for values in loader.batch(0).values())
        assert moments.dtype == np.int16
        # A seventh of the time, and most of the energy; the rest is spread over half a frame around it.
        inside = np.sum(signal[moments == 1] ** 2) / np.sum(signal[moments != 5] ** 2)
        assert inside > 0.5, (rate, inside)
        assert np.all(moments[round(MOMENTS / rate) :] == 5)


def test_pitch_is_that_of_the_data_and_stretching_lengths_is_refused():
    check_padding(T.PitchShift(n_fft=64))
    with pytest.raises(lx.ArgumentError, match="TimeStretch would change the lengths of samples"):
        check_padding(T.TimeStretch())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.TimeStretch(0), "`rate` (=0) must be a number from 0.1 to 10"),
        (lambda: T.TimeStretch(n_fft=3), "`n_fft` (=3) must be an integer of at least 4."),
        (lambda: T.TimeStretch(n_fft=64, hop=33), "`hop` (=33) must be an integer from 1 to half of `n_fft` (=64)."),
        (lambda: T.TimeStretch(fill="x"), "`fill` (='x') must be a finite number."),
        (lambda: T.PitchShift(40), "`semitones` (=40) must be a number from -36 to 36"),
    ],
)  # fmt: skip
def test_impossible_arguments_are_refused(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()
