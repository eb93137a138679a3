"""Callback: batches of a DataLoader inside jit and scan, in order, and its errors."""

import re
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loaderx import ArgumentError, ClosedError, DataLoader, StateError
from tests.waiting import wait_until

ROWS = {"x": np.arange(100, dtype=np.int32), "y": np.ones((100, 3), np.float32)}


def loader_of(**options):
    return DataLoader(ROWS, **{"batch_size": 16, "seed": 1, **options})


def taken(stream, steps):
    """Return a jitted function that takes some batches in a scan."""

    @jax.jit
    def run(total):
        def body(total, _):
            batch = stream()
            return total + batch["x"].sum(), batch

        return jax.lax.scan(body, total, None, length=steps)

    return run


def assert_batches(found, loader, steps):
    for number, step in enumerate(steps):
        expected = loader.batch(step)
        for name in expected:
            assert found[name].dtype == expected[name].dtype
            assert np.array_equal(found[name][number], expected[name]), (step, name)


@pytest.mark.parametrize(
    "options",
    [{}, {"output": "numpy"}, {"remainder": "pad"}, {"workers": 1, "prefetch": 1}],
    ids=str,
)
def test_a_scan_takes_batches_in_order(options):
    loader = loader_of(**options)
    with loader.as_callback() as stream:
        run = taken(stream, 10)
        total, batches = run(jnp.int32(0))
        assert_batches(batches, loader, range(10))
        assert int(total) == int(np.sum(batches["x"]))
        _, batches = run(total)
        assert_batches(batches, loader, range(10, 20))
        assert stream.step == 20
        assert run._cache_size() == 1


def test_a_jitted_function_takes_the_next_batch_at_every_call():
    loader = loader_of()
    with loader.as_callback() as stream:
        take = jax.jit(lambda: stream()["x"])
        for step in range(15):
            assert np.array_equal(take(), loader.batch(step)["x"])


def test_two_batches_of_one_step_are_taken_in_order():
    loader = loader_of()
    with loader.as_callback() as stream:
        first, second = jax.jit(lambda: (stream()["x"], stream()["x"]))()
        # Without `ordered` the CPU happens to keep the order, too; other devices need not.
        assert "Ordered" in str(jax.make_jaxpr(stream)().effects)
    assert np.array_equal(first, loader.batch(0)["x"])
    assert np.array_equal(second, loader.batch(1)["x"])


def test_batches_are_built_ahead_in_the_background():
    built = []

    def hook(batch):
        built.append(threading.current_thread())
        return batch

    loader = loader_of(transform=hook, prefetch=3, workers=2)
    with loader.as_callback() as stream:
        built.clear()
        jax.block_until_ready(jax.jit(lambda: stream())())
        # One was taken, and three more are ready.
        wait_until(lambda: len(built) >= 4)
        assert stream.step == 1
        assert threading.main_thread() not in built


def test_the_position_survives_a_checkpoint():
    loader = loader_of()
    with loader.as_callback() as stream:
        jax.block_until_ready(taken(stream, 5)(jnp.int32(0)))
        state = stream.get_state()
        assert state["step"] == 5
    with loader.as_callback() as stream:
        run = taken(stream, 4)
        jax.block_until_ready(run(jnp.int32(0)))
        stream.set_state(state)
        assert_batches(run(jnp.int32(0))[1], loader, range(5, 9))
    with iter(loader) as iterator:
        iterator.set_state(state)
        assert np.array_equal(next(iterator)["x"], loader.batch(5)["x"])


def test_a_state_of_another_stream_is_refused():
    with loader_of(seed=2).as_callback() as other, loader_of().as_callback() as stream:
        with pytest.raises(StateError, match="its seed is 2, this loader's is 1"):
            stream.set_state(other.get_state())
        stream.set_state(other.get_state(), strict=False)


@pytest.mark.parametrize(
    "options",
    [{"remainder": "keep"}, {"num_epochs": 1}, {"remainder": "straddle", "num_epochs": 2}],
    ids=str,
)
def test_a_stream_whose_last_batch_is_short_is_refused(options):
    with pytest.raises(ArgumentError, match="gives a last batch of another shape"):
        loader_of(**options).as_callback()


class Hook:
    """Hook that returns three batches unchanged, and then does something else."""

    def __init__(self, then):
        self.calls, self.then = 0, then

    def __call__(self, batch):
        self.calls += 1
        return batch if self.calls <= 3 else self.then(batch)


def fail(batch):
    raise ValueError("the hook is broken")


FAILURES = {
    "ValueError: the hook is broken": {"transform": Hook(fail), "workers": 1, "prefetch": 1},
    "RuntimeError: a batch has shape (3, 2) where (10, 2) was compiled for.": {
        "transform": Hook(lambda batch: batch[:3]), "workers": 1, "prefetch": 1,
    },
    "RuntimeError: the stream of this loader is at its end.": {
        "num_epochs": 1, "remainder": "drop",
    },
}  # fmt: skip


@pytest.mark.parametrize("message", FAILURES)
def test_an_exception_comes_out_as_an_exception(message):
    loader = DataLoader(np.ones((30, 2), np.float32), batch_size=10, **FAILURES[message])
    with loader.as_callback() as stream:
        run = jax.jit(lambda: jax.lax.scan(lambda _, __: (None, stream()), None, length=5))
        with pytest.raises(jax.errors.JaxRuntimeError, match=re.escape(message)):
            jax.block_until_ready(run())
    # And another stream works.
    with loader_of().as_callback() as stream:
        assert np.array_equal(jax.jit(stream)()["x"], loader_of().batch(0)["x"])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"transform": lambda batch: {**batch, "name": "a"}}, "<U1"),
        ({"transform": lambda batch: {"x": batch["y"].astype("f8")}, "output": "numpy"}, "float64"),
    ],
)
def test_batches_that_a_compiled_program_cannot_accept_are_refused(options, name):
    with pytest.raises(ArgumentError, match=f"a batch has {name}, which a compiled program cannot"):
        loader_of(**options).as_callback()


def loaderx_threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("loaderx")}


def test_a_closed_stream_has_no_threads_left():
    before = loaderx_threads()
    # Not shuffled: small shuffled batches are built inline.
    stream = loader_of(workers=2, shuffle=False).as_callback()
    jax.block_until_ready(jax.jit(stream)())
    assert len(loaderx_threads() - before) == 2
    stream.close()
    assert not loaderx_threads() - before
    with pytest.raises(ClosedError):
        stream.set_state(stream.get_state())
