"""CopyPaste: objects of a partner over those of a sample; masks, boxes and keypoints say what is seen of them."""

import functools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.batch import scheduler
from loaderx.batch.in_progress import BatchInProgress
from loaderx.batch.planner import BatchPlanner
from loaderx.stream import ranges
from tests.loaderx.transforms.images import images
from tests.loaderx.transforms.scenes import (
    FIELDS,
    HEIGHT,
    ROWS,
    WIDTH,
    assert_boxes_are_around_their_pixels,
    batch_of,
    same,
    scenes,
)

COUNT = 32
KINDS = {"kinds": {"mask": "labels"}}


def pasted_from(image, data):
    """Return the place of the partner of each sample: the same distance around the batch for all of them."""
    steps = set()
    for place, each in enumerate(image[..., 0]):
        own = {2 * place + 1, 2 * place + 2, 0}
        others = set(np.unique(each).tolist()) - own
        steps |= {((int(number) - 1) // 2 - place) % COUNT for number in others}
    (step,) = steps
    assert step != 0
    return (np.arange(COUNT) + step) % COUNT


def test_all_objects_of_one_partner_are_pasted_with_a_share_of_1():
    data = scenes()
    batch = batch_of(data, T.CopyPaste(1.0))
    partners = pasted_from(batch["image"], data)
    over = data["instances"][partners] > 0
    for name in ("image", "seg"):
        shaped = over[..., None] if data[name].ndim == 4 else over
        expected = np.where(shaped, data[name][partners], data[name])
        np.testing.assert_array_equal(batch[name], expected)
    numbers = np.where(over, data["instances"][partners] + ROWS, data["instances"])
    np.testing.assert_array_equal(batch["instances"], numbers)
    pasted = batch["boxes"][:, ROWS:]
    valid = data["boxes"][partners][..., 2] > 0
    np.testing.assert_array_equal(batch["boxes_valid"][:, ROWS:], valid)
    np.testing.assert_array_equal(pasted, np.where(valid[..., None], data["boxes"][partners], 0))
    for name in ("boxes", "boxes_valid", "keypoints", "keypoints_valid"):
        assert batch[name].shape[1] == 2 * ROWS


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_boxes_are_around_the_visible_part_of_their_objects(share):
    data = scenes()
    batch = batch_of(data, T.CopyPaste(share))
    assert_boxes_are_around_their_pixels(batch)
    np.testing.assert_array_equal(batch["boxes"][:, :ROWS, 4:][batch["boxes_valid"][:, :ROWS]],
                                  data["boxes"][..., 4:][batch["boxes_valid"][:, :ROWS]])  # fmt: skip
    # The label mask has the class of the box, and the image its colour.
    for place, row in zip(*np.nonzero(batch["boxes_valid"]), strict=True):
        at = batch["instances"][place] == row + 1
        label, number = batch["boxes"][place, row, 4:]
        assert set(batch["seg"][place][at]) == {label}
        assert set(batch["image"][place][at].reshape(-1)) == {2 * number + label - 4}
    pasted = batch["boxes_valid"][:, ROWS : ROWS + 2].sum()
    assert stats.binomtest(int(pasted), 2 * COUNT, share).pvalue > 1e-3


def test_each_subset_of_the_objects_is_as_likely_as_the_others():
    data = scenes(600, dtype=np.uint16)
    valid = batch_of(data, T.CopyPaste())["boxes_valid"][:, ROWS : ROWS + 2]
    counts = np.bincount(valid @ [1, 2], minlength=4)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_sides_of_a_box_stay_where_pixels_are_left_and_nothing_else_is_covered():
    # A box that is larger than its pixels, as boxes drawn by hand are, next to an object of the other sample.
    instances = np.zeros((2, 20, 20), np.uint8)
    instances[0, 5:15, 5:15] = 1
    instances[1, 0:20, 12:20] = 1
    boxes = np.array([[[4.6, 4.5, 15.25, 15.5, 7]], [[12, 0, 20, 20, 8]]], np.float32)
    data = {"image": images((20, 20, 3), count=2), "instances": instances, "boxes": boxes}
    batch = batch_of(data, T.CopyPaste(1.0))
    expected = np.array([[4.6, 4.5, 12, 15.5, 7], [12, 0, 20, 20, 8]], np.float32)
    np.testing.assert_array_equal(batch["boxes"][0], expected)
    # Three of ten columns are gone.
    for least, valid in ((0.69, True), (0.71, False)):
        kinds = {"boxes": T.Boxes(min_visibility=least)}
        found = batch_of(data, T.CopyPaste(1.0), kinds=kinds)
        assert found["boxes_valid"].tolist() == [[valid, True], [True, True]]
        assert bool(found["boxes"][0, 0, :4].any()) == valid
    # In the other one nothing is covered, so the box stays to the last bit.
    np.testing.assert_array_equal(batch["boxes"][1, 0], np.float32([12, 0, 20, 20, 8]))


def test_a_covered_object_is_dropped_and_boxes_without_pixels_stay():
    instances = np.zeros((2, 10, 10), np.uint16)
    instances[0, 2:4, 2:4] = 2
    instances[1, 1:6, 1:6] = 1
    boxes = np.zeros((2, 2, 4), np.float32)
    boxes[0] = [[5, 5, 9, 9], [2, 2, 4, 4]]
    boxes[1, 0] = [1, 1, 6, 6]
    data = {"image": images((10, 10, 1), count=2), "instances": instances, "boxes": boxes}
    batch = batch_of(data, T.CopyPaste(1.0))
    # Row 0 of the first image has a box and no pixels, so nothing is known to cover it, and it is never pasted.
    assert batch["boxes_valid"].tolist() == [[True, False, True, False], [True, False, False, True]]
    assert not batch["boxes"][0, 1].any()
    np.testing.assert_array_equal(batch["boxes"][0, 0], boxes[0, 0])
    np.testing.assert_array_equal(batch["boxes"][1, 3], boxes[0, 1])
    np.testing.assert_array_equal(batch["boxes"][1, 0], boxes[1, 0])


def test_keypoints_are_covered_or_come_along():
    data = scenes()
    plain = batch_of(data, T.Identity())
    batch = batch_of(data, T.CopyPaste(0.6))
    partners = pasted_from(batch["image"], data)
    rows, columns = (np.nan_to_num(data["keypoints"][..., axis]).astype(int) for axis in (1, 0))
    for place, partner in enumerate(partners):
        over = batch["instances"][place] > ROWS
        own = plain["keypoints_valid"][place] & ~over[rows[place], columns[place]]
        come = plain["keypoints_valid"][partner] & over[rows[partner], columns[partner]]
        np.testing.assert_array_equal(batch["keypoints_valid"][place], np.concatenate([own, come]))
        np.testing.assert_array_equal(batch["keypoints"][place, :ROWS], data["keypoints"][place])
        np.testing.assert_array_equal(
            batch["keypoints"][place, ROWS:][come], data["keypoints"][partner][come]
        )
        assert not batch["keypoints"][place, ROWS:][~come].any()
        # An object takes its middle along.
        np.testing.assert_array_equal(come, batch["boxes_valid"][place, ROWS:])


# --- masks of labels --------------------------------------------------------------------------


def labelled(count=COUNT, dtype=np.uint8, values=(0, 1, 2, 255)):
    mask = np.repeat(np.repeat(np.random.default_rng(0).choice(values, (count, 4, 5)), 5, 1), 4, 2)
    return {"image": images((20, 20, 3), count=count), "mask": mask.astype(dtype)}


def partner_step(data, batch, field="image"):
    """Return the distance around the batch to the partner whose pixels were pasted."""
    shifted = [
        step
        for step in range(1, len(data[field]))
        if np.all((batch == data[field]) | (batch == np.roll(data[field], -step, 0)))
    ]
    (step,) = shifted
    return step


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_labels_are_pasted_as_they_are_but_for_the_background(dtype):
    data = labelled(dtype=dtype)
    for background, kept in ((0, (0,)), ((0, 255), (0, 255)), ([], ())):
        batch = batch_of(data, T.CopyPaste(1.0, background=background), **KINDS)
        step = partner_step(data, batch["image"])
        partner = np.roll(data["mask"], -step, 0)
        over = ~np.isin(partner, kept)
        np.testing.assert_array_equal(batch["mask"], np.where(over, partner, data["mask"]))
        expected = np.where(over[..., None], np.roll(data["image"], -step, 0), data["image"])
        np.testing.assert_array_equal(batch["image"], expected)
        assert batch["mask"].dtype == dtype


def test_a_class_is_pasted_as_a_whole_with_its_share():
    data = labelled(800, np.int32, (0, 3, -7))
    batch = batch_of(data, T.CopyPaste(0.25), **KINDS)
    step = partner_step(data, batch["image"])
    partner = np.roll(data["mask"], -step, 0)
    for value in (3, -7):
        at = partner == value
        present = at.any(axis=(1, 2))
        # All of its pixels, or only those that were of the same label before.
        over = (batch["image"] == np.roll(data["image"], -step, 0)).all(axis=-1)
        whole = (over | ~at).all(axis=(1, 2))[present]
        assert stats.binomtest(int(whole.sum()), len(whole), 0.25).pvalue > 1e-3


def test_masks_of_booleans_and_of_one_channel():
    data = labelled()
    mask = data["mask"] == 1
    expected = batch_of({**data, "mask": mask}, T.CopyPaste(1.0))
    step = partner_step(data, expected["image"])
    np.testing.assert_array_equal(expected["mask"], mask | np.roll(mask, -step, 0))
    found = batch_of({**data, "mask": mask[..., None].astype(np.int64)}, T.CopyPaste(1.0))
    np.testing.assert_array_equal(found["image"], expected["image"])
    np.testing.assert_array_equal(found["mask"][..., 0], expected["mask"])


DTYPES = [np.uint8, np.float32, np.float16, ml_dtypes.bfloat16, np.uint16, np.float64]


@pytest.mark.parametrize("channels", [(), (1,), (2,), (3,), (4,)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_images_of_all_dtypes_and_channels(dtype, channels):
    data = labelled(8)
    shape = (20, 20, *channels)
    image = images(shape, np.float32, count=8)
    image = (image * 255).astype(dtype) if np.dtype(dtype).kind == "u" else image.astype(dtype)
    given = {"image": image, "mask": data["mask"], "depth": images((20, 20), np.float32, count=8)}
    batch = batch_of(given, T.CopyPaste(1.0), **KINDS)
    step = partner_step(given, batch["depth"], "depth")
    over = np.roll(data["mask"], -step, 0) > 0
    over = over.reshape(8, 20, 20, *[1] * len(channels))
    expected = np.where(over, np.roll(image.view(np.uint8).reshape(*image.shape, -1), -step, 0).view(dtype)[..., 0],
                        image)  # fmt: skip
    assert batch["image"].dtype == dtype
    assert batch["image"].tobytes() == expected.astype(dtype).tobytes()


# --- how often, and with whom -----------------------------------------------------------------


def test_it_happens_as_often_as_it_says_and_leaves_all_else():
    data = scenes(600, dtype=np.uint16)
    batch = batch_of(data, T.CopyPaste(1.0, probability=0.3))
    happened = batch["boxes_valid"][:, ROWS:].any(axis=1)
    assert stats.binomtest(int(happened.sum()), 600, 0.3).pvalue > 1e-3
    left = ~happened
    for name in ("image", "instances", "seg"):
        np.testing.assert_array_equal(batch[name][left], data[name][left])
    np.testing.assert_array_equal(batch["boxes"][left, :ROWS], data["boxes"][left])
    assert not batch["boxes"][left, ROWS:].any()
    same(batch_of(data, T.CopyPaste(probability=1)), batch_of(data, T.CopyPaste()))


@pytest.mark.parametrize("remainder", ["keep", "pad", "straddle"])
def test_a_sample_alone_in_its_batch_stays_as_it_is(remainder):
    data = scenes(5)
    loader = lx.DataLoader(
        data, batch_size=2 if remainder == "keep" else 1, num_epochs=1, shuffle=False, remainder=remainder,
        output="numpy", transforms={FIELDS: [T.CopyPaste(1.0)]},
    )  # fmt: skip
    batch = loader.batch(len(loader) - 1)
    np.testing.assert_array_equal(batch["image"], data["image"][4:])
    np.testing.assert_array_equal(batch["instances"], data["instances"][4:])
    np.testing.assert_array_equal(batch["boxes"][:, :ROWS], data["boxes"][4:])
    assert not batch["boxes_valid"][:, ROWS:].any()


@pytest.mark.parametrize("remainder", ["keep", "drop", "pad", "straddle"])
def test_objects_come_from_the_same_batch(remainder):
    data = scenes(10)
    loader = lx.DataLoader(
        data, batch_size=4, num_epochs=2, remainder=remainder, output="numpy", seed=4,
        transforms={FIELDS: [T.CopyPaste(1.0)]},
    )  # fmt: skip
    with iter(loader) as batches:
        taken = list(batches)
    assert len(taken) == len(loader)
    for step, batch in enumerate(taken):
        assert_boxes_are_around_their_pixels(batch)
        rows = loader.indices(step)
        pasted = batch["boxes"][:, ROWS:][batch["boxes_valid"][:, ROWS:]]
        assert len(pasted) > 1
        assert set(pasted[:, 5].astype(int)) <= set(rows)
        same(loader.batch(step), batch)


@pytest.mark.parametrize("options", [{"workers": 4, "prefetch": 4}, {"workers": 2}], ids=str)
def test_threads_do_not_matter(options, monkeypatch):
    data = scenes()
    ops = [T.RandomFlip(), T.CopyPaste(), T.RandomFlip(), T.CopyPaste(0.2)]
    given = {"batch_size": 16, "shuffle": True, "seed": 3}
    expected = [batch_of(data, *ops, step=k, workers=1, **given) for k in (0, 1, 7)]
    monkeypatch.setattr(scheduler, "TRANSFORMED_BYTES_PER_PART", 1024)
    for step, batch in zip((0, 1, 7), expected, strict=True):
        assert_boxes_are_around_their_pixels(batch)
        same(batch_of(data, *ops, step=step, **given, **options), batch)


PLACES = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 10)), min_size=1, max_size=3)
CHAINS = {
    "Mosaic": [T.Mosaic()],
    "CopyPaste": [T.CopyPaste()],
    "both": [T.RandomFlip(), T.Mosaic(), T.CopyPaste(0.8), T.RandomFlip(), T.CopyPaste()],
}


@functools.cache
def builder_of(chain):
    loader = lx.DataLoader(
        scenes(30), batch_size=10, seed=5, output="numpy", transforms={FIELDS: CHAINS[chain]}
    )
    return loader._builder, loader.batch(2)


@pytest.mark.parametrize("chain", CHAINS)
@settings(deadline=None, max_examples=40)
@given(given=st.lists(PLACES, min_size=7, max_size=7))
def test_a_process_that_holds_some_places_of_each_field_makes_the_same_bytes(chain, given):
    """Read, as one of several hosts, the rows of its places, and those that are mixed into them."""
    builder, whole = builder_of(chain)
    blocks = {
        field.name: ranges.union((start, min(start + extent, 10)) for start, extent in own)
        for field, own in zip(builder.planner.fields, given, strict=True)
    }
    planner = BatchPlanner(
        builder.planner.groups, builder.order, 2, 1, lambda field, _: blocks[field.name]
    )
    span = builder.order.span(builder.order.position_of(2))
    batch = BatchInProgress(planner, 2, span)
    for phase in range(batch.phases):
        for part in range(batch.parts(phase)):
            batch.fill(phase, part)
    for field, arrays in zip(planner.fields, batch.arrays, strict=True):
        for (start, stop), array in zip(blocks[field.name], arrays, strict=True):
            np.testing.assert_array_equal(array, whole[field.name][start:stop])
    # It reads no rows but those of the places that it holds, and of their partners.
    if chain == "CopyPaste":
        own = {place for found in blocks.values() for place in ranges.places(found).tolist()}
        (step,) = planner.fields[0].chain.partner_steps(1, 10, span.position)
        wanted = sorted(own | {(place + step) % 10 for place in own})
        np.testing.assert_array_equal(batch.rows, builder.order.rows_of(span)[wanted])


# --- between other ops ------------------------------------------------------------------------


def test_it_follows_a_mosaic_and_moves_on():
    data = scenes()
    ops = [T.RandomFlip(), T.Mosaic((20, 30)), T.CopyPaste(), T.RandomFlip(axis="vertical")]
    batch = batch_of(data, *ops)
    assert batch["boxes"].shape[1] == 8 * ROWS
    assert batch["boxes_valid"][:, 4 * ROWS :].sum() > COUNT
    assert_boxes_are_around_their_pixels(batch)


@pytest.mark.parametrize("mask_first", [True, False])
def test_fields_may_have_been_mixed_before_differently_often(mask_first):
    data = labelled(16)
    data["image"] = data["image"].astype(np.float32) / 255
    before = {"image": [T.MixUp(1.0), T.MixUp(0.5)]}
    names = ("mask", "image") if mask_first else ("image", "mask")
    options = {"batch_size": 16, "shuffle": False, "output": "numpy", **KINDS}
    mixed = lx.DataLoader(data, transforms=before, **options).batch(0)
    both = lx.DataLoader(data, transforms={**before, names: [T.CopyPaste(1.0)]}, **options).batch(0)
    step = partner_step(mixed, both["image"])
    partner = np.roll(data["mask"], -step, 0)
    over = partner > 0
    np.testing.assert_array_equal(both["mask"], np.where(over, partner, data["mask"]))
    expected = np.where(over[..., None], np.roll(mixed["image"], -step, 0), mixed["image"])
    np.testing.assert_array_equal(both["image"], expected)


def test_masks_are_read_as_they_are_before_it():
    """Read masks as the ops before it leave them: not as in the data, and not as after later ops."""
    data = labelled(16)
    ops = [T.Rot90(1), T.CopyPaste(1.0), T.Rot90(2)]
    batch = batch_of(data, *ops, **KINDS)
    turned = {name: np.rot90(array, 1, (1, 2)) for name, array in data.items()}
    step = partner_step(turned, np.rot90(batch["image"], 2, (1, 2)))
    partner = np.roll(turned["mask"], -step, 0)
    expected = np.where(partner > 0, partner, turned["mask"])
    np.testing.assert_array_equal(batch["mask"], np.rot90(expected, 2, (1, 2)))


def test_views_after_it_read_the_same_masks():
    data = scenes(8)
    plain = batch_of(data, T.CopyPaste())
    batch = batch_of(data, T.CopyPaste(), T.Views([[], [T.RandomFlip(1.0)]]))
    np.testing.assert_array_equal(batch["image_0"], plain["image"])
    np.testing.assert_array_equal(batch["image_1"], plain["image"][:, :, ::-1])
    np.testing.assert_array_equal(batch["instances_1"], plain["instances"][:, :, ::-1])
    np.testing.assert_array_equal(batch["boxes_0"], plain["boxes"])
    # Views of the mask alone replace it, and the image still reads it.
    options = {"batch_size": 8, "shuffle": False, "output": "numpy"}
    transforms = {FIELDS: [T.CopyPaste()], "instances": T.Views(2, [T.RandomFlip()])}
    batch = lx.DataLoader(data, transforms=transforms, **options).batch(0)
    np.testing.assert_array_equal(batch["image"], plain["image"])
    np.testing.assert_array_equal(batch["boxes"], plain["boxes"])


def test_debug_mode_gives_the_same_bytes(monkeypatch):
    data = scenes(8)
    compiled = batch_of(data, T.RandomFlip(), T.CopyPaste(), T.RandomFlip())
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    same(batch_of(data, T.RandomFlip(), T.CopyPaste(), T.RandomFlip()), compiled)


@pytest.mark.filterwarnings("ignore:.*is a plain Python function")
def test_python_functions_before_and_after_it():
    data = labelled(8)

    def upside_down(x):
        return x[::-1].copy()

    ops = [upside_down, T.CopyPaste(1.0), upside_down]
    batch = batch_of(data, *ops, **KINDS)
    step = partner_step(data, batch["image"])
    partner = np.roll(data["mask"], -step, 0)
    np.testing.assert_array_equal(batch["mask"], np.where(partner > 0, partner, data["mask"]))


def test_it_is_explained_and_shown():
    loader = lx.DataLoader(scenes(8), batch_size=4, transforms={FIELDS: [T.CopyPaste()]})
    assert "CopyPaste    uint8[24, 30, 3]" in loader.explain()
    assert "CopyPaste" in loader._repr_html_()


# --- what is refused --------------------------------------------------------------------------

ARGUMENTS = [
    ({"share": 1.5}, "`share` (=1.5) must be from 0 to 1."),
    ({"share": "half"}, "`share` (='half') must be from 0 to 1."),
    ({"background": 0.5}, "`background` (=0.5) must be an integer, or several of them."),
    ({"background": (0, "sky")}, "`background` (=(0, 'sky')) must be an integer, or several of them."),
    ({"background": None}, "`background` (=None) must be an integer, or several of them."),
    ({"probability": -1}, "`probability` (=-1) must be from 0 to 1."),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), ARGUMENTS, ids=lambda given: str(given)[:40])
