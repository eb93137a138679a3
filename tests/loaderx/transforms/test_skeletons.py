"""Skeletons turn, stretch, lose joints and frames, and absent persons stay absent."""

import math
import re

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.transform import Rotation

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.transforms import skeletons as K  # noqa: N812
from tests.loaderx.transforms.images import Applied, apply

FRAMES, JOINTS, PERSONS = 12, 25, 2
# Frames of the first person, and of the second, in each sample that `skeletons` gives; the others are absent.
PRESENT = [((0, 12), (0, 12)), ((0, 9), (0, 0)), ((2, 8), (4, 10)), ((0, 1), (0, 0)), ((0, 0), (0, 0))]  # fmt: skip


@pytest.fixture
def interpreted(monkeypatch):
    """Run ops in plain Python: one test compares the compiled code with that."""
    monkeypatch.setenv("LOADERX_DEBUG", "1")


def skeletons(frames=FRAMES, joints=JOINTS, persons=PERSONS, channels=3, seed=0):
    x = np.random.default_rng(seed).normal(size=(len(PRESENT), channels, frames, joints, persons))
    for sample, stretches in zip(x, PRESENT, strict=True):
        for person, (first, stop) in enumerate(stretches[:persons]):
            sample[:, :first, :, person] = 0
            sample[:, stop:, :, person] = 0
    return x.astype(np.float32)


def present(x):
    """Return which persons are present, as (samples, 1, frames, 1, persons)."""
    return np.any(x != 0, axis=(1, 3), keepdims=True)


EVERY_OP = [
    K.SkeletonRotate((30, (5, 20), T.Choice(-90, 0, 90))),
    K.SkeletonScale(),
    K.SkeletonShear(),
    K.JointJitter(),
    K.JointDrop(),
    K.FrameDrop(),
    K.FrameDrop(0.3, replace="repeat"),
    K.TemporalCrop(length=17),
    K.LeftRightFlip(K.NTU_PAIRS),
    K.CenterOnJoint(1),
    K.CenterOnJoint(20, frame=2),
]


def test_compiled_ops_do_what_they_do_in_plain_python(monkeypatch):
    x = np.concatenate([skeletons(seed=seed) for seed in range(4)])
    compiled = apply(x, *EVERY_OP)
    assert compiled.shape == (20, 3, 17, JOINTS, PERSONS)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_allclose(compiled, apply(x, *EVERY_OP), atol=1e-5)


@pytest.mark.parametrize("op", [op for op in EVERY_OP if op.name != "TemporalCrop"], ids=repr)
@pytest.mark.usefixtures("interpreted")
def test_absent_persons_and_padding_stay_zero(op):
    x = skeletons()
    out = apply(x, op)
    if op.name == "FrameDrop":
        # A person of the frame before may be in a repeated one.
        nobody = ~present(x).any(axis=-1, keepdims=True)
        assert not np.any(out[np.broadcast_to(nobody, x.shape)])
    else:
        assert not np.any(out[~np.broadcast_to(present(x), x.shape)])
    assert not np.any(np.signbit(out[-1])) or op.name in ("SkeletonRotate", "SkeletonShear")


@pytest.mark.usefixtures("interpreted")
def test_nothing_to_do_gives_the_sequence_back_bit_for_bit():
    x = skeletons()
    x[0, 0, 0, 0] = -0.0
    for op in (
        K.SkeletonRotate(0),
        K.SkeletonRotate((0, 0, 0)),
        K.SkeletonScale(0),
        K.SkeletonShear(0),
        K.JointJitter(0),
        K.JointDrop(0),
        K.FrameDrop(0),
        K.FrameDrop(0, replace="repeat"),
        K.LeftRightFlip(K.NTU_PAIRS, 0),
    ):
        np.testing.assert_array_equal(apply(x, op).view(np.uint32), x.view(np.uint32), op.name)
    whole = apply(x[:1], K.TemporalCrop(1.0))
    np.testing.assert_array_equal(whole.view(np.uint32), x[:1].view(np.uint32))


