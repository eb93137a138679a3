"""Every field of an entry has a kind: image, labels, values, boxes or keypoints, and ops treat it as such."""

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.spec import Spec
from loaderx.transforms.kinds import infer_kinds

ROWS, HEIGHT, WIDTH = 16, 20, 24
SIZE = (HEIGHT, WIDTH)
RNG = np.random.default_rng(0)
PHOTO = RNG.integers(0, 256, (ROWS, *SIZE, 3), np.uint8)
GREY = PHOTO[..., 0]
# Two classes that are far apart: ops that mix them make classes between.
MASK = np.where(RNG.random((ROWS, *SIZE)) < 0.5, 0, 9).astype(np.uint8)
DEPTH = RNG.uniform(1, 50, (ROWS, *SIZE)).astype(np.float32)
BOXES = np.tile(np.float32([[2, 3, 12, 15], [5, 6, 9, 17]]), (ROWS, 1, 1))
KEYPOINTS = np.ascontiguousarray(BOXES[..., :2])

COLOURS = [
    T.Brightness(0.4),
    T.Contrast(0.4),
    T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    T.Gamma(),
    T.Invert(),
    T.Posterize(3),
    T.GaussianBlur(2.0),
    T.Sharpness(0.8),
    T.GaussianNoise(0.2),
    T.SaltPepper(0.3),
    T.RandomErasing(1.0),
    T.GridMask(),
    T.Fog(),
    T.Rain(),
    T.Shadow(),
]
VALUE_OPS = [T.ToFloat(), T.Normalize(0.5, 0.25), T.Cast("float32")]
POLICIES = [
    T.Maybe(0.7, T.Brightness(0.4), T.GaussianNoise(0.2)),
    T.OneOf(T.Invert(), T.Posterize(2)),
    T.RandAugment(2, ops=[T.Solarize(), T.Contrast(0.4)]),
    T.AugMix(ops=[T.Posterize(2), T.Solarize(), T.Invert()]),
    T.Sequence(T.ToFloat(), T.Normalize(0.5, 0.25)),
]
MOVING = [
    T.Rotate(30),
    T.Affine(20, translate_x=0.1, scale=(0.7, 1.3)),
    T.RandomResizedCrop((14, 18)),
    T.Resize((11, 13)),
    T.Resize((10, 12), interpolation="area"),
    T.ElasticDeform(3, 8),
    T.GridDistortion(3, 0.5),
    T.ScaleJitter((14, 18)),
    T.RandAugment(3, 20),
    T.TrivialAugment(),
    T.Maybe(0.8, T.Perspective(0.4), T.Brightness(0.3)),
]


def batch_of(data, ops, names=None, **options):
    names = tuple(data) if names is None else names
    options = {"batch_size": ROWS, "shuffle": False, "output": "numpy", **options}
    return lx.DataLoader(data, transforms={names: ops}, **options).batch(0)


def refused(data, ops, *words, names=None, **options):
    with pytest.raises(lx.ArgumentError) as caught:
        batch_of(data, ops, names, **options)
    for word in words:
        assert word in str(caught.value)


def classes(labels):
    return set(np.unique(labels).tolist())


# --- labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [*COLOURS, *VALUE_OPS, *POLICIES], ids=lambda op: op.name)
def test_ops_on_values_change_the_image_and_leave_labels_alone(op):
    batch = batch_of({"image": PHOTO, "mask": MASK}, [op])
    np.testing.assert_array_equal(batch["mask"], MASK, strict=True)
    assert batch["image"].dtype != np.uint8 or np.any(batch["image"] != PHOTO)


@pytest.mark.parametrize("op", MOVING, ids=lambda op: op.name)
@pytest.mark.parametrize("names", [("image", "mask"), ("mask", "image")], ids="-".join)
def test_labels_are_moved_and_never_mixed_whatever_the_order(op, names):
    batch = batch_of({"image": PHOTO, "mask": MASK}, [op], names)
    assert classes(batch["mask"]) <= {0, 9}
    assert batch["mask"].dtype == np.uint8
    assert np.any(batch["mask"].shape != MASK.shape) or np.any(batch["mask"] != MASK)
    # The image is interpolated: it has values that the mask has nowhere.
    assert len(classes(batch["image"])) > 100


