"""Tokens are masked as in BERT and cut out in spans as in T5, alike in inputs and targets."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.kernels.distributions import Draws
from loaderx.kernels.keys import derive_key, fields_id
from loaderx.kernels.random import DRAWS, fold
from loaderx.spec import Spec
from loaderx.transforms.tokens import MaskTokens, PadTo, SpanCorruption
from tests.loaderx.transforms.images import Applied, apply

FIELDS = ("inputs", "targets")


def sequences(count, length, dtype=np.int32, low=1000, high=2000):
    return np.random.default_rng(0).integers(low, high, (count, length)).astype(dtype)


class Both:
    """Rows that are inputs and targets alike, after ops for both, and the draws of the ops for each."""

    def __init__(self, rows, *ops):
        dataset = dict.fromkeys(FIELDS, rows)
        loader = lx.DataLoader(
            dataset,
            batch_size=len(rows),
            shuffle=False,
            transforms={FIELDS: list(ops)},
            output="numpy",
        )
        batch = loader.batch(0)
        self.inputs, self.targets = (batch[name] for name in FIELDS)
        self._count = len(rows)

    def draws(self, step=0):
        key = np.uint64(derive_key(0, DRAWS, fields_id(FIELDS), step))
        return [Draws(fold(key, np.uint64(position))) for position in range(self._count)]


# MaskTokens

MASK, VOCABULARY, SPECIAL = 103, 500, (1001, 1002, 1003)


def masked(row, rng, probability, keep, random):
    """Return a row after masking, token by token, in both fields."""
    inputs, targets = row.copy(), np.full_like(row, -100)
    for k, token in enumerate(row):
        share = rng.random()
        chosen = share < probability
        replacement = None
        if share < probability * (1 - keep - random):
            replacement = MASK
        elif share < probability * (1 - keep):
            replacement = rng.integers(0, VOCABULARY)
        if chosen and token not in SPECIAL:
            targets[k] = token
            inputs[k] = token if replacement is None else replacement
    return inputs, targets


@pytest.mark.parametrize(
    ("probability", "keep", "random"),
    [(0.15, 0.1, 0.1), (1.0, 0.5, 0.5), (0.5, 0.0, 1.0), (1.0, 0.0, 0.0), (0.0, 0.1, 0.1)],
)
def test_inputs_and_targets_are_masked_by_the_same_draws(probability, keep, random):
    rows = sequences(20, 64, high=1010)
    op = MaskTokens(MASK, VOCABULARY, probability, keep=keep, random=random, special=SPECIAL)
    both = Both(rows, op)
    for row, inputs, targets, rng in zip(
        rows, both.inputs, both.targets, both.draws(), strict=True
    ):
        expected = masked(row, rng, probability, keep, random)
        np.testing.assert_array_equal(inputs, expected[0])
        np.testing.assert_array_equal(targets, expected[1])


def test_no_probability_leaves_the_inputs_and_ignores_all_targets():
    rows = sequences(20, 64, high=1010)
    both = Both(rows, MaskTokens(MASK, VOCABULARY, 0, special=SPECIAL))
    np.testing.assert_array_equal(both.inputs, rows)
    assert np.all(both.targets == -100)


def test_tokens_are_masked_as_often_as_published():
    rows = sequences(400, 64)
    both = Both(rows, MaskTokens(MASK, VOCABULARY, special=SPECIAL))
    free = ~np.isin(rows, SPECIAL)
    chosen = both.targets != -100
    assert not np.any(chosen & ~free)
    np.testing.assert_array_equal(both.targets[chosen], rows[chosen])
    np.testing.assert_array_equal(both.inputs[~chosen], rows[~chosen])
    assert stats.binomtest(int(chosen.sum()), int(free.sum()), 0.15).pvalue > 0.001
    now = both.inputs[chosen]
    outcomes = [np.sum(now == MASK), np.sum(now == both.targets[chosen])]
    outcomes.append(len(now) - sum(outcomes))
    shares = np.array([0.8 + 0.1 / VOCABULARY, 0.1, 0.1 - 0.1 / VOCABULARY])
    assert stats.chisquare(outcomes, shares * len(now)).pvalue > 0.001
    random = now[(now != MASK) & (now < VOCABULARY)]
    assert stats.kstest(random / VOCABULARY, "uniform").pvalue > 0.001
    # Every place is equally likely.
    assert stats.chisquare(chosen.sum(axis=0)).pvalue > 0.001


def test_a_field_alone_is_masked_in_its_dtype():
    rows = sequences(20, 64, np.uint16)
    applied = Applied(rows, MaskTokens(MASK, VOCABULARY, 0.5, special=list(SPECIAL)))
    assert applied.out.dtype == np.uint16
    for row, out, rng in zip(rows, applied.out, applied.draws(), strict=True):
        np.testing.assert_array_equal(out, masked(row.astype(int), rng, 0.5, 0.1, 0.1)[0])


def test_targets_become_signed_by_a_cast_before():
    rows = sequences(20, 64, np.uint16, high=1010)
    op = MaskTokens(MASK, VOCABULARY, special=SPECIAL)
    message = 'uint16[64] cannot hold -100, which `ignore` needs; put Cast("int32") before it.'
    with pytest.raises(lx.ArgumentError, match=re.escape(f"MaskTokens: {message}")):
        Both(rows, op)
    both = Both(rows, T.Cast("int32"), op)
    expected = [
        masked(row.astype(int), rng, 0.15, 0.1, 0.1)
        for row, rng in zip(rows, both.draws(1), strict=True)
    ]
    np.testing.assert_array_equal(both.inputs, [inputs for inputs, _ in expected])
    np.testing.assert_array_equal(both.targets, [targets for _, targets in expected])


# SpanCorruption


def random_spans_noise_mask(length, density, mean_span, segmentation):
    """T5's function of this name (google-research/text-to-text-transfer-transformer, t5/data/preprocessors.py)."""
    num_noise_tokens = int(np.round(length * density))
    num_noise_tokens = min(max(num_noise_tokens, 1), length - 1)
    num_noise_spans = max(int(np.round(num_noise_tokens / mean_span)), 1)
    num_nonnoise_tokens = length - num_noise_tokens
    num_noise_spans = min(num_noise_spans, num_nonnoise_tokens)
    noise_span_lengths, nonnoise_span_lengths = segmentation(
        num_noise_tokens, num_nonnoise_tokens, num_noise_spans
    )
    interleaved = np.stack([nonnoise_span_lengths, noise_span_lengths], axis=1).reshape(-1)
    starts = np.cumsum(interleaved)[:-1]
    indicator = np.zeros(length, np.int64)
    indicator[starts] = 1
    return np.cumsum(indicator) % 2 == 1


