"""Log-mel spectrograms are librosa's by their definition, and warped time is piecewise linear."""

import re

import numpy as np
import pytest
from scipy import stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.transforms.spectrograms import hertz_of, mel_filters, mel_of
from tests import reference
from tests.loaderx.transforms.images import Applied, apply
from tests.loaderx.transforms.waveforms import RATE, check_padding, tone, waveforms


def spectrogram(x, size, hop, width, filters, power, center):
    """Return the mel spectrogram of one waveform by NumPy."""
    before = (size - width) // 2
    window = np.pad(np.hanning(width + 1)[:-1], (before, size - width - before))
    frames = 1 + (len(x) if center else len(x) - size) // hop
    start = -(size // 2) if center else 0
    parts = reference.frames_of(x, start, hop, frames, window, "reflect")
    return np.abs(np.fft.rfft(parts, axis=1)) ** power @ filters.T


CASES = [
    ({}, 400, 160, 400, 80, 0, 8000, lambda m: 10 * np.log10(np.maximum(m, 1e-10))),
    ({"n_fft": 64, "hop": 30, "n_mels": 9, "window": 50, "f_min": 100, "f_max": 7000, "power": 1, "mel_scale": "htk",
      "norm": None, "top": 30.0}, 64, 30, 50, 9, 100, 7000,
     lambda m: np.maximum(20 * np.log10(m), 20 * np.log10(m).max() - 30)),
    ({"n_fft": 63, "hop": 70, "n_mels": 5, "center": False, "log": None}, 63, 70, 63, 5, 0, 8000, lambda m: m),
    ({"n_fft": 32, "hop": 8, "n_mels": 5, "log": "natural", "floor": 0.01}, 32, 8, 32, 5, 0, 8000,
     lambda m: np.log(np.maximum(m, 0.01))),
    ({"n_fft": 32, "hop": 8, "n_mels": 5, "log": "log10", "top": 2.0}, 32, 8, 32, 5, 0, 8000,
     lambda m: np.maximum(np.log10(m), np.log10(m).max() - 2)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: ",".join(case[0]) or "defaults")
def test_a_log_mel_spectrogram_is_that_of_the_definition(case, monkeypatch):
    options, size, hop, width, bands, low, high, log = case
    x = waveforms((900,), 2)
    op = T.LogMel(sample_rate=RATE, **options)
    out = apply(x, op)
    scale, norm = options.get("mel_scale", "slaney"), options.get("norm", "slaney")
    filters = mel_filters(RATE, size, bands, low, high, scale, norm)
    power, center = options.get("power", 2), options.get("center", True)
    for row, found in zip(x, out, strict=True):
        mels = spectrogram(row, size, hop, width, filters, power, center)
        assert found.shape == mels.shape
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(found, log(mels), rtol=1e-4, atol=1e-3)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_allclose(apply(x[:1], op), out[:1], rtol=1e-4, atol=1e-4)


def test_scales_and_bands_are_the_published_ones():
    # librosa's documentation: hz_to_mel(60) is 0.9, mel_to_hz(3) is 200; of HTK 1000 Hz are 1000 mel.
    np.testing.assert_allclose(mel_of(np.array([60.0, 1000, 6400]), "slaney"), [0.9, 15, 42])
    np.testing.assert_allclose(hertz_of(np.array([3.0, 15, 42]), "slaney"), [200, 1000, 6400])
    np.testing.assert_allclose(mel_of(np.array([1000.0]), "htk"), 1000, atol=0.02)
    for scale in ("slaney", "htk"):
        hertz = np.linspace(0, 8000, 33)
        np.testing.assert_allclose(hertz_of(mel_of(hertz, scale), scale), hertz, atol=1e-8)
    # Triangles of height 1 at their middles, and of area 1 per Hz with the norm.
    flat, even = (mel_filters(RATE, 4096, 20, 0, 8000, "htk", norm) for norm in (None, "slaney"))
    np.testing.assert_allclose(flat.max(axis=1), 1, atol=0.05)
    np.testing.assert_allclose(even.sum(axis=1) * RATE / 4096, 1, atol=0.01)


def test_a_tone_is_in_the_band_of_its_pitch_and_masks_follow():
    edges = hertz_of(np.linspace(*mel_of(np.array([0.0, 8000]), "slaney"), 82), "slaney")
    for hertz in (300, 1000, 5000):
        out = apply(tone(hertz, 4000), T.LogMel(sample_rate=RATE))[0]
        band = out[5:-5].mean(axis=0).argmax()
        assert edges[band] <= hertz <= edges[band + 2]
    masked = apply(tone(1000, 4000), T.LogMel(sample_rate=RATE), T.TimeMask(8), T.FreqMask(9))
    assert masked.shape == (1, 26, 80)


def test_waveforms_of_one_channel_are_accepted_and_others_refused():
    x = waveforms((900,), 1)
    op = T.LogMel(sample_rate=RATE)
    np.testing.assert_array_equal(apply(x[..., None], op), apply(x, op))
    with pytest.raises(
        lx.ArgumentError, match=r"waveforms of one channel, \(time,\), not float32\[900, 2\]"
    ):
        apply(waveforms((900, 2)), op)
    with pytest.raises(lx.ArgumentError, match=r"`n_fft` \(=400\) accepts at least 201 moments"):
        apply(waveforms((200,)), op)
    with pytest.raises(lx.ArgumentError, match="LogMel makes frames of moments"):
        check_padding(op)


def warped(x, center, place):
    """Return np.interp on both sides of the moment, between the middles of rows."""
    out = np.empty_like(x, np.float64)
    for begin, end, first, last in ((0, center, 0, place), (center, len(x), place, len(x))):
        part = x[begin:end]
        places = (np.arange(last - first) + 0.5) * len(part) / (last - first) - 0.5
        out[first:last] = np.stack(
            [np.interp(places, np.arange(len(part)), column) for column in part.T], axis=1
        )
    return out


@pytest.mark.parametrize(("shape", "width"), [((40, 6), 7), ((40, 1), 19), ((3, 2), 1)])
def test_a_warp_equals_its_twin(shape, width, monkeypatch):
    x = waveforms(shape, 20)
    applied = Applied(x, T.TimeWarp(width))
    for before, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        center = int(rng.integers(width, shape[0] - width))
        place = int(rng.integers(center - width + 1, center + width + 1))
        np.testing.assert_allclose(out, warped(before, center, place), atol=1e-6)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(x, T.TimeWarp(width)), applied.out)


def test_moments_and_shifts_are_drawn_evenly():
    ramp = np.broadcast_to(np.arange(30, dtype=np.float32)[:, None], (3000, 30, 1))
    applied = Applied(ramp, T.TimeWarp(4))
    draws = applied.draws()
    centers = [int(rng.integers(4, 26)) for rng in draws]
    shifts = [int(rng.integers(-3, 5)) for rng in draws]
    for out, center, shift in zip(applied.out[:50, :, 0], centers, shifts, strict=False):
        # Time runs at another pace before that moment.
        np.testing.assert_allclose(
            np.diff(out)[1 : max(center + shift - 2, 1)], center / (center + shift), atol=1e-5
        )
    assert stats.chisquare(np.bincount(centers)[4:]).pvalue > 0.001
    assert stats.chisquare(np.bincount(np.add(shifts, 3))).pvalue > 0.001


def test_short_samples_and_padding_stay():
    x = waveforms((16, 3))
    np.testing.assert_array_equal(apply(x, T.TimeWarp(8)), x)
    np.testing.assert_array_equal(apply(x, T.TimeWarp(0)), x)
    out, before = check_padding(T.TimeWarp(9), (40, 2), (40, 30, 17, 0))
    assert not np.array_equal(out[1], before[1])
    np.testing.assert_array_equal(out[2], before[2])


def test_labels_of_moments_are_warped_as_their_signal():
    x = np.broadcast_to(np.arange(40, dtype=np.float32)[:, None], (6, 40, 2)).copy()
    data = {"signal": x, "moment": x[..., 0].astype(np.int32)}
    ops = {("signal", "moment"): [T.TimeWarp(12)]}
    batch = lx.DataLoader(data, batch_size=6, output="numpy", transforms=ops).batch(0)
    assert batch["moment"].dtype == np.int32
    assert np.max(np.abs(batch["moment"] - batch["signal"][..., 0])) <= 0.501
    assert not np.array_equal(batch["moment"], data["moment"])


REFUSED = [
    (lambda: T.LogMel(sample_rate=0), "`sample_rate` (=0) must be a finite number above 0."),
    (lambda: T.LogMel(sample_rate=9, n_fft=1), "`n_fft` (=1) must be an integer of at least 2."),
    (lambda: T.LogMel(sample_rate=9, hop=0), "`hop` (=0) must be an integer of at least 1."),
    (lambda: T.LogMel(sample_rate=9, n_mels=2.0), "`n_mels` (=2.0) must be an integer of at least 1."),
    (lambda: T.LogMel(sample_rate=9, window=401), "`window` (=401) must be an integer from 1 to `n_fft` (=400)"),
    (lambda: T.LogMel(sample_rate=9, f_min=5), "`f_min` (=5) must be from 0 to 4.5."),
    (lambda: T.LogMel(sample_rate=9, f_min=4, f_max=3), "`f_min` (=4) must be below `f_max` (=3)."),
    (lambda: T.LogMel(sample_rate=9, power=3), "`power` (=3) must be 1 or 2."),
    (lambda: T.LogMel(sample_rate=9, mel_scale="bark"), '`mel_scale` (=\'bark\') must be "slaney" or "htk".'),
    (lambda: T.LogMel(sample_rate=9, norm=1), '`norm` (=1) must be "slaney" or None.'),
    (lambda: T.LogMel(sample_rate=9, log="db"), '`log` (=\'db\') must be "decibels", "natural", "log10" or None.'),
    (lambda: T.LogMel(sample_rate=9, floor=0), "`floor` (=0) must be a finite number above 0."),
    (lambda: T.LogMel(sample_rate=9, top=-1), "`top` (=-1) must be a finite number above 0, or None."),
    (lambda: T.LogMel(sample_rate=9, center=1), "`center` (=1) must be True or False."),
    (lambda: T.TimeWarp(-1), "`width` (=-1) must be an integer of at least 0."),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_impossible_arguments_are_refused(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()