def test_the_order_of_the_names_decides_the_draws_and_nothing_else():
    image = np.repeat(MASK[..., None], 3, -1)
    for names in (("image", "mask"), ("mask", "image")):
        ops = [T.RandomFlip(), T.RandomCrop((10, 12)), T.Brightness((1.0, 1.0))]
        batch = batch_of({"image": image, "mask": MASK}, ops, names)
        np.testing.assert_array_equal(batch["image"][..., 0], batch["mask"])
        assert batch["mask"].shape == (ROWS, 10, 12)


def test_a_mask_of_one_channel_and_one_of_booleans_are_labels_without_a_telling_name():
    data = {"x": PHOTO, "y": MASK[..., None], "z": MASK > 0, "w": MASK.astype(np.int32)}
    batch = batch_of(data, [T.Rotate(30), T.ToFloat()])
    assert batch["x"].dtype == np.float32
    assert classes(batch["y"]) <= {0, 9}
    assert classes(batch["w"]) <= {0, 9}
    assert batch["z"].dtype == np.bool_
    np.testing.assert_array_equal(batch["z"], batch["w"] > 0)
    np.testing.assert_array_equal(batch["y"][..., 0], batch["w"])


def test_a_label_of_the_whole_image_keeps_its_number():
    data = {"data": PHOTO, "label": np.arange(ROWS)}
    batch = batch_of(data, [T.Brightness(0.2), T.ToFloat(), T.Normalize(0.5, 0.5)])
    np.testing.assert_array_equal(batch["label"], np.arange(ROWS))
    grey = batch_of({"data": GREY, "label": np.arange(ROWS)}, [T.ToFloat()])
    np.testing.assert_array_equal(grey["label"], np.arange(ROWS))


def test_a_field_alone_has_no_kind():
    data = {"image": PHOTO, "mask": MASK, "depth": DEPTH}
    loader = lx.DataLoader(
        data,
        batch_size=ROWS,
        shuffle=False,
        output="numpy",
        transforms={
            "mask": [T.ToFloat()],
            "depth": [T.Normalize(2.0, 4.0)],
            ("image", "depth"): [T.Brightness(0.2)],
        },
    )
    batch = loader.batch(0)
    np.testing.assert_allclose(batch["mask"], MASK / np.float32(255), rtol=1e-6)
    np.testing.assert_allclose(batch["depth"], (DEPTH - 2) / 4, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", [*MOVING, *COLOURS[:2], *VALUE_OPS], ids=lambda op: op.name)
def test_masks_that_number_boxes_are_labels(op):
    plain = batch_of({"image": PHOTO, "mask": MASK}, [op])["mask"]
    given = batch_of({"image": PHOTO, "mask": MASK}, [op], kinds={"mask": "instances"})["mask"]
    # Other names have other draws, so the mask alone is renamed by what is after its last word.
    named = batch_of({"image": PHOTO, "instance_1": MASK}, [op])["instance_1"]
    np.testing.assert_array_equal(given, plain)
    assert named.shape == plain.shape
    assert classes(named) <= {0, 9}


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [*COLOURS, *VALUE_OPS, *POLICIES], ids=lambda op: op.name)
def test_ops_on_values_leave_depth_alone(op):
    batch = batch_of({"image": PHOTO, "depth": DEPTH}, [op])
    np.testing.assert_array_equal(batch["depth"], DEPTH, strict=True)


@pytest.mark.parametrize("name", ["depth", "distance", "mask", "laser_flow"])
def test_values_are_moved_with_the_image_and_interpolated(name):
    image = np.repeat(DEPTH[..., None] / np.float32(50), 3, -1)
    batch = batch_of({"image": image, name: DEPTH}, [T.Rotate(30), T.Resize((31, 17))])
    np.testing.assert_allclose(batch[name], batch["image"][..., 0] * 50, rtol=1e-3, atol=1e-3)
    assert not set(np.unique(batch[name])) <= set(np.unique(DEPTH))


def test_aug_mix_mixes_values_as_it_mixes_the_image():
    image = np.repeat(DEPTH[..., None] / np.float32(50), 3, -1)
    ops = [T.Rotate(20), T.Affine(translate_x=0.2)]
    batch = batch_of({"image": image, "depth": DEPTH}, [T.AugMix(ops=ops)])
    np.testing.assert_allclose(batch["depth"], batch["image"][..., 0] * 50, rtol=1e-3, atol=1e-2)
    assert np.any(batch["depth"] != DEPTH)


