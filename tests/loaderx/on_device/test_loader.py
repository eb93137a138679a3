"""`DeviceLoader`: the stream of a DataLoader on the device, compiled once, over data that is an argument."""

import dataclasses
import functools
import gc
import itertools
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from loaderx import ArgumentError, DataLoader, DeviceLoader, Mixture, StateError
from loaderx.on_device import transforms as device_transforms
from tests.loaderx.settings import assert_holds

# Optimised are the programs of other files, which compute the shuffle, and one of those below.
pytestmark = pytest.mark.usefixtures("unoptimised")
LARGE_SEED = 2**64 - 3
COMPILED = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, seconds, **facts: COMPILED.append(name)
)


def programs_compiled():
    """Return the number of programs that XLA has compiled in this process."""
    return COMPILED.count("/jax/core/compile/backend_compile_duration")


def rows_of(batch):
    return np.asarray(batch["x"]).tolist()


def walk(loader, state, steps):
    """Return batches, and the state after them."""
    batches = []
    for _ in range(steps):
        batch, state = loader.next(state)
        batches.append(batch)
    return batches, state


# --- the same stream as on the host -----------------------------------------------------------


# Each is a program of XLA, which takes a third of a second to compile. Without a shuffle one size shows each remainder.
STREAMS = [
    pytest.param(
        *(rows, batch_size, seed, remainder, shuffle),
        marks=[] if shuffle or rows % batch_size == 1 else pytest.mark.long,
    )
    for rows, batch_size, seed in [(1, 1, 0), (7, 3, 1), (7, 20, LARGE_SEED), (5000, 900, 2**40)]
    for remainder in ("straddle", "drop", "pad")
    for shuffle in (True, False)
    if remainder != "drop" or batch_size <= rows
]