def to_unique_sentinel(tokens, noise_mask, sentinel):
    """T5's noise_span_to_unique_sentinel: sentinels count down from the first one."""
    previous = np.concatenate([[False], noise_mask[:-1]])
    first = noise_mask & ~previous
    sentinels = sentinel + 1 - np.cumsum(first)
    return np.where(first, sentinels, tokens)[~(noise_mask & previous)]


def shuffled_segmentation(random):
    """Draw as T5 does."""

    def segment(items, segments):
        first = np.concatenate([[0], random.permutation(np.arange(items - 1) < segments - 1)])
        return np.bincount(np.cumsum(first).astype(int))

    return lambda noise, clean, spans: (segment(noise, spans), segment(clean, spans))


def drawn_segmentation(rng):
    """Draw one border after the other, as the op: each place has the probability borders left / places left."""

    def part(items, parts):
        for size in range(1, items):
            if parts > 1 and rng.random() * (items - size) < parts - 1:
                return size
        return items

    def segmentation(noise, clean, spans):
        parts = []
        for left in range(spans, 0, -1):
            clean_size = part(clean, left)
            noise_size = part(noise, left)
            parts.append((noise_size, clean_size))
            clean, noise = clean - clean_size, noise - noise_size
        assert (clean, noise) == (0, 0)
        return np.array(parts).T

    return segmentation


def corrupted(row, density, mean_span, sentinel, eos, segmentation):
    mask = random_spans_noise_mask(len(row), density, mean_span, segmentation)
    ends = [] if eos is None else [eos]
    return (
        np.concatenate([to_unique_sentinel(row, mask, sentinel), ends]),
        np.concatenate([to_unique_sentinel(row, ~mask, sentinel), ends]),
    )


@pytest.mark.parametrize(
    ("length", "density", "mean_span", "eos", "mode"),
    [
        (64, 0.15, 3.0, 1, "compiled"),
        (64, 0.5, 1.0, None, "compiled"),
        (64, 0.9, 1.0, 0, "plain"),
        (64, 0.0, 3.0, None, "plain"),
        (64, 1.0, 3.0, 1, "plain"),
        (2, 0.15, 3.0, None, "plain"),
        (512, 0.15, 3.0, 1, "plain"),
    ],
)
def test_spans_are_those_of_t5_with_the_same_borders(
    length, density, mean_span, eos, mode, monkeypatch
):
    if mode == "plain":  # every other length is a compilation of its own
        monkeypatch.setenv("LOADERX_DEBUG", "1")
    rows = sequences(10, length)
    op = SpanCorruption(32099, density=density, mean_span=mean_span, eos=eos)
    both = Both(rows, op)
    assert op.lengths(length) == (both.inputs.shape[1], both.targets.shape[1])
    for row, inputs, targets, rng in zip(
        rows, both.inputs, both.targets, both.draws(), strict=True
    ):
        expected = corrupted(row, density, mean_span, 32099, eos, drawn_segmentation(rng))
        np.testing.assert_array_equal(inputs, expected[0])
        np.testing.assert_array_equal(targets, expected[1])


