"""Tones of bytes are those of Pillow, bit for bit; those of floats follow the same definitions."""

import math
import re

import numpy as np
import pytest
from PIL import Image, ImageOps
from scipy import stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.transforms.tones import AutoContrast, Equalize, Gamma, Invert, Posterize, Solarize
from tests.loaderx.transforms.images import Applied, apply, images


def byte_images(shape=(23, 31, 3)):
    """Return any bytes, few of them, one colour, and bytes of a narrow range; enough of them to be equalized."""
    x = images(shape, count=8)
    x[1] //= 2
    x[2] = 100 + x[2] // 4
    x[3] = 137
    x[4] = x[4] // 128 * 255
    x[5, ..., 0] = 9
    x[6].reshape(-1)[:1] = 0
    x[6].reshape(-1)[1:2] = 255
    return x


def pillows(function, x):
    """Return images after a function of Pillow."""
    flat = x[..., 0] if x.shape[3] == 1 else x
    out = [np.asarray(function(Image.fromarray(image))) for image in flat]
    return np.stack(out).reshape(x.shape)


EXACT = {
    "Invert": (Invert(), ImageOps.invert),
    "AutoContrast": (AutoContrast(), ImageOps.autocontrast),
    "Equalize": (Equalize(), ImageOps.equalize),
    "Solarize": (Solarize(), ImageOps.solarize),
    **{
        f"Posterize {bits}": (
            Posterize(bits),
            lambda image, bits=bits: ImageOps.posterize(image, bits),
        )
        for bits in range(1, 9)
    },
}


@pytest.mark.parametrize("name", EXACT)
def test_bytes_are_those_of_pillow(name):
    op, function = EXACT[name]
    x = byte_images()
    np.testing.assert_array_equal(apply(x, op), pillows(function, x))


@pytest.mark.parametrize("name", ["AutoContrast", "Equalize"])
def test_large_images_are_those_of_pillow(name):
    op, function = EXACT[name]
    # Skewed, so that tables differ by channel, and of a size that four and eight do not divide.
    x = (np.random.default_rng(0).random((3, 61, 67, 3)) ** [1, 2, 4] * 230 + [3, 9, 20]).astype(
        "u1"
    )
    np.testing.assert_array_equal(apply(x, op), pillows(function, x))


def test_every_range_of_bytes_is_stretched_as_pillow_stretches_it():
    pairs = [(low, high) for low in range(0, 255, 3) for high in range(low + 1, 256, 3)]
    x = np.empty((len(pairs), 16, 16, 1), np.uint8)
    for image, (low, high) in zip(x, pairs, strict=True):
        image[..., 0] = np.clip(np.arange(256), low, high).reshape(16, 16)
    np.testing.assert_array_equal(apply(x, AutoContrast()), pillows(ImageOps.autocontrast, x))


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 4)])
def test_a_chain_of_tones_is_one_after_the_other_for_any_number_of_channels(shape):
    x = byte_images(shape)
    out = apply(x, Solarize(0.25), Equalize(), Posterize(5), AutoContrast(), Invert(), Gamma(2.0))
    for channel in range(shape[2]):
        image = x[..., channel : channel + 1]
        image = pillows(lambda given: ImageOps.solarize(given, 64), image)
        image = pillows(ImageOps.equalize, image)
        image = pillows(lambda given: ImageOps.posterize(given, 5), image)
        image = 255 - pillows(ImageOps.autocontrast, image)
        expected = np.floor(255 * (image / 255) ** 2 + 0.5)
        if channel == 3:
            expected = x[..., 3:]
        np.testing.assert_array_equal(out[..., channel : channel + 1], expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.uint16])
def test_opacity_stays_as_it_is_and_colours_are_those_without_it(dtype):
    x = images((9, 11, 4), dtype)
    colours = np.ascontiguousarray(x[..., :3])
    for op in (Gamma(2.0), Solarize(0.4), Posterize(3), Invert(), AutoContrast()):
        out = apply(x, op)
        np.testing.assert_array_equal(out[..., 3], x[..., 3])
        np.testing.assert_array_equal(out[..., :3], apply(colours, op))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_an_image_without_an_axis_of_channels_is_one_of_one_channel(dtype, monkeypatch):
    x = images((9, 11, 1), dtype)
    ops = [Gamma(2.0), Solarize(0.4), Posterize(3), Invert(), AutoContrast()]
    ops += [Equalize()] if dtype == np.uint8 else []
    out = lx.pipeline(ops)(x[..., 0], batch=True)
    np.testing.assert_array_equal(out, apply(x, *ops)[..., 0])
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(lx.pipeline(ops)(x[..., 0], batch=True), out)


