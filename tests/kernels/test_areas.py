"""Means of areas are those of NumPy and OpenCV."""

import cv2
import numpy as np
import pytest

from loaderx.kernels.areas import resize_area
from tests import reference
from tests.kernels.test_pixels import values_of


def spaces(x, out):
    """Return scratch memory, whose content must not matter."""
    _, width, channels = x.shape
    wide = out.shape[1]
    sums = np.float32 if x.dtype == np.uint8 else np.float64
    sizes = (
        (width * channels, sums),
        (width * channels + 4, float),
        (wide * channels + 4, float),
        (wide, int),
        (wide, int),
        (width + wide, np.int32),
        (width + wide, float),
    )
    return [np.full(size, 99, dtype) for size, dtype in sizes]


AREAS = [((8, 12), (4, 6)), ((7, 10), (3, 4)), ((5, 5), (5, 5)), ((6, 9), (1, 1)), ((5, 7), (4, 7))]


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize(("size", "smaller"), AREAS)
@pytest.mark.parametrize("channels", [1, 3])
def test_the_mean_of_areas_equals_its_twin(size, smaller, channels, dtype):
    x = values_of((*size, channels), dtype)
    out, expected = np.empty((*smaller, channels), dtype), np.empty((*smaller, channels), dtype)
    resize_area(x, out, *spaces(x, out))
    reference.resize_area(x, expected, *spaces(x, out))
    if dtype == np.uint8:
        # Exactly between two integers the last bit of the mean decides.
        exact = np.empty(out.shape)
        reference.resize_area(x, exact, *spaces(x, out))
        ties = np.abs(exact % 1 - 0.5) < 1e-9
        np.testing.assert_array_equal(out[~ties], expected[~ties])
        assert np.all(np.abs(out[ties].astype(int) - expected[ties]) <= 1)
    else:
        np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(("size", "smaller"), AREAS)
def test_the_mean_of_areas_is_that_of_opencv(size, smaller):
    x = values_of((*size, 3), np.float32)
    out = np.empty((*smaller, 3), np.float32)
    resize_area(x, out, *spaces(x, out))
    expected = cv2.resize(x, smaller[::-1], interpolation=cv2.INTER_AREA)
    np.testing.assert_allclose(out, expected, atol=1e-3)


@pytest.mark.parametrize("larger", [(10, 15), (7, 11)])
def test_enlarging_by_area_mixes_neighbours_by_their_share(larger):
    x = values_of((5, 5, 1), np.float32)
    out, expected = np.empty((*larger, 1), np.float32), np.empty((*larger, 1), np.float32)
    resize_area(x, out, *spaces(x, out))
    reference.resize_area(x, expected, *spaces(x, out))
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)
    assert out[0, 0, 0] == x[0, 0, 0]


@pytest.mark.parametrize(("size", "smaller"), [((6, 8), (3, 4)), ((4, 12), (3, 8))])
def test_means_between_two_integers_are_rounded_up(size, smaller):
    x = values_of((*size, 3), np.uint8)
    tall, wide = (np.lcm(large, small) for large, small in zip(size, smaller, strict=True))
    # In whole numbers: every pixel is divided into as many parts as both sizes have in common.
    parts = x.repeat(tall // size[0], 0).repeat(wide // size[1], 1).astype(int)
    down, across = tall // smaller[0], wide // smaller[1]
    total = parts.reshape(smaller[0], down, smaller[1], across, 3).sum((1, 3))
    assert np.any(2 * total % (2 * down * across) == down * across)
    out = np.empty((*smaller, 3), np.uint8)
    resize_area(x, out, *spaces(x, out))
    np.testing.assert_array_equal(out, (2 * total + down * across) // (2 * down * across))
