"""Filters of signals are SciPy's, at drawn frequencies."""

import re

import numpy as np
import pytest
from scipy import signal

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.loaderx.transforms.images import Applied, apply
from tests.loaderx.transforms.waveforms import RATE, check_padding, waveforms

OPS = {
    "low": lambda order: T.LowPass((500, 3000), sample_rate=RATE, order=order),
    "high": lambda order: T.HighPass((100, 2400), sample_rate=RATE, order=order),
    "band": lambda order: T.BandPass((500, 2000), (0.5, 1.5), sample_rate=RATE, order=order),
}


def filtered(x, kind, order, rng):
    edges = {"low": (500, 3000), "high": (100, 2400), "band": (500, 2000)}[kind]
    frequency = rng.uniform(*edges)
    if kind == "band":
        half = rng.uniform(0.5, 1.5) / 2
        frequency = [frequency * (1 - half), frequency * (1 + half)]
    sections = signal.butter(order, frequency, kind, fs=RATE, output="sos")
    return signal.sosfilt(sections, x.astype(np.float64), axis=0)


@pytest.mark.parametrize("kind", OPS)
@pytest.mark.parametrize(("order", "shape"), [(2, (300,)), (3, (200, 2)), (1, (1,))])
def test_a_filter_is_scipys_of_the_drawn_frequency(kind, order, shape, monkeypatch):
    x = waveforms(shape)
    applied = Applied(x, OPS[kind](order))
    for row, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        np.testing.assert_allclose(out, filtered(row, kind, order, rng), atol=1e-6)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_allclose(apply(x[:, :20], OPS[kind](order)), applied.out[:, :20], atol=1e-6)


@pytest.mark.parametrize("kind", OPS)
def test_the_padding_is_not_filtered(kind):
    out, x = check_padding(OPS[kind](2))
    np.testing.assert_allclose(np.abs(out[1, :120]).max(), 0.1, atol=0.25)
    assert not np.array_equal(out[1, :120], x[1, :120])


REFUSED = [
    (lambda: T.LowPass(9000, sample_rate=RATE), "`cutoff` (=9000) must be above 0 and below half of `sample_rate`"),
    (lambda: T.LowPass(0, sample_rate=RATE), "`cutoff` (=0) must be above 0"),
    (lambda: T.LowPass("low", sample_rate=RATE), "`cutoff` (='low') must be a number of at least 0"),
    (lambda: T.HighPass(100, sample_rate=0), "`sample_rate` (=0) must be a finite number above 0."),
    (lambda: T.HighPass(100, sample_rate=RATE, order=0), "`order` (=0) must be an integer from 1 to 12."),
    (lambda: T.BandPass(100, 2, sample_rate=RATE), "`bandwidth` (=2) must be above 0 and below 2."),
    (lambda: T.BandPass(6000, 1, sample_rate=RATE), "reaches up to 9000, and must end below half of `sample_rate`"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_frequencies_that_cannot_be_are_refused(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()