# Gamma


@pytest.mark.parametrize("gamma", [0, 0.5, 2.2, (0.8, 1.25), T.Choice(0.3, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_gamma_is_a_power_of_the_share_of_white(gamma, dtype):
    x = images(dtype=dtype)
    white = 255 if dtype == np.uint8 else 1
    x.reshape(-1)[:2] = 0, white
    applied = Applied(x, Gamma(gamma))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        if isinstance(gamma, tuple):
            exponent = rng.uniform(*gamma)
        elif isinstance(gamma, T.Choice):
            exponent = (0.3, 3, 0.3, 3)[rng.integers(0, 4)]
        else:
            exponent = gamma
        expected = white * (image.astype(np.float64) / white) ** exponent
        if dtype == np.uint8:
            np.testing.assert_array_equal(out, np.floor(expected + 0.5))
        else:
            np.testing.assert_allclose(out, expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_gamma_of_one_gives_the_image_back_bit_for_bit(dtype):
    x = images(dtype=dtype)
    np.testing.assert_array_equal(apply(x, Gamma(1)), x)


def test_gammas_are_uniform_within_their_range():
    x = np.full((2000, 7, 10, 3), 0.5, np.float32)
    gammas = -np.log2(apply(x, Gamma((0.5, 2.0)))[:, 0, 0, 0].astype(float))
    assert stats.kstest(gammas, stats.uniform(0.5, 1.5).cdf).pvalue > 0.001


def test_floats_beyond_black_and_white_have_the_gamma_of_these():
    x = np.resize(np.float32([-0.5, 1.5]), (1, 7, 10, 3))
    np.testing.assert_array_equal(apply(x, Gamma(2.0)), np.clip(x, 0, 1))


# Solarize and invert


@pytest.mark.parametrize("threshold", [0.0, 0.2, 1.0, (0.3, 0.7)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_values_from_the_threshold_on_are_inverted(threshold, dtype):
    x = images(dtype=dtype)
    white = dtype(255 if dtype == np.uint8 else 1)
    x.reshape(-1)[:4] = 0, white, white / 5, white / dtype(5.1)
    applied = Applied(x, Solarize(threshold))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        share = rng.uniform(*threshold) if isinstance(threshold, tuple) else threshold
        limit = np.float32(share * float(white))
        np.testing.assert_array_equal(out, np.where(image >= limit, white - image, image))


def test_inverted_floats_are_one_less_them():
    x = images(dtype=np.float32)
    np.testing.assert_array_equal(apply(x, Invert()), 1 - x)


# Posterize


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_posterized_floats_are_the_levels_below_them(bits):
    x = images(dtype=np.float32)
    x.reshape(-1)[:4] = 0, 1, -0.25, 1.5
    levels = 2**bits
    expected = np.clip(np.floor(x * levels), 0, levels - 1) / levels
    np.testing.assert_array_equal(apply(x, Posterize(bits)), expected.astype(np.float32))


@pytest.mark.parametrize(
    ("bits", "possible"),
    [((3, 6), {3, 4, 5, 6}), ((2, 3), {2, 3}), ((4, 4), {4}), (T.Choice(1, 7), {1, 7})],
)
def test_bits_are_whole_numbers_each_as_likely_as_the_others(bits, possible):
    x = np.full((1200, 7, 10, 3), 255, np.uint8)
    kept = [int(value).bit_count() for value in apply(x, Posterize(bits))[:, 0, 0, 0]]
    counts = [kept.count(number) for number in possible]
    assert sum(counts) == 1200
    assert len(counts) == 1 or stats.chisquare(counts).pvalue > 0.001


# AutoContrast


def test_channels_of_floats_reach_from_black_to_white():
    x = images(dtype=np.float32) * np.float32([0.5, 0.2, 1]) + np.float32([0.1, -3, 2])
    x[0, ..., 0] = 0.25
    x[1, ..., 2] = 7
    low, high = x.min(axis=(1, 2), keepdims=True), x.max(axis=(1, 2), keepdims=True)
    with np.errstate(all="ignore"):
        expected = np.where(high > low, (x - low) / (high - low), x)
    out = apply(x, AutoContrast())
    np.testing.assert_allclose(out, expected, atol=1e-5)
    assert np.all(out[2:].max(axis=(1, 2)) <= 1)
    np.testing.assert_array_equal(out[2:].min(axis=(1, 2)), 0)


def test_floats_from_black_to_white_stay_as_they_are_bit_for_bit():
    x = images(dtype=np.float32)
    x[:, 0, :2] = [[0], [1]]
    np.testing.assert_array_equal(apply(x, AutoContrast()), x)


# Probabilities, refusals, debug mode


@pytest.mark.parametrize("op", [Invert, AutoContrast, Equalize], ids=lambda op: op.__name__)
def test_images_are_changed_as_often_as_asked(op):
    x = np.repeat(byte_images()[1:2], 500, axis=0)
    np.testing.assert_array_equal(apply(x, op(0)), x)
    changed = np.any(apply(x, op(0.3)) != x, axis=(1, 2, 3))
    assert stats.binomtest(int(changed.sum()), 500, 0.3).pvalue > 0.001
    assert np.all(np.any(apply(x, op(1)) != x, axis=(1, 2, 3)))


WHOLE = "must be whole numbers: one, a range of two, or a Choice."
REFUSED = [
    (lambda: Gamma(-1), "`gamma` (=-1) must be a number of at least 0, a range of two with 0 <= low <= high"),
    (lambda: Gamma(math.inf), "`gamma` (=inf) must be"),
    (lambda: Solarize(1.5), "`threshold` (=1.5) must be a number from 0 to 1, a range of two"),
    (lambda: Solarize((0.5, 0.2)), "`threshold` (=(0.5, 0.2)) must be"),
    (lambda: Posterize(0), "`bits` (=0) must be a number from 1 to 8, a range of two with 1 <= low <= high <= 8"),
    (lambda: Posterize(9), "`bits` (=9) must be a number from 1 to 8"),
    (lambda: Posterize(2.5), f"`bits` (=2.5) {WHOLE}"),
    (lambda: Posterize((2, 3.5)), f"`bits` (=(2, 3.5)) {WHOLE}"),
    (lambda: Posterize(T.Choice(2, 3.5)), f"`bits` (=Choice(2, 3.5)) {WHOLE}"),
    *[
        (lambda op=op: op(1.5), "`probability` (=1.5) must be from 0 to 1.")
        for op in (Invert, AutoContrast, Equalize)
    ],
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_that_cannot_work_are_refused_at_once(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_only_bytes_are_equalized(dtype):
    message = f"Equalize accepts images of uint8, not {np.dtype(dtype)}[7, 10, 3]."
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        lx.pipeline([Equalize()])(np.zeros((2, 7, 10, 3), dtype))


def test_contrast_of_truths_is_refused():
    message = "AutoContrast accepts integers, float32 or float64, not bool[7, 10, 3]."
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        lx.pipeline([AutoContrast()])(np.zeros((2, 7, 10, 3), bool))


EVERY_OP = [Gamma(), Solarize((0, 1)), Posterize((1, 8)), Invert(0.5), AutoContrast(), Equalize()]


@pytest.mark.parametrize("op", EVERY_OP, ids=repr)
def test_every_op_refuses_samples_that_are_not_images(op):
    with pytest.raises(lx.ArgumentError, match=f"{op.name} accepts images of shape"):
        lx.pipeline([op])(np.zeros((2, 7), np.uint8), batch=True)


@pytest.mark.parametrize("op", EVERY_OP, ids=repr)
def test_debug_mode_gives_the_same_bytes(op, monkeypatch):
    x = byte_images()
    compiled = apply(x, op)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(x, op), compiled)


def test_wider_integers_follow_the_same_definitions(monkeypatch):
    x = images(dtype=np.uint16)
    x[0] = x[0] // 4 + 77
    steps = Solarize(0.5), Posterize(3), AutoContrast(), Gamma(2.0), Invert()
    shares = np.where(x >= 32768, 65535 - x, x) // 8192 * 8192.0
    low, high = shares.min(axis=(1, 2), keepdims=True), shares.max(axis=(1, 2), keepdims=True)
    stretched = np.floor((shares - low) * (65535 / (high - low)) + 0.5)
    expected = 65535 - np.floor(65535 * (stretched / 65535) ** 2 + 0.5)
    out = apply(x, *steps)
    assert np.max(np.abs(out - expected)) <= 2
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(x, *steps), out)
