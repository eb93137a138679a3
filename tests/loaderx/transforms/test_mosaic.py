"""Mosaic: four samples of a batch in one image, and all fields next to it moved with the pixels."""

import functools

import ml_dtypes
import numpy as np
import pytest
from scipy import stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.batch import scheduler
from tests.loaderx.transforms.images import images
from tests.loaderx.transforms.scenes import (
    FIELDS,
    HEIGHT,
    ROWS,
    WIDTH,
    assert_boxes_are_around_their_pixels,
    batch_of,
    same,
    scenes,
)

COUNT = 32


def coordinates(count=COUNT, dtype=np.float32):
    """Return images whose pixels say which image, row and column they are of."""
    image = np.empty((count, HEIGHT, WIDTH, 3), dtype)
    image[..., 0] = np.arange(count)[:, None, None]
    image[..., 1] = np.arange(HEIGHT)[:, None]
    image[..., 2] = np.arange(WIDTH)
    return {"image": image}


def points_of(image, size=(HEIGHT, WIDTH)):
    """Return the points at which four images of `coordinates` meet: row and column of the last one's corner."""
    found = []
    for each in image:
        # Of an image that is seen down to its last row, this row is just above the point.
        above = each[0, 0, 1], each[0, 0, 2]
        found.append([size[0] - int(above[0]), size[1] - int(above[1])])
    return np.array(found)


def expected_mosaic(images, point, size):
    """Return four images that meet at a point, as slices of a large canvas."""
    height, width = images[0].shape[:2]
    canvas = np.zeros((2 * height, 2 * width, *images[0].shape[2:]), images[0].dtype)
    for number, each in enumerate(images):
        down, across = number // 2 * height, number % 2 * width
        canvas[down : down + height, across : across + width] = each
    top, left = height - point[0], width - point[1]
    return canvas[top : top + size[0], left : left + size[1]]


@pytest.mark.parametrize("size", [None, (HEIGHT, WIDTH), (11, 20), (5, 7)])
def test_four_different_images_of_the_batch_meet_at_a_point(size):
    data = coordinates()
    batch = batch_of(data, T.Mosaic(size, (0.3, 0.7)))["image"]
    tall, wide = size or (HEIGHT, WIDTH)
    assert batch.shape == (COUNT, tall, wide, 3)
    steps = set()
    for place, (image, point) in enumerate(zip(batch, points_of(batch), strict=True)):
        corners = [image[row, column, 0].astype(int) for row in (0, -1) for column in (0, -1)]
        assert corners[0] == place
        assert len(set(corners)) == 4
        steps.add(tuple((np.array(corners) - place) % COUNT))
        assert np.all((point >= [int(0.3 * tall), int(0.3 * wide)]) & (point <= [0.7 * tall, 0.7 * wide]))  # fmt: skip
        four = [data["image"][number] for number in corners]
        np.testing.assert_array_equal(image, expected_mosaic(four, point, (tall, wide)))
    # The partners of all samples are the same steps around the batch, so that each is in four mosaics.
    assert len(steps) == 1


def test_partners_and_points_are_others_in_every_batch():
    data = coordinates()["image"]
    options = {"batch_size": 16, "shuffle": False, "output": "numpy"}
    loader = lx.DataLoader(data, transforms=[T.Mosaic()], **options)
    batches = [loader.batch(step) for step in range(20)]
    corners = [batch[0, [0, 0, -1, -1], [0, -1, 0, -1], 0] for batch in batches]
    steps = {tuple((numbers[1:] - numbers[0]) % 16) for numbers in corners}
    assert len(steps) > 15
    points = np.concatenate([points_of(batch) for batch in batches])
    assert len(np.unique(points, axis=0)) > 100


@functools.cache
def many_points(probability=1.0, count=3000, size=(200, 300)):
    """Return shares of the height and width at which images meet, or NaN where a sample is left as it is."""
    image = np.zeros((count, *size, 1), np.uint8)
    image[:, 0, 0] = 1
    image[:, -1, -1] = 2
    out = lx.pipeline([T.Mosaic(center=(0.2, 0.9), probability=probability)])(image)[..., 0]
    found = np.full((count, 2), np.nan)
    # The last corner of the first image is just above the point, unless it is the corner of the result.
    for place, row, column in zip(*np.nonzero(out == 2), strict=True):
        if (row, column) != (size[0] - 1, size[1] - 1):
            found[place] = (row + 1) / size[0], (column + 1) / size[1]
    return found


