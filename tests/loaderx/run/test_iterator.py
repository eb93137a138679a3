"""Iterator over the stream: order, end, errors, statistics."""

import itertools
import threading
import time
import traceback

import numpy as np
import pytest

from loaderx import ClosedError, DataLoader, LoaderxError

ROWS = 20


def loader_of(data=None, **options):
    """Return a loader of batches of four that hold the numbers of their rows: batch k begins with 4 * k."""
    defaults = {"batch_size": 4, "shuffle": False, "output": "numpy", "workers": 2}
    return DataLoader(np.arange(ROWS) if data is None else data, **(defaults | options))


def rows_of(batches):
    return [list(batch) for batch in batches]


FOUR_BY_FOUR = np.arange(ROWS).reshape(5, 4).tolist()


# Order and end.


@pytest.mark.parametrize("prefetch", [1, 2, 7])
@pytest.mark.parametrize("workers", [1, 3])
def test_batches_come_in_order_although_later_ones_may_be_ready_first(prefetch, workers):
    def dawdle(batch):
        time.sleep(0.01 if batch[0] % 8 == 0 else 0)
        return batch

    loader = loader_of(num_epochs=2, prefetch=prefetch, workers=workers, transform=dawdle)
    assert rows_of(loader) == FOUR_BY_FOUR * 2


def test_an_endless_walk_continues_epoch_after_epoch():
    with iter(loader_of(shuffle=True)) as iterator:
        for epoch in range(50):
            assert iterator.epoch == epoch
            rows = np.concatenate([next(iterator) for _ in range(5)])
            assert sorted(rows) == list(range(ROWS))
        assert iterator.step == 250


def test_a_finite_walk_ends_and_stays_at_its_end():
    loader = loader_of(num_epochs=1)
    with iter(loader) as iterator:
        assert rows_of(iterator) == FOUR_BY_FOUR
        assert iterator.step == len(loader) == 5
        for _ in range(3):
            with pytest.raises(StopIteration):
                next(iterator)
        assert iterator.step == 5


def test_a_finite_loader_can_be_walked_again():
    loader = loader_of(num_epochs=1, shuffle=True)
    first = rows_of(loader)
    with pytest.warns(UserWarning, match="iterated again"):
        assert rows_of(loader) == first


def test_who_walks_a_shuffled_finite_loader_again_is_warned_once():
    loader = loader_of(num_epochs=1, shuffle=True)
    list(loader)
    with pytest.warns(UserWarning, match=r"loader\.epoch\(e\)") as warned:
        list(loader)
    list(loader)
    assert len(warned) == 1
    assert warned[0].filename == __file__


def test_a_loop_that_was_left_counts_as_a_walk():
    loader = loader_of(num_epochs=1, shuffle=True)
    for number, _ in enumerate(loader):
        if number == 2:
            break
    with pytest.warns(UserWarning, match="iterated again"):
        next(iter(loader))


@pytest.mark.parametrize("options", [{"shuffle": False, "num_epochs": 1}, {"shuffle": True}])
def test_harmless_loops_do_not_warn(options):
    # Warnings are errors here.
    for _ in range(3):
        rows_of(itertools.islice(loader_of(**options), 4))


def test_nobody_is_warned_who_looks_at_one_batch_first_or_resumes():
    loader = loader_of(num_epochs=1, shuffle=True)
    next(iter(loader))
    with iter(loader) as iterator:
        state = iterator.get_state()
        list(iterator)
    with iter(loader) as iterator:
        iterator.set_state(state)
        list(iterator)
    list(loader.epoch(0))


remainders = pytest.mark.parametrize("remainder", ["straddle", "keep", "drop", "pad"])


def numbers_in(batches):
    """Return the rows of batches, which are padded or not."""
    return [np.asarray(batch[0] if type(batch) is tuple else batch).tolist() for batch in batches]


@remainders
@pytest.mark.parametrize("num_epochs", [None, 1, 2, 5])
@pytest.mark.parametrize("batch_size", [4, 7, 16])
def test_epochs_one_after_the_other_are_the_stream(remainder, num_epochs, batch_size):
    options = {"shuffle": True, "remainder": remainder, "batch_size": batch_size}
    loader = loader_of(num_epochs=num_epochs, **options)
    found = []
    for epoch in range(num_epochs or 3):
        found += numbers_in(loader.epoch(epoch))
    assert found == numbers_in(itertools.islice(loader, len(found)))
    assert num_epochs is None or len(found) == len(loader)


@remainders
def test_epochs_continue_after_the_last_of_a_finite_loader(remainder):
    options = {"shuffle": True, "remainder": remainder, "batch_size": 7}
    one, endless = loader_of(num_epochs=1, **options), loader_of(**options)
    epochs = [numbers_in(one.epoch(epoch)) for epoch in range(1, 6)]
    assert epochs == [numbers_in(endless.epoch(epoch)) for epoch in range(1, 6)]
    assert len({str(epoch[0]) for epoch in epochs}) == 5, "each with an order of its own"


