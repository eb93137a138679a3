"""`probability`: one rule for all ops, one mechanism, and fields of an entry that agree on what happened."""

import inspect
import pickle
from functools import partial

import numpy as np
import pytest
from scipy import stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.transforms.combinators import Chance, left_to_chance
from tests.loaderx.transforms.catalogue import exported
from tests.loaderx.transforms.images import apply, images

# Ops that happen to every second sample unless `probability` says otherwise.
HALF = {"RandomFlip", "Transpose", "Polarity", "Reverse", "LeftRightFlip"}
# As in the libraries that people know them from: torchvision's RandomErasing and RandomZoomOut, Albumentations'
# ChannelDropout.
HALF |= {"RandomErasing", "ChannelDrop", "ZoomOut"}
# Here `probability` is that of each joint, frame, token, or of each of several changes.
OF_PARTS = {"JointDrop": 0.1, "FrameDrop": 0.1, "MaskTokens": 0.15, "PhotometricDistort": 0.5}
# Ops that change shape or dtype cannot leave a sample as it is.
CONVERT = """
    RandomCrop CenterCrop Pad PadIfNeeded LetterBox Resize RandomResizedCrop Normalize ToFloat Cast OneHot
    RandomCrop1D Resample MuLaw PadTo SpanCorruption BoxSafeCrop RandomIoUCrop ScaleJitter LogMel
"""
# Ops of ops and views, whose probability is `Maybe`; boxes that are put in order; and names that are not ops.
OTHERS = """
    Maybe OneOf Sequence RandomOrder SomeOf Views MultiCrop FiveCrop TenCrop Identity SanitizeBoxes
    Choice Channels Boxes
"""
# Arguments of ops that need some.
GIVEN = {
    **dict.fromkeys(("Brightness", "Contrast", "Saturation", "Sharpness", "TimeShift"), (0.5,)),
    "Hue": (0.2,),
    "Rotate": (30,),
    "CenterOnJoint": (0,),
    "LeftRightFlip": ([(0, 1)],),
    **dict.fromkeys(("TimeMask", "FreqMask"), (2,)),
    **dict.fromkeys(("BackgroundNoise", "ImpulseResponse"), (np.ones((2, 9), np.float32),)),
}
AT_A_RATE = ("LowPass", "HighPass", "BandPass", "LoudnessNormalize")
NAMED = {name: {"sample_rate": 16000} for name in AT_A_RATE}
WITH_PROBABILITY = {
    name: value
    for name, value in exported().items()
    if "probability" in inspect.signature(value).parameters and name not in OF_PARTS | {"Maybe": 0}
}


def test_every_op_that_can_leave_a_sample_has_a_probability_by_one_rule():
    others = set(exported()) - set(WITH_PROBABILITY)
    assert others == {*CONVERT.split(), *OTHERS.split(), *OF_PARTS}
    for name, value in WITH_PROBABILITY.items():
        argument = inspect.signature(value).parameters["probability"]
        assert argument.default == (0.5 if name in HALF else 1.0), name
        assert argument.annotation is float, name
    for name, default in OF_PARTS.items():
        assert inspect.signature(exported()[name]).parameters["probability"].default == default


@pytest.mark.parametrize("name", WITH_PROBABILITY)
def test_a_probability_is_from_0_to_1(name):
    make, given = partial(WITH_PROBABILITY[name], **NAMED.get(name, {})), GIVEN.get(name, ())
    for wrong in (-0.1, 1.5, float("nan"), "often", None, [0.5]):
        with pytest.raises(lx.ArgumentError, match=r"`probability` .* must be from 0 to 1"):
            make(*given, probability=wrong)
    op = make(*given, probability=0.25)
    assert repr(op).endswith("probability=0.25)")
    assert repr(left_to_chance(op)) == repr(op)
    always = make(*given, probability=1)
    assert left_to_chance(always) is always


def inverting(**named):
    return T.Solarize(0, **named)


def changed(before, after):
    return (before != after).reshape(len(before), -1).any(axis=1)


@pytest.mark.parametrize(
    "op", [inverting, lambda **named: T.Rotate((90, 90), **named)], ids=["in place", "elsewhere"]
)
def test_an_op_happens_as_often_as_it_says(op):
    rows = images((4, 4, 3), count=1500)
    happened = changed(rows, apply(rows, op(probability=0.3)))
    assert stats.binomtest(int(happened.sum()), len(rows), 0.3).pvalue > 1e-3
    assert not changed(rows, apply(rows, op(probability=0))).any()
    always = apply(rows, op())
    np.testing.assert_array_equal(apply(rows, op(probability=1)), always)
    some = apply(rows, op(probability=0.3))
    np.testing.assert_array_equal(some[happened], always[happened])


def test_two_ops_of_a_chain_happen_independently():
    rows = images((2, 2, 3), dtype=np.float32, count=3000)
    brighter = T.Brightness((0.5, 0.5), probability=0.5)
    factor = apply(rows, brighter, brighter)[:, 0, 0, 0] / rows[:, 0, 0, 0]
    counts = [int(np.isclose(factor, wanted).sum()) for wanted in (1, 0.5, 0.25)]
    assert sum(counts) == len(rows)
    assert stats.chisquare(counts, np.array([1, 2, 1]) / 4 * len(rows)).pvalue > 1e-3