def test_points_are_spread_evenly_over_their_range():
    points = many_points()
    assert not np.isnan(points).any()
    for column, size in zip(points.T, (200, 300), strict=True):
        spread = column + np.random.default_rng(0).random(len(column)) / size
        assert stats.kstest(spread, stats.uniform(0.2, 0.7).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(points.T)[0, 1]) < 0.08


def test_a_mosaic_happens_as_often_as_it_says():
    happened = ~np.isnan(many_points(0.3)[:, 0])
    assert stats.binomtest(int(happened.sum()), len(happened), 0.3).pvalue > 1e-3


def test_a_sample_that_is_left_keeps_all_that_is_next_to_it():
    data = scenes()
    batch = batch_of(data, T.Mosaic(probability=0.5))
    same_boxes = (batch["boxes"][:, :ROWS] == data["boxes"]).all(axis=(1, 2))
    left = (batch["image"] == data["image"]).all(axis=(1, 2, 3)) & same_boxes
    assert 8 <= left.sum() <= 24
    for name in ("image", "instances", "seg"):
        np.testing.assert_array_equal(batch[name][left], data[name][left])
    np.testing.assert_array_equal(batch["keypoints"][left, :ROWS], data["keypoints"][left])
    for name in ("boxes", "boxes_valid", "keypoints", "keypoints_valid"):
        assert not batch[name][left, ROWS:].any()
    np.testing.assert_array_equal(batch["boxes_valid"][left, :ROWS], data["boxes"][left, :, 2] > 0)
    always = batch_of(data, T.Mosaic(probability=1.0))
    same(always, batch_of(data, T.Mosaic()))
    never = batch_of(data, T.Mosaic(probability=0))
    np.testing.assert_array_equal(never["image"], data["image"])


# --- what is next to an image -----------------------------------------------------------------


@pytest.mark.parametrize("size", [None, (17, 22), (40, 70)])
@pytest.mark.parametrize("before", [[], [T.RandomFlip()], [T.RandomCrop((20, 26))]], ids=str)
def test_boxes_are_around_the_pixels_of_their_numbers(size, before):
    data = scenes()
    batch = batch_of(data, *before, T.Mosaic(size), T.RandomFlip(axis="vertical"))
    assert batch["boxes"].shape == (COUNT, 4 * ROWS, 6)
    assert_boxes_are_around_their_pixels(batch)
    valid = batch["boxes_valid"]
    assert np.all(valid[:, 2::ROWS] == 0), "the third row of each sample is padding"
    assert valid.sum() > COUNT
    # The rows of each image follow those of the one before, with their further columns.
    np.testing.assert_array_equal(batch["boxes"][:, :ROWS, 5], data["boxes"][:, :, 5])
    numbers = batch["boxes"][:, ::ROWS, 5]
    assert all(len(set(row)) == 4 for row in numbers)
    # The label mask has the class of the box, and the image its colour.
    for place, row in zip(*np.nonzero(valid), strict=True):
        at = batch["instances"][place] == row + 1
        label, number = batch["boxes"][place, row, 4:]
        assert set(batch["seg"][place][at]) == {label}
        assert set(batch["image"][place][at].reshape(-1)) == {2 * number + label - 4}


def test_keypoints_stay_on_their_objects():
    data = scenes()
    batch = batch_of(data, T.Mosaic())
    seen = 0
    for place in range(COUNT):
        for row in np.flatnonzero(batch["keypoints_valid"][place]):
            across, down = batch["keypoints"][place, row]
            assert batch["instances"][place, int(down), int(across)] == row + 1
            seen += 1
        hidden = ~batch["keypoints_valid"][place] & np.isfinite(batch["keypoints"][place, :, 0])
        # Those that are not valid are out of sight: under another image, or outside.
        for row in np.flatnonzero(hidden):
            across, down = batch["keypoints"][place, row]
            if 0 <= across < WIDTH and 0 <= down < HEIGHT:
                assert batch["instances"][place, int(down), int(across)] != row + 1
    assert seen > COUNT


