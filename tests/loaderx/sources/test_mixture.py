"""Several data sets as one: which can be mixed, the batches of a mixture, and its state."""

import itertools
import json
from fractions import Fraction

import jax
import numpy as np
import pytest

from loaderx import (
    ARDataset,
    ArgumentError,
    DataLoader,
    Mixture,
    NPDataset,
    StateError,
    transforms,
    write_array_record,
)
from loaderx.sources import AddressableSource, FieldsSource, as_source
from loaderx.stream.sampling import MixtureSampler
from tests.loaderx.sources.rows import assert_same, values

WEB, BOOKS = np.arange(1000, 1030), np.arange(2000, 2012)
ALL = np.concatenate([WEB, BOOKS])
IMAGES = values((42, 6, 5, 3), "u1")


def mixture(web=0.7, books=0.3):
    return Mixture({"web": (WEB, web), "books": (BOOKS, books)})


def loader_of(data=None, **options):
    defaults = {"batch_size": 8, "seed": 3, "output": "numpy", "workers": 2}
    return DataLoader(mixture() if data is None else data, **(defaults | options))


def taken(loader, steps=10**6):
    with iter(loader) as iterator:
        return list(itertools.islice(iterator, steps))


def sampler_of(shares=(Fraction(7, 10), Fraction(3, 10)), seed=3, shuffle=True):
    return MixtureSampler([30, 12], list(shares), seed, shuffle)


def write_records(path, rows):
    write_array_record(path, rows)
    return ARDataset(path, shape=rows.shape[1:], dtype=rows.dtype)


