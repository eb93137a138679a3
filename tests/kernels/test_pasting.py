"""Objects of a partner are pasted: pixels, masks, boxes and keypoints against twins that agree on what is pasted."""

import numpy as np
import pytest
from numba.core import config
from scipy import stats

from loaderx.kernels import pasting
from loaderx.kernels.compilation import kernel
from loaderx.kernels.distributions import Draws
from loaderx.kernels.random import fold
from tests import reference

KEY = np.uint64(2**62 + 5)
COUNT = 8
HEIGHT, WIDTH = 9, 11
ROWS = 4
NOTHING = np.zeros(1, np.int64)
SHARES = [0.0, 0.3, 0.5, 1.0]
DRAWS = 300 if config.DISABLE_JIT else 20_000


def scenes(dtype=np.int32, seed=0):
    """Return masks of overlapping rectangles, and their boxes.

    Some numbers have no pixels, and some are larger than the number of boxes.
    """
    rng = np.random.default_rng(seed)
    masks = np.zeros((COUNT, HEIGHT, WIDTH), dtype)
    boxes = np.zeros((COUNT, ROWS, 7), np.float32)
    for i in range(COUNT):
        for value in rng.permutation(np.arange(1, ROWS + 2))[: rng.integers(1, ROWS + 2)]:
            top, left = rng.integers(0, 6, 2)
            tall, wide = rng.integers(1, 6, 2)
            masks[i, top : top + tall, left : left + wide] = value
            if value <= ROWS:
                sides = np.array([left, top, left + wide, top + tall]) + rng.uniform(-0.4, 0.4, 4)
                boxes[i, value - 1] = *sides, rng.random() < 0.9, rng.random(), value
    keypoints = rng.uniform(-1, 11, (COUNT, 5, 3)).astype(np.float32)
    keypoints[..., 2] = rng.random((COUNT, 5)) < 0.8
    return masks.reshape(COUNT, -1), boxes, keypoints


PARTNERS = (np.arange(COUNT) + 3) % COUNT


def run(kernel, out, masks, samples, *, first=0, partners=PARTNERS, share=0.5, rows=ROWS, probability=1.0,
        background=NOTHING, before=(), after=()):  # fmt: skip
    positions = np.arange(40 + first, 40 + first + len(out))
    given = (first, positions, partners[first : first + len(out)], KEY, probability, share, rows)
    kernel(*given, background, *before, masks, *after, samples, out)
    return out


def pixels(module, masks, samples, count=COUNT, **options):
    out = np.full((count, samples.shape[1]), 7, np.uint8)
    known = np.full((pasting.SLOTS, 3), -7)
    return run(module.paste_pixels, out, masks, samples, after=(known,), **options)


def instances(module, masks, count=COUNT, **options):
    out = np.full((count, masks.shape[1]), 77, masks.dtype)
    return run(module.paste_instances, out, masks, masks, **options)


def pasted_boxes(module, masks, x, count=COUNT, **options):
    out = np.full((count, 2 * ROWS, x.shape[2]), np.nan, np.float32)
    facts = np.full((3, ROWS, pasting.FACTS), -9)
    return run(module.paste_boxes, out, masks, x, before=(WIDTH,), after=(facts,), **options)


def pasted_keypoints(module, masks, x, count=COUNT, **options):
    out = np.full((count, 2 * x.shape[1], 3), np.nan, np.float32)
    return run(module.paste_keypoints, out, masks, x, before=(WIDTH,), **options)


OPTIONS = [
    *({"share": share} for share in SHARES),
    {"probability": 0.5, "share": 0.8},
    {"share": 0.9, "background": np.array([0, 2, 3])},
    {"share": 1.0, "background": np.empty(0, np.int64)},
    {"share": 1.0, "partners": np.array([0, 0, 2, 3, 3, 1, 7, 6])},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("rows", [ROWS, -1])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.bool_])
def test_pixels_equal_those_of_the_twin(dtype, rows, options):
    masks = scenes(dtype)[0]
    for pixel in (1, 3, 16):
        samples = np.random.default_rng(1).integers(0, 256, (COUNT, HEIGHT * WIDTH * pixel), np.uint8)  # fmt: skip
        out = pixels(pasting, masks, samples, rows=rows, **options)
        expected = pixels(reference, masks, samples, rows=rows, **options)
        np.testing.assert_array_equal(out, expected)


