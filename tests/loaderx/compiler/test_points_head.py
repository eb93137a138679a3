"""Boxes and keypoints follow encoded images of any sizes, as those of decoded images of these sizes do."""

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.loaderx.encoded_images import (
    ROWS,
    SIZES,
    encode,
    encoded,
    from_pixels,
    labels_of,
    loader,
    photographs,
    smooth,
)

# In units of the size of each image; the last row is padding.
CORNERS = np.array([(0.2, 0.3, 0.6, 0.9), (0, 0, 1, 1), (0.7, 0.05, 0.8, 0.2), (0, 0, 0, 0)])
CHAINS = {
    "RandomResizedCrop": [T.RandomResizedCrop(40), T.RandomFlip()],
    "LetterBox": [T.LetterBox(64, fill=114), T.RandomFlip(), T.Rotate(10)],
    "Resize and crop": [T.Resize(shorter=48), T.CenterCrop(40)],
    "flips before": [T.RandomFlip(), T.RandomFlip(axis="vertical"), T.Resize((30, 55))],
    "padded": [T.Pad((1, 2, 3, 4)), T.RandomResizedCrop(40)],
    "padded crop": [T.RandomCrop(32, pad=9), T.RandomFlip()],
    "two filters": [T.Resize(longer=50, interpolation="lanczos"), T.RandomResizedCrop(24)],
    "ScaleJitter": [T.ScaleJitter(48, (0.3, 2.0), fill=114), T.RandomFlip()],
    "ScaleJitter of parts": [
        T.RandomFlip(),
        T.ScaleJitter((40, 60), fill=(1, 2, 3)),
        T.CenterCrop(48, fill=(1, 2, 3)),
    ],
    "drawn by boxes": [T.LetterBox(64), T.RandomIoUCrop(32), T.RandomFlip()],
    "sanitized": [T.Resize(40), T.SanitizeBoxes(9), T.ToFloat()],
    "composed": [T.Resize(32), T.Mosaic(40)],
}
FORMATS = [
    ("xyxy", None),
    ("coco", None),
    ("yolo", None),
    ("albumentations", None),
    ("xywh", True),
    ("cxcywh", False),
]


def boxes_in(form="xyxy", fractions=False, sizes=SIZES):
    """Return for every image the boxes, in a format, and their class."""
    found = []
    for height, width in sizes:
        low, high = CORNERS[:, :2], CORNERS[:, 2:]
        first = {"xyxy": low, "xywh": low, "cxcywh": (low + high) / 2}[form]
        second = high if form == "xyxy" else high - low
        unit = (1, 1) if fractions else (width, height)
        rows = np.concatenate([first * unit, second * unit, [[1], [2], [3], [4]]], axis=1)
        found.append(rows.astype(np.float32))
    return np.stack(found)


def keypoints_in():
    return np.ascontiguousarray(boxes_in()[:, :, :2] + 3)


def fields(files, **others):
    return {"image": encoded(files), **others}


@pytest.mark.parametrize("name", CHAINS)
def test_points_are_those_of_decoded_images(name):
    files, pixels = photographs()
    boxes, keypoints = boxes_in(), keypoints_in()
    names = ("image", "boxes", "keypoints")
    ops = {names: CHAINS[name]}
    if name == "composed":
        # Partners are of all sizes, so there is no loader of one size to compare with.
        ops = {names: CHAINS[name][:1]}
    batch = loader(fields(files, boxes=boxes, keypoints=keypoints), ops).batch(2)
    expected = from_pixels(pixels, ops, 2, boxes=boxes, keypoints=keypoints)
    assert set(batch) == {*names, "boxes_valid", "keypoints_valid"}
    for field, values in expected.items():
        np.testing.assert_array_equal(batch[field], values, field)
    assert batch["boxes_valid"][:, 1].all()
    assert not batch["boxes_valid"][:, 3].any()


def test_points_of_composed_images_are_those_of_resized_ones():
    files, _ = photographs()
    boxes = boxes_in()
    names = ("image", "boxes")
    made = loader(fields(files, boxes=boxes), {names: [T.Resize(32)]})
    rows = made.indices(0)
    resized = {name: np.empty_like(array) for name, array in made.batch(0).items()}
    for name, array in made.batch(0).items():
        resized[name][rows] = array
    data = {name: resized[name] for name in names}
    composed = loader(fields(files, boxes=boxes), {names: CHAINS["composed"]}).batch(0)
    expected = loader(data, {names: [T.CenterCrop(32), *CHAINS["composed"][1:]]}).batch(0)
    np.testing.assert_array_equal(composed["image"], expected["image"])
    np.testing.assert_allclose(composed["boxes"], expected["boxes"], atol=1e-4)