def test_inputs_and_targets_together_are_the_tokens():
    rows = sequences(50, 64)
    both = Both(rows, SpanCorruption(32099, density=0.5, mean_span=1.0))
    for row, inputs, targets in zip(rows, both.inputs, both.targets, strict=True):
        spans = {}
        for token in targets:
            if token > 30000:
                spans[token] = []
                last = spans[token]
            else:
                last.append(token)
        assert list(spans) == list(range(32099, 32099 - len(spans), -1))
        again = [t for token in inputs for t in (spans[token] if token > 30000 else [token])]
        np.testing.assert_array_equal(again, row)


def test_the_example_of_the_paper_has_its_lengths():
    # T5's inputs of 512 tokens, sentinels and end included, come from windows of 568; their targets are 114.
    assert SpanCorruption(32099, eos=1).lengths(568) == (512, 114)


def test_borders_are_spread_as_those_that_t5_shuffles():
    rows = np.broadcast_to(np.arange(1000, 1064, dtype=np.int32), (4000, 64))
    both = Both(rows, SpanCorruption(32099, density=0.5, mean_span=1.0 * 8))
    # 32 tokens of noise in 4 spans: how long the first of each kind is.
    clean = np.argmax(both.inputs == 32099, axis=1)
    noise = np.argmax(both.targets == 32098, axis=1) - 1
    random = np.random.default_rng(0)
    shuffled = shuffled_segmentation(random)
    twins = np.array([[part[0] for part in shuffled(32, 32, 4)] for _ in range(4000)]).T
    for ours, theirs in ((noise, twins[0]), (clean, twins[1])):
        borders = [1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 30]
        counts = [np.histogram(values, borders)[0] for values in (ours, theirs)]
        assert stats.chi2_contingency(counts).pvalue > 0.001
        # Exactly: the chance that the first of 3 borders at 31 places is after item k.
        chances = [math.comb(31 - k, 2) / math.comb(31, 3) for k in range(1, 30)]
        expected = np.add.reduceat(chances, np.array(borders[:-1]) - 1) * len(ours)
        assert stats.chisquare(np.histogram(ours, borders)[0], expected).pvalue > 0.001


def test_corrupted_spans_are_padded_field_by_field():
    rows = sequences(10, 64)
    op = SpanCorruption(32099, eos=1)
    both = Both(rows, op)
    loader = lx.DataLoader(
        dict.fromkeys(FIELDS, rows),
        batch_size=10,
        shuffle=False,
        transforms={FIELDS: [op], "inputs": [PadTo(70)], "targets": [PadTo(20, -1)]},
        output="numpy",
    )
    batch = loader.batch(0)
    for name, alone, size, pad in (("inputs", both.inputs, 70, 0), ("targets", both.targets, 20, -1)):  # fmt: skip
        expected = np.full((10, size), pad, np.int32)
        expected[:, : alone.shape[1]] = alone
        np.testing.assert_array_equal(batch[name], expected)


# PadTo

SHORTER, LONGER = lx.pipeline([PadTo(3, -1)]), lx.pipeline([PadTo(12, -1)])


@settings(deadline=None, max_examples=10)
@given(values=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=7, max_size=7))
def test_short_samples_are_filled_and_long_ones_cut(values):
    rows = np.array([values], np.int32)
    assert SHORTER(rows).tolist() == [values[:3]]
    assert LONGER(rows).tolist() == [[*values, -1, -1, -1, -1, -1]]


@pytest.mark.parametrize(("dtype", "value"), [(np.float32, 0.5), (np.bool_, 1)])
def test_samples_are_padded_along_their_first_axis(dtype, value):
    x = (sequences(4, 6) % 2).reshape(4, 3, 2).astype(dtype)
    out = apply(x, PadTo(5, value))
    expected = np.full((4, 5, 2), value, dtype)
    expected[:, :3] = x
    np.testing.assert_array_equal(out, expected)
    assert out.dtype == dtype


# Refusals

