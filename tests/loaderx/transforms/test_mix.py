"""MixUp and CutMix mix a sample with one other of its batch, all fields of it by the same share."""

import math
import re

import numpy as np
import pytest
from scipy import stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.loaderx.transforms.images import images

BATCH, STEPS = 16, 3
HEIGHT, WIDTH = 9, 8


def batches(op, batch_size=BATCH, rows=BATCH * STEPS, **options):
    """Return images, masks and labels after an op; the label of a row is its number."""
    x = images((HEIGHT, WIDTH, 3), count=rows)
    masks = images((HEIGHT, WIDTH), np.float32, count=rows, seed=1)
    loader = lx.DataLoader(
        {"image": x, "mask": masks, "label": np.arange(rows)},
        batch_size=batch_size,
        num_epochs=1,
        shuffle=False,
        output="numpy",
        transforms={
            "image": [T.ToFloat()],
            "label": [T.OneHot(rows)],
            ("image", "mask", "label"): [op],
        },
        **options,
    )
    return x.astype(np.float32) * np.float32(1 / 255), masks, [loader.batch(k) for k in range(len(loader))]  # fmt: skip


def pairs(labels, first):
    """Return for each sample its own number, its partner's, and the partner's share, as the labels say."""
    for place, label in enumerate(labels):
        own = first + place
        rest = label.copy()
        rest[own] = 0
        partner = int(rest.argmax()) if rest.any() else own
        assert np.count_nonzero(rest) <= 1
        np.testing.assert_allclose(label.sum(), 1, atol=1e-6)
        yield own, partner, rest[partner]


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_mixed_up_images_masks_and_labels_have_the_same_share(alpha):
    x, masks, found = batches(T.MixUp(alpha))
    for step, batch in enumerate(found):
        for place, (own, partner, rest) in enumerate(pairs(batch["label"], step * BATCH)):
            share = batch["label"][place, own]
            np.testing.assert_allclose(share + rest, 1, atol=1e-6)
            mixed = share * x[own] + rest * x[partner]
            np.testing.assert_allclose(batch["image"][place], mixed, atol=1e-6)
            mixed = share * masks[own] + rest * masks[partner]
            np.testing.assert_allclose(batch["mask"][place], mixed, atol=1e-6)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 5.0])
def test_a_box_of_the_partner_is_as_large_as_its_share_of_the_label(alpha):
    x, masks, found = batches(T.CutMix(alpha))
    boxes = 0
    for step, batch in enumerate(found):
        for place, (own, partner, rest) in enumerate(pairs(batch["label"], step * BATCH)):
            image, mask = batch["image"][place], batch["mask"][place]
            inside = np.any(image != x[own], axis=2)
            np.testing.assert_array_equal(image[inside], x[partner][inside])
            np.testing.assert_array_equal(inside, mask != masks[own])
            np.testing.assert_array_equal(mask[inside], masks[partner][inside])
            # One rectangle.
            assert inside.sum() == inside.any(axis=1).sum() * inside.any(axis=0).sum()
            assert rest == np.float32(inside.sum() / (HEIGHT * WIDTH))
            boxes += bool(inside.any())
    assert boxes > 5


@pytest.mark.parametrize("channels", [(), (3,)])
def test_a_stretch_of_the_partner_is_as_long_as_its_share_of_the_label(channels):
    rows, length = BATCH * STEPS, 50
    x = images((length, *channels), np.float32, count=rows)
    moments = images((length, 2), np.float32, count=rows, seed=1)
    loader = lx.DataLoader(
        {"signal": x, "moments": moments, "label": np.eye(rows, dtype=np.float32)},
        batch_size=BATCH,
        num_epochs=1,
        shuffle=False,
        output="numpy",
        transforms={("signal", "moments", "label"): [T.CutMix()]},
    )
    stretches = 0
    for step in range(STEPS):
        batch = loader.batch(step)
        for place, (own, partner, rest) in enumerate(pairs(batch["label"], step * BATCH)):
            signal = batch["signal"][place].reshape(length, -1)
            inside = np.any(signal != x[own].reshape(length, -1), axis=1)
            np.testing.assert_array_equal(signal[inside], x[partner].reshape(length, -1)[inside])
            np.testing.assert_array_equal(
                batch["moments"][place], np.where(inside[:, None], moments[partner], moments[own])
            )
            # One stretch.
            assert np.count_nonzero(np.diff(inside, prepend=False, append=False)) in (0, 2)
            assert rest == np.float32(inside.sum() / length)
            stretches += bool(inside.any())
    assert stretches > 30


def test_stretches_are_as_long_as_the_beta_distribution_says_where_nothing_cuts_them_off():
    x = np.broadcast_to(np.arange(3000, dtype=np.float32)[:, None], (3000, 1000))
    inside = lx.pipeline([T.CutMix(1.0)])(x) != x
    whole = ~inside[:, 0] & ~inside[:, -1]
    extents = inside.sum(axis=1)[whole]
    # Of the stretches of an extent, 1 - extent / 1000 are whole.
    density = stats.beta(1, 2)
    place = (extents + np.random.default_rng(0).random(len(extents))) / 1000
    assert stats.kstest(place, density.cdf).pvalue > 0.001


