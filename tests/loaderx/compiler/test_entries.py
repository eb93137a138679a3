"""Entries of `transforms` are checked when the loader is built: fields, ops, and whether they fit each other."""

import functools

import numpy as np
import pytest
from PIL import Image

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as its users call it

IMAGES = np.zeros((4, 8, 6, 3), np.uint8)
LABELS = np.arange(4)


@lx.transform
def needs_amount(x, amount):
    x[0] += amount


@lx.transform
def add_one(x):
    x[0] += 1


def loader_of(transforms, data=None, **options):
    data = {"image": IMAGES, "label": LABELS} if data is None else data
    return lx.DataLoader(data, batch_size=4, output="numpy", transforms=transforms, **options)


def refused(transforms, *words, data=None):
    """Check that it raises an ArgumentError with all of these words in its message or its notes."""
    with pytest.raises(lx.ArgumentError) as refusal:
        loader_of(transforms, data)
    text = "\n".join([str(refusal.value), *getattr(refusal.value, "__notes__", [])])
    for word in words:
        assert word in text


# --- fields -----------------------------------------------------------------------------------


def test_a_list_goes_to_the_only_field_and_to_the_field_data():
    only = loader_of([T.ToFloat()], {"image": IMAGES}).batch(0)
    assert only["image"].dtype == np.float32
    alone = loader_of([T.ToFloat()], IMAGES).batch(0)
    assert alone.dtype == np.float32
    both = lx.DataLoader(
        IMAGES, LABELS, batch_size=4, output="numpy", transforms=(T.ToFloat(),)
    ).batch(0)
    assert (both["data"].dtype, both["label"].dtype) == (np.float32, np.int64)


def test_a_list_is_refused_where_it_could_go_to_several_fields():
    refused([T.ToFloat()], "'image', 'label'", "Give a dict from field to list")


def test_an_unknown_field_is_refused():
    refused({"images": [T.ToFloat()]}, "'images'", "'image', 'label'")
    refused({("image", "mask"): [T.RandomFlip()]}, "'mask'", "'image', 'label'")


def test_an_entry_is_for_one_field_or_for_several_different_ones():
    refused({(): [T.RandomFlip()]}, "one field, or for several different ones")
    refused({("image", "image"): [T.RandomFlip()]}, "('image', 'image')")


def test_fields_of_a_tuple_are_known_by_their_number():
    images, labels = loader_of({0: [T.ToFloat()], "1": [T.OneHot(4)]}, (IMAGES, LABELS)).batch(0)
    assert (images.dtype, labels.shape) == (np.float32, (4, 4))


@pytest.mark.parametrize(
    "transforms", [T.ToFloat(), "image", 3, {"image": T.ToFloat()}, {"image": 3}]
)
def test_transforms_that_are_not_a_list_are_refused(transforms):
    refused(transforms, "list")


# --- ops --------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [T.RandomFlip, T.Normalize, T.Resize, T.MixUp])
def test_an_op_without_parentheses_is_refused(op):
    name = op.__name__
    refused({"image": [T.CenterCrop(6), op]}, name, f"{name}(...)", "op 1", "for image")


@pytest.mark.parametrize("op", [3, "RandomFlip", None, [T.RandomFlip()]])
def test_ops_that_are_neither_transforms_nor_functions_are_refused(op):
    refused({"image": [op]}, repr(op), "neither a transform nor a function")


def test_an_authored_transform_may_be_listed_without_parentheses_if_it_needs_no_parameters():
    rows = np.zeros((4, 2), np.float32)
    assert loader_of([add_one], rows).batch(0)[:, 0].tolist() == [1, 1, 1, 1]
    refused([needs_amount], "needs_amount", "amount", "op 0", data=rows)


# --- what fits what ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "ops", "words"),
    [
        ("image", [T.RandomCrop(10)], ["RandomCrop", "(10, 10)", "(8, 6)", "uint8[8, 6, 3]", "op 0"]),
        (
            "image",
            [T.CenterCrop((4, 5)), T.RandomCrop(5)],
            ["RandomCrop", "(5, 5)", "uint8[4, 5, 3]", "op 1 of `transforms` for image"],
        ),
        (
            "image",
            [T.ToFloat(channels_first=True), T.Normalize([0.5, 0.5, 0.5], 1.0)],
            ["Normalize", "3 entries", "float32[3, 8, 6]", "op 1"],
        ),
        ("label", [T.RandomFlip()], ["RandomFlip", "(height, width, channels)", "int64[]"]),
        ("label", [T.OneHot(4), T.OneHot(4)], ["OneHot", "single integers", "float32[4]", "op 1"]),
        ("image", [T.MixUp()], ["MixUp", "float32", "uint8[8, 6, 3]", "ToFloat"]),
        ("label", [T.ToFloat(), T.CutMix()], ["CutMix", "(height, width, channels)", "float32[]"]),
        (
            "image",
            [T.ToFloat(dtype="float16"), add_one],
            ["'add_one'", "float16[8, 6, 3]", "half precision last", "op 1"],
        ),
    ],
    ids=["crop", "second crop", "channels", "label", "one-hot twice", "mixup", "cutmix", "half"],
)  # fmt: skip
def test_an_op_that_does_not_fit_names_itself_and_its_input(field, ops, words):
    refused({field: ops}, *words)


