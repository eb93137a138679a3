"""Boxes and keypoints go where the pixels of their image go."""

import numpy as np
import pytest

from loaderx.kernels.points import (
    CXCYWH,
    KEYPOINTS,
    XYWH,
    XYXY,
    best_overlap,
    close_boxes,
    follow_centres,
    follow_windows,
    inverse,
    map_points,
    open_boxes,
    open_points,
    sanitize_boxes,
    valid_boxes,
    window_points,
)
from tests import reference

WINDOWS = [
    (0, 20, False, 0, 30, False, 20, 30),
    (3, 10, False, 5, 12, False, 10, 12),
    (3, 10, True, 5, 12, True, 40, 24),
    (-4, 28, False, -4, 38, True, 28, 38),
]
ROTATED = (0.8, -0.6, 3.0, 0.6, 0.8, -2.0, 0.0, 0.0, 1.0)
PERSPECTIVE = (0.9, 0.1, 1.0, -0.05, 1.1, 2.0, 0.001, -0.002, 1.0)
MATRICES = [ROTATED, PERSPECTIVE, (0, 1, 0, 1, 0, 0, 0, 0, 1), (-1, 0, 29, 0, 1, 0, 0, 0, 1)]


def boxes(count=50, seed=0, columns=5):
    """Return boxes in and around an image of 20 x 30, some of them not valid."""
    rng = np.random.default_rng(seed)
    corners = rng.uniform(-6, [36, 26], (count, 2, 2))
    x = np.ones((count, columns), np.float32)
    x[:, :2], x[:, 2:4] = corners.min(axis=1), corners.max(axis=1)
    x[:, 4] = rng.random(count) < 0.9
    return x


def keypoints(count=50, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-6, 36, (count, 3)).astype(np.float32)
    x[:, 2] = rng.random(count) < 0.9
    return x


@pytest.mark.parametrize("points", [boxes, keypoints])
@pytest.mark.parametrize("window", WINDOWS)
def test_points_move_with_a_window(points, window):
    ours, twin = points(), points()
    window_points(ours, *window)
    reference.window_points(twin, *window)
    np.testing.assert_allclose(ours, twin, atol=1e-5)


@pytest.mark.parametrize("points", [boxes, keypoints])
@pytest.mark.parametrize("matrix", MATRICES)
def test_points_move_with_a_map(points, matrix):
    ours, twin = points(), points()
    map_points(ours, tuple(map(float, matrix)), 20, 30)
    reference.map_points(twin, matrix, 20, 30)
    np.testing.assert_allclose(ours, twin, atol=1e-4)


@pytest.mark.parametrize("matrix", MATRICES)
def test_the_inverse_of_a_matrix_is_that_of_numpy(matrix):
    expected = reference.inverse_matrix(matrix)
    np.testing.assert_allclose(np.reshape(inverse(tuple(map(float, matrix))), (3, 3)), expected)


def test_a_window_of_the_whole_image_changes_no_bit_of_points_inside():
    x = boxes()
    x[:, :4] = np.clip(x[:, :4], 0, [30, 20, 30, 20])
    x[:, 4] = (x[:, 2] > x[:, 0]) & (x[:, 3] > x[:, 1])
    x = x[x[:, 4] > 0]
    through_window, through_map = x.copy(), x.copy()
    window_points(through_window, 0, 20, False, 0, 30, False, 20, 30)
    map_points(through_map, (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0), 20, 30)
    np.testing.assert_array_equal(through_window, x)
    np.testing.assert_array_equal(through_map, x)


def test_invalid_rows_stay_so_and_a_box_outside_becomes_zeros():
    x = np.array([[2, 2, 4, 4, 0], [8, 8, 12, 12, 1], [11, 11, 12, 12, 1]], np.float32)
    window_points(x, 0, 10, False, 0, 10, False, 10, 10)
    np.testing.assert_array_equal(x, [[0, 0, 0, 0, 0], [8, 8, 10, 10, 1], [0, 0, 0, 0, 0]])


def test_a_keypoint_outside_keeps_its_place_and_is_not_valid_again():
    x = np.array([[12, 5, 1], [5, 5, 1]], np.float32)
    window_points(x, 0, 10, False, 0, 10, False, 10, 10)
    window_points(x, -5, 20, False, -5, 20, False, 20, 20)
    np.testing.assert_array_equal(x, [[17, 10, 0], [10, 10, 1]])


def test_no_points_are_no_work():
    for width in (3, 5):
        x = np.empty((0, width), np.float32)
        window_points(x, 0, 10, False, 0, 10, False, 10, 10)
        map_points(x, tuple(map(float, ROTATED)), 10, 10)


def test_points_with_nan_are_not_valid():
    x = np.array([[np.nan, 2, 4, 4, 1]], np.float32)
    window_points(x, 0, 10, True, 0, 10, True, 10, 10)
    np.testing.assert_array_equal(x, np.zeros((1, 5)))


