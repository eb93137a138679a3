"""Ops on signals follow their definitions: gain, shift, crop, noise, masks, resampling, companding."""

import math
import re

import numpy as np
import pytest
from scipy import stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.kernels.distributions import Draws, next_bits
from loaderx.transforms import signals as S  # noqa: N812
from tests import reference
from tests.loaderx.transforms.images import Applied, apply

LENGTH = 40


@pytest.fixture
def interpreted(monkeypatch):
    """Run ops in plain Python: one test compares the compiled code with that."""
    monkeypatch.setenv("LOADERX_DEBUG", "1")


def signals(shape=(LENGTH,), count=6, seed=0):
    values = np.random.default_rng(seed).normal(size=(count, *shape))
    return values.astype(np.float32)


SHAPES = pytest.mark.parametrize("shape", [(LENGTH,), (LENGTH, 3), (1,), (1, 2)], ids=repr)

# Ops in a row, and the shape they begin with.
CHAINS = {
    "waveforms": (
        (LENGTH,),
        [
            S.Gain(),
            S.Polarity(),
            S.TimeShift(0.5),
            S.RandomCrop1D(LENGTH - 5, pad=4, fill=0.25),
            S.Reverse(),
            S.NoiseAtSNR(T.Choice(5, 10, 20)),
            S.TimeMask(6, masks=2, fill=1.5),
            T.Resample(31, speed=(0.7, 1.4), fill=-1.0),
            S.TimeShift(0.3, border="fill", fill=2.0),
        ],
    ),
    "spectrograms": (
        (LENGTH, 7),
        [
            S.TimeShift(0.5, border="fill"),
            S.RandomCrop1D(LENGTH + 3, pad=2),
            S.Reverse(),
            S.NoiseAtSNR(),
            S.TimeMask(10),
            S.FreqMask(3, masks=2),
            T.Resample(LENGTH, speed=(0.5, 2.0), antialias=False),
            S.TimeShift(1.0),
        ],
    ),
    # Integers, which move with the signal that they follow.
    "codes": (
        (LENGTH,),
        [
            S.MuLaw(),
            S.TimeShift(0.3, border="fill", fill=300.0),
            S.RandomCrop1D(30, pad=3, fill=7.0),
            S.Reverse(),
            T.Resample(33, speed=(0.7, 1.4)).for_labels(),
        ],
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_compiled_ops_do_what_they_do_in_plain_python(name, monkeypatch):
    shape, ops = CHAINS[name]
    x = signals(shape, count=30)
    compiled = apply(x, *ops)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    plain = apply(x, *ops)
    assert compiled.dtype == plain.dtype
    np.testing.assert_allclose(compiled, plain, rtol=0 if name == "codes" else 1e-6)


@pytest.mark.usefixtures("interpreted")
def test_labels_of_moments_move_with_their_signal_and_keep_their_values():
    rows = 12
    x = np.arange(1, rows * LENGTH + 1, dtype=np.float32).reshape(rows, LENGTH)
    ops = [
        S.Gain(0.0),
        S.Polarity(0.0),
        S.TimeShift(0.5, border="fill"),
        S.RandomCrop1D(30, pad=5),
        S.Reverse(),
    ]
    loader = lx.DataLoader(
        {"signal": x, "moment": x.astype(np.int32)},
        batch_size=rows,
        output="numpy",
        transforms={("signal", "moment"): [*ops, S.NoiseAtSNR(), S.TimeMask(9)]},
    )
    batch = loader.batch(0)
    assert batch["moment"].dtype == np.int32
    assert batch["moment"].shape == (rows, 30)
    kept = batch["signal"] != 0
    # The noise is weaker than the steps from one row to the next.
    assert np.mean(kept) > 0.3
    assert stats.pearsonr(batch["signal"][kept], batch["moment"][kept]).statistic > 0.9
    assert np.all(np.isin(batch["moment"], [0, *x.reshape(-1)]))
    steps = np.diff(batch["moment"], axis=1)
    moving = (batch["moment"][:, 1:] > 0) & (batch["moment"][:, :-1] > 0)
    assert set(np.unique(np.abs(steps[moving]))) == {1}


IDENTITIES = [
    S.Gain(0.0),
    S.Polarity(0.0),
    S.TimeShift(0.0),
    S.TimeShift(0.0, border="fill", fill=3.0),
    S.Reverse(0.0),
    S.TimeMask(0),
]


@SHAPES
@pytest.mark.usefixtures("interpreted")
def test_nothing_to_do_gives_the_signal_back_bit_for_bit(shape):
    x = signals(shape)
    x.reshape(-1)[:3] = -0.0, np.inf, -np.inf
    length = shape[0]
    for op in (*IDENTITIES, S.RandomCrop1D(length), T.Resample(length), T.Resample(length, speed=(1, 1))):  # fmt: skip
        np.testing.assert_array_equal(apply(x, op).view(np.uint32), x.view(np.uint32), op.name)


# Gain, Polarity


@SHAPES
@pytest.mark.usefixtures("interpreted")
def test_gain_is_in_decibels_of_the_amplitude(shape):
    x = signals(shape)
    np.testing.assert_allclose(apply(x, S.Gain(20.0)), x * 10, rtol=1e-6)
    np.testing.assert_allclose(apply(x, S.Gain(-6.0206)), x / 2, rtol=1e-5)
    applied = Applied(x, S.Gain((-3, 9)))
    for signal, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        np.testing.assert_allclose(out, signal * 10 ** (rng.uniform(-3, 9) / 20), rtol=1e-6)


@pytest.mark.usefixtures("interpreted")
def test_gains_are_uniform_in_decibels():
    factors = apply(np.ones((2000, 1), np.float32), S.Gain())[:, 0]
    assert stats.kstest(20 * np.log10(factors), stats.uniform(-6, 12).cdf).pvalue > 0.001
    choices = apply(np.ones((200, 1), np.float32), S.Gain(T.Choice(-20, 0)))
    np.testing.assert_allclose(np.unique(choices), [0.1, 1], rtol=1e-6)


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
@pytest.mark.usefixtures("interpreted")
def test_signals_are_negated_and_reversed_as_often_as_asked(probability):
    x = np.broadcast_to(np.arange(1, 6, dtype=np.float32), (1000, 5))
    for op, other in ((S.Polarity(probability), -x), (S.Reverse(probability), x[:, ::-1])):
        out = apply(x, op)
        changed = np.all(out == other, axis=1)
        np.testing.assert_array_equal(out, np.where(changed[:, None], other, x))
        if probability in (0, 1):
            assert np.all(changed == probability)
        else:
            assert stats.binomtest(int(changed.sum()), 1000, probability).pvalue > 0.001


@SHAPES
@pytest.mark.usefixtures("interpreted")
def test_a_reversed_signal_keeps_its_channels(shape):
    x = signals(shape)
    np.testing.assert_array_equal(apply(x, S.Reverse(1.0)), x[:, ::-1])
    odd = signals((5, 2))
    np.testing.assert_array_equal(apply(odd, S.Reverse(1.0)), odd[:, ::-1])


# TimeShift, RandomCrop1D


def stretch(signal, start, steps, fill):
    """Return moments from `start`, as a slice of a signal with much fill around it."""
    far = len(signal) + abs(start) + steps
    padded = np.pad(
        signal, [(far, far), *[(0, 0)] * (signal.ndim - 1)], constant_values=fill
    )  # fmt: skip
    return padded[far + start : far + start + steps]


@SHAPES
@pytest.mark.parametrize("amount", [0.2, 1.0])
@pytest.mark.usefixtures("interpreted")
def test_a_shifted_signal_is_numpys_roll_or_a_slice_of_the_padded_signal(shape, amount):
    x = signals(shape, count=20)
    wrapped = Applied(x, S.TimeShift(amount))
    filled = Applied(x, S.TimeShift(amount, border="fill", fill=7.0))
    rows = zip(x, wrapped.out, filled.out, wrapped.draws(), strict=True)
    for signal, rolled, moved, rng in rows:
        shift = round(rng.uniform(-amount, amount) * len(signal))
        np.testing.assert_array_equal(rolled, np.roll(signal, shift, axis=0))
        np.testing.assert_array_equal(moved, stretch(signal, -shift, len(signal), 7.0))


@pytest.mark.usefixtures("interpreted")
def test_a_shift_is_later_and_a_negative_one_earlier():
    x = np.array([[1, 2, 3, 4]], np.float32)
    later = apply(x, S.TimeShift((0.25, 0.25), border="fill"))
    earlier = apply(x, S.TimeShift((-0.5, -0.5)))
    np.testing.assert_array_equal(later, [[0, 1, 2, 3]])
    np.testing.assert_array_equal(earlier, [[3, 4, 1, 2]])


@pytest.mark.usefixtures("interpreted")
def test_shifts_are_uniform():
    x = np.zeros((3000, 100), np.float32)
    x[:, 50] = 1
    shifts = apply(x, S.TimeShift(0.4)).argmax(axis=1) - 50
    place = shifts + np.random.default_rng(0).random(3000) - 0.5
    assert stats.kstest(place, stats.uniform(-40, 80).cdf).pvalue > 0.001


@pytest.mark.parametrize(("length", "pad"), [(30, 0), (40, 0), (44, 2), (3, 10), (1, 0)])
@pytest.mark.parametrize("channels", [(), (2,)])
@pytest.mark.usefixtures("interpreted")
def test_a_crop_is_a_slice_of_the_padded_signal(length, pad, channels):
    x = signals((LENGTH, *channels), count=40)
    applied = Applied(x, S.RandomCrop1D(length, pad, fill=0.5))
    assert applied.out.shape == (40, length, *channels)
    starts = set()
    for signal, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        start = int(rng.integers(-pad, LENGTH + pad - length + 1))
        np.testing.assert_array_equal(out, stretch(signal, start, length, 0.5))
        starts.add(start)
    assert len(starts) == 1 or max(starts) > min(starts)


@pytest.mark.usefixtures("interpreted")
def test_crops_begin_anywhere_equally_often():
    x = np.broadcast_to(np.arange(10, dtype=np.float32), (3000, 10))
    starts = apply(x, S.RandomCrop1D(4))[:, 0]
    counts = np.bincount(starts.astype(int), minlength=7)
    assert len(counts) == 7
    assert stats.chisquare(counts).pvalue > 0.001


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64, bool])
@pytest.mark.usefixtures("interpreted")
def test_ops_that_only_move_accept_every_dtype(dtype):
    x = (signals() > 0).astype(dtype)
    for op in (S.TimeShift(0.5), S.RandomCrop1D(20, 3), S.Reverse()):
        assert apply(x, op).dtype == dtype