def test_ops_see_what_the_entries_before_left_of_their_field():
    loader = loader_of(
        {
            "image": [T.CenterCrop(6)],
            "label": [T.OneHot(4)],
            ("image",): [T.Resize(4), T.ToFloat(channels_first=True)],
            ("image", "label"): [T.MixUp(0.5)],
        }
    )
    batch = loader.batch(0)
    assert (batch["image"].shape, batch["image"].dtype) == ((4, 3, 4, 4), np.float32)
    assert (batch["label"].shape, batch["label"].dtype) == ((4, 4), np.float32)
    assert "image: float32[3, 4, 4]" in repr(loader)
    # In the other order the first entry finds no one-hot labels.
    refused(
        {("image", "label"): [T.MixUp(0.5)], "image": [T.ToFloat()], "label": [T.OneHot(4)]},
        "MixUp",
        "op 0 of `transforms` for image, label",
    )


def test_the_output_of_the_chain_is_what_the_loader_delivers():
    for dtype, delivered in (("int64", np.int32), ("float64", np.float32)):
        loader = lx.DataLoader(IMAGES[:, 0, 0], batch_size=4, transforms=[T.Cast(dtype)])
        assert loader.batch(0).dtype == delivered
        assert f"{np.dtype(delivered)}[3]" in repr(loader)


# --- names and advice -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["boxes", "bboxes", "bbox", "face_bboxes"])
def test_boxes_are_known_by_the_names_that_people_give_them(name):
    corners = np.tile(np.float32([[1, 2, 3, 5]]), (4, 1, 1))
    data = {"image": IMAGES, name: corners}
    batch = loader_of({("image", name): [T.RandomFlip(1.0)]}, data).batch(0)
    np.testing.assert_array_equal(batch[name], np.tile(np.float32([[3, 2, 5, 5]]), (4, 1, 1)))
    assert batch[f"{name}_valid"].all()


def test_boxes_by_another_name_are_refused_with_the_names_that_are_known():
    data = {"image": IMAGES, "rectangles": np.zeros((4, 2, 4), np.float32)}
    refused(
        {("image", "rectangles"): [T.RandomFlip()]}, "boxes, bboxes, bbox, keypoints", data=data
    )


def test_a_field_may_have_any_name():
    data = {"my field": IMAGES, "3": LABELS}
    batch = loader_of({"my field": [T.ToFloat()], "3": [T.OneHot(4)]}, data).batch(0)
    assert (batch["my field"].dtype, batch["3"].shape) == (np.float32, (4, 4))
    refused({"my_field": [T.ToFloat()]}, "'my_field'", "'my field'", data=data)


def turned(x):
    return np.asarray(Image.fromarray(x).transpose(Image.Transpose.ROTATE_180))


def inverted(x):
    return 255 - x


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (turned, "'turned' is a plain .* calls PIL, which cannot be compiled.*loaderx convert"),
        (inverted, "'inverted' is a plain .* decorate it with `@loaderx.transform`"),
        (np.negative, "'negative' is a plain .* write it as a function"),
        (
            functools.partial(np.clip, a_min=1, a_max=2),
            "'clip' is a plain .* write it as a function",
        ),
    ],
)
def test_the_advice_for_a_python_function_can_be_followed(function, wanted):
    with pytest.warns(UserWarning, match=wanted) as caught:
        loader = loader_of({"image": [function]})
    assert caught[0].filename == __file__
    assert loader.batch(0)["image"].shape == IMAGES.shape


def test_a_transform_that_needs_another_library_is_told_to_leave_the_decorator_out():
    @lx.transform
    def resized(x):
        x[:] = np.asarray(Image.fromarray(x))

    with pytest.raises(lx.TransformError, match=r"(?s)'resized'.*another library.*undecorated"):
        loader_of({"image": [resized]})


@pytest.mark.parametrize("make", [T.Cast, lambda dtype: T.ToFloat(dtype=dtype)])
@pytest.mark.parametrize("dtype", [2**64, "nonsense", object()])
def test_invalid_dtypes_are_refused_by_their_names(make, dtype):
    with pytest.raises(lx.ArgumentError, match=r"`dtype` .* must be"):
        make(dtype)
