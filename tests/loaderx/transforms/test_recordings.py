"""Noises and responses are mixed in as by NumPy, and read in place."""

import pickle
import re

import numpy as np
import pytest
from scipy import stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.loaderx.transforms.images import Applied, apply
from tests.loaderx.transforms.waveforms import check_padding, waveforms

SHAPES = [
    ((60,), (4, 100)),
    ((60, 2), (4, 100)),
    ((60, 2), (3, 25, 2)),
    ((60,), (2, 60, 1)),
    ((1,), (2, 1)),
]


def recordings(shape, dtype=np.float32):
    values = np.random.default_rng(5).normal(size=shape)
    return (values * (3000 if dtype == np.int16 else 1)).astype(dtype)


def with_noise(x, noises, decibels, rng):
    row = noises[int(rng.integers(0, len(noises)))].astype(np.float64)
    row = row.reshape(len(row), -1)
    length = len(row)
    start = int(rng.integers(0, max(length - len(x) + 1, 1) if length >= len(x) else length))
    part = row[(start + np.arange(len(x))) % length]
    ratio = 10 ** (rng.uniform(*decibels) / 10)
    factor = np.sqrt(np.mean(x.astype(np.float64) ** 2) / ratio / np.mean(part**2))
    return x + factor * (part if x.ndim == 2 else part[:, 0])


@pytest.mark.parametrize(("shape", "of_noises"), SHAPES, ids=repr)
def test_noise_is_that_of_the_drawn_row_place_and_ratio(shape, of_noises, monkeypatch):
    x, noises = waveforms(shape, 8), recordings(of_noises)
    op = T.BackgroundNoise(noises, (0, 20))
    applied = Applied(x, op)
    for before, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        np.testing.assert_allclose(out, with_noise(before, noises, (0, 20), rng), atol=1e-6)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_allclose(apply(x, op), applied.out, atol=1e-6)


def test_rows_and_places_are_drawn_evenly():
    x = np.ones((2000, 4), np.float32)
    noises = np.arange(1, 31, dtype=np.float32).reshape(3, 10)
    # 0 decibels: the noise has the power of the signal.
    out = apply(x, T.BackgroundNoise(noises, 0.0)) - 1
    np.testing.assert_allclose(np.mean(out**2, axis=1), 1, rtol=1e-4)
    # The ratio of two neighbours gives their values: a / (a + 1).
    first = np.rint(1 / (out[:, 1] / out[:, 0] - 1)).astype(int)
    rows, places = (first - 1) // 10, (first - 1) % 10
    assert set(places) == set(range(7))
    assert stats.chisquare(np.bincount(rows * 7 + places, minlength=21)).pvalue > 0.001


@pytest.mark.parametrize(("shape", "of_responses"), SHAPES, ids=repr)
@pytest.mark.parametrize("normalize", [True, False])
def test_a_response_is_convolved_as_numpy_does_it(shape, of_responses, normalize, monkeypatch):
    x, responses = waveforms(shape, 4), recordings(of_responses)
    op = T.ImpulseResponse(responses, normalize=normalize)
    applied = Applied(x, op)
    for before, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        row = responses[int(rng.integers(0, len(responses)))].astype(np.float64)
        row = row.reshape(len(row), -1)
        if normalize:
            row = row / np.sqrt(np.mean(np.sum(row**2, axis=0)))
        columns = before.reshape(len(before), -1).T
        expected = [
            np.convolve(column, row[:, c % row.shape[1]])[: len(before)]
            for c, column in enumerate(columns)
        ]
        np.testing.assert_allclose(out.reshape(len(out), -1).T, expected, atol=3e-6)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_allclose(apply(x[:1], op), applied.out[:1], atol=3e-6)