@pytest.mark.parametrize("shape", [(3, 1, 1, 1), (3, 2, 25, 1)])
@pytest.mark.usefixtures("interpreted")
def test_the_smallest_sequences_are_sequences(shape):
    x = np.ones((4, *shape), np.float32)
    for op in EVERY_OP:
        if op.name not in ("LeftRightFlip", "CenterOnJoint"):
            assert apply(x, op).dtype == np.float32
    np.testing.assert_array_equal(apply(x, K.CenterOnJoint(0)), np.zeros_like(x))
    np.testing.assert_array_equal(apply(x, K.LeftRightFlip((), 1.0))[:, 0], -x[:, 0])


# Rotate, Scale, Shear


def mapped(sample, matrix):
    return np.einsum("ij,jtvm->itvm", matrix, sample.astype(np.float64))


@pytest.mark.usefixtures("interpreted")
def test_rotations_are_those_of_scipy():
    x = skeletons()
    applied = Applied(x, K.SkeletonRotate((40, (10, 20), 180)))
    for sample, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        angles = [rng.uniform(-40, 40), rng.uniform(10, 20), rng.uniform(-180, 180)]
        matrix = Rotation.from_euler("xyz", angles, degrees=True).as_matrix()
        np.testing.assert_allclose(out, mapped(sample, matrix), atol=1e-5)


@pytest.mark.parametrize(("axis", "expected"), [(0, (1, -3, 2)), (1, (3, 2, -1)), (2, (-2, 1, 3))])
@pytest.mark.usefixtures("interpreted")
def test_a_quarter_turn_about_an_axis_exchanges_the_two_others(axis, expected):
    x = np.array([1, 2, 3], np.float32).reshape(1, 3, 1, 1, 1)
    degrees = [T.Choice(0)] * 3
    degrees[axis] = T.Choice(90)
    np.testing.assert_allclose(apply(x, K.SkeletonRotate(degrees)).reshape(3), expected, atol=1e-6)


@pytest.mark.usefixtures("interpreted")
def test_one_number_is_for_all_axes_and_angles_are_uniform():
    x = np.broadcast_to(np.eye(3, dtype=np.float32).reshape(3, 1, 3, 1), (1000, 3, 1, 3, 1))
    out = apply(x, K.SkeletonRotate(30)).reshape(-1, 3, 3)
    angles = Rotation.from_matrix(out).as_euler("xyz", degrees=True)
    for axis in range(3):
        assert stats.kstest(angles[:, axis], stats.uniform(-30, 60).cdf).pvalue > 0.001


@pytest.mark.parametrize("channels", [2, 3])
@pytest.mark.usefixtures("interpreted")
def test_every_channel_is_scaled_by_a_factor_of_its_own(channels):
    x = skeletons(channels=channels)
    applied = Applied(x, K.SkeletonScale(0.3))
    for sample, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        factors = np.float32([rng.uniform(0.7, 1.3) for _ in range(channels)])
        np.testing.assert_array_equal(out, sample * factors[:, None, None, None])


@pytest.mark.usefixtures("interpreted")
def test_a_shear_is_a_matrix_with_ones_on_its_diagonal():
    x = skeletons()
    applied = Applied(x, K.SkeletonShear(0.5))
    for sample, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        matrix = np.eye(3)
        matrix[~np.eye(3, dtype=bool)] = [rng.uniform(-0.5, 0.5) for _ in range(6)]
        np.testing.assert_allclose(out, mapped(sample, matrix), atol=1e-5)


# JointJitter, JointDrop, FrameDrop


@pytest.mark.usefixtures("interpreted")
def test_jitter_is_gaussian_noise_on_persons_who_are_present():
    x = skeletons()
    there = np.broadcast_to(present(x), x.shape)
    noise = (apply(x, K.JointJitter(0.5)).astype(np.float64) - x)[there]
    assert stats.kstest(noise, stats.norm(0, 0.5).cdf).pvalue > 0.001


