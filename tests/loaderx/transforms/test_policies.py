"""Policies have the ops and amounts of their papers, draw evenly from them, and accept any others."""

import math

import numpy as np
import pytest
from scipy import stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.kernels.distributions import Draws
from loaderx.kernels.random import fold
from tests.loaderx.transforms.images import apply, images

# The ops of torchvision's `_augmentation_space`, in its order, and which op each of them is here.
SPACE = {
    "Identity": "Identity", "ShearX": "Affine", "ShearY": "Affine", "TranslateX": "Translate",
    "TranslateY": "Translate", "Rotate": "Rotate", "Brightness": "Brightness", "Color": "Saturation",
    "Contrast": "Contrast", "Sharpness": "Sharpness", "Posterize": "Posterize", "Solarize": "Solarize",
    "AutoContrast": "AutoContrast", "Equalize": "Equalize",
}  # fmt: skip
# Where the strength of an op is among its parameters: Affine has degrees, translations, scale and shears, Translate has
# right and down.
PLACES = {
    "ShearX": 4, "ShearY": 5, "TranslateX": 0, "TranslateY": 1, "Rotate": 0, "Posterize": "bits", "Solarize": "share",
    "Brightness": "amount", "Color": "amount", "Contrast": "amount", "Sharpness": "amount",
}  # fmt: skip


def ops_of(policy):
    return [branch.ops[0] for branch in policy.branches]


def named_ops(policy):
    """Return the ops of a policy of torchvision's space, by their names there."""
    ops = ops_of(policy)
    assert [op.name for op in ops] == list(SPACE.values())
    return dict(zip(SPACE, ops, strict=True))


def amounts_of(op, name=None):
    """Return the numbers an op chooses from."""
    parameters = op._parameters if hasattr(op, "_parameters") else op.parameters()
    return sorted(set(np.round(parameters[name or 0], 9).tolist()))


def strengths_of(name, op):
    """Return the numbers an op chooses from, in the unit of torchvision's tables: threshold of 255, shear a slope."""
    found = amounts_of(op, PLACES[name])
    if name.startswith("Shear"):
        assert op.parameters()[6:] == (0.0, 0.0, 0.0), "around the top left corner"
        found = [math.tan(math.radians(value)) for value in found]
    return [255 * value for value in found] if name == "Solarize" else found


def signed(values):
    return sorted({sign * value for sign in (-1, 1) for value in values})


def assert_strengths(name, op, expected):
    np.testing.assert_allclose(strengths_of(name, op), sorted(set(expected)), atol=1e-6)


def torchvision_space(bins, shear=0.3, translate=150 / 331, rotate=30.0, colour=0.9, bits=4):
    """Return torchvision's tables, `_augmentation_space` of its policies, with translations of a size of 1."""
    space = {
        "ShearX": (np.linspace(0, shear, bins), True),
        "ShearY": (np.linspace(0, shear, bins), True),
        "TranslateX": (np.linspace(0, translate, bins), True),
        "TranslateY": (np.linspace(0, translate, bins), True),
        "Rotate": (np.linspace(0, rotate, bins), True),
        "Posterize": (8 - np.round(np.arange(bins) / ((bins - 1) / (8 - bits))), False),
        "Solarize": (np.linspace(255, 0, bins), False),
    }
    for name in ("Brightness", "Color", "Contrast", "Sharpness"):
        space[name] = np.linspace(0, colour, bins), True
    return space


def expected_strengths(name, magnitudes, is_signed):
    values = signed(magnitudes) if is_signed else magnitudes
    colours = ("Brightness", "Color", "Contrast", "Sharpness")
    return [1 + value for value in values] if name in colours else values


@pytest.mark.parametrize("magnitude", [0, 9, 15, 30])
def test_rand_augment_has_the_table_of_torchvision(magnitude):
    ops = named_ops(T.RandAugment(2, magnitude))
    for name, (magnitudes, is_signed) in torchvision_space(31).items():
        expected = expected_strengths(name, [magnitudes[magnitude]], is_signed)
        assert_strengths(name, ops[name], expected)
    assert ops["TranslateX"].parameters()[2]
    assert T.RandAugment(3).number == 3


def test_rand_augment_has_the_strengths_of_its_default():
    ops = named_ops(T.RandAugment())
    assert amounts_of(ops["Posterize"], "bits") == [7]
    assert amounts_of(ops["Solarize"], "share") == [0.7]
    assert amounts_of(ops["Rotate"]) == [-9, 9]
    assert amounts_of(ops["Color"], "amount") == [0.73, 1.27]


