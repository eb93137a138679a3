"""Orbax checkpoints: an iterator is an item like a Flax model, and all items of a step are saved together."""

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx

from loaderx import ClosedError, DataLoader, StateError
from loaderx.checkpoint import IteratorRestore, IteratorSave
from loaderx.run.iterator import LoaderIterator
from tests.waiting import PATIENCE

ROWS = 50


def loader_of(rows=ROWS, **options):
    inputs = np.random.default_rng(0).normal(size=(rows, 8)).astype(np.float32)
    fields = {"x": inputs, "y": inputs.sum(axis=1, keepdims=True)}
    return DataLoader(fields, **({"batch_size": 16, "seed": 1, "workers": 2} | options))


def rows_of(rows=ROWS, **options):
    """Return batches that hold the numbers of their rows."""
    defaults = {"batch_size": 4, "seed": 1, "workers": 2, "output": "numpy"}
    return DataLoader(np.arange(rows), **(defaults | options))


def fresh():
    model = nnx.Linear(8, 1, rngs=nnx.Rngs(0))
    return model, nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)


@nnx.jit
def train_step(model, optimizer, batch):
    def loss(model):
        return ((model(batch["x"]) - batch["y"]) ** 2).mean()

    optimizer.update(model, nnx.grad(loss)(model))


def leaves(model, optimizer):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(nnx.state((model, optimizer)))]


def save_both(manager, step, model, optimizer, iterator):
    items = ocp.args.Composite(
        train=ocp.args.StandardSave(nnx.state((model, optimizer))), data=IteratorSave(iterator)
    )
    assert manager.save(step, args=items)


def restore_both(manager, step, model, optimizer, iterator):
    template = ocp.args.StandardRestore(nnx.state((model, optimizer)))
    items = ocp.args.Composite(train=template, data=IteratorRestore(iterator))
    restored = manager.restore(step, args=items)
    nnx.update((model, optimizer), restored.train)
    return restored


def save(manager, step, iterator):
    assert manager.save(step, args=ocp.args.Composite(data=IteratorSave(iterator)))


def restore(manager, step, *arguments, **options):
    items = ocp.args.Composite(data=IteratorRestore(*arguments, **options))
    return manager.restore(step, args=items).data


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def open_manager(request, tmp_path):
    """Return a function that opens managers of one folder, like a program that is started again."""

    def open_again(**options):
        return ocp.CheckpointManager(
            tmp_path,
            options=ocp.CheckpointManagerOptions(
                enable_async_checkpointing=request.param, **options
            ),
        )

    return open_again


def test_model_optimizer_and_iterator_resume_bit_for_bit(open_manager):
    loader = loader_of()
    model, optimizer = fresh()
    with iter(loader) as iterator:
        for _ in range(10):
            train_step(model, optimizer, next(iterator))
    uninterrupted = leaves(model, optimizer)

    model, optimizer = fresh()
    with iter(loader) as iterator, open_manager() as manager:
        for _ in range(5):
            train_step(model, optimizer, next(iterator))
        save_both(manager, 5, model, optimizer, iterator)
        for _ in range(2):  # lost, as by a kill
            train_step(model, optimizer, next(iterator))

    model, optimizer = fresh()
    with iter(loader_of()) as iterator, open_manager() as manager:
        restored = restore_both(manager, manager.latest_step(), model, optimizer, iterator)
        assert restored.data is iterator
        assert iterator.step == 5
        for _ in range(5):
            train_step(model, optimizer, next(iterator))
    resumed = leaves(model, optimizer)

    assert len(resumed) == len(uninterrupted) > 4
    for leaf, other in zip(resumed, uninterrupted, strict=True):
        np.testing.assert_array_equal(leaf, other, strict=True)
    # The comparison can fail: training changes the weights.
    assert any(
        (leaf != before).any() for leaf, before in zip(resumed, leaves(*fresh()), strict=True)
    )


def test_the_state_is_that_of_the_moment_of_the_save(open_manager, monkeypatch):
    loader = rows_of()
    with iter(loader) as iterator, open_manager() as manager:
        next(iterator)
        expected = iterator.get_state()
        save(manager, 1, iterator)

        def too_late(iterator):
            raise AssertionError("asked after `save` returned")

        with monkeypatch.context() as patched:
            patched.setattr(LoaderIterator, "get_state", too_late)
            for _ in range(7):
                next(iterator)
            manager.wait_until_finished()
        assert iterator.get_state()["step"] == 8

    with iter(loader) as iterator, open_manager() as manager:
        assert restore(manager, 1, iterator) is iterator
        assert iterator.get_state() == expected
        np.testing.assert_array_equal(next(iterator), loader.batch(1))