KINDS = {
    "arrays": lambda path, rows: rows,
    "lists": lambda path, rows: list(rows),
    "NPDataset": lambda path, rows: NPDataset(rows),
    "views": lambda path, rows: NPDataset(rows[::-1]).select(slice(None, None, -1)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_of_a_mixture_are_those_of_its_parts(kind, tmp_path):
    make = KINDS[kind]
    mixed = Mixture(
        {"a": (make(tmp_path / "a", IMAGES[:30]), 2), "b": (make(tmp_path / "b", IMAGES[30:]), 1)}
    )
    assert len(mixed) == 42
    assert mixed.spec == as_source(IMAGES).spec
    assert mixed.names == ["a", "b"]
    assert_same(mixed[:], IMAGES)
    assert_same(mixed[[41, 0, 30]], IMAGES[[41, 0, 30]])
    loader = loader_of(mixed, seed=1)
    expected = sampler_of([Fraction(2, 3), Fraction(1, 3)], seed=1).rows_at(np.arange(16, 24))
    np.testing.assert_array_equal(loader.indices(2), expected)
    assert_same(loader.batch(2), IMAGES[expected])


def test_record_files_can_be_mixed_with_one_another_and_with_arrays(tmp_path):
    one = write_records(tmp_path / "one.array_record", IMAGES[:30])
    two = write_records(tmp_path / "two.array_record", IMAGES[30:])
    for second in (two, NPDataset(IMAGES[30:])):
        loader = loader_of(Mixture({"one": (one, 1), "two": (second, 1)}))
        for step, batch in enumerate(taken(loader, 6)):
            assert_same(batch, IMAGES[loader.indices(step)])


def test_dicts_of_sources_can_be_mixed():
    labels = np.arange(42)
    mixed = Mixture(
        {
            "a": ({"image": IMAGES[:30], "label": labels[:30]}, 1),
            "b": ({"image": NPDataset(IMAGES[30:]), "label": list(labels[30:])}, 3),
        }
    )
    assert_same(mixed[5], {"image": IMAGES[5], "label": labels[5]})
    loader = loader_of(mixed)
    for step, batch in enumerate(taken(loader, 6)):
        rows = loader.indices(step)
        assert np.sum(rows >= 30) == 6
        assert_same(batch, {"image": IMAGES[rows], "label": labels[rows]})


def test_arrays_stay_on_the_compiled_path():
    assert isinstance(mixture().unwrapped, AddressableSource)
    fields = Mixture({"a": ({"x": WEB}, 1), "b": ({"x": BOOKS}, 1)}).unwrapped
    assert isinstance(fields, FieldsSource)
    assert isinstance(fields.fields["x"], AddressableSource)


def test_one_part_is_a_loader_that_shuffles():
    loader = loader_of(Mixture({"web": (WEB, 0.25)}), batch_size=30)
    first, second = taken(loader, 2)
    assert sorted(first) == sorted(second) == WEB.tolist()
    assert first.tolist() != second.tolist()


def test_a_mixture_can_have_labels():
    loader = DataLoader(mixture(), np.arange(42), batch_size=8, output="numpy")
    batch = loader.batch(4)
    np.testing.assert_array_equal(batch["data"], ALL[batch["label"]])
    assert np.sum(batch["data"] < 2000) in (5, 6)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
def test_batches_are_the_rows_at_their_positions(shuffle, workers):
    loader = loader_of(shuffle=shuffle, workers=workers)
    sampler = sampler_of(shuffle=shuffle)
    batches = taken(loader, 40)
    for step, batch in enumerate(batches):
        rows = sampler.rows_at(np.arange(step * 8, step * 8 + 8))
        np.testing.assert_array_equal(batch, ALL[rows])
        np.testing.assert_array_equal(loader.indices(step), rows)
        np.testing.assert_array_equal(loader.batch(step), batch)
        assert abs(np.sum(batch < 2000) - 5.6) <= 2


def test_without_shuffling_the_parts_come_as_they_are():
    rows = np.concatenate(taken(loader_of(shuffle=False), 20))
    web, books = rows[rows < 2000], rows[rows >= 2000]
    np.testing.assert_array_equal(web, np.resize(WEB, len(web)))
    np.testing.assert_array_equal(books, np.resize(BOOKS, len(books)))
    assert (len(web), len(books)) == (112, 48)


def test_batches_reach_jax():
    loader = loader_of(output="jax")
    for step, batch in enumerate(taken(loader, 3)):
        assert isinstance(batch, jax.Array)
        np.testing.assert_array_equal(batch, ALL[loader.indices(step)])


@pytest.mark.parametrize(
    ("remainder", "sizes"),
    [
        ("straddle", [8] * 10 + [4]),
        ("keep", [8, 8, 8, 8, 8, 2] * 2),
        ("drop", [8] * 10),
        ("pad", [8] * 12),
    ],
)
def test_an_epoch_has_as_many_samples_as_the_parts_have_rows(remainder, sizes):
    loader = loader_of(num_epochs=2, remainder=remainder)
    batches = taken(loader)
    assert len(loader) == len(sizes)
    stream = ALL[sampler_of().rows_at(np.arange(84))]
    if remainder == "pad":
        assert [len(batch) for batch, _ in batches] == sizes
        valid = [batch[mask] for batch, mask in batches]
        # Padding comes from the start of the same epoch.
        np.testing.assert_array_equal(batches[11][0][2:], stream[42:48])
    else:
        assert [len(batch) for batch in batches] == sizes
        valid = batches
    kept = np.r_[0:40, 42:82] if remainder == "drop" else np.arange(84)
    np.testing.assert_array_equal(np.concatenate(valid), stream[kept])


@pytest.mark.parametrize("step", [0, 1, 5, 6, 17])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_mixture_resumes_where_it_was(step, workers):
    batches = taken(loader_of(), 25)
    with iter(loader_of()) as iterator:
        for _ in range(step):
            next(iterator)
        state = json.loads(json.dumps(iterator.get_state()))
    with iter(loader_of(workers=workers)) as restored:
        restored.set_state(state)
        np.testing.assert_array_equal(list(itertools.islice(restored, 25 - step)), batches[step:])


def test_a_mixture_resumes_with_another_batch_size():
    stream = np.concatenate(taken(loader_of(), 30))
    with iter(loader_of()) as iterator:
        for _ in range(7):
            next(iterator)
        state = iterator.get_state()
    with iter(loader_of(batch_size=12)) as restored:
        restored.set_state(state)
        rest = np.concatenate(list(itertools.islice(restored, 12)))
    np.testing.assert_array_equal(rest, stream[56 : 56 + len(rest)])


def test_a_state_is_small_and_goes_far_out():
    with iter(loader_of()) as iterator:
        next(iterator)
        state = iterator.get_state()
        assert len(json.dumps(state)) < 400
        iterator.set_state({**state, "position": 8 * 10**15, "step": 10**15})
        np.testing.assert_array_equal(next(iterator), loader_of().batch(10**15))


def state_of(data):
    with iter(loader_of(data)) as iterator:
        next(iterator)
        return iterator.get_state()


OTHERS = {
    "weights": lambda: mixture(0.6, 0.4),
    "lengths": lambda: Mixture({"web": (WEB[:-1], 0.7), "books": (ALL[:13], 0.3)}),
    "parts": lambda: Mixture({"web": (WEB[:15], 0.7), "more": (WEB[15:], 0.1), "books": (BOOKS, 0.2)}),
    "none": lambda: ALL,
}  # fmt: skip


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("other", OTHERS)
def test_a_state_of_another_mixture_is_always_refused(other, strict):
    ours, theirs = mixture(), OTHERS[other]()
    for state, data in [(state_of(ours), theirs), (state_of(theirs), ours)]:
        with iter(loader_of(data)) as iterator:
            assert iterator.get_state()["data"] != state["data"]
            with pytest.raises(StateError, match=r"mixture 30 x 7/10.* rows would be repeated"):
                iterator.set_state(state, strict=strict)
            assert iterator.step == 0


def test_a_mixture_continues_with_another_seed_where_that_is_asked_for():
    other = loader_of(seed=4)
    with iter(other) as iterator:
        iterator.set_state(state_of(mixture()), strict=False)
        np.testing.assert_array_equal(next(iterator), other.batch(1))


def test_fields_that_bring_others_are_mixed_as_in_a_loader(tmp_path):
    write_array_record(tmp_path / "rows.ar", [np.full(n + 1, n, np.uint8) for n in range(20)])
    sounds = ARDataset(tmp_path / "rows.ar", pad_to=6)
    fields = {"sound": sounds, "label": np.arange(20)}
    mixed = Mixture({"a": (fields, 0.5), "b": ({**fields, "label": np.arange(20, 40)}, 0.5)})
    alone = DataLoader(fields, batch_size=20, output="numpy").batch(0)
    assert list(mixed.spec) == list(alone)
    batch = loader_of(mixed, batch_size=40).batch(0)
    rows = batch["label"] % 20
    assert_same(batch["sound"], sounds[rows]["data"])
    np.testing.assert_array_equal(batch["length"], np.minimum(rows + 1, 6))
    assert sorted(np.bincount(batch["label"] // 20)) == [20, 20]


def test_a_state_of_the_same_proportions_in_other_words_is_accepted():
    with iter(loader_of(mixture(0.7, 0.3))) as iterator:
        next(iterator)
        state = iterator.get_state()
    for weights in [(7, 3), (Fraction(7, 10), Fraction(3, 10)), (1.4, 0.6), (np.float64(7), 3)]:
        with iter(loader_of(mixture(*weights))) as same:
            same.set_state(state)
            np.testing.assert_array_equal(next(same), loader_of().batch(1))


def test_a_state_of_parts_of_other_lengths_is_refused():
    parts = {"web": (ALL[:20], 0.7), "books": (ALL[20:], 0.3)}
    with iter(loader_of()) as iterator:
        state = iterator.get_state()
    with iter(loader_of(Mixture(parts))) as other, pytest.raises(StateError, match="mixture 20 x"):
        other.set_state(state)


def test_transforms_are_compiled_on_a_mixture():
    mixed = Mixture(
        {"a": ({"image": IMAGES[:30]}, 0.7), "b": ({"image": IMAGES[30:]}, 0.3)},
    )
    ops = {"image": [transforms.RandomFlip(), transforms.ToFloat()]}
    loader = loader_of(mixed, transforms=ops)
    turned = []
    for step, batch in enumerate(taken(loader, 8)):
        expected = IMAGES[loader.indices(step)].astype(np.float32) / 255
        for sample, image in zip(batch["image"], expected, strict=True):
            turned.append(not np.allclose(sample, image))
            np.testing.assert_allclose(sample, image[:, ::-1] if turned[-1] else image, rtol=1e-6)
    assert 10 < sum(turned) < 54
    assert "python" not in loader.explain().lower()


# Invalid arguments.


@pytest.mark.parametrize("parts", [None, {}, [], [("a", WEB, 1.0)], WEB, "a"])
def test_parts_that_are_not_a_dict_are_refused(parts):
    with pytest.raises(ArgumentError, match=r"(?s)`parts` \(=.*\) must be a dict from a name to"):
        Mixture(parts)


@pytest.mark.parametrize("part", [WEB, (WEB,), (WEB, 1, 2), [WEB, 1], None])
def test_a_part_that_is_not_a_pair_is_refused(part):
    with pytest.raises(ArgumentError, match=r"`parts\['web'\]` must be \(data set, weight\)"):
        Mixture({"books": (BOOKS, 1), "web": part})


@pytest.mark.parametrize(
    "weight", [0, -1, 0.0, -0.5, float("nan"), float("inf"), True, "1", None, 1j, [1]]
)
def test_a_weight_that_is_not_a_number_above_zero_is_refused(weight):
    with pytest.raises(
        ArgumentError,
        match=r"`parts\['web'\]` has the weight .*; it must be a finite number above 0",
    ) as caught:
        mixture(web=weight)
    assert repr(weight) in str(caught.value)


@pytest.mark.parametrize("number", [np.int64(7), np.int32(7), np.float32(7), np.float64(7)])
def test_a_weight_may_be_a_number_of_numpy(number):
    assert mixture(number, 3).shares == mixture(7, 3).shares


def test_a_weight_means_the_decimal_that_was_written():
    assert mixture(0.7, 0.3).shares == [Fraction(7, 10), Fraction(3, 10)]
    assert mixture(1e-7, 1).shares[0] == Fraction(1, 10**7 + 1)


@pytest.mark.parametrize(
    "other", [values((4, 2), "f4"), values((4, 3), "f8"), {"x": values((4, 3), "f4")}]
)
def test_parts_with_rows_that_differ_are_refused(other):
    with pytest.raises(ArgumentError, match=r"source 0 has rows of float32\[3\], source 1 of "):
        Mixture({"a": (values((4, 3), "f4"), 1), "b": (other, 1)})


def test_dicts_with_other_fields_are_refused():
    with pytest.raises(
        ArgumentError, match=r"source 0 has rows of {x: int64\[\]}, source 1 of {y: "
    ):
        Mixture({"a": ({"x": WEB}, 1), "b": ({"y": BOOKS}, 1)})


def test_a_dict_of_columns_of_other_lengths_is_refused():
    with pytest.raises(ArgumentError, match="all fields must have the same number of rows"):
        Mixture({"a": ({"x": WEB, "y": BOOKS}, 1)})


def test_a_path_is_not_a_data_set():
    with pytest.raises(TypeError, match=r"'web\.npy' is a path; open it with"):
        Mixture({"web": ("web.npy", 1)})


def test_weights_of_rows_do_not_go_with_a_mixture():
    with pytest.raises(ArgumentError, match="`weights` and a Mixture do not go together"):
        loader_of(weights=np.ones(42))


# Proportions must not be dropped silently.
INSIDE = {
    "a dict": lambda: DataLoader({"x": mixture()}),
    "a tuple": lambda: DataLoader((mixture(), np.arange(42))),
    "labels": lambda: DataLoader(np.arange(42), mixture()),
    "a mixture": lambda: Mixture({"both": (mixture(), 1), "more": (WEB, 1)}),
    "a dict in a mixture": lambda: Mixture({"both": ({"x": mixture()}, 1)}),
}


@pytest.mark.parametrize("where", INSIDE)
def test_a_mixture_inside_of_something_else_is_refused(where):
    with pytest.raises(ArgumentError, match="Mixture"):
        INSIDE[where]()