def test_an_impulse_changes_nothing_and_a_later_one_delays():
    x = waveforms((40,))
    impulse = np.zeros((1, 5), np.int16)
    impulse[0, 0] = 16384
    np.testing.assert_allclose(apply(x, T.ImpulseResponse(impulse)), x, atol=1e-6)
    halved = apply(x, T.ImpulseResponse(impulse, normalize=False))
    np.testing.assert_allclose(halved, x / 2, atol=1e-6)
    later = apply(x, T.ImpulseResponse(np.roll(impulse, 2, axis=1)))
    np.testing.assert_allclose(later[:, 2:], x[:, :-2], atol=1e-6)
    np.testing.assert_allclose(later[:, :2], 0, atol=1e-6)


def test_silence_and_silent_recordings_change_nothing_or_give_silence():
    silence, x = np.zeros((2, 40), np.float32), waveforms((40,))
    noises = recordings((2, 50))
    np.testing.assert_array_equal(apply(silence, T.BackgroundNoise(noises)), silence)
    np.testing.assert_array_equal(apply(silence, T.ImpulseResponse(noises)), silence)
    np.testing.assert_array_equal(apply(x, T.BackgroundNoise(silence)), x)
    np.testing.assert_array_equal(apply(x, T.ImpulseResponse(silence)), 0 * x)


@pytest.mark.parametrize("make", [T.BackgroundNoise, T.ImpulseResponse])
def test_the_padding_gets_neither_noise_nor_echo(make):
    check_padding(make(recordings((2, 500))))


@pytest.mark.parametrize("make", [T.BackgroundNoise, T.ImpulseResponse])
@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_files_stay_where_they_are_and_are_pickled_by_their_path(make, dtype, tmp_path):
    stored = recordings((50, 2000), dtype)
    np.save(tmp_path / "rows.npy", stored)
    x = waveforms((60,))
    wanted = apply(x, make(stored))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    source = lx.NPDataset(tmp_path / "rows.npy")
    for given in (mapped, source):
        op = make(given)
        np.testing.assert_array_equal(apply(x, op), wanted)
        own = mapped if given is mapped else source.array
        assert np.shares_memory(op.rows(), own)
        assert op.rows().ctypes.data == own.ctypes.data
    pickled = pickle.dumps(make(source))
    assert len(pickled) < 2000
    np.testing.assert_array_equal(apply(x, pickle.loads(pickled)), wanted)


def test_any_number_of_threads_gives_the_same():
    x, noises = waveforms((400,), 40), recordings((5, 1000))
    ops = [T.BackgroundNoise(noises), T.Maybe(0.5, T.ImpulseResponse(noises))]
    one, two = (lx.pipeline(ops, seed=3)(x, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)


GOOD = np.ones((2, 5), np.float32)
REFUSED = [
    (lambda: T.BackgroundNoise([1.0]), "`noises` must be an array of shape (rows, time) or (rows, time, channels)"),
    (lambda: T.BackgroundNoise(GOOD[0]), "got ndarray float32[5]."),
    (lambda: T.BackgroundNoise(GOOD[:0]), "got ndarray float32[0, 5]."),
    (lambda: T.BackgroundNoise(GOOD.astype(np.int64)), "array of float32, float64, int16, not int64[2, 5]"),
    (lambda: T.BackgroundNoise(GOOD[:, ::2]), "which is strided. Copy it: np.ascontiguousarray(noises)."),
    (lambda: T.BackgroundNoise(lx.NPDataset(GOOD) + lx.NPDataset(GOOD)), "an NPDataset of one array or file"),
    (lambda: T.BackgroundNoise(GOOD, "loud"), "`decibels` (='loud') must be a number from -300 to 300"),
    (lambda: T.ImpulseResponse(GOOD.astype(">f4")), "array of float32, float64, int16, not >f4[2, 5]"),
    (lambda: T.ImpulseResponse(GOOD, normalize=1), "`normalize` (=1) must be True or False."),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_recordings_that_cannot_be_used_are_refused(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()


def test_recordings_of_other_channels_are_refused():
    for make in (T.BackgroundNoise, T.ImpulseResponse):
        op = make(recordings((2, 9, 3)))
        with pytest.raises(
            lx.ArgumentError, match="have 3 channels; they must have one, or as many"
        ):
            apply(waveforms((20, 2)), op)