@kernel
def ends(mask, out):
    """Write the end of every run of a mask, one after the other; return their number."""
    count, stop = 0, 0
    while stop < mask.shape[0]:
        stop = pasting.end_of_run(mask, stop)
        out[count] = stop
        count += 1
    return count


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int16, np.uint32, np.int64])
def test_runs_of_equal_values_end_where_the_next_value_differs(dtype):
    random = np.random.default_rng(4)
    for longest in (1, 3, 9, 40):
        values = random.integers(0, 2 if dtype == np.bool_ else 100, 60)
        mask = np.repeat(values, random.integers(1, longest + 1, 60)).astype(dtype)
        changes = np.flatnonzero(mask[1:] != mask[:-1]) + 1
        # Any beginning: a row of a batch may begin at any address.
        for begin in range(9):
            part = mask[begin:]
            out = np.zeros(len(part), np.int64)
            count = ends(part, out)
            expected = [*(place - begin for place in changes if place > begin), len(part)]
            np.testing.assert_array_equal(out[:count], expected)


@pytest.mark.parametrize("labels", [7, 600])
def test_labels_that_change_from_pixel_to_pixel_are_pasted_by_their_value(labels):
    random = np.random.default_rng(3)
    # More of them than the cache has entries; and such as share an entry.
    masks = random.integers(0, labels, (COUNT, HEIGHT * WIDTH)) * random.choice([1, pasting.SLOTS])
    samples = random.integers(0, 256, (COUNT, HEIGHT * WIDTH * 3), np.uint8)
    for background in (NOTHING, np.arange(0, labels, 3)):
        given = {"rows": -1, "background": background}
        out = pixels(pasting, masks, samples, **given)
        np.testing.assert_array_equal(out, pixels(reference, masks, samples, **given))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_masks_boxes_and_keypoints_equal_those_of_the_twins(options):
    for seed in range(5):
        masks, boxes, keypoints = scenes(seed=seed)
        for dtype in (np.uint8, np.uint64):
            given = masks.astype(dtype)
            expected = instances(reference, given, **options)
            np.testing.assert_array_equal(instances(pasting, given, **options), expected)
        found = pasted_boxes(pasting, masks, boxes, **options)
        expected = pasted_boxes(reference, masks, boxes, **options)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        found = pasted_keypoints(pasting, masks, keypoints, **options)
        expected = pasted_keypoints(reference, masks, keypoints, **options)
        np.testing.assert_array_equal(found, expected)


def test_negative_values_of_labels_are_objects_unless_they_are_background():
    masks = np.where(scenes()[0] == 2, -1, scenes()[0]).astype(np.int32)
    samples = np.arange(COUNT, dtype=np.uint8)[:, None].repeat(HEIGHT * WIDTH, 1)
    for background in ([0], [0, -1]):
        given = {"rows": -1, "share": 1.0, "background": np.array(background)}
        out = pixels(pasting, masks, samples, **given)
        np.testing.assert_array_equal(out, pixels(reference, masks, samples, **given))
        pasted = ~np.isin(masks[PARTNERS], background)
        np.testing.assert_array_equal(out == samples[PARTNERS], pasted)


def test_parts_of_a_batch_are_those_of_the_whole():
    masks, boxes, keypoints = scenes()
    samples = np.random.default_rng(1).integers(0, 256, (COUNT, HEIGHT * WIDTH * 3), np.uint8)
    for make, x in (
        (pixels, [samples]), (instances, []), (pasted_boxes, [boxes]), (pasted_keypoints, [keypoints]),
    ):  # fmt: skip
        whole = make(pasting, masks, *x, probability=0.8)
        for first, stop in [(0, 3), (3, 4), (4, 8)]:
            part = make(pasting, masks, *x, probability=0.8, first=first, count=stop - first)
            np.testing.assert_array_equal(part, whole[first:stop])


def test_every_object_is_pasted_with_its_share_and_independently_of_others():
    background = np.zeros(1, np.int64)
    states = [np.uint64(fold(KEY, np.uint64(position))) for position in range(DRAWS)]
    drawn = np.array(
        [
            [pasting.is_pasted(state, np.int64(value), 0.3, -1, background) for value in (1, 2, -5)]
            for state in states
        ]
    )
    for column in drawn.T:
        assert stats.binomtest(int(column.sum()), DRAWS, 0.3).pvalue > 1e-3
    for one, other in ((0, 1), (0, 2), (1, 2)):
        table = np.histogram2d(drawn[:, one], drawn[:, other], bins=2)[0]
        assert stats.chi2_contingency(table).pvalue > 1e-3
    # It does not depend on whether anything is pasted into the sample at all.
    happened = np.array([Draws(state).random() < 0.5 for state in states])
    assert stats.binomtest(int(happened.sum()), DRAWS, 0.5).pvalue > 1e-3
    table = np.histogram2d(happened, drawn[:, 0], bins=2)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-3
