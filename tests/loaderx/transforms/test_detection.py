"""Crops drawn by boxes, zooming out and sanitising follow the rules of torchvision and Albumentations."""

import pickle

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it

HEIGHT, WIDTH = 40, 56
COUNT = 64
FIELDS = ("image", "mask", "boxes", "keypoints")


def scenes(count=COUNT, seed=0):
    """Return images whose first channels are their pixels' coordinates, a mask of the same, boxes, and their centres.

    They have three channels, as those of most other tests: ops are compiled anew for another number.
    """
    rng = np.random.default_rng(seed)
    image = np.zeros((count, HEIGHT, WIDTH, 3), np.float32)
    image[..., 0] = np.arange(WIDTH) + 0.5
    image[..., 1] = (np.arange(HEIGHT) + 0.5)[:, None]
    mask = np.broadcast_to(np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH), image.shape[:3])
    boxes = np.zeros((count, 3, 5), np.float32)
    for place in (0, 1):
        low = rng.uniform(0, [WIDTH - 16, HEIGHT - 16], (count, 2))
        boxes[:, place, :4] = np.concatenate([low, low + rng.uniform(5, 16, (count, 2))], axis=1)
    boxes[:, :, 4] = [1, 2, 3]
    keypoints = (boxes[..., :2] + boxes[..., 2:4]) / 2
    return {
        "image": image,
        "mask": np.ascontiguousarray(mask, np.int32),
        "boxes": boxes,
        "keypoints": keypoints,
    }


def batch_of(*ops, data=None, fields=FIELDS, count=COUNT, **options):
    loader = lx.DataLoader(
        scenes() if data is None else data,
        batch_size=count,
        shuffle=False,
        transforms={fields: list(ops)},
        output="numpy",
        **options,
    )
    return loader.batch(0)


def windows_of(image):
    """Return the windows (left, top, right, bottom) that images of coordinates show, to less than half a pixel."""
    found = []
    for axis, values in ((2, image[..., 0]), (1, image[..., 1])):
        line = values.mean(axis=3 - axis).astype(np.float64)
        size = line.shape[1]
        # Two pixels in the middle, where no filter reaches over the edge.
        first, last = size // 3, size - 1 - size // 3
        pitch = (line[:, last] - line[:, first]) / (last - first)
        begin = line[:, first] - pitch * (first + 0.5)
        found.append((begin, begin + pitch * size))
    (left, right), (top, bottom) = found
    return np.round(np.stack([left, top, right, bottom], axis=1), 3)


def moved(boxes, window, size):
    """Return boxes of one image seen through a window of size (height, width), clipped, and the share that is left."""
    scale = np.array([size[1], size[0]]) / (window[2:] - window[:2])
    ends = (boxes[:, :4].reshape(-1, 2, 2) - window[:2]) * scale
    return np.clip(ends.reshape(-1, 4), 0, [size[1], size[0]] * 2)


