"""Transforms in a loader: spellings of users, random draws for each sample, and no effect of threads."""

import functools
import itertools
import json
import threading

import jax
import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as its users call it
from loaderx.batch import scheduler
from tests.waiting import PATIENCE

ROWS = 100
BATCH = 64
STEPS = 4  # more than two epochs
SIZE = 16
IMAGES = np.random.default_rng(0).integers(0, 256, (ROWS, SIZE, SIZE, 3), np.uint8)
LABELS = np.arange(ROWS) % 10
POOLS = [
    {"workers": workers, "prefetch": prefetch}
    for workers, prefetch in itertools.product([1, 2, 4], [1, 4])
]


@lx.transform
def channel_gain(x, rng, amount):
    for c in range(x.shape[-1]):
        g = 1 + rng.uniform(-amount, amount)
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                x[i, j, c] *= g


@lx.transform
def draw(x, rng, place=0):
    """Write one draw to the sample, for tests."""
    x[place] = rng.random()


@lx.transform
def refuse_negative(x):
    if x[0] < 0:
        raise ValueError("a negative number")
    x[0] += 1


def taken(loader, steps=STEPS, state=None):
    """Return batches as NumPy arrays, leaf by leaf."""
    with iter(loader) as iterator:
        if state is not None:
            iterator.set_state(state)
        return [
            [np.array(leaf) for leaf in jax.tree.leaves(batch)]
            for batch in itertools.islice(iterator, steps)
        ]


def assert_identical(batches, expected):
    assert len(batches) == len(expected)
    for leaves, twins in zip(batches, expected, strict=True):
        for leaf, twin in zip(leaves, twins, strict=True):
            np.testing.assert_array_equal(leaf, twin, strict=True)


# --- what a new user types --------------------------------------------------------------------


def test_the_first_program_of_the_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = np.random.default_rng(1).integers(0, 256, (300, 32, 32, 3), np.uint8)
    np.save("x.npy", images)
    np.save("y.npy", np.arange(300))
    mean, std = [0.49, 0.48, 0.45], [0.25, 0.24, 0.26]

    loader = lx.DataLoader(
        {"image": lx.NPDataset("x.npy"), "label": lx.NPDataset("y.npy")},
        transforms={
            "image": [T.RandomCrop((32, 32), pad=4), T.RandomFlip(), T.Normalize(mean, std)]
        },
    )

    for batch in itertools.islice(loader, 2):
        assert isinstance(batch["image"], jax.Array)
        assert batch["image"].shape == (256, 32, 32, 3)
        assert batch["image"].dtype == np.float32
        for number in range(4):
            row = int(batch["label"][number])
            assert is_crop_of(images[row], np.asarray(batch["image"][number]), mean, std)


def is_crop_of(image, sample, mean, std):
    """Return whether a sample is one of the 9 x 9 crops of the padded image, mirrored or not, and normalised."""
    padded = np.pad(image, ((4, 4), (4, 4), (0, 0))).astype(np.float32) / 255
    padded = (padded - np.float32(mean)) / np.float32(std)
    crops = (
        padded[top : top + 32, left : left + 32] for top in range(9) for left in range(9)
    )  # fmt: skip
    return any(
        np.allclose(sample, candidate, atol=1e-5)
        for crop in crops
        for candidate in (crop, crop[:, ::-1])
    )


def test_the_second_program_of_the_readme():
    loader = lx.DataLoader(
        {"image": IMAGES, "label": LABELS},
        batch_size=BATCH,
        transforms={"image": [T.ToFloat(), channel_gain(amount=0.1)]},
    )

    batch = next(iter(loader))

    plain = IMAGES[loader.indices(0)] / np.float32(255)
    gains = np.asarray(batch["image"])[:, 5, 5] / plain[:, 5, 5]
    np.testing.assert_allclose(batch["image"], plain * gains[:, None, None], atol=1e-5)
    seen = gains[np.isfinite(gains)]
    assert 0.89 < seen.min() < 0.92
    assert 1.08 < seen.max() < 1.11
    assert len(np.unique(seen)) > BATCH


def test_the_third_program_of_the_readme():
    sample = IMAGES[0].astype(np.float32)
    expected = sample * (1 + np.random.default_rng(0).uniform(-0.1, 0.1, 3))

    channel_gain.py(sample, np.random.default_rng(0), amount=0.1)

    np.testing.assert_allclose(sample, expected, rtol=1e-6)


# --- threads never show -----------------------------------------------------------------------

MIXED = {"image": [T.ToFloat()], "label": [T.OneHot(10)]}
CHAINS = {
    "windows": {"image": [T.RandomCrop(SIZE, pad=2), T.RandomFlip(), T.Normalize(0.5, 0.25)]},
    "authored": {"image": [T.ToFloat(), channel_gain(amount=0.3)], "label": [T.OneHot(10)]},
    "MixUp": {**MIXED, ("image", "label"): [T.MixUp(0.4)]},
    "CutMix": {
        **MIXED,
        ("image", "label"): [T.CutMix(1.0), T.MixUp(0.4)],
        ("image",): [channel_gain(amount=0.3)],
    },
}


