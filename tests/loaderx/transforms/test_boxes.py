"""Formats of boxes, columns that travel with them, and how much of a box must be left."""

import pickle

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it

HEIGHT, WIDTH = 24, 32
FORMATS = ("xyxy", "xywh", "cxcywh")


def corners(count=16, seed=0):
    """Return two boxes for each of some images, (left, top, right, bottom), and a row of padding."""
    rng = np.random.default_rng(seed)
    found = np.zeros((count, 3, 4))
    for place in (0, 1):
        ends = np.sort(rng.uniform(0, 1, (count, 2, 2)), axis=1) * [WIDTH, HEIGHT]
        found[:, place] = ends.reshape(count, 4)
    return found


def written_as(boxes, form, size=None):
    """Convert boxes of (left, top, right, bottom) to another format; to fractions of a size (height, width), if any."""
    low, high = boxes[..., :2], boxes[..., 2:]
    first = {"xyxy": low, "xywh": low, "cxcywh": (low + high) / 2}[form]
    second = high if form == "xyxy" else high - low
    found = np.concatenate([first, second], axis=-1)
    return found if size is None else found / [size[1], size[0], size[1], size[0]]


def batch_of(boxes, *ops, kinds=None, count=16, **fields):
    data = {"image": np.zeros((count, HEIGHT, WIDTH, 3), np.uint8), "bboxes": boxes, **fields}
    loader = lx.DataLoader(
        {name: np.asarray(rows) for name, rows in data.items()},
        batch_size=count,
        shuffle=False,
        transforms={("image", "bboxes"): list(ops)},
        kinds=kinds,
        output="numpy",
    )
    return loader.batch(0)


OPS = [T.RandomCrop((20, 25)), T.RandomFlip(), T.Resize((50, 30)), T.Normalize(0.5, 0.5)]


@pytest.fixture(scope="module")
def expected():
    """Return the corners in pixels after the ops."""
    return batch_of(corners().astype(np.float32), *OPS)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("form", FORMATS)
def test_boxes_come_back_in_their_format_and_as_fractions_of_the_new_size(
    form, normalized, expected
):
    given = written_as(corners(), form, (HEIGHT, WIDTH) if normalized else None)
    kinds = {"bboxes": T.Boxes(form, normalized=normalized)}
    batch = batch_of(given.astype(np.float32), *OPS, kinds=kinds)
    wanted = written_as(expected["bboxes"], form, (50, 30) if normalized else None)
    np.testing.assert_allclose(batch["bboxes"], wanted, atol=1e-4)
    np.testing.assert_array_equal(batch["bboxes_valid"], expected["bboxes_valid"])
    assert expected["bboxes_valid"][:, :2].mean() > 0.7


@pytest.mark.parametrize(
    ("name", "form", "normalized"),
    [
        ("pascal_voc", "xyxy", False),
        ("coco", "xywh", False),
        ("yolo", "cxcywh", True),
        ("albumentations", "xyxy", True),
    ],
)
def test_formats_of_others_are_known_by_their_names(name, form, normalized):
    own, same = T.Boxes(name), T.Boxes(form, normalized=normalized)
    assert (own.code, own.is_normalized) == (same.code, same.is_normalized)


def test_a_format_without_ops_that_move_gives_the_same_boxes():
    given = written_as(corners(), "cxcywh", (HEIGHT, WIDTH)).astype(np.float32)
    batch = batch_of(given, T.Invert(), kinds={"bboxes": T.Boxes("yolo")})
    np.testing.assert_allclose(batch["bboxes"], given, atol=1e-7)


def test_channels_first_does_not_change_what_boxes_are_fractions_of():
    given = written_as(corners(), "xyxy", (HEIGHT, WIDTH)).astype(np.float32)
    kinds = {"bboxes": T.Boxes("albumentations")}
    first = T.Normalize(0.5, 0.5, channels_first=True)
    for ops in ([T.Resize((9, 50)), first], [first], [T.Sequence(T.Resize((9, 50)), first)]):
        batch = batch_of(given, *ops, kinds=kinds)
        assert batch["image"].shape[1] == 3
        np.testing.assert_allclose(batch["bboxes"], given, atol=1e-6)