# NoiseAtSNR


@pytest.mark.parametrize("decibels", [0.0, 20.0, -10.0])
@pytest.mark.usefixtures("interpreted")
def test_noise_has_the_power_that_the_ratio_leaves_it(decibels):
    x = signals((500, 4), count=10) * np.float32(3)
    noise = apply(x, S.NoiseAtSNR(decibels)).astype(np.float64) - x
    expected = np.mean(x.astype(np.float64) ** 2, axis=(1, 2)) / 10 ** (decibels / 10)
    values = (noise / np.sqrt(expected)[:, None, None]).reshape(-1)
    assert stats.kstest(values, "norm").pvalue > 0.001
    assert abs(np.mean(values**2) - 1) < 4 * math.sqrt(2 / values.size)
    # White: neighbours in time and in channels are not correlated.
    for first, second in ((noise[:, 1:], noise[:, :-1]), (noise[..., 1:], noise[..., :-1])):
        correlation = np.corrcoef(first.reshape(-1), second.reshape(-1))[0, 1]
        assert abs(correlation) < 4 / math.sqrt(first.size)


@SHAPES
@pytest.mark.usefixtures("interpreted")
def test_noise_equals_its_twin(shape):
    x = signals(shape)
    applied = Applied(x, S.NoiseAtSNR((0, 40)))
    for signal, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        ratio = 10 ** (rng.uniform(0, 40) / 10)
        deviation = math.sqrt(np.mean(signal.astype(np.float64) ** 2) / ratio)
        noise = np.empty(signal.size, np.float32)
        reference.fill_normals(next_bits(rng), noise)
        np.testing.assert_allclose(out, signal + deviation * noise.reshape(shape), atol=1e-5)