def overlaps(boxes, window):
    """Return the intersection over union of boxes and a window."""
    low, high = np.maximum(boxes[:, :2], window[:2]), np.minimum(boxes[:, 2:4], window[2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    areas = np.prod(boxes[:, 2:4] - boxes[:, :2], axis=1)
    return common / (areas + np.prod(window[2:] - window[:2]) - common)


def are_centred(boxes, window):
    centres = (boxes[:, :2] + boxes[:, 2:4]) / 2
    return np.all((centres > window[:2]) & (centres < window[2:]), axis=1)


def assert_all_follow(batch, windows, data, valid):
    """Check that masks, boxes and keypoints are seen through the windows that the images show."""
    size = batch["image"].shape[1:3]
    for k, window in enumerate(windows):
        boxes = np.where(valid[k][:, None], moved(data["boxes"][k], window, size), 0)
        np.testing.assert_allclose(batch["boxes"][k, :, :4], boxes, atol=0.02)
        scale = np.array([size[1], size[0]]) / (window[2:] - window[:2])
        keypoints = (data["keypoints"][k] - window[:2]) * scale
        np.testing.assert_allclose(batch["keypoints"][k], keypoints, atol=0.02)
        rows, columns = np.indices(size)
        places = np.stack([(columns + 0.5) / scale[0], (rows + 0.5) / scale[1]], axis=-1)
        # A place that is at the border of two pixels may be rounded to either.
        places = places + window[:2]
        clear = np.all(np.abs(places - np.round(places)) > 0.01, axis=-1)
        wanted = np.floor(places).astype(int) @ [1, WIDTH]
        np.testing.assert_array_equal(batch["mask"][k][clear], wanted[clear])
    np.testing.assert_array_equal(batch["boxes_valid"], valid)
    np.testing.assert_array_equal(batch["boxes"][..., 4], data["boxes"][..., 4])


CROP = T.RandomIoUCrop((24, 30), overlaps=(0.1, 0.4))


def test_a_crop_by_overlap_keeps_the_rules_of_torchvision_and_all_fields_follow_it():
    data = scenes()
    batch = batch_of(CROP)
    windows = np.round(windows_of(batch["image"]))
    valid = np.zeros((COUNT, 3), bool)
    whole = 0
    for k, window in enumerate(windows):
        boxes = data["boxes"][k]
        valid[k] = are_centred(boxes, window) & [True, True, False]
        wide, tall = window[2:] - window[:2]
        if (wide, tall) == (WIDTH, HEIGHT):
            whole += 1
            continue
        assert int(0.3 * WIDTH) <= wide <= WIDTH
        assert int(0.3 * HEIGHT) <= tall <= HEIGHT
        assert 0.5 <= wide / tall <= 2.0
        assert overlaps(boxes[valid[k]], window).max() >= 0.1
    assert whole < COUNT // 2
    assert 0 < (~valid[:, :2]).sum() < COUNT
    assert_all_follow(batch, windows, data, valid)


def test_overlaps_are_drawn_evenly_and_one_is_the_whole_image():
    windows = windows_of(batch_of(T.RandomIoUCrop((40, 56), overlaps=(1.0,)))["image"])
    np.testing.assert_allclose(windows, np.tile([0, 0, WIDTH, HEIGHT], (COUNT, 1)), atol=0.01)
    # Boxes as large as the image: whatever is cut has at least a quarter of it.
    data = scenes()
    data["boxes"][:, 0, :4] = 0, 0, WIDTH, HEIGHT
    crop = T.RandomIoUCrop((40, 56), scale=(0.5, 0.9), ratio=(0.1, 10), overlaps=(0.0, 0.2, 1.0))
    shown = [batch_of(crop, data=data, seed=seed)["image"] for seed in range(4)]
    windows = windows_of(np.concatenate(shown))
    whole = np.all(np.abs(windows - [0, 0, WIDTH, HEIGHT]) < 0.1, axis=1).mean()
    assert abs(whole - 1 / 3) < 0.1
    wide = (windows[:, 2] - windows[:, 0])[windows[:, 2] - windows[:, 0] < WIDTH - 1]
    assert abs(wide.mean() - 0.7 * WIDTH) < 2


def twin_of_torchvision(boxes, rng, least, scale=(0.3, 1.0), ratio=(0.5, 2.0)):
    """Draw a window by the published rules, for one overlap, in plain NumPy."""
    while True:
        wide, tall = (np.array([WIDTH, HEIGHT]) * rng.uniform(*scale, 2)).astype(int)
        if not ratio[0] <= wide / tall <= ratio[1]:
            continue
        left, top = ((np.array([WIDTH, HEIGHT]) - [wide, tall]) * rng.random(2)).astype(int)
        window = np.array([left, top, left + wide, top + tall])
        inside = are_centred(boxes, window)
        if inside.any() and overlaps(boxes[inside], window).max() >= least:
            return window


def test_windows_are_spread_as_those_of_a_twin_of_torchvision():
    data = scenes()
    data["boxes"][:] = data["boxes"][:1]
    crop = T.RandomIoUCrop(20, overlaps=(0.3,), trials=1000)
    shown = [batch_of(crop, data=data, seed=seed)["image"] for seed in range(8)]
    ours = windows_of(np.concatenate(shown))
    rng = np.random.default_rng(1)
    twin = [twin_of_torchvision(data["boxes"][0, :2], rng, 0.3) for _ in range(2000)]
    twin = np.array(twin, float)
    deviation = twin.std(axis=0)
    assert np.all(np.abs(ours.mean(axis=0) - twin.mean(axis=0)) < 0.2 * deviation)
    assert np.all(np.abs(ours.std(axis=0) - deviation) < 0.2 * deviation + 0.3)


def test_a_safe_crop_keeps_all_boxes_and_all_fields_follow_it():
    data = scenes()
    batch = batch_of(T.BoxSafeCrop((30, 24)))
    windows = np.round(windows_of(batch["image"]))
    for k, window in enumerate(windows):
        boxes = data["boxes"][k, :2]
        assert np.all(boxes[:, :2] >= window[:2])
        assert np.all(boxes[:, 2:4] <= window[2:])
    assert_all_follow(batch, windows, data, np.tile([True, True, False], (COUNT, 1)))
    # Each side is anywhere between the side of the image and that of the boxes.
    first, last = data["boxes"][:, :2, 0].min(axis=1), data["boxes"][:, :2, 2].max(axis=1)
    share = np.stack([windows[:, 0] / first, (WIDTH - windows[:, 2]) / (WIDTH - last)])
    assert np.all(np.abs(share.mean(axis=1) - 0.5) < 0.15)
    assert np.all(share.std(axis=1) > 0.2)


def test_erosion_may_cut_the_boxes_and_says_how_small_a_part_without_boxes_is():
    data = scenes()
    windows = np.round(windows_of(batch_of(T.BoxSafeCrop(24, 0.5))["image"]))
    cut = 0
    for k, window in enumerate(windows):
        low, high = data["boxes"][k, :2, :2].min(axis=0), data["boxes"][k, :2, 2:4].max(axis=0)
        assert np.all(low + (high - low) / 4 >= window[:2])
        assert np.all(high - (high - low) / 4 <= window[2:])
        cut += np.any(low < window[:2]) or np.any(high > window[2:])
    assert cut > COUNT // 2
    data["boxes"][:] = 0
    for erosion, least in ((0.0, 1.0), (0.5, 0.5)):
        windows = np.round(windows_of(batch_of(T.BoxSafeCrop(24, erosion), data=data)["image"]))
        tall, wide = windows[:, 3] - windows[:, 1], windows[:, 2] - windows[:, 0]
        assert tall.min() >= least * HEIGHT
        np.testing.assert_array_equal(wide, (tall * WIDTH / HEIGHT).astype(int))
    assert tall.min() < 0.6 * HEIGHT
    assert tall.max() > 0.9 * HEIGHT


def test_ops_before_and_after_are_seen_as_they_are():
    """Draw the window by the boxes as the ops before it left them, in a pass with them."""
    ops = [T.RandomFlip(), T.Rot90((0, 2)), T.BoxSafeCrop((30, 24)), T.RandomFlip(axis="vertical")]
    batch = batch_of(*ops)
    assert batch["boxes_valid"][:, :2].all()
    for k in range(COUNT):
        for place in (0, 1):
            # The image shows at the centre of a box the place of that pixel before.
            across, down = (batch["boxes"][k, place, :2] + batch["boxes"][k, place, 2:4]) / 2
            shown = batch["image"][k, int(down), int(across), :2]
            given = scenes()["keypoints"][k, place]
            np.testing.assert_allclose(shown, given, atol=2.5)
            np.testing.assert_allclose(batch["keypoints"][k, place], [across, down], atol=0.01)


def test_choices_and_sequences_may_have_them_inside():
    ops = [
        T.OneOf(
            [T.RandomFlip(1), T.BoxSafeCrop((30, 24))],
            [T.Transpose(0), T.RandomIoUCrop((30, 24), overlaps=(0.3, 1))],
        ),
        T.Maybe(0.5, T.Sequence(T.RandomFlip(axis="vertical"), T.BoxSafeCrop((30, 24)))),
        T.BoxSafeCrop((16, 16)),
    ]
    batch = batch_of(*ops)
    data = scenes()
    seen = 0
    for k in range(COUNT):
        for place in np.flatnonzero(batch["boxes_valid"][k]):
            box = batch["boxes"][k, place]
            across, down = np.clip(batch["keypoints"][k, place], 0.5, 15.4)
            assert box[0] - 0.01 <= across <= box[2] + 0.51
            shown = batch["image"][k, int(down), int(across), :2]
            np.testing.assert_allclose(shown, data["keypoints"][k, place], atol=4.5)
            seen += 1
    assert seen > COUNT


def alike(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


CHAIN = [T.RandomFlip(), T.OneOf(CROP, T.BoxSafeCrop((24, 30))), T.ZoomOut(20), T.SanitizeBoxes(3)]


def test_debug_mode_draws_the_same(monkeypatch):
    compiled = batch_of(*CHAIN)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    alike(batch_of(*CHAIN), compiled)


def test_any_source_and_any_number_of_workers_gives_the_same():
    compiled = batch_of(*CHAIN)
    data = scenes()
    rows = [{name: values[k] for name, values in data.items()} for k in range(COUNT)]
    alike(batch_of(*CHAIN, data=rows), compiled)
    alike(batch_of(*CHAIN, workers=2, prefetch=3), compiled)
    loader = lx.DataLoader(
        data, batch_size=24, transforms={FIELDS: CHAIN}, workers=2, output="numpy", num_epochs=1
    )
    for step, batch in enumerate(loader):
        alike(loader.batch(step), batch)


def test_views_draw_by_their_own_boxes():
    views = T.Views([[T.BoxSafeCrop(20)], [T.RandomFlip(1), T.BoxSafeCrop(20)]])
    batch = batch_of(T.RandomFlip(), views)
    for view in ("0", "1"):
        assert batch[f"boxes_{view}_valid"][:, :2].all()
    assert np.any(batch["boxes_0"] != batch["boxes_1"])


def test_boxes_in_a_format_and_after_an_op_of_their_own_are_seen_as_boxes():
    data = scenes()
    wanted = batch_of(T.BoxSafeCrop(20), data=data)
    pixels = data["boxes"][..., :4].astype(np.float64)
    data["boxes"][..., :4] = np.concatenate(
        [(pixels[..., :2] + pixels[..., 2:]) / 2, pixels[..., 2:] - pixels[..., :2]], axis=-1
    ) / [WIDTH, HEIGHT, WIDTH, HEIGHT]
    batch = batch_of(T.BoxSafeCrop(20), data=data, kinds={"boxes": T.Boxes("yolo")})
    np.testing.assert_allclose(batch["image"], wanted["image"], atol=2)
    shown = batch["boxes"][..., :2] * 20
    wanted = (wanted["boxes"][..., :2] + wanted["boxes"][..., 2:4]) / 2
    np.testing.assert_allclose(shown, wanted, atol=1)
    data = scenes()
    data["boxes"] = data["boxes"].astype(np.float64)
    loader = lx.DataLoader(
        data,
        batch_size=COUNT,
        shuffle=False,
        output="numpy",
        transforms={"boxes": [T.Cast("float32")], ("image", "boxes"): [T.BoxSafeCrop(20)]},
    )
    assert loader.batch(0)["boxes_valid"][:, :2].all()


def test_a_second_field_of_boxes_follows_the_first():
    data = scenes()
    data["face_boxes"] = data["boxes"].copy()
    batch = batch_of(CROP, data=data, fields=("image", "boxes", "face_boxes"))
    np.testing.assert_array_equal(batch["face_boxes"], batch["boxes"])
    np.testing.assert_array_equal(batch["face_boxes_valid"], batch["boxes_valid"])


def test_zooming_out_moves_all_fields_alike_and_fills():
    data = scenes()
    zoom = T.ZoomOut((60, 70), 1.0, sides=(1.0, 3.0), fill=(-7, -8, -9), fill_mask=-1)
    batch = batch_of(zoom)
    outside = batch["image"][..., 0] == -7
    np.testing.assert_array_equal(outside, batch["image"][..., 1] == -8)
    np.testing.assert_array_equal(outside, batch["image"][..., 2] == -9)
    np.testing.assert_array_equal(outside, batch["mask"] == -1)
    assert batch["boxes_valid"][:, :2].all()
    sides = []
    for k in range(COUNT):
        rows, columns = np.nonzero(~outside[k])
        # The image is one rectangle, of the same share of both sides.
        tall, wide = np.ptp(rows) + 1, np.ptp(columns) + 1
        assert (~outside[k]).sum() == tall * wide
        assert abs(tall / 60 - wide / 70) < 0.04
        sides.append(70 / wide)
        for place in (0, 1):
            across, down = batch["keypoints"][k, place]
            shown = batch["image"][k, int(down), int(across), :2]
            np.testing.assert_allclose(shown, data["keypoints"][k, place], atol=2.5)
            label = batch["mask"][k, int(down), int(across)]
            np.testing.assert_allclose([label % WIDTH, label // WIDTH], shown, atol=2)
    assert abs(np.mean(sides) - 2) < 0.2
    assert min(sides) < 1.3
    assert max(sides) > 2.7


def test_zooming_out_is_padding_and_resizing():
    """Compare to torchvision's way: a canvas around the image, which another op scales."""
    image = np.random.default_rng(0).integers(0, 256, (COUNT, HEIGHT, WIDTH, 3), np.uint8)
    data = {"image": image, "keypoints": np.tile(np.float32([[0, 0], [WIDTH, HEIGHT]]), (COUNT, 1, 1))}  # fmt: skip
    batch = batch_of(T.ZoomOut((30, 44), 1.0), data=data, fields=("image", "keypoints"))
    whole = []
    for k in range(COUNT):
        (left, top), (right, bottom) = batch["keypoints"][k].astype(np.float64)
        sides = np.array([44 * WIDTH / (right - left), 30 * HEIGHT / (bottom - top)])
        wide, tall = np.round(sides).astype(int)
        before = np.round([left * wide / 44, top * tall / 30]).astype(int)
        canvas = np.zeros((tall, wide, 3), np.uint8)
        canvas[before[1] : before[1] + HEIGHT, before[0] : before[0] + WIDTH] = image[k]
        scaled = lx.pipeline([T.Resize((30, 44))])(canvas)
        # At the border a pixel of ours has no share of the canvas.
        rows, columns = (np.arange(n) for n in (30, 44))
        reach = np.array([wide / 44, tall / 30]) * [44 / wide, 30 / tall] + 0.5
        inner_rows = (rows + 0.5 > top + reach[1]) & (rows + 0.5 < bottom - reach[1])
        inner_columns = (columns + 0.5 > left + reach[0]) & (columns + 0.5 < right - reach[0])
        inside = inner_rows[:, None] & inner_columns
        difference = np.abs(batch["image"][k].astype(int) - scaled)[inside]
        assert difference.size == 0 or difference.max() <= 1
        whole.append(difference.size)
    assert np.median(whole) > 100


def test_without_zooming_out_an_image_stays_as_it_is():
    data = scenes()
    batch = batch_of(T.ZoomOut(probability=0.0))
    for name in FIELDS:
        np.testing.assert_array_equal(batch[name], data[name])
    half = batch_of(T.ZoomOut(sides=(2.0, 3.0)))["image"]
    share = np.mean([np.array_equal(one, data["image"][0]) for one in half])
    assert 0.3 < share < 0.7


# Every kind of dtype and every shape: the kernels are compared with their twins in more of them.
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1, 1), np.uint8),
        pytest.param((6, 8, 4), np.uint16, marks=pytest.mark.long),
        ((1, 9, 1), np.float32),
        pytest.param((7, 5), np.float64, marks=pytest.mark.long),
        ((6, 8, 4), np.int32),
    ],
)
def test_zooming_out_accepts_any_image(shape, dtype):
    rows = np.random.default_rng(0).integers(1, 200, (8, *shape)).astype(dtype)
    zoom = T.ZoomOut((9, 10), 1.0, sides=(2.0, 2.5))
    out = lx.pipeline([zoom], seed=1)(rows, batch=True)
    nearest = T.ZoomOut((9, 10), 1.0, sides=(2.0, 2.5), interpolation="nearest")
    hard = lx.pipeline([nearest], seed=1)(rows, batch=True)
    np.testing.assert_array_equal(out == 0, hard == 0)
    assert out.max() <= rows.max()
    assert 0.3 < (out == 0).mean() < 0.9


def test_an_image_of_one_value_stays_so_when_zoomed_out():
    rows = np.full((4, 30, 30, 3), 77, np.uint8)
    out = lx.pipeline([T.ZoomOut(10, 1.0, fill=9)])(rows)
    assert set(np.unique(out)) == {9, 77}


def test_small_boxes_are_sanitised_as_torchvision_does_it():
    data = scenes()
    given = data["boxes"]
    batch = batch_of(T.SanitizeBoxes(7, 100))
    sides = given[..., 2:4] - given[..., :2]
    valid = np.all(sides >= 7, axis=-1) & (np.prod(sides, axis=-1) >= 100)
    np.testing.assert_array_equal(batch["boxes_valid"], valid)
    np.testing.assert_array_equal(batch["boxes"][..., :4], np.where(valid[..., None], given[..., :4], 0))  # fmt: skip
    np.testing.assert_array_equal(batch["boxes"][..., 4], given[..., 4])
    for name in ("image", "mask", "keypoints"):
        np.testing.assert_array_equal(batch[name], data[name])
    assert 10 < valid.sum() < 110
    # Dropped boxes do not decide any more.
    boxes = batch_of(T.SanitizeBoxes(1000), T.BoxSafeCrop(24, 0.9))["boxes_valid"]
    assert not boxes.any()


def test_a_crop_by_boxes_runs_in_one_pass_with_its_neighbours():
    loader = lx.DataLoader(
        scenes(),
        batch_size=4,
        output="numpy",
        transforms={("image", "boxes"): [T.RandomFlip(), CROP, T.Normalize((0, 0, 0), (1, 1, 1))]},
    )
    chain = next(field.chain for field in loader._builder.planner.fields if field.name == "image")
    names = chain.phases[0].segments[0].program._table.names
    assert len([name for name in names if name == "Normalize"]) == 1
    assert "RandomIoUCrop" in loader.explain()


def test_they_show_themselves_as_they_were_written_and_are_pickled():
    for op, text in (
        (T.RandomIoUCrop(30, trials=3), "RandomIoUCrop(30, trials=3)"),
        (T.BoxSafeCrop((3, 4), 0.2), "BoxSafeCrop((3, 4), 0.2)"),
        (T.ZoomOut(sides=(1, 2)), "ZoomOut(sides=(1, 2))"),
        (T.SanitizeBoxes(2), "SanitizeBoxes(2)"),
    ):
        assert repr(op) == text
        assert repr(pickle.loads(pickle.dumps(op))) == text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.RandomIoUCrop(0), "`size` (=0) must be an integer of at least 1, or two of them."),
        (
            lambda: T.RandomIoUCrop(9, scale=(0.3, 1.5)),
            "`scale` (=(0.3, 1.5)) must be two finite numbers with 0 < low <= high <= 1.",
        ),
        (
            lambda: T.RandomIoUCrop(9, ratio=(2, 1)),
            "`ratio` (=(2, 1)) must be two finite numbers with 0 < low <= high.",
        ),
        (
            lambda: T.RandomIoUCrop(9, overlaps=()),
            "`overlaps` (=()) must be at least one number from 0 to 1 each.",
        ),
        (lambda: T.RandomIoUCrop(9, trials=0), "`trials` (=0) must be an integer of at least 1."),
        (
            lambda: T.BoxSafeCrop(9, interpolation="area"),
            "`interpolation` (='area') must be one of \"bilinear\", \"bicubic\", \"lanczos\", \"nearest\".",
        ),
        (lambda: T.BoxSafeCrop(9, 2), "`erosion` (=2) must be from 0 to 1."),
        (lambda: T.BoxSafeCrop(9, antialias="no"), "`antialias` (='no') must be True or False."),
        (lambda: T.ZoomOut(sides=(0.5, 2)), "`sides` (=(0.5, 2)) must be at least 1."),
        (lambda: T.ZoomOut(probability=2), "`probability` (=2) must be from 0 to 1."),
        (lambda: T.SanitizeBoxes(-1), "`min_size` (=-1) must be from 0 to inf."),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(lx.ArgumentError) as caught:
        make()
    assert str(caught.value) == message