# --- several images ---------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("left", "right"), ("image_1", "image_2"), ("rgb", "thermal")])
def test_a_stereo_pair_stays_a_pair(names):
    ops = [
        T.RandomResizedCrop((16, 16)),
        T.RandomFlip(),
        T.Rotate(20),
        T.ColorJitter(0.4, 0.4, 0.4, 0.1),
        T.RandAugment(2, 15),
        T.GaussianNoise(0.1),
        T.Normalize(0.5, 0.2),
    ]
    data = {names[0]: PHOTO, names[1]: PHOTO.copy(), "mask": MASK}
    batch = batch_of(data, ops, kinds={names[1]: "image"} if names[1] == "thermal" else None)
    np.testing.assert_array_equal(batch[names[0]], batch[names[1]])
    assert batch[names[1]].dtype == np.float32
    assert classes(batch["mask"]) <= {0, 9}
    alone = batch_of({names[0]: PHOTO, "mask": MASK}, ops, (names[0], "mask"))
    assert alone[names[0]].shape == batch[names[0]].shape


# --- boxes and keypoints ----------------------------------------------------------------------


def test_points_follow_the_image_in_any_place_of_the_entry():
    data = {"boxes": BOXES, "keypoints": KEYPOINTS, "image": PHOTO}
    batch = batch_of(data, [T.RandomFlip(1.0), T.Brightness(0.3), T.Cast("float32")])
    expected = BOXES.copy()
    expected[..., [0, 2]] = WIDTH - BOXES[..., [2, 0]]
    np.testing.assert_array_equal(batch["boxes"], expected)
    np.testing.assert_array_equal(batch["keypoints"][..., 0], WIDTH - KEYPOINTS[..., 0])
    assert batch["boxes_valid"].all()


def test_points_of_any_name_follow_by_their_kind():
    data = {"image": PHOTO, "rectangles": BOXES, "joints": KEYPOINTS}
    kinds = {"rectangles": "boxes", "joints": "keypoints"}
    batch = batch_of(data, [T.RandomFlip(1.0)], kinds=kinds)
    named = batch_of({"image": PHOTO, "boxes": BOXES}, [T.RandomFlip(1.0)])
    np.testing.assert_array_equal(batch["rectangles"], named["boxes"])
    assert batch["joints_valid"].shape == (ROWS, 2)


# --- AugMix -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy", [T.AugMix(), T.Maybe(0.5, T.AugMix()), T.AugMix(ops=[T.Rotate(9)])]
)
@pytest.mark.parametrize(
    ("name", "field", "what"),
    [("mask", MASK, "labels"), ("boxes", BOXES, "boxes"), ("keypoints", KEYPOINTS, "keypoints")],
)  # fmt: skip
def test_aug_mix_refuses_to_move_pixels_next_to_what_cannot_be_mixed(policy, name, field, what):
    words = ("AugMix", what, "ops=[Posterize(4)", "an entry of its own")
    refused({"image": PHOTO, name: field}, [policy], *words)


def test_aug_mix_over_colours_leaves_boxes_alone():
    op = T.AugMix(ops=[T.Posterize(2), T.Invert()])
    batch = batch_of({"image": PHOTO, "boxes": BOXES}, [op])
    np.testing.assert_array_equal(batch["boxes"], BOXES)
    assert np.any(batch["image"] != PHOTO)


@lx.transform
def add_one(x):
    """Add one to every value."""
    flat = x.reshape(-1)
    for k in range(flat.shape[0]):
        flat[k] += 1


def test_aug_mix_refuses_ops_of_your_own_next_to_labels_which_they_would_change():
    refused({"image": PHOTO, "mask": MASK}, [T.AugMix(ops=[add_one()])], "AugMix", "labels")


# --- what is uncertain, and what is given -----------------------------------------------------


