"""Chains inside of chains: every sample goes one random way through them, the same compiled and in plain Python."""

import copy
import itertools

import numpy as np
import pytest
from scipy import stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.kernels.samples import CALL
from loaderx.spec import Spec
from loaderx.transforms.advice import advice
from loaderx.transforms.blend import Blend
from loaderx.transforms.combinators import as_branches
from loaderx.transforms.rounds import Rounds
from tests.loaderx.transforms.images import apply, images


@lx.transform
def add(x, amount):
    for i in range(x.shape[0]):
        x[i] += amount


@lx.transform(out=lambda spec, amount: spec)
def added(x, out, amount):
    for i in range(x.shape[0]):
        out[i] = x[i] + amount


@lx.transform
def add_random(x, rng):
    for i in range(x.shape[0]):
        x[i] += rng.random()


@lx.transform(out=lambda spec: Spec((2 * spec.shape[0],), spec.dtype))
def twice(x, out):
    for i in range(x.shape[0]):
        out[i] = x[i]
        out[i + x.shape[0]] = x[i]


def zeros(count=4000, size=3, dtype=np.float32):
    return np.zeros((count, size), dtype)


def amounts_of(out):
    """Return the number that was added to each sample, which must be the same for all of its values."""
    np.testing.assert_array_equal(out, out[:, :1].repeat(out.shape[1], axis=1))
    return out[:, 0]


def test_ops_in_a_sequence_run_one_after_the_other():
    out = apply(zeros(4), T.Sequence(add(amount=1), T.Sequence(added(amount=2), twice())))
    np.testing.assert_array_equal(out, np.full((4, 6), 3))
    np.testing.assert_array_equal(apply(zeros(4), T.Sequence([add(amount=1)])), np.ones((4, 3)))


@pytest.mark.parametrize("op", [add(amount=1), added(amount=1)], ids=["in place", "elsewhere"])
def test_maybe_runs_its_ops_as_often_as_it_says(op):
    taken = amounts_of(apply(zeros(), T.Maybe(0.3, op)))
    assert set(taken) == {0, 1}
    assert stats.binomtest(int(taken.sum()), len(taken), 0.3).pvalue > 1e-3
    np.testing.assert_array_equal(apply(zeros(50), T.Maybe(0, op)), zeros(50))
    np.testing.assert_array_equal(apply(zeros(50), T.Maybe(1, op)), zeros(50) + 1)


@pytest.mark.parametrize("weights", [None, (1, 2, 1), (0, 1, 0)])
def test_one_of_several_is_drawn_by_weight(weights):
    ops = [add(amount=0), [added(amount=1), twice()], add(amount=2)]
    with pytest.raises(lx.ArgumentError, match="like the first"):
        apply(zeros(4), T.OneOf(ops, weights=weights))
    ops[1] = added(amount=1)
    taken = amounts_of(apply(zeros(), T.OneOf(ops, weights=weights)))
    counts = np.bincount(taken.astype(int), minlength=3)
    expected = np.array(weights or (1, 1, 1)) / sum(weights or (1, 1, 1))
    assert np.all((counts > 0) == (expected > 0))
    if np.all(expected > 0):
        assert stats.chisquare(counts, expected * len(taken)).pvalue > 1e-3


def test_branches_may_give_another_shape_if_all_do():
    out = apply(zeros(40), T.OneOf([twice(), add(amount=1)], [added(amount=2), twice()]))
    assert out.shape == (40, 6)
    first, second = out[:, :3], out[:, 3:]
    # In the first branch, `add` comes after `twice` and changes all values.
    np.testing.assert_array_equal(first, second)
    assert set(first.ravel()) == {1, 2}


def test_rounds_draw_anew_in_every_turn():
    branches = as_branches("", [add(amount=1), added(amount=10), add(amount=0)])
    total = amounts_of(apply(zeros(), Rounds(branches, 3)))
    ones, tens = total % 10, total // 10
    for count in (ones, tens):
        found = np.bincount(count.astype(int), minlength=4)
        assert (
            stats.chisquare(found, stats.binom(3, 1 / 3).pmf(range(4)) * len(total)).pvalue > 1e-3
        )
    np.testing.assert_array_equal(apply(zeros(5), Rounds(branches, 0)), zeros(5))


def test_an_op_draws_other_numbers_in_every_turn_and_at_every_place():
    turns = apply(zeros(200, 1), Rounds([T.Sequence(add_random())], 2))
    assert stats.kstest(turns[:, 0] / 2, stats.triang(0.5).cdf).pvalue > 1e-3
    op = add_random()
    places = apply(zeros(200, 1), T.Sequence(op, T.Maybe(1, op)))
    assert stats.kstest(places[:, 0] / 2, stats.triang(0.5).cdf).pvalue > 1e-3


