"""Colours change as Pillow and the published formulas of torchvision change them; erased boxes are as published."""

import colorsys
import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from PIL import Image, ImageEnhance
from scipy import stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.transforms.colour import ChannelDrop, ChannelShuffle, ColorJitter, Hue
from tests import reference
from tests.loaderx.transforms.images import Applied, apply, halved, images


def precision_of(image):
    """Return float64 where float32 does not hold every value."""
    return np.float32 if np.can_cast(image.dtype, np.float32) else np.float64


def white_of(image):
    return np.iinfo(image.dtype).max if image.dtype.kind in "iu" else 1


def stored(values, like):
    if like.dtype == np.uint8:
        return np.floor(values + np.float32(0.5)).astype(np.uint8)
    out = np.empty_like(like)
    reference.store_values(values.reshape(-1), out.reshape(-1))
    return out


def factor_of(rng, amount, image):
    return precision_of(image)(rng.uniform(max(0, 1 - amount), 1 + amount))


def grey_of(image):
    red, green, blue = np.moveaxis(image[..., :3].astype(precision_of(image)), -1, 0)
    return np.float32(0.299) * red + np.float32(0.587) * green + np.float32(0.114) * blue


def with_alpha_of(image, changed):
    """Restore the last of four channels: it is opacity, and stays as it is."""
    if image.shape[2] == 4:
        changed[..., 3] = image[..., 3]
    return changed


def brightened(image, factor):
    values = image.astype(precision_of(image)) * factor
    changed = stored(np.clip(values, 0, precision_of(image)(white_of(image))), image)
    return with_alpha_of(image, changed)


def towards(image, target, factor):
    """Blend as torchvision does: target at 0, the image itself at 1."""
    values = image.astype(precision_of(image)) * factor + target * (1 - factor)
    changed = stored(np.clip(values, 0, precision_of(image)(white_of(image))), image)
    return with_alpha_of(image, changed)


def contrasted(image, factor):
    height, width, channels = image.shape
    coloured = channels in (3, 4)
    # Column by column from top to bottom, then from left to right; 256 rows at most in these images.
    columns = np.cumsum(image.astype(np.float64), axis=0)[-1]
    sums = np.cumsum(columns, axis=0)[-1] if coloured else np.cumsum(columns.reshape(-1))[-1:]
    total = grey_of(sums[None, :3]).item() if coloured else sums.item() / channels
    middle = precision_of(image)(total / (height * width))
    return towards(image, middle, factor)


def saturated(image, factor):
    grey = grey_of(image)[..., None]
    values = image.astype(precision_of(image)) * factor + (1 - factor) * grey
    changed = stored(np.clip(values, 0, precision_of(image)(white_of(image))), image)
    return with_alpha_of(image, changed)


OPS = {
    "Brightness": (T.Brightness, brightened, ImageEnhance.Brightness),
    "Contrast": (T.Contrast, contrasted, ImageEnhance.Contrast),
    "Saturation": (T.Saturation, saturated, ImageEnhance.Color),
}
CASES = [
    ("Brightness", (7, 10, 3), np.uint8),
    ("Brightness", (7, 10, 3), np.float32),
    ("Brightness", (1, 1, 4), np.int32),
    ("Contrast", (7, 10, 3), np.uint8),
    ("Contrast", (7, 10, 3), np.float32),
    ("Contrast", (7, 10, 1), np.uint16),
    ("Contrast", (5, 3, 2), np.float64),
    ("Saturation", (7, 10, 3), np.uint8),
    ("Saturation", (7, 10, 3), np.float32),
    ("Brightness", (7, 10, 4), np.uint8),
    ("Contrast", (7, 10, 4), np.float32),
    ("Saturation", (23, 31, 4), np.uint8),
    ("Saturation", (7, 10, 4), np.float32),
]