def test_an_iterator_may_be_closed_directly_after_the_save(open_manager):
    with open_manager() as manager:
        with iter(rows_of()) as iterator:
            next(iterator)
            save(manager, 1, iterator)
        manager.wait_until_finished()
        assert restore(manager, 1)["position"] == 4


def test_without_an_iterator_the_state_itself_is_restored(open_manager):
    with iter(rows_of()) as iterator, open_manager() as manager:
        next(iterator)
        expected = iterator.get_state()
        save(manager, 1, iterator)
    with open_manager() as manager:
        assert restore(manager, 1) == expected
    with open_manager() as manager:
        # Nothing but Orbax is needed to look at it.
        items = ocp.args.Composite(data=ocp.args.JsonRestore())
        assert manager.restore(1, args=items).data == expected


def test_a_restored_iterator_that_is_under_way_jumps(open_manager):
    loader = rows_of()
    with iter(loader) as iterator, open_manager() as manager:
        for _ in range(3):
            next(iterator)
        save(manager, 3, iterator)
        for _ in range(9):
            next(iterator)
        manager.wait_until_finished()
        restore(manager, 3, iterator)
        np.testing.assert_array_equal(next(iterator), loader.batch(3))


@pytest.mark.parametrize(
    ("options", "named"),
    [({"rows": 60}, "60"), ({"seed": 2}, "seed is 1"), ({"shuffle": False}, "shuffle is True")],
    ids=["rows", "seed", "shuffle"],
)
def test_the_state_of_another_stream_is_refused_unless_not_strict(open_manager, options, named):
    with iter(rows_of()) as iterator, open_manager() as manager:
        next(iterator)
        save(manager, 1, iterator)
    other = rows_of(**options)
    with iter(other) as iterator, open_manager() as manager:
        with pytest.raises(StateError, match=named):
            restore(manager, 1, iterator)
        assert iterator.step == 0
        assert restore(manager, 1, iterator, strict=False) is iterator
        np.testing.assert_array_equal(next(iterator), other.batch(1))


def test_the_state_of_other_data_is_refused_and_the_model_is_untouched(open_manager):
    with iter(rows_of()) as iterator, open_manager() as manager:
        save_both(manager, 1, *fresh(), iterator)
    model, optimizer = fresh()
    before = leaves(model, optimizer)
    with (
        iter(loader_of()) as iterator,
        open_manager() as manager,
        pytest.raises(StateError, match=r"data: int64\[\].*x: float32\[8\], y: float32\[1\]"),
    ):
        restore_both(manager, 1, model, optimizer, iterator)
    for leaf, other in zip(leaves(model, optimizer), before, strict=True):
        np.testing.assert_array_equal(leaf, other, strict=True)


def test_another_batch_size_resumes_at_the_exact_sample(open_manager):
    with iter(rows_of(batch_size=4)) as iterator, open_manager() as manager:
        for _ in range(3):
            next(iterator)
        save(manager, 3, iterator)
    with iter(rows_of(batch_size=6)) as iterator, open_manager() as manager:
        restore(manager, 3, iterator)
        whole = rows_of(batch_size=ROWS).batch(0)
        np.testing.assert_array_equal(next(iterator), whole[12:18])


def test_a_position_inside_a_batch_warns_through_orbax_too(open_manager):
    options = {"num_epochs": 2, "remainder": "keep"}
    with iter(rows_of(batch_size=4, **options)) as iterator, open_manager() as manager:
        next(iterator)
        save(manager, 1, iterator)
    with iter(rows_of(batch_size=6, **options)) as iterator, open_manager() as manager:
        with pytest.warns(UserWarning, match="at sample 4, 4 samples into a batch of 6"):
            restore(manager, 1, iterator)
        np.testing.assert_array_equal(next(iterator), rows_of(batch_size=ROWS).batch(0)[4:10])


def test_a_closed_iterator_cannot_be_restored(open_manager):
    with iter(rows_of()) as iterator, open_manager() as manager:
        save(manager, 0, iterator)
        manager.wait_until_finished()
        iterator.close()
        with pytest.raises(ClosedError):
            restore(manager, 0, iterator)


