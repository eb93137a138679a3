"""Fourier transforms of lanes, and the spectrograms made from them, equal NumPy's."""

import math

import numpy as np
import pytest

from loaderx.kernels import convolution, fft, mel, stft, vocoder
from tests import reference


def complex_values(size, seed=0):
    values = np.random.default_rng(seed).normal(size=(2, size))
    return values.astype(np.float32)


def room(size):
    """Return memory, bins, powers and sums for frames."""
    shapes = (4, size * stft.LANES), (4, stft.LANES), (size // 2 + 1, stft.FRAMES), (stft.FRAMES,)
    return [np.full(shape, np.nan, np.float32) for shape in shapes]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 14, 15, 27, 32, 60, 121])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_transform_is_numpys(length, lanes):
    real, imag = complex_values(length * lanes)
    expected, expected_imag = real.copy(), imag.copy()
    reference.transform_lanes(lanes, None, None, expected, expected_imag, None, None)
    others = np.full((2, length * lanes), np.nan, np.float32)
    factors, twiddles = fft.factors_of(length), fft.twiddles_of(length)
    if fft.transform_lanes(lanes, factors, twiddles, real, imag, *others):
        real, imag = others
    tolerance = 1e-5 * math.sqrt(length)
    np.testing.assert_allclose(real, expected, atol=tolerance)
    np.testing.assert_allclose(imag, expected_imag, atol=tolerance)


def test_lengths_have_their_factors_and_fast_ones_few():
    for length in (1, 2, 6, 97, 400, 1024, 7 * 11 * 13):
        assert math.prod(fft.factors_of(length)) == length
    for least in range(1, 200):
        fast = fft.fast_length(least)
        assert least <= fast < 2 * least or fast == 1
        assert max(fft.factors_of(fast), default=1) <= 5
    assert [fft.fast_length(least) for least in (5, 9, 33, 1025)] == [5, 10, 40, 1280]


@pytest.mark.parametrize(("moments", "reach"), [(1, 1), (7, 3), (20, 20), (13, 40)])
def test_a_convolution_is_numpys_beginning(moments, reach):
    (x, _), (response, _) = complex_values(moments), complex_values(reach, seed=1)
    expected = x.copy()
    reference.convolve(expected, response, 0.5, None, None, None)
    size = fft.fast_length(moments + min(reach, moments) - 1)
    memory = np.full((4, size), np.nan, np.float32)
    convolution.convolve(x, response, 0.5, fft.factors_of(size), fft.twiddles_of(size), memory)
    np.testing.assert_allclose(x, expected, atol=1e-5)


def test_a_strong_response_does_not_round_a_weak_signal_away():
    (x, _), (response, _) = complex_values(50), complex_values(20, seed=1)
    x *= np.float32(1e-6)
    response *= np.float32(1e6)
    expected = np.convolve(x.astype(np.float64), response)[:50]
    memory = np.zeros((4, 80), np.float32)
    convolution.convolve(x, response, 1.0, fft.factors_of(80), fft.twiddles_of(80), memory)
    np.testing.assert_allclose(x, expected, atol=1e-5)


@pytest.mark.parametrize(("size", "hop", "frames", "before"), [(12, 5, 35, 6), (9, 9, 3, 0)])
@pytest.mark.parametrize("squared", [True, False])
def test_bands_have_the_power_of_numpys_spectra(size, hop, frames, before, squared):
    x, _ = complex_values(max((frames - 1) * hop + size - 2 * before, size))
    window = np.hanning(size).astype(np.float32)
    firsts, ends = np.array([0, 1, 2, 2]), np.array([2, 4, 5, 2])
    weights = np.random.default_rng(1).random(int((ends - firsts).sum()) + 1).astype(np.float32)
    given = [x, hop, before, squared, window, fft.factors_of(size), fft.twiddles_of(size)]
    given += [firsts, ends, weights, *room(size)]
    out, expected = np.full((2, frames, 4), np.nan, np.float32)
    mel.mel_power(*given, out)
    reference.mel_power(*given, expected)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
    assert np.all(out[:, 3] == 0)


@pytest.mark.parametrize("rate", [0.5, 0.83, 1.0, 1.7])
@pytest.mark.parametrize(("size", "hop", "moments"), [(16, 4, 150), (9, 3, 40), (16, 4, 3)])
def test_a_stretched_signal_is_that_of_the_definition(size, hop, moments, rate):
    x, _ = complex_values(moments)
    x[: moments // 3] = 0
    window = np.hanning(size + 1)[:-1].astype(np.float32)
    steps, count = round(moments / rate), moments // hop + 3
    spaces = [*room(size)[:2], np.zeros((count, 2, size // 2 + 1), np.float32)]
    spaces += [np.zeros((2, size // 2 + 1), np.float32), np.zeros(steps, np.float32)]
    given = [x, rate, hop, window, fft.factors_of(size), fft.twiddles_of(size), *spaces]
    out, expected = np.full((2, steps), np.nan, np.float32)
    vocoder.stretch(*given, out)
    reference.stretch(*given, expected)
    # Where the windows are almost 0, the quotient is arbitrary.
    np.testing.assert_allclose(out[1:-size], expected[1:-size], atol=2e-3)
    if rate == 1.0 and moments > 2 * size:
        np.testing.assert_allclose(out[size:-size], x[size:-size], atol=1e-4)


def test_places_outside_are_mirrored_as_numpy_does_it():
    for length in (1, 2, 3, 7):
        expected = np.pad(np.arange(length), 20, mode="reflect")
        found = [stft.mirrored(place, length) for place in range(-20, length + 20)]
        np.testing.assert_array_equal(found, expected)
