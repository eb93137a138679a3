"""Views: one sample as several fields, each augmented with draws of its own."""

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it

ROWS = 40
TUPLE_MESSAGE = (
    "`transforms` makes the fields '0_0', '0_1', '1', which need names: give `dataset` as a dict, not "
    "as a tuple."
)


def data():
    image = np.random.default_rng(0).integers(0, 256, (ROWS, 12, 12, 3), np.uint8)
    return {"image": image, "label": np.arange(ROWS, dtype=np.int32)}


class Rows:
    """Source in Python with the same data."""

    def __init__(self):
        self._data = data()

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return {name: values[row] for name, values in self._data.items()}


def loader(transforms, dataset=None, **options):
    options = {"batch_size": 20, "output": "numpy", **options}
    return lx.DataLoader(data() if dataset is None else dataset, transforms=transforms, **options)


def same_samples(first, second):
    return np.all(first == second, axis=tuple(range(1, first.ndim)))


def test_views_are_fields_of_their_own_in_place_of_the_original():
    batch = loader({"image": T.Views(2, [T.RandomFlip()])}).batch(0)
    assert list(batch) == ["image_0", "image_1", "label"]
    original = data()["image"][batch["label"]]
    mirrored = original[:, :, ::-1]
    ways = []
    for view in (batch["image_0"], batch["image_1"]):
        flipped = same_samples(view, mirrored)
        assert np.all(flipped | same_samples(view, original))
        assert 0 < flipped.sum() < 20
        ways.append(flipped)
    assert np.any(ways[0] != ways[1])


def test_views_share_what_comes_before_them():
    transforms = {"image": [T.RandomCrop(8), T.Views([[], [T.RandomFlip(1)], [T.ToFloat()]])]}
    batch = loader(transforms).batch(0)
    np.testing.assert_array_equal(batch["image_1"], batch["image_0"][:, :, ::-1])
    np.testing.assert_allclose(batch["image_2"], batch["image_0"] / np.float32(255), rtol=1e-6)


def test_views_may_have_names_and_ops_after_them():
    views = T.Views(2, [T.RandomCrop(8)], names=("student", "teacher"))
    batch = loader({"image": [views], "image_teacher": [T.ToFloat()]}).batch(0)
    assert {name: values.dtype.name for name, values in batch.items()} == {
        "image_student": "uint8",
        "image_teacher": "float32",
        "label": "int32",
    }


def test_a_mask_follows_its_image_into_every_view():
    dataset = {**data(), "mask": data()["image"][..., 0].astype(np.int32)}
    transforms = {("image", "mask"): T.Views(2, [T.RandomCrop(8), T.RandomFlip()])}
    batch = loader(transforms, dataset).batch(0)
    for number in range(2):
        np.testing.assert_array_equal(batch[f"image_{number}"][..., 0], batch[f"mask_{number}"])
    assert not np.array_equal(batch["mask_0"], batch["mask_1"])


@pytest.mark.parametrize("where", ["before", "inside"])
def test_boxes_follow_into_every_view(where):
    boxes = np.tile(np.array([[[2, 3, 6, 8]]], np.float32), (ROWS, 1, 1))
    dataset = {"image": data()["image"], "boxes": boxes}
    flip = T.RandomFlip(1)
    ops = [flip, T.Views([[], [flip]])] if where == "before" else [T.Views([[flip], [flip, flip]])]
    batch = loader({("image", "boxes"): ops}, dataset).batch(0)
    assert list(batch) == [
        "image_0",
        "image_1",
        "boxes_0",
        "boxes_0_valid",
        "boxes_1",
        "boxes_1_valid",
    ]
    np.testing.assert_array_equal(batch["boxes_0"][0, 0], [6, 3, 10, 8])
    np.testing.assert_array_equal(batch["boxes_1"][0, 0], [2, 3, 6, 8])


def test_many_crops_are_views_of_several_sizes():
    crops = T.MultiCrop((8, 4), (2, 3), ((0.5, 1.0), (0.1, 0.4)), [T.RandomFlip(), T.ToFloat()])
    batch = loader(crops, data()["image"]).batch(0)
    assert [(name, values.shape[1]) for name, values in batch.items()] == [
        ("data_0", 8),
        ("data_1", 8),
        ("data_2", 4),
        ("data_3", 4),
        ("data_4", 4),
    ]
    assert not np.array_equal(batch["data_0"], batch["data_1"])


@pytest.mark.parametrize("workers", [1, 3])
def test_views_of_python_objects_are_those_of_arrays(workers):
    transforms = {"image": T.Views(2, [T.RandomCrop(8), T.RandomFlip()])}
    expected = loader(transforms).batch(1)
    with iter(loader(transforms, Rows(), workers=workers)) as batches:
        next(batches)
        batch = next(batches)
    assert list(batch) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(batch[name], values)


def test_views_of_records_decode_each_of_them_once(tmp_path):
    path = tmp_path / "images.array_record"
    lx.write_array_record(path, data()["image"], compression="zstd")
    transforms = T.Views(2, [T.RandomCrop(8), T.RandomFlip()])
    batch = loader(transforms, lx.ARDataset(path)).batch(1)
    expected = loader(transforms, data()["image"]).batch(1)
    for name, values in expected.items():
        np.testing.assert_array_equal(batch[name], values)


def test_a_state_does_not_depend_on_the_views():
    plain = loader(None)
    with iter(plain) as batches:
        next(batches)
        state = batches.get_state()
    with iter(loader({"image": T.Views(2, [T.RandomCrop(8)])})) as batches:
        batches.set_state(state)
        np.testing.assert_array_equal(next(batches)["label"], plain.batch(1)["label"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.Views(0, []), "`views` (=0) must be an integer of at least 1."),
        (lambda: T.Views(2), "`ops` (=None) must be a list of transforms."),
        (lambda: T.Views([]), "`views` (=[]) must be at least one."),
        (
            lambda: T.Views(2, [], names=("a",)),
            "`names` (=('a',)) must be 2 different names, one for each view.",
        ),
        (
            lambda: T.MultiCrop((8, 4), (2,), ((0.5, 1.0),)),
            "`sizes`, `counts` and `scales` must have the same length, got 2, 1 and 1.",
        ),
        (
            lambda: loader({"image": [T.Views(2, []), T.ToFloat()]}),
            "Views must be the last of its list of transforms.",
        ),
        (
            lambda: loader({"image": T.Views(2, [])}, {**data(), "image_1": data()["label"]}),
            "`transforms` makes a field 'image_1' of 'image', and there is one already.",
        ),
        (
            lambda: loader({"image": T.Views(2, []), "label": [], ("image",): [T.ToFloat()]}),
            "`transforms` names the field 'image'; `dataset` has 'label', 'image_0', 'image_1'.",
        ),
        (
            lambda: loader({"0": T.Views(2, [])}, (data()["image"], data()["label"])),
            TUPLE_MESSAGE,
        ),
        (
            lambda: lx.pipeline([T.Views(2, [])])(data()["image"]),
            "`transforms` of a pipeline give one array; Views are for a DataLoader.",
        ),
    ],
)
def test_bad_views_are_refused(make, message):
    with pytest.raises(lx.ArgumentError) as caught:
        make()
    assert str(caught.value) == message
