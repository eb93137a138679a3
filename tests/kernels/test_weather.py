"""Fog, rain and shadow change pixels as their twins do: discs as edges of runs, streaks as a layer, polygons."""

import numpy as np
import pytest

from loaderx.kernels.weather import add_disc, add_streak, draw_fog, draw_rain, draw_shadow
from tests import reference

KINDS = pytest.mark.parametrize(
    ("dtype", "channels"), [(np.uint8, 3), (np.uint8, 4), (np.float32, 1), (np.float32, 4)]
)
HEIGHT, WIDTH = 13, 17


def image(dtype, channels):
    x = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, channels))
    return x.astype(dtype) if dtype == np.uint8 else (x / 255).astype(dtype)


def assert_alike(ours, twin, before):
    # A value next to a half may be rounded either way.
    tolerance = 1 if ours.dtype == np.uint8 else 1e-5
    np.testing.assert_allclose(ours.astype(float), twin.astype(float), atol=tolerance)
    assert np.mean(ours == twin) > 0.98 or ours.dtype != np.uint8
    assert not np.array_equal(ours, before)
    if ours.shape[2] == 4:
        np.testing.assert_array_equal(ours[..., 3], before[..., 3])


@KINDS
def test_pixels_under_discs_are_veiled_once_for_each(dtype, channels):
    before = image(dtype, channels)
    white = 255.0 if dtype == np.uint8 else 1.0
    edges = np.zeros((HEIGHT, WIDTH + 1), np.int32)
    discs = [(4, 5, 3), (6, 7, 4), (0, 16, 2), (12, -1, 5), (5, 6, 3)]
    for disc in discs:
        add_disc(*disc, edges)
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    covers = sum((rows - i) ** 2 + (columns - j) ** 2 <= r * r for i, j, r in discs)
    np.testing.assert_array_equal(np.cumsum(edges, axis=1)[:, :-1], covers)
    ours, twin = before.copy(), before.copy()
    line = np.empty(WIDTH * channels, np.float32)
    draw_fog(ours, edges, np.float32(0.3), white, np.empty(3, np.float32), line)
    reference.draw_fog(twin, edges, 0.3, white, np.empty(3), None)
    assert_alike(ours, twin, before)


@KINDS
@pytest.mark.parametrize("size", [1, 3, 7])
def test_streaks_add_the_mean_of_their_layer(dtype, channels, size):
    before = image(dtype, channels)
    white = 255.0 if dtype == np.uint8 else 1.0
    layer = np.zeros((HEIGHT, WIDTH), np.uint8)
    for begin in ((0, 3, 6, 2), (2, 16, 10, -4), (8, 0, 5, 0)):
        add_streak(*begin, layer)
    assert layer.any(axis=1).all()
    ours, twin = before.copy(), before.copy()
    sums, totals = np.empty(WIDTH, np.int32), np.empty(WIDTH + size, np.int32)
    line = np.empty(WIDTH * channels, np.float32)
    draw_rain(ours, layer, size, 0.8 * white, 0.9, white, sums, totals, line)
    reference.draw_rain(twin, layer, size, 0.8 * white, 0.9, white, None, None, None)
    assert_alike(ours, twin, before)


@KINDS
@pytest.mark.parametrize(
    "corners",
    [
        [(2.2, 1.1), (14.7, 3.3), (9.1, 11.9)],
        [(-5, -5), (30, 2), (3, 30), (8.5, 4.4), (20.1, 9.3)],
        [(1, 1), (15, 11), (15, 1), (1, 11)],
    ],
)
def test_inside_of_a_polygon_it_is_darker(dtype, channels, corners):
    before = image(dtype, channels)
    white = 255.0 if dtype == np.uint8 else 1.0
    corners = np.array(corners, np.float64)
    ours, twin = before.copy(), before.copy()
    draw_shadow(ours, corners, 0.6, white, np.empty(len(corners)))
    reference.draw_shadow(twin, corners, 0.6, white, None)
    assert_alike(ours, twin, before)