@pytest.mark.parametrize(("rows", "batch_size", "seed", "remainder", "shuffle"), STREAMS)
def test_three_epochs_are_those_of_a_data_loader(rows, batch_size, seed, remainder, shuffle):
    data = {"x": np.arange(rows, dtype=np.int32), "y": np.arange(rows, dtype=np.float32)[:, None]}
    options = {"batch_size": batch_size, "seed": seed, "remainder": remainder, "shuffle": shuffle}
    host, loader = DataLoader(data, **options), DeviceLoader(data, **options)
    state = loader.init()
    with iter(host) as iterator:
        for step in range(3 * (-(-rows // batch_size)) + 2):
            expected = next(iterator)
            batch, state = loader.next(state)
            assert batch.keys() == expected.keys()
            for name in expected:
                assert batch[name].dtype == expected[name].dtype
                assert np.array_equal(batch[name], expected[name]), (step, name)
            there = iterator.get_state()
            assert loader.state_to(state, there) == there
            again = loader.state_from(there)
            assert all(map(np.array_equal, jax.tree.leaves(again), jax.tree.leaves(state)))


def test_a_stream_that_xla_optimises_is_the_same():
    jax.config.update("jax_disable_most_optimizations", False)
    test_three_epochs_are_those_of_a_data_loader(5000, 900, 2**40, "straddle", shuffle=True)


@pytest.mark.parametrize("data", [np.arange(10), (np.arange(10), np.ones((10, 2), np.float32))])
@pytest.mark.parametrize("remainder", ["straddle", "pad"])
def test_a_batch_has_the_structure_of_the_host(data, remainder):
    options = {"batch_size": 4, "remainder": remainder}
    expected = DataLoader(data, **options).batch(0)
    loader = DeviceLoader(data, **options)
    for given in (None, data, loader.data):
        given = jax.tree.map(jnp.asarray, given)
        batch, _ = loader.next(loader.init(), given)
        assert jax.tree.structure(batch) == jax.tree.structure(expected)
        assert all(map(np.array_equal, jax.tree.leaves(batch), jax.tree.leaves(expected)))


def test_a_tuple_of_many_fields_keeps_their_order():
    loader = DeviceLoader(tuple(np.full(4, number) for number in range(12)), batch_size=4)
    batch, _ = loader.next(loader.init())
    assert [int(field[0]) for field in batch] == list(range(12))


@pytest.mark.parametrize("remainder", ["straddle", "drop", "pad"])
def test_training_resumes_at_the_same_sample_on_either_side(remainder):
    data = {"x": np.arange(10, dtype=np.int32)}
    options = {"batch_size": 4, "seed": LARGE_SEED, "remainder": remainder}
    host, loader = DataLoader(data, **options), DeviceLoader(data, **options)
    expected = [rows_of(host.batch(step)) for step in range(16)]
    with iter(host) as iterator:
        beginning = iterator.get_state()
    state = loader.init()
    for step in range(10):
        with iter(host) as iterator:
            iterator.set_state(loader.state_to(state, beginning))
            assert iterator.step == step
            assert [rows_of(batch) for batch in itertools.islice(iterator, 5)] == expected[
                step : step + 5
            ]
            there = iterator.get_state()
        batch, _ = loader.next(loader.state_from(there))
        assert rows_of(batch) == expected[step + 5]
        batch, state = loader.next(state)
        assert rows_of(batch) == expected[step]


@pytest.mark.filterwarnings("ignore:the state is at sample")
@pytest.mark.parametrize("remainder", ["straddle", "drop", "pad"])
def test_a_state_within_a_batch_is_continued_as_on_the_host(remainder):
    data = {"x": np.arange(10, dtype=np.int32)}
    host = DataLoader(data, batch_size=4, remainder=remainder)
    loader = DeviceLoader(data, batch_size=4, remainder=remainder)
    with iter(host) as iterator:
        for position in range(25):
            iterator.set_state({**iterator.get_state(), "position": position, "step": 3})
            state = loader.state_from(iterator.get_state())
            for _ in range(4):
                batch, state = loader.next(state)
                expected = next(iterator)
                assert all(np.array_equal(batch[name], expected[name]) for name in expected)
            there = iterator.get_state()
            assert loader.state_to(state, there) == there


def test_far_epochs_are_those_of_the_host():
    data = {"x": np.arange(1000, dtype=np.int32)}
    host, loader = DataLoader(data, batch_size=100), DeviceLoader(data, batch_size=100)
    with iter(host) as iterator:
        there = {**iterator.get_state(), "position": 1000 * (2**32 - 2) + 950, "step": 2**32 - 2}
        iterator.set_state(there)
        state = loader.state_from(there)
        for _ in range(3):
            batch, state = loader.next(state)
            assert rows_of(batch) == rows_of(next(iterator))


def test_orbax_saves_a_state_as_it_is(tmp_path):
    loader = DeviceLoader({"x": np.arange(10)}, batch_size=4, seed=LARGE_SEED)
    _, state = walk(loader, loader.init(), 3)
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(3, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
        restored = manager.restore(3, args=ocp.args.StandardRestore(loader.init()))
    assert type(restored) is type(state)
    assert [rows_of(batch) for batch in walk(loader, restored, 4)[0]] == [
        rows_of(batch) for batch in walk(loader, state, 4)[0]
    ]


def test_a_place_beyond_the_rows_does_not_walk_for_ever():
    loader = DeviceLoader({"x": np.arange(10)}, batch_size=4)
    beyond, last = (
        dataclasses.replace(loader.init(), place=jnp.uint32(place)) for place in (2**31, 9)
    )
    assert rows_of(loader.next(beyond)[0]) == rows_of(loader.next(last)[0])


# --- one compiled program, one copy -----------------------------------------------------------


def add_up(carry, batch):
    return carry + batch["x"].sum(), batch["x"]


def test_next_compiles_once_in_three_epochs():
    loader = DeviceLoader({"x": np.arange(1000, dtype=np.int32)}, batch_size=128)
    state = loader.init()
    before = programs_compiled()
    walk(loader, state, 3 * 1000 // 128 + 1)
    assert programs_compiled() - before == 1


@pytest.mark.parametrize("remainder", ["straddle", "drop", "pad"])
def test_scan_epoch_compiles_once_in_three_epochs(remainder):
    data = {"x": np.arange(1000, dtype=np.int32)}
    loader = DeviceLoader(data, batch_size=128, remainder=remainder)
    state, total = loader.init(), jnp.int32(0)
    before = programs_compiled()
    seen = []
    for _ in range(3):
        total, state, metrics = loader.scan_epoch(add_up, total, state)
        seen.append(metrics)
    assert programs_compiled() - before == 1
    host = DataLoader(data, batch_size=128, remainder=remainder)
    expected = np.stack([host.batch(step)["x"] for step in range(int(state.step))])
    assert np.array_equal(np.concatenate(seen), expected)
    assert int(total) == expected.sum()


def test_the_count_of_programs_sees_a_compilation():
    before = programs_compiled()
    jax.jit(lambda x: x * 3 + 1)(np.arange(7))
    assert programs_compiled() - before == 1


def test_scan_epoch_takes_as_many_steps_as_asked():
    loader = DeviceLoader({"x": np.arange(10, dtype=np.int32)}, batch_size=4)
    assert loader.steps_per_epoch == 2
    _, state, metrics = loader.scan_epoch(add_up, jnp.int32(0), loader.init(), steps=5)
    assert metrics.shape == (5, 4)
    assert (int(state.step), int(state.epoch), int(state.place)) == (5, 2, 0)


def test_a_program_does_not_grow_with_the_data():
    sizes = {}
    for rows in (10**3, 10**6):
        loader = DeviceLoader({"x": np.zeros((rows, 16), np.uint8)}, batch_size=32)
        jitted = jax.jit(lambda state, data: loader.next(state, data=data))  # noqa: B023
        lowered = jitted.lower(loader.init(), loader.data)
        memory = lowered.compile().memory_analysis()
        # Small data sets are shuffled in more rounds, whose number is a constant; so compare within a few numbers.
        sizes[rows] = len(lowered.as_text()), memory.temp_size_in_bytes
        assert memory.argument_size_in_bytes >= rows * 16
    assert abs(sizes[10**6][0] - sizes[10**3][0]) < 1000
    assert sizes[10**6][1] < 100_000


def test_a_program_with_the_data_as_a_constant_does_grow():
    lengths = []
    for rows in (10**3, 10**5):
        loader = DeviceLoader({"x": np.random.default_rng(0).random((rows, 2))}, batch_size=32)
        lengths.append(len(jax.jit(loader.next).lower(loader.init()).as_text()))
    assert lengths[1] > 10 * lengths[0]


def live_bytes():
    gc.collect()
    return sum(array.nbytes for array in jax.live_arrays())


def test_there_is_one_copy_on_the_device():
    rows = np.zeros((10_000, 1000), np.uint8)
    before = live_bytes()
    loader = DeviceLoader({"x": rows}, batch_size=10)
    state = loader.init()
    _, state = loader.next(state)
    jitted = jax.jit(lambda state, data: loader.scan_epoch(add_up, jnp.uint32(0), state, data=data))
    jax.block_until_ready(jitted(state, loader.data))
    assert rows.nbytes <= live_bytes() - before < 1.1 * rows.nbytes


def test_data_on_the_device_stays_where_it_is():
    rows = jnp.arange(100)
    loader = DeviceLoader({"x": rows}, batch_size=10)
    assert loader.data["x"].unsafe_buffer_pointer() == rows.unsafe_buffer_pointer()


def test_the_data_goes_when_the_loader_goes():
    def use():
        loader = DeviceLoader({"x": np.arange(50_000, dtype=np.int32)}, batch_size=10)
        state = loader.init()
        loader.next(state)
        loader.scan_epoch(lambda carry, batch: (carry + batch["x"][0], None), 0, state)
        return weakref.ref(loader.data["x"])

    data = use()
    gc.collect()
    assert data() is None


# --- what JAX does to functions ---------------------------------------------------------------


def test_four_seeds_are_four_orders_in_one_program():
    loader = DeviceLoader({"x": np.arange(50, dtype=np.int32)}, batch_size=8)
    states = jax.vmap(loader.init)(jnp.arange(4))
    epoch = jax.jit(
        jax.vmap(
            lambda state, data: loader.scan_epoch(add_up, jnp.int32(0), state, data=data),
            in_axes=(0, None),
        )
    )
    totals, states, seen = epoch(states, loader.data)
    assert len({np.asarray(rows).tobytes() for rows in seen}) == 4
    for seed in range(4):
        own = DataLoader({"x": np.arange(50, dtype=np.int32)}, batch_size=8, seed=seed)
        assert np.array_equal(seen[seed], np.stack([own.batch(step)["x"] for step in range(6)]))
        assert int(totals[seed]) == int(np.sum(seen[seed]))
    batches, _ = jax.vmap(loader.next, in_axes=(0, None))(states, loader.data)
    assert batches["x"].shape == (4, 8)


def test_a_gradient_goes_through_an_epoch():
    x = np.random.default_rng(0).random(40).astype(np.float32)
    loader = DeviceLoader({"x": x}, batch_size=8)

    def loss(weight, state, data):
        def body(total, batch):
            return total + jnp.sum(weight * batch["x"]), None

        return loader.scan_epoch(body, jnp.float32(0), state, data=data)[0]

    gradient = jax.jit(jax.grad(loss))(jnp.float32(2), loader.init(), loader.data)
    assert np.isclose(gradient, x.sum())


def test_a_state_may_be_donated():
    loader = DeviceLoader({"x": np.arange(20)}, batch_size=8)
    step = jax.jit(loader.next, donate_argnums=0)
    expected, _ = walk(loader, loader.init(), 5)
    state = loader.init()
    for batch in expected:
        given = state
        found, state = step(given, loader.data)
        assert rows_of(found) == rows_of(batch)
        assert given.place.is_deleted()


# --- transforms -------------------------------------------------------------------------------


def noise(batch, key):
    return {**batch, "noise": jax.random.bits(key, (2,))}


def other_noise(batch, key):
    return {**batch, "other": jax.random.bits(key, (2,))}


def test_every_step_and_every_function_has_a_key_of_its_own():
    loader = DeviceLoader({"x": np.arange(10)}, batch_size=4, transforms=[noise, other_noise])
    batches, _ = walk(loader, loader.init(), 30)
    drawn = {np.asarray(batch[name]).tobytes() for batch in batches for name in ("noise", "other")}
    assert len(drawn) == 60
    batch, _ = loader.next(loader.init(seed=1))
    assert np.asarray(batch["noise"]).tobytes() not in drawn


def test_keys_are_the_same_after_a_resume():
    loader = DeviceLoader({"x": np.arange(10)}, batch_size=4, transforms=[noise])
    batches, _ = walk(loader, loader.init(), 8)
    with iter(DataLoader({"x": np.arange(10)}, batch_size=4)) as host:
        for _ in range(5):
            next(host)
        state = loader.state_from(host.get_state())
    again, _ = walk(loader, state, 3)
    for batch, expected in zip(again, batches[5:], strict=True):
        assert np.array_equal(batch["noise"], expected["noise"])


def test_a_field_that_an_op_names_and_nobody_has_is_reported():
    op = device_transforms.RandomFlip()
    loader = DeviceLoader({"x": np.zeros((4, 2, 2))}, batch_size=4, transforms=[op])
    with pytest.raises(ArgumentError, match=r"RandomFlip is for the field 'image'; .*\['x'\]"):
        loader.next(loader.init())


# --- bad input --------------------------------------------------------------------------------

X = {"x": np.arange(10)}


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ({"x": np.arange(3), "y": np.arange(4)}, {}, r"same number of rows, got {'x': 3, 'y': 4}"),
        ({"x": np.empty((0, 2))}, {}, r"has 0 rows; there must be from 1"),
        ({}, {}, r"has no fields"),
        ({"x": np.float32(3)}, {}, r"'x' must be an array of rows"),
        ({"x": np.array(["a", "b"])}, {}, r"'x' has dtype <U1, which JAX does not have"),
        ({"x": np.array([None])}, {}, r"'x' has dtype object, which JAX does not have"),
        ({"x": np.array([2**40])}, {}, r"'x' has int64 values that do not fit into int32"),
        (
            X,
            {"remainder": "keep"},
            r"`remainder` \(='keep'\) must be one of 'straddle', 'drop', 'pad'",
        ),
        (X, {"remainder": "drop", "batch_size": 11}, r"`batch_size` \(=11\) must not exceed"),
        ({"mask": np.arange(3)}, {"remainder": "pad"}, r"adds a field 'mask'"),
        (X, {"batch_size": 0}, r"`batch_size` \(=0\) must be an integer of at least 1"),
        (X, {"batch_size": 2.0}, r"`batch_size` \(=2.0\) must be an integer"),
        (X, {"seed": -1}, r"`seed` \(=-1\) must be an integer from 0"),
        (X, {"seed": 2**64}, r"`seed` \(=\d+\) must be an integer from 0"),
        (X, {"seed": 1.5}, r"`seed` \(=1.5\) must be an integer"),
        (X, {"shuffle": "yes"}, r"`shuffle` \(='yes'\) must be True or False"),
        (X, {"transforms": [3]}, r"`transforms` has 3; it must be a list of ops"),
    ],
)
def test_bad_arguments_are_refused(data, options, message):
    with pytest.raises(ArgumentError, match=message):
        DeviceLoader(data, **options)


class SmallDevice:
    """Device with a gigabyte, of which three quarters are taken."""

    def memory_stats(self):
        return {"bytes_limit": 10**9, "bytes_in_use": 75 * 10**7}

    def __str__(self):
        return "SmallDevice"


def test_rows_that_do_not_fit_are_refused_before_they_are_moved(monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: [SmallDevice()])
    rows = np.broadcast_to(np.uint8(0), (300_000, 1000))
    before = live_bytes()
    with pytest.raises(ArgumentError, match=r"needs 0.30 GB, and SmallDevice has 0.25 GB free"):
        DeviceLoader({"x": rows})
    assert live_bytes() == before
    DeviceLoader({"x": rows[:100]})


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"y": jnp.arange(10)},
        {"x": jnp.arange(11)},
        {"x": jnp.arange(10.0)},
        {"x": [1, 2]},
        jnp.arange(10),
    ],
    ids=str,
)
def test_data_unlike_that_of_the_loader_is_refused(data):
    loader = DeviceLoader(X, batch_size=4)
    for call in (
        lambda: loader.next(loader.init(), data),
        lambda: loader.scan_epoch(add_up, 0, loader.init(), data=data),
    ):
        with pytest.raises(ArgumentError, match=r"must have the field 'x' of int32\[10\]"):
            call()


