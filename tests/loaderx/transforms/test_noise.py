"""Noise and holes have the frequency, size and distance that are asked for, and differ for every sample."""

import colorsys
import math
import re

import numpy as np
import pytest
from scipy import stats

import loaderx as lx
from loaderx.kernels.distributions import next_bits
from loaderx.transforms.amounts import Choice
from loaderx.transforms.noise import (
    GaussianNoise,
    GridMask,
    ISONoise,
    MultiplicativeNoise,
    SaltPepper,
    ShotNoise,
)
from tests import reference
from tests.loaderx.transforms.images import Applied, apply, halved, images


@pytest.fixture
def interpreted(monkeypatch):
    """Run ops in plain Python, their kernels compiled: no other sizes and parameters to compile for."""
    monkeypatch.setenv("LOADERX_DEBUG", "1")


def white_of(x):
    return 255.0 if x.dtype == np.uint8 else 1.0


def noisy(image, rng, std, mean):
    out, white = image.copy(), white_of(image)
    deviation, middle = rng.uniform(*std), rng.uniform(*mean)
    reference.add_noise(out.reshape(-1), next_bits(rng), middle * white, deviation * white, white)
    if image.shape[2] == 4:
        out[..., 3] = image[..., 3]
    return out


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(7, 10, 3), (5, 5, 1), (1, 3, 2), (4, 4, 4)])
def test_noise_equals_its_twin(shape, dtype):
    x = images(shape, dtype)
    applied = Applied(x, GaussianNoise((0.05, 0.3), (-0.1, 0.2)))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        np.testing.assert_array_equal(out, noisy(image, rng, (0.05, 0.3), (-0.1, 0.2)))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("dtype", "middle"), [(np.uint8, 128), (np.float32, 0.5)])
def test_noise_is_normal_in_fractions_of_white(dtype, middle):
    x = np.full((20, 64, 64, 3), middle, dtype)
    out = apply(x, GaussianNoise(0.05, 0.02)).astype(np.float64)
    z = (out / white_of(x) - middle / white_of(x) - 0.02) / 0.05
    # Rounding to levels widens the noise of bytes, and is undone by another such width.
    if dtype == np.uint8:
        z += (np.random.default_rng(0).random(z.shape) - 0.5) / (0.05 * 255)
    width = math.sqrt(1 + (dtype == np.uint8) * 2 / 12 / (0.05 * 255) ** 2)
    assert stats.kstest(z.reshape(-1) / width, "norm").pvalue > 0.001
    # Independent from sample to sample, channel to channel and pixel to pixel.
    for first, second in (
        (z[0], z[1]), (z[..., 0], z[..., 1]), (z[..., 1], z[..., 2]), (z[:, :-1], z[:, 1:]), (z[:, :, :-1], z[:, :, 1:])
    ):  # fmt: skip
        assert abs(np.mean(first * second)) < 5 / math.sqrt(first.size)


@pytest.mark.usefixtures("interpreted")
def test_the_deviation_is_drawn_for_every_sample():
    x = np.full((200, 40, 40, 3), 0.5, np.float32)
    deviations = apply(x, GaussianNoise((0.02, 0.08))).std(axis=(1, 2, 3))
    assert stats.kstest(deviations, stats.uniform(0.02, 0.06).cdf).pvalue > 0.001


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_much_noise_is_clipped_to_black_and_white(dtype):
    x = images((20, 20, 3), dtype)
    out = apply(x, GaussianNoise(100.0))
    white = white_of(x)
    assert np.mean((out == 0) | (out == white)) > 0.98
    assert abs(np.mean(out == white) - 0.5) < 0.05
    assert np.all(apply(x, GaussianNoise(0.0, 1e30)) == white)
    assert np.all(apply(x, GaussianNoise(0.0, -1e30)) == 0)


# SaltPepper


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_pixels_become_black_or_white_as_a_whole(dtype):
    x = images((20, 30, 3), dtype)
    applied = Applied(x, SaltPepper((0.1, 0.5), (0.2, 0.9)))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        amount, salt = rng.uniform(0.1, 0.5), rng.uniform(0.2, 0.9)
        bits = reference.hash_index(600, next_bits(rng)).reshape(20, 30) >> np.uint64(8)
        expected = image.copy()
        expected[bits < round(amount * 2**24)] = white_of(x)
        expected[bits < round(amount * (1 - salt) * 2**24)] = 0
        np.testing.assert_array_equal(out, expected)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("amount", "salt"), [(0.0, 0.5), (0.03, 0.5), (0.2, 0.1), (1.0, 0.0), (1.0, 1.0)])  # fmt: skip