def loader_of(transforms, **options):
    data = {"image": IMAGES, "label": LABELS}
    return lx.DataLoader(
        data, **{"batch_size": BATCH, "seed": 5, "transforms": transforms, **options}
    )


@functools.cache
def expected_batches(chain, output):
    return taken(loader_of(CHAINS[chain], output=output, workers=1, prefetch=1))


@pytest.fixture
def divided(monkeypatch):
    """Divide also batches as small as these into parts, one for each worker."""
    monkeypatch.setattr(scheduler, "TRANSFORMED_BYTES_PER_PART", 1024)


@pytest.mark.usefixtures("divided")
@pytest.mark.parametrize("output", ["numpy", "jax"])
@pytest.mark.parametrize("chain", CHAINS)
def test_batches_are_bit_identical_for_any_crew(chain, output):
    expected = expected_batches(chain, output)
    assert np.any(expected[0][0] != expected[1][0])
    for pool in POOLS[1:]:
        loader = loader_of(CHAINS[chain], output=output, **pool)
        assert loader._builder.planner.scheduler.parts(BATCH) == pool["workers"]
        assert_identical(taken(loader), expected)


def test_numpy_and_jax_get_the_same_numbers():
    for chain in CHAINS:
        for ours, theirs in zip(
            expected_batches(chain, "numpy"), expected_batches(chain, "jax"), strict=True
        ):
            np.testing.assert_array_equal(ours[0], theirs[0])
            np.testing.assert_array_equal(ours[1], theirs[1])


def test_samples_of_one_batch_are_transformed_by_several_threads():
    """Check the premise of the tests above: the workers do share one batch."""
    barrier = threading.Barrier(1)

    def meet(x):
        barrier.wait()
        return x

    class Rows:
        def __len__(self):
            return ROWS

        def __getitem__(self, row):
            return LABELS[row]

    with pytest.warns(UserWarning, match="'meet' is a plain Python function"):
        loader = lx.DataLoader(
            Rows(), batch_size=4, workers=4, prefetch=1, output="numpy", transforms=[meet]
        )
    # Every sample waits for the other three: one thread alone would never come through.
    barrier = threading.Barrier(4, timeout=PATIENCE)
    assert len(taken(loader, 1)) == 1


@pytest.mark.usefixtures("divided")
@pytest.mark.parametrize("chain", CHAINS)
def test_any_batch_can_be_had_by_its_step(chain):
    loader = loader_of(CHAINS[chain], output="numpy", workers=4)
    walked = expected_batches(chain, "numpy")
    for step in (3, 0, 2, 1):
        assert_identical([list(loader.batch(step).values())], [walked[step]])


@pytest.mark.usefixtures("divided")
@pytest.mark.parametrize("chain", CHAINS)
def test_a_resumed_stream_continues_with_the_same_draws(chain):
    walked = expected_batches(chain, "numpy")
    with iter(loader_of(CHAINS[chain], output="numpy")) as iterator:
        next(iterator), next(iterator)
        state = json.loads(json.dumps(iterator.get_state()))
    for pool in ({"workers": 1, "prefetch": 1}, {"workers": 4, "prefetch": 4}):
        resumed = taken(loader_of(CHAINS[chain], output="numpy", **pool), 2, state)
        assert_identical(resumed, walked[2:])


# --- draws ------------------------------------------------------------------------------------

ZEROS = np.zeros((6, 2))


def draws_of(transforms, fields=("a",), steps=3, **options):
    """Return the draws of the samples of some batches, field by field."""
    data = dict.fromkeys(fields, ZEROS)
    options = {"batch_size": 6, "shuffle": False, "seed": 1, "output": "numpy", **options}
    batches = taken(lx.DataLoader(data, transforms=transforms, **options), steps)
    return dict(zip(fields, map(np.concatenate, zip(*batches, strict=True)), strict=True))


def test_every_sample_draws_its_own_number_also_the_same_row_in_another_epoch():
    values = draws_of({"a": [draw()]})["a"][:, 0]
    assert len(np.unique(values)) == 18
    assert values.min() >= 0
    assert values.max() < 1


def test_the_same_seed_gives_the_same_draws_and_another_seed_others():
    first, again = draws_of({"a": [draw()]})["a"], draws_of({"a": [draw()]})["a"]
    np.testing.assert_array_equal(first, again)
    assert not np.isin(first[:, 0], draws_of({"a": [draw()]}, seed=2)["a"][:, 0]).any()


