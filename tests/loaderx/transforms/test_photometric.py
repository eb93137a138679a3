"""Photometric changes follow the formulas of those who published them, and leave opacity as it is."""

import math
import re

import numpy as np
import pytest
from scipy import stats

import loaderx as lx
from loaderx.transforms.photometric import (
    COMPONENTS,
    DEVIATIONS,
    FancyPCA,
    PhotometricDistort,
    RandomBrightnessContrast,
    RGBShift,
    Sepia,
)
from tests.loaderx.transforms.images import Applied, apply, halved, images
from tests.loaderx.transforms.test_colour import brightened, contrasted, saturated, turned

ANY_CHANNELS = [RandomBrightnessContrast(), RGBShift(), PhotometricDistort(probability=1.0)]
COLOURS = [FancyPCA(0.5), Sepia()]


def white_of(x):
    return 255.0 if x.dtype == np.uint8 else 1.0


def check(out, expected, like):
    """Compare to a formula in float64."""
    if like.dtype == np.uint8:
        np.testing.assert_allclose(out, np.clip(expected, 0, 255), atol=0.501)
    else:
        np.testing.assert_allclose(out, np.clip(expected, 0, 1), atol=1e-6)


@pytest.mark.parametrize(("channels", "dtype"), halved([1, 3, 4]))
def test_brightness_and_contrast_are_a_shift_and_a_factor(dtype, channels):
    x = images((7, 10, channels), dtype)
    applied = Applied(x, RandomBrightnessContrast(0.3, (0.5, 2.0)))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        factor, shift = rng.uniform(0.5, 2.0), rng.uniform(-0.3, 0.3) * white_of(x)
        check(out[..., :3], image[..., :3] * factor + shift, x)
        np.testing.assert_array_equal(out[..., 3:], image[..., 3:])


@pytest.mark.parametrize(("channels", "dtype"), halved([1, 3, 4]))
def test_channels_are_shifted_one_by_one(dtype, channels):
    x = images((7, 10, channels), dtype)
    applied = Applied(x, RGBShift(0.2))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        shifts = np.array([rng.uniform(-0.2, 0.2) for _ in range(3)]) * white_of(x)
        check(out[..., :3], image[..., :3] + shifts[: min(channels, 3)], x)
        np.testing.assert_array_equal(out[..., 3:], image[..., 3:])


def test_shifts_are_uniform_and_independent():
    x = np.full((2000, 1, 1, 3), 0.5, np.float32)
    shifts = apply(x, RGBShift(0.2))[:, 0, 0].astype(np.float64) - 0.5
    assert stats.kstest(shifts.reshape(-1), stats.uniform(-0.2, 0.4).cdf).pvalue > 0.001
    correlations = np.corrcoef(shifts.T)[np.triu_indices(3, 1)]
    assert np.max(np.abs(correlations)) < 4 / math.sqrt(2000)


@pytest.mark.parametrize(("channels", "dtype"), halved([3, 4]))
def test_colours_move_along_their_principal_components(dtype, channels):
    x = images((7, 10, channels), dtype)
    applied = Applied(x, FancyPCA((0.5, 1.5)))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        alpha = rng.uniform(0.5, 1.5)
        normals = [rng.standard_normal() for _ in range(3)]
        shift = COMPONENTS @ (alpha * DEVIATIONS * normals) * white_of(x)
        check(out[..., :3], image[..., :3] + shift, x)
        np.testing.assert_array_equal(out[..., 3:], image[..., 3:])


def test_shifts_along_components_are_normal_with_their_deviations():
    np.testing.assert_allclose(COMPONENTS.T @ COMPONENTS, np.eye(3), atol=1e-3)
    x = np.full((3000, 1, 1, 3), 0.5, np.float32)
    shifts = apply(x, FancyPCA(0.1))[:, 0, 0].astype(np.float64) - 0.5
    along = np.linalg.solve(COMPONENTS, shifts.T).T / (0.1 * DEVIATIONS)
    for component in along.T[:2]:
        assert stats.kstest(component, "norm").pvalue > 0.001