def test_as_many_pixels_are_hit_as_asked(amount, salt):
    x = np.full((8, 60, 60, 1), 100, np.uint8)
    out = apply(x, SaltPepper(amount, salt))
    for level, share in ((255, amount * salt), (0, amount * (1 - salt)), (100, 1 - amount)):
        hits = int(np.sum(out == level))
        if share in (0, 1):
            assert hits == share * x.size
        else:
            assert stats.binomtest(hits, x.size, share).pvalue > 0.001


# GridMask


def masked(image, rng, period, keep, fill):
    height, width = image.shape[:2]
    unit = max(2, round(rng.uniform(*period) * min(height, width)))
    side = unit - round(keep * unit)
    top, left = rng.integers(0, unit), rng.integers(0, unit)
    rows, columns = np.arange(height) + top, np.arange(width) + left
    out = image.copy()
    out[np.ix_(rows % unit < side, columns % unit < side)] = fill
    return out


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(40, 30, 3), (9, 31, 1), (1, 1, 4)])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.5, 1.0])
def test_a_grid_equals_its_twin(shape, dtype, keep):
    x = images(shape, dtype)
    applied = Applied(x, GridMask((0.2, 0.9), keep, fill=0.75 if dtype == np.float32 else 7))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        expected = masked(image, rng, (0.2, 0.9), keep, 0.75 if dtype == np.float32 else 7)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.usefixtures("interpreted")
def test_the_squares_of_a_grid_have_the_published_share_and_any_place():
    x = np.ones((300, 40, 40, 1), np.float32)
    out = apply(x, GridMask(0.25, 0.4))
    # Units of 10 pixels with squares of 6.
    np.testing.assert_allclose(np.mean(out == 0, axis=(1, 2, 3)), 0.36)
    holes = out[..., 0] == 0
    np.testing.assert_array_equal(holes[:, 10:, :], holes[:, :-10, :])
    np.testing.assert_array_equal(holes[:, :, 10:], holes[:, :, :-10])
    corners = [tuple(np.roll(np.argwhere(hole)[0], 1)) for hole in holes]
    assert len(set(corners)) > 20
    hits = np.sum(holes[:, 0, 0])
    assert stats.binomtest(int(hits), 300, 0.36).pvalue > 0.001


# MultiplicativeNoise


def scaled(image, rng, low, high, per_channel, elementwise):
    height, width, channels = image.shape
    key = next_bits(rng)
    if elementwise:
        count = image.size if per_channel else height * width
        bits = reference.hash_index(count, key).reshape(height, width, -1)
        shares = (bits >> np.uint64(8)).astype(np.float32) * np.float32(2**-24)
        factors = low + (high - low) * shares.astype(np.float64)
    else:
        factors = np.array([rng.uniform(low, high) for _ in range(channels if per_channel else 1)])
    values = image.astype(np.float32) * factors.astype(np.float32)
    values = np.clip(values, 0, np.float32(white_of(image)))
    if image.dtype == np.uint8:
        values = np.floor(values + np.float32(0.5))
    values = values.astype(image.dtype)
    values[..., 3:] = image[..., 3:]
    return values


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("elementwise", [False, True])
def test_factors_equal_their_twin(channels, dtype, per_channel, elementwise):
    x = images((7, 10, channels), dtype)
    options = {"per_channel": per_channel, "elementwise": elementwise}
    applied = Applied(x, MultiplicativeNoise((0.5, 1.7), **options))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        np.testing.assert_array_equal(out, scaled(image, rng, 0.5, 1.7, **options))


