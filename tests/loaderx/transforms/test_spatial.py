"""Crops, pads, flips and resizes are those of NumPy, OpenCV and Pillow; a chain equals its ops one after the other."""

import math
import re

import cv2
import numpy as np
import PIL
import pytest
from PIL import Image
from scipy import stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.compiler.table import _groups
from loaderx.kernels import resizing
from loaderx.kernels.distributions import Draws
from loaderx.transforms.spatial import crop_window, flip_window, random_resized_window
from loaderx.transforms.step import Step
from tests import reference
from tests.loaderx.transforms.images import Applied, apply, images

FILTERS = {
    "bilinear": (resizing.BILINEAR, Image.Resampling.BILINEAR),
    "bicubic": (resizing.BICUBIC, Image.Resampling.BICUBIC),
    "lanczos": (resizing.LANCZOS, Image.Resampling.LANCZOS),
}


def resized(image, size, window=None, interpolation="bilinear", antialias=True):
    """Return a window of the image, scaled to a size by the twins of the kernels."""
    height, width = image.shape[:2]
    pixels = image.reshape(height, width, -1)
    channels = pixels.shape[2]
    kind, _ = FILTERS[interpolation]
    precision = np.dtype(np.float32 if np.can_cast(image.dtype, np.float32) else np.float64)
    top, tall, left, wide = window or (0, height, 0, width)
    tables = [np.arange(count) for count in size]
    for total, start, extent, count in ((height, top, tall, size[0]), (width, left, wide, size[1])):
        taps = resizing.most_taps(kind, antialias, total, count)
        filters = (
            np.zeros(taps * count, precision),
            np.zeros(taps * count, int),
            np.zeros(count, int),
        )
        reference.compose_filter(np.arange(total), start, extent, False, kind, antialias, *filters)
        tables += filters
    whole = image.dtype.kind in "iub"
    limits = (np.iinfo(image.dtype).min, np.iinfo(image.dtype).max) if whole else None
    exact = precision == np.float64 or (whole and interpolation != "bilinear")
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    out = np.empty((*size, channels), image.dtype)
    twin = reference.resize_exactly if exact else reference.resize_window
    spaces = [*[None] * 5, (top, tall, False, left, wide, False)] if exact else [None] * 4
    twin(pixels, *tables, zeros, ones, zeros, whole, limits, *spaces, out)
    return out.reshape(*size, *image.shape[2:])


def normalized(pixels, mean, std, white=255):
    """Normalise by one multiplication and one addition in float32."""
    mean, std = np.asarray(mean), np.asarray(std)
    scale = (1 / (std * white)).astype(np.float32)
    return pixels.astype(np.float32) * scale + (-mean / std).astype(np.float32)


# Crop and pad


def numbered(count=1):
    """Return images in which every pixel is its own number."""
    return np.broadcast_to(np.arange(70, dtype=np.uint8).reshape(7, 10, 1), (count, 7, 10, 1))


def test_a_random_crop_is_a_part_and_every_part_is_equally_likely():
    applied = Applied(numbered(4000), T.RandomCrop((5, 6)))
    out = applied.out
    assert out.shape == (4000, 5, 6, 1)
    top, left = np.divmod(out[:, 0, 0, 0], 10)
    assert set(zip(top, left, strict=True)) == {(i, j) for i in range(3) for j in range(5)}
    assert stats.chisquare(np.bincount(top * 5 + left)).pvalue > 0.001
    for number in range(50):
        expected = numbered()[0, top[number] :, left[number] :][:5, :6]
        np.testing.assert_array_equal(out[number], expected)


def test_a_sample_is_cropped_by_its_place_in_the_stream_alone():
    pipeline = lx.pipeline([T.RandomCrop((5, 6))], seed=3)
    whole = pipeline(numbered(50))
    np.testing.assert_array_equal(pipeline(numbered(1), positions=[17]), whole[17:18])
    np.testing.assert_array_equal(pipeline(numbered(3), positions=[40, 2, 40]), whole[[40, 2, 40]])
    np.testing.assert_array_equal(lx.pipeline([T.RandomCrop((5, 6))], seed=3)(numbered(50)), whole)
    assert not np.array_equal(lx.pipeline([T.RandomCrop((5, 6))], seed=4)(numbered(50)), whole)


@pytest.mark.parametrize(
    ("size", "pad", "border", "fill"),
    [
        ((7, 10), (2, 3), "fill", 9),
        ((4, 5), (20, 25), "reflect", 0),
    ],
)
def test_a_random_crop_of_a_padded_image_is_a_part_of_numpys_padding(size, pad, border, fill):
    x = images(count=20)
    applied = Applied(x, T.RandomCrop(size, pad, border=border, fill=fill))
    down, across = pad
    around = ((down, down), (across, across), (0, 0))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        if border == "fill":
            padded = np.pad(image, around, "constant", constant_values=fill)
        else:
            padded = np.pad(image, around, border)
        top, _, _, left, _, _ = crop_window(rng, 7, 10, *size, down, across)
        inside = padded[top + down :, left + across :]
        np.testing.assert_array_equal(out, inside[: size[0], : size[1]])


@pytest.mark.parametrize(
    ("shape", "dtype", "amount", "border", "fill"),
    [
        ((7, 10, 3), np.uint8, (1, 2, 3, 0), "fill", 7),
        ((7, 10), np.uint8, 3, "reflect", 0),
        ((1, 1, 4), np.int32, (15, 1), "edge", 0),
    ],
)
def test_padding_is_that_of_numpy(shape, dtype, amount, border, fill):
    x = images(shape, dtype)
    out = apply(x, T.Pad(amount, border=border, fill=fill))
    sides = amount if np.size(amount) == 4 else np.broadcast_to(amount, 2).repeat(2)
    around = [(0, 0), tuple(sides[:2]), tuple(sides[2:])] + [(0, 0)] * (len(shape) - 2)
    given = {"constant_values": fill} if border == "fill" else {}
    expected = np.pad(x, around, "constant" if border == "fill" else border, **given)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, expected)