def test_trivial_augment_has_the_wide_table_of_torchvision():
    ops = named_ops(T.TrivialAugment())
    wide = {"shear": 0.99, "translate": 32.0, "rotate": 135.0, "colour": 0.99, "bits": 2}
    for name, (magnitudes, is_signed) in torchvision_space(31, **wide).items():
        assert_strengths(name, ops[name], expected_strengths(name, magnitudes, is_signed))
    assert T.TrivialAugment().number == 1
    # Of both signs and of all strengths, each as likely.
    assert len(ops["Rotate"].parameters()[0]) == 62
    assert not ops["TranslateX"].parameters()[2]


@pytest.mark.parametrize("size", [32, 224])
def test_trivial_augment_translates_by_up_to_32_whole_pixels_whatever_the_size(size):
    op = named_ops(T.TrivialAugment())["TranslateX"]
    found = {
        op.function(Draws(fold(np.uint64(1), np.uint64(k))), size, size, size, size, *op.parameters())[2]
        for k in range(2000)
    }  # fmt: skip
    assert found == {sign * int(k * 32 / 30) for sign in (-1, 1) for k in range(31)}


@pytest.mark.parametrize(("size", "expected"), [((331, 662), 45), ((224, 100), 30), ((32, 7), 4)])
def test_rand_augment_translates_by_whole_pixels_of_a_fraction_of_the_size(size, expected):
    width, height = size
    ops = named_ops(T.RandAugment(2, 9))
    for name, place, length in (("TranslateX", 2, width), ("TranslateY", 5, height)):
        op = ops[name]
        found = {
            abs(op.function(Draws(k), height, width, height, width, *op.parameters())[place])
            for k in range(20)
        }
        assert found == {int(150 / 331 * length * 9 / 30 + 1e-9)}
    assert int(150 / 331 * width * 9 / 30 + 1e-9) == expected


# The levels of AugMix's `sample_level`, between 0.1 and the severity, finely.
def aug_mix_levels(severity):
    return np.linspace(0.1, severity, 100_001)[:-1]


@pytest.mark.parametrize("severity", [1, 3, 7, 10])
def test_aug_mix_has_the_ops_and_ranges_of_the_code_of_its_authors(severity):
    policy = T.AugMix(severity)
    ops = ops_of(policy)
    assert [op.name for op in ops] == [
        *("AutoContrast", "Equalize", "Posterize", "Rotate", "Solarize", "Affine", "Affine"),
        *("Translate", "Translate"),
    ]
    levels = aug_mix_levels(severity)
    bits = 4 - (levels * 4 / 10).astype(int)
    assert amounts_of(ops[2], "bits") == sorted(set(bits.tolist()))
    # Not only the same numbers of bits, but as often.
    given = ops[2]._parameters["bits"]
    for number in set(bits.tolist()):
        assert np.mean(given == number) == pytest.approx(np.mean(bits == number), abs=1e-3)
    degrees = (levels * 30 / 10).astype(int)
    assert amounts_of(ops[3]) == signed(set(degrees.tolist()))
    thresholds = 256 - (levels * 256 / 10).astype(int)
    found = 255 * ops[4]._parameters["share"]
    assert set(np.round(found).tolist()) <= set(thresholds.tolist())
    assert np.abs(found - np.round(found)).max() < 1e-9
    assert abs(found.mean() - thresholds.mean()) < 0.2
    # A slope of 0.3 at level 10, and a third of the size.
    for name, op, most in (
        *(("ShearX", ops[5], 0.3), ("ShearY", ops[6], 0.3)),
        *(("TranslateX", ops[7], 1 / 3), ("TranslateY", ops[8], 1 / 3)),
    ):
        found = np.array(strengths_of(name, op))
        step = most / 10 / 30
        assert abs(found).max() == pytest.approx(severity * most / 10, abs=step)
        assert abs(found).min() == pytest.approx(0.1 * most / 10, abs=step)
        np.testing.assert_allclose(found, -found[::-1], atol=1e-9)
        assert abs(found).mean() == pytest.approx(levels.mean() * most / 10, rel=1e-4)
    assert ops[7].parameters()[2]
    assert (policy.width, policy.depth, policy.alpha) == (3, (1, 3), 1.0)


def test_aug_mix_keeps_three_or_four_bits_by_default():
    assert amounts_of(ops_of(T.AugMix())[2], "bits") == [3, 4]