def test_factors_are_uniform_and_as_many_as_asked():
    x = np.full((300, 4, 5, 3), 0.5, np.float32)
    for per_channel, elementwise, number in (
        (False, False, 1), (True, False, 3), (False, True, 20), (True, True, 60)
    ):  # fmt: skip
        op = MultiplicativeNoise((0.8, 1.2), per_channel=per_channel, elementwise=elementwise)
        factors = apply(x, op).reshape(300, -1).astype(np.float64) * 2
        assert {len(np.unique(sample)) for sample in factors} <= {number, number - 1}
        several = np.concatenate([np.unique(sample) for sample in factors])
        assert stats.kstest(several, stats.uniform(0.8, 0.4).cdf).pvalue > 0.001
    chosen = apply(x, MultiplicativeNoise(Choice(0.5, 1, 2), per_channel=True, elementwise=True))
    counts = [int(np.sum(chosen == value)) for value in (0.25, 0.5, 1)]
    assert sum(counts) == x.size
    assert stats.chisquare(counts).pvalue > 0.001


# ShotNoise


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("photons", [3, 20, 60, 1000])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.6])
def test_counted_photons_are_poisson_numbers(photons, share, dtype):
    x = np.full((4, 60, 60, 1), share * 255 if dtype == np.uint8 else share, dtype)
    out = apply(x, ShotNoise(photons)).astype(np.float64) / white_of(x)
    mean = float(x.flat[0]) / white_of(x) * photons
    if share == 0:
        assert np.all(out == 0)
        return
    # White is the most there is, and levels of bytes are rounded.
    exact = np.minimum(np.arange(6 * photons), photons) / photons
    shares = stats.poisson(mean).pmf(np.arange(6 * photons))
    expected = np.sum(shares * exact)
    variance = np.sum(shares * exact**2) - expected**2
    assert abs(out.mean() - expected) < 4 * math.sqrt(variance / out.size) + 1e-4
    assert abs(out.var() / variance - 1) < 0.05 + (1 / 12 / 255**2) / variance
    if dtype == np.float32:
        counts = np.bincount(np.round(out * photons).astype(int).reshape(-1), minlength=photons + 1)
        cumulative = np.cumsum(counts)[:-1] / out.size
        difference = cumulative - stats.poisson(mean).cdf(np.arange(len(cumulative)))
        # Kolmogorov and Smirnov's limit at 0.1 %.
        assert np.max(np.abs(difference)) < 1.95 / math.sqrt(out.size)


def test_photons_leave_opacity_alone_and_none_of_them_change_nothing():
    x = images((20, 31, 4))
    out = apply(x, ShotNoise(20))
    np.testing.assert_array_equal(out[..., 3], x[..., 3])
    assert np.mean(out[..., :3] != x[..., :3]) > 0.5
    np.testing.assert_array_equal(apply(x, ShotNoise(0)), x)


@pytest.mark.parametrize("op", [GaussianNoise(0.3), SaltPepper(0.5)], ids=repr)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_noise_leaves_opacity_alone(op, dtype):
    x = images((20, 31, 4), dtype)
    out = apply(x, op)
    np.testing.assert_array_equal(out[..., 3], x[..., 3])
    assert np.mean(out[..., :3] != x[..., :3]) > 0.3


# ISONoise


def camera_noise(image, rng, color_shift, intensity):
    """Add noise by the standard library's colours, pixel by pixel, with the same draws."""
    shares = np.clip(image[..., :3].astype(np.float64) / white_of(image), 0, 1)
    shift, strength = rng.uniform(*color_shift), rng.uniform(*intensity)
    light = (shares.max(axis=2) + shares.min(axis=2)) / 2
    out = image.astype(np.float64)
    law = stats.poisson(light.std() * strength * 255)
    for place in np.ndindex(*image.shape[:2]):
        hue, lightness, saturation = colorsys.rgb_to_hls(*shares[place])
        lightness += law.ppf(rng.random()) / 255 * (1 - lightness)
        hue += shift * strength * rng.standard_normal()
        colour = colorsys.hls_to_rgb(hue % 1, min(lightness, 1), saturation)
        out[place][:3] = np.array(colour) * white_of(image)
    return out