def test_a_draw_belongs_to_the_position_in_the_stream_and_not_to_the_batch():
    by_six = draws_of({"a": [draw()]}, steps=4)["a"]
    by_four = draws_of({"a": [draw()]}, steps=6, batch_size=4)["a"]
    shuffled = draws_of({"a": [draw()]}, steps=4, shuffle=True)["a"]
    np.testing.assert_array_equal(by_six, by_four)
    np.testing.assert_array_equal(by_six, shuffled)


def test_fields_draw_differently_and_do_not_disturb_each_other():
    alone = draws_of({"a": [draw()]})["a"]
    both = draws_of({"b": [draw()], "a": [draw()]}, ("a", "b"))
    np.testing.assert_array_equal(both["a"], alone)
    assert not np.isin(both["b"][:, 0], alone[:, 0]).any()


def test_ops_of_one_field_draw_differently_and_do_not_disturb_those_before_them():
    alone = draws_of({"a": [draw()]})["a"]
    twice = draws_of({"a": [draw(), draw(place=1)]})["a"]
    np.testing.assert_array_equal(twice[:, 0], alone[:, 0])
    assert not np.isin(twice[:, 1], twice[:, 0]).any()


def test_fields_of_one_entry_share_their_draws_and_a_field_alone_has_others():
    together = draws_of({("a", "b"): [draw()], "a": [draw(place=1)]}, ("a", "b"))
    np.testing.assert_array_equal(together["a"][:, 0], together["b"][:, 0])
    assert not np.isin(together["a"][:, 1], together["a"][:, 0]).any()


def test_every_kind_of_source_gives_the_same_samples(tmp_path):
    values = IMAGES[:8].astype(np.float32)
    np.save(tmp_path / "x.npy", values)

    class Rows:
        def __len__(self):
            return 8

        def __getitem__(self, row):
            return {"image": values[row]}

    sources = {
        "array": {"image": values},
        "mapped": {"image": lx.NPDataset(tmp_path / "x.npy")},
        "fortran": {"image": np.asfortranarray(values)},
        "big-endian": {"image": values.astype(">f4")},
        "a part": {"image": lx.NPDataset(np.concatenate([values, values])).select(slice(0, 8))},
        "object": Rows(),
    }
    batches = {
        name: lx.DataLoader(
            source, batch_size=8, transforms={"image": [channel_gain(amount=0.3)]}, output="numpy"
        ).batch(1)["image"]
        for name, source in sources.items()
    }
    for batch in batches.values():
        np.testing.assert_array_equal(batch, batches["array"], strict=True)
    # Nobody wrote to the rows themselves.
    np.testing.assert_array_equal(values, IMAGES[:8])


# --- fields that move together ----------------------------------------------------------------

HEIGHT, WIDTH = 12, 10
PLACES = np.stack(np.meshgrid(np.arange(HEIGHT), np.arange(WIDTH), indexing="ij"), axis=-1)


