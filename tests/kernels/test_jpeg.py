"""Blocks are transformed and rounded as by SciPy, tables are those of libjpeg, and planes lose nothing else."""

import io

import numpy as np
import pytest
from PIL import Image

from loaderx.kernels import jpeg
from tests import reference


@pytest.mark.parametrize("shape", [(8, 8), (16, 40)])
@pytest.mark.parametrize("quality", [10, 50, 95])
def test_rounded_blocks_equal_their_twin(shape, quality):
    table = np.empty((8, 8), np.float32)
    jpeg.quantisation(jpeg.LUMINANCE, quality, table)
    plane = np.random.default_rng(0).integers(-128, 128, shape).astype(np.float32)
    out, expected = plane.copy(), plane.copy()
    strips = np.empty((8, shape[1]), np.float32), np.empty((8, shape[1]), np.float32)
    jpeg.quantise_blocks(out, table, jpeg.COSINES, jpeg.WAVES, *strips)
    reference.quantise_blocks(expected, table, jpeg.COSINES, jpeg.WAVES, *strips)
    # A value in the middle between two levels depends on the last bit.
    assert np.mean(out == expected) > 0.99
    assert np.max(np.abs(out - expected)) <= 1


@pytest.mark.parametrize("quality", [1, 20, 49, 50, 75, 90, 100])
def test_tables_are_those_of_libjpeg(quality):
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "JPEG", quality=quality)
    written = Image.open(file).quantization
    table = np.empty((8, 8), np.float32)
    for number, base in enumerate((jpeg.LUMINANCE, jpeg.CHROMINANCE)):
        jpeg.quantisation(base, quality, table)
        # Pillow lists them in the order of the block, not of the file.
        np.testing.assert_array_equal(table.reshape(-1), written[number])


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(5, 7, 3), (16, 16, 4), (3, 2, 1)])
def test_planes_of_one_colour_become_that_colour_again(shape, dtype):
    white = 255.0 if dtype == np.uint8 else 1.0
    x = np.empty(shape, dtype)
    x[...] = (np.array([200, 30, 90, 7]) / 255 * white).astype(dtype)[: shape[2]]
    light = np.empty((16, 16), np.float32)
    blue, red = np.empty((8, 8), np.float32), np.empty((8, 8), np.float32)
    out = x.copy()
    spaces = np.empty((3, 16), dtype), np.empty((4, 16), np.float32)
    jpeg.to_planes(x, white, light, blue, red, *spaces)
    out[..., :3] = 0
    jpeg.from_planes(light, blue, red, white, *spaces, out)
    np.testing.assert_allclose(out, x, atol=1.01 / 255 * white)
    np.testing.assert_array_equal(out[..., 3:], x[..., 3:])


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(13, 22, 3), (16, 16, 4), (3, 2, 1), (1, 1, 3)])
def test_planes_equal_their_twins(shape, dtype):
    white = 255.0 if dtype == np.uint8 else 1.0
    x = (np.random.default_rng(0).random(shape) * white).astype(dtype)
    found, expected = (
        [np.zeros((16, 32), np.float32), *np.zeros((2, 8, 16), np.float32)] for _ in range(2)
    )
    spaces = np.empty((3, 32), dtype), np.empty((4, 32), np.float32)
    jpeg.to_planes(x, white, *found, *spaces)
    reference.to_planes(x, white, *expected, *spaces)
    # A half that float32 and float64 round to different sides is a level.
    for plane, twin in zip(found, expected, strict=True):
        assert np.max(np.abs(plane - twin)) <= 1
        assert np.mean(plane != twin) < 0.02
    out, again = x.copy(), x.copy()
    jpeg.from_planes(*expected, white, *spaces, out)
    reference.from_planes(*expected, white, *spaces, again)
    np.testing.assert_allclose(out, again, atol=1.001 * white / 255)
    assert np.mean(np.abs(out.astype(float) - again) > 0.5 * white / 255) < 0.005
