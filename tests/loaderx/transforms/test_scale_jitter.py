"""Scale jitter: a random scale, Pillow's pixels, and one size for all."""

import re

import numpy as np
import pytest
from PIL import Image

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.loaderx.transforms.images import Applied, apply, images

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "lanczos": Image.Resampling.LANCZOS}


def window(draws, size, wanted, low, high):
    """Return the visible part of an image, and its size then, by the rule of the docstring."""
    factor = draws.uniform(low, high) * min(wanted[0] / size[0], wanted[1] / size[1])
    found = []
    for whole, most in zip(size, wanted, strict=True):
        scaled, extent = max(1, round(whole * factor)), whole
        if scaled > most:
            extent, scaled = min(whole, max(1, round(most / factor))), most
        found += [int(draws.integers(0, whole - extent + 1)), extent, scaled]
    return found


@pytest.mark.parametrize("interpolation", FILTERS)
def test_parts_are_scaled_as_pillow_does_and_the_rest_is_filled(interpolation):
    size, wanted = (37, 50), (30, 24)
    x = images((*size, 3), count=24)
    applied = Applied(
        x, T.ScaleJitter(wanted, (0.1, 2.0), fill=(9, 8, 7), interpolation=interpolation)
    )
    padded = cropped = 0
    for image, out, draws in zip(x, applied.out, applied.draws(), strict=True):
        top, tall, down, left, wide, across = window(draws, size, wanted, 0.1, 2.0)
        part = Image.fromarray(image[top : top + tall, left : left + wide])
        expected = np.full((*wanted, 3), (9, 8, 7), np.uint8)
        expected[:down, :across] = part.resize((across, down), FILTERS[interpolation])
        np.testing.assert_allclose(out, expected.astype(float), atol=1)
        padded += (down, across) != wanted
        cropped += (tall, wide) != size
    assert padded > 5
    assert cropped > 5


def test_scales_are_drawn_evenly():
    x = np.full((600, 40, 40, 1), 255, np.uint8)
    out = apply(x, T.ScaleJitter(100, (0.2, 0.8)))
    sides = (out[:, :, 0, 0] > 0).sum(axis=1)
    np.testing.assert_allclose(np.histogram(sides, 3, (20, 80))[0], 200, atol=45)


def test_the_largest_scale_shows_a_part_of_the_image_anywhere():
    x = np.tile(np.arange(200, dtype=np.uint8)[:, None, None], (300, 1, 200, 3))
    out = apply(x, T.ScaleJitter(20, (10.0, 10.0), interpolation="nearest"))
    assert (np.ptp(out[..., 0], axis=1) == 19).all()
    tops = out[:, 0, 0, 0]
    assert tops.min() < 10
    assert tops.max() > 170


def test_labels_values_boxes_and_keypoints_follow():
    size, wanted = (40, 48), (32, 32)
    image = np.zeros((40, *size, 3), np.uint8)
    image[:, 10:30, 12:36] = 200
    data = {
        "image": image,
        "mask": (image[..., 0] // 100 + 3).astype(np.int32),
        "depth": image[..., 0].astype(np.float32),
        "boxes": np.tile(np.array([12, 10, 36, 30], np.float32), (40, 1, 1)),
        "keypoints": np.tile(np.array([24, 20], np.float32), (40, 1, 1)),
    }
    ops = [T.ScaleJitter(wanted, (0.3, 2.5), fill=7, fill_mask=255)]
    loader = lx.DataLoader(data, batch_size=40, transforms={tuple(data): ops}, output="numpy")
    batch = loader.batch(0)
    assert set(np.unique(batch["mask"])) == {3, 5, 255}
    assert batch["boxes_valid"].all()
    for number in range(40):
        labels, box = batch["mask"][number], batch["boxes"][number, 0]
        rows, columns = np.nonzero(labels == 5)
        seen = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        np.testing.assert_allclose(box, seen, atol=1)
        filled = labels == 255
        assert (batch["image"][number][filled] == 7).all()
        assert (batch["depth"][number][filled] == 0).all()
        (across, down), valid = batch["keypoints"][number, 0], batch["keypoints_valid"][number, 0]
        assert valid == (0 <= across < 32 and 0 <= down < 32)
        if valid:
            assert labels[int(down), int(across)] == 5


def test_points_in_the_padding_are_not_in_the_image():
    data = {
        "image": np.zeros((1, 20, 20, 3), np.uint8),
        "boxes": np.array([[[15, 15, 40, 40], [22, 22, 30, 30]]], np.float32),
    }
    ops = [T.ScaleJitter(40, (0.5, 0.5))]
    batch = lx.DataLoader(data, batch_size=1, transforms={tuple(data): ops}, output="numpy").batch(
        0
    )
    np.testing.assert_array_equal(batch["boxes"][0], [[15, 15, 20, 20], [0, 0, 0, 0]])
    np.testing.assert_array_equal(batch["boxes_valid"][0], [True, False])


def test_windows_after_it_and_a_scaling_are_the_same_in_one_pass():
    x = images((20, 31, 3), count=8)
    jitter = T.ScaleJitter((18, 16), fill=30)
    ops = [jitter, T.RandomFlip(1.0), T.Pad(1, fill=30), T.Normalize(0.5, 0.25)]
    one_by_one = apply(x, jitter)[:, :, ::-1]
    one_by_one = np.pad(one_by_one, [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=30)
    np.testing.assert_allclose(apply(x, *ops), (one_by_one / 255 - 0.5) / 0.25, atol=0.01)
    # Windows before it, which show another colour, come first.
    before = apply(apply(x, T.Pad(2, fill=90)), jitter)
    np.testing.assert_array_equal(
        apply(x, T.Pad(2, fill=90), T.Identity(), jitter).shape, before.shape
    )


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 30, 1), (50, 2, 1)])
def test_any_shape_becomes_the_size(shape):
    for interpolation in ("bilinear", "nearest"):
        for dtype in (np.uint8, np.float32):
            x = np.full((6, *shape), 1, dtype)
            out = apply(x, T.ScaleJitter((7, 5), (0.01, 3.0), interpolation=interpolation))
            assert out.shape == (6, 7, 5, *shape[2:])
            assert out.dtype == dtype
            np.testing.assert_allclose(out[:, 0, 0], 1, atol=1e-6)
            np.testing.assert_allclose(out, out > 0.5, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.ScaleJitter(0), "`size` (=0) must be an integer of at least 1, or two of them."),
        (
            lambda: T.ScaleJitter(8, (0, 1)),
            "`scale` (=(0, 1)) must be two finite numbers with 0 < low <= high.",
        ),
        (lambda: T.ScaleJitter(8, interpolation="area"), "`interpolation` (='area') must be"),
        (lambda: T.ScaleJitter(8, antialias=1), "`antialias` (=1) must be True or False."),
        (
            lambda: apply(images(), T.ScaleJitter(8, fill=300)),
            "`fill` (=300.0) must be a value of uint8",
        ),
        (
            lambda: apply(images(), T.ScaleJitter(8, fill=(1, 2))),
            "must be one number, or one for each of the 3",
        ),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()