@pytest.mark.parametrize(
    ("data", "ops", "field"),
    [
        ({"x": PHOTO, "y": PHOTO}, [T.RandomFlip()], "x"),
        ({"image": PHOTO, "annotation": PHOTO}, [T.RandomFlip()], "annotation"),
        ({"x": GREY, "y": GREY}, [T.Rotate(10)], "x"),
        ({"image": GREY, "y": GREY}, [T.Rotate(10)], "y"),
        ({"x": DEPTH[..., None], "y": GREY[..., None]}, [T.Brightness(0.1)], "x"),
        ({"x": PHOTO, "y": PHOTO}, [T.ToFloat()], "x"),
        ({"a": PHOTO / 255.0, "b": PHOTO / 255.0}, [T.Brightness(0.2)], "a"),
    ],
)
def test_an_uncertain_field_is_refused_with_what_to_write(data, ops, field):
    words = (ops[0].name, repr(field), "may be an image or", f"kinds={{{field!r}: 'image'}}")
    refused(data, ops, *words)


def test_all_uncertain_fields_are_named():
    refused({"x": PHOTO, "y": PHOTO, "z": PHOTO}, [T.Rotate(9)], "field 'x'", "too: 'y', 'z'.")


def test_a_given_kind_ends_the_uncertainty():
    twice = np.repeat(MASK[..., None], 3, -1)
    data = {"x": PHOTO, "y": twice}
    labels = batch_of(data, [T.Rotate(30), T.ToFloat()], kinds={"y": "labels"})
    assert classes(labels["y"]) <= {0, 9}
    assert labels["x"].dtype == np.float32
    images = batch_of(data, [T.Rotate(30)], kinds={"x": "image", "y": "image"})
    assert len(classes(images["y"])) > 2
    # A given kind comes before a name.
    named = batch_of({"image": PHOTO, "mask": twice}, [T.Rotate(30)], kinds={"mask": "image"})
    assert len(classes(named["mask"])) > 2


def test_a_kind_that_makes_no_difference_may_be_uncertain():
    floats = PHOTO / np.float32(255)
    batch = batch_of({"a": floats, "b": floats}, [T.Rotate(30), T.Maybe(0.5, T.RandomFlip())])
    np.testing.assert_array_equal(batch["a"], batch["b"])


def test_the_fields_of_a_tuple_have_kinds_by_their_number():
    loader = lx.DataLoader(
        (PHOTO, np.repeat(MASK[..., None], 3, -1)),
        batch_size=ROWS,
        output="numpy",
        transforms={(0, 1): [T.Rotate(30)]},
        kinds={1: "labels"},
    )
    assert classes(loader.batch(0)[1]) <= {0, 9}


def test_labels_without_an_image_are_moved_and_not_coloured():
    data = {"mask": MASK, "seg": MASK}
    batch = batch_of(data, [T.Rotate(30)])
    np.testing.assert_array_equal(batch["mask"], batch["seg"])
    assert classes(batch["mask"]) <= {0, 9}
    refused(data, [T.Brightness(0.2)], "Brightness is for images", "'mask', 'seg'")
    refused({"boxes": BOXES, "keypoints": KEYPOINTS}, [T.RandomFlip()], "RandomFlip is for images")


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (["labels"], ["`kinds` (=['labels'])", "a dict from field to kind"]),
        ({"masks": "labels"}, ["`kinds` names the field 'masks'", "'image', 'mask'"]),
        ({"mask": "label"}, ["`kinds['mask']` (='label')", "'image', 'labels', 'values'"]),
        ({"mask": None}, ["`kinds['mask']` (=None)", "'boxes', 'keypoints', 'length'"]),
        ({"mask": "boxes"}, ["`kinds['mask']` (='boxes')", "float32[n, 4]", "uint8[20, 24]"]),
        ({"mask": "keypoints"}, ["`kinds['mask']`", "float32[n, 2]"]),
        ({"mask": "length"}, ["`kinds['mask']`", "single integers"]),
        ({"depth": "labels"}, ["`kinds['depth']` (='labels')", "integers or booleans", "float32"]),
        ({"number": "image"}, ["`kinds['number']`", "(height, width, channels)", "int64[]"]),
    ],
)
@pytest.mark.parametrize("used", [False, True])
def test_a_kind_that_cannot_be_is_refused(kinds, words, used):
    data = {"image": PHOTO, "mask": MASK, "depth": DEPTH, "number": np.arange(ROWS)}
    transforms = {("image", "mask", "depth", "number"): [T.ToFloat()]} if used else None
    with pytest.raises(lx.ArgumentError) as caught:
        lx.DataLoader(data, transforms=transforms, kinds=kinds)
    for word in words:
        assert word in str(caught.value)