def test_an_epoch_knows_its_steps_and_can_be_resumed():
    loader = loader_of(shuffle=True, batch_size=5, remainder="keep", num_epochs=1)
    with loader.epoch(2) as iterator:
        assert (iterator.step, iterator.epoch) == (8, 2)
        first = next(iterator)
        np.testing.assert_array_equal(
            first, loader_of(shuffle=True, batch_size=5, remainder="keep").batch(8)
        )
        state = iterator.get_state()
        rest = rows_of(iterator)
    with loader.epoch(2) as iterator:
        iterator.set_state(state)
        assert rows_of(iterator) == rest
        assert iterator.step == 12


@pytest.mark.parametrize(
    ("number", "error"), [(-1, ValueError), (1.5, ValueError), (2**62, IndexError)]
)
def test_epochs_that_do_not_exist_are_refused(number, error):
    with pytest.raises(error, match=r"number|epoch"):
        loader_of().epoch(number)


def test_a_loader_is_true_and_tells_what_it_was_made_of():
    data = np.arange(16)
    loader = DataLoader(
        data, batch_size=4, seed=7, num_epochs=3, shuffle=False, remainder="drop", prefetch=5, workers=3,
        output="numpy",
    )  # fmt: skip
    assert loader
    assert DataLoader(data), "an endless one, too"
    assert loader.dataset is data
    assert loader.labelset is None
    assert (loader.batch_size, loader.seed, loader.num_epochs) == (4, 7, 3)
    assert (loader.shuffle, loader.remainder) == (False, "drop")
    assert (loader.prefetch, loader.workers) == (5, 3)
    assert (loader.output, loader.sharding) == ("numpy", None)
    with pytest.raises(AttributeError):
        loader.seed = 8


def test_an_iterator_shows_where_it_is():
    with loader_of(batch_size=4).epoch(1) as iterator:
        next(iterator)
        assert repr(iterator) == "LoaderIterator(step=6, epoch=1)"
    assert repr(iterator) == "LoaderIterator(closed, step=6, epoch=1)"


def test_prefetching_beyond_the_end_does_no_harm():
    assert rows_of(loader_of(num_epochs=1, prefetch=100, workers=8)) == FOUR_BY_FOUR


def test_an_iterator_is_its_own_iterator():
    with iter(loader_of()) as iterator:
        assert iter(iterator) is iterator
        assert rows_of(itertools.islice(iterator, 2)) == FOUR_BY_FOUR[:2]
        assert rows_of(itertools.islice(iterator, 2)) == FOUR_BY_FOUR[2:4]


def test_no_more_than_asked_for_is_built_ahead():
    built = []
    loader = loader_of(prefetch=3, workers=2, transform=lambda batch: built.append(1) or batch)
    with iter(loader) as iterator:
        assert built == [], "nothing is built before the first batch is asked for"
        for taken in range(1, 20):
            next(iterator)
            assert len(built) <= taken + 3 + 4, "prefetch, and one for each worker"


def test_iterators_of_one_loader_are_independent():
    loader = loader_of(shuffle=True)
    expected = [loader.batch(step) for step in range(12)]
    iterators = [iter(loader) for _ in range(4)]
    # Now one is ahead, now another.
    for turn in np.random.default_rng(0).integers(0, 4, 40):
        iterator = iterators[turn]
        if iterator.step < 12:
            np.testing.assert_array_equal(next(iterator), expected[iterator.step - 1])
    assert len({iterator.step for iterator in iterators}) > 1
    for iterator in iterators:
        iterator.close()


# Closing.


def test_leaving_the_with_block_closes():
    with iter(loader_of()) as iterator:
        batch = next(iterator)
    with pytest.raises(ClosedError, match="closed"):
        next(iterator)
    with pytest.raises(ClosedError, match="closed"):
        iterator.set_state(iterator.get_state())
    assert list(batch) == FOUR_BY_FOUR[0], "batches that were handed out stay valid"
    assert issubclass(ClosedError, LoaderxError)


def test_an_exception_in_the_with_block_closes_too_and_passes():
    iterator = iter(loader_of())
    with pytest.raises(ZeroDivisionError), iterator:
        1 / next(iterator).min().item()
    with pytest.raises(ClosedError):
        next(iterator)


def test_closing_twice_is_closing_once():
    iterator = iter(loader_of())
    next(iterator)
    for _ in range(3):
        iterator.close()
    with pytest.raises(ClosedError):
        next(iterator)