@pytest.mark.parametrize("op", [T.MixUp(1.0), T.CutMix(1.0)], ids=repr)
def test_partners_are_others_of_the_same_batch_each_of_them_once(op):
    _, _, found = batches(op)
    steps = set()
    for step, batch in enumerate(found):
        mixed = [pair for pair in pairs(batch["label"], step * BATCH) if pair[2] > 0]
        assert all(own != partner for own, partner, _ in mixed)
        assert all(step * BATCH <= partner < (step + 1) * BATCH for _, partner, _ in mixed)
        assert len({partner for _, partner, _ in mixed}) == len(mixed) > 3
        # One random step around the batch, another one for every batch.
        (around,) = {(partner - own) % BATCH for own, partner, _ in mixed}
        steps.add(around)
    assert len(steps) > 1


@pytest.mark.parametrize("op", [T.MixUp(1.0), T.CutMix(1.0)], ids=repr)
def test_a_sample_alone_in_its_batch_is_mixed_with_itself(op):
    x, masks, found = batches(op, batch_size=1, rows=3)
    for number, batch in enumerate(found):
        np.testing.assert_allclose(batch["image"][0], x[number], atol=1e-6)
        np.testing.assert_allclose(batch["mask"][0], masks[number], atol=1e-6)
        np.testing.assert_allclose(batch["label"][0], np.eye(3)[number], atol=1e-6)


@pytest.mark.parametrize("op", [T.MixUp(0.5), T.CutMix(0.5)], ids=repr)
def test_the_number_of_workers_does_not_matter(op):
    _, _, alone = batches(op, workers=1)
    _, _, together = batches(op, workers=4)
    for first, second in zip(alone, together, strict=True):
        for name in first:
            np.testing.assert_array_equal(first[name], second[name])


def test_shares_are_drawn_from_the_beta_distribution():
    samples = np.eye(2000, dtype=np.float32)
    shares = np.diagonal(lx.pipeline([T.MixUp(0.4)])(samples))
    assert stats.kstest(shares, stats.beta(0.4, 0.4).cdf).pvalue > 0.001


def test_the_smallest_alpha_leaves_every_sample_or_its_partner():
    samples = np.eye(500, dtype=np.float32)
    for alpha in (5e-324, 1e-200, 1e-12):
        out = lx.pipeline([T.MixUp(alpha)])(samples)
        assert set(np.unique(out)) == {0.0, 1.0}
        assert stats.binomtest(int(np.trace(out)), 500, 0.5).pvalue > 0.001


def test_ops_after_a_mix_work_on_the_mixed_samples():
    x = images((4, 5, 2), np.float32)
    mixed = lx.pipeline([T.MixUp(1.0)])(x)
    out = lx.pipeline([T.MixUp(1.0), T.Normalize(0.5, 0.25)])(x)
    np.testing.assert_array_equal(out, mixed * np.float32(4) - np.float32(2))


REFUSED = [
    (lambda op=op, value=value: op(value), f"`alpha` (={value!r}) must be a finite number above 0.")
    for op in (T.MixUp, T.CutMix)
    for value in (0, -1.0, math.nan, math.inf, "much", None)
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_that_cannot_work_are_refused_at_once(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("dtype", [np.uint8, np.float64, np.int64, np.float16])
@pytest.mark.parametrize("op", [T.MixUp(), T.CutMix()], ids=repr)
def test_only_float32_fields_are_mixed(op, dtype):
    message = (
        f"{op.name} mixes float32 fields, not {np.dtype(dtype)}[4, 5, 3]; put Normalize or ToFloat before it, and "
        "OneHot for labels."
    )
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        lx.pipeline([op])(images((4, 5, 3), dtype))


@pytest.mark.parametrize("shape", [(), (2, 3, 4, 5), (0,), (4, 0, 3)])
def test_cutmix_accepts_images_and_series_only(shape):
    message = (
        "CutMix needs an image of shape (height, width, channels) or a time series of shape (time,) or "
        f"(time, channels) as the first field, not float32{list(shape)}."
    )
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        lx.pipeline([T.CutMix()])(np.zeros((3, *shape), np.float32))


@pytest.mark.parametrize("op", [T.CutMix(), T.RandomFlip(), T.RandomCrop(4)])
def test_ops_that_need_height_and_width_are_refused_after_channels_first(op):
    first = T.Normalize([0.5] * 3, [0.5] * 3, channels_first=True)
    with pytest.raises(lx.ArgumentError, match="put the channels first"):
        lx.pipeline([first, op])(np.zeros((2, 8, 8, 3), np.uint8))
