"""A state says exactly what was consumed, and an iterator restored from it goes on exactly there."""

import itertools
import json
import threading

import numpy as np
import pytest

from loaderx import DataLoader, LoaderxError, StateError

pytestmark = pytest.mark.timeout(20)

ROWS = 11
STEPS = 9  # three epochs of 11 rows in batches of 4, and so the end of every finite stream here

streams = pytest.mark.parametrize(
    ("shuffle", "num_epochs", "remainder"),
    list(itertools.product([False, True], [None, 2], ["straddle", "keep", "drop", "pad"])),
)


def loader_of(rows=ROWS, **options):
    """Batches that hold the numbers of their rows."""
    defaults = {"batch_size": 4, "seed": 3, "output": "numpy", "workers": 2}
    return DataLoader(np.arange(rows), **(defaults | options))


def walk(iterator, steps=STEPS):
    """The state before every batch and the batch, and at last the state after them."""
    states, batches = [iterator.get_state()], []
    for batch in itertools.islice(iterator, steps):
        batches.append(batch)
        states.append(iterator.get_state())
    return states, batches


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
def test_a_fresh_iterator_goes_on_from_the_state_of_any_step(shuffle, num_epochs, remainder):
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


GOOD = {"version": 1, "position": 4, "step": 1, "rows": 11, "seed": 3, "shuffle": True}


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
        GOOD | {"version": 2},
        GOOD | {"version": None},
        GOOD | {"rows": "11"},
        GOOD | {"position": -1},
        GOOD | {"position": "4"},
        GOOD | {"position": 4.0},
        GOOD | {"position": None},
        GOOD | {"step": -1},
        GOOD | {"step": [1]},
    ],
    ids=repr,
)
def test_what_is_not_a_state_is_refused_by_name_and_changes_nothing(state):
    loader = loader_of()
    with iter(loader) as iterator:
        batches = [next(iterator)]
        with pytest.raises((LoaderxError, TypeError), match=r"state|position|step"):
            iterator.set_state(state)
        batches.append(next(iterator))
    assert_same(batches, [loader.batch(0), loader.batch(1)])


@pytest.mark.parametrize("remainder", ["straddle", "keep"])
@pytest.mark.parametrize("batch_size", [1, 3, 5, 25])
def test_another_batch_size_goes_on_at_the_exact_sample(remainder, batch_size):
    options = {"num_epochs": 3, "remainder": remainder}
    before = loader_of(**options)
    with iter(before) as iterator:
        states, batches = walk(iterator)
    stream = np.concatenate(batches)
    assert len(stream) == 3 * ROWS

    for state in states:
        with iter(loader_of(batch_size=batch_size, **options)) as restored:
            restored.set_state(state)
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
        {"num_epochs": 5, "remainder": "straddle"},
    ],
    ids=lambda options: "-".join(options),
)
def test_a_state_can_move_between_loaders_that_differ_in_what_is_no_part_of_the_stream(options):
    plain, other = loader_of(), loader_of(**options)
    with iter(plain) as iterator:
        states, batches = walk(iterator)
    for step in (0, 1, 3, 7):
        with iter(other) as iterator:
            iterator.set_state(states[step])
            np.testing.assert_array_equal(next(iterator), batches[step])
            state = iterator.get_state()
        with iter(plain) as iterator:
            iterator.set_state(state)
            np.testing.assert_array_equal(next(iterator), batches[step + 1])