def test_sides_of_padding_can_be_named():
    x = images()
    named = T.Pad(left=1, top=2, right=3, bottom=4)
    np.testing.assert_array_equal(apply(x, named), apply(x, T.Pad((2, 4, 1, 3))))
    np.testing.assert_array_equal(apply(x, T.Pad(right=2)), apply(x, T.Pad((0, 0, 0, 2))))
    with pytest.raises(lx.ArgumentError, match=r"`amount` .* is for all sides"):
        T.Pad(2, left=1)
    for wrong in (-1, 1.5, None, "a"):
        with pytest.raises(lx.ArgumentError, match=r"`left` .* must be an integer of at least 0"):
            T.Pad(left=wrong)


def test_a_centre_crop_is_the_part_in_the_middle():
    x = images((7, 10, 4), np.uint16)
    # As high as the image, and with one column more left over on the right than on the left.
    np.testing.assert_array_equal(apply(x, T.CenterCrop((7, 5))), x[:, :, 2:7])


@pytest.mark.parametrize(("border", "fill"), [("fill", 0), ("fill", 9), ("edge", 0)])
def test_a_centre_crop_larger_than_the_image_is_padded(border, fill):
    x = images()
    out = apply(x, T.CenterCrop((10, 6), border=border, fill=fill))
    given = {"constant_values": fill} if border == "fill" else {}
    mode = "constant" if border == "fill" else border
    expected = np.pad(x, [(0, 0), (1, 2), (0, 0), (0, 0)], mode, **given)[:, :, 2:8]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("scaling", [[], [T.ToFloat()]])
@pytest.mark.parametrize(
    "op",
    [T.Pad(2, fill=(1, 2, 3)), T.RandomCrop((11, 14), pad=2, fill=[1, 2, 3]), T.CenterCrop((11, 14), fill=(1, 2, 3))],
    ids=repr,
)  # fmt: skip
def test_every_channel_has_its_fill(op, scaling):
    x = images()
    expected = np.broadcast_to(np.array([1, 2, 3], np.uint8), (5, 11, 14, 3)).copy()
    expected[:, 2:-2, 2:-2] = x
    if scaling:
        expected = expected.astype(np.float32) * np.float32(1 / 255)
    np.testing.assert_array_equal(apply(x, op, *scaling), expected)
    resized_first = apply(x, T.Resize((7, 10)), op, *scaling)
    np.testing.assert_array_equal(resized_first, expected)


# Flip


def test_a_flip_is_that_of_numpy():
    x = images()
    np.testing.assert_array_equal(apply(x, T.RandomFlip(1.0)), np.flip(x, 2))
    np.testing.assert_array_equal(apply(x, T.RandomFlip(1.0, axis="vertical")), np.flip(x, 1))
    for axis in ("horizontal", "vertical"):
        np.testing.assert_array_equal(apply(x, T.RandomFlip(0.0, axis=axis)), x)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_images_are_flipped_as_often_as_asked(probability):
    x = np.broadcast_to(images(count=1), (3000, 7, 10, 3))
    applied = Applied(x, T.RandomFlip(probability))
    flipped = np.any(applied.out != x, axis=(1, 2, 3))
    np.testing.assert_array_equal(applied.out[flipped], np.flip(x, 2)[flipped])
    assert stats.binomtest(int(flipped.sum()), 3000, probability).pvalue > 0.001
    drawn = [flip_window(rng, 7, 10, 7, 10, probability, False)[5] for rng in applied.draws()]
    np.testing.assert_array_equal(flipped, drawn)


@pytest.mark.parametrize(("shape", "dtype"), [((7, 10), np.bool), ((6, 3, 2), np.float16)])
def test_images_of_any_shape_and_dtype_are_flipped(shape, dtype):
    x = images(shape, dtype)
    out = apply(x, T.RandomFlip(1.0))
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, np.flip(x, 2))


LAYOUTS = {
    "read-only": lambda x: np.require(np.broadcast_to(x, x.shape), requirements="C"),
    "every other image": lambda x: np.repeat(x, 2, axis=0)[::2],
    "backwards": lambda x: x[::-1].copy()[::-1],
    "columns apart": lambda x: np.repeat(x, 3, axis=2)[:, :, ::3],
    "Fortran order": np.asfortranarray,
    "channels first in memory": lambda x: np.moveaxis(np.moveaxis(x, 3, 1).copy(), 1, 3),
    "big endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "a list of images": list,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_how_samples_lie_in_memory_does_not_matter(layout):
    x = images()
    given = LAYOUTS[layout](x)
    np.testing.assert_array_equal(np.asarray(given), x)
    pipeline = lx.pipeline([T.RandomFlip(1.0)])
    np.testing.assert_array_equal(pipeline(given), np.flip(x, 2))


def test_a_read_only_array_stays_as_it_is():
    x = images()
    x.flags.writeable = False
    out = lx.pipeline([T.Brightness(0.0)])(x)
    np.testing.assert_array_equal(out, x)
    assert out.flags.writeable
    assert not np.may_share_memory(out, x)


# Resize


def opencv(image, size, interpolation):
    out = cv2.resize(image, size[::-1], interpolation=interpolation)
    return out.reshape(*size, *image.shape[2:])


# Smaller along one axis and larger along the other, both ways round.
@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [
        ((7, 10, 3), np.uint8, (4, 21)),
        ((7, 10, 3), np.float32, (12, 5)),
        ((7, 10, 3), np.uint16, (3, 13)),
        ((1, 6, 4), np.float64, (3, 4)),
    ],
)
def test_bilinear_resizing_without_antialiasing_is_that_of_opencv(shape, dtype, size):
    x = images(shape, dtype)
    out = apply(x, T.Resize(size, antialias=False))
    assert out.dtype == dtype
    assert out.shape == (len(x), *size, *shape[2:])
    tolerance = 1 if np.dtype(dtype).kind == "u" else 1e-4
    for image, image_out in zip(x, out, strict=True):
        np.testing.assert_array_equal(image_out, resized(image, size, antialias=False))
        expected = opencv(image, size, cv2.INTER_LINEAR)
        np.testing.assert_allclose(image_out, expected.astype(float), atol=tolerance)


