"""Fog, rain and shadow are what OpenCV draws from the same draws: discs, streaks and polygons."""

import math
import re

import cv2
import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.loaderx.transforms.images import Applied, apply, images

OPS = [T.Fog(), T.Rain(), T.Shadow()]


def scaled(x):
    """Scale values from black to white to 0 to 255."""
    return x.astype(np.float64) * (255 if x.dtype == np.float32 else 1)


def fogged(image, draws, strength, alpha):
    """Draw white discs one after the other, as Albumentations does, then OpenCV's blur."""
    height, width = image.shape[:2]
    y, x = np.mgrid[:height, :width]
    region = max(1, int(width // 3 * strength))
    largest = max(2, int(min(height, width) * 0.1 * strength))
    tall, wide, discs = height, width, 0
    for _ in range(10):
        if wide <= region or tall <= region:
            break
        for _ in range(int(tall * wide / region**2 * strength * 10)):
            column = width // 2 - wide // 2 + draws.integers(0, 2 * (wide // 2) + 1)
            row = height // 2 - tall // 2 + draws.integers(0, 2 * (tall // 2) + 1)
            radius = draws.integers(max(1, largest // 2), largest)
            inside = (x - column) ** 2 + (y - row) ** 2 <= radius**2
            image[inside] += alpha * strength * (255 - image[inside])
            discs += 1
        tall, wide = int(tall * 0.9), int(wide * 0.9)
    size = max(3, min(height, width) // 30) // 2 * 2 + 1
    assert discs > 50
    # The rule of OpenCV's documentation; for small sizes it uses another kernel if no deviation is given.
    return cv2.GaussianBlur(image, (size, size), 0.3 * ((size - 1) * 0.5 - 1) + 0.8)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_fog_is_discs_and_a_blur(dtype):
    x = images((60, 83, 3), dtype, count=3)
    applied = Applied(x, T.Fog(0.7, 0.1))
    for image, out, draws in zip(x, applied.out, applied.draws(), strict=True):
        np.testing.assert_allclose(scaled(out), fogged(scaled(image), draws, 0.7, 0.1), atol=1.6)


def rained(image, draws, drops, slant, length, size, brightness):
    """Draw a layer of streaks, apply OpenCV's mean, add it, and darken."""
    height, width = image.shape[:2]
    across, down = draws.uniform(*slant), max(1, int(length * height))
    layer = np.zeros((height, width))
    for _ in range(int(drops * height)):
        column, row = draws.integers(0, width), draws.integers(0, height - down + 1)
        places = [column + math.floor(across * step / down + 0.5) for step in range(down + 1)]
        for step, (before, after) in enumerate(zip([column, *places], places, strict=False)):
            first, last = sorted((before, after))
            layer[row + step : row + step + 1, max(first, 0) : max(last + 1, 0)] = 1
    light = cv2.blur(layer, (size, size), borderType=cv2.BORDER_REFLECT_101) * 200
    return np.clip(image + light[..., None], 0, 255) * brightness


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_rain_is_streaks_of_light(dtype):
    x = images((40, 53, 3), dtype, count=4)
    applied = Applied(x, T.Rain(0.5, (-9, 9), 0.25, blur=5, brightness=0.8))
    for image, out, draws in zip(x, applied.out, applied.draws(), strict=True):
        expected = rained(scaled(image), draws, 0.5, (-9, 9), 0.25, 5, 0.8)
        np.testing.assert_allclose(scaled(out), expected, atol=0.51)


def test_streaks_go_to_the_side_that_slant_says():
    x = np.zeros((1, 40, 40, 1), np.uint8)
    for slant in (-15, 15):
        out = apply(x, T.Rain(0.03, slant, 0.5, blur=1, brightness=1.0))[0, ..., 0]
        rows, columns = np.nonzero(out)
        assert np.unique(out).tolist() == [0, 200]
        assert np.corrcoef(rows, columns)[0, 1] * slant > 14


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_shadows_are_polygons_of_opencv(dtype):
    x = np.full((6, 64, 80, 3), 200 if dtype == np.uint8 else 0.8, dtype)
    applied = Applied(x, T.Shadow(0.4, (1, 3), 6, region=(0.1, 0.2, 0.9, 1)))
    for out, draws in zip(applied.out, applied.draws(), strict=True):
        factor = np.ones((64, 80))
        for _ in range(draws.integers(1, 4)):
            corners = [(draws.uniform(0.1, 0.9) * 80, draws.uniform(0.2, 1) * 64) for _ in range(6)]
            # With pixels of a sixteenth: fillPoly also paints what a side only touches.
            fine = np.zeros((64 * 16, 80 * 16), np.uint8)
            cv2.fillPoly(fine, [np.round(np.array(corners) * 16).astype(np.int32)], 1)
            factor *= np.where(fine[8::16, 8::16] == 1, 0.6, 1)
        shown = scaled(out)[..., 0]
        assert np.mean(np.abs(shown - factor * scaled(x)[0, 0, 0, 0]) < 1) > 0.99
        assert np.mean(factor < 1) > 0.02


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_sample_has_weather_of_its_own_and_always_the_same(op):
    x = np.repeat(images((32, 40, 3), count=1), 4, 0)
    out = apply(x, op)
    assert len({sample.tobytes() for sample in out}) == 4
    np.testing.assert_array_equal(apply(x, op), out)
    pipeline = lx.pipeline([op])
    np.testing.assert_array_equal(pipeline(x, threads=2), pipeline(x, threads=1))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_grey_images_and_any_size_are_accepted(op, monkeypatch):
    for shape in ((1, 1, 3), (1, 9, 3), (11, 1, 3)):
        out = apply(images(shape), op)
        assert out.shape[1:] == shape
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    grey = images((9, 14))
    np.testing.assert_array_equal(apply(grey, op), apply(grey[..., None], op)[..., 0])


def test_opacity_is_not_a_colour():
    x = images((24, 30, 4))
    for op in (T.Rain(1), T.Shadow(0.9, 3, region=(0, 0, 1, 1))):
        out = apply(x, op)
        np.testing.assert_array_equal(out[..., 3], x[..., 3])
        assert (out[..., :3] != x[..., :3]).any()
    # Fog blurs all channels, and makes none but colours lighter.
    x[..., 3] = 77
    assert (apply(x, T.Fog())[..., 3] == 77).all()


def test_no_weather_leaves_images_as_they_are():
    x = images((20, 24, 3))
    for op in (T.Fog(0), T.Rain(0, brightness=1), T.Shadow(0)):
        np.testing.assert_array_equal(apply(x, op), x)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_plain_python_gives_the_same(op, monkeypatch):
    x = images((16, 21, 3), count=2)
    compiled = apply(x, op)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_allclose(apply(x, op).astype(int), compiled, atol=1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.Fog(1.5), "`intensity` (=1.5) must be a number from 0 to 1"),
        (lambda: T.Fog(alpha=-1), "`alpha` (=-1) must be a number from 0 to 1"),
        (lambda: T.Rain(-1), "`drops` (=-1) must be a number from 0 to 1000"),
        (lambda: T.Rain(length=2), "`length` (=2) must be a number from 0 to 1"),
        (lambda: T.Rain(blur=4), "`blur` (=4) must be an odd integer of at least 1."),
        (lambda: T.Rain(color=2), "`color` (=2) must be from 0 to 1."),
        (lambda: T.Shadow(2), "`intensity` (=2) must be a number from 0 to 1"),
        (lambda: T.Shadow(shadows=0), "`shadows` (=0) must be an integer of at least 1"),
        (lambda: T.Shadow(vertices=2), "`vertices` (=2) must be an integer of at least 3."),
        (
            lambda: T.Shadow(region=(0, 1, 1, 0)),
            "`region` (=(0, 1, 1, 0)) must be (left, top, right, bottom)",
        ),
        (lambda: T.Shadow(region=3), "`region` (=3) must be (left, top, right, bottom)"),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()