def test_a_state_of_another_loader_is_refused():
    loader, other = (DeviceLoader({"x": np.arange(rows)}, batch_size=4) for rows in (10, 11))
    message = "belongs to another loader: of 11 rows, and this one has 10"
    for call in (
        lambda: loader.next(other.init()),
        lambda: jax.jit(loader.next)(other.init()),
        lambda: loader.scan_epoch(add_up, 0, other.init()),
    ):
        with pytest.raises(StateError, match=message):
            call()
    with pytest.raises(StateError, match=r"must be what `init\(\)` or `next\(\)` returned"):
        loader.next({"position": 0})


def test_a_state_of_another_host_is_refused():
    loader = DeviceLoader(X, batch_size=4, seed=3)
    with iter(DataLoader(X, seed=3)) as iterator:
        host = iterator.get_state()
    state = loader.state_from(host)
    for changed, message in [
        ({"rows": 11}, "its rows is 11, this loader's is 10"),
        ({"shuffle": False}, "its shuffle is False, this loader's is True"),
    ]:
        for call in (loader.state_from, functools.partial(loader.state_to, state)):
            with pytest.raises(StateError, match=message):
                call({**host, **changed})
    with pytest.raises(StateError, match="of seed 3, that of the host of 4"):
        loader.state_to(state, {**host, "seed": 4})
    with pytest.raises(StateError, match=r"must be what `get_state\(\)` of an iterator returned"):
        loader.state_from({"position": 3})
    with pytest.raises(StateError, match=r"on a device both must be below 2\*\*32"):
        loader.state_from({**host, "position": 10 * 2**32})
    with pytest.raises(StateError, match="is 4 states; convert them one by one"):
        loader.state_to(jax.vmap(loader.init)(jnp.arange(4)), host)