def pillow(image, size, interpolation):
    """Return Pillow's result as floats, channel by channel: it would treat the fourth one as transparency."""
    channels = image.reshape(*image.shape[:2], -1)
    method = FILTERS[interpolation][1]
    made = [
        np.asarray(Image.fromarray(channels[..., c]).resize(size[::-1], method), float)
        for c in range(channels.shape[2])
    ]
    return np.stack(made, -1).reshape(*size, *image.shape[2:])


FACTORS = (1 / 4, 1 / 3, 0.7, 1, 1.9)
SHAPES = [(13, 21, 3), (21, 13, 3), (16, 12, 1), (9, 31, 4), (1, 1, 3), (1, 17, 3), (17, 1, 1)]


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_resizing_is_that_of_pillow(shape, interpolation):
    """Resize random values, the worst case: filters that overshoot are clipped everywhere.

    Before version 13, Pillow always mixed columns first. The order matters where that is clipped.
    """
    x = images(shape, count=3)
    x[1] = np.where(x[1] > 127, 255, 0)
    x[2] = 64 + x[2] // 2
    same_order = int(PIL.__version__.split(".")[0]) >= 13
    # Each side is scaled by each factor; all shapes together have every pair of factors.
    turn = SHAPES.index(shape) % len(FACTORS)
    for down, across in zip(FACTORS, FACTORS[turn:] + FACTORS[:turn], strict=True):
        size = max(1, round(shape[0] * down)), max(1, round(shape[1] * across))
        out = apply(x, T.Resize(size, interpolation=interpolation))
        for number, (image, image_out) in enumerate(zip(x, out, strict=True)):
            np.testing.assert_array_equal(
                image_out, resized(image, size, interpolation=interpolation)
            )
            if number == 2 or same_order or interpolation == "bilinear":
                np.testing.assert_allclose(image_out, pillow(image, size, interpolation), atol=1)


def exact(image, size, interpolation):
    """Return all shares of all pixels, in float64."""
    kind, _ = FILTERS[interpolation]
    down, across = (
        reference.filter_matrix(before, after, kind, True)
        for before, after in zip(image.shape, size, strict=False)
    )
    pixels = image.reshape(*image.shape[:2], -1).astype(np.float64)
    return np.einsum("iy,jx,yxc->ijc", down, across, pixels).reshape(*size, *image.shape[2:])


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize(
    ("shape", "dtype", "tolerance"),
    [
        ((30, 23, 3), np.float32, 1e-5),
        ((23, 30, 4), np.float64, 1e-13),
        ((30, 23), np.float32, 1e-5),
    ],
)
def test_floats_are_resized_to_what_float64_gives(shape, dtype, tolerance, interpolation):
    x = images(shape, dtype) * dtype(1000)
    for size in [(7, 9), (11, 40), (45, 8), (50, 60)]:
        out = apply(x, T.Resize(size, interpolation=interpolation))
        for image, image_out in zip(x, out, strict=True):
            expected = exact(image, size, interpolation)
            largest = np.abs(image).max()
            np.testing.assert_allclose(image_out, expected, rtol=0, atol=tolerance * largest)