@pytest.mark.parametrize(("name", "normalized"), FORMATS)
def test_boxes_come_back_in_their_format(name, normalized):
    """Resized images have their boxes at the same fractions of height and width, in all formats."""
    kind = T.Boxes(name, normalized=normalized)
    form = {"coco": "xywh", "yolo": "cxcywh", "albumentations": "xyxy"}.get(name, name)
    files, _ = photographs()
    data = fields(files, boxes=boxes_in(form, kind.is_normalized))
    made = loader(data, {("image", "boxes"): [T.Resize((50, 70))]}, kinds={"boxes": kind})
    wanted = boxes_in(form, kind.is_normalized, [(50, 70)] * ROWS)
    np.testing.assert_allclose(made.batch(0)["boxes"], wanted, atol=1e-4)


def test_letterboxed_boxes_are_scaled_and_shifted_by_the_size_of_each_image():
    """The arithmetic of torchvision's resize and pad, written out."""
    files, _ = photographs()
    boxes = boxes_in()
    made = loader(fields(files, boxes=boxes), {("image", "boxes"): [T.LetterBox(64)]})
    batch = made.batch(0)
    for place, row in enumerate(made.indices(0)):
        height, width = SIZES[row]
        if height >= width:
            tall, wide = 64, max(1, round(64 * width / height))
        else:
            tall, wide = max(1, round(64 * height / width)), 64
        down, across = (64 - tall) // 2, (64 - wide) // 2
        ratio = np.array([wide / width, tall / height] * 2)
        wanted = boxes[row, :3, :4] * ratio + [across, down, across, down]
        np.testing.assert_allclose(batch["boxes"][place, :3, :4], wanted, atol=1e-3)
        np.testing.assert_array_equal(batch["boxes"][place, :, 4], boxes[row, :, 4])


def test_boxes_stay_on_what_they_are_around():
    """A bright rectangle in every image is where its box is, whatever the windows."""
    sizes = [(90 + 7 * k, 140 - 5 * k) for k in range(8)]
    files, boxes = [], np.zeros((8, 1, 4), np.float32)
    for number, (height, width) in enumerate(sizes):
        pixels = np.zeros((height, width, 3), np.uint8)
        top, left = 20 + number, 30 + 2 * number
        pixels[top : top + 40, left : left + 50] = 255
        boxes[number, 0] = left, top, left + 50, top + 40
        files.append(encode(pixels, "PNG"))
    ops = [T.RandomFlip(), T.RandomResizedCrop(64, scale=(0.7, 1)), T.RandomFlip(axis="vertical")]
    data = fields(files, boxes=boxes)
    for step in range(4):
        batch = loader(data, {("image", "boxes"): ops}, batch_size=8).batch(step)
        for image, box in zip(batch["image"], batch["boxes"][:, 0], strict=True):
            bright = image[..., 0] > 127
            rows, columns = np.flatnonzero(bright.any(1)), np.flatnonzero(bright.any(0))
            seen = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
            np.testing.assert_allclose(box, seen, atol=1)


def test_masks_and_points_move_together():
    files, pixels = photographs()
    masks = [labels_of(each) for each in pixels]
    data = fields(
        files, mask=encoded([encode(each, "PNG") for each in masks], mode="P"), boxes=boxes_in()
    )
    ops = {("mask", "boxes", "image"): CHAINS["LetterBox"]}
    batch = loader(data, ops).batch(1)
    expected = from_pixels(pixels, ops, 1, mask=masks, boxes=boxes_in())
    for name, values in expected.items():
        np.testing.assert_array_equal(batch[name], values, name)


def test_ops_may_be_in_several_entries():
    files, _ = photographs()
    data = fields(files, boxes=boxes_in())
    names = ("image", "boxes")
    windows = [T.Pad(3), T.LetterBox(64)]
    for entries in (
        [(names, windows), ("image", [T.ToFloat()])],
        [(names, windows[:1]), (("boxes", "image"), windows[1:]), ("image", [T.ToFloat()])],
    ):
        found = loader(data, dict(entries)).batch(0)
        together = loader(data, {names: windows}).batch(0)
        np.testing.assert_array_equal(found["boxes"], together["boxes"])
    assert found["image"].dtype == np.float32