@pytest.mark.usefixtures("interpreted")
def test_a_silent_signal_stays_silent():
    x = np.zeros((3, LENGTH), np.float32)
    np.testing.assert_array_equal(apply(x, S.NoiseAtSNR()), x)


# TimeMask, FreqMask


@pytest.mark.parametrize(("op", "axis"), [(S.TimeMask, 0), (S.FreqMask, 1)])
@pytest.mark.parametrize("masks", [1, 3])
@pytest.mark.usefixtures("interpreted")
def test_masks_equal_their_twins(op, axis, masks):
    x = signals((30, 20), count=20)
    applied = Applied(x, op(20, masks, fill=9.0))
    for signal, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        expected = signal.copy()
        for _ in range(masks):
            width = int(rng.integers(0, 21))
            start = int(rng.integers(0, signal.shape[axis] - width + 1))
            np.moveaxis(expected, axis, 0)[start : start + width] = 9.0
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("op", "axis"), [(S.TimeMask, 1), (S.FreqMask, 2)])
@pytest.mark.usefixtures("interpreted")
def test_widths_and_places_of_masks_are_uniform(op, axis):
    masked = apply(np.ones((3000, 12, 12), np.float32), op(4)) == 0
    assert np.all(masked == masked.all(axis=3 - axis, keepdims=True))
    inside = masked.any(axis=3 - axis)
    widths = inside.sum(axis=1)
    assert stats.chisquare(np.bincount(widths, minlength=5)).pvalue > 0.001
    for width in range(1, 5):
        starts = inside[widths == width].argmax(axis=1)
        counts = np.bincount(starts, minlength=12 - width + 1)
        assert len(counts) == 12 - width + 1
        assert stats.chisquare(counts).pvalue > 0.001