# torchvision's `AutoAugment._get_policies`: (op, probability, bin) of each half of a sub-policy.
AUTO_AUGMENT = {
    "imagenet": [
        (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)), (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
        (("Equalize", 0.8, None), ("Equalize", 0.6, None)), (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
        (("Equalize", 0.4, None), ("Solarize", 0.2, 4)), (("Equalize", 0.4, None), ("Rotate", 0.8, 8)),
        (("Solarize", 0.6, 3), ("Equalize", 0.6, None)), (("Posterize", 0.8, 5), ("Equalize", 1.0, None)),
        (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)), (("Equalize", 0.6, None), ("Posterize", 0.4, 6)),
        (("Rotate", 0.8, 8), ("Color", 0.4, 0)), (("Rotate", 0.4, 9), ("Equalize", 0.6, None)),
        (("Equalize", 0.0, None), ("Equalize", 0.8, None)), (("Invert", 0.6, None), ("Equalize", 1.0, None)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)), (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
        (("Color", 0.8, 8), ("Solarize", 0.8, 7)), (("Sharpness", 0.4, 7), ("Invert", 0.6, None)),
        (("ShearX", 0.6, 5), ("Equalize", 1.0, None)), (("Color", 0.4, 0), ("Equalize", 0.6, None)),
        (("Equalize", 0.4, None), ("Solarize", 0.2, 4)), (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
        (("Invert", 0.6, None), ("Equalize", 1.0, None)), (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
    ],
    "cifar10": [
        (("Invert", 0.1, None), ("Contrast", 0.2, 6)), (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
        (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)), (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.5, None), ("Equalize", 0.9, None)), (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
        (("Color", 0.4, 3), ("Brightness", 0.6, 7)), (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
        (("Equalize", 0.6, None), ("Equalize", 0.5, None)), (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
        (("Color", 0.7, 7), ("TranslateX", 0.5, 8)), (("Equalize", 0.3, None), ("AutoContrast", 0.4, None)),
        (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)), (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
        (("Solarize", 0.5, 2), ("Invert", 0.0, None)), (("Equalize", 0.2, None), ("AutoContrast", 0.6, None)),
        (("Equalize", 0.2, None), ("Equalize", 0.6, None)), (("Color", 0.9, 9), ("Equalize", 0.6, None)),
        (("AutoContrast", 0.8, None), ("Solarize", 0.2, 8)), (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
        (("Solarize", 0.4, 5), ("AutoContrast", 0.9, None)), (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.9, None), ("Solarize", 0.8, 3)), (("Equalize", 0.8, None), ("Invert", 0.1, None)),
        (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, None)),
    ],
    "svhn": [
        (("ShearX", 0.9, 4), ("Invert", 0.2, None)), (("ShearY", 0.9, 8), ("Invert", 0.7, None)),
        (("Equalize", 0.6, None), ("Solarize", 0.6, 6)), (("Invert", 0.9, None), ("Equalize", 0.6, None)),
        (("Equalize", 0.6, None), ("Rotate", 0.9, 3)), (("ShearX", 0.9, 4), ("AutoContrast", 0.8, None)),
        (("ShearY", 0.9, 8), ("Invert", 0.4, None)), (("ShearY", 0.9, 5), ("Solarize", 0.2, 6)),
        (("Invert", 0.9, None), ("AutoContrast", 0.8, None)), (("Equalize", 0.6, None), ("Rotate", 0.9, 3)),
        (("ShearX", 0.9, 4), ("Solarize", 0.3, 3)), (("ShearY", 0.8, 8), ("Invert", 0.7, None)),
        (("Equalize", 0.9, None), ("TranslateY", 0.6, 6)), (("Invert", 0.9, None), ("Equalize", 0.6, None)),
        (("Contrast", 0.3, 3), ("Rotate", 0.8, 4)), (("Invert", 0.8, None), ("TranslateY", 0.0, 2)),
        (("ShearY", 0.7, 6), ("Solarize", 0.4, 8)), (("Invert", 0.6, None), ("Rotate", 0.8, 4)),
        (("ShearY", 0.3, 7), ("TranslateX", 0.9, 3)), (("ShearX", 0.1, 6), ("Invert", 0.6, None)),
        (("Solarize", 0.7, 2), ("TranslateY", 0.6, 7)), (("ShearY", 0.8, 4), ("Invert", 0.8, None)),
        (("ShearX", 0.7, 9), ("TranslateY", 0.8, 3)), (("ShearY", 0.8, 5), ("AutoContrast", 0.7, None)),
        (("ShearX", 0.7, 2), ("Invert", 0.1, None)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("policy", AUTO_AUGMENT)
def test_auto_augment_has_the_sub_policies_of_torchvision(policy):
    found = T.AutoAugment(policy)
    assert found.number == 1
    np.testing.assert_allclose(np.diff(found.shares, prepend=0), np.full(25, 1 / 25))
    space = torchvision_space(10)
    for branch, expected in zip(found.branches, AUTO_AUGMENT[policy], strict=True):
        for half, (name, probability, number) in zip(branch.ops, expected, strict=True):
            assert isinstance(half, T.Maybe)
            assert half.shares[0] == probability
            (op,) = half.branches[0].ops
            assert op.name == SPACE.get(name, name)
            if number is None:
                assert name in ("AutoContrast", "Equalize", "Invert")
                # Maybe decides whether it runs, and nothing else.
                assert op._parameters["probability"] == 1
            else:
                magnitudes, is_signed = space[name]
                expected_values = expected_strengths(name, [magnitudes[number]], is_signed)
                assert_strengths(name, op, expected_values)


def test_auto_augment_draws_every_sub_policy_alike():
    marks = iter([T.Sequence(mark(place=place)) for place in range(25)])
    policy = T.AutoAugment("cifar10")._with(lambda branch: next(marks))
    out = apply(np.zeros((5000, 1, 25, 1), np.uint8), policy).reshape(5000, 25)
    np.testing.assert_array_equal(out.sum(axis=1), np.ones(5000))
    assert stats.chisquare(out.sum(axis=0)).pvalue > 1e-3


def test_masks_follow_policies_with_their_own_fill():
    masks = np.ones((64, 24, 24), np.int32)
    both = {"image": np.full((64, 24, 24, 3), 200, np.uint8), "mask": masks}
    ops = [T.TrivialAugment(fill=(1, 2, 3), fill_mask=255)]
    loader = lx.DataLoader(both, batch_size=64, transforms={("image", "mask"): ops}, output="numpy")
    batch = loader.batch(0)
    assert set(np.unique(batch["mask"])) == {1, 255}
    outside = batch["mask"] == 255
    # Where the mask is not filled in full, the fill colour is mixed with the image.
    assert np.mean(np.all(batch["image"][outside] == (1, 2, 3), axis=-1)) > 0.8


@pytest.mark.parametrize(
    "policy",
    [T.RandAugment(2, 15), T.TrivialAugment(), T.AugMix(), *map(T.AutoAugment, AUTO_AUGMENT)],
    ids=["RandAugment", "TrivialAugment", "AugMix", *AUTO_AUGMENT],
)
def test_debug_mode_draws_the_same_ops(policy, monkeypatch):
    samples = images((16, 16, 3), count=24)
    compiled = apply(samples, policy)
    assert compiled.dtype == np.uint8
    changed = np.any(compiled != samples, axis=(1, 2, 3))
    # Many of AutoAugment's ops have low probabilities.
    assert changed.mean() > (0.5 if isinstance(policy, T.AutoAugment) else 0.6)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(samples, policy), compiled)


GREY = [T.RandAugment(2, 15), T.TrivialAugment(), T.AugMix(), *map(T.AutoAugment, AUTO_AUGMENT)]


@pytest.mark.parametrize("policy", GREY, ids=repr)
def test_policies_accept_images_of_one_channel(policy, monkeypatch):
    samples = images((16, 16, 1), count=24)
    compiled = apply(samples, policy)
    assert np.any(compiled != samples, axis=(1, 2, 3)).mean() > 0.5
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(samples, policy), compiled)


def test_colour_is_left_out_of_images_of_one_channel():
    samples = images((16, 16, 1), count=4)
    color = named_ops(T.RandAugment(2, 30))["Color"]
    np.testing.assert_array_equal(apply(samples, color), samples)
    np.testing.assert_array_equal(apply(samples, T.Sequence(color, T.Invert())), 255 - samples)


@lx.transform
def mark(x, place):
    x[0, place, 0] += 1


def test_ops_of_your_own_are_drawn_evenly():
    samples = np.zeros((3000, 1, 4, 1), np.uint8)
    policy = T.RandAugment(2, ops=[mark(place=place) for place in range(4)])
    out = apply(samples, policy).reshape(3000, 4)
    np.testing.assert_array_equal(out.sum(axis=1), np.full(3000, 2))
    assert stats.chisquare(out.sum(axis=0)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.RandAugment(-1), "`number` (=-1) must be an integer of at least 0."),
        (lambda: T.RandAugment(2, 31), "`magnitude` (=31) must be from 0 to 30."),
        (lambda: T.AugMix(11), "`severity` (=11) must be an integer from 1 to 10."),
        (lambda: T.AugMix(width=0), "`width` (=0) must be an integer of at least 1."),
        (lambda: T.AugMix(alpha=0), "`alpha` (=0) must be a finite number above 0."),
        (
            lambda: T.AutoAugment("mnist"),
            "`policy` (='mnist') must be one of 'imagenet', 'cifar10', 'svhn'.",
        ),
        (lambda: T.TrivialAugment(ops=[]), "TrivialAugment needs at least one op to choose from."),
        (
            lambda: T.RandAugment(border="wrap"),
            "`border` (='wrap') must be one of 'fill', 'reflect', 'edge'.",
        ),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(lx.ArgumentError) as caught:
        make()
    assert str(caught.value) == message
