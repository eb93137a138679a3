"""Signals to transform, ops with their lengths, and the draws of each sample."""

import numpy as np

import loaderx as lx

RATE = 16000
PAD = -7.0


def waveforms(shape=(300,), count=3, seed=0):
    values = np.random.default_rng(seed).normal(size=(count, *shape))
    return (values * 0.1).astype(np.float32)


def tone(hertz, moments, rate=RATE):
    """Return a sine, as one row."""
    return np.sin(2 * np.pi * hertz * np.arange(moments) / rate).astype(np.float32)[None]


def strongest(signal, rate=RATE):
    """Return the frequency with the most power in a signal, within one step of its spectrum."""
    spectrum = np.abs(np.fft.rfft(signal * np.hanning(len(signal))))
    return spectrum.argmax() * rate / len(signal)


def check_padding(op, shape=(300,), lengths=(300, 120, 1, 0)):
    """Check that the data of padded samples becomes what it does without padding, and that the padding stays."""
    x = waveforms(shape, len(lengths))
    for row, length in zip(x, lengths, strict=True):
        row[length:] = PAD
    data = {"data": x, "length": np.array(lengths)}
    options = {"batch_size": len(lengths), "shuffle": False, "output": "numpy"}
    loader = lx.DataLoader(data, transforms={("data", "length"): [op]}, **options)
    batch = loader.batch(0)
    np.testing.assert_array_equal(batch["length"], lengths)
    whole = lx.DataLoader(
        {"data": x[:1], "length": data["length"][:1]},
        transforms={("data", "length"): [op]},
        **{**options, "batch_size": 1},
    ).batch(0)["data"]
    # The first sample has no padding, and draws what it draws in any batch.
    np.testing.assert_array_equal(batch["data"][0], whole[0])
    for out, before, length in zip(batch["data"], x, lengths, strict=True):
        np.testing.assert_array_equal(out[length:], before[length:])
        assert np.all(np.isfinite(out))
    return batch["data"], x