@pytest.mark.usefixtures("interpreted")
def test_waveforms_are_masked_too_and_as_a_whole_if_asked():
    x = signals((3,), count=200)
    masked = apply(x, S.TimeMask(3)) == 0
    assert {0, 3} <= set(masked.sum(axis=1))


# Resample


def resampled(signal, length, start, extent, fill):
    """Return np.interp between the middles of moments."""
    places = start + (np.arange(length) + 0.5) * extent / length
    middles = np.arange(len(signal)) + 0.5
    columns = [np.interp(places, middles, column) for column in signal.reshape(len(signal), -1).T]
    out = np.stack(columns, axis=1)
    out[(places < 0) | (places > len(signal))] = fill
    return out.reshape(length, *signal.shape[1:])


@SHAPES
@pytest.mark.parametrize("length", [1, 25, LENGTH, 77])
@pytest.mark.usefixtures("interpreted")
def test_resampling_is_linear_between_the_middles_of_moments(shape, length):
    x = signals(shape, count=2)
    out = apply(x, T.Resample(length, antialias=False))
    assert out.shape == (2, length, *shape[1:])
    assert out.dtype == np.float32
    for signal, found in zip(x, out, strict=True):
        expected = resampled(signal, length, 0, len(signal), 0)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("speed", [(0.3, 1.0), (1.0, 3.0)])
@pytest.mark.usefixtures("interpreted")
def test_a_slow_signal_shows_a_stretch_and_a_fast_one_lies_between_fill(speed):
    x = signals((LENGTH, 2), count=30)
    applied = Applied(x, T.Resample(50, speed=speed, fill=5.0, antialias=False))
    filled = 0
    for signal, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        extent = LENGTH * rng.uniform(*speed)
        spare = LENGTH - extent
        start = rng.uniform(min(spare, 0), max(spare, 0))
        np.testing.assert_allclose(out, resampled(signal, 50, start, extent, 5.0), atol=1e-4)
        filled += np.any(out == 5.0)
    assert (filled == 0) == (speed[1] == 1.0)


@pytest.mark.usefixtures("interpreted")
def test_twice_as_fast_is_twice_the_frequency():
    time = np.arange(4000) + 0.5
    x = np.sin(2 * np.pi * 0.01 * time).astype(np.float32)[None]
    out = apply(x, T.Resample(4000, speed=2.0))[0]
    played = np.flatnonzero(out)
    assert played[-1] - played[0] == 1999
    spectrum = np.abs(np.fft.rfft(out[played[0] : played[0] + 2000]))
    assert spectrum.argmax() == 0.02 * 2000