def test_kinds_without_transforms_change_nothing():
    loader = lx.DataLoader(
        {"image": PHOTO, "mask": MASK}, batch_size=4, output="numpy", kinds={"mask": "labels"}
    )
    assert loader.batch(0)["mask"].shape == (4, *SIZE)


# --- the rules --------------------------------------------------------------------------------

IMAGE3, FLOAT3 = Spec((*SIZE, 3), np.uint8), Spec((*SIZE, 3), np.float32)
PLANE, FLOATS, WIDE = Spec(SIZE, np.uint8), Spec(SIZE, np.float32), Spec(SIZE, np.int64)
SINGLE = Spec((), np.int64)


@pytest.mark.parametrize(
    ("fields", "expected", "lead"),
    [
        ({"image": IMAGE3, "mask": PLANE}, "image labels", 0),
        ({"mask": PLANE, "image": IMAGE3}, "labels image", 1),
        ({"image": PLANE, "mask": PLANE}, "image labels", 0),
        ({"data": PLANE, "label": PLANE}, "image labels", 0),
        ({"x": IMAGE3, "y": PLANE}, "image labels", 0),
        ({"y": PLANE, "x": IMAGE3}, "labels image", 1),
        ({"x": FLOATS, "y": WIDE}, "image labels", 0),
        ({"x": IMAGE3, "y": SINGLE}, "image labels", 0),
        ({"image": PLANE, "y": WIDE}, "image labels", 0),
        ({"image": PLANE, "y": FLOATS}, "image values", 0),
        ({"x": FLOATS, "y": FLOAT3}, "values image", 1),
        ({"Left": IMAGE3, "cam_right": IMAGE3}, "image image", 0),
        ({"img1": IMAGE3, "img_2": IMAGE3}, "image image", 0),
        ({"image": IMAGE3, "soft_mask": FLOATS}, "image values", 0),
        ({"image": IMAGE3, "depth": Spec(SIZE, np.uint16)}, "image values", 0),
        ({"image": IMAGE3, "xyz": FLOAT3}, "image values", 0),
        ({"x": IMAGE3, "y": IMAGE3}, "image/labels image/labels", 0),
        ({"x": FLOAT3, "y": FLOAT3}, "image/values image/values", 0),
        ({"x": FLOATS, "y": PLANE}, "image/values image/labels", 0),
        ({"x": Spec(SIZE, np.bool_), "y": PLANE}, "labels image", 1),
    ],
)
def test_kinds_follow_from_names_dtypes_and_shapes(fields, expected, lead):
    found = infer_kinds(list(fields.items()), {}, images=True, channels=(1, 2, 3, 4))
    assert " ".join("/".join(possible) for possible in found.possible) == expected
    assert (found.lead, found.has_image) == (lead, True)


@pytest.mark.parametrize(
    "fields",
    [
        {"inputs": Spec((64,), np.int32), "targets": Spec((64,), np.int32)},
        {"coarse_label": SINGLE, "fine_label": SINGLE},
        {"signal": Spec((50, 2), np.int16), "other": Spec((50, 2), np.int16)},
        {"clip": Spec((16, 40, 40), np.uint8), "other": Spec((16, 40, 40), np.uint8)},
    ],
)
def test_without_an_image_every_field_is_changed_by_what_changes_values(fields):
    data = {name: np.ones((4, *spec.shape), spec.dtype) for name, spec in fields.items()}
    batch = batch_of(data, [T.Cast("float32")], batch_size=4)
    assert [values.dtype for values in batch.values()] == [np.float32, np.float32]


def test_a_stream_of_kinds_is_the_same_in_plain_python(monkeypatch):
    data = {"mask": MASK, "image": PHOTO, "depth": DEPTH, "right": PHOTO}
    ops = [T.Rotate(20), T.Maybe(0.5, T.Brightness(0.3), T.RandomFlip()), T.ToFloat()]
    compiled = batch_of(data, ops)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    for name, values in batch_of(data, ops).items():
        np.testing.assert_array_equal(values, compiled[name], err_msg=name)