@pytest.mark.parametrize("form", ["xywh", "cxcywh", "coco", "yolo", "albumentations"])
def test_formats_of_boxes_come_back_as_fractions_of_the_mosaic(form):
    data = scenes()
    batch = batch_of(data, T.Mosaic((20, 40)))
    # Fractions are rounded, which may leave a trace of a box that touches the edge.
    kind = T.Boxes(form, min_area=0.01)
    given = {**data, "boxes": in_format(data["boxes"], kind, (HEIGHT, WIDTH))}
    found = batch_of(given, T.Mosaic((20, 40)), kinds={"boxes": kind})
    expected = in_format(batch["boxes"], kind, (20, 40))
    np.testing.assert_allclose(found["boxes"], expected, atol=1e-4)
    np.testing.assert_array_equal(found["boxes_valid"], batch["boxes_valid"])


def in_format(boxes, kind, size):
    """Return rows (left, top, right, bottom, ...) in another format."""
    scale = np.array([size[1], size[0]] if kind.is_normalized else [1, 1], np.float32)
    first, second = boxes[..., :2] / scale, boxes[..., 2:4] / scale
    if kind.format not in ("xyxy", "pascal_voc", "albumentations"):
        second = second - first
    if kind.format in ("cxcywh", "yolo"):
        first = first + second / 2
    return np.concatenate([first, second, boxes[..., 4:]], axis=-1)


def test_visibility_counts_what_a_mosaic_cuts_off():
    data = scenes()
    batch = batch_of(data, T.Mosaic())
    sides = batch["boxes"][..., 2:4] - batch["boxes"][..., :2]
    areas = {}
    for i, k in np.ndindex(COUNT, 2):
        left, top, right, bottom = data["boxes"][i, k, :4]
        areas[i, 5 + k] = (right - left) * (bottom - top)
    whole = np.array([[areas.get((i, c), 1) for c, i in row] for row in batch["boxes"][..., 4:]])
    visible = sides.prod(axis=-1) / whole
    kinds = {"boxes": T.Boxes(min_visibility=0.6, min_area=12, fill=-1)}
    found = batch_of(data, T.Mosaic(), kinds=kinds)
    valid = batch["boxes_valid"] & (visible >= 0.6) & (sides.prod(axis=-1) >= 12)
    np.testing.assert_array_equal(found["boxes_valid"], valid)
    assert 0 < valid.sum() < batch["boxes_valid"].sum()
    np.testing.assert_array_equal(found["boxes"][valid], batch["boxes"][valid])
    assert (found["boxes"][~valid, 4:] == -1).all()


@pytest.mark.parametrize("rows", [1, 2, 5, 12, 20])
def test_rows_are_the_first_valid_boxes(rows):
    data = scenes()
    del data["instances"]
    everything = batch_of(data, T.Mosaic())
    batch = batch_of(data, T.Mosaic(rows=rows))
    for name in ("boxes", "keypoints"):
        assert batch[name].shape[1] == rows
        for place in range(COUNT):
            wanted = everything[name][place][everything[f"{name}_valid"][place]][:rows]
            np.testing.assert_array_equal(batch[name][place, : len(wanted)], wanted)
            assert batch[f"{name}_valid"][place].sum() == len(wanted)
            assert not batch[name][place, len(wanted) :].any()
    np.testing.assert_array_equal(batch["image"], everything["image"])