def test_views_give_boxes_as_fractions_of_their_own_sizes():
    given = written_as(corners(), "cxcywh", (HEIGHT, WIDTH)).astype(np.float32)
    views = T.Views([[T.Resize((10, 50))], [T.Pad((HEIGHT, 0, 0, 0))]])
    batch = batch_of(given, T.RandomFlip(0.0), views, kinds={"bboxes": T.Boxes("yolo")})
    np.testing.assert_allclose(batch["bboxes_0"], given, atol=1e-6)
    valid = batch["bboxes_1_valid"]
    np.testing.assert_array_equal(valid, batch["bboxes_0_valid"])
    lower = given * [1, 0.5, 1, 0.5] + [0, 0.5, 0, 0]
    np.testing.assert_allclose(batch["bboxes_1"][valid], lower[valid], atol=1e-6)


def test_further_columns_travel_along(expected):
    numbers = np.arange(16 * 3 * 2, dtype=np.float32).reshape(16, 3, 2) + 1
    given = np.concatenate([corners(), numbers], axis=2).astype(np.float32)
    given[:, 2, 4:] = -1
    batch = batch_of(given, *OPS)
    np.testing.assert_array_equal(batch["bboxes"][..., :4], expected["bboxes"])
    # Also where a box is not valid: padding may have a class of its own.
    np.testing.assert_array_equal(batch["bboxes"][..., 4:], given[..., 4:])
    filled = batch_of(given, *OPS, kinds={"bboxes": T.Boxes(fill=-7)})["bboxes"][..., 4:]
    valid = expected["bboxes_valid"][..., None]
    np.testing.assert_array_equal(filled, np.where(valid, given[..., 4:], -7))
    assert not valid.all()


def shares_left(boxes, top, left, tall, wide):
    """Return the share of every box that is inside of a window."""
    low = np.clip(boxes[..., :2], [left, top], [left + wide, top + tall])
    high = np.clip(boxes[..., 2:], [left, top], [left + wide, top + tall])
    area = np.prod(boxes[..., 2:] - boxes[..., :2], axis=-1)
    return np.prod(high - low, axis=-1) / np.maximum(area, 1e-9)


def test_a_box_of_which_too_little_is_visible_is_dropped_whatever_the_scale():
    given = corners(64)
    kinds = {"bboxes": T.Boxes("xywh", min_visibility=0.6)}
    boxes = written_as(given, "xywh").astype(np.float32)
    # Cut twice, with scaling in between: what is left is the product of both.
    ops = [T.CenterCrop((18, 32)), T.Resize((36, 16)), T.RandomFlip(1), T.CenterCrop((36, 11))]
    batch = batch_of(boxes, *ops, kinds=kinds, count=64)
    # In the image as it was: 18 rows in the middle, and 11 of 16 columns of 2 pixels, mirrored; of an odd margin the
    # smaller part is to the left.
    share = shares_left(given, 3, WIDTH - 2 * (2 + 11), 18, 22)
    certain = np.abs(share - 0.6) > 1e-3
    np.testing.assert_array_equal(batch["bboxes_valid"][certain], share[certain] >= 0.6)
    assert 10 < batch["bboxes_valid"].sum() < 118
    assert not batch["bboxes"][~batch["bboxes_valid"]].any()


def test_a_fully_visible_box_passes_a_visibility_of_one():
    boxes = written_as(corners(64) * 0.999, "cxcywh", (HEIGHT, WIDTH)).astype(np.float32)
    ops = [T.Resize((391, 577)), T.RandomFlip(), T.Resize((77, 13))]
    kinds = {"bboxes": T.Boxes("yolo", min_visibility=1)}
    batch = batch_of(boxes, *ops, kinds=kinds, count=64)
    assert batch["bboxes_valid"][:, :2].all()