@pytest.mark.usefixtures("interpreted")
def test_a_joint_at_the_centre_of_a_present_person_jitters_too():
    out = apply(skeletons()[:1], K.CenterOnJoint(1), K.JointJitter())
    assert np.all(out[:, :, :, 1] != 0)


@pytest.mark.parametrize("probability", [0.2, 1.0])
@pytest.mark.usefixtures("interpreted")
def test_a_dropped_joint_is_zero_for_all_frames_and_persons(probability):
    x = np.ones((100, 2, 3, JOINTS, 2), np.float32)
    out = apply(x, K.JointDrop(probability))
    dropped = out[:, 0, 0, :, 0] == 0
    expected = np.broadcast_to(~dropped[:, None, None, :, None], x.shape)
    np.testing.assert_array_equal(out, expected.astype(np.float32))
    if probability == 1:
        assert np.all(dropped)
    else:
        assert stats.binomtest(int(dropped.sum()), dropped.size, probability).pvalue > 0.001


@pytest.mark.parametrize("probability", [0.3, 1.0])
@pytest.mark.usefixtures("interpreted")
def test_dropped_frames_are_zero_or_the_last_that_was_not(probability):
    x = skeletons()
    zeroed = Applied(x, K.FrameDrop(probability))
    repeated = Applied(x, K.FrameDrop(probability, replace="repeat"))
    rows = zip(x, zeroed.out, repeated.out, zeroed.draws(), strict=True)
    for sample, zero, repeat, rng in rows:
        dropped = np.array([rng.random() < probability for _ in range(FRAMES)])
        expected = sample.copy()
        expected[:, dropped] = 0
        np.testing.assert_array_equal(zero, expected)
        kept = ~dropped | ~sample.any(axis=(0, 2, 3))
        kept[0] = True
        last = np.maximum.accumulate(np.where(kept, np.arange(FRAMES), 0))
        np.testing.assert_array_equal(repeat, sample[:, last])


@pytest.mark.usefixtures("interpreted")
def test_frames_are_dropped_as_often_as_asked():
    x = np.ones((100, 1, 50, 1, 1), np.float32)
    dropped = apply(x, K.FrameDrop(0.1)) == 0
    assert stats.binomtest(int(dropped.sum()), dropped.size, 0.1).pvalue > 0.001


# TemporalCrop


def cropped(sample, rng, low, high, length):
    """Return np.interp between the middles of frames, and the nearer frame for persons who come or leave."""
    there = sample.any(axis=(0, 2))
    frames = np.flatnonzero(there.any(axis=1))
    if len(frames) == 0:
        return np.zeros((3, length, *sample.shape[2:]))
    first, valid = frames[0], frames[-1] - frames[0] + 1
    extent = max(1, round(rng.uniform(low, high) * valid))
    first += int(rng.integers(0, valid - extent + 1))
    stretch, there = sample[:, first : first + extent], there[first : first + extent]
    places = np.clip((np.arange(length) + 0.5) * extent / length - 0.5, 0, extent - 1)
    below, above = np.floor(places).astype(int), np.ceil(places).astype(int)
    nearest = np.floor(places + 0.5).astype(int)
    out = np.empty((3, length, *sample.shape[2:]))
    for person in range(sample.shape[3]):
        steady = there[below, person] == there[above, person]
        for c in range(3):
            for joint in range(sample.shape[2]):
                values = stretch[c, :, joint, person]
                linear = np.interp(places, np.arange(extent), values)
                out[c, :, joint, person] = np.where(steady, linear, values[nearest])
    return out


@pytest.mark.parametrize("length", [None, 5, 31])
@pytest.mark.parametrize("ratio", [(0.5, 1.0), (0.0, 0.2), (1.0, 1.0)])
@pytest.mark.usefixtures("interpreted")
def test_a_stretch_of_the_valid_frames_is_scaled_linearly(length, ratio):
    x = np.concatenate([skeletons(joints=3, seed=seed) for seed in range(3)])
    applied = Applied(x, K.TemporalCrop(ratio, length))
    assert applied.out.shape == (15, 3, length or FRAMES, 3, PERSONS)
    for sample, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        expected = cropped(sample, rng, *ratio, length or FRAMES)
        np.testing.assert_allclose(out, expected, atol=1e-5)
        # No padding is left.
        assert out.any(axis=(0, 2, 3)).all() == sample.any()