@pytest.mark.parametrize("amount", [0.3, 1.0, 2.5])
@pytest.mark.parametrize(("name", "shape", "dtype"), CASES)
def test_an_op_equals_its_twin(name, shape, dtype, amount):
    op, twin, _ = OPS[name]
    x = images(shape, dtype)
    applied = Applied(x, op(amount))
    assert applied.out.dtype == dtype
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        np.testing.assert_array_equal(out, twin(image, factor_of(rng, amount, image)))


@pytest.mark.parametrize(("name", "shape", "dtype"), CASES)
def test_no_amount_gives_the_image_back_bit_for_bit(name, shape, dtype):
    x = images(shape, dtype)
    x.reshape(-1)[:2] = 0, white_of(x)
    np.testing.assert_array_equal(apply(x, OPS[name][0](0)), x)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("amount", [0.4, 1.0])
def test_images_are_those_of_pillow(name, amount):
    op, _, pillows = OPS[name]
    x = images()
    applied = Applied(x, op(amount))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        factor = float(factor_of(rng, amount, image))
        expected = np.asarray(pillows(Image.fromarray(image)).enhance(factor))
        # Pillow cuts off where this rounds.
        assert np.max(np.abs(out.astype(int) - expected)) <= 1


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("Brightness", np.zeros_like),
        ("Contrast", lambda image: np.mean(image @ [[0.299], [0.587], [0.114]])),
        ("Saturation", lambda image: image @ [[0.299], [0.587], [0.114]]),
    ],
)
def test_float_images_follow_the_published_formula(name, target):
    x = images(dtype=np.float32)
    applied = Applied(x, OPS[name][0](0.8))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        factor = rng.uniform(1 - 0.8, 1 + 0.8)
        blended = factor * image + (1 - factor) * target(image)
        np.testing.assert_allclose(out, np.clip(blended, 0, 1), atol=1e-6)


@pytest.mark.parametrize(("amount", "low", "high"), [(0.2, 0.8, 1.2), (3.0, 0.0, 4.0)])
def test_factors_are_uniform_around_one_and_never_negative(amount, low, high):
    x = np.full((2000, 7, 10, 3), 2**-4, np.float32)
    factors = apply(x, T.Brightness(amount))[:, 0, 0, 0] * 2**4
    assert stats.kstest(factors, stats.uniform(low, high - low).cdf).pvalue > 0.001


@settings(deadline=None, max_examples=25)
@given(
    x=st_numpy.arrays(np.uint8, (2, 7, 10, 3)),
    amount=st.one_of(st.floats(0, 4), st.sampled_from([0.0, 1.0])),
    name=st.sampled_from([*OPS]),
)
def test_any_image_and_amount_equals_the_twin(x, amount, name):
    op, twin, _ = OPS[name]
    applied = Applied(x, op(amount))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        np.testing.assert_array_equal(out, twin(image, factor_of(rng, amount, image)))


@pytest.mark.parametrize("op", [T.Contrast(1.0), T.Saturation(1.0)], ids=repr)
def test_a_grey_image_of_one_colour_stays_as_it_is(op):
    x = np.full((3, 7, 10, 3), 137, np.uint8)
    np.testing.assert_array_equal(apply(x, op), x)


# Values outside of 0 to 1


def beyond(shape=(7, 10, 3)):
    """Return floats with values below black and above white."""
    return images(shape, np.float32) * np.float32(2.4) - 1


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(
    ("op", "target"),
    [
        (T.Brightness, np.zeros_like),
        (T.Contrast, lambda image: np.mean(greys(image))),
        (T.Saturation, lambda image: greys(image)),
    ],
)
def test_floats_beyond_black_and_white_are_clipped_to_these(op, target, channels):
    x = beyond((7, 10, channels))
    applied = Applied(x, op(0.8))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        factor = rng.uniform(1 - 0.8, 1 + 0.8)
        colours = image[..., :3]
        expected = np.clip(factor * colours + (1 - factor) * target(colours), 0, 1)
        if op is T.Saturation and channels == 1:
            expected = colours
        np.testing.assert_allclose(out[..., :3], expected, atol=1e-6)
        np.testing.assert_array_equal(out[..., 3:], image[..., 3:])