def test_an_iterator_can_be_closed_before_its_first_batch_and_after_its_last():
    iter(loader_of()).close()
    iterator = iter(loader_of(num_epochs=1))
    list(iterator)
    iterator.close()
    with pytest.raises(ClosedError):
        next(iterator)


def test_a_closed_iterator_still_tells_where_it_was():
    with iter(loader_of()) as iterator:
        next(iterator)
        next(iterator)
        state = iterator.get_state()
    assert iterator.get_state() == state
    assert iterator.step == 2
    assert iterator.stats().batches == 2
    with iter(loader_of()) as other:
        other.set_state(iterator.get_state())
        assert list(next(other)) == FOUR_BY_FOUR[2]


def test_closing_one_iterator_leaves_the_others_alone():
    loader = loader_of()
    with iter(loader) as survivor:
        next(survivor)
        with iter(loader) as iterator:
            next(iterator)
        assert rows_of(itertools.islice(survivor, 4)) == FOUR_BY_FOUR[1:]


def test_a_hook_may_close_the_iterator():
    def close_at_second(batch):
        if batch[0] == 4:
            iterator.close()
        return batch

    iterator = iter(loader_of(transform=close_at_second, prefetch=1))
    with pytest.raises(ClosedError):
        list(iterator)


# Errors.


class BrokenRowError(Exception):
    pass


class Rows:
    """Source of a user; `failing` is called before every row is read, once a loader is open."""

    failing = None

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        if self.failing is not None and self.failing(row):
            raise BrokenRowError(f"row {row} is broken")
        return np.int64(row)


class Flaky:
    """Source that fails the first `times` times that the row is read."""

    def __init__(self, row, times):
        self.row = row
        self.left = times
        self.lock = threading.Lock()
        self.failed = threading.Event()

    def __call__(self, row):
        with self.lock:
            if row != self.row or self.left == 0:
                return False
            self.left -= 1
        self.failed.set()
        return True


def failing_loader(where, failing, **options):
    """Return a loader that fails in the source or in the hook for the batch with the row."""
    if where == "source":
        rows = Rows()
        loader = loader_of(rows, **options)
        rows.failing = failing
        return loader

    def hook(batch):
        for row in batch:
            if failing(row):
                raise BrokenRowError(f"row {row} is broken")
        return batch

    return loader_of(transform=hook, **options)


failures = pytest.mark.parametrize("where", ["source", "hook"])
crews = pytest.mark.parametrize(("workers", "prefetch"), [(1, 1), (1, 4), (4, 1), (4, 4)])


@failures
@crews
def test_an_error_surfaces_at_its_step_and_not_earlier(where, workers, prefetch):
    failing = Flaky(13, times=1000)
    with iter(failing_loader(where, failing, workers=workers, prefetch=prefetch)) as iterator:
        batches = [next(iterator)]
        if prefetch == 4:
            # Batch 3 has failed before batch 1 is asked for.
            assert failing.failed.wait(10)
        batches += [next(iterator), next(iterator)]
        assert rows_of(batches) == FOUR_BY_FOUR[:3]
        for _ in range(3):
            with pytest.raises(BrokenRowError, match="row 13 is broken"):
                next(iterator)
            assert iterator.step == 3
            assert iterator.get_state()["position"] == 12


@failures
@crews
@pytest.mark.parametrize("row", [0, 13, 19])
def test_after_a_transient_error_nothing_is_lost_or_repeated(where, workers, prefetch, row):
    failing = Flaky(row, times=2)
    options = {"workers": workers, "prefetch": prefetch, "num_epochs": 1}
    with iter(failing_loader(where, failing, **options)) as iterator:
        batches, errors = [], 0
        while len(batches) < 5:
            before = iterator.get_state()
            try:
                batches.append(next(iterator))
            except BrokenRowError:
                errors += 1
                assert iterator.get_state() == before
        with pytest.raises(StopIteration):
            next(iterator)
    assert rows_of(batches) == FOUR_BY_FOUR
    assert errors == 2


def test_an_error_names_the_step_and_the_rows_and_keeps_its_traceback():
    def misbehave(batch):
        if batch[0] == 8:
            raise KeyError("mean")
        return batch

    with iter(loader_of(transform=misbehave)) as iterator:
        next(iterator)
        next(iterator)
        with pytest.raises(KeyError, match="mean") as raised:
            next(iterator)
    (note,) = raised.value.__notes__
    assert "step 2" in note
    assert "[8, 9, 10, 11]" in note
    assert "misbehave" in [frame.name for frame in traceback.extract_tb(raised.tb)]