@lx.transform
def note(x, number):
    """Write a number after those that are there; x[0] counts them."""
    x[0] += 1
    x[int(x[0])] = number


@lx.transform(out=lambda spec, number: spec)
def noted(x, out, number):
    for k in range(x.shape[0]):
        out[k] = x[k]
    out[0] += 1
    out[int(out[0])] = number


NOTES = [note(number=1), noted(number=2), [note(number=3), noted(number=4)]]


def test_a_random_order_has_all_ops_and_every_order_is_as_likely():
    out = apply(zeros(6000, 6), T.RandomOrder(*NOTES))
    np.testing.assert_array_equal(out[:, 0], np.full(6000, 4))
    orders, counts = np.unique(out[:, 1:5], axis=0, return_counts=True)
    blocks = {(1, 2, 3, 4), (1, 3, 4, 2), (2, 1, 3, 4), (2, 3, 4, 1), (3, 4, 1, 2), (3, 4, 2, 1)}
    assert set(map(tuple, orders.astype(int).tolist())) == blocks
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_some_of_several_are_different_ones_in_their_order(number):
    out = apply(zeros(3000, 6), T.SomeOf(number, NOTES))
    chosen = list(itertools.combinations([(1,), (2,), (3, 4)], number))
    expected = {tuple(itertools.chain(*each)) for each in chosen}
    ways = [tuple(row[1 : int(row[0]) + 1].astype(int).tolist()) for row in out]
    assert set(ways) == expected
    if len(expected) > 1:
        assert stats.chisquare([ways.count(way) for way in sorted(expected)]).pvalue > 1e-3


def test_a_blend_mixes_the_sample_with_what_was_made_of_it():
    start = zeros(2000, 1) + 1
    out = apply(start, Blend(as_branches("", [added(amount=1)]), 2, (1, 1), 1.0))[:, 0]
    # 1 + the share of what was made, which is even in [0, 1] for Beta(1, 1).
    assert stats.kstest(out - 1, stats.uniform.cdf).pvalue > 1e-3
    deep = apply(start, Blend(as_branches("", [add(amount=1)]), 1, (1, 3), 1.0))[:, 0]
    assert deep.max() > 2.5
    assert deep.min() >= 1


def test_a_blend_of_nothing_new_is_the_sample():
    samples = images(count=3)
    ops = as_branches("", [T.Identity(), T.RandomFlip(0)])
    np.testing.assert_array_equal(apply(samples, Blend(ops, 3, (1, 3), 1.0)), samples)


NESTED = {
    "choices": [T.OneOf(T.Brightness(0.3), [T.RandomCrop((7, 10), pad=2), T.RandomFlip()])],
    "rounds": [
        T.Maybe(0.7, T.RandomFlip(), T.Contrast(0.5)),
        Rounds(
            as_branches(
                "", [T.RandomFlip(axis="vertical"), T.OneOf(T.Brightness(0.3), T.Grayscale(0.5))]
            ),
            3,
        ),
        T.Normalize(0.5, 0.5),
    ],
    "orders": [
        T.RandomOrder(T.RandomFlip(), T.Brightness(0.3), [T.Rotate(20), T.Contrast(0.5)]),
        T.SomeOf(
            2, T.Invert(), T.RandomCrop((7, 10), pad=2), T.RandomOrder(T.Gamma(), T.Rotate(9))
        ),
        Rounds(
            as_branches("", [T.RandomOrder(T.Rotate(9), T.SomeOf(1, T.Invert(), T.Gamma()))]), 2
        ),
    ],
    "blend": [
        Blend(
            as_branches("", [T.RandomFlip(), Rounds(as_branches("", [T.Pad(1), T.Identity()]), 0)]),
            3,
            (1, 3),
            1.0,
        )
    ],
}


@pytest.mark.parametrize("name", NESTED)
def test_debug_mode_draws_the_same_branches(name, monkeypatch):
    samples = images(count=12)
    ops = NESTED[name]
    if name == "blend":
        with pytest.raises(lx.ArgumentError, match="every branch must give the sample as"):
            apply(samples, *ops)
        ops = [
            Blend(
                as_branches("", [T.RandomFlip(), Rounds(as_branches("", [T.Invert(0.5)]), 2)]),
                3,
                (1, 3),
                1.0,
            )
        ]
    compiled = apply(samples, *ops, seed=5)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(samples, *ops, seed=5), compiled)


def test_a_mask_goes_through_the_branch_of_its_image():
    masks = images((7, 10), np.int32, count=64) % 5
    both = {"image": np.repeat(masks[..., None], 3, -1).astype(np.uint8), "mask": masks}
    ops = [
        T.OneOf(T.RandomFlip(1), T.RandomCrop((7, 10), pad=2), T.Invert()),
        T.Maybe(0.5, T.RandomFlip(1, axis="vertical")),
    ]
    loader = lx.DataLoader(both, batch_size=64, transforms={("image", "mask"): ops}, output="numpy")
    batch = loader.batch(0)
    inverted = batch["image"][:, 0, 0, 0] > 100
    assert 0 < inverted.sum() < 64
    straight = np.where(
        inverted[:, None, None], 255 - batch["image"][..., 0], batch["image"][..., 0]
    )
    np.testing.assert_array_equal(straight, batch["mask"])