def test_a_carry_that_changes_its_shape_is_reported_by_jax():
    loader = DeviceLoader({"x": np.arange(10, dtype=np.int32)}, batch_size=4)

    def body(total, batch):
        return total + batch["x"], None

    with pytest.raises(TypeError, match=r"(?s)carry.*int32\[\].*int32\[4\]"):
        loader.scan_epoch(body, jnp.int32(0), loader.init())


# --- processes with other settings ------------------------------------------------------------

SETTINGS = {
    "x64": {"JAX_ENABLE_X64": "1"},
    "eight devices": {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
}
STATEMENTS = {setting: {} for setting in SETTINGS}


def with_setting(setting):
    """Register a statement to check in its own process: JAX reads some settings only when it starts."""

    def register(check):
        STATEMENTS[setting][check.__name__] = check
        return check

    return register


@with_setting("x64")
def with_64_bit_numbers_the_stream_is_the_same():
    data = {"x": np.arange(10) + 2**40}
    for remainder in ("straddle", "drop", "pad"):
        options = {"batch_size": 4, "seed": LARGE_SEED, "remainder": remainder}
        host, loader = DataLoader(data, **options), DeviceLoader(data, **options)
        state = loader.init()
        for step in range(8):
            batch, state = loader.next(state)
            assert rows_of(batch) == rows_of(host.batch(step))
            assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {np.dtype(np.uint32)}


def over_rows():
    return NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))