def test_each_step_has_its_own_state_and_old_ones_go(open_manager):
    loader = rows_of()
    with iter(loader) as iterator, open_manager(max_to_keep=3) as manager:
        for step in range(1, 6):
            next(iterator)
            save(manager, step, iterator)
    with open_manager() as manager:
        assert list(manager.all_steps()) == [3, 4, 5]
        for step in (4, 3, 5):
            with iter(loader) as iterator:
                restore(manager, step, iterator)
                assert iterator.step == step
                np.testing.assert_array_equal(next(iterator), loader.batch(step))


def test_several_iterators_in_one_checkpoint_keep_their_own_states(open_manager):
    train, validation = rows_of(), rows_of(seed=2, num_epochs=3)
    with iter(train) as first, iter(validation) as second, open_manager() as manager:
        next(first)
        for _ in range(2):
            next(second)
        items = ocp.args.Composite(train=IteratorSave(first), validation=IteratorSave(second))
        manager.save(1, args=items)
    with iter(train) as first, iter(validation) as second, open_manager() as manager:
        items = ocp.args.Composite(train=IteratorRestore(first), validation=IteratorRestore(second))
        manager.restore(1, args=items)
        assert (first.step, second.step) == (1, 2)
        np.testing.assert_array_equal(next(first), train.batch(1))
        np.testing.assert_array_equal(next(second), validation.batch(2))


def test_an_iterator_is_the_only_item_of_a_checkpoint_too(open_manager):
    with iter(rows_of()) as iterator, open_manager() as manager:
        next(iterator)
        manager.save(1, args=IteratorSave(iterator))
    with iter(rows_of()) as iterator, open_manager() as manager:
        manager.restore(1, args=IteratorRestore(iterator))
        assert iterator.step == 1


# Saves step 1; then step 2, of which all is written but an item that never comes to an end.
KILLED = """
import sys, time
import numpy as np
import orbax.checkpoint as ocp
from loaderx import DataLoader
from loaderx.checkpoint import IteratorSave

class Endless:
    def __init__(self, file):
        self.file = file

    def result(self, timeout=None):
        self.file.write_text("half of i")
        print("half written", flush=True)
        time.sleep(600)

class EndlessHandler(ocp.AsyncCheckpointHandler):
    async def async_save(self, directory, args):
        return [Endless(directory / "file")]

    def save(self, directory, args):
        raise NotImplementedError

    def restore(self, directory, args=None):
        raise NotImplementedError

@ocp.args.register_with_handler(EndlessHandler, for_save=True, for_restore=True)
class EndlessSave(ocp.args.CheckpointArgs):
    pass

loader = DataLoader(np.arange(50), batch_size=4, seed=1, workers=2, output="numpy")
manager = ocp.CheckpointManager(sys.argv[1])
with iter(loader) as iterator:
    next(iterator)
    weights = ocp.args.StandardSave({"weights": np.ones(3)})
    manager.save(1, args=ocp.args.Composite(train=weights, data=IteratorSave(iterator)))
    manager.wait_until_finished()
    next(iterator)
    weights = ocp.args.StandardSave({"weights": np.ones(3)})
    items = ocp.args.Composite(train=weights, data=IteratorSave(iterator), never=EndlessSave())
    manager.save(2, args=items)
    while True:
        next(iterator)
        time.sleep(0.01)
"""


def test_a_kill_during_an_async_save_leaves_the_last_complete_step(forking, tmp_path):
    child = forking.start(KILLED, tmp_path)
    try:
        announced = child.stdout.readline()
    finally:
        child.kill()
        _, errors = child.communicate(timeout=PATIENCE)
    assert announced == "half written\n", errors
    assert len(list(tmp_path.glob("*/never/file")) + list(tmp_path.glob("*/never.*/file"))) == 1
    assert not (tmp_path / "2").exists()

    loader = rows_of()
    with iter(loader) as iterator, ocp.CheckpointManager(tmp_path) as manager:
        assert list(manager.all_steps()) == [1]
        assert manager.latest_step() == 1
        assert restore(manager, 1, iterator) is iterator
        assert iterator.step == 1
        np.testing.assert_array_equal(next(iterator), loader.batch(1))
        # The remains of the other one are not in the way.
        save(manager, 2, iterator)
        manager.wait_until_finished()
        assert manager.latest_step() == 2
        assert restore(manager, 2)["step"] == 2
