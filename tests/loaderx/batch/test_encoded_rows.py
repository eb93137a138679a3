"""Damaged images: an error at their step that names them, or another row in their place, the same everywhere."""

import json
import logging
import pickle

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.loaderx.encoded_images import encode, encoded, photographs, smooth

ROWS = 40
DAMAGED = {3: b"", 11: b"no image", 25: None}


def files(damaged=DAMAGED):
    """Return encoded images of two sizes, some of which are damaged; None is for a truncated one."""
    found, _ = photographs([(30 + number % 2, 40) for number in range(ROWS)])
    for row, data in damaged.items():
        found[row] = found[row][:-200] if data is None else data
    return found


def loader(damaged=DAMAGED, **options):
    data = {"image": encoded(files(damaged)), "label": np.arange(ROWS)}
    ops = {"image": [T.RandomCrop(20)]}
    return lx.DataLoader(
        data, **{"batch_size": 8, "transforms": ops, "output": "numpy", "seed": 2, **options}
    )


def batches(made, count, state=None):
    with iter(made) as it:
        if state is not None:
            it.set_state(state)
        return [next(it) for _ in range(count)], it.get_state(), it.stats()


def same(one, other):
    return all(
        np.array_equal(mine[name], its[name])
        for mine, its in zip(one, other, strict=True)
        for name in mine
    )


@pytest.mark.parametrize("row", DAMAGED)
def test_a_damaged_image_is_an_error_at_its_step(row):
    made = loader({row: DAMAGED[row]}, shuffle=False)
    with iter(made) as it:
        for _ in range(row // 8):
            next(it)
        with pytest.raises(lx.DataError) as failure:
            next(it)
        assert f"made-up file {row} (row {row})" in str(failure.value.__notes__)
        assert f"while building step {row // 8}" in str(failure.value.__notes__)
        assert it.step == row // 8


def test_damaged_rows_are_replaced_as_a_whole():
    made = loader(on_error="replace", shuffle=False)
    found, _, stats = batches(made, 10)
    labels = np.concatenate([batch["label"] for batch in found])
    images = np.concatenate([batch["image"] for batch in found])
    assert not np.isin(labels, list(DAMAGED)).any()
    assert stats.replaced == 2 * len(DAMAGED)
    moved = labels != np.arange(80) % ROWS
    assert np.flatnonzero(moved).tolist() == [3, 11, 25, 43, 51, 65]
    # Every image is one of the row that its label names.
    whole = [encoded(files())[int(row)].decode() for row in labels]
    for image, pixels in zip(images, whole, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(pixels, (20, 20, 3))
        assert (windows == image).all((-3, -2, -1)).any()


def test_replacements_are_the_same_for_all_workers_batch_sizes_and_after_a_resume():
    reference, _state, _ = batches(loader(on_error="replace", workers=1), 12)
    assert same(batches(loader(on_error="replace", workers=4), 12)[0], reference)
    made = loader(on_error="replace")
    assert same([made.batch(step) for step in range(12)], reference)
    assert same([pickle.loads(pickle.dumps(made)).batch(7)], reference[7:8])
    _, middle, _ = batches(made, 5)
    assert same(batches(made, 7, json.loads(json.dumps(middle)))[0], reference[5:])
    whole, _, _ = batches(loader(on_error="replace", batch_size=24), 4)
    labels = [np.concatenate([batch["label"] for batch in each]) for each in (whole, reference)]
    assert np.array_equal(*labels)


def test_replacements_differ_by_position_and_seed():
    made = [loader({3: b""}, on_error="replace", shuffle=False, seed=seed) for seed in range(20)]
    rows = [[each.batch(step)["label"][3] for step in (0, 5)] for each in made]
    assert len({tuple(each) for each in rows}) > 15
    assert len({first for first, _ in rows}) > 8


def test_a_row_is_replaced_by_another_one_until_one_is_whole():
    some = dict.fromkeys(range(0, ROWS, 2), b"")
    found, _, stats = batches(loader(some, on_error="replace", num_epochs=1), 5)
    assert all((batch["label"] % 2 == 1).all() for batch in found)
    assert stats.replaced == ROWS // 2


def test_a_data_set_without_a_whole_row_is_an_error():
    made = loader(dict.fromkeys(range(ROWS), b"x"), on_error="replace")
    with pytest.raises(lx.DataError) as failure:
        made.batch(0)
    assert "99 rows in place of row" in str(failure.value.__notes__)


def test_images_that_move_together_have_one_size():
    masks = [encode(smooth(30, 40 + (row == 9))[..., 0], "PNG") for row in range(ROWS)]
    data = {"image": encoded(files({})), "mask": encoded(masks, mode="P"), "label": np.arange(ROWS)}
    data["image"] = encoded([encode(smooth(30, 40), "PNG")] * ROWS)
    ops = {("image", "mask"): [T.RandomCrop(20)]}
    made = lx.DataLoader(data, batch_size=8, transforms=ops, output="numpy", shuffle=False)
    made.batch(0)
    with pytest.raises(
        lx.DataError, match="made-up file 9 is 30 x 41 pixels, and made-up file 9 is 30 x 40"
    ):
        made.batch(1)
    replaced = lx.DataLoader(
        data, batch_size=8, transforms=ops, output="numpy", shuffle=False, on_error="replace"
    )
    assert 9 not in replaced.batch(1)["label"]


def test_replaced_rows_are_logged_once(caplog):
    with caplog.at_level(logging.WARNING, "loaderx"):
        batches(loader(on_error="replace", shuffle=False), 10)
    texts = [record.getMessage() for record in caplog.records]
    # In any order: two workers read the parts of a batch.
    replaced = sorted(
        int(text.removeprefix("row ").split(" is replaced by row ")[0]) for text in texts
    )
    assert replaced == sorted(DAMAGED)


def test_other_policies_are_refused():
    with pytest.raises(
        lx.ArgumentError, match="`on_error` \\(='skip'\\) must be one of 'raise', 'replace'"
    ):
        loader(on_error="skip")
    with pytest.raises(lx.ArgumentError, match="is for encoded images"):
        lx.DataLoader(np.zeros((9, 2)), on_error="replace")


def test_a_state_names_the_decoder_and_another_one_warns():
    made = loader({})
    _, state, _ = batches(made, 2)
    assert "Pillow" in state["decoder"]
    with iter(made) as it, pytest.warns(UserWarning, match="decoded by Pillow 1.0, and now are by"):
        it.set_state({**state, "decoder": "Pillow 1.0"})
    with iter(made) as it:
        it.set_state(state)
    with iter(lx.DataLoader(np.zeros((9, 2)), batch_size=3)) as it:
        assert it.get_state()["decoder"] is None