# Signed and unsigned, of both sizes, with each filter: the kernels, which mix 16 bits in float32 and 32 in float64, are
# compiled for every dtype anew.
@pytest.mark.parametrize(
    ("dtype", "interpolation"),
    [
        (np.uint16, "bilinear"),
        (np.int32, "bicubic"),
        *(
            pytest.param(dtype, interpolation, marks=pytest.mark.long)
            for dtype, interpolation in (
                (np.int16, "bicubic"),
                (np.int32, "bilinear"),
                (np.uint32, "bicubic"),
            )
        ),
    ],
)
def test_whole_numbers_of_full_range_are_rounded_to_the_nearest(dtype, interpolation):
    x = images((19, 16, 3), dtype)
    if np.dtype(dtype).kind == "i":
        x[:, ::2] *= -1
    for size in [(7, 5), (30, 9)]:
        out = apply(x, T.Resize(size, interpolation=interpolation))
        for image, image_out in zip(x, out, strict=True):
            np.testing.assert_array_equal(
                image_out, resized(image, size, interpolation=interpolation)
            )
            if interpolation == "bilinear":
                expected = exact(image, size, interpolation)
                np.testing.assert_allclose(image_out, expected, rtol=0, atol=0.51)


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.float32, pytest.param(np.uint16, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("size", [(7, 10), (7, 19), (13, 10), (20, 23)])
def test_where_nothing_shrinks_antialiasing_changes_nothing(size, dtype):
    x = images(dtype=dtype)
    for scaling in ([], [T.ToFloat()]):
        smooth = apply(x, T.Resize(size), *scaling)
        np.testing.assert_array_equal(smooth, apply(x, T.Resize(size, antialias=False), *scaling))


def test_every_sample_is_smoothed_as_its_own_window_demands():
    x = images((40, 40, 3), count=30)
    applied = Applied(x, T.RandomResizedCrop(16, scale=(0.05, 1.0)), T.RandomFlip(1.0))
    plain = apply(x, T.RandomResizedCrop(16, scale=(0.05, 1.0), antialias=False), T.RandomFlip(1.0))
    shrunk = 0
    for image, out, other, rng in zip(x, applied.out, plain, applied.draws(), strict=True):
        top, tall, _, left, wide, _ = random_resized_window(
            rng, 40, 40, 16, 16, 0.05, 1.0, 3 / 4, 4 / 3
        )
        np.testing.assert_array_equal(
            out, resized(image, (16, 16), (top, tall, left, wide))[:, ::-1]
        )
        shrunk += max(tall, wide) > 16
        assert np.array_equal(out, other) == (max(tall, wide) <= 16)
    assert 0 < shrunk < 30


@pytest.mark.parametrize("interpolation", FILTERS)
def test_resizing_to_the_same_size_changes_nothing(interpolation):
    x = images((7, 10, 3), np.float32)
    x[1, 3, 4], x[1, 5, 5] = np.nan, np.inf
    out = apply(x, T.Resize((7, 10), interpolation=interpolation))
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("interpolation", FILTERS)
def test_infinity_reaches_only_pixels_that_it_has_a_share_in(interpolation, dtype):
    x = images((24, 20, 3 if dtype == np.float32 else 4), dtype)
    x[:, 12, 9] = np.inf
    for size in [(24, 40), (7, 20), (6, 5), (30, 29)]:
        out = apply(x, T.Resize(size, interpolation=interpolation))
        kind, _ = FILTERS[interpolation]
        down, across = (
            np.abs(reference.filter_matrix(before, after, kind, True)) > 1e-12
            for before, after in zip((24, 20), size, strict=True)
        )
        touched = np.logical_and.outer(down[:, 12], across[:, 9])
        np.testing.assert_array_equal(
            ~np.isfinite(out), np.broadcast_to(touched[..., None], out.shape)
        )
    area = apply(x, T.Resize((8, 5), interpolation="area"))
    assert np.isinf(area[:, 4, 2]).all()
    assert np.isfinite(area).sum() == area.size - 5 * x.shape[3]


@pytest.mark.parametrize("debug", ["0", "1"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_means_of_areas_are_made_of_grey_images_as_of_those_of_one_channel(
    dtype, debug, monkeypatch
):
    monkeypatch.setenv("LOADERX_DEBUG", debug)
    x = images((24, 20), dtype=dtype)
    for size in ((8, 5), (7, 9), (30, 41)):
        op = T.Resize(size, interpolation="area")
        grey = apply(x, op)
        assert grey.shape == (len(x), *size)
        np.testing.assert_array_equal(grey, apply(x[..., None], op)[..., 0])


@pytest.mark.parametrize(
    ("shape", "options", "size"),
    [
        ((30, 40), {"shorter": 16}, (16, 21)),
        ((41, 30), {"shorter": 16}, (21, 16)),
        ((30, 40), {"longer": 16}, (12, 16)),
        ((41, 30), {"longer": 16}, (16, 11)),
        ((300, 2), {"longer": 16}, (16, 1)),
        ((30, 30), {"shorter": 7}, (7, 7)),
        ((30, 40), {"size": 16}, (16, 16)),
    ],
)
@pytest.mark.parametrize("interpolation", ["bilinear", "nearest", "area"])
def test_one_side_decides_the_other_as_in_torchvision(shape, options, size, interpolation):
    x = images((*shape, 3), count=2)
    op = T.Resize(**options, interpolation=interpolation)
    out = apply(x, op)
    assert out.shape == (2, *size, 3)
    np.testing.assert_array_equal(out, apply(x, T.Resize(size, interpolation=interpolation)))


def test_a_resize_is_shown_as_it_was_written():
    assert repr(T.Resize(8)) == "Resize(8)"
    assert repr(T.Resize(shorter=8, antialias=False)) == "Resize(shorter=8, antialias=False)"
    assert (
        repr(T.Resize((4, 5), interpolation="lanczos")) == "Resize((4, 5), interpolation='lanczos')"
    )


# Letter box


@pytest.mark.parametrize(
    ("shape", "size", "part"),
    [
        ((30, 40), 32, (4, 24, 0, 32)),
        ((40, 30), (32, 32), (0, 32, 4, 24)),
        ((30, 40), (20, 41), (0, 20, 7, 27)),
        ((10, 10), (15, 20), (0, 15, 2, 15)),
    ],
)
def test_a_letter_box_is_the_image_scaled_to_fit_in_the_middle(shape, size, part):
    x = images((*shape, 3))
    out = apply(x, T.LetterBox(size, fill=(1, 2, 3)))
    top, tall, left, wide = part
    tall_out, wide_out = out.shape[1:3]
    assert (tall_out, wide_out) == tuple(np.broadcast_to(size, 2))
    expected = np.broadcast_to(np.array([1, 2, 3], np.uint8), out.shape).copy()
    expected[:, top : top + tall, left : left + wide] = apply(x, T.Resize((tall, wide)))
    np.testing.assert_array_equal(out, expected)


def test_an_image_is_padded_if_needed():
    x = images()
    np.testing.assert_array_equal(apply(x, T.PadIfNeeded(7, 3)), x)
    out = apply(x, T.PadIfNeeded(10, 4, fill=9), T.ToFloat())
    padded = np.pad(x, [(0, 0), (1, 2), (0, 0), (0, 0)], constant_values=9)
    np.testing.assert_array_equal(out, padded.astype(np.float32) * np.float32(1 / 255))


@pytest.mark.parametrize(
    ("shape", "dtype", "size"), [((7, 10, 3), np.uint8, (4, 21)), ((7, 10), np.int32, (9, 3))]
)
def test_nearest_resizing_takes_the_pixels_that_pillow_takes(shape, dtype, size):
    x = images(shape, dtype)
    out = apply(x, T.Resize(size, interpolation="nearest"))
    rows = np.floor((np.arange(size[0]) + 0.5) * shape[0] / size[0]).astype(int)
    columns = np.floor((np.arange(size[1]) + 0.5) * shape[1] / size[1]).astype(int)
    # The published rule of "nearest-exact".
    np.testing.assert_array_equal(out, x[:, rows][:, :, columns])
    for image, image_out in zip(x, out, strict=True):
        pillows = Image.fromarray(image).resize(size[::-1], Image.Resampling.NEAREST)
        np.testing.assert_array_equal(image_out, np.asarray(pillows))


def test_resizing_by_area_is_that_of_opencv():
    x = images()
    out = apply(x, T.Resize((3, 5), interpolation="area"))
    for image, image_out in zip(x, out, strict=True):
        expected = opencv(image, (3, 5), cv2.INTER_AREA).astype(float)
        np.testing.assert_allclose(image_out, expected, atol=1)


# RandomResizedCrop


def test_a_random_resized_crop_is_the_crop_resized():
    x = images((16, 20, 3), count=30)
    applied = Applied(x, T.RandomResizedCrop((8, 6)))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        top, tall, _, left, wide, _ = random_resized_window(
            rng, 16, 20, 8, 6, 0.08, 1.0, 3 / 4, 4 / 3
        )
        np.testing.assert_array_equal(out, resized(image, (8, 6), (top, tall, left, wide)))
        part = np.ascontiguousarray(image[top : top + tall, left : left + wide])
        np.testing.assert_allclose(out, pillow(part, (8, 6), "bilinear"), atol=1)


def test_a_random_resized_crop_takes_whole_pixels_if_asked():
    x = images((16, 20), np.float32, count=30)
    applied = Applied(x, T.RandomResizedCrop(8, interpolation="nearest", scale=(0.2, 0.4)))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        top, tall, _, left, wide, _ = random_resized_window(
            rng, 16, 20, 8, 8, 0.2, 0.4, 3 / 4, 4 / 3
        )
        part = image[top : top + tall, left : left + wide]
        pillows = Image.fromarray(part).resize((8, 8), Image.Resampling.NEAREST)
        np.testing.assert_array_equal(out, np.asarray(pillows))


def windows_drawn(height, width, scale, ratio, count=2000):
    drawn = [
        random_resized_window(Draws(state), height, width, 8, 8, *scale, *ratio)
        for state in range(count)
    ]
    top, tall, upside, left, wide, mirrored = np.array(drawn).T
    assert not np.any(upside)
    assert not np.any(mirrored)
    return top, tall, left, wide


@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.25, 0.5), (0.3, 0.3)])
@pytest.mark.parametrize("ratio", [(3 / 4, 4 / 3), (0.5, 2.0), (1.0, 1.0)])
def test_parts_have_areas_and_ratios_within_their_ranges(scale, ratio):
    top, tall, left, wide = windows_drawn(400, 500, scale, ratio)
    # The sides are rounded to whole pixels.
    slack = 1 / tall + 1 / wide
    area = tall * wide / (400 * 500)
    assert np.all(area >= scale[0] * (1 - slack))
    assert np.all(area <= scale[1] * (1 + slack))
    assert np.all(wide / tall >= ratio[0] * (1 - slack))
    assert np.all(wide / tall <= ratio[1] * (1 + slack))
    assert np.all((top >= 0) & (top + tall <= 400) & (left >= 0) & (left + wide <= 500))
    # Anywhere it fits.
    for start, free in ((top, 400 - tall), (left, 500 - wide)):
        loose = free > 50
        assert stats.kstest(start[loose] / free[loose], "uniform").pvalue > 1e-4