REFUSED = [
    (lambda: MaskTokens(-1, 10), "`mask` (=-1) must be a token: an integer of at least 0."),
    (lambda: MaskTokens(True, 10), "`mask` (=True) must be a token"),
    (lambda: MaskTokens(1, 0), "`vocabulary` (=0) must be an integer of at least 1."),
    (lambda: MaskTokens(1, 10, 1.5), "`probability` (=1.5) must be from 0 to 1."),
    (lambda: MaskTokens(1, 10, keep=math.nan), "`keep` (=nan) must be from 0 to 1."),
    (lambda: MaskTokens(1, 10, keep=0.6, random=0.5),
     "`keep` (=0.6) and `random` (=0.5) are shares of the chosen tokens and must not be more than 1 together."),
    (lambda: MaskTokens(1, 10, special=5), "`special` (=5) must be a list of tokens."),
    (lambda: MaskTokens(1, 10, special=[1.5]), "`special` (=1.5) must be a token"),
    (lambda: MaskTokens(1, 10, ignore=None), "`ignore` (=None) must be an integer."),
    (lambda: SpanCorruption(-5), "`sentinel` (=-5) must be a token"),
    (lambda: SpanCorruption(5, density=2), "`density` (=2) must be from 0 to 1."),
    (lambda: SpanCorruption(5, mean_span=0.5), "`mean_span` (=0.5) must be at least 1."),
    (lambda: SpanCorruption(5, mean_span=math.inf), "`mean_span` (=inf) must be a finite number."),
    (lambda: SpanCorruption(5, eos="</s>"), "`eos` (='</s>') must be a token"),
    (lambda: PadTo(0), "`length` (=0) must be an integer of at least 1."),
    (lambda: PadTo(5, math.nan), "`value` (=nan) must be a finite number."),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_that_cannot_work_are_refused_at_once(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()


UNFIT = [
    (MaskTokens(1, 10), Spec((5,), np.float32), "MaskTokens accepts tokens, which are integers, not float32[5]."),
    (MaskTokens(1, 10).for_labels(), Spec((5,), np.float32), "MaskTokens accepts tokens, which are integers"),
    (MaskTokens(1, 10), Spec((0,), np.int32), "MaskTokens accepts tokens, which are integers, not int32[0]."),
    (MaskTokens(256, 10), Spec((5,), np.uint8),
     "MaskTokens: uint8[5] cannot hold 256, which `mask` needs; put Cast(\"int32\") before it."),
    (MaskTokens(1, 257), Spec((5,), np.uint8), "uint8[5] cannot hold 256, which `vocabulary` needs"),
    (SpanCorruption(256), Spec((5,), np.uint8), "SpanCorruption: uint8[5] cannot hold 256, which `sentinel` needs"),
    (SpanCorruption(25, eos=300), Spec((5,), np.uint8), "uint8[5] cannot hold 300, which `eos` needs"),
    (SpanCorruption(25), Spec((5, 2), np.uint8),
     "SpanCorruption accepts tokens along one axis, at least two, not uint8[5, 2]."),
    (SpanCorruption(25), Spec((1,), np.uint8),
     "SpanCorruption accepts tokens along one axis, at least two, not uint8[1]."),
    (SpanCorruption(3), Spec((100,), np.uint8),
     "have 5 spans, and there are fewer tokens from `sentinel` (=3) down to 0. Give a larger `sentinel`."),
    (PadTo(5, -1), Spec((5,), np.uint8), "PadTo: uint8[5] cannot hold -1, which `value` needs"),
    (PadTo(5, 0.5), Spec((5,), np.int32), "PadTo: `value` (=0.5) must be a value of int32."),
    (PadTo(5), Spec((), np.int32), "PadTo accepts samples of at least one axis, not int32[]."),
    (PadTo(5), Spec((5,), np.float16), "PadTo accepts integers, float32 or float64, not float16[5]."),
]  # fmt: skip


@pytest.mark.parametrize(("op", "spec", "message"), UNFIT)
def test_samples_that_do_not_fit_are_refused(op, spec, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        op.output(spec)


@pytest.mark.parametrize(
    "op",
    [MaskTokens(MASK, VOCABULARY, 0.5, special=SPECIAL), SpanCorruption(32099, eos=1), PadTo(70)],
    ids=repr,
)
def test_debug_mode_gives_the_same_tokens(op, monkeypatch):
    rows = sequences(10, 64, high=1010)
    compiled = Both(rows, op)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    plain = Both(rows, op)
    np.testing.assert_array_equal(plain.inputs, compiled.inputs)
    np.testing.assert_array_equal(plain.targets, compiled.targets)
