"""Pixels are looked up through a map as by OpenCV and SciPy, and a map of whole pixels is a copy."""

import math

import cv2
import numpy as np
import pytest
from numba.core import config
from PIL import Image
from scipy import ndimage

from loaderx.kernels import warping
from loaderx.kernels.windows import EDGE, FILL, REFLECT
from tests import reference

SIZE = (13, 17)
# Plain Python takes 10 us for a pixel.
SIZES = [(5, 8)] if config.DISABLE_JIT else [SIZE, (9, 21)]
# Vector instructions for three, four, one channel; none.
KINDS = [(np.uint8, 3), (np.float32, 4), (np.uint8, 1), (np.float64, 2)]
BORDERS = {FILL: cv2.BORDER_CONSTANT, REFLECT: cv2.BORDER_REFLECT_101, EDGE: cv2.BORDER_REPLICATE}


def around(degrees, scale=1.0, size=SIZE):
    """Return a rotation around the centre."""
    cosine, sine = (scale * part(math.radians(degrees)) for part in (math.cos, math.sin))
    x, y = (size[1] - 1) / 2, (size[0] - 1) / 2
    c, f = x - cosine * x + sine * y, y - sine * x - cosine * y
    return cosine, -sine, c, sine, cosine, f, 0.0, 0.0, 1.0


SMOOTH = {
    "turned": around(20),
    "turned and small": around(-130, 1.7),
    "turned and large": around(65, 0.4),
    "moved": (1.0, 0.0, 2.25, 0.0, 1.0, -3.5, 0.0, 0.0, 1.0),
    "sheared": (1.0, 0.3, -2.0, -0.2, 0.9, 1.0, 0.0, 0.0, 1.0),
    "perspective": (1.1, 0.1, -1.0, 0.05, 0.9, 0.5, 0.01, -0.02, 1.0),
}
WHOLE = {
    "itself": (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0),
    "shifted": (1.0, 0.0, 3.0, 0.0, 1.0, -2.0, 0.0, 0.0, 1.0),
    "mirrored": (-1.0, 0.0, 14.0, 0.0, -1.0, 12.0, 0.0, 0.0, 1.0),
    "exchanged": (0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0),
    "turned": (0.0, -1.0, 16.0, 1.0, 0.0, -2.0, 0.0, 0.0, 1.0),
    "far away": (0.0, -1.0, 1e9, 1.0, 0.0, -1e9, 0.0, 0.0, 1.0),
}
EXTREME = {
    "a horizon": (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.125, 0.0, -1.0),
    "one point": (0.0, 0.0, 5.25, 0.0, 0.0, 3.5, 0.0, 0.0, 1.0),
    "an edge": (0.0, 0.0, 16.0, 0.0, 0.0, 12.0, 0.0, 0.0, 1.0),
    "vast": (1e300, 1e300, 0.5, 1e300, -1e300, 0.5, 0.0, 0.0, 1.0),
    "infinite": (math.inf, 0.0, 0.0, 0.0, math.nan, 0.0, 0.0, 0.0, 1.0),
    "nothing": (0.0,) * 9,
}
EVERY = [*SMOOTH.values(), *WHOLE.values(), *EXTREME.values()]


def image(dtype, channels, size=SIZE):
    values = np.random.default_rng(0).random((*size, channels))
    return (values * 255 if dtype == np.uint8 else values).astype(dtype)


def warped(x, matrix, mode=FILL, fill=0.0, size=None, nearest=False, module=warping):
    """Return the image through a map; the memory after the result must stay unchanged."""
    tall, wide = size or x.shape[:2]
    channels = x.shape[2]
    memory = np.full(tall * wide * channels + 16, 77, x.dtype)
    out = memory[:-16].reshape(tall, wide, channels)
    lines, places = np.empty((2, wide)), np.empty(wide, np.int32)
    shares = np.empty((4, wide), warping.share_dtype(x.dtype))
    pixel = warping.fill_pixel(fill, channels, x.dtype)
    if nearest:
        module.warp_nearest(x, matrix, mode, pixel, lines, places, out)
    else:
        module.warp_bilinear(x, matrix, mode, pixel, lines, places, shares, out)
    assert np.all(memory[-16:] == 77)
    return out


@pytest.mark.parametrize("mode", BORDERS)
@pytest.mark.parametrize(("dtype", "channels"), KINDS)
def test_mixed_pixels_equal_their_twin(dtype, channels, mode):
    x = image(dtype, channels)
    for matrix in EVERY:
        for size in SIZES:
            expected = warped(x, matrix, mode, 1.0, size, module=reference)
            np.testing.assert_array_equal(warped(x, matrix, mode, 1.0, size), expected)