def test_bad_arguments_are_refused(given, message):
    with pytest.raises(lx.ArgumentError) as caught:
        T.CopyPaste(**given)
    assert str(caught.value) == message


def fields(*names, **more):
    data = scenes(4)
    return {**{name: data[name] for name in names}, **more}


REFUSED = {
    "no mask": (
        lambda: fields("image", "boxes"),
        T.CopyPaste(),
        (
            "CopyPaste needs a mask of integers or booleans next to the image, which says where objects are. Name the "
            'field that has it in the same entry, {("image", "mask"): [...]}; the last word of its name is '
            '"mask", or `kinds` says so.'
        ),
    ),
    "a mask of floats": (
        lambda: fields("image", mask=np.zeros((4, HEIGHT, WIDTH), np.float32)),
        T.CopyPaste(),
        "CopyPaste needs a mask of integers or booleans",
    ),
    "boxes and labels": (
        lambda: fields("image", "seg", "boxes"),
        T.CopyPaste(),
        (
            "CopyPaste must know which box is that of an object. Give a mask that is k + 1 where the object of "
            "row k of the boxes is, and 0 elsewhere, and say so: kinds={'seg': \"instances\"}."
        ),
    ),
    "instances without boxes": (
        lambda: fields("image", "instances"),
        T.CopyPaste(),
        "CopyPaste: an entry has one field of the kind 'instances', whose values are numbers of boxes, and the boxes",
    ),
    "a mask of another size": (
        lambda: fields("image", mask=np.zeros((4, 5, 6), np.int32)),
        T.CopyPaste(),
        "CopyPaste: fields that move together must have the same height and width",
    ),
    "a mask of several channels": (
        lambda: fields("image", mask=np.zeros((4, HEIGHT, WIDTH, 2), np.int32)),
        T.CopyPaste(),
        (
            "CopyPaste accepts masks of objects of shape (height, width) or (height, width, 1), and 'mask' is "
            "int32[24, 30, 2]."
        ),
    ),
    "too many boxes": (
        lambda: fields("image", "instances", boxes=np.zeros((4, 128, 4), np.float32)),
        T.CopyPaste(),
        "CopyPaste makes 256 boxes, and masks of uint8[24, 30] cannot have their numbers.",
    ),
    "a background that becomes a number": (
        lambda: fields("image", "instances", boxes=np.zeros((4, 20, 4), np.float32)),
        T.CopyPaste(background=(0, 40)),
        (
            "CopyPaste: 40 of `background` would be the number of a pasted box: the entry has 20 rows of boxes, "
            "and those that are pasted count on from there."
        ),
    ),
    "another field of boxes": (
        lambda: fields("image", "instances", "boxes", more_boxes=np.zeros((4, 5, 4), np.float32)),
        T.CopyPaste(),
        (
            "CopyPaste: the values of the mask are the numbers of 3 boxes, and another field of boxes of the "
            "entry has 5 rows."
        ),
    ),
    "instances that cannot number boxes": (
        lambda: fields("image", "boxes", instances=np.zeros((4, HEIGHT, WIDTH), np.bool_)),
        T.CopyPaste(),
        "CopyPaste must know which box is that of an object.",
    ),
    "a length": (
        lambda: fields("image", "seg", length=np.arange(4)),
        T.CopyPaste(),
        "CopyPaste is for images and what is next to them, and 'length' is a length.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_without_meaning_are_refused(case):
    make, op, message = REFUSED[case]
    with pytest.raises(lx.ArgumentError) as caught:
        batch_of(make(), op, batch_size=4)
    assert message in str(caught.value)


def test_an_image_alone_is_refused():
    with pytest.raises(lx.ArgumentError, match="CopyPaste needs a mask of integers or booleans"):
        lx.pipeline([T.CopyPaste()])(images((8, 8, 3)))


def test_a_background_of_no_box_is_kept():
    """Keep the label to be ignored in a mask of instances: it is never pasted."""
    data = scenes(8)
    plain = batch_of(data, T.CopyPaste(1.0))
    for instances in (data["instances"], plain["instances"]):
        instances[instances == 0] = 255
    batch = batch_of(data, T.CopyPaste(1.0, background=(0, 255)))
    same(batch, plain)
    # Values that are not the number of a box are not objects either.
    same(batch_of(data, T.CopyPaste(1.0)), plain)
