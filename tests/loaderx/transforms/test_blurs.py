"""Blurs are those of OpenCV: the mean of a line or a disc of pixels, and the median of a square."""

import math
import re

import cv2
import numpy as np
import pytest
from scipy import stats

import loaderx as lx
from loaderx.transforms.blurs import Defocus, MedianBlur, MotionBlur
from tests.loaderx.transforms.images import Applied, apply, images

SHAPES = [(20, 31, 3), (9, 40, 1), (12, 13, 4), (5, 4, 2)]


@pytest.fixture
def interpreted(monkeypatch):
    """Run ops in plain Python, their kernels compiled: no other sizes and parameters to compile for."""
    monkeypatch.setenv("LOADERX_DEBUG", "1")


def line_kernel(size, angle):
    """Return the pixels of a line, one for each step along its longer side."""
    radius, turn = size // 2, math.radians(angle)
    across, down = math.cos(turn), -math.sin(turn)
    longer = max(abs(across), abs(down))
    kernel = np.zeros((size, size))
    for step in range(-radius, radius + 1):
        row = math.floor(step * (down / longer) + 0.5)
        column = math.floor(step * (across / longer) + 0.5)
        kernel[radius + row, radius + column] += 1
    assert kernel.sum() == size
    assert kernel.max() == 1
    return kernel / size


def disc_kernel(radius):
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    disc = (x**2 + y**2 <= radius**2).astype(np.float64)
    return disc / disc.sum()


def filtered(image, kernel):
    """Return the mean of pixels by OpenCV, in float64."""
    # OpenCV mirrors once only; a smaller image than that is mirrored here.
    radius = kernel.shape[0] // 2
    around = [(radius, radius), (radius, radius), (0, 0)]
    padded = np.pad(image.astype(np.float64), around, mode="reflect")
    out = cv2.filter2D(padded, cv2.CV_64F, kernel, borderType=cv2.BORDER_CONSTANT)
    return out.reshape(padded.shape)[radius : -radius or None, radius : -radius or None]


def check(out, expected):
    if out.dtype == np.uint8:
        np.testing.assert_allclose(out, expected, atol=0.501)
    else:
        np.testing.assert_allclose(out, expected, atol=1e-6)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("size", "angle"), [(3, 0), (5, 90), (7, 45), (9, 20), (9, 110), (7, -37)])
def test_motion_is_the_mean_of_a_line(shape, dtype, size, angle):
    x = images(shape, dtype, count=2)
    for image, out in zip(x, apply(x, MotionBlur(size, angle)), strict=True):
        check(out, filtered(image, line_kernel(size, angle)))


@pytest.mark.usefixtures("interpreted")
def test_size_and_angle_of_a_motion_are_drawn_for_every_sample():
    x = images((20, 31, 3), count=60)
    applied = Applied(x, MotionBlur((3, 7), (10, 80)))
    sizes = []
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        size = (3, 5, 7)[rng.integers(0, 3)]
        sizes.append(size)
        check(out, filtered(image, line_kernel(size, rng.uniform(10, 80))))
    assert stats.chisquare([sizes.count(size) for size in (3, 5, 7)]).pvalue > 0.001


def test_every_direction_of_a_motion_is_as_likely_as_the_others():
    x = np.zeros((1600, 15, 15, 1), np.float32)
    x[:, 7, 7] = 1
    out = apply(x, MotionBlur(15))[..., 0] > 0
    horizontal = out[:, 7, 6] & out[:, 7, 8]
    vertical = out[:, 6, 7] & out[:, 8, 7]
    # The pixel next to the middle is in its row if the line rises by less than one half.
    share = math.degrees(math.atan(0.5)) / 90
    for hits in (horizontal, vertical):
        assert stats.binomtest(int(hits.sum()), 1600, share).pvalue > 0.001


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("radius", [1, 2, 3])
def test_defocus_is_the_mean_of_a_disc(shape, dtype, radius):
    x = images(shape, dtype, count=2)
    for image, out in zip(x, apply(x, Defocus(radius)), strict=True):
        check(out, filtered(image, disc_kernel(radius)))


@pytest.mark.usefixtures("interpreted")
def test_the_radius_of_a_disc_is_drawn_for_every_sample():
    x = images((40, 50, 3), count=60)
    applied = Applied(x, Defocus((3, 10)))
    radii = [3 + int(rng.integers(0, 8)) for rng in applied.draws()]
    assert stats.chisquare(np.bincount(radii)[3:]).pvalue > 0.001
    for image, out, radius in zip(x, applied.out, radii, strict=True):
        check(out, filtered(image, disc_kernel(radius)))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.uint16])
@pytest.mark.parametrize("shape", [*SHAPES, (40, 300, 3), (1, 1, 1), (2, 1, 3)])
@pytest.mark.parametrize("size", [3, 5])
def test_a_median_is_that_of_opencv(shape, dtype, size):
    x = images(shape, dtype, count=2)
    for image, out in zip(x, apply(x, MedianBlur(size)), strict=True):
        np.testing.assert_array_equal(out, cv2.medianBlur(image, size).reshape(shape))


@pytest.mark.usefixtures("interpreted")
def test_the_size_of_a_median_is_drawn_for_every_sample():
    x = images((9, 11, 3), count=60)
    applied = Applied(x, MedianBlur((3, 5)))
    sizes = [(3, 5, 3, 5)[rng.integers(0, 4)] for rng in applied.draws()]
    assert stats.binomtest(sizes.count(3), 60, 0.5).pvalue > 0.001
    for image, out, size in zip(x, applied.out, sizes, strict=True):
        np.testing.assert_array_equal(out, cv2.medianBlur(image, size))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_debug_mode_gives_the_same_images_and_grey_ones_need_no_axis(dtype, monkeypatch):
    ops = MotionBlur(), Defocus((1, 3)), MedianBlur((3, 5))
    x = images((20, 31, 3), dtype)
    compiled = apply(x, *ops)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(x, *ops), compiled)
    grey = lx.pipeline(list(ops))(x[..., 0], batch=True)
    np.testing.assert_array_equal(grey[..., None], apply(x[..., :1].copy(), *ops))


@pytest.mark.usefixtures("interpreted")
def test_one_pixel_and_no_radius_are_the_image_itself():
    x = images((7, 10, 3))
    np.testing.assert_array_equal(apply(x, MotionBlur(1), Defocus(0)), x)


ODD = "must be an odd integer of at least"
REFUSED = [
    (lambda: MotionBlur(4), f"`size` (=4) {ODD} 1, or a range of two of them."),
    (lambda: MotionBlur((3, 8)), f"`size` (=(3, 8)) {ODD} 1"),
    (lambda: MotionBlur(3, math.nan), "`angle` (=nan) must be a number that is finite"),
    (lambda: MedianBlur(1), f"`size` (=1) {ODD} 3"),
    (lambda: MedianBlur(7), "`size` (=7) must be 3, 5, or (3, 5)."),
    (lambda: Defocus(-1), "`radius` (=-1) must be an integer of at least 0, or a range of two of them."),
    (lambda: Defocus(2.5), "`radius` (=2.5) must be an integer"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_that_cannot_work_are_refused_at_once(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()