def test_where_no_image_reaches_is_the_fill_colour():
    data = scenes()
    fields = ("image", "seg", "instances", "boxes")
    data = {name: data[name] for name in fields}
    size = (3 * HEIGHT, 3 * WIDTH)
    ops = T.Mosaic(size, 0.5, fill=(200, 201, 202), fill_mask=99)
    batch = batch_of(data, ops)
    inside = np.zeros(size, bool)
    inside[HEIGHT // 2 : -HEIGHT // 2, WIDTH // 2 : -WIDTH // 2] = True
    assert (batch["image"][:, ~inside] == [200, 201, 202]).all()
    assert (batch["seg"][:, ~inside] == 99).all()
    assert (batch["instances"][:, ~inside] == 99).all()
    assert not (batch["image"][:, inside] == [200, 201, 202]).all(axis=-1).any()
    np.testing.assert_array_equal(
        batch["image"][:, HEIGHT // 2 :][:, :HEIGHT, WIDTH // 2 :][:, :, :WIDTH], data["image"]
    )
    # The colour of an image is neither a label nor the number of a box.
    for fill in (7, (1, 2, 3)):
        filled = batch_of(data, T.Mosaic(size, 0.5, fill=fill))
        assert not filled["seg"][:, ~inside].any()
        assert not filled["instances"][:, ~inside].any()
    np.testing.assert_array_equal(
        batch["boxes"][:, :2, :4], data["boxes"][:, :2, :4] + [WIDTH / 2, HEIGHT / 2] * 2
    )


DTYPES = [np.uint8, np.float32, np.float16, ml_dtypes.bfloat16, np.uint16, np.int64, np.bool_]


@pytest.mark.parametrize("channels", [(), (1,), (2,), (3,), (4,)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_all_dtypes_and_channels_are_moved_as_they_are(dtype, channels):
    x = images((9, 8, *channels), np.float32).astype(dtype)
    if np.dtype(dtype).kind in "biu":
        x = images((9, 8, *channels), dtype)
    out = lx.pipeline([T.Mosaic()])(x, batch=True)
    assert (out.dtype, out.shape) == (x.dtype, x.shape)
    rows = np.arange(x.size).reshape(x.shape).astype(np.int64)
    places = lx.pipeline([T.Mosaic()])(rows, batch=True)
    np.testing.assert_array_equal(out.reshape(-1), x.reshape(-1)[places.reshape(-1)])


def test_depth_and_masks_of_any_dtype_follow():
    base = scenes()
    data = {"image": base["image"], "mask": base["seg"], "depth": base["seg"] * np.float32(0.5)}
    expected = batch_of(data, T.Mosaic())
    np.testing.assert_array_equal(expected["depth"], expected["mask"] * np.float32(0.5))
    for dtype in (np.uint8, np.int16, np.int64, np.bool_):
        mask = base["seg"].astype(dtype)
        for shaped in (mask, mask[..., None]):
            found = batch_of({**data, "mask": shaped}, T.Mosaic())["mask"]
            assert found.dtype == dtype
            np.testing.assert_array_equal(
                found.reshape(expected["mask"].shape), expected["mask"].astype(dtype)
            )


# --- batches of any size ----------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_batches_with_too_few_others_show_the_sample_again(count):
    data = coordinates(count)
    batch = batch_of(data, T.Mosaic(center=0.5))["image"]
    for place in range(count):
        corners = [int(batch[place, row, column, 0]) for row in (0, -1) for column in (0, -1)]
        assert corners[0] == place
        others = corners[1 : min(count, 4)]
        assert len({place, *others}) == min(count, 4)
        assert corners[min(count, 4) :] == [place] * (4 - min(count, 4))


@pytest.mark.parametrize("remainder", ["keep", "drop", "pad", "straddle"])
def test_the_last_batch_of_an_epoch_has_partners_of_its_own(remainder):
    data = coordinates(10)
    loader = lx.DataLoader(
        data, batch_size=4, num_epochs=2, remainder=remainder, transforms={"image": [T.Mosaic()]}, output="numpy",
    )  # fmt: skip
    with iter(loader) as batches:
        taken = list(batches)
    assert len(taken) == len(loader)
    for step, batch in enumerate(taken):
        rows = loader.indices(step)
        np.testing.assert_array_equal(batch["image"][:, 0, 0, 0], rows)
        for image in batch["image"]:
            assert set(np.unique(image[..., 0])) <= set(rows)
        np.testing.assert_array_equal(loader.batch(step)["image"], batch["image"])


@pytest.mark.parametrize("options", [{"workers": 4, "prefetch": 4}, {"workers": 2}], ids=str)
def test_threads_do_not_matter(options, monkeypatch):
    data = scenes()
    given = {"batch_size": 16, "shuffle": True, "seed": 3}
    expected = [batch_of(data, T.Mosaic(), T.RandomFlip(), step=k, workers=1, **given) for k in (0, 1, 7)]  # fmt: skip
    monkeypatch.setattr(scheduler, "TRANSFORMED_BYTES_PER_PART", 1024)
    for step, batch in zip((0, 1, 7), expected, strict=True):
        same(batch_of(data, T.Mosaic(), T.RandomFlip(), step=step, **given, **options), batch)


def test_ops_before_and_after_and_a_second_mosaic():
    data = scenes()
    chain = [T.RandomFlip(), T.Mosaic(), T.Rotate(20), T.Mosaic((20, 20)), T.SanitizeBoxes(3)]
    batch = batch_of(data, *chain)
    assert batch["boxes"].shape[1] == 16 * ROWS
    assert batch["image"].shape[1:3] == (20, 20)
    assert batch["boxes_valid"].any()
    # A valid object has pixels of its number, and a box around at least these.
    for place, row in zip(*np.nonzero(batch["boxes_valid"]), strict=True):
        rows, columns = np.nonzero(batch["instances"][place] == row + 1)
        left, top, right, bottom = batch["boxes"][place, row, :4]
        assert np.all((columns + 1 >= left) & (columns <= right))
        assert np.all((rows + 1 >= top) & (rows <= bottom))


def test_debug_mode_gives_the_same_bytes(monkeypatch):
    data = scenes(8)
    compiled = batch_of(data, T.RandomFlip(), T.Mosaic(), T.RandomFlip())
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    same(batch_of(data, T.RandomFlip(), T.Mosaic(), T.RandomFlip()), compiled)


def test_views_of_a_mosaic_begin_with_the_same_one():
    data = scenes(8)
    views = T.Views([[], [T.RandomFlip(1.0)]])
    batch = batch_of(data, T.Mosaic(), views)
    plain = batch_of(data, T.Mosaic())
    for name, array in plain.items():
        base, valid = name.removesuffix("_valid"), "_valid" if name.endswith("_valid") else ""
        np.testing.assert_array_equal(batch[f"{base}_0{valid}"], array)
    np.testing.assert_array_equal(batch["image_1"], plain["image"][:, :, ::-1])
    np.testing.assert_array_equal(batch["instances_1"], plain["instances"][:, :, ::-1])


def test_it_is_explained():
    loader = lx.DataLoader(scenes(8), batch_size=4, transforms={FIELDS: [T.Mosaic()]})
    assert "Mosaic       uint8[24, 30, 3]" in loader.explain()


# --- what is refused --------------------------------------------------------------------------

ARGUMENTS = [
    ({"size": 0}, "`size` (=0) must be an integer of at least 1, or two of them."),
    ({"size": (3, 4, 5)}, "`size` (=(3, 4, 5)) must be an integer of at least 1, or two of them."),
    *(
        (
            {"center": center},
            f"`center` (={center!r}) must be a number from 0 to 1, or a range of two with 0 <= low <= high <= 1.",
        )
        for center in (-0.1, 1.5, (0.7, 0.2), (0.1, 0.2, 0.3), (), "middle", None, float("nan"))
    ),
    ({"rows": 0}, "`rows` (=0) must be an integer of at least 1, or None."),
    ({"rows": 2.5}, "`rows` (=2.5) must be an integer of at least 1, or None."),
    ({"fill": "red"}, "`fill` (='red') must be a finite number."),
    ({"fill_mask": np.inf}, "`fill_mask` (=inf) must be a finite number."),
    ({"probability": 2}, "`probability` (=2) must be from 0 to 1."),
]


@pytest.mark.parametrize(("given", "message"), ARGUMENTS, ids=lambda given: str(given)[:40])
def test_bad_arguments_are_refused(given, message):
    with pytest.raises(lx.ArgumentError) as caught:
        T.Mosaic(**given)
    assert str(caught.value) == message


def with_boxes_and(**fields):
    data = scenes(4)
    return {"image": data["image"], **fields, "boxes": data["boxes"]}


REFUSED = {
    "another size": (
        lambda: scenes(4),
        T.Mosaic(20, probability=0.5),
        {},
        (
            "Mosaic: `probability` (=0.5) must be 1 here: the op makes uint8[20, 20, 3] of uint8[24, 30, 3], "
            "and a sample that is left as it is would be of another shape or dtype."
        ),
    ),
    "a label": (
        lambda: {"image": scenes(4)["image"], "label": np.arange(4)},
        T.Mosaic(),
        {},
        "Mosaic: fields that move together must have the same height and width, got {'image': (24, 30), 'label': ()}.",
    ),
    "a length": (
        lambda: {"image": scenes(4)["image"], "length": np.arange(4)},
        T.Mosaic(),
        {},
        "Mosaic is for images and what is next to them, and 'length' is a length.",
    ),
    "a fill of other channels": (
        lambda: {"image": scenes(4)["image"]},
        T.Mosaic(fill=(1, 2)),
        {},
        "Mosaic: `fill` (=(1.0, 2.0)) must be one number, or one for each of the 3 channels",
    ),
    "a fill of another dtype": (
        lambda: {"image": scenes(4)["image"]},
        T.Mosaic(fill=0.5),
        {},
        "Mosaic: `fill` (=0.5) must be a value of uint8",
    ),
    "rows next to instances": (
        lambda: scenes(4),
        T.Mosaic(rows=5),
        {},
        "Mosaic: `rows` (=5) leaves boxes out, and the values of 'instances' are the numbers of all of them.",
    ),
    "too many boxes": (
        lambda: (
            with_boxes_and(instances=np.zeros((4, HEIGHT, WIDTH), np.uint8))
            | {"boxes": np.zeros((4, 64, 4), np.float32)}
        ),
        T.Mosaic(),
        {},
        (
            "Mosaic makes 256 boxes, and masks of uint8[24, 30] cannot have their numbers. Give fewer rows of "
            "boxes, or a mask of a wider dtype."
        ),
    ),
    "instances without boxes": (
        lambda: {name: scenes(4)[name] for name in ("image", "instances")},
        T.Mosaic(),
        {},
        (
            "Mosaic: an entry has one field of the kind 'instances', whose values are numbers of boxes, and the boxes; "
            "this one has 'instances' without boxes. Labels that are not such numbers are of the kind \"labels\": "
            "kinds={'instances': \"labels\"}."
        ),
    ),
    "two masks of instances": (
        lambda: scenes(4),
        T.Mosaic(),
        {"kinds": {"seg": "instances"}},
        "this one has 'instances' and 'seg'.",
    ),
    "instances that are not integers": (
        lambda: {**scenes(4), "seg": scenes(4)["seg"] / 2},
        T.Mosaic(),
        {"kinds": {"seg": "instances"}},
        "`kinds['seg']` (='instances') is for integers of (height, width)",
    ),
    "crops by boxes after it": (
        lambda: {name: scenes(4)[name] for name in ("image", "boxes")},
        [T.Mosaic(), T.RandomIoUCrop(16)],
        {},
        "RandomIoUCrop reads the field 'boxes', which Mosaic changed before; put it before that one.",
    ),
    "no image": (
        lambda: {"image": np.zeros((4, 5), np.float32)},
        T.Mosaic(),
        {},
        "Mosaic accepts images of shape (height, width, channels) or (height, width), not float32[5].",
    ),
    "channels first": (
        lambda: {"image": scenes(4)["image"]},
        [T.ToFloat(channels_first=True), T.Mosaic()],
        {},
        "put the channels first",
    ),
    "too many channels": (
        lambda: {"image": np.zeros((4, 8, 8, 7), np.uint8)},
        T.Mosaic(),
        {},
        "7",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_without_meaning_are_refused(case):
    make, op, options, message = REFUSED[case]
    ops = op if isinstance(op, list) else [op]
    with pytest.raises(lx.ArgumentError) as caught:
        batch_of(make(), *ops, batch_size=4, **options)
    assert message in str(caught.value)


def test_it_cannot_be_left_to_chance_by_others():
    message = "Maybe: Mosaic mixes samples of a batch and cannot be left to chance."
    with pytest.raises(lx.ArgumentError, match=message):
        T.Maybe(0.5, T.Mosaic())
