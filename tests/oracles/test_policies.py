"""Policies have torchvision's tables: each of the two can make every image that the other makes."""

import numpy as np
import pytest
from torchvision.transforms import AutoAugmentPolicy, v2

from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.transforms.policies import SUB_POLICIES
from tests.oracles.libraries import as_tensor, by_loaderx, many_by_loaderx, photo

BINS = 31
IMAGE = photo(32, 40)
SAME = {"interpolation": "nearest"}


def applied(policy, name, magnitude):
    """Return the image after one op of torchvision's table."""
    mode = v2.InterpolationMode.NEAREST
    tensor = policy._apply_image_or_video_transform(
        as_tensor(IMAGE), name, magnitude, interpolation=mode, fill={}
    )
    return np.moveaxis(tensor.numpy(), 0, -1).astype(float)


def strength(magnitude):
    """Return a magnitude without the rounding of float32, which can cut off a whole pixel."""
    return round(float(magnitude), 4)


def images_of(policy, space, bins, chosen):
    """Return the image after every op of a table at these magnitudes, by name."""
    for name, (magnitudes_of, signed) in space.items():
        magnitudes = magnitudes_of(bins, *IMAGE.shape[:2])
        values = [0.0] if magnitudes is None else [strength(magnitudes[k]) for k in chosen]
        for value in dict.fromkeys(values):
            for sign in (1, -1) if signed else (1,):
                yield name, applied(policy, name, sign * value)


def distances(made, possible):
    """Return the mean difference of every image to every other."""
    flat = possible.reshape(len(possible), -1)
    return np.stack([abs(flat - one.reshape(1, -1)).mean(1) for one in made.astype(float)])


# Colours are rounded here and cut off there: nearly all values differ by at most one level.
NEAR = 1.1


@pytest.mark.parametrize("magnitude", [0, 9, 30])
def test_rand_augment_makes_the_images_of_torchvision(magnitude):
    policy = v2.RandAugment(1, magnitude)
    names, possible = zip(
        *images_of(policy, policy._AUGMENTATION_SPACE, BINS, [magnitude]), strict=True
    )
    assert len(set(names)) == 14
    made = many_by_loaderx(T.RandAugment(1, magnitude, **SAME), IMAGE, 500)
    apart = distances(made, np.stack(possible))
    assert (apart.min(1) <= NEAR).all()
    unseen = {name for name, least in zip(names, apart.min(0), strict=True) if least > NEAR}
    assert not unseen


def test_trivial_augment_makes_the_images_of_torchvision():
    policy = v2.TrivialAugmentWide()
    space = policy._AUGMENTATION_SPACE
    names, possible = zip(*images_of(policy, space, BINS, range(BINS)), strict=True)
    made = many_by_loaderx(T.TrivialAugment(**SAME), IMAGE, 1500)
    apart = distances(made, np.stack(possible))
    assert (apart.min(1) <= NEAR).all()
    # Nearly all of about 700, each of which is expected twice or more.
    assert (apart.min(0) <= NEAR).mean() > 0.75
    seen = {name for name, least in zip(names, apart.min(0), strict=True) if least <= NEAR}
    assert seen == set(names)


@pytest.mark.parametrize("name", list(SUB_POLICIES))
def test_auto_augment_has_the_pairs_of_torchvision(name):
    theirs = v2.AutoAugment(AutoAugmentPolicy(name))
    ours = T.AutoAugment(name, **SAME)
    lines = SUB_POLICIES[name].strip().splitlines()
    assert len(lines) == len(theirs._policies) == len(ours.branches) == 25
    for line, branch, pair in zip(lines, ours.branches, theirs._policies, strict=True):
        for text, op, (wanted, probability, number) in zip(
            line.split(", "), branch.ops, pair, strict=True
        ):
            given, share, *bins = text.split()
            assert (given, float(share)) == (wanted, probability)
            assert [int(number) for number in bins] == ([] if number is None else [number])
            magnitudes_of, signed = theirs._AUGMENTATION_SPACE[wanted]
            magnitudes = magnitudes_of(10, *IMAGE.shape[:2])
            value = 0.0 if magnitudes is None else strength(magnitudes[number])
            possible = [applied(theirs, wanted, s * value) for s in ((1, -1) if signed else (1,))]
            (alone,) = op.branches[0].ops
            made = by_loaderx(alone, IMAGE)
            # Of two pixels at the same distance, either may be the nearest.
            apart = [np.quantile(abs(made - image), 0.9) for image in possible]
            assert min(apart) <= NEAR, text


def test_aug_mix_has_the_ops_of_torchvision_without_those_of_the_test_set():
    kinds = {
        "ShearX": "Affine", "ShearY": "Affine", "TranslateX": "Translate", "TranslateY": "Translate",
    }  # fmt: skip
    theirs = sorted(kinds.get(name, name) for name in v2.AugMix._PARTIAL_AUGMENTATION_SPACE)
    assert sorted(branch.ops[0].name for branch in T.AugMix().branches) == theirs