@pytest.mark.parametrize("form", [XYXY, XYWH, CXCYWH])
def test_boxes_are_opened_as_the_twin_does_and_closed_as_they_were(form):
    given = np.abs(boxes(columns=6))
    given[:3, :4] = [[0, 0, 0, 0], [1, np.nan, 3, 4], [1, 2, np.inf, 4]]
    out, twin = np.empty((2, len(given), 8), np.float32)
    open_boxes(given, form, 30.0, 20.0, out)
    reference.open_boxes(given, form, 30.0, 20.0, twin)
    np.testing.assert_array_equal(out, twin)
    closed, twin = np.empty_like(given), np.empty_like(given)
    out[::3, 5] = 0.3
    for least in ((10.0, 0.0), (0.0, 0.5)):
        close_boxes(out, form, 30.0, 20.0, *least, True, 4.0, closed)
        reference.close_boxes(out, form, 30.0, 20.0, *least, True, 4.0, twin)
        np.testing.assert_allclose(closed, twin, rtol=1e-6)
    close_boxes(out, form, 30.0, 20.0, 0.0, 0.0, False, 0.0, closed)
    np.testing.assert_allclose(closed[3:], given[3:], rtol=1e-5, atol=1e-5)
    close_boxes(out, form, 30.0, 20.0, 0.0, 0.0, True, -3.0, closed)
    np.testing.assert_array_equal(closed[:, 4:], np.where(out[:, 4:5] > 0, given[:, 4:], -3))


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("form", [XYXY, XYWH, CXCYWH, KEYPOINTS])
def test_points_of_several_images_are_opened_by_the_size_of_each(form, normalized):
    width = 2 if form == KEYPOINTS else 6
    given = np.stack([np.abs(boxes(seed=seed, columns=6)[:, :width]) for seed in range(3)])
    given[1, 0, 1] = np.nan
    sizes = np.array([[20, 30, 1, 1], [7, 5, 1, 1], [300, 200, 1, 1]])
    out, twin = np.empty((2, 3, given.shape[1], width + 1 + (width > 2)), np.float32)
    open_points(given, form, normalized, sizes, out)
    reference.open_points(given, form, normalized, sizes, twin)
    np.testing.assert_array_equal(out, twin)


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("points", [boxes, keypoints])
def test_points_of_several_images_move_through_the_window_of_each(points, parts):
    ours = np.stack([points(seed=seed) for seed in range(len(WINDOWS))])
    twin = ours.copy()
    windows = np.array([window[:6] for window in WINDOWS])
    if parts:
        windows[:, 2::3] = [window[6:] for window in WINDOWS]
    sizes = np.array([(0, 0, *window[6:]) for window in WINDOWS])
    follow_windows(ours, windows, sizes, parts)
    reference.follow_windows(twin, windows, sizes, parts)
    np.testing.assert_allclose(ours, twin, atol=1e-5)


def test_a_box_is_kept_by_its_area_and_by_what_is_left_of_it():
    x = np.array([[0, 0, 4, 5, 1, 0.5], [0, 0, 4, 4, 1, 1], [0, 0, 9, 9, 0, 1]], np.float32)
    kept, out = np.empty(3, np.bool_), np.empty((3, 4), np.float32)
    for area, visible, wanted in ((0, 0, [1, 1, 0]), (20, 0, [1, 0, 0]), (0, 0.6, [0, 1, 0])):
        valid_boxes(x, area, visible, kept)
        np.testing.assert_array_equal(kept, wanted)
        reference.valid_boxes(x, area, visible, kept)
        np.testing.assert_array_equal(kept, wanted)
        close_boxes(x, XYXY, 1.0, 1.0, area, visible, False, 0.0, out)
        # A box that was not valid before is not changed.
        np.testing.assert_array_equal(out.any(axis=1), np.logical_or(wanted, [0, 0, 1]))


def test_the_visible_share_is_what_windows_leave_and_other_columns_stay():
    x = np.array([[0, 0, 10, 10, 1, 1, 7], [5, 5, 6, 6, 1, 1, 8], [20, 0, 30, 9, 1, 1, 9]], np.float32)  # fmt: skip
    window_points(x, 0, 10, True, 5, 10, True, 20, 40)
    np.testing.assert_allclose(x[:, 4:], [[1, 0.5, 7], [1, 1, 8], [0, 0, 9]])
    map_points(x, (1.0, 0.0, 0.0, 0.0, 1.0, 5.0, 0.0, 0.0, 1.0), 20, 40)
    np.testing.assert_allclose(x[:2, 5], [0.375, 1])


def test_boxes_with_their_centre_outside_of_a_window_are_dropped():
    x = np.array([[0, 0, 4, 4, 1], [2, 2, 6, 6, 1], [0, 2, 5, 4, 1], [5, 5, 9, 9, 1]], np.float32)
    follow_centres(x, (3, 4, 0, 3, 4, 0), 4, 4)
    np.testing.assert_array_equal(x[:, 4], [0, 1, 0, 0])
    np.testing.assert_array_equal(x[1], [0, 0, 3, 3, 1])
    spots = keypoints()
    twin = spots.copy()
    follow_centres(spots, (3, 4, 0, 3, 4, 0), 4, 4)
    window_points(twin, 3, 4, False, 3, 4, False, 4, 4)
    np.testing.assert_array_equal(spots, twin)


def test_the_best_overlap_is_that_of_the_twin():
    found = []
    for seed in range(20):
        x = boxes(4, seed)
        top, left, tall, wide = np.random.default_rng(seed).integers(1, 15, 4)
        found.append(best_overlap(x, top, tall, left, wide))
        assert np.isclose(found[-1], reference.best_overlap(x, top, tall, left, wide))
    assert min(found) == -1
    assert max(found) > 0.3


def test_small_boxes_become_zeros_and_keypoints_stay():
    x = boxes(columns=7)
    twin = x.copy()
    sanitize_boxes(x, 4.0, 30.0)
    reference.sanitize_boxes(twin, 4.0, 30.0)
    np.testing.assert_array_equal(x, twin)
    assert 0 < x[:, 4].sum() < boxes(columns=7)[:, 4].sum()
    spots, same = keypoints(), keypoints()
    sanitize_boxes(spots, 4.0, 30.0)
    np.testing.assert_array_equal(spots, same)