def test_areas_are_uniform_and_ratios_uniform_in_their_logarithm():
    # So small that all of them fit.
    _, tall, _, wide = windows_drawn(4000, 4000, (0.01, 0.2), (0.5, 2.0))
    areas = stats.uniform(0.01, 0.19)
    assert stats.kstest(tall * wide / 4000**2, areas.cdf).pvalue > 0.001
    ratios = stats.uniform(math.log(0.5), math.log(4.0))
    assert stats.kstest(np.log(wide / tall), ratios.cdf).pvalue > 0.001


@pytest.mark.parametrize(
    ("height", "width", "part"),
    [(10, 1000, (0, 10, 493, 13)), (1000, 10, (493, 13, 0, 10)), (1, 1, (0, 1, 0, 1))],
)
def test_where_nothing_fits_the_largest_part_of_a_fitting_ratio_is_taken_from_the_middle(
    height, width, part
):
    found = set(zip(*windows_drawn(height, width, (1.0, 1.0), (3 / 4, 4 / 3), 20), strict=True))
    assert found == {part}


# Chains


def test_a_chain_of_crops_and_flips_is_one_after_the_other():
    x = images()
    out = apply(
        x,
        T.Pad(1, fill=9),
        T.RandomFlip(1.0),
        T.CenterCrop((8, 11)),
        T.RandomFlip(1.0, axis="vertical"),
        T.Normalize([0.4, 0.5, 0.6], [0.2, 0.3, 0.4]),
    )
    padded = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=9)
    expected = padded[:, :, ::-1][:, :8, :11][:, ::-1]
    np.testing.assert_array_equal(out, normalized(expected, [0.4, 0.5, 0.6], [0.2, 0.3, 0.4]))


def test_a_chain_with_a_resize_is_one_after_the_other():
    x = images()
    out = apply(
        x,
        T.RandomFlip(1.0),
        T.Resize((9, 6)),
        T.RandomFlip(1.0, axis="vertical"),
        T.Pad(1, fill=3),
        T.Pad(2, border="reflect"),
        T.Normalize(0.5, [0.1, 0.2, 0.3]),
    )
    # Reflected, the fill colour is between pixels.
    around = [(1, 1), (1, 1), (0, 0)], [(2, 2), (2, 2), (0, 0)]
    for image, image_out in zip(x, out, strict=True):
        expected = resized(image[:, ::-1], (9, 6))[::-1]
        expected = np.pad(np.pad(expected, around[0], constant_values=3), around[1], "reflect")
        np.testing.assert_array_equal(image_out, normalized(expected, 0.5, [0.1, 0.2, 0.3]))