def test_a_mask_moves_with_its_image_and_stays_nearest_and_whole():
    # Every pixel says where it was: the image by interpolated numbers, the mask by the number of one pixel.
    images = np.concatenate([PLACES, PLACES[..., :1]], axis=-1).astype(np.float32)
    images = np.repeat(images[None], 32, axis=0)
    masks = np.repeat((PLACES[..., 0] * WIDTH + PLACES[..., 1])[None], 32, axis=0)
    mean, std = [1.0, 2.0, 3.0], [2.0, 4.0, 8.0]
    loader = lx.DataLoader(
        {"image": images, "mask": masks.astype(np.int16)},
        batch_size=32,
        output="numpy",
        transforms={
            ("image", "mask"): [T.RandomResizedCrop(8, scale=(0.2, 1.0)), T.RandomFlip()],
            "image": [T.Normalize(mean, std)],
        },
    )

    batch = loader.batch(0)

    assert batch["image"].shape == (32, 8, 8, 3)
    assert (batch["mask"].shape, batch["mask"].dtype) == ((32, 8, 8), np.int16)
    where = batch["image"] * np.float32(std) + np.float32(mean)
    np.testing.assert_allclose(batch["mask"] // WIDTH, where[..., 0], atol=0.501)
    np.testing.assert_allclose(batch["mask"] % WIDTH, where[..., 1], atol=0.501)
    # Both directions occur, and windows differ.
    directions = np.sign(where[:, 0, -1, 1] - where[:, 0, 0, 1])
    assert set(directions) == {-1.0, 1.0}
    assert len(np.unique(batch["mask"].reshape(32, -1), axis=0)) > 24
    # The image was interpolated: its pixels are not all whole places.
    assert np.any(np.abs(where[..., 0] - np.round(where[..., 0])) > 0.1)


def test_fields_of_different_sizes_cannot_move_together():
    data = {"image": np.zeros((4, 8, 8, 3), np.uint8), "mask": np.zeros((4, 6, 8), np.uint8)}
    with pytest.raises(lx.ArgumentError) as refusal:
        lx.DataLoader(data, transforms={("image", "mask"): [T.RandomFlip()]})
    for word in ("RandomFlip", "'image': (8, 8)", "'mask': (6, 8)"):
        assert word in str(refusal.value)


def test_mixed_fields_are_mixed_alike():
    images = np.repeat(LABELS[:, None, None, None], 3, axis=-1).astype(np.float32)
    loader = lx.DataLoader(
        {"image": images, "label": LABELS},
        batch_size=BATCH,
        output="numpy",
        transforms={"label": [T.OneHot(10)], ("image", "label"): [T.MixUp(1.0)]},
    )
    batch = loader.batch(0)
    # The image holds the number of its class, so a mix of images is the mean class of the mixed labels.
    np.testing.assert_allclose(batch["label"].sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(
        batch["image"][:, 0, 0, 0], batch["label"] @ np.arange(10), atol=1e-5
    )
    assert np.mean((batch["label"] > 0).sum(axis=1) == 2) > 0.5


def test_cut_fields_are_cut_alike():
    images = np.broadcast_to(np.float32(LABELS)[:, None, None, None], (ROWS, 8, 8, 1))
    loader = lx.DataLoader(
        {"image": images, "label": LABELS},
        batch_size=BATCH,
        output="numpy",
        transforms={"label": [T.OneHot(10)], ("image", "label"): [T.CutMix(1.0)]},
    )
    batch = loader.batch(0)
    shares = np.stack([(batch["image"] == k).mean(axis=(1, 2, 3)) for k in range(10)], axis=1)
    np.testing.assert_allclose(batch["label"], shares, atol=1e-6)
    assert np.mean((shares > 0).sum(axis=1) == 2) > 0.5


# --- a failure belongs to its step ------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 4])
def test_an_exception_in_a_compiled_transform_comes_at_its_step_and_the_state_stays_exact(workers):
    values = np.arange(24, dtype=np.float32).reshape(12, 2)
    values[7] = -1
    loader = lx.DataLoader(
        {"value": values},
        batch_size=4,
        shuffle=False,
        output="numpy",
        workers=workers,
        prefetch=3,
        transforms={"value": [refuse_negative()]},
    )
    with iter(loader) as iterator:
        np.testing.assert_array_equal(next(iterator)["value"][:, 0], values[:4, 0] + 1)
        for _ in range(2):
            with pytest.raises(ValueError, match="a negative number") as failure:
                next(iterator)
            notes = "\n".join(failure.value.__notes__)
            assert "'refuse_negative', at sample 3" in notes
            assert "step 1, rows [4, 5, 6, 7]" in notes
            state = iterator.get_state()
            assert (iterator.step, state["step"], state["position"]) == (1, 1, 4)
        iterator.set_state({**state, "step": 2, "position": 8})
        np.testing.assert_array_equal(next(iterator)["value"][:, 0], values[8:, 0] + 1)
    with pytest.raises(ValueError, match="a negative number"):
        loader.batch(1)


def test_an_exception_between_two_phases_comes_at_its_step():
    values = np.ones((8, 2), np.float32)
    values[5] = -1
    loader = lx.DataLoader(
        {"value": values},
        batch_size=4,
        shuffle=False,
        output="numpy",
        transforms={"value": [refuse_negative(), T.MixUp(1.0)]},
    )
    with iter(loader) as iterator:
        np.testing.assert_allclose(next(iterator)["value"][:, 0], 2)
        with pytest.raises(ValueError, match="a negative number"):
            next(iterator)
        assert iterator.step == 1


# --- what JAX gets ----------------------------------------------------------------------------


@lx.transform(out=lambda spec: lx.Spec(spec.shape, np.int64))
def to_the_third(x, out):
    for i in range(x.shape[0]):
        out[i] = np.int64(x[i]) ** 3


def test_64_bit_results_are_narrowed_for_jax_and_values_that_do_not_fit_are_refused():
    data = np.array([[1], [2], [1000], [10_000]], np.int32)
    options = {"batch_size": 2, "shuffle": False, "transforms": [to_the_third]}
    wide = lx.DataLoader(data, output="numpy", **options).batch(1)
    assert wide.dtype == np.int64
    assert wide.tolist() == [[10**9], [10**12]]
    loader = lx.DataLoader(data, **options)
    small = loader.batch(0)
    assert (small.dtype, small.tolist()) == (np.int32, [[1], [8]])
    with pytest.raises(lx.DataError, match="row 3, element 0"):
        loader.batch(1)
    floats = lx.DataLoader(data, **{**options, "transforms": [T.Cast("float64")]}).batch(1)
    assert (floats.dtype, floats.tolist()) == (np.float32, [[1000], [10_000]])