@with_setting("eight devices")
def rows_over_eight_devices_are_gathered_as_from_one():
    x = np.arange(64 * 3, dtype=np.int32).reshape(64, 3)
    data = jax.device_put({"x": x}, over_rows())
    loader = DeviceLoader(data, batch_size=16, seed=5)
    assert loader.data["x"].sharding == over_rows()
    host = DataLoader({"x": x}, batch_size=16, seed=5)
    state = loader.init()
    for step in range(10):
        batch, state = loader.next(state)
        assert np.array_equal(batch["x"], host.batch(step)["x"])
    _, _, seen = loader.scan_epoch(add_up, jnp.int32(0), state)
    assert np.array_equal(seen, np.stack([host.batch(step)["x"] for step in range(10, 14)]))


@with_setting("eight devices")
def every_device_contributes_its_rows_of_a_batch_and_these_are_summed():
    # The only communication is one all-reduce of a batch: each device contributes the rows that it has, and zeros for
    # the others. The data itself is never sent.
    rows, batch_size = 8192, 16
    data = jax.device_put({"x": np.zeros((rows, 32), np.float32)}, over_rows())
    loader = DeviceLoader(data, batch_size=batch_size)
    text = loader._next.lower(loader.init(), loader.data).compile().as_text()
    collectives = [
        line.split("=", 1)[1].split("(")[0].split()
        for line in text.splitlines()
        if any(
            f" {name}(" in line
            for name in ("all-gather", "all-reduce", "all-to-all", "collective-permute")
        )
    ]
    assert [name for _, name in collectives] == ["all-reduce"], collectives
    assert collectives[0][0].startswith("f32[16,32]"), collectives


@pytest.mark.parametrize(
    ("setting", "statement"),
    [(setting, statement) for setting in SETTINGS for statement in STATEMENTS[setting]],
)
def test_with_setting(forking, setting, statement):
    assert_holds(forking, __file__, setting, SETTINGS[setting], statement)


@pytest.mark.parametrize("kind", ["weights", "mixture"])
def test_states_of_streams_that_are_not_shuffled_are_refused(kind):
    rows = np.arange(10, dtype=np.int32)
    data = Mixture({"a": (rows[:5], 1), "b": (rows[5:], 2)}) if kind == "mixture" else rows
    weights = np.arange(1, 11) if kind == "weights" else None
    with iter(DataLoader(data, batch_size=2, weights=weights, output="numpy")) as iterator:
        state = iterator.get_state()
    with pytest.raises(StateError, match=kind):
        DeviceLoader(rows, batch_size=2).state_from(state)