@pytest.mark.usefixtures("interpreted")
def test_stretches_are_as_long_as_the_ratio_says_and_lie_anywhere():
    x = np.zeros((2000, 1, 60, 1, 1), np.float32)
    x[:, 0, :50, 0, 0] = np.arange(1, 51)
    out = apply(x, K.TemporalCrop((0.4, 0.8)))[:, 0, :, 0, 0]
    # The first and the last new frame lie outside of the middles of the first and the last one of the stretch.
    first, last = out[:, 0], out[:, -1]
    extents = last - first + 1
    assert set(extents) == set(range(20, 41))
    place = (first - 1 + np.random.default_rng(0).random(2000)) / (50 - extents + 1)
    assert stats.kstest(place, "uniform").pvalue > 0.001


# LeftRightFlip


def test_the_pairs_of_ntu_are_left_and_right_joints_in_the_order_of_the_dataset():
    names = [
        *("base", "spine", "neck", "head"),
        *("left shoulder", "left elbow", "left wrist", "left hand"),
        *("right shoulder", "right elbow", "right wrist", "right hand"),
        *("left hip", "left knee", "left ankle", "left foot"),
        *("right hip", "right knee", "right ankle", "right foot"),
        *("upper spine", "left tip", "left thumb", "right tip", "right thumb"),
    ]
    named = [(names[left], names[right]) for left, right in K.NTU_PAIRS]
    assert all(left == right.replace("right", "left") for left, right in named)
    assert len({left for left, _ in named}) == sum("left" in name for name in names)


@pytest.mark.usefixtures("interpreted")
def test_a_flip_negates_x_and_exchanges_pairs_and_two_flips_change_nothing():
    x = skeletons()
    order = np.arange(JOINTS)
    for left, right in K.NTU_PAIRS:
        order[[left, right]] = right, left
    expected = x[:, :, :, order] * np.float32([-1, 1, 1])[:, None, None, None]
    op = K.LeftRightFlip(K.NTU_PAIRS, 1.0)
    np.testing.assert_array_equal(apply(x, op), expected)
    np.testing.assert_array_equal(apply(x, op, op), x)
    flat = x[:, :2]
    np.testing.assert_array_equal(apply(flat, op), expected[:, :2])


@pytest.mark.usefixtures("interpreted")
def test_sequences_are_flipped_as_often_as_asked():
    x = np.ones((1000, 3, 1, 2, 1), np.float32)
    flipped = apply(x, K.LeftRightFlip([(0, 1)], 0.3))[:, 0, 0, 0, 0] < 0
    assert stats.binomtest(int(flipped.sum()), 1000, 0.3).pvalue > 0.001


# CenterOnJoint


@pytest.mark.usefixtures("interpreted")
def test_every_frame_is_centred_on_the_joint_of_its_first_person():
    x = skeletons()
    # Where the first person is absent this joint is at 0, and nothing is subtracted.
    centre = x[:, :, :, 1:2, :1]
    np.testing.assert_array_equal(apply(x, K.CenterOnJoint(1)), np.where(present(x), x - centre, 0))


@pytest.mark.parametrize("frame", [0, 3, FRAMES - 1])
@pytest.mark.usefixtures("interpreted")
def test_all_frames_are_centred_on_the_joint_of_one(frame):
    x = skeletons()
    centre = x[:, :, frame : frame + 1, 20:21, :1]
    expected = np.where(present(x), x - centre, 0)
    np.testing.assert_array_equal(apply(x, K.CenterOnJoint(20, frame)), expected)


# Labels


@pytest.mark.usefixtures("interpreted")
def test_labels_that_follow_a_sequence_stay_as_they_are():
    x, labels = skeletons(), np.arange(len(PRESENT))
    loader = lx.DataLoader(
        {"skeleton": x, "label": labels},
        batch_size=len(x),
        shuffle=False,
        output="numpy",
        transforms={("skeleton", "label"): [op for op in EVERY_OP if op.name != "TemporalCrop"]},
    )
    np.testing.assert_array_equal(loader.batch(0)["label"], labels)


