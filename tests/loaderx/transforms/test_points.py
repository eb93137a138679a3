"""Boxes and keypoints next to an image move with its pixels, and say whether they are still in it."""

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it

HEIGHT, WIDTH = 24, 32
BOXES_MESSAGE = (
    "field 'boxes' must be float32[n, 4] to follow an image, (left, top, right, bottom) and further columns, if any, "
    "not float32[3, 3]."
)


def marked_images(count=64, seed=0):
    """Return black images with one white rectangle each, its box, and a keypoint in the middle of it."""
    rng = np.random.default_rng(seed)
    image = np.zeros((count, HEIGHT, WIDTH, 3), np.uint8)
    boxes = np.zeros((count, 2, 4), np.float32)
    for number in range(count):
        top, left = rng.integers(2, HEIGHT - 10), rng.integers(2, WIDTH - 10)
        tall, wide = rng.integers(4, 8, 2)
        image[number, top : top + tall, left : left + wide] = 255
        boxes[number, 0] = left, top, left + wide, top + tall
    keypoints = (boxes[:, :1, :2] + boxes[:, :1, 2:]) / 2
    return {"image": image, "boxes": boxes, "keypoints": keypoints}


def found_box(image):
    """Return the box around what is white in an image, or None."""
    rows, columns = np.nonzero(image.max(axis=-1) > 127)
    if len(rows) == 0:
        return None
    return np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])


def moved(*ops, data=None, count=64, fields=("image", "boxes"), **options):
    data = marked_images(count) if data is None else data
    return lx.DataLoader(
        data, batch_size=count, transforms={fields: list(ops)}, output="numpy", **options
    ).batch(0)


def assert_boxes_fit(batch, tolerance):
    """Check that every box is around the white part of its image, and that a box without any is not valid."""
    seen = 0
    for image, boxes, valid in zip(
        batch["image"], batch["boxes"], batch["boxes_valid"], strict=True
    ):
        found = found_box(image)
        if found is None:
            # Less than half a pixel of it may be left.
            assert not valid[0] or np.min(boxes[0, 2:] - boxes[0, :2]) <= tolerance
        else:
            assert valid[0]
            np.testing.assert_allclose(boxes[0], found, atol=tolerance)
            seen += 1
        assert not valid[1]
        np.testing.assert_array_equal(boxes[1], np.zeros(4))
    assert seen > len(batch["image"]) // 2


def test_boxes_follow_crops_flips_pads_and_their_chains_exactly():
    ops = [
        T.RandomCrop((16, 24)),
        T.RandomFlip(),
        T.Pad((1, 2, 3, 0)),
        T.RandomFlip(axis="vertical"),
    ]
    batch = moved(*ops)
    assert batch["boxes"].shape == (64, 2, 4)
    assert batch["boxes_valid"].dtype == np.bool_
    assert_boxes_fit(batch, 0)


def test_boxes_follow_whatever_changes_sizes():
    ops = [T.Resize((12, 16), interpolation="area"), T.Resize((48, 64))]
    assert_boxes_fit(moved(*ops, T.RandomResizedCrop(40, scale=(0.5, 1.0))), 4)


def test_boxes_follow_padding_to_a_size_exactly():
    assert_boxes_fit(moved(T.PadIfNeeded(29, 12), T.CenterCrop((25, 40)), T.RandomFlip()), 0)


def test_boxes_follow_letter_boxes_and_smoothed_images():
    # A pixel that is half covered is white or is not.
    assert_boxes_fit(moved(T.LetterBox((60, 64))), 1.5)
    for interpolation in ("bilinear", "bicubic"):
        assert_boxes_fit(moved(T.Resize(shorter=18, interpolation=interpolation)), 1)


def test_boxes_follow_quarter_turns_exactly():
    batch = moved(T.CenterCrop(24), T.Rot90(), T.Transpose())
    assert_boxes_fit(batch, 0)


def test_boxes_follow_affine_and_projective_maps():
    # The box around a turned rectangle is larger than what is white of it, by up to its corners.
    affine = T.Affine(translate_x=0.1, translate_y=0.1, scale=(0.8, 1.2), shear_x=5)
    assert_boxes_fit(moved(T.OneOf(affine, T.Perspective(0.3))), 2.5)


def test_keypoints_follow_and_lose_their_validity_outside():
    ops = [T.Rotate(40), T.RandomCrop((16, 20)), T.RandomFlip()]
    batch = moved(*ops, fields=("image", "keypoints"))
    inside = 0
    for image, point, valid in zip(
        batch["image"], batch["keypoints"][:, 0], batch["keypoints_valid"][:, 0], strict=True
    ):
        across, down = point
        assert valid == (0 <= across < 20 and 0 <= down < 16)
        if valid and 1 <= across < 19 and 1 <= down < 15:
            assert image[int(down), int(across), 0] > 127
            inside += 1
    assert 10 < inside < 64


def test_boxes_follow_elastic_fields():
    assert_boxes_fit(moved(T.ElasticDeform(1.0, 12)), 1.5)


