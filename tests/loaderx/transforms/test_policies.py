"""Policies have the ops and amounts of their papers, draw evenly from them, and take any others."""

import math

import numpy as np
import pytest
from scipy import stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.loaderx.transforms.images import apply, images

NAMES = [
    *("Identity", "Affine", "Affine", "Affine", "Affine", "Rotate", "Brightness", "Saturation"),
    *("Contrast", "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize"),
]


def ops_of(policy):
    return [branch.ops[0] for branch in policy.branches]


def amounts_of(op, name=None):
    """The numbers an op chooses from."""
    parameters = op._parameters if hasattr(op, "_parameters") else op.parameters()
    values = parameters[name] if isinstance(parameters, dict) else parameters[name or 0]
    return sorted(set(np.round(values, 9).tolist()))


def test_rand_augment_is_as_strong_as_its_magnitude():
    ops = ops_of(T.RandAugment(2, 9))
    assert [op.name for op in ops] == NAMES
    share = 9 / 30
    slant = round(math.degrees(math.atan(0.3 * share)), 9)
    shift = round(150 / 331 * share, 9)
    # Affine: degrees, translate_x, translate_y, scale, shear_x, shear_y.
    assert amounts_of(ops[1], 4) == amounts_of(ops[2], 5) == [-slant, slant]
    assert amounts_of(ops[3], 1) == amounts_of(ops[4], 2) == [-shift, shift]
    assert amounts_of(ops[5]) == [-9, 9]
    for op in ops[6:10]:
        assert amounts_of(op, "amount") == [0.73, 1.27]
    assert amounts_of(ops[10], "bits") == [7]
    assert amounts_of(ops[11], "share") == [0.7]


def test_trivial_augment_draws_from_all_strengths():
    ops = ops_of(T.TrivialAugment())
    assert [op.name for op in ops] == NAMES
    assert T.TrivialAugment().number == 1
    degrees = amounts_of(ops[5])
    assert (len(degrees), min(degrees), max(degrees)) == (61, -135, 135)
    assert amounts_of(ops[10], "bits") == [2, 3, 4, 5, 6, 7, 8]
    assert min(amounts_of(ops[6], "amount")) == pytest.approx(0.01)


def test_aug_mix_leaves_out_what_it_is_tested_with():
    policy = T.AugMix(severity=3)
    assert [op.name for op in ops_of(policy)] == [*NAMES[1:6], *NAMES[10:]]
    expected = [-20 / 3, -10 / 3, 0, 10 / 3, 20 / 3]
    np.testing.assert_allclose(amounts_of(ops_of(policy)[4]), expected, atol=1e-8)
    assert (policy.width, policy.depth, policy.alpha) == (3, (1, 3), 1.0)


@pytest.mark.parametrize(
    "policy", [T.RandAugment(2, 15), T.AugMix()], ids=["RandAugment", "AugMix"]
)
def test_debug_mode_takes_the_same_ways(policy, monkeypatch):
    samples = images((16, 16, 3), count=24)
    compiled = apply(samples, policy)
    assert compiled.dtype == np.uint8
    changed = np.any(compiled != samples, axis=(1, 2, 3))
    assert changed.mean() > 0.6
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(samples, policy), compiled)


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
