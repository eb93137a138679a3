"""Zooming out of an image equals its twin, and Pillow where there is no canvas."""

import numpy as np
import pytest
from PIL import Image

from loaderx.kernels.zooming import most_taps, zoom_bilinear, zoom_nearest
from tests import reference

# (top, height, flipped, left, width, flipped), and the shape of the output.
WINDOWS = [
    ((0, 9, 0, 0, 12, 0), (9, 12)),
    ((0, 9, 0, 0, 12, 0), (4, 5)),
    ((-3, 20, 0, -7, 24, 0), (20, 24)),
    ((-3, 20, 0, -7, 24, 0), (7, 31)),
    ((-30, 40, 0, -1, 50, 0), (6, 1)),
]


def image(dtype, channels=3):
    values = np.random.default_rng(0).integers(0, 256, (9, 12, channels))
    return values.astype(dtype)


def zoomed(x, window, shape, antialias=True):
    height, width = shape
    out = np.empty((*shape, x.shape[2]), x.dtype)
    taps = most_taps(window[1], height), most_taps(window[4], width)
    precision = np.float64 if x.dtype == np.float64 else np.float32
    spaces = [np.empty(room, precision) for room in (taps[0], taps[1] * width)]
    spaces += [np.empty(width, np.int32) for _ in range(2)]
    spaces.append(np.empty(x[0].size, precision))
    fill = tuple(x.dtype.type(number) for number in (1, 2, 3, 4)[: x.shape[2]])
    zoom_bilinear(x, window, antialias, x.dtype.kind in "iu", fill, *spaces, out)
    return out


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize(("window", "shape"), WINDOWS)
def test_pixels_are_mixed_as_the_twin_does(dtype, window, shape):
    x = image(dtype)
    for antialias in (True, False):
        ours, twin = zoomed(x, window, shape, antialias), np.empty((*shape, 3), np.float64)
        reference.zoom_bilinear(x, window, antialias, False, [1, 2, 3], *[None] * 5, twin)
        # A value next to a half may be rounded either way.
        np.testing.assert_allclose(ours, twin, atol=0.501 if dtype == np.uint8 else 1e-3)
        if dtype == np.uint8:
            reference.zoom_bilinear(x, window, antialias, True, [1, 2, 3], *[None] * 5, twin)
            assert np.mean(ours == twin) > 0.99


def test_without_a_canvas_it_is_pillows_bilinear_filter():
    x = image(np.uint8)
    for shape in ((4, 5), (20, 30), (9, 12), (3, 24)):
        pillow = Image.fromarray(x).resize(shape[::-1], Image.Resampling.BILINEAR)
        ours = zoomed(x, (0, 9, 0, 0, 12, 0), shape)
        assert np.abs(ours.astype(int) - np.asarray(pillow)).max() <= 1


@pytest.mark.parametrize(("window", "shape"), WINDOWS)
def test_the_nearest_pixel_is_the_one_below_the_centre(window, shape):
    x = image(np.int32, 1)
    out, twin = np.empty((2, *shape, 1), np.int32)
    zoom_nearest(x, window, (np.int32(-5),), np.empty(shape[1], np.int32), out)
    reference.zoom_nearest(x, window, (np.int32(-5),), None, twin)
    np.testing.assert_array_equal(out, twin)


def test_infinity_stays_where_it_has_a_share():
    x = np.full((9, 12, 1), 2.0, np.float32)
    x[4, 4] = np.inf
    out = zoomed(x, (-2, 18, 0, -3, 24, 0), (9, 12))
    assert not np.isnan(out).any()
    assert 0 < np.isinf(out).sum() < 20