def test_an_error_of_a_large_batch_names_some_of_its_rows():
    def misbehave(batch):
        raise BrokenRowError

    loader = loader_of(range(10**6), batch_size=10**5, transform=misbehave)
    with iter(loader) as iterator, pytest.raises(BrokenRowError) as raised:
        next(iterator)
    (note,) = raised.value.__notes__
    assert "0, 1, 2" in note
    assert "100000 rows" in note
    assert len(note) < 500


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration, GeneratorExit])
def test_an_error_that_python_uses_to_end_loops_does_not_end_the_consumers(kind):
    def misbehave(batch):
        if batch[0] == 8:
            raise kind
        return batch

    # A loop that ended here would look as if the data had ended.
    with iter(loader_of(transform=misbehave)) as iterator:
        with pytest.raises((RuntimeError, kind)):
            list(iterator)
        assert iterator.step == 2


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, MemoryError])
def test_no_kind_of_exception_is_lost_in_a_thread(kind):
    def misbehave(batch):
        raise kind

    with iter(loader_of(transform=misbehave)) as iterator, pytest.raises(kind):
        next(iterator)


def test_the_same_error_reaches_whoever_asks_for_the_batch_by_its_step():
    loader = failing_loader("source", Flaky(13, times=1000))
    assert list(loader.batch(2)) == FOUR_BY_FOUR[2]
    with pytest.raises(BrokenRowError, match="row 13") as raised:
        loader.batch(3)
    assert any("step 3" in note for note in raised.value.__notes__)
    assert list(loader.batch(4)) == FOUR_BY_FOUR[4]


def test_a_row_read_in_any_part_of_a_batch_can_fail():
    for row in range(16):
        options = {"batch_size": 16, "workers": 4, "prefetch": 1}
        with iter(failing_loader("source", Flaky(row, times=1), **options)) as iterator:
            with pytest.raises(BrokenRowError, match=f"row {row} is broken"):
                next(iterator)
            assert list(next(iterator)) == list(range(16))


def test_all_parts_of_a_batch_may_fail_at_once():
    broken = True
    options = {"batch_size": 16, "workers": 4, "prefetch": 4}
    with iter(failing_loader("source", lambda row: broken, **options)) as iterator:
        with pytest.raises(BrokenRowError):
            next(iterator)
        broken = False
        assert list(next(iterator)) == list(range(16))


# Statistics.


def test_before_the_first_batch_the_statistics_are_zero():
    with iter(loader_of()) as iterator:
        stats = iterator.stats()
    assert (stats.batches, stats.bytes) == (0, 0)
    assert (stats.waiting_seconds, stats.building_seconds, stats.total_seconds) == (0, 0, 0)
    assert stats.waiting_share == 0
    assert stats.bottleneck == "unknown"


def test_the_statistics_count_what_was_taken():
    data = {"image": np.zeros((ROWS, 3, 5), np.float32), "label": np.zeros(ROWS, np.int64)}
    with iter(loader_of(data)) as iterator:
        for taken in range(1, 8):
            next(iterator)
            stats = iterator.stats()
            assert stats.batches == taken
            assert stats.bytes == taken * 4 * (3 * 5 * 4 + 8)
            assert 0 < stats.waiting_seconds <= stats.total_seconds
            assert 0 < stats.waiting_share <= 1
            assert stats.building_seconds > 0


def test_the_statistics_of_an_iterator_are_its_own_and_survive_a_restore():
    loader = loader_of()
    with iter(loader) as iterator, iter(loader) as other:
        state = iterator.get_state()
        for _ in range(3):
            next(iterator)
        iterator.set_state(state)
        next(iterator)
        assert iterator.stats().batches == 4
        assert other.stats().batches == 0


def test_building_time_is_the_time_of_the_hook():
    def dawdle(batch):
        time.sleep(0.02)
        return batch

    with iter(loader_of(transform=dawdle, workers=1)) as iterator:
        for _ in range(5):
            next(iterator)
        stats = iterator.stats()
    assert stats.building_seconds >= 5 * 0.02
    assert stats.total_seconds >= stats.waiting_seconds >= 0.02


def test_with_a_slow_hook_the_loader_is_the_bottleneck():
    def dawdle(batch):
        time.sleep(0.02)
        return batch

    with iter(loader_of(transform=dawdle, workers=1)) as iterator:
        # Until it shows: this thread may have to wait for other programs. The test's timeout is the end.
        while iterator.stats().bottleneck != "loader":
            next(iterator)
        assert iterator.stats().waiting_share > 0.1


def test_with_a_slow_consumer_the_consumer_is_the_bottleneck():
    with iter(loader_of()) as iterator:
        # Until it shows: the first batch may have cost a compilation. The test's timeout is the end.
        while iterator.stats().bottleneck != "consumer":
            next(iterator)
            time.sleep(0.02)
        assert iterator.stats().waiting_share <= 0.1
        assert iterator.stats().total_seconds > iterator.stats().waiting_seconds