@pytest.mark.parametrize(("channels", "dtype"), halved([3, 4]))
def test_sepia_is_the_published_matrix(dtype, channels):
    x = images((23, 31, channels), dtype)
    matrix = np.array([[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]])
    out = apply(x, Sepia())
    check(out[..., :3], x[..., :3] @ matrix.T, x)
    np.testing.assert_array_equal(out[..., 3:], x[..., 3:])
    changed = np.any(apply(np.repeat(x[:1], 300, axis=0), Sepia(0.3)) != x[0], axis=(1, 2, 3))
    assert stats.binomtest(int(changed.sum()), 300, 0.3).pvalue > 0.001


def distorted(image, rng, probability):
    """Apply torchvision's RandomPhotometricDistort, with the same draws."""

    def hue(image, turn):
        return np.floor(turned(image, turn) + 0.5).astype(np.uint8)

    if rng.random() < probability:
        image = brightened(image, np.float32(rng.uniform(0.875, 1.125)))
    before = rng.random() < 0.5
    if before and rng.random() < probability:
        image = contrasted(image, np.float32(rng.uniform(0.5, 1.5)))
    if rng.random() < probability:
        image = saturated(image, np.float32(rng.uniform(0.5, 1.5)))
    if rng.random() < probability:
        image = hue(image, rng.uniform(-0.05, 0.05))
    if not before and rng.random() < probability:
        image = contrasted(image, np.float32(rng.uniform(0.5, 1.5)))
    if rng.random() < probability:
        order = [0, 1, 2]
        for c in range(2):
            other = rng.integers(c, 3)
            order[c], order[other] = order[other], order[c]
        image = image[..., order]
    return image


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_a_distorted_image_is_that_of_ssd(probability):
    x = images((9, 21, 3), count=30)
    applied = Applied(x, PhotometricDistort(probability=probability))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        expected = distorted(image, rng, probability)
        # A level more or less after the hue becomes two by contrast.
        assert np.max(np.abs(out.astype(int) - expected)) <= 2
        assert np.mean(out != expected) < 0.01


@pytest.mark.parametrize(("op", "dtype"), halved([*ANY_CHANNELS, *COLOURS]))
def test_opacity_stays_as_it_is_and_colours_are_those_without_it(op, dtype):
    x = images((9, 21, 4), dtype)
    out = apply(x, op)
    np.testing.assert_array_equal(out[..., 3], x[..., 3])
    np.testing.assert_array_equal(out[..., :3], apply(np.ascontiguousarray(x[..., :3]), op))


@pytest.mark.parametrize("op", ANY_CHANNELS, ids=repr)
def test_grey_images_have_no_axis_of_channels_or_one(op):
    x = images((9, 21, 1))
    out = lx.pipeline([op])(x[..., 0], batch=True)
    np.testing.assert_array_equal(out, apply(x, op)[..., 0])
    assert np.any(out != x[..., 0])


@pytest.mark.parametrize("op", COLOURS, ids=repr)
def test_ops_on_colours_refuse_grey_images(op):
    message = f"{op.name} accepts images of 3 or 4 channels, not uint8[7, 10, 1]."
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        lx.pipeline([op])(images((7, 10, 1)))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("op", [*ANY_CHANNELS, *COLOURS], ids=repr)
def test_debug_mode_gives_the_same_images_and_another_seed_others(op, dtype, monkeypatch):
    x = images((9, 21, 3), dtype)
    compiled = apply(x, op)
    assert op.name == "Sepia" or np.any(apply(x, op, seed=1) != compiled)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(x, op), compiled)


REFUSED = [
    (lambda: RandomBrightnessContrast(2), "`brightness` (=2) must be a number from 0 to 1"),
    (lambda: RandomBrightnessContrast(0.1, -1), "`contrast` (=-1) must be a number of at least 0"),
    (lambda: RGBShift(20), "`shift` (=20) must be a number from 0 to 1"),
    (lambda: FancyPCA(-1), "`alpha` (=-1) must be a number of at least 0"),
    (lambda: Sepia(2), "`probability` (=2) must be from 0 to 1."),
    (lambda: PhotometricDistort(hue=1), "`hue` (=1) must be a number from 0 to 0.5"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_that_cannot_work_are_refused_at_once(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()