def greys(image):
    return image @ [[0.299], [0.587], [0.114]] if image.shape[2] == 3 else image


def test_jittered_floats_are_from_black_to_white():
    out = apply(beyond(), ColorJitter(0.4, 0.4, 0.4, 0.1))
    assert (out.min(), out.max()) == (0, 1)


def test_colours_beyond_black_and_white_are_turned_as_clipped_ones():
    x = beyond()
    np.testing.assert_array_equal(apply(x, Hue(0.3)), apply(np.clip(x, 0, 1), Hue(0.3)))


# Grey images and opacity

GREY_CASES = [
    *(T.Brightness(0.7), T.Contrast(0.7), T.Saturation(0.7), Hue(0.3), T.Grayscale()),
    *(ColorJitter(0.5, 0.5, 0.5, 0.2), ChannelShuffle(), T.RandomErasing(1.0, value=7)),
]


@pytest.mark.parametrize(("op", "dtype"), halved(GREY_CASES))
def test_an_image_without_an_axis_of_channels_is_one_of_one_channel(op, dtype, monkeypatch):
    x = images((7, 10, 1), dtype)
    out = apply(x, op)
    flat = lx.pipeline([op])(x[..., 0], batch=True)
    np.testing.assert_array_equal(flat, out[..., 0])
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(lx.pipeline([op])(x[..., 0], batch=True), flat)


@pytest.mark.parametrize(("op", "dtype"), halved([T.Saturation(0.7), Hue(0.3), T.Grayscale()]))
def test_a_grey_image_has_no_colours_to_change(op, dtype):
    x = images((7, 10, 1), dtype)
    np.testing.assert_array_equal(apply(x, op), x)


def test_a_grey_image_is_jittered_in_brightness_and_contrast():
    x = images((7, 10, 1), count=20)
    applied = Applied(x, ColorJitter(0.4, 0.6, 0.9, 0.5))
    ranges = [(0.6, 1.4), (0.4, 1.6), (0.1, 1.9), (-0.5, 0.5)]
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        for step in jitter_order(rng):
            amount = rng.uniform(*ranges[step])
            if step < 2:
                image = (brightened, contrasted)[step](image, np.float32(amount))
        np.testing.assert_array_equal(out, image)


@pytest.mark.parametrize(
    ("op", "dtype"),
    halved(
        [T.Saturation(0.7), Hue(0.3), T.Grayscale(), ColorJitter(0.5, 0.5, 0.5, 0.2)],
    ),
)
def test_opacity_stays_as_it_is_and_colours_are_those_without_it(op, dtype):
    x = images((23, 31, 4), dtype)
    out = apply(x, op)
    np.testing.assert_array_equal(out[..., 3], x[..., 3])
    np.testing.assert_array_equal(out[..., :3], apply(np.ascontiguousarray(x[..., :3]), op))


# Ranges and choices of factors


def test_two_numbers_are_a_range_of_factors_and_a_choice_is_one_of_them():
    x = np.full((2000, 7, 10, 3), 2**-4, np.float32)
    factors = apply(x, T.Brightness((1.5, 3.0)))[:, 0, 0, 0] * 2**4
    assert stats.kstest(factors, stats.uniform(1.5, 1.5).cdf).pvalue > 0.001
    chosen = apply(x, T.Brightness(T.Choice(0.5, 2.0)))[:, 0, 0, 0] * 2**4
    assert set(chosen) == {0.5, 2.0}
    assert stats.binomtest(int(np.sum(chosen == 2)), 2000, 0.5).pvalue > 0.001


# Hue