CHAINS = {
    "pads of two colours": (
        [T.Pad(1, fill=9), T.Pad((2, 1), fill=1)],
        lambda x: np.pad(
            np.pad(x, [(1, 1), (1, 1), (0, 0)], constant_values=9),
            [(2, 2), (1, 1), (0, 0)],
            constant_values=1,
        ),
    ),
    "pads of two colours, one of them for each channel": (
        [T.Pad(1, fill=(9, 9, 1)), T.Pad((2, 1), fill=9), T.Pad(1, fill=[9.0, 9, 9])],
        lambda x: np.pad(
            np.concatenate(
                [
                    np.pad(x[..., :2], [(1, 1), (1, 1), (0, 0)], constant_values=9),
                    np.pad(x[..., 2:], [(1, 1), (1, 1), (0, 0)], constant_values=1),
                ],
                -1,
            ),
            [(3, 3), (2, 2), (0, 0)],
            constant_values=9,
        ),
    ),
    "a smaller part of a pad, and a larger one": (
        [T.Pad(1, fill=9), T.CenterCrop((8, 11)), T.CenterCrop((10, 11), fill=1), T.Resize((4, 5))],
        lambda x: resized(
            np.pad(
                np.pad(x, [(1, 1), (1, 1), (0, 0)], constant_values=9)[:8, :11],
                [(1, 1), (0, 0), (0, 0)],
                constant_values=1,
            ),
            (4, 5),
        ),
    ),
    "a part, shrunk, and shrunk by its edges": (
        [T.CenterCrop((5, 8)), T.Pad(2, border="edge"), T.Resize((3, 4)), T.RandomFlip(1.0)],
        lambda x: resized(np.pad(x[1:6, 1:9], [(2, 2), (2, 2), (0, 0)], "edge"), (3, 4))[:, ::-1],
    ),
    "bicubic after a flip": (
        [T.RandomFlip(1.0), T.Resize((3, 14), interpolation="bicubic"), T.Pad(1, fill=7)],
        lambda x: np.pad(
            resized(x[:, ::-1], (3, 14), interpolation="bicubic"),
            [(1, 1), (1, 1), (0, 0)],
            constant_values=7,
        ),
    ),
    "nearest after bilinear": (
        [T.Resize((8, 9)), T.Resize((4, 3), interpolation="nearest")],
        lambda x: resized(x, (8, 9))[1::2, 1::3],
    ),
    "bilinear after a pad, and again": (
        [T.Pad(1, fill=255), T.Resize((9, 6)), T.Resize((4, 5))],
        lambda x: resized(
            resized(np.pad(x, [(1, 1), (1, 1), (0, 0)], constant_values=255), (9, 6)), (4, 5)
        ),
    ),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_windows_that_cannot_be_one_pass_are_as_if_one_after_the_other(chain):
    ops, expected = CHAINS[chain]
    x = images()
    np.testing.assert_array_equal(apply(x, *ops), [expected(image) for image in x])


FUSED = [
    ([T.CenterCrop(6), T.RandomFlip(), T.Resize(4), T.RandomFlip(), T.Pad(1, fill=9), T.ToFloat()], 1),
    ([T.Pad(2, border="edge"), T.Resize(4, interpolation="bicubic"), T.CenterCrop(2), T.Normalize(0.5, 0.2)], 1),
    ([T.LetterBox((9, 20), fill=(1, 2, 3)), T.RandomFlip(), T.ToFloat()], 1),
    ([T.PadIfNeeded(5, 5, fill=9), T.Resize(4)], 1),
    ([T.Pad(1, fill=(3, 3, 3)), T.RandomCrop(4, pad=2, fill=3)], 1),
    # The fill colour is mixed with pixels next to it.
    ([T.PadIfNeeded(8, 5, fill=9), T.Resize(4)], 2),
    ([T.CenterCrop(8), T.Resize(4)], 2),
    ([T.Pad(1, fill=(3, 3, 4)), T.RandomCrop(4, pad=2, fill=3)], 2),
    ([T.Resize(4), T.Resize(3)], 2),
]  # fmt: skip


@pytest.mark.parametrize(("ops", "passes"), FUSED)
def test_windows_around_a_resize_are_one_pass_over_the_pixels(ops, passes):
    steps = [Step(op, number) for number, op in enumerate(ops)]
    assert len(_groups(steps, lx.Spec((7, 10, 3), np.uint8))) == passes


def test_columns_of_a_table_are_normalized_one_by_one_after_a_window_too():
    x = images((7, 10))
    out = apply(x, T.RandomFlip(1.0), T.Normalize(np.arange(10) / 10, 1.0))
    np.testing.assert_array_equal(out, normalized(np.flip(x, 2), np.arange(10) / 10, 1.0))


def test_a_mask_of_booleans_is_resized_to_booleans_whatever_follows():
    x = images((7, 10), np.bool)
    out = apply(x, T.Resize((4, 6)), T.ToFloat())
    expected = [resized(image.astype(np.uint8), (4, 6)) for image in x]
    np.testing.assert_array_equal(out, expected)


def test_a_random_chain_is_one_after_the_other_with_the_same_draws():
    x = images(count=30)
    applied = Applied(x, T.RandomCrop((7, 10), pad=3), T.RandomFlip(), T.ToFloat())
    for image, out, crop, flip in zip(
        x, applied.out, applied.draws(0), applied.draws(1), strict=True
    ):
        padded = np.pad(image, [(3, 3), (3, 3), (0, 0)])
        top, _, _, left, _, _ = crop_window(crop, 7, 10, 7, 10, 3, 3)
        part = padded[top + 3 : top + 10, left + 3 : left + 13]
        part = part[:, ::-1] if flip.random() < 0.5 else part
        np.testing.assert_array_equal(out, part.astype(np.float32) * np.float32(1 / 255))


# Fields that move together


def together(ops, **fields):
    loader = lx.DataLoader(
        fields,
        batch_size=5,
        shuffle=False,
        num_epochs=1,
        output="numpy",
        transforms={tuple(fields): ops},
    )
    return loader.batch(0)


def test_an_image_and_its_mask_show_the_same_window():
    x = images()
    ops = [T.RandomCrop((7, 10), pad=3), T.RandomFlip(), T.ToFloat()]
    out = together(ops, image=x, mask=x[..., 1].copy())
    np.testing.assert_array_equal(out["image"][..., 1], out["mask"] * np.float32(1 / 255))
    assert out["mask"].dtype == np.uint8
    assert not np.array_equal(out["mask"], x[..., 1])


@pytest.mark.parametrize(("size", "interpolation"), [((4, 21), "bilinear"), ((3, 5), "area")])
def test_labels_of_pixels_are_never_mixed(size, interpolation):
    x, labels = images(), images((7, 10), seed=1)
    out = together([T.Resize(size, interpolation=interpolation)], image=x, mask=labels)
    np.testing.assert_array_equal(
        out["image"], apply(x, T.Resize(size, interpolation=interpolation))
    )
    rows = (np.arange(size[0]) * 2 + 1) * 7 // (2 * size[0])
    columns = (np.arange(size[1]) * 2 + 1) * 10 // (2 * size[1])
    np.testing.assert_array_equal(out["mask"], labels[:, rows][:, :, columns])


@pytest.mark.parametrize(
    ("options", "label"),
    [({"fill": 9}, 0), ({"fill": (1, 2, 3)}, 0), ({"fill": (1, 2, 3), "fill_mask": 255}, 255), ({"fill_mask": 7}, 7)],
)  # fmt: skip
def test_labels_have_a_fill_of_their_own(options, label):
    x, labels = images(), images((7, 10), seed=1)
    for op in (
        T.Pad(2, **options),
        T.CenterCrop((11, 14), **options),
        T.PadIfNeeded(11, 14, **options),
    ):
        out = together([op], image=x, mask=labels)
        expected = np.pad(labels, [(0, 0), (2, 2), (2, 2)], constant_values=label)
        np.testing.assert_array_equal(out["mask"], expected)
        np.testing.assert_array_equal(out["image"], apply(x, op))
    boxed = together([T.LetterBox(20, **options)], image=x, mask=labels)
    assert np.all(boxed["mask"][:, :3] == label)
    rows, columns = np.arange(14) // 2, np.arange(20) // 2
    np.testing.assert_array_equal(boxed["mask"][:, 3:17], labels[:, rows][:, :, columns])


def test_fields_of_different_size_cannot_move_together():
    message = "RandomFlip: fields that move together must have the same height and width"
    with pytest.raises(lx.ArgumentError, match=message):
        together([T.RandomFlip()], image=images(), mask=images((7, 9)))


# Refusals


REFUSED = [
    (lambda: T.RandomCrop(0), "`size` (=0) must be an integer of at least 1, or two of them."),
    (lambda: T.RandomCrop((4, 0)), "`size` (=(4, 0)) must be an integer of at least 1"),
    (lambda: T.RandomCrop((4, 4, 4)), "`size` (=(4, 4, 4)) must be"),
    (lambda: T.RandomCrop(4.5), "`size` (=4.5) must be"),
    (lambda: T.RandomCrop(math.nan), "`size` (=nan) must be"),
    (lambda: T.RandomCrop((4, math.nan)), "`size` (=(4, nan)) must be"),
    (lambda: T.RandomCrop("32"), "`size` (='32') must be"),
    (lambda: T.RandomCrop(None), "`size` (=None) must be"),
    (lambda: T.RandomCrop(4, pad=-1), "`pad` (=-1) must be an integer of at least 0"),
    (lambda: T.RandomCrop(4, pad=math.nan), "`pad` (=nan) must be"),
    (lambda: T.RandomCrop(4, fill=math.nan), "`fill` (=nan) must be a finite number."),
    (lambda: T.RandomCrop(4, border="wrap"), "`border` (='wrap') must be one of 'fill', 'reflect', 'edge'."),
    (lambda: T.RandomCrop(4, fill=(1, "red", 2)), "`fill` (='red') must be a finite number."),
    (lambda: T.RandomCrop(4, fill=()), "`fill` (=()) must be a number, or one for each channel."),
    (lambda: T.RandomCrop(4, fill_mask=math.nan), "`fill_mask` (=nan) must be a finite number."),
    (lambda: T.PadIfNeeded(0, 4), "`height` (=0) must be an integer of at least 1."),
    (lambda: T.PadIfNeeded(4, 4.5), "`width` (=4.5) must be an integer of at least 1."),
    (lambda: T.LetterBox(0), "`size` (=0) must be"),
    (lambda: T.LetterBox(4, interpolation="area"), "`interpolation` (='area') must be"),
    (lambda: T.Resize(), "`size` (=None) must be"),
    (lambda: T.Resize(shorter=4.5), "`shorter` (=4.5) must be an integer of at least 1."),
    (lambda: T.Resize(longer=(4, 5)), "`longer` (=(4, 5)) must be an integer of at least 1."),
    (lambda: T.Resize(4, longer=5), "Resize accepts one of `size`, `shorter` and `longer`, got `size` (=4), "),
    (lambda: T.CenterCrop(0), "`size` (=0) must be"),
    (lambda: T.CenterCrop(math.nan), "`size` (=nan) must be"),
    (lambda: T.Pad(-1), "`amount` (=-1) must be one, two or four integers of at least 0."),
    (lambda: T.Pad((1, 2, 3)), "`amount` (=(1, 2, 3)) must be"),
    (lambda: T.Pad(math.nan), "`amount` (=nan) must be"),
    (lambda: T.Pad((1, 0.5)), "`amount` (=(1, 0.5)) must be"),
    (lambda: T.Pad(1, fill=math.inf), "`fill` (=inf) must be a finite number."),
    (lambda: T.Pad(0, border="mirror"), "`border` (='mirror') must be one of"),
    (lambda: T.RandomFlip(2), "`probability` (=2) must be from 0 to 1."),
    (lambda: T.RandomFlip(-0.1), "`probability` (=-0.1) must be from 0 to 1."),
    (lambda: T.RandomFlip(math.nan), "`probability` (=nan) must be from 0 to 1."),
    (lambda: T.RandomFlip("often"), "`probability` (='often') must be from 0 to 1."),
    (lambda: T.RandomFlip(axis="both"), """`axis` (='both') must be "horizontal" or "vertical"."""),
    (lambda: T.Resize(0), "`size` (=0) must be"),
    (lambda: T.Resize((math.nan, 4)), "`size` (=(nan, 4)) must be"),
    (lambda: T.Resize(0, interpolation="area"), "`size` (=0) must be"),
    (lambda: T.Resize(4, interpolation="cubic"), "`interpolation` (='cubic') must be"),
    (lambda: T.RandomResizedCrop(0), "`size` (=0) must be"),
    (lambda: T.RandomResizedCrop(4, scale=(0, 1)), "`scale` (=(0, 1)) must be two finite numbers with 0 < low"),
    (lambda: T.RandomResizedCrop(4, scale=(0.5, 1.1)), "must be two finite numbers with 0 < low <= high <= 1."),
    (lambda: T.RandomResizedCrop(4, scale=(0.9, 0.1)), "`scale` (=(0.9, 0.1)) must be"),
    (lambda: T.RandomResizedCrop(4, scale=(math.nan, 1)), "`scale` (=(nan, 1)) must be"),
    (lambda: T.RandomResizedCrop(4, scale=(0.1, math.nan)), "`scale` (=(0.1, nan)) must be"),
    (lambda: T.RandomResizedCrop(4, scale=0.5), "`scale` (=0.5) must be two"),
    (lambda: T.RandomResizedCrop(4, ratio=(0, 1)), "`ratio` (=(0, 1)) must be two finite numbers with 0 <"),
    (lambda: T.RandomResizedCrop(4, ratio=(1, math.inf)), "must be two finite numbers with 0 < low <= high."),
    (lambda: T.RandomResizedCrop(4, ratio=(1, math.nan)), "`ratio` (=(1, nan)) must be"),
    (lambda: T.RandomResizedCrop(4, interpolation="area"), "`interpolation` (='area') must be"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_that_cannot_work_are_refused_at_once(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()


MISFITS = [
    (T.RandomCrop(8), "uint8", "RandomCrop: `size` (=(8, 8)) must not exceed the image with its padding, (7, 10); the"),
    (T.RandomCrop(8), "uint8", "the input is uint8[7, 10, 3]."),
    (T.RandomCrop((7, 13), pad=1), "uint8", "`size` (=(7, 13)) must not exceed the image with its padding, (9, 12)"),
    (T.CenterCrop((7, 11), fill=256), "uint8", "CenterCrop: `fill` (=256.0) must be a value of uint8; the input is"),
    (T.Pad(1, fill=(1, 2)), "uint8", "Pad: `fill` (=(1.0, 2.0)) must be one number, or one for each of the 3 "),
    (T.LetterBox(20, fill=256), "uint8", "LetterBox: `fill` (=256.0) must be a value of uint8"),
    (T.Pad(1, fill=(1, 2, 256)), "uint8", "Pad: `fill` (=256.0) must be a value of uint8"),
    (T.Resize(4, interpolation="lanczos"), "float16", "Resize accepts integers, float32 or float64"),
    (T.Pad(1, fill=256), "uint8", "Pad: `fill` (=256.0) must be a value of uint8; the input is uint8[7, 10, 3]."),
    (T.Pad(1, fill=-1), "uint8", "Pad: `fill` (=-1.0) must be a value of uint8"),
    (T.Pad(1, fill=0.5), "uint8", "Pad: `fill` (=0.5) must be a value of uint8"),
    (T.Pad(1, fill=2), "bool", "Pad: `fill` (=2.0) must be a value of bool"),
    (T.Pad(1, fill=1e39), "float32", "Pad: `fill` (=1e+39) must be a value of float32"),
    (T.RandomCrop(4, pad=1, fill=999), "uint8", "RandomCrop: `fill` (=999.0) must be a value of uint8"),
    (T.Resize(4), "float16", "Resize accepts integers, float32 or float64, not float16[7, 10, 3]."),
    (T.Resize(4), "complex64", "Resize accepts integers, float32 or float64, not complex64[7, 10, 3]."),
    (T.Resize(4, interpolation="area"), "float16", "Resize accepts integers, float32 or float64"),
    (T.RandomResizedCrop(4), "float16", "RandomResizedCrop accepts integers, float32 or float64"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "dtype", "message"), MISFITS)
def test_samples_that_do_not_fit_are_refused_with_the_op_and_their_spec(op, dtype, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        lx.pipeline([op])(np.zeros((2, 7, 10, 3), dtype))


EVERY_OP = [
    T.RandomCrop(1),
    T.CenterCrop(1),
    T.Pad(1),
    T.RandomFlip(),
    T.Resize(1),
    T.Resize(1, interpolation="area"),
    T.Resize(shorter=1),
    T.RandomResizedCrop(1),
    T.LetterBox(1),
    T.PadIfNeeded(1, 1),
]


@pytest.mark.parametrize("op", EVERY_OP, ids=repr)
@pytest.mark.parametrize("shape", [(), (7,), (1, 7, 10, 3), (7, 0, 3)])
def test_every_op_refuses_samples_that_are_not_images(op, shape):
    with pytest.raises(lx.ArgumentError, match=rf"{op.name} .*accepts .*not uint8\[") as caught:
        lx.pipeline([op])(np.zeros((2, *shape), np.uint8), batch=True)
    assert "op 0 of `transforms`" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("value", ["no", None, 1])
@pytest.mark.parametrize(
    "make",
    [T.Resize, T.RandomResizedCrop, T.LetterBox, lambda *_, **options: T.MultiCrop(**options)],
)
def test_antialiasing_is_on_or_off(make, value):
    with pytest.raises(
        lx.ArgumentError, match=f"`antialias` \\(={value!r}\\) must be True or False"
    ):
        make(8, antialias=value)