@pytest.mark.usefixtures("interpreted")
def test_labels_that_follow_have_the_value_of_the_nearest_moment():
    x = np.arange(10, dtype=np.float32)[None]
    for speed in (0.5, (0.4, 2.5)):
        op = T.Resample(23, speed=speed, fill=77.0, antialias=False)
        for seed in range(20):
            mixed = apply(x, op, seed=seed)[0]
            nearest = apply(x.astype(np.int16), op.for_labels(), seed=seed)[0]
            assert nearest.dtype == np.int16
            np.testing.assert_array_equal(nearest == 77, mixed == 77)
            assert np.max(np.abs(nearest - mixed)) <= 0.501


# MuLaw


@pytest.mark.parametrize("levels", [2, 16, 256, 257, 65536])
@pytest.mark.usefixtures("interpreted")
def test_codes_are_those_of_the_published_formula(levels):
    x = np.clip(signals((200, 2)) / 2, -1, 1)
    x[0, :5, 0] = -1, 1, 0, -0.0, 1e-9
    out = apply(x, S.MuLaw(levels))
    assert out.dtype == (np.uint8 if levels <= 256 else np.int32)
    assert out.shape == x.shape
    mu = levels - 1.0
    wide = x.astype(np.float64)
    companded = np.sign(wide) * np.log1p(mu * np.abs(wide)) / np.log1p(mu)
    exact = (companded + 1) / 2 * mu + 0.5
    np.testing.assert_array_equal(out, np.floor(exact + 1e-12))


@pytest.mark.usefixtures("interpreted")
def test_silence_is_the_middle_code_and_all_codes_are_used():
    out = apply(np.linspace(-1, 1, 20001, dtype=np.float32)[None], S.MuLaw())[0]
    np.testing.assert_array_equal(np.unique(out), np.arange(256))
    assert np.all(np.diff(out.astype(int)) >= 0)
    assert out[10000] == 128
    beyond = apply(np.array([[-3.0, 3.0, -np.inf, np.inf]], np.float32), S.MuLaw())
    np.testing.assert_array_equal(beyond, [[0, 255, 0, 255]])