def turned(image, turn):
    """Turn the hue by the standard library's colours, pixel by pixel."""
    shares = image.astype(np.float64) / white_of(image)
    out = np.empty_like(shares)
    for place in np.ndindex(*image.shape[:2]):
        shade, strength, value = colorsys.rgb_to_hsv(*shares[place])
        out[place] = colorsys.hsv_to_rgb((shade + turn) % 1, strength, value)
    return out * white_of(image)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("amount", [0.5, (-0.1, 0.1), (0.25, 0.25), T.Choice(-0.5, 0.2, 1 / 3)])
def test_turned_colours_are_those_of_the_standard_library(dtype, amount):
    x = images(dtype=dtype, count=30)
    x[0] = np.resize([0, white_of(x)], x[0].shape)
    x[1] = x[1, ..., :1]
    applied = Applied(x, Hue(amount))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        if isinstance(amount, T.Choice):
            turn = amount.values[rng.integers(0, len(amount.values))]
        else:
            turn = rng.uniform(*(amount if isinstance(amount, tuple) else (-amount, amount)))
        expected = turned(image, turn)
        if dtype == np.uint8:
            # Values between two levels are rounded to the nearer one.
            np.testing.assert_allclose(out.astype(float), expected, atol=0.501)
        else:
            np.testing.assert_allclose(out, expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_no_turn_gives_the_image_back_bit_for_bit(dtype):
    x = images(dtype=dtype)
    np.testing.assert_array_equal(apply(x, Hue(0)), x)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_third_of_a_turn_moves_the_channels_and_half_a_turn_is_the_opposite_colour(dtype):
    x = images(dtype=dtype)
    allowed = 0 if dtype == np.uint8 else 1e-6
    third = apply(x, Hue((1 / 3, 1 / 3)))
    np.testing.assert_allclose(third, np.roll(x, 1, axis=3), atol=allowed)
    red = np.zeros_like(x)
    red[..., 0] = white_of(x)
    np.testing.assert_array_equal(apply(red, Hue((0.5, 0.5))), white_of(x) - red)


# ColorJitter


def jitter_order(rng):
    """Return the order of the four changes."""
    order = [0, 1, 2, 3]
    for step in range(3):
        other = int(rng.integers(step, 4))
        order[step], order[other] = order[other], order[step]
    return order


def test_jitter_is_the_single_changes_in_the_drawn_order():
    x = images(count=40)
    applied = Applied(x, ColorJitter(0.4, 0.6, (0.2, 1.8)))
    ranges = [(0.6, 1.4), (0.4, 1.6), (0.2, 1.8), (0, 0)]
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        for step in jitter_order(rng):
            amount = rng.uniform(*ranges[step])
            if step < 3:
                image = (brightened, contrasted, saturated)[step](image, np.float32(amount))
        np.testing.assert_array_equal(out, image)


def test_jitter_turns_colours_between_the_other_changes():
    x = images(count=40)
    applied = Applied(x, ColorJitter(0.4, 0.0, 0.0, 0.5))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        for step in jitter_order(rng):
            amount = rng.uniform(*[(0.6, 1.4), (1, 1), (1, 1), (-0.5, 0.5)][step])
            if step == 0:
                image = brightened(image, np.float32(amount))
            elif step == 3:
                image = np.floor(turned(image, amount) + 0.5).astype(np.uint8)
        # A turn may round to one level more or less, and brightness then scales the difference.
        assert np.max(np.abs(out.astype(int) - image)) <= 2
        assert np.mean(out != image) < 0.01


def test_jitter_of_nothing_gives_the_image_back_bit_for_bit():
    x = images()
    np.testing.assert_array_equal(apply(x, ColorJitter()), x)


def test_every_order_of_a_jitter_is_as_likely_as_the_others():
    applied = Applied(images(count=4800), ColorJitter())
    orders = [tuple(jitter_order(rng)) for rng in applied.draws()]
    counts = [orders.count(order) for order in itertools.permutations(range(4))]
    assert sum(counts) == 4800
    assert stats.chisquare(counts).pvalue > 0.001


# Channels


@pytest.mark.parametrize(("shape", "dtype"), [((7, 10, 3), np.uint8), ((23, 31, 3), np.float32)])
def test_channels_are_shuffled_into_every_order_equally_often(shape, dtype):
    one = images(shape, dtype, count=1)
    x = np.repeat(one, 600, axis=0)
    out = apply(x, ChannelShuffle())
    orders = list(itertools.permutations(range(3)))
    counts = [int(np.sum(np.all(out == one[..., order], axis=(1, 2, 3)))) for order in orders]
    assert sum(counts) == 600
    assert stats.chisquare(counts).pvalue > 0.001
    np.testing.assert_array_equal(apply(x[:9], ChannelShuffle(0)), x[:9])


def test_opacity_is_not_shuffled_and_one_channel_stays_as_it_is():
    x = np.repeat(images((5, 3, 4), count=1), 48, axis=0)
    out = apply(x, ChannelShuffle())
    np.testing.assert_array_equal(out[..., 3], x[..., 3])
    np.testing.assert_array_equal(np.sort(out[..., :3], axis=3), np.sort(x[..., :3], axis=3))
    assert len({tuple(order) for order in np.argsort(out[:, 0, 0, :3], axis=1)}) == 6
    one = images((1, 1, 1))
    np.testing.assert_array_equal(apply(one, ChannelShuffle()), one)


@pytest.mark.parametrize("channels", [1, 2])
def test_dropped_channels_are_as_many_as_asked_and_any_of_them(channels):
    x = np.repeat(images(count=1), 900, axis=0)
    x[x == 9] = 10
    out = apply(x, ChannelDrop(0.5, channels, fill=9))
    dropped = np.all(out == 9, axis=(1, 2))
    np.testing.assert_array_equal(out, np.where(dropped[:, None, None], 9, x))
    hit = dropped.any(axis=1)
    assert set(dropped.sum(axis=1)) == {0, channels}
    assert stats.binomtest(int(hit.sum()), 900, 0.5).pvalue > 0.001
    assert stats.chisquare(dropped.sum(axis=0)).pvalue > 0.001
    np.testing.assert_array_equal(apply(x, ChannelDrop(0, channels)), x)
    assert np.all(
        np.sum(np.all(apply(x, ChannelDrop(1, channels, 9)) == 9, axis=(1, 2)), axis=1) == channels
    )


@pytest.mark.parametrize("channels", [1, 2])
def test_opacity_is_not_dropped(channels):
    x = np.repeat(images((7, 10, 4), count=1), 300, axis=0)
    x[x == 9] = 10
    out = apply(x, ChannelDrop(1, channels, fill=9))
    np.testing.assert_array_equal(out[..., 3], x[..., 3])
    dropped = np.all(out == 9, axis=(1, 2))
    assert set(dropped.sum(axis=1)) == {channels}
    assert stats.chisquare(dropped[:, :3].sum(axis=0)).pvalue > 0.001
    message = "`channels` (=3) must be fewer than the image has, besides opacity;"
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        apply(x, ChannelDrop(channels=3))


@pytest.mark.parametrize(("channels", "given"), [(1, 1), (3, 3), (4, 3)])
def test_an_image_keeps_at_least_one_of_its_channels(channels, given):
    message = f"`channels` (={channels}) must be fewer than the image has; the input is uint8[7, 10, {given}]."
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        lx.pipeline([ChannelDrop(channels=channels)])(np.zeros((2, 7, 10, given), np.uint8))


# Grayscale


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_grey_images_are_those_of_pillow_in_all_channels(dtype):
    x = images(dtype=dtype)
    out = apply(x, T.Grayscale())
    for image, image_out in zip(x, out, strict=True):
        expected = stored(grey_of(image), image[..., 0])
        for channel in range(3):
            np.testing.assert_array_equal(image_out[..., channel], expected)
        if dtype == np.uint8:
            pillows = np.asarray(Image.fromarray(image).convert("L"))
            assert np.max(np.abs(expected.astype(int) - pillows)) <= 1
        else:
            np.testing.assert_allclose(expected, image @ [0.299, 0.587, 0.114], atol=1e-6)


@pytest.mark.parametrize("probability", [0.0, 0.2, 1.0])
def test_images_are_grey_as_often_as_asked(probability):
    x = np.broadcast_to(images(count=1), (2000, 7, 10, 3))
    out = apply(x, T.Grayscale(probability))
    grey = np.all(out == out[..., :1], axis=(1, 2, 3))
    np.testing.assert_array_equal(out[~grey], x[~grey])
    if probability in (0, 1):
        assert np.all(grey == probability)
    else:
        assert stats.binomtest(int(grey.sum()), 2000, probability).pvalue > 0.001


# RandomErasing

SCALE, RATIO = (0.02, 0.33), (0.3, 3.3)


def erased(image, rng, probability, scale, ratio, value):
    """Erase torchvision's rectangle, with the same draws."""
    height, width = image.shape[:2]
    if rng.random() >= probability:
        return image
    for _ in range(10):
        area = height * width * rng.uniform(*scale)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        down, across = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < down < height and 0 < across < width:
            top = rng.integers(0, height - down + 1)
            left = rng.integers(0, width - across + 1)
            out = image.copy()
            out[top : top + down, left : left + across] = value
            return out
    return image


@pytest.mark.parametrize(
    ("probability", "scale", "ratio", "value"),
    [(1.0, SCALE, RATIO, 0), (0.5, (0.5, 1.0), (0.1, 10.0), 255), (1.0, (1.0, 1.0), (1.0, 1.0), 9)],
)
def test_an_erased_rectangle_equals_its_twin(probability, scale, ratio, value):
    x = images(count=40)
    applied = Applied(x, T.RandomErasing(probability, scale=scale, ratio=ratio, value=value))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        expected = erased(image, rng, probability, scale, ratio, value)
        np.testing.assert_array_equal(out, expected)


def test_rectangles_have_the_published_areas_ratios_and_positions():
    x = np.ones((3000, 60, 80, 1), np.float32)
    out = apply(x, T.RandomErasing(1.0, value=-5.5))
    assert set(np.unique(out)) == {-5.5, 1.0}
    inside = out[..., 0] == -5.5
    rows, columns = inside.any(axis=2), inside.any(axis=1)
    tall, wide = rows.sum(axis=1), columns.sum(axis=1)
    # A rectangle, and one for every image.
    np.testing.assert_array_equal(inside.sum(axis=(1, 2)), tall * wide)
    assert tall.min() > 0
    # The sides are rounded to whole pixels.
    slack = 1 / tall + 1 / wide
    assert np.all(tall * wide / 4800 >= SCALE[0] * (1 - slack))
    assert np.all(tall * wide / 4800 <= SCALE[1] * (1 + slack))
    assert np.all(tall / wide >= RATIO[0] * (1 - slack))
    assert np.all(tall / wide <= RATIO[1] * (1 + slack))
    top, left = rows.argmax(axis=1), columns.argmax(axis=1)
    for start, free in ((top, 60 - tall), (left, 80 - wide)):
        # Spread over the places there are, each as wide as one of them.
        place = (start + np.random.default_rng(0).random(len(start))) / (free + 1)
        assert stats.kstest(place, "uniform").pvalue > 0.001


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_images_are_erased_as_often_as_asked(probability):
    x = np.ones((3000, 60, 80, 1), np.float32)
    out = apply(x, T.RandomErasing(probability))
    hit = int(np.any(out == 0, axis=(1, 2, 3)).sum())
    if probability in (0, 1):
        assert hit == 3000 * probability
    else:
        assert stats.binomtest(hit, 3000, probability).pvalue > 0.001


def test_an_image_too_small_for_a_rectangle_stays_as_it_is():
    x = images((1, 1, 3))
    np.testing.assert_array_equal(apply(x, T.RandomErasing(1.0)), x)


def test_a_value_beyond_the_dtype_is_its_nearest():
    x = images()
    for value, nearest in ((1000, 255), (-3, 0), (9.5, 10)):
        applied = Applied(x, T.RandomErasing(1.0, value=value))
        for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
            np.testing.assert_array_equal(out, erased(image, rng, 1.0, SCALE, RATIO, nearest))


# Chains


def test_a_chain_of_colours_is_one_after_the_other():
    x = images()
    applied = Applied(x, T.Brightness(0.4), T.Contrast(0.4), T.Saturation(0.4), T.Grayscale(0.5))
    streams = [applied.draws(step) for step in range(4)]
    for image, out, *rngs in zip(x, applied.out, *streams, strict=True):
        for twin, rng in zip((brightened, contrasted, saturated), rngs, strict=False):
            image = twin(image, factor_of(rng, 0.4, image))
        if rngs[3].random() < 0.5:
            image = np.repeat(stored(grey_of(image), image[..., 0])[..., None], 3, axis=2)
        np.testing.assert_array_equal(out, image)


def test_ops_of_one_kind_in_a_row_draw_for_themselves():
    x = np.full((500, 7, 10, 3), 2**-4, np.float32)
    applied = Applied(x, T.Brightness(0.5), T.Brightness(0.5))
    assert [rng.random() for rng in applied.draws(0)] != [rng.random() for rng in applied.draws(1)]
    first, second = ([factor_of(rng, 0.5, x) for rng in applied.draws(step)] for step in (0, 1))
    np.testing.assert_allclose(
        applied.out[:, 0, 0, 0] * 2**4, np.multiply(first, second), rtol=1e-6
    )


# Refusals

REFUSED = [
    *[
        (lambda op=op, value=value: op(value), f"`amount` (={value!r}) must be a number of at least 0, a range of two")
        for op in (T.Brightness, T.Contrast, T.Saturation)
        for value in (-0.1, math.nan, math.inf, "much", None)
    ],
    (lambda: T.Brightness((0.5, 0.2)), "`amount` (=(0.5, 0.2)) must be a number of at least 0, a range of two with"),
    (lambda: T.Contrast(T.Choice(1, -1)), "`amount` (=Choice(1, -1)) must be a number of at least 0, a range of two"),
    (lambda: Hue(0.6), "`amount` (=0.6) must be a number from 0 to 0.5, a range of two with -0.5 <= low <= high"),
    (lambda: Hue(-0.1), "`amount` (=-0.1) must be a number from 0 to 0.5, a range"),
    (lambda: ColorJitter(brightness=-1), "`brightness` (=-1) must be a number of at least 0, a range"),
    (lambda: ColorJitter(contrast=-1), "`contrast` (=-1) must be a number of at least 0, a range"),
    (lambda: ColorJitter(saturation=-1), "`saturation` (=-1) must be a number of at least 0, a range"),
    (lambda: ColorJitter(hue=1), "`hue` (=1) must be a number from 0 to 0.5, a range"),
    (lambda: ChannelShuffle(2), "`probability` (=2) must be from 0 to 1."),
    (lambda: ChannelDrop(-1), "`probability` (=-1) must be from 0 to 1."),
    (lambda: ChannelDrop(channels=0), "`channels` (=0) must be an integer of at least 1."),
    (lambda: ChannelDrop(channels=1.5), "`channels` (=1.5) must be an integer of at least 1."),
    (lambda: ChannelDrop(fill=math.inf), "`fill` (=inf) must be a finite number."),
    (lambda: T.Grayscale(2), "`probability` (=2) must be from 0 to 1."),
    (lambda: T.Grayscale(math.nan), "`probability` (=nan) must be from 0 to 1."),
    (lambda: T.RandomErasing(2), "`probability` (=2) must be from 0 to 1."),
    (lambda: T.RandomErasing(math.nan), "`probability` (=nan) must be from 0 to 1."),
    (lambda: T.RandomErasing(scale=(0, 0.3)), "`scale` (=(0, 0.3)) must be two finite numbers with 0 < low <= high <="),
    (lambda: T.RandomErasing(scale=(0.5, 0.1)), "`scale` (=(0.5, 0.1)) must be"),
    (lambda: T.RandomErasing(scale=(0.5, 2)), "`scale` (=(0.5, 2)) must be"),
    (lambda: T.RandomErasing(scale=(math.nan, 1)), "`scale` (=(nan, 1)) must be"),
    (lambda: T.RandomErasing(scale=0.1), "`scale` (=0.1) must be"),
    (lambda: T.RandomErasing(ratio=(0, 3)), "`ratio` (=(0, 3)) must be two finite numbers with 0 < low <= high."),
    (lambda: T.RandomErasing(ratio=(1, math.nan)), "`ratio` (=(1, nan)) must be"),
    (lambda: T.RandomErasing(ratio=(1, math.inf)), "`ratio` (=(1, inf)) must be"),
    (lambda: T.RandomErasing(value=math.nan), "`value` (=nan) must be a finite number, one for each"),
    (lambda: T.RandomErasing(value="red"), "`value` (='red') must be a finite number, one for"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_that_cannot_work_are_refused_at_once(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()


COLOUR = [T.Saturation(0.1), Hue(0.1), ColorJitter(0.1), T.Grayscale()]
EVERY_OP = [
    *(T.Brightness(0.1), T.Contrast(0.1), ChannelShuffle(), ChannelDrop(), T.RandomErasing()),
    *COLOUR,
]


@pytest.mark.parametrize("op", EVERY_OP, ids=repr)
@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((7,), "uint8", "accepts images of shape (height, width, channels) or (height, width), not uint8[7]."),
        ((7, 0, 3), "uint8", "not uint8[7, 0, 3]."),
        ((7, 10, 3), "float16", "accepts integers, float32 or float64, not float16[7, 10, 3]."),
        ((7, 10, 3), "complex64", "accepts integers, float32 or float64, not complex64[7, 10, 3]."),
    ],
)  # fmt: skip
def test_every_op_refuses_samples_that_are_not_images(op, shape, dtype, message):
    with pytest.raises(lx.ArgumentError, match=f"{op.name}.*{re.escape(message)}"):
        lx.pipeline([op])(np.zeros((2, *shape), dtype), batch=True)


@pytest.mark.parametrize("op", COLOUR, ids=repr)
@pytest.mark.parametrize("channels", [2])
def test_colours_are_three_channels_and_opacity_may_be_a_fourth(op, channels):
    message = f"{op.name} accepts images of 1, 3 or 4 channels, not uint8[7, 10, {channels}]."
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        lx.pipeline([op])(np.zeros((2, 7, 10, channels), np.uint8))


EVERY_CASE = [(OPS[name][0](0.7), shape, dtype) for name, shape, dtype in CASES] + [
    (ColorJitter(0.7, 0.7, 0.7, 0.5), (7, 10, 3), np.uint8),
    (ChannelShuffle(), (7, 10, 3), np.uint8),
    (ChannelDrop(0.7, 2), (7, 10, 3), np.uint8),
    (T.Grayscale(0.5), (7, 10, 3), np.uint8),
    (T.Grayscale(0.5), (7, 10, 3), np.float32),
    (T.RandomErasing(0.7, value=7.5), (7, 10, 3), np.uint8),
]


@pytest.mark.parametrize(("op", "shape", "dtype"), EVERY_CASE, ids=repr)
def test_debug_mode_gives_the_same_images(op, shape, dtype, monkeypatch):
    x = images(shape, dtype)
    compiled = apply(x, op)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(x, op), compiled)