@pytest.mark.parametrize("mode", BORDERS)
@pytest.mark.parametrize(("dtype", "channels"), [(np.uint8, 3), (np.float64, 5)])
def test_nearest_pixels_equal_their_twin(dtype, channels, mode):
    x = image(dtype, channels)
    for matrix in EVERY:
        for size in SIZES:
            expected = warped(x, matrix, mode, 1.0, size, nearest=True, module=reference)
            found = warped(x, matrix, mode, 1.0, size, nearest=True)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", BORDERS)
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (2, 2)])
def test_images_of_a_pixel_or_a_line_equal_their_twin(size, mode):
    x = image(np.uint8, 3, size)
    for matrix in EVERY:
        for nearest in (False, True):
            expected = warped(x, matrix, mode, 9.0, SIZES[0], nearest, reference)
            np.testing.assert_array_equal(warped(x, matrix, mode, 9.0, SIZES[0], nearest), expected)


def opencv(x, matrix, mode, flags, fill=0.0):
    return cv2.warpPerspective(
        x, np.reshape(matrix, (3, 3)), x.shape[1::-1], flags=flags | cv2.WARP_INVERSE_MAP,
        borderMode=BORDERS[mode], borderValue=(fill,) * 4,
    )  # fmt: skip


@pytest.mark.parametrize("mode", BORDERS)
@pytest.mark.parametrize("matrix", SMOOTH.values(), ids=SMOOTH)
def test_mixed_pixels_are_those_of_opencv(matrix, mode):
    x = image(np.float32, 4)
    # OpenCV calculates coordinates in float32, and releases before 4.11 in steps of 1/32 pixel.
    expected = opencv(x, matrix, mode, cv2.INTER_LINEAR, 0.5)
    np.testing.assert_allclose(warped(x, matrix, mode, 0.5), expected, atol=2 / 32)
    x = image(np.uint8, 3)
    expected = opencv(x, matrix, mode, cv2.INTER_LINEAR, 7)
    difference = np.abs(warped(x, matrix, mode, 7.0).astype(int) - expected)
    assert difference.max() <= 255 * 2 / 32


def test_nearest_pixels_are_those_of_opencv():
    x = image(np.uint8, 3, (40, 50))
    matrix = around(20, size=(40, 50))
    expected = opencv(x, matrix, FILL, cv2.INTER_NEAREST)
    # Coordinates in the middle between two pixels are not rounded alike.
    different = np.any(warped(x, matrix, nearest=True) != expected, axis=2)
    assert different.mean() < 0.01


@pytest.mark.parametrize(("mode", "name"), [(REFLECT, "mirror"), (EDGE, "nearest")])
def test_mixed_pixels_are_those_of_scipy(mode, name):
    x = image(np.float64, 2)
    for matrix in (SMOOTH["turned"], SMOOTH["turned and small"], SMOOTH["sheared"]):
        a, b, c, d, e, f = matrix[:6]
        for channel in range(2):
            expected = ndimage.affine_transform(
                x[..., channel], [[e, d], [b, a]], [f, c], order=1, mode=name
            )
            np.testing.assert_allclose(warped(x, matrix, mode)[..., channel], expected, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(13, 17), (70, 33)])
def test_quarter_turns_are_those_of_numpy_and_pillow(size, channels):
    x = image(np.uint8, channels, size)
    right, bottom = size[1] - 1.0, size[0] - 1.0
    matrices = [
        (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0),
        (0.0, -1.0, right, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0),
        (-1.0, 0.0, right, 0.0, -1.0, bottom, 0.0, 0.0, 1.0),
        (0.0, 1.0, 0.0, -1.0, 0.0, bottom, 0.0, 0.0, 1.0),
    ]
    for turns, matrix in enumerate(matrices):
        out = warped(x, matrix, size=size[::-1] if turns % 2 else size)
        np.testing.assert_array_equal(out, np.rot90(x, turns))
        if turns:
            pillow = Image.fromarray(x.squeeze())
            way = getattr(Image.Transpose, f"ROTATE_{90 * turns}")
            np.testing.assert_array_equal(out.squeeze(), np.asarray(pillow.transpose(way)))


def test_infinity_and_nan_are_copied_by_maps_of_whole_pixels():
    x = image(np.float32, 4)
    x[3, 4], x[5, 6] = np.nan, np.inf
    for matrix in (WHOLE["itself"], WHOLE["exchanged"]):
        expected = warped(x, matrix, module=reference, nearest=True)
        np.testing.assert_array_equal(warped(x, matrix), expected)


def test_one_colour_stays_what_it_is():
    x = np.full((*SIZE, 3), 201, np.uint8)
    for matrix in SMOOTH.values():
        for mode in BORDERS:
            assert np.all(warped(x, matrix, mode, 201.0, SIZES[0]) == 201)