@pytest.mark.parametrize(("channels", "dtype"), halved([3, 4]))
def test_camera_noise_is_that_of_the_standard_librarys_colours(dtype, channels):
    x = images((7, 10, channels), dtype)
    x[0, ..., :3] = x[0, ..., :1]
    x[1] = 0
    applied = Applied(x, ISONoise((0.01, 0.1), (0.1, 0.5)))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        expected = camera_noise(image, rng, (0.01, 0.1), (0.1, 0.5))
        np.testing.assert_allclose(out, expected, atol=0.501 if dtype == np.uint8 else 1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_camera_noise_of_a_grey_image_is_that_of_its_colours(dtype):
    x = images((7, 10, 1), dtype)
    out = apply(np.repeat(x, 3, axis=3), ISONoise())
    np.testing.assert_array_equal(apply(x, ISONoise()), out[..., :1])
    np.testing.assert_array_equal(lx.pipeline([ISONoise()])(x[..., 0], batch=True), out[..., 0])


def test_camera_noise_is_poisson_in_lightness():
    x = np.zeros((4, 60, 60, 3), np.float32)
    x[:, ::2] = 0.5
    out = apply(x, ISONoise(0.0, 0.4)).astype(np.float64)
    # The deviation of the lightness is 0.25, and black becomes the Poisson number itself.
    numbers = np.round(out[:, 1::2] * 255)
    np.testing.assert_allclose(numbers, out[:, 1::2] * 255, atol=1e-3)
    assert abs(numbers[..., 0].mean() / 25.5 - 1) < 0.01
    assert abs(numbers[..., 0].var() / 25.5 - 1) < 0.1


# All of them


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_an_image_without_an_axis_of_channels_is_one_of_one_channel(dtype):
    x = images((20, 31, 1), dtype)
    ops = [GaussianNoise(0.1), SaltPepper(0.2), GridMask(), MultiplicativeNoise(), ShotNoise()]
    out = lx.pipeline(ops)(x[..., 0], batch=True)
    np.testing.assert_array_equal(out, apply(x, *ops)[..., 0])


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_nothing_asked_for_is_the_image_bit_for_bit(dtype):
    x = images((20, 31, 3), dtype)
    x.reshape(-1)[:2] = 0, white_of(x)
    ops = GaussianNoise(0.0), SaltPepper(0.0), GridMask(keep=1.0)
    np.testing.assert_array_equal(apply(x, *ops), x)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_debug_mode_gives_the_same_images(dtype, monkeypatch):
    x = images((20, 31, 3), dtype)
    ops = GaussianNoise(), SaltPepper((0.1, 0.3)), GridMask(fill=0.5), MultiplicativeNoise()
    ops += ShotNoise(), ISONoise()
    compiled = apply(x, *ops)
    np.testing.assert_array_equal(apply(x, *ops), compiled)
    assert np.any(apply(x, *ops, seed=1) != compiled)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(x, *ops), compiled)


REFUSED = [
    (lambda: GaussianNoise(-0.1), "`std` (=-0.1) must be a number of at least 0, a range of two with 0 <= low <= high"),
    (lambda: GaussianNoise((0.2, 0.1)), "`std` (=(0.2, 0.1)) must be"),
    (lambda: GaussianNoise(0.1, math.inf), "`mean` (=inf) must be a number that is finite"),
    (lambda: SaltPepper(1.1), "`amount` (=1.1) must be a number from 0 to 1"),
    (lambda: SaltPepper(0.1, -1), "`salt` (=-1) must be a number from 0 to 1"),
    (lambda: MultiplicativeNoise(-1), "`multiplier` (=-1) must be a number of at least 0"),
    (lambda: ShotNoise(-1), "`photons` (=-1) must be a number from 0 to 1e+09"),
    (lambda: ISONoise(-1), "`color_shift` (=-1) must be a number of at least 0"),
    (lambda: ISONoise(0.1, -1), "`intensity` (=-1) must be a number of at least 0"),
    (lambda: GridMask(-1), "`period` (=-1) must be a number of at least 0"),
    (lambda: GridMask(keep=2), "`keep` (=2) must be a number from 0 to 1"),
    (lambda: GridMask(fill=math.nan), "`fill` (=nan) must be a finite number."),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_that_cannot_work_are_refused_at_once(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("op", [GaussianNoise(), SaltPepper(), GridMask()], ids=repr)
@pytest.mark.parametrize(("shape", "dtype"), [((7,), "uint8"), ((7, 10, 3), "float16")])
def test_samples_that_are_not_images_are_refused(op, shape, dtype):
    with pytest.raises(lx.ArgumentError, match=f"{op.name} accepts"):
        lx.pipeline([op])(np.zeros((2, *shape), dtype), batch=True)


@pytest.mark.parametrize("op", [GaussianNoise(), SaltPepper(), GridMask()], ids=repr)
def test_labels_of_pixels_stay_as_they_are(op):
    assert op.for_labels().name == "Identity"