# Refusals

REFUSED = [
    (lambda: K.SkeletonRotate((10, 20)), "`degrees` (=(10, 20)) must be three amounts, for x, y and z, or one number"),
    (lambda: K.SkeletonRotate(-1), "`degrees` (=-1) must be a number of at least 0"),
    (lambda: K.SkeletonRotate((1, 2, math.nan)), "`degrees` (=nan) must be a number of at least 0"),
    (lambda: K.SkeletonScale(-0.1), "`amount` (=-0.1) must be a number of at least 0"),
    (lambda: K.SkeletonShear("much"), "`amount` (='much') must be a number of at least 0"),
    (lambda: K.JointJitter(-1), "`std` (=-1) must be a number of at least 0"),
    (lambda: K.JointDrop(1.1), "`probability` (=1.1) must be from 0 to 1."),
    (lambda: K.FrameDrop(math.nan), "`probability` (=nan) must be from 0 to 1."),
    (lambda: K.FrameDrop(replace="hold"), "`replace` (='hold') must be \"zero\" or \"repeat\"."),
    (lambda: K.TemporalCrop(1.5), "`ratio` (=1.5) must be a number from 0 to 1"),
    (lambda: K.TemporalCrop(length=0), "`length` (=0) must be an integer of at least 1, or None."),
    (lambda: K.LeftRightFlip(5), "`pairs` (=5) must be pairs of joints, integers of at least 0, each of them once."),
    (lambda: K.LeftRightFlip([(1, 2, 3)]), "`pairs` (=[(1, 2, 3)]) must be pairs of joints"),
    (lambda: K.LeftRightFlip([(1, 2), (2, 3)]), "`pairs` (=[(1, 2), (2, 3)]) must be pairs of joints"),
    (lambda: K.LeftRightFlip([(-1, 2)]), "`pairs` (=[(-1, 2)]) must be pairs of joints"),
    (lambda: K.LeftRightFlip([(1, 2.0)]), "`pairs` (=[(1, 2.0)]) must be pairs of joints"),
    (lambda: K.LeftRightFlip([(1, 2)], 3), "`probability` (=3) must be from 0 to 1."),
    (lambda: K.CenterOnJoint(-1), "`joint` (=-1) must be an integer of at least 0."),
    (lambda: K.CenterOnJoint(1, frame=-1), "`frame` (=-1) must be an integer of at least 0, or None."),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_that_cannot_work_are_refused_at_once(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("op", EVERY_OP, ids=repr)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((3, 12, 25), "float32"), ((3, 0, 25, 2), "float32"), ((3, 12, 25, 2), "float64")],
)
def test_every_op_refuses_samples_that_are_not_sequences_of_skeletons(op, shape, dtype):
    message = (
        f"{op.name} accepts float32 samples of shape (channels, frames, joints, persons), not "
        f"{dtype}{list(shape)}."
    )
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        lx.pipeline([op])(np.zeros((2, *shape), dtype))


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (K.SkeletonRotate(), "SkeletonRotate accepts the 3 channels x, y and z, not float32[2, 4, 17, 1]."),
        (K.SkeletonShear(), "SkeletonShear accepts the 3 channels x, y and z, not float32[2, 4, 17, 1]."),
        (K.LeftRightFlip(K.NTU_PAIRS), "LeftRightFlip: the joints of `pairs` must be below 17, not 24; the input is"),
        (K.CenterOnJoint(17), "CenterOnJoint: `joint` (=17) must be below 17; the input is float32[2, 4, 17, 1]."),
        (K.CenterOnJoint(0, 4), "CenterOnJoint: `frame` (=4) must be below 4; the input is float32[2, 4, 17, 1]."),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_the_skeleton_are_refused(op, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        lx.pipeline([op])(np.zeros((2, 2, 4, 17, 1), np.float32))