def fields(count=64, size=8):
    boxes = np.tile(np.array([[0, 0, 3, 5]], np.float32), (count, 1, 1))
    return {
        "image": images((size, size, 3), count=count),
        "mask": images((size, size, 1), count=count).astype(np.int32),
        "depth": images((size, size, 1), dtype=np.float32, count=count),
        "boxes": boxes,
        "keypoints": boxes[:, :, :2] + 1,
    }


def batch_of(data, *ops, **settings):
    loader = lx.DataLoader(
        data, transforms={tuple(data): list(ops)}, shuffle=False, batch_size=64, output="numpy",
        **settings,
    )  # fmt: skip
    return loader.batch(0)


@pytest.mark.parametrize(
    "op",
    [T.Rotate((90, 90), probability=0.5), T.ElasticDeform(2, 2, probability=0.5)],
    ids=["map", "field"],
)
def test_fields_that_follow_an_image_agree_on_what_happens(op):
    data = fields()
    found = batch_of(data, op)
    happened = changed(data["image"], found["image"])
    assert 15 < happened.sum() < 50
    for name in ("mask", "depth", "boxes", "keypoints"):
        np.testing.assert_array_equal(changed(data[name], found[name]), happened, name)
    # Labels are not mixed.
    assert set(np.unique(found["mask"])) <= {0, *np.unique(data["mask"])}
    assert found["boxes_valid"].any(axis=1).all()


def test_changes_of_colours_leave_what_follows_an_image():
    data = fields()
    found = batch_of(data, inverting(probability=0.5), T.AutoAugment("svhn", probability=0))
    assert 15 < changed(data["image"], found["image"]).sum() < 50
    for name in ("mask", "depth", "boxes", "keypoints"):
        np.testing.assert_array_equal(data[name], found[name])


def test_chance_is_the_same_in_plain_python_and_in_any_number_of_threads(monkeypatch):
    rows = images((6, 6, 3), count=12)
    ops = [
        T.Rotate(30, probability=0.5),
        inverting(probability=0.5),
        T.OneOf(T.Brightness(0.5, probability=0.5), T.Rot90((1, 3), probability=0.5)),
        T.SomeOf(1, T.Contrast(0.5, probability=0.5), T.Identity()),
        T.RandAugment(2, ops=[inverting(probability=0.5), T.D4(probability=0.5)], probability=0.9),
    ]
    compiled = apply(rows, *ops)
    two = lx.pipeline(ops)(rows, threads=2)
    one = lx.pipeline(ops)(rows, threads=1)
    np.testing.assert_array_equal(one, two)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(rows, *ops), compiled)


def test_views_draw_their_own_chance():
    rows = images((4, 4, 3), count=200)
    loader = lx.DataLoader(
        {"image": rows}, shuffle=False, batch_size=200, output="numpy",
        transforms={"image": [T.Views(2, [inverting(probability=0.5)])]},
    )  # fmt: skip
    batch = loader.batch(0)
    both = [changed(rows, batch[f"image_{view}"]) for view in (0, 1)]
    assert 60 < (both[0] != both[1]).sum() < 140


def test_lengths_are_seen():
    signals = np.tile(np.arange(1, 11, dtype=np.float32), (200, 1))
    signals[:, 6:] = 0
    found = lx.DataLoader(
        {"data": signals, "length": np.full(200, 6)}, shuffle=False, batch_size=200,
        output="numpy", transforms={("data", "length"): [T.TimeShift((0.5, 0.5), probability=0.5)]},
    ).batch(0)  # fmt: skip
    kinds = {tuple(row) for row in found["data"].tolist()}
    assert kinds == {(1, 2, 3, 4, 5, 6, 0, 0, 0, 0), (4, 5, 6, 1, 2, 3, 0, 0, 0, 0)}
    assert (found["length"] == 6).all()


def test_an_op_that_changes_the_shape_must_happen():
    rows = images((4, 6, 3), count=2)
    with pytest.raises(lx.ArgumentError, match=r"Rot90: `probability` \(=0.5\) must be 1 here"):
        apply(rows, T.Rot90(1, probability=0.5))
    assert apply(rows, T.Rot90(1)).shape == (2, 6, 4, 3)
    joints = np.zeros((2, 3, 8, 5, 1), np.float32)
    with pytest.raises(lx.ArgumentError, match="TemporalCrop: `probability`"):
        apply(joints, T.TemporalCrop(length=4, probability=0.5))


def test_ops_with_a_probability_pickle_and_are_shown_as_written():
    op = T.Brightness((0.5, 0.5), probability=0.25)
    rows = images((4, 4, 3), count=40)
    for made in (op, T.Sequence(op), T.Maybe(0.5, op), left_to_chance(op)):
        copied = pickle.loads(pickle.dumps(made))
        np.testing.assert_array_equal(apply(rows, copied), apply(rows, made))
        assert repr(copied) == repr(made)
    assert repr(T.Sequence(op)) == "Sequence(Brightness((0.5, 0.5), probability=0.25))"
    assert isinstance(T.Sequence(op).ops[0], Chance)
    loader = lx.DataLoader({"image": rows}, transforms={"image": [op]}, output="numpy")
    assert "Maybe" not in loader.explain()
    assert "Brightness" in loader.explain()


def test_values_on_another_scale_are_warned_of_all_the_same():
    rows = 255 * images((4, 4, 3), dtype=np.float32, count=4)
    with pytest.warns(UserWarning, match="Brightness treats floats as images from 0 to 1"):
        apply(rows, T.Brightness(0.5, probability=0.5))
