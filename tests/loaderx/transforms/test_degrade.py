"""Images of fewer pixels are those of the definition, and those that OpenCV shrinks and enlarges."""

import io
import math
import re
from fractions import Fraction

import cv2
import numpy as np
import pytest
from PIL import Image
from scipy import stats
from sklearn.datasets import load_sample_image

import loaderx as lx
from loaderx.transforms.degrade import Downscale, JPEGCompression
from tests.loaderx.transforms.images import Applied, apply, images


def resized(image, size, how):
    return cv2.resize(image, size, interpolation=how).reshape(size[1], size[0], image.shape[2])


def places(size, count):
    """Return the pixels that the middles of `count` parts of a line fall into; a border belongs to the next one."""
    return [math.floor(Fraction(2 * k + 1, 2 * count) * size) for k in range(count)]


def downscaled(image, share, interpolation):
    height, width = image.shape[:2]
    small = max(int(width * share), 1), max(int(height * share), 1)
    if interpolation == "nearest":
        rows, columns = places(height, small[1]), places(width, small[0])
        return image[np.ix_(rows, columns)][
            np.ix_(places(small[1], height), places(small[0], width))
        ]
    fewer = resized(image, small, cv2.INTER_AREA)
    return resized(fewer, (width, height), cv2.INTER_LINEAR)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(20, 31, 3), (33, 17, 1), (9, 12, 4), (3, 3, 3)])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_an_image_of_fewer_pixels_is_that_of_opencv(shape, dtype, interpolation, monkeypatch):
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    x = images(shape, dtype, count=8)
    applied = Applied(x, Downscale((0.2, 0.8), interpolation))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        expected = downscaled(image, rng.uniform(0.2, 0.8), interpolation)
        if interpolation == "nearest":
            np.testing.assert_array_equal(out, expected)
        elif dtype == np.uint8:
            # OpenCV's shares have 11 bits, and its halves are rounded to even numbers.
            assert np.max(np.abs(out.astype(int) - expected)) <= 1
        else:
            np.testing.assert_allclose(out, expected, atol=1e-5)


def test_repeated_pixels_are_those_of_opencv():
    # By a whole factor, which OpenCV represents exactly.
    x = images((20, 32, 3))
    for image, out in zip(x, apply(x, Downscale(0.25)), strict=True):
        fewer = resized(image, (8, 5), cv2.INTER_NEAREST_EXACT)
        np.testing.assert_array_equal(out, resized(fewer, (32, 20), cv2.INTER_NEAREST_EXACT))


def test_scales_are_uniform_in_their_range():
    x = np.tile(np.arange(200, dtype=np.uint8), (500, 2, 1))
    out = lx.pipeline([Downscale((0.2, 0.8))])(x, batch=True)
    kept = np.array([len(np.unique(sample)) for sample in out])
    scales = (kept + np.random.default_rng(0).random(500)) / 200
    assert stats.kstest(scales, stats.uniform(0.2, 0.6).cdf).pvalue > 0.001


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_debug_mode_gives_the_same_images_and_grey_ones_need_no_axis(
    dtype, interpolation, monkeypatch
):
    x = images((20, 31, 3), dtype)
    op = Downscale(interpolation=interpolation)
    compiled = apply(x, op)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(x, op), compiled)
    grey = lx.pipeline([op])(x[..., 0], batch=True)
    np.testing.assert_array_equal(grey[..., None], apply(x[..., :1].copy(), op))
    np.testing.assert_array_equal(apply(x, Downscale(1.0)), x)


# JPEGCompression


@pytest.fixture(scope="module")
def photographs():
    """Return parts of a photograph, of sizes that 8 and 16 do not divide."""
    china = load_sample_image("china.jpg")
    return [china[100:200, 200:331], china[300:327, 20:97], china[60:92, 300:348]]


def through_a_file(image, quality):
    """Return the image that Pillow reads from the file that it has written."""
    grey = image.shape[2] == 1
    file = io.BytesIO()
    Image.fromarray(image[..., 0] if grey else image).save(
        file, "JPEG", quality=quality, subsampling=2
    )
    return np.asarray(Image.open(file)).reshape(image.shape).astype(int)


@pytest.mark.parametrize("quality", [1, 20, 50, 75, 90, 100])
@pytest.mark.parametrize("grey", [False, True])
def test_compressed_images_are_those_of_pillow(photographs, quality, grey):
    for photograph in photographs:
        image = np.ascontiguousarray(photograph[..., :1] if grey else photograph)
        out = apply(image[None], JPEGCompression(quality))[0]
        expected = through_a_file(image, quality)
        difference = np.abs(out.astype(int) - expected)
        # Coefficients next to a half, within 0.01 of a step, are rounded the other way by libjpeg's integers: some in
        # a thousand of them, and each moves a block of 64 pixels.
        assert difference.mean() < 0.8
        assert np.mean(difference > 3) < 0.04
        # Nearer to the file than to the image, which shows that the losses are compared.
        if quality < 90:
            assert np.mean(np.abs(expected - image)) > 3 * difference.mean()


def test_floats_are_compressed_as_their_levels_and_opacity_stays(photographs):
    image = photographs[0][None]
    out = apply(image, JPEGCompression(30))
    floats = apply((image / 255).astype(np.float32), JPEGCompression(30))
    np.testing.assert_allclose(floats, out / 255, atol=1e-6)
    opaque = np.concatenate([image, images((*image.shape[1:3], 1), count=1)], axis=3)
    found = apply(opaque, JPEGCompression(30))
    np.testing.assert_array_equal(found[..., :3], out)
    np.testing.assert_array_equal(found[..., 3], opaque[..., 3])
    grey = np.ascontiguousarray(image[..., 0])
    flat = lx.pipeline([JPEGCompression(30)])(grey, batch=True)
    np.testing.assert_array_equal(flat[..., None], apply(grey[..., None], JPEGCompression(30)))


def test_every_quality_of_a_range_is_as_likely_as_the_others():
    x = np.repeat(images((8, 8, 1), count=1), 400, axis=0)
    found = apply(x, JPEGCompression((10, 13)))
    counts = []
    for quality in range(10, 14):
        one = apply(x[:1], JPEGCompression(quality))
        counts.append(int(np.sum(np.all(found == one, axis=(1, 2, 3)))))
    assert sum(counts) == 400
    assert stats.chisquare(counts).pvalue > 0.001


@pytest.mark.parametrize("shape", [(20, 31, 3), (1, 1, 3), (2, 5, 4), (9, 3, 1)])
def test_debug_mode_gives_the_same_compressed_images(shape, monkeypatch):
    x = images(shape)
    compiled = apply(x, JPEGCompression())
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(x, JPEGCompression()), compiled)


REFUSED = [
    (lambda: JPEGCompression(0), "`quality` (=0) must be an integer of at least 1, or a range of two of them."),
    (lambda: JPEGCompression((50, 101)), "`quality` (=(50, 101)) must be from 1 to 100."),
    (lambda: Downscale(1.5), "`scale` (=1.5) must be a number from 0 to 1"),
    (lambda: Downscale(0.5, "cubic"), "`interpolation` (='cubic') must be 'nearest' or 'bilinear'."),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_that_cannot_work_are_refused_at_once(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()