def test_boxes_follow_grids_lenses_and_scales():
    assert_boxes_fit(moved(T.GridDistortion(3, 0.4)), 1.5)
    assert_boxes_fit(moved(T.OpticalDistortion((-0.3, 0.3))), 1.5)
    assert_boxes_fit(moved(T.ScaleJitter((30, 40), (0.8, 1.6))), 1.5)


def test_keypoints_follow_elastic_fields_to_a_part_of_a_pixel():
    data = {
        "image": np.zeros((32, 64, 64, 3), np.uint8),
        "keypoints": np.random.default_rng(0).uniform(16, 48, (32, 1, 2)).astype(np.float32),
    }
    # A spot whose weight is at the keypoint, after it was moved, too.
    places = np.arange(64) + 0.5
    for image, (across, down) in zip(data["image"], data["keypoints"][:, 0], strict=True):
        distance = (places[:, None] - down) ** 2 + (places - across) ** 2
        image[...] = (255 * np.exp(-distance / 4))[..., None]
    fields = ("image", "keypoints")
    batch = moved(T.ElasticDeform(2.0, 32), data=data, count=32, fields=fields, shuffle=False)
    for image, (across, down) in zip(batch["image"], batch["keypoints"][:, 0], strict=True):
        weights = image[..., 0].astype(float) ** 2
        found = np.array([(weights * places).sum(), (weights * places[:, None]).sum()])
        np.testing.assert_allclose((across, down), found / weights.sum(), atol=0.25)
    assert np.abs(data["keypoints"] - batch["keypoints"]).max() > 2
    assert batch["keypoints_valid"].all()


def test_points_follow_their_image_through_policies():
    ops = [T.Maybe(0.5, T.RandomFlip(1)), T.OneOf(T.RandomCrop((24, 32), pad=4), T.Invert(0.0))]
    assert_boxes_fit(moved(*ops), 0)


def test_ops_on_values_leave_points_alone():
    data = marked_images()
    fields = ("image", "boxes", "keypoints")
    batch = moved(T.Brightness(0.0), T.ToFloat(), data=data, fields=fields, shuffle=False)
    np.testing.assert_array_equal(batch["boxes"], data["boxes"])
    np.testing.assert_array_equal(batch["keypoints"], data["keypoints"])
    np.testing.assert_array_equal(batch["boxes_valid"], np.tile([True, False], (64, 1)))


def test_ops_on_boxes_alone_come_when_they_are_written():
    data = marked_images(8)

    @lx.transform
    def in_fractions(x, height, width):
        for k in range(x.shape[0]):
            x[k, 0] /= width
            x[k, 2] /= width
            x[k, 1] /= height
            x[k, 3] /= height

    loader = lx.DataLoader(
        data,
        batch_size=8,
        shuffle=False,
        output="numpy",
        transforms={
            ("image", "boxes"): [T.RandomFlip(1)],
            "boxes": [in_fractions(height=HEIGHT, width=WIDTH)],
        },
    )
    batch = loader.batch(0)
    left, top, right, bottom = data["boxes"][:, 0].T
    expected = np.stack(
        [(WIDTH - right) / WIDTH, top / HEIGHT, (WIDTH - left) / WIDTH, bottom / HEIGHT], axis=1
    )
    np.testing.assert_allclose(batch["boxes"][:, 0], expected, rtol=1e-6)
    assert batch["boxes_valid"].shape == (8, 2)


def test_debug_mode_moves_points_alike(monkeypatch):
    ops = [T.Maybe(0.5, T.RandomFlip(1)), T.Rotate(30), T.ElasticDeform(), T.RandomCrop((16, 20))]
    compiled = moved(*ops, count=8)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    plain = moved(*ops, count=8)
    for name, values in compiled.items():
        np.testing.assert_array_equal(plain[name], values, err_msg=name)


@lx.transform
def brightened(x):
    for i in range(x.shape[0]):
        x[i] += 1


@pytest.mark.parametrize(
    ("fields", "ops", "message"),
    [
        (
            {"boxes": np.zeros((4, 3, 3), np.float32)},
            [T.RandomFlip()],
            BOXES_MESSAGE,
        ),
        (
            {"keypoints": np.zeros((4, 3, 2))},
            [T.RandomFlip()],
            "field 'keypoints' must be float32[n, 2] to follow an image, (x, y) in pixels, not float64[3, 2].",
        ),
        (
            {"boxes": np.zeros((4, 3, 4), np.float32)},
            [brightened],
            "brightened cannot move boxes or keypoints along with an image.",
        ),
        (
            {"boxes": np.zeros((4, 3, 4), np.float32)},
            [T.ToFloat(), T.MixUp()],
            "MixUp cannot mix boxes or keypoints ('boxes').",
        ),
        (
            {"boxes": np.zeros((4, 3, 4), np.float32), "boxes_valid": np.zeros(4)},
            [T.RandomFlip()],
            "`transforms` makes a field 'boxes_valid' of 'boxes', and there is one already.",
        ),
    ],
)
def test_fields_that_cannot_follow_are_refused(fields, ops, message):
    data = {"image": np.zeros((4, 8, 8, 3), np.uint8), **fields}
    with pytest.raises(lx.ArgumentError) as caught:
        lx.DataLoader(data, batch_size=4, transforms={("image", next(iter(fields))): ops})
    assert str(caught.value) == message
