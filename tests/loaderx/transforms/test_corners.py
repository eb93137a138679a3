"""FiveCrop and TenCrop are those of torchvision, as views."""

import re

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.loaderx.transforms.images import images


def five(x, tall, wide):
    """Return the crops in the order of torchvision: left upper, right upper, left lower, right lower, centre."""
    height, width = x.shape[1:3]
    top, left = (height - tall) // 2, (width - wide) // 2
    return [
        x[:, :tall, :wide],
        x[:, :tall, width - wide :],
        x[:, height - tall :, :wide],
        x[:, height - tall :, width - wide :],
        x[:, top : top + tall, left : left + wide],
    ]


def batch_of(data, transforms):
    options = {"batch_size": 5, "shuffle": False, "output": "numpy"}
    return lx.DataLoader(data, transforms=transforms, **options).batch(0)


def test_five_views_are_the_corners_and_the_centre():
    x = images((9, 14, 3))
    batch = batch_of({"image": x, "label": np.arange(5)}, {"image": [T.FiveCrop((4, 6))]})
    assert list(batch) == ["label", *(f"image_{k}" for k in range(5))] or set(batch) == {
        "label", *(f"image_{k}" for k in range(5))
    }  # fmt: skip
    for number, expected in enumerate(five(x, 4, 6)):
        np.testing.assert_array_equal(batch[f"image_{number}"], expected)


@pytest.mark.parametrize(
    ("axis", "mirrored"), [("horizontal", np.s_[:, :, ::-1]), ("vertical", np.s_[:, ::-1])]
)
def test_ten_views_are_those_of_the_image_and_of_the_mirrored_one(axis, mirrored):
    x = images((9, 14))
    batch = batch_of({"image": x}, {"image": [T.TenCrop(5, axis=axis)]})
    views = five(x, 5, 5) + five(x[mirrored], 5, 5)
    for number, expected in enumerate(views):
        np.testing.assert_array_equal(batch[f"image_{number}"], expected)
    assert len(batch) == 10


def test_ops_come_after_every_crop_and_draw_anew():
    x = np.full((5, 8, 8, 1), 100, np.uint8)
    batch = batch_of({"image": x}, {"image": [T.FiveCrop(4, [T.Brightness(0.5), T.ToFloat()])]})
    assert len({float(batch[f"image_{number}"][0].mean()) for number in range(5)}) == 5
    assert batch["image_0"].dtype == np.float32


def test_masks_and_boxes_follow():
    x = images((8, 10, 3))
    data = {
        "image": x,
        "mask": (x[..., 0] // 50).astype(np.uint8),
        "boxes": np.tile(np.array([6, 5, 10, 8], np.float32), (5, 1, 1)),
    }
    batch = batch_of(data, {tuple(data): [T.FiveCrop((4, 5))]})
    for number, expected in enumerate(five(data["mask"], 4, 5)):
        np.testing.assert_array_equal(batch[f"mask_{number}"], expected)
    np.testing.assert_array_equal(batch["boxes_3"][0, 0], [1, 1, 5, 4])
    np.testing.assert_array_equal(
        [batch[f"boxes_{k}_valid"][0, 0] for k in range(5)], [False, False, False, True, True]
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.FiveCrop(0), "`size` (=0) must be an integer of at least 1"),
        (lambda: T.TenCrop(4, axis="both"), "`axis` (='both') must be"),
        (
            lambda: batch_of({"image": images((4, 9, 3))}, {"image": [T.FiveCrop(5)]}),
            "FiveCrop: `size` (=(5, 5)) must not exceed the image, (4, 9)",
        ),
        (
            lambda: batch_of({"image": images((4, 9, 3))}, {"image": [T.TenCrop(5)]}),
            "TenCrop: `size` (=(5, 5)) must not exceed the image",
        ),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()