@pytest.mark.parametrize("shared", [[], [T.RandomFlip()], [T.LetterBox(48), T.RandomIoUCrop(40)]])
def test_views_have_points_of_their_own(shared):
    files, pixels = photographs()
    boxes = boxes_in()
    own = [[T.Resize(32)], [T.RandomResizedCrop(24), T.RandomFlip()]]
    views = T.Views(own, names=["weak", "strong"])
    ops = {("image", "boxes"): [*shared, views]}
    batch = loader(fields(files, boxes=boxes), ops).batch(1)
    expected = from_pixels(pixels, ops, 1, boxes=boxes)
    assert "boxes_strong_valid" in batch
    for name, values in expected.items():
        np.testing.assert_array_equal(batch[name], values, name)


def test_views_of_images_check_the_sizes_of_their_masks():
    images = [encode(smooth(30, 40), "PNG")] * ROWS
    masks = [encode(smooth(30, 41)[..., 0], "PNG")] * ROWS
    data = fields(images, mask=encoded(masks, mode="P"))
    made = loader(data, {("image", "mask"): [T.RandomCrop(20), T.Views(2, [T.RandomFlip()])]})
    with pytest.raises(lx.DataError, match="must have one size"):
        made.batch(0)


@pytest.mark.timeout(60)
def test_batches_do_not_depend_on_threads_and_replaced_rows_bring_their_boxes():
    files, _ = photographs(SIZES * 4)
    files[7] = b"damaged"
    boxes = np.tile(boxes_in(), (4, 1, 1))
    boxes[:, :, 4] = np.arange(len(files))[:, None]
    data = fields(files, boxes=boxes, label=np.arange(len(files)))
    ops = {("image", "boxes"): [T.LetterBox(48), T.RandomFlip()]}
    batches = []
    for workers in (1, 3):
        made = loader(data, ops, workers=workers, batch_size=4, on_error="replace", num_epochs=1)
        with iter(made) as it:
            batches.append(list(it))
    for one, other in zip(*batches, strict=True):
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name])
        np.testing.assert_array_equal(one["boxes"][:, 0, 4], one["label"])
        assert 7 not in one["label"]


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        (
            {("image", "boxes"): [T.RandomFlip()], "image": [T.Resize(9)]},
            "through some of their windows only",
        ),
        (
            [(("image", "boxes"), [T.Pad(1)]), ("image", [T.Pad(2)]), (("boxes", "image"), [T.Resize(9)])],
            "through some of their windows only",
        ),
        ({("image", "boxes"): [T.RandomFlip()]}, "'image' holds encoded images of any sizes"),
        ({"boxes": [T.ToFloat()], ("image", "boxes"): [T.Resize(9)]}, "put all other ops on it after"),
        ({("image", "integers_boxes"): [T.Resize(9)]}, r"must be float32\[n, 4\]"),
        ({("image", "length"): [T.Resize(9)]}, "must be encoded images, boxes or keypoints"),
        ({("image", "boxes"): [T.RandomIoUCrop(9)]}, "RandomIoUCrop.* is not such a window"),
        ({("image", "boxes"): [T.BoxSafeCrop(9)]}, "BoxSafeCrop.* is not such a window"),
        ({("image", "boxes"): [T.ZoomOut(9)]}, "ZoomOut.* is not such a window"),
    ],
)  # fmt: skip
def test_points_that_do_not_follow_all_windows_are_refused(transforms, message):
    files, _ = photographs()
    data = fields(
        files,
        boxes=boxes_in(),
        integers_boxes=np.zeros((ROWS, 2, 4), np.int32),
        length=np.ones(ROWS, np.int32),
    )
    with pytest.raises(lx.ArgumentError, match=message):
        loader(data, dict(transforms))


def test_a_damaged_first_image_is_an_error_at_its_step():
    files, _ = photographs()
    files[0] = b"damaged"

    @lx.transform
    def shift(x, rng):
        for k in range(x.shape[0]):
            x[k, 0] += 1

    data = fields(files, boxes=boxes_in())
    made = loader(data, {("image", "boxes"): [T.Resize(9)], "boxes": [shift()]})
    with pytest.raises(lx.DataError, match="not an image of a known format"):
        made.batch(0)


def test_explain_lists_the_windows_that_points_move_through():
    files, _ = photographs()
    data = fields(files, boxes=boxes_in())
    lines = loader(data, {("image", "boxes"): [T.RandomFlip(), T.Resize(9)]}).explain().splitlines()
    assert any("boxes" in line and "RandomFlip, Resize" in line for line in lines)