def test_a_box_of_a_small_area_is_dropped_by_its_pixels_at_the_end():
    given = corners(64).astype(np.float32)
    kinds = {"bboxes": T.Boxes(min_area=200)}
    batch = batch_of(given, T.Resize((2 * HEIGHT, 2 * WIDTH)), kinds=kinds, count=64)
    area = np.prod(given[..., 2:] - given[..., :2], axis=-1)
    np.testing.assert_array_equal(batch["bboxes_valid"], 4 * area >= 200)
    assert not batch["bboxes"][~batch["bboxes_valid"]].any()
    assert 10 < batch["bboxes_valid"].sum() < 118


def test_debug_mode_gives_the_same_boxes(monkeypatch):
    given = written_as(corners(), "cxcywh", (HEIGHT, WIDTH)).astype(np.float32)
    kinds = {"bboxes": T.Boxes("yolo", min_visibility=0.5, min_area=20, fill=3)}
    given = np.concatenate([given, given], axis=2)
    compiled = batch_of(given, *OPS, kinds=kinds)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    plain = batch_of(given, *OPS, kinds=kinds)
    for name in compiled:
        np.testing.assert_array_equal(plain[name], compiled[name], err_msg=name)


def test_no_boxes_and_boxes_of_no_numbers_are_not_an_error():
    assert batch_of(np.zeros((16, 0, 5), np.float32), *OPS)["bboxes"].shape == (16, 0, 5)
    broken = np.full((16, 2, 4), np.nan, np.float32)
    broken[:, 1] = [0, 0, np.inf, 3]
    for form in FORMATS:
        batch = batch_of(broken, *OPS, kinds={"bboxes": T.Boxes(form)})
        assert not batch["bboxes_valid"].any()
        assert not batch["bboxes"].any()


def test_a_format_is_shown_compared_and_pickled_as_it_is():
    form = T.Boxes("yolo", min_area=4)
    assert pickle.loads(pickle.dumps(form)) == form == T.Boxes("yolo", min_area=4)
    assert repr(form) == (
        "Boxes(format='yolo', normalized=None, min_area=4, min_visibility=0.0, fill=None)"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"format": "xxyy"},
            (
                "`format` (='xxyy') must be one of "
                "'xyxy', 'xywh', 'cxcywh', 'pascal_voc', 'coco', 'yolo', 'albumentations'."
            ),
        ),
        ({"normalized": "yes"}, "`normalized` (='yes') must be True, False or None."),
        (
            {"format": "coco", "normalized": True},
            "`normalized` (=True) contradicts `format` (='coco'), which is in pixels.",
        ),
        ({"min_area": -1}, "`min_area` (=-1) must be a finite number of at least 0."),
        ({"min_area": np.inf}, "`min_area` (=inf) must be a finite number of at least 0."),
        ({"min_visibility": 1.5}, "`min_visibility` (=1.5) must be from 0 to 1."),
        ({"fill": "x"}, "`fill` (='x') must be a number or None."),
    ],
)
def test_a_format_that_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(lx.ArgumentError) as caught:
        T.Boxes(**arguments)
    assert str(caught.value) == message


def test_a_format_for_fields_that_cannot_be_boxes_is_refused():
    with pytest.raises(lx.ArgumentError) as caught:
        batch_of(np.zeros((16, 2), np.float32), T.RandomFlip(), kinds={"bboxes": T.Boxes("coco")})
    assert str(caught.value) == (
        "`kinds['bboxes']` (='boxes') is for rows of at least 4 numbers, float32[n, 4], and the field is float32[2]."
    )
    with pytest.raises(lx.ArgumentError) as caught:
        batch_of(corners(), T.RandomFlip(), kinds={"bboxes": T.Boxes})
    assert "or Boxes(...)." in str(caught.value)