# Draws


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("levels", [2, 3, 17, 255, 256])
def test_codes_change_exactly_where_they_do_by_the_formula(levels):
    limits, _ = S.mu_law_cells(levels - 1)
    edges = limits[limits <= S.LARGEST].view(np.float32)
    assert len(edges) == 2 * (levels // 2) - (levels % 2 == 0)
    near = np.concatenate(
        [edges, np.nextafter(edges, np.float32(0)), np.nextafter(edges, np.float32(2))]
    )
    special = np.float32([0, 1e-40, 2.0**-15, 2.0**-14, 0.5, 1, 3, np.inf])
    spread = 10 ** np.random.default_rng(4).uniform(-6, 0, 20000)
    magnitudes = np.concatenate([near, special, spread]).astype(np.float32)
    x = np.concatenate([magnitudes, -magnitudes])
    expected = [S.companded(value, levels - 1) for value in x.tolist()]
    np.testing.assert_array_equal(apply(x[None], S.MuLaw(levels))[0], expected)


def test_a_single_amount_draws_nothing():
    rng = Draws(5)
    S.gain(np.ones(4, np.float32), rng, np.array([3.0]))
    assert rng.state == Draws(5).state


# Refusals

AMOUNT = "a range of two with"
REFUSED = [
    (lambda: S.Gain("loud"), "`decibels` (='loud') must be a number from -700 to 700"),
    (lambda: S.Gain((6, -6)), f"`decibels` (=(6, -6)) must be a number from -700 to 700, {AMOUNT} -700 <= low <= high"),
    (lambda: S.Gain(math.nan), "`decibels` (=nan) must be"),
    (lambda: S.Polarity(2), "`probability` (=2) must be from 0 to 1."),
    (lambda: S.Reverse(-1), "`probability` (=-1) must be from 0 to 1."),
    (lambda: S.TimeShift(1.5), f"`amount` (=1.5) must be a number from 0 to 1, {AMOUNT} -1 <= low <= high <= 1, or a"),
    (lambda: S.TimeShift(0.1, border="edge"), "`border` (='edge') must be \"wrap\" or \"fill\"."),
    (lambda: S.TimeShift(0.1, fill=math.inf), "`fill` (=inf) must be a finite number."),
    (lambda: S.RandomCrop1D(0), "`length` (=0) must be an integer of at least 1."),
    (lambda: S.RandomCrop1D(2.0), "`length` (=2.0) must be an integer of at least 1."),
    (lambda: S.RandomCrop1D(5, -1), "`pad` (=-1) must be an integer of at least 0."),
    (lambda: S.NoiseAtSNR(math.inf), "`decibels` (=inf) must be a number from -300 to 300"),
    (lambda: S.TimeMask(-1), "`width` (=-1) must be an integer of at least 0."),
    (lambda: S.TimeMask(0.1), "`width` (=0.1) must be an integer of at least 0."),
    (lambda: S.FreqMask(5, 0), "`masks` (=0) must be an integer of at least 1."),
    (lambda: S.FreqMask(5, fill="mean"), "`fill` (='mean') must be a finite number."),
    (lambda: T.Resample(0), "`length` (=0) must be an integer of at least 1."),
    (lambda: T.Resample(10, speed=0), "`speed` (=0) must be above 0."),
    (lambda: T.Resample(10, speed=(0, 2)), "`speed` (=(0, 2)) must be above 0."),
    (lambda: T.Resample(10, speed=-1), "`speed` (=-1) must be a number of at least 0"),
    (lambda: T.Resample(10, antialias="no"), "`antialias` (='no') must be True or False."),
    (lambda: S.MuLaw(1), "`levels` (=1) must be an integer from 2 to 65536."),
    (lambda: S.MuLaw(65537), "`levels` (=65537) must be an integer from 2 to 65536."),
    (lambda: S.MuLaw(8.0), "`levels` (=8.0) must be an integer from 2 to 65536."),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_that_cannot_work_are_refused_at_once(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()


MOVING = [S.TimeShift(0.1), S.RandomCrop1D(2), S.Reverse()]
CHANGING = [S.Gain(), S.Polarity(), S.NoiseAtSNR(), S.TimeMask(1), S.FreqMask(1), T.Resample(5), S.MuLaw()]  # fmt: skip


@pytest.mark.parametrize("op", [*MOVING, *CHANGING], ids=repr)
@pytest.mark.parametrize("shape", [(), (4, 5, 3), (0,), (4, 0)], ids=repr)
def test_every_op_refuses_samples_that_are_not_signals(op, shape):
    message = rf"{op.name} accepts .*not float32{re.escape(str(list(shape)))}"
    with pytest.raises(lx.ArgumentError, match=message):
        lx.pipeline([op])(np.zeros((2, *shape), np.float32))


@pytest.mark.parametrize("op", CHANGING, ids=repr)
@pytest.mark.parametrize("dtype", ["int16", "float64", "float16"])
def test_values_are_changed_as_float32_only(op, dtype):
    message = (
        f"{op.name} accepts float32 samples of shape (time,) or (time, channels), not {dtype}[10]; ToFloat makes "
        "float32 of integers and of other floats."
    )
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        lx.pipeline([op])(np.zeros((2, 10), dtype))


@pytest.mark.parametrize(
    ("op", "shape", "message"),
    [
        (S.RandomCrop1D(15, 2), (10,), "RandomCrop1D: `length` (=15) must not exceed the signal with its padding, 14"),
        (S.TimeMask(11), (10, 20), "TimeMask: `width` (=11) must not exceed axis 0 of the input, which is float32[10"),
        (S.FreqMask(21), (30, 20), "FreqMask: `width` (=21) must not exceed axis 1 of the input, which is float32[30"),
        (S.FreqMask(1), (10,), "FreqMask accepts spectrograms of shape (time, frequency), not float32[10]."),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_the_signal_are_refused(op, shape, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        lx.pipeline([op])(np.zeros((2, *shape), np.float32))
