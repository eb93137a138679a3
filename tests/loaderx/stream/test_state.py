"""State: exactly what was consumed, so that a restored iterator resumes at exactly that sample."""

import collections
import itertools
import json
import re
import threading
import time
import warnings

import numpy as np
import pytest

from loaderx import DataLoader, LoaderxError, StateError
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.stream.state import StreamState

ROWS = 11
STEPS = 9  # three epochs of 11 rows in batches of 4, and so the end of every finite stream here

streams = pytest.mark.parametrize(
    ("shuffle", "num_epochs", "remainder"),
    list(itertools.product([False, True], [None, 2], ["straddle", "keep", "drop", "pad"])),
)


def loader_of(rows=ROWS, **options):
    """Return batches that hold the numbers of their rows."""
    defaults = {"batch_size": 4, "seed": 3, "output": "numpy", "workers": 2}
    return DataLoader(np.arange(rows), **(defaults | options))


def walk(iterator, steps=STEPS):
    """Return the state before every batch and the batch, and at last the state after them."""
    states, batches = [iterator.get_state()], []
    for batch in itertools.islice(iterator, steps):
        batches.append(batch)
        states.append(iterator.get_state())
    return states, batches


def set_quietly(iterator, state):
    """Restore a state whose position may be inside a batch."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the state is at sample", UserWarning)
        iterator.set_state(state)


def assert_same(batches, expected):
    assert len(batches) == len(expected)
    for batch, other in zip(batches, expected, strict=True):
        # Only "pad" gives tuples here: the rows and the mask.
        pairs = zip(batch, other, strict=True) if isinstance(batch, tuple) else [(batch, other)]
        for array, twin in pairs:
            np.testing.assert_array_equal(array, twin, strict=True)


def test_the_comparison_of_this_file_sees_a_batch_of_another_step_and_a_missing_one():
    _, batches = walk(iter(loader_of()))
    with pytest.raises(AssertionError):
        assert_same(batches[1:], batches[:-1])
    with pytest.raises(AssertionError):
        assert_same(batches[1:], batches)


@streams
def test_a_fresh_iterator_resumes_from_the_state_of_any_step(shuffle, num_epochs, remainder):
    loader = loader_of(shuffle=shuffle, num_epochs=num_epochs, remainder=remainder)
    with iter(loader) as original:
        states, batches = walk(original)
    assert len(batches) == (STEPS if num_epochs is None else len(loader))

    for step, state in enumerate(states):
        with iter(loader) as restored:
            restored.set_state(json.loads(json.dumps(state)))
            assert restored.get_state() == state
            assert restored.step == step
            states_after, batches_after = walk(restored, STEPS - step)
        assert states_after == states[step:]
        assert_same(batches_after, batches[step:])


@streams
def test_one_iterator_jumps_from_any_step_to_any_other(shuffle, num_epochs, remainder):
    loader = loader_of(shuffle=shuffle, num_epochs=num_epochs, remainder=remainder)
    with iter(loader) as iterator:
        states, batches = walk(iterator)
        for start, target in itertools.product(range(len(batches)), repeat=2):
            iterator.set_state(states[start])
            assert_same([next(iterator)], batches[start : start + 1])
            iterator.set_state(states[target])
            assert iterator.get_state() == states[target]
            assert_same([next(iterator)], batches[target : target + 1])
            assert iterator.get_state() == states[target + 1]


@pytest.mark.parametrize("remainder", ["straddle", "keep", "drop", "pad"])
def test_after_the_end_the_state_is_the_end(remainder):
    loader = loader_of(num_epochs=2, remainder=remainder)
    with iter(loader) as iterator:
        states, _ = walk(iterator)
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(iterator)
        assert iterator.get_state() == states[-1]
    assert states[-1]["step"] == len(loader)

    with iter(loader) as restored:
        restored.set_state(states[-1])
        with pytest.raises(StopIteration):
            next(restored)
        # Not the end for good: an earlier state brings the iterator back to life.
        restored.set_state(states[0])
        assert_same([next(restored)], [loader.batch(0)])


def test_after_an_error_the_state_is_that_of_the_failed_batch():
    def refuse(batch):
        if broken and 8 in batch:
            raise OSError("no such row")
        return batch

    broken = True
    loader = loader_of(shuffle=False, transform=refuse, prefetch=4)
    with iter(loader) as iterator:
        states, batches = walk(iterator, 2)
        assert_same(batches, [np.arange(0, 4), np.arange(4, 8)])
        for _ in range(2):
            with pytest.raises(OSError, match="no such row"):
                next(iterator)
            assert iterator.get_state() == states[2]

    broken = False
    with iter(loader) as restored:
        restored.set_state(states[2])
        np.testing.assert_array_equal(next(restored), [8, 9, 10, 0])


def test_the_state_says_what_was_consumed_and_not_what_was_prefetched():
    built = threading.Semaphore(0)

    def count(batch):
        built.release()
        return batch

    loader = loader_of(transform=count, prefetch=4)
    with iter(loader) as iterator:
        assert iterator.get_state()["position"] == iterator.get_state()["step"] == 0
        next(iterator)
        for _ in range(1 + 4):  # the one that was taken, and all that may be kept ready
            built.acquire()
        state = iterator.get_state()
        assert (state["position"], state["step"]) == (4, 1)

    with iter(loader) as restored:
        restored.set_state(state)
        assert_same([next(restored)], [loader.batch(1)])


def test_a_restore_alone_changes_nothing_that_is_saved_next():
    loader = loader_of()
    with iter(loader) as iterator:
        states, _ = walk(iterator)
    state = states[5]
    for _ in range(3):
        with iter(loader) as iterator:
            iterator.set_state(state)
            state = iterator.get_state()
    assert state == states[5]


def test_a_state_is_a_copy():
    with iter(loader_of()) as iterator:
        next(iterator)
        state = iterator.get_state()
        before = dict(state)
        iterator.get_state().clear()
        next(iterator)
        assert state == before
        assert iterator.get_state()["step"] == 2


def test_a_state_is_json_under_1_kb_also_where_all_numbers_are_large():
    loader = DataLoader(range(10**18), seed=2**64 - 1, batch_size=4, output="numpy")
    with iter(loader) as iterator:
        state = iterator.get_state() | {"position": 8 * 10**18, "step": 2 * 10**18}
        iterator.set_state(state)
        rows = next(iterator)
        text = json.dumps(iterator.get_state())
    np.testing.assert_array_equal(rows, loader.batch(2 * 10**18))
    assert len(text.encode()) < 1024
    assert json.loads(text) == state | {"position": 8 * 10**18 + 4, "step": 2 * 10**18 + 1}


def test_numpy_arguments_give_a_json_state_too():
    options = {"seed": np.uint64(7), "shuffle": np.True_, "batch_size": np.int32(4)}
    with iter(loader_of(**options)) as iterator:
        next(iterator)
        state = iterator.get_state()
    assert json.loads(json.dumps(state)) == state


@pytest.mark.parametrize(
    ("name", "own", "other"),
    [("rows", 11, 12), ("seed", 3, 4), ("shuffle", True, False)],
)
def test_a_state_of_another_stream_is_refused_and_both_values_are_named(name, own, other):
    with iter(loader_of(**{name: other})) as iterator:
        next(iterator)
        foreign = iterator.get_state()

    with iter(loader_of(**{name: own})) as iterator:
        batches = [next(iterator)]
        before = iterator.get_state()
        with pytest.raises(StateError, match=rf"\b{name}\b.*\b{other}\b.*\b{own}\b"):
            iterator.set_state(foreign)
        assert iterator.get_state() == before
        batches.append(next(iterator))
    assert_same(batches, [loader_of(**{name: own}).batch(step) for step in range(2)])


GOOD = {
    "version": 3,
    "position": 4,
    "step": 1,
    "rows": 11,
    "seed": 3,
    "shuffle": True,
    "data": "data: int64[]",
    "decoder": None,
}


def arrays(rows=ROWS, **fields):
    """Return fields by name, from the shape and dtype of their rows."""
    return {name: np.zeros((rows, *shape), dtype) for name, (shape, dtype) in fields.items()}


@pytest.mark.parametrize(
    ("own", "other", "own_words", "other_words"),
    [
        (arrays(x=((2,), "f4")), arrays(y=((2,), "f4")), "x: float32[2]", "y: float32[2]"),
        (arrays(x=((2,), "f4")), arrays(x=((2,), "i4")), "x: float32[2]", "x: int32[2]"),
        (arrays(x=((2,), "f4")), arrays(x=((3,), "f4")), "x: float32[2]", "x: float32[3]"),
        (arrays(x=((), "u1")), arrays(x=((), "u1"), y=((), "u1")), "'x: uint8[]'", ", y: uint8[]"),
        (arrays(x=((), "u1")), arrays(12, x=((), "u1")), "11", "12"),
        (arrays(x=((), "u1")), arrays(x=((), "u1"))["x"], "x: uint8[]", "data: uint8[]"),
    ],
    ids=["name", "dtype", "shape", "one-more-field", "length", "structure"],
)
def test_a_state_of_other_data_is_refused_and_both_are_named(own, other, own_words, other_words):
    with iter(DataLoader(other, batch_size=4)) as iterator:
        next(iterator)
        foreign = iterator.get_state()

    with iter(DataLoader(own, batch_size=4)) as iterator:
        before = iterator.get_state()
        with pytest.raises(StateError) as refused:
            iterator.set_state(foreign)
        assert iterator.get_state() == before
    theirs, ours = str(refused.value).split("this loader's is")
    assert other_words in theirs
    assert own_words in ours
    assert "strict=False" in ours


@pytest.mark.parametrize(
    "options",
    [{"rows": 12}, {"seed": 4}, {"shuffle": False}, {"rows": 7, "seed": 5, "shuffle": False}],
    ids=lambda options: "-".join(options),
)
def test_strict_false_resumes_in_another_stream_at_the_same_position(options):
    with iter(loader_of()) as iterator:
        states, _ = walk(iterator)
    other = loader_of(**options)
    for step in (1, 5):
        with iter(other) as iterator:
            with pytest.raises(StateError):
                iterator.set_state(states[step])
            iterator.set_state(states[step], strict=False)
            assert_same([next(iterator)], [other.batch(step)])
            # From here on it is a state of the other stream.
            state = iterator.get_state()
        with iter(other) as iterator:
            iterator.set_state(state)
            assert_same([next(iterator)], [other.batch(step + 1)])


def test_strict_false_resumes_with_other_fields():
    with iter(DataLoader(arrays(x=((2,), "f4")), batch_size=4, seed=1)) as iterator:
        next(iterator)
        state = iterator.get_state()
    rows = {"x": np.arange(ROWS), "y": np.ones(ROWS)}
    other = DataLoader(rows, batch_size=4, seed=1, output="numpy")
    with iter(other) as iterator:
        iterator.set_state(state, strict=False)
        np.testing.assert_array_equal(next(iterator)["x"], other.indices(1))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("version", [0, 4, "3", None, [1]])
def test_a_state_of_another_version_is_refused_also_when_not_strict(version, strict):
    with iter(loader_of()) as iterator:
        with pytest.raises(
            StateError, match=re.escape(f"version is {version!r}, this loader's is 3")
        ):
            iterator.set_state(GOOD | {"version": version}, strict=strict)
        assert iterator.step == 0


# Before encoded images had a decoder, and before the data was described.
SECOND = {name: value for name, value in GOOD.items() if name != "decoder"} | {"version": 2}
FIRST = {name: value for name, value in SECOND.items() if name != "data"} | {"version": 1}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("old", [FIRST, SECOND])
def test_a_state_of_an_older_version_is_migrated(old, strict):
    with iter(loader_of()) as iterator:
        iterator.set_state(old, strict=strict)
        assert_same([next(iterator)], [loader_of().batch(1)])
        # From now on the data is described.
        assert iterator.get_state() == GOOD | {"position": 8, "step": 2}


@pytest.mark.parametrize("change", [{"rows": 10}, {"seed": 5}, {"shuffle": None}, {"data": "x"}])
@pytest.mark.parametrize("old", [FIRST, SECOND])
def test_a_state_of_an_older_version_is_refused_where_it_is_of_another_stream(old, change):
    with iter(loader_of()) as iterator:
        with pytest.raises(StateError):
            iterator.set_state(old | change)
        assert iterator.step == 0


def test_a_state_becomes_a_dict_and_a_state_again():
    state = StreamState.from_dict(GOOD)
    assert state.to_dict() == GOOD
    assert list(state.to_dict()) == list(GOOD)
    assert StreamState.from_dict(json.loads(json.dumps(state.to_dict()))) == state


def test_strict_false_does_not_accept_values_that_are_not_states():
    with iter(loader_of()) as iterator:
        for state in ({}, GOOD | {"position": -1}, GOOD | {"step": 1.0}):
            with pytest.raises(StateError):
                iterator.set_state(state, strict=False)
        assert_same([next(iterator)], [loader_of().batch(0)])


def test_a_position_beyond_the_stream_is_refused_when_it_is_set():
    with iter(loader_of()) as iterator:
        for position in (2**63 - 2, 2**63, 2**70):
            with pytest.raises(StateError, match=str(position)):
                iterator.set_state(GOOD | {"position": position})
        assert_same([next(iterator)], [loader_of().batch(0)])


@pytest.mark.parametrize(
    "options", [{}, {"shuffle": True}, {"remainder": "pad"}, {"remainder": "drop"}]
)
def test_a_stream_ends_before_its_positions_do(options):
    loader = loader_of(**options)
    with iter(loader) as iterator:
        state = iterator.get_state() | {"step": 5}
        accepted = 0
        for position in range(2**63 - 3 * ROWS, 2**63):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of positions inside of a batch
                try:
                    iterator.set_state(state | {"position": position})
                except StateError:
                    continue
            accepted += 1
            with pytest.raises(
                OverflowError, match=r"at sample \d+, and ends before its 2\*\*63rd"
            ):
                collections.deque(iterator, maxlen=0)
            assert iterator.get_state()["position"] < 2**63
        assert accepted


def test_the_state_that_the_next_test_breaks_is_good():
    with iter(loader_of()) as iterator:
        assert iterator.get_state().keys() == GOOD.keys()
        iterator.set_state(GOOD)
        assert_same([next(iterator)], [loader_of().batch(1)])


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        [],
        "{}",
        7,
        list(GOOD.items()),
        json.dumps(GOOD),
        {name: value for name, value in GOOD.items() if name != "position"},
        GOOD | {"extra": 1},
        GOOD | {"version": 1},
        GOOD | {"version": None},
        GOOD | {"data": None},
        GOOD | {"data": "data: int32[]"},
        GOOD | {"rows": "11"},
        GOOD | {"position": -1},
        GOOD | {"position": "4"},
        GOOD | {"position": 4.0},
        GOOD | {"position": None},
        GOOD | {"position": True},
        GOOD | {"step": -1},
        GOOD | {"step": [1]},
    ],
    ids=repr,
)
def test_values_that_are_not_states_are_refused_by_name_and_change_nothing(state):
    loader = loader_of()
    with iter(loader) as iterator:
        batches = [next(iterator)]
        with pytest.raises((LoaderxError, TypeError), match=r"state|position|step"):
            iterator.set_state(state)
        batches.append(next(iterator))
    assert_same(batches, [loader.batch(0), loader.batch(1)])


@pytest.mark.parametrize("remainder", ["straddle", "keep"])
@pytest.mark.parametrize("batch_size", [1, 3, 5, 25])
def test_another_batch_size_resumes_at_the_exact_sample(remainder, batch_size):
    options = {"num_epochs": 3, "remainder": remainder}
    before = loader_of(**options)
    with iter(before) as iterator:
        states, batches = walk(iterator)
    stream = np.concatenate(batches)
    assert len(stream) == 3 * ROWS

    for state in states:
        with iter(loader_of(batch_size=batch_size, **options)) as restored:
            set_quietly(restored, state)
            rest = [np.empty(0, np.int64), *restored]
            assert restored.step == state["step"] + len(rest) - 1
        np.testing.assert_array_equal(np.concatenate(rest), stream[state["position"] :])


def test_another_batch_size_in_an_endless_stream_skips_and_repeats_nothing():
    with iter(loader_of(batch_size=4)) as iterator:
        head = [next(iterator) for _ in range(4)]
        state = iterator.get_state()
    with iter(loader_of(batch_size=7)) as iterator:
        iterator.set_state(state)
        middle = [next(iterator) for _ in range(2)]
        state = iterator.get_state()
    with iter(loader_of(batch_size=2)) as iterator:
        iterator.set_state(state)
        tail = [next(iterator) for _ in range(7)]

    stream = np.concatenate(head + middle + tail)
    assert len(stream) == 4 * ROWS
    for epoch in stream.reshape(4, ROWS):
        assert sorted(epoch) == list(range(ROWS))
    with iter(loader_of(batch_size=ROWS)) as iterator:
        np.testing.assert_array_equal(stream, np.concatenate([next(iterator) for _ in range(4)]))


@pytest.mark.parametrize(
    "options",
    [
        {"prefetch": 1, "workers": 1},
        {"prefetch": 4, "workers": 1},
        {"prefetch": 1, "workers": 4},
        {"prefetch": 16, "workers": 4},
        {"output": "jax"},
        {"transform": lambda batch: batch},
        {"transforms": [T.Cast(np.int32)]},
        {"num_epochs": 5, "remainder": "straddle"},
    ],
    ids=lambda options: "-".join(options),
)
def test_a_state_can_move_between_loaders_that_differ_outside_of_the_stream(options):
    plain, other = loader_of(), loader_of(**options)
    with iter(plain) as iterator:
        states, batches = walk(iterator)
    for step in (0, 1, 3, 7):
        with iter(other) as iterator:
            iterator.set_state(states[step])
            np.testing.assert_array_equal(next(iterator), batches[step])
            state = iterator.get_state()
        assert state == states[step + 1]
        with iter(plain) as iterator:
            iterator.set_state(state)
            np.testing.assert_array_equal(next(iterator), batches[step + 1])


def test_after_as_many_samples_the_state_is_the_same_for_every_batch_size():
    states = []
    for batch_size, steps in [(64, 3), (96, 2), (192, 1), (1, 192)]:
        with iter(loader_of(1000, batch_size=batch_size)) as iterator:
            _, batches = walk(iterator, steps)
            state = iterator.get_state()
        assert len(batches) == state.pop("step") == steps
        states.append(state)
    assert states[0]["position"] == 192
    assert states == states[:1] * 4


@pytest.mark.parametrize("steps", [0, 1, 5, 15, 16, 31], ids="after {}".format)
def test_from_batch_64_to_96_and_back_each_sample_comes_exactly_once(steps):
    rows = 1000  # 64 and 96 do not divide it: batches go over the ends of epochs
    order = np.concatenate([loader_of(rows, batch_size=rows).batch(epoch) for epoch in range(4)])
    with iter(loader_of(rows, batch_size=64)) as iterator:
        head = walk(iterator, steps)[1]
        state = iterator.get_state()
    with iter(loader_of(rows, batch_size=96)) as iterator:
        iterator.set_state(state)
        middle = walk(iterator, 3)[1]
        state = iterator.get_state()
    assert state["step"] == steps + 3
    with iter(loader_of(rows, batch_size=64)) as iterator:
        iterator.set_state(state)
        tail = walk(iterator, 20)[1]
    assert {len(batch) for batch in middle} == {96}

    stream = np.concatenate(head + middle + tail)
    assert len(stream) == 64 * steps + 96 * 3 + 64 * 20
    np.testing.assert_array_equal(stream, order[: len(stream)])
    for epoch in range(len(stream) // rows):
        assert sorted(stream[epoch * rows : (epoch + 1) * rows]) == list(range(rows))


@pytest.mark.parametrize("remainder", ["keep", "pad"])
def test_where_the_remainder_rounds_each_sample_still_comes_exactly_once(remainder):
    rows = 1000
    options = {"num_epochs": 2, "remainder": remainder}

    def valid(batches):
        return [batch[0][batch[1]] if remainder == "pad" else batch for batch in batches]

    with iter(loader_of(rows, batch_size=64, **options)) as iterator:
        head = valid(walk(iterator, 5)[1])
        state = iterator.get_state()
    with iter(loader_of(rows, batch_size=96, **options)) as iterator:
        with pytest.warns(UserWarning, match=rf"sample 320\b.*\b32\b.*\b96\b.*'{remainder}'"):
            iterator.set_state(state)
        rest = valid(iterator)
    # 680 samples are left of the first epoch; the second one is divided as ever.
    assert [len(batch) for batch in rest] == [96] * 7 + [8] + [96] * 10 + [40]
    stream = np.concatenate(head + rest)
    order = np.concatenate([loader_of(rows, batch_size=rows).batch(epoch) for epoch in range(2)])
    np.testing.assert_array_equal(stream, order)


def test_drop_leaves_out_the_end_of_the_epoch_as_seen_from_the_restored_sample_and_says_so():
    options = {"num_epochs": 2, "remainder": "drop", "shuffle": False}
    with iter(loader_of(10, batch_size=4, **options)) as iterator:
        next(iterator)
        state = iterator.get_state()
    with iter(loader_of(10, batch_size=5, **options)) as iterator:
        with pytest.warns(UserWarning, match="the state is at sample 4") as caught:
            iterator.set_state(state)
        rest = list(iterator)
    assert_same(rest, [np.arange(4, 9), np.arange(0, 5), np.arange(5, 10)])
    # Row 9 is left out, as it is not with batches of 5 from the start.
    (warning,) = caught
    assert "No sample is left out" not in str(warning.message)


@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
def test_a_position_inside_a_batch_warns_and_one_between_batches_does_not(remainder):
    options = {"remainder": remainder, "num_epochs": 3}
    # Batches of 64 in an epoch of 1000 rows; those of 96 begin at 0, 96, 192, ... of each epoch.
    with iter(loader_of(1000, batch_size=64, **options)) as iterator:
        states, _ = walk(iterator, 20)
    assert 1000 in [state["position"] for state in states]
    for state in states:
        position = state["position"]
        with iter(loader_of(1000, batch_size=96, **options)) as iterator:
            if position % 1000 % 96 == 0:
                iterator.set_state(state)
            else:
                with pytest.warns(UserWarning, match=rf"at sample {position}\b") as caught:
                    iterator.set_state(state)
                # The line that called `set_state` is the one that is shown.
                assert [warning.filename for warning in caught] == [__file__]
            assert iterator.get_state() == state


def test_a_warning_that_is_made_an_error_leaves_the_iterator_where_it_was():
    options = {"remainder": "keep", "num_epochs": 3}
    with iter(loader_of(batch_size=3, **options)) as iterator:
        with pytest.raises(UserWarning, match="the state is at sample 4"):
            iterator.set_state(GOOD)
        assert_same([next(iterator)], [loader_of(batch_size=3, **options).batch(0)])


def images_of(flip, **options):
    images = np.arange(40 * 4 * 4 * 3, dtype=np.float32).reshape(40, 4, 4, 3)
    defaults = {"batch_size": 8, "seed": 3, "output": "numpy"}
    return DataLoader(
        {"image": images, "row": np.arange(40)},
        transforms={"image": [T.RandomFlip(flip)]},
        **(defaults | options),
    )


def test_the_augmentation_of_a_sample_is_the_same_after_another_batch_size():
    whole = images_of(0.5, batch_size=40).batch(0)["image"]
    with iter(images_of(0.5)) as iterator:
        next(iterator)
        state = iterator.get_state()
    with iter(images_of(0.5, batch_size=12)) as iterator:
        iterator.set_state(state)
        np.testing.assert_array_equal(next(iterator)["image"], whole[8:20])


def test_other_parameters_of_a_transform_are_allowed_and_take_effect_from_there_on():
    with iter(images_of(0.0)) as iterator:
        next(iterator)
        state = iterator.get_state()
        plain = next(iterator)
    flipping = images_of(1.0)
    with iter(flipping) as iterator:
        iterator.set_state(state)
        flipped = next(iterator)
    np.testing.assert_array_equal(flipped["row"], plain["row"])
    np.testing.assert_array_equal(flipped["image"], plain["image"][:, :, ::-1])


def test_a_state_goes_through_a_json_file(tmp_path):
    file = tmp_path / "iterator.json"
    loader = loader_of()
    with iter(loader) as iterator:
        _, batches = walk(iterator, 3)
        file.write_text(json.dumps(iterator.get_state()))
        batches += walk(iterator, 3)[1]
    with iter(loader_of()) as iterator:
        iterator.set_state(json.loads(file.read_text()))
        assert iterator.step == 3
        assert_same(walk(iterator, 3)[1], batches[3:])


@pytest.mark.parametrize("remainder", ["straddle", "keep", "drop", "pad"])
def test_step_1000000000_is_reached_at_once_and_exactly(remainder):
    step = 10**9
    loader = loader_of(1_000_003, batch_size=96, remainder=remainder)
    steps_per_epoch = 1_000_003 // 96 + (remainder != "drop")
    epoch, step_in_epoch = divmod(step, steps_per_epoch)
    position = step * 96 if remainder == "straddle" else epoch * 1_000_003 + step_in_epoch * 96
    with iter(loader) as iterator:
        next(iterator)
        state = iterator.get_state() | {"position": position, "step": step}
        began = time.perf_counter()
        iterator.set_state(state)
        batch = next(iterator)
        seconds = time.perf_counter() - began
        assert_same([batch, next(iterator)], [loader.batch(step), loader.batch(step + 1)])
        assert iterator.get_state()["step"] == step + 2
    assert seconds < 60, "to walk there takes hours"