NEEDED = (
    '{} needs boxes next to the image. Name the field that has them in the same entry, {{("image", "boxes"): [...]}}; '
    'the last word of its name is "boxes", or `kinds` says so.'
)


@pytest.mark.parametrize(
    ("fields", "ops", "message"),
    [
        (("image", "keypoints"), [CROP], NEEDED.format("RandomIoUCrop")),
        (("image",), [T.Maybe(0.5, T.BoxSafeCrop(9))], NEEDED.format("BoxSafeCrop")),
        (("image",), [T.SanitizeBoxes()], NEEDED.format("SanitizeBoxes")),
        (
            ("image", "boxes"),
            [T.RandomOrder(T.BoxSafeCrop((HEIGHT, WIDTH)), T.RandomFlip())],
            (
                "RandomOrder: BoxSafeCrop must know which ops come before it, and here that is drawn; "
                "put it before or after."
            ),
        ),
        (
            ("image", "boxes"),
            [T.ZoomOut(fill=(1, 2))],
            (
                "ZoomOut: `fill` (=(1.0, 2.0)) must be one number, or one for each of the 3 channels; "
                "the input is float32[40, 56, 3]."
            ),
        ),
    ],
)
def test_impossible_arguments_are_refused(fields, ops, message):
    with pytest.raises(lx.ArgumentError) as caught:
        batch_of(*ops, fields=fields if len(fields) > 1 else fields[0])
    assert str(caught.value) == message


def test_a_pipeline_of_one_array_has_no_boxes():
    with pytest.raises(lx.ArgumentError, match="needs boxes next to the image"):
        lx.pipeline([CROP])(np.zeros((8, 8, 3), np.uint8))


def test_two_fields_of_boxes_cannot_both_decide():
    data = scenes()
    data["face_boxes"] = data["boxes"].copy()
    with pytest.raises(lx.ArgumentError) as caught:
        lx.DataLoader(
            data,
            batch_size=4,
            transforms={("image", "boxes"): [CROP], ("image", "face_boxes"): [CROP]},
        )
    assert str(caught.value) == (
        "ops on 'image' look at the boxes of 'boxes' and of 'face_boxes'; they must be of one field."
    )