def test_a_mask_follows_the_order_and_the_choice_of_its_image():
    masks = images((9, 9), count=64) % 5
    both = {"image": np.repeat(masks[..., None], 3, -1), "mask": masks}
    ops = [
        T.RandomOrder(T.RandomCrop((9, 9), pad=3), T.Rot90(1), T.RandomFlip()),
        T.SomeOf(2, T.RandomCrop((9, 9), pad=3), T.Transpose(1), T.RandomFlip(1)),
    ]
    loader = lx.DataLoader(both, batch_size=64, transforms={("image", "mask"): ops}, output="numpy")
    batch = loader.batch(0)
    assert len(np.unique(batch["mask"].reshape(64, -1), axis=0)) > 60
    np.testing.assert_array_equal(batch["image"][..., 0], batch["mask"])


def test_other_probabilities_and_numbers_need_no_other_code():
    def calls(probability, number):
        rounds = Rounds(as_branches("", [add(amount=1), added(amount=2)]), number)
        pipeline = lx.pipeline([T.Maybe(probability, add(amount=1)), rounds])
        samples = zeros(2)
        pipeline(samples)
        chain = pipeline.chain(Spec(samples.shape[1:], samples.dtype), samples[0])
        table = chain.phases[0].segments[0].program._table
        functions = table.instructions[table.instructions[:, 0] == CALL, 1]
        return table, functions.tolist()

    first, functions = calls(0.2, 2)
    second, others = calls(0.9, 3)
    assert len(functions) >= 3
    assert functions == others
    assert first is not second


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.Maybe(1.5, T.Identity()), "`probability` (=1.5) must be from 0 to 1."),
        (lambda: T.OneOf(), "OneOf needs at least one op to choose from."),
        (
            lambda: T.OneOf(T.Identity(), T.Invert(), weights=(1,)),
            "`weights` (=(1,)) must be 2 finite numbers of at least 0, one for each op, not all 0.",
        ),
        (
            lambda: T.OneOf(T.Identity(), weights=(0,)),
            "`weights` (=(0,)) must be 1 finite numbers of at least 0, one for each op, not all 0.",
        ),
        (
            lambda: T.Maybe(0.5, np.negative),
            "Maybe accepts compiled transforms, not <ufunc 'negative'>: "
            + advice(np.negative)
            + ".",
        ),
        (lambda: T.OneOf(3), "OneOf accepts compiled transforms, not 3."),
        (
            lambda: T.Maybe(0.5, T.MixUp()),
            "Maybe: MixUp mixes samples of a batch and cannot be left to chance.",
        ),
        (lambda: T.RandomOrder(), "RandomOrder needs at least one op to choose from."),
        (
            lambda: T.SomeOf(3, T.Identity(), T.Invert()),
            "`number` (=3) must be an integer from 0 to 2, the number of ops.",
        ),
        (
            lambda: Rounds([T.Sequence()], -1),
            "`number` (=-1) must be an integer of at least 0.",
        ),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(lx.ArgumentError) as caught:
        make()
    assert str(caught.value) == message


def test_the_result_of_a_branch_must_fit():
    with pytest.raises(
        lx.ArgumentError, match="Maybe: every branch must give the sample as float32"
    ):
        apply(zeros(4), T.Maybe(0.5, twice()))


def test_ops_are_shown_as_they_were_written():
    for text in (
        "RandomCrop(32, pad=4)",
        "Normalize([0.5, 0.4, 0.3], 0.2, dtype='bfloat16')",
        "Maybe(0.5, RandomFlip(), Rotate((-10, 10)))",
        "OneOf(RandomFlip(0.3), [Invert(), Identity()], weights=[1, 2])",
        "RandAugment(2, magnitude=9)",
        "AutoAugment('svhn', fill=(1, 2, 3))",
        "RandomOrder(Invert(), [RandomFlip(), Identity()])",
        "SomeOf(1, Invert(), RandomFlip())",
        "Affine(10, center=(0, 0))",
        "Affine(translate_x=Choice(0.1, 0.2))",
        "Views(2, [RandomFlip()], names=['a', 'b'])",
        "MixUp(alpha=0.2)",
    ):
        written = eval(text, vars(T))
        assert repr(written) == text
        assert repr(copy.deepcopy(written)) == text
    with pytest.raises(TypeError):
        T.Identity(1)
    assert repr(add(amount=1)) == "add(amount=1)"
    assert repr(add) == "add(x, amount)"
