"""Mixed samples are made of a sample and its partner, by shares that only the key and the position decide."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import config
from scipy import stats

from loaderx.kernels import mix
from loaderx.kernels.distributions import Draws
from tests import reference

KEY = np.uint64(2**63 + 17)
ALPHAS = [1e-3, 0.2, 1.0, 4.0]
# A sample costs a millisecond in plain Python.
SAMPLES = 60 if config.DISABLE_JIT else 4000


def batch(size, count=6, seed=0):
    return np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32)


def mixed(
    kernel, samples, *arguments, probability=1, first=0, count=None, positions=None, partners=None
):
    count = len(samples) - first if count is None else count
    positions = np.arange(100, 100 + count) if positions is None else np.asarray(positions)
    partners = np.arange(first + 1, first + 1 + count) % len(samples) if partners is None else partners  # fmt: skip
    out = np.full((count, samples.shape[1]), np.nan, np.float32)
    kernel(
        first, positions, np.asarray(partners), KEY, float(probability), *arguments, samples, out
    )
    return out


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("size", [1, 10, 48])
def test_mixing_up_equals_its_twin(size, alpha):
    samples = batch(size)
    out = mixed(mix.mix_up, samples, alpha)
    np.testing.assert_array_equal(out, mixed(reference.mix_up, samples, alpha))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("pasted", [True, False])
@pytest.mark.parametrize(("height", "width", "pixel"), [(4, 4, 3), (3, 5, 1), (1, 1, 2), (7, 2, 4)])
def test_cutting_and_mixing_equals_its_twin(height, width, pixel, pasted, alpha):
    samples = batch(height * width * pixel)
    out = mixed(mix.cut_mix, samples, alpha, height, width, pasted)
    expected = mixed(reference.cut_mix, samples, alpha, height, width, pasted)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("pasted", [True, False])
@pytest.mark.parametrize(("length", "moment"), [(12, 3), (15, 1), (1, 2)])
def test_cutting_and_mixing_a_series_equals_its_twin(length, moment, pasted, alpha):
    samples = batch(length * moment)
    out = mixed(mix.cut_mix_series, samples, alpha, length, pasted)
    expected = mixed(reference.cut_mix_series, samples, alpha, length, pasted)
    np.testing.assert_array_equal(out, expected)


def test_with_a_probability_as_many_samples_are_mixed_and_others_stay():
    samples = batch(4 * 5 * 3, count=64)
    for name, *arguments in (
        ("mix_up", 0.7),
        ("cut_mix", 0.7, 4, 5, True),
        ("cut_mix", 0.7, 4, 5, False),
        ("cut_mix_series", 0.7, 20, True),
    ):
        out = mixed(getattr(mix, name), samples, *arguments, probability=0.5)
        expected = mixed(getattr(reference, name), samples, *arguments, probability=0.5)
        np.testing.assert_array_equal(out, expected)
        same = np.all(out == samples, axis=1)
        assert 20 <= np.count_nonzero(same) <= 50  # small boxes may be empty
        np.testing.assert_array_equal(
            mixed(getattr(mix, name), samples, *arguments, probability=0), samples
        )


@pytest.mark.parametrize(
    "name",
    [
        "mix_up",
        "cut_mix of images",
        "cut_mix of labels",
        "cut_mix_series of series",
        "cut_mix_series of labels",
    ],
)
def test_parts_of_a_batch_are_those_of_the_whole(name):
    samples = batch(4 * 4 * 3, count=8)
    kernel, *arguments = {
        "mix_up": (mix.mix_up, 0.5),
        "cut_mix of images": (mix.cut_mix, 0.5, 4, 4, True),
        "cut_mix of labels": (mix.cut_mix, 0.5, 4, 4, False),
        "cut_mix_series of series": (mix.cut_mix_series, 0.5, 16, True),
        "cut_mix_series of labels": (mix.cut_mix_series, 0.5, 16, False),
    }[name]
    partners = np.array([3, 0, 5, 7, 7, 1, 2, 4])
    positions = np.array([9, 2**40, 3, 0, 2**62, 1, 5, 9])
    whole = mixed(kernel, samples, *arguments, positions=positions, partners=partners)
    for first, stop in [(0, 3), (3, 4), (4, 8)]:
        part = mixed(
            kernel,
            samples,
            *arguments,
            first=first,
            count=stop - first,
            positions=positions[first:stop],
            partners=partners[first:stop],
        )
        np.testing.assert_array_equal(part, whole[first:stop])


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_shares_are_drawn_from_the_beta_distribution(alpha):
    # The sample is all ones and its partner all zeros, so the result is the share.
    samples = np.array([[1.0], [0.0]], np.float32)
    shares = np.empty((SAMPLES, 1), np.float32)
    partners = np.ones(SAMPLES, np.int64)
    for place in range(SAMPLES):
        positions = np.array([place])
        mix.mix_up(0, positions, partners[:1], KEY, 1.0, alpha, samples, shares[place : place + 1])
    assert stats.kstest(shares[:, 0], stats.beta(alpha, alpha).cdf).pvalue > 0.001


def test_mixing_with_itself_changes_nothing():
    samples = np.round(batch(20) * 4) / 4
    myself = np.arange(len(samples))
    for kernel, *arguments in (
        (mix.mix_up, 0.7),
        (mix.cut_mix, 0.7, 4, 5, True),
        (mix.cut_mix_series, 0.7, 10, True),
    ):
        out = mixed(kernel, samples, *arguments, partners=myself)
        np.testing.assert_allclose(out, samples, atol=1e-6)


@settings(deadline=None, max_examples=50)
@given(
    state=st.integers(0, 2**64 - 1),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    share=st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0])),
)
def test_a_box_lies_inside_the_image_and_is_never_larger_than_its_share(
    state, height, width, share
):
    box = mix.cut_box(Draws(state), height, width, share)
    assert tuple(map(int, box)) == reference.cut_box(Draws(state), height, width, share)
    top, bottom, left, right = box
    assert 0 <= top <= bottom <= height
    assert 0 <= left <= right <= width
    assert (bottom - top) * (right - left) <= height * width * (1 - share) * (1 + 1e-12)


def test_boxes_lie_anywhere_and_cover_the_share_where_nothing_cuts_them_off():
    boxes = np.array([mix.cut_box(Draws(state), 100, 200, 0.75) for state in range(400)])
    top, bottom, left, right = boxes.T
    whole = (top > 0) & (bottom < 100) & (left > 0) & (right < 200)
    assert np.mean(whole) > 0.2
    assert set(((bottom - top) * (right - left))[whole]) == {50 * 100}
    centres = ((top + 25)[(top > 0) & (bottom < 100)] - 25) / 50
    assert stats.kstest(centres, "uniform").pvalue > 0.001


def rand_bbox(height, width, lam, cy, cx):
    """Return the box of the function of that name in the code of the paper, with the drawn places as arguments."""
    cut_rat = np.sqrt(1.0 - lam)
    cut_w, cut_h = (width * cut_rat).astype(int), (height * cut_rat).astype(int)
    bbx1, bby1 = np.clip(cx - cut_w // 2, 0, width), np.clip(cy - cut_h // 2, 0, height)
    bbx2, bby2 = np.clip(cx + cut_w // 2, 0, width), np.clip(cy + cut_h // 2, 0, height)
    return bby1, bby2, bbx1, bbx2


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="thousands of draws")
@pytest.mark.parametrize(
    ("height", "width", "count"),
    # Sizes of boxes are compared draw by draw; how the draws are spread is the same for every size of an image.
    [(32, 32, 3_000), (33, 47, 3_000), (224, 224, 20_000)],
)
def test_boxes_are_as_large_as_those_of_the_paper(height, width, count):
    random = np.random.default_rng(0)
    boxes, drawn = [], []
    for number in range(count):
        rng, again = Draws(number), Draws(number)
        boxes.append(mix.cut_box(rng, height, width, rng.beta(1.0, 1.0)))
        drawn.append((again.beta(1.0, 1.0), again.integers(0, height), again.integers(0, width)))
    lam, *centres = np.array(drawn).T
    np.testing.assert_array_equal(
        np.transpose(boxes), rand_bbox(height, width, lam, *np.int64(centres))
    )
    centres = random.integers(height, size=count), random.integers(width, size=count)
    # Every part of the distribution once: the mean of the paper's boxes, with less chance in it.
    shares = (np.arange(count) + 0.5) / count
    areas, papers = (
        (bottom - top) * (right - left)
        for top, bottom, left, right in (
            np.transpose(boxes),
            rand_bbox(height, width, shares, *centres),
        )
    )
    deviation = areas.std() / math.sqrt(count)
    assert abs(areas.mean() - papers.mean()) < 4 * deviation
    assert stats.ks_2samp(areas, papers).pvalue > 0.001


@settings(deadline=None, max_examples=50)
@given(
    state=st.integers(0, 2**64 - 1),
    length=st.integers(1, 200),
    share=st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0])),
)
def test_a_stretch_lies_inside_the_series_and_is_never_longer_than_its_share(state, length, share):
    stretch = mix.cut_stretch(Draws(state), length, share)
    assert tuple(map(int, stretch)) == reference.cut_stretch(Draws(state), length, share)
    begin, end = stretch
    assert 0 <= begin <= end <= length
    assert end - begin <= length * (1 - share) * (1 + 1e-12)


def test_stretches_lie_anywhere_and_cover_the_share_where_nothing_cuts_them_off():
    stretches = np.array([mix.cut_stretch(Draws(state), 200, 0.75) for state in range(400)])
    begin, end = stretches.T
    whole = (begin > 0) & (end < 200)
    assert np.mean(whole) > 0.5
    assert set((end - begin)[whole]) == {50}
    # Each of the 149 places that leave room on both sides, as wide as one of them.
    places = (begin[whole] - 1 + np.random.default_rng(0).random(whole.sum())) / 149
    assert stats.kstest(places, "uniform").pvalue > 0.001
