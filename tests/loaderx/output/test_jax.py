"""Hand-off to JAX: no copy on the CPU, JAX's dtypes, and every layout over devices."""

import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from loaderx import ArgumentError, DataError, DataLoader
from tests.loaderx.settings import assert_holds, outcomes
from tests.loaderx.sources.rows import NUMBERS, assert_same, for_jax, native, values
from tests.waiting import join, started

SMALL_FLOATS = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]


class Pair(NamedTuple):
    """Batch that a hook may return."""

    image: jax.Array
    number: jax.Array


class Watch:
    """Hook that changes nothing and remembers where the host arrays of the last batch lay."""

    def __call__(self, batch):
        self.batch = {name: (array.ctypes.data, array.nbytes) for name, array in batch.items()}
        return batch

    def shares(self, name, array):
        """Return whether a jax.Array shares the memory of the host array."""
        address, nbytes = self.batch[name]
        shards = [shard.data for shard in array.addressable_shards]
        return all(
            address <= shard.unsafe_buffer_pointer() <= address + nbytes - shard.nbytes
            for shard in shards
        )


def hooked(hook, array=None, **options):
    """Deliver a batch that a hook returns."""
    array = values((8, 3), "f4") if array is None else array
    options = {"batch_size": 4, "shuffle": False, **options}
    return DataLoader({"x": array}, transform=hook, **options).batch(0)


# --- one device -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*NUMBERS, *SMALL_FLOATS], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_batch_is_the_memory_it_was_gathered_into(dtype, order):
    array = np.asarray(values((16, 3, 2), "f4" if dtype in SMALL_FLOATS else dtype), order=order)
    array = array.astype(dtype)
    watch = Watch()
    loader = DataLoader({"x": array}, batch_size=8, shuffle=False, transform=watch)
    batch = loader.batch(1)
    assert batch["x"].unsafe_buffer_pointer() == watch.batch["x"][0]
    assert_same(batch["x"], for_jax(array[8:]))


def test_batches_of_an_iterator_are_the_memory_they_were_gathered_into():
    addresses = []

    def hook(batch):
        addresses.append(batch.ctypes.data)
        return batch

    loader = DataLoader(values((64, 3), "f4"), batch_size=4, workers=1, transform=hook)
    with iter(loader) as batches:
        for step in range(20):
            assert next(batches).unsafe_buffer_pointer() == addresses[step]


def test_the_mask_is_not_copied_either():
    watch = Watch()
    loader = DataLoader(
        {"x": np.arange(5)}, batch_size=4, num_epochs=1, remainder="pad", transform=watch
    )
    batch = loader.batch(1)
    assert watch.shares("mask", batch["mask"])
    assert_same(batch["mask"], np.array([True, False, False, False]))


def test_a_batch_is_not_committed_so_that_it_meets_parameters_wherever_they_are():
    for dtype in ("f4", "i8", ml_dtypes.bfloat16):
        assert not hooked(None, np.ones((8, 3), dtype))["x"].committed


def test_rows_of_zero_bytes_are_a_batch():
    assert_same(hooked(None, np.empty((4, 0), "f4"))["x"], np.empty((4, 0), "f4"))


@pytest.mark.parametrize("dtype", ["S3", "U3", "M8[s]", "m8[ns]", "g", "G", "V3"])
def test_a_field_that_jax_does_not_have_is_refused_when_the_loader_is_made(dtype):
    field = values((8, 2), dtype)
    with pytest.raises(ArgumentError) as refusal:
        DataLoader({"number": np.arange(8), "name": field})
    assert all(
        word in str(refusal.value) for word in ["'name'", str(field.dtype), 'output="numpy"']
    )
    loader = DataLoader({"name": field}, batch_size=8, shuffle=False, output="numpy")
    assert_same(loader.batch(0)["name"], field)


def test_a_sharding_over_one_device_is_a_sharding():
    sharding = NamedSharding(Mesh(jax.devices()[:1], "data"), PartitionSpec("data"))
    watch = Watch()
    array = values((8, 3), "f4")
    batch = hooked(watch, array, sharding=sharding)
    assert batch["x"].sharding == sharding
    assert watch.shares("x", batch["x"])
    assert_same(batch["x"], array[:4])


@pytest.mark.parametrize("dtype", ["?", "u1", "i4", "f2", "f4", "c8", *SMALL_FLOATS], ids=str)
def test_an_array_that_is_committed_to_the_cpu_is_the_memory_it_was_gathered_into(
    dtype, monkeypatch
):
    """Check DLPack, which commits; it has no float8."""
    given, imported = {}, []
    from_dlpack = jax.dlpack.from_dlpack

    def watch(array):
        given[len(imported)] = np.asarray(array).ctypes.data
        imported.append(from_dlpack(array))
        return imported[-1]

    monkeypatch.setattr(jax.dlpack, "from_dlpack", watch)
    # Also without the fast path.
    monkeypatch.setattr("loaderx.output.jax._batched_device_put", lambda: None)
    sharding = NamedSharding(Mesh(jax.devices(), ("data",)), PartitionSpec("data"))
    data = values((6, 3), dtype)
    loader = DataLoader({"x": data}, batch_size=2, shuffle=False, sharding=sharding)
    batches = [loader.batch(step)["x"] for step in range(3)]
    assert all(batch.committed and batch.sharding == sharding for batch in batches)
    assert np.concatenate(batches).tobytes() == data.tobytes()
    assert len(imported) == (0 if dtype == ml_dtypes.float8_e4m3fn else 3)
    for number, array in enumerate(imported):
        assert array.unsafe_buffer_pointer() == given[number]


def test_the_default_device_of_jax_is_respected():
    watch = Watch()
    with jax.default_device(jax.devices("cpu")[0]):
        batch = hooked(watch)
    assert batch["x"].device == jax.devices("cpu")[0]
    assert watch.shares("x", batch["x"])


@pytest.mark.parametrize("dtype", ["f4", "f2", "c8", *SMALL_FLOATS], ids=str)
def test_nan_is_handed_over_as_any_other_number(dtype):
    array = values((8, 3), "f4").astype(dtype)
    array[::2] = np.nan
    with iter(DataLoader({"x": array, "y": np.arange(8)}, batch_size=4, shuffle=False)) as iterator:
        for step in range(6):
            batch = next(iterator)
            rows = slice(4 * (step % 2), 4 * (step % 2) + 4)
            assert np.asarray(batch["x"]).tobytes() == array[rows].tobytes()
            assert_same(batch["y"], np.arange(8, dtype=np.int32)[rows])


def test_without_a_working_fast_path_everything_is_delivered_by_device_put(monkeypatch):
    data = {"x": values((8, 3), "f4"), "y": np.arange(8, dtype=np.int32)}
    loader = DataLoader(data, batch_size=4, shuffle=False)
    loader.batch(0)
    hand_off = loader._builder.hand_off
    assert hand_off._fast_paths
    monkeypatch.setattr(hand_off, "_device_put", lambda *arguments: jnp.zeros(3))
    hand_off.put_whole(np.zeros(5, np.float32), leased=False)
    assert not hand_off._fast_paths
    assert_same(loader.batch(1)["x"], data["x"][4:])


@pytest.mark.parametrize("sharding", ["data", jax.devices()[0], PartitionSpec("data")], ids=str)
def test_values_that_are_not_shardings_are_refused(sharding):
    with pytest.raises(ArgumentError, match=r"`sharding` \(=.*\) must be a jax.sharding.Sharding"):
        DataLoader(np.arange(8), sharding=sharding)


# --- what a hook returns ----------------------------------------------------------------------


def aligned(array):
    """Return a copy of an array where JAX could take it without another copy."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
def test_an_array_that_the_hook_keeps_is_copied(dtype):
    kept = aligned(values((4, 3), dtype))
    expected = for_jax(kept)
    batch = hooked(lambda batch: {**batch, "kept": kept})
    kept[:] = 0
    assert_same(batch["kept"], expected)


def test_an_array_of_an_earlier_batch_is_copied():
    earlier = []

    def hook(batch):
        earlier.append(batch["x"])
        return {"x": earlier[0]}

    loader = DataLoader({"x": values((8, 3), "f4")}, batch_size=4, shuffle=False, transform=hook)
    loader.batch(0)
    batch = loader.batch(1)
    earlier[0][:] = 0
    assert_same(batch["x"], values((8, 3), "f4")[:4])


def test_a_hook_may_work_in_place_and_still_nothing_is_copied():
    watch = Watch()

    def hook(batch):
        batch["x"] *= 2
        return watch(batch)

    batch = hooked(hook)
    assert watch.shares("x", batch["x"])
    assert_same(batch["x"], values((8, 3), "f4")[:4] * 2)


VIEWS = {
    "the first rows": lambda x: x[:2],
    "the last rows": lambda x: x[1:],
    "every other row": lambda x: x[::2],
    "rows backwards": lambda x: x[::-1],
    "a column": lambda x: x[:, 1],
    "transposed": lambda x: x.T,
    "another shape": lambda x: x.reshape(-1, 2),
    "another dtype of as many bytes": lambda x: x.view(np.int32),
    "one row many times": lambda x: np.broadcast_to(x[0], x.shape),
    "a view that may not be written": lambda x: np.broadcast_to(x, x.shape),
    "one element": lambda x: x[1, 1],
    "nothing": lambda x: x[:0],
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_hook_may_return_any_view_of_the_batch(view):
    expected = VIEWS[view](values((8, 3), "f4")[:4])
    batch = hooked(lambda batch: {"view": VIEWS[view](batch["x"])})
    assert isinstance(batch["view"], jax.Array)
    assert_same(batch["view"], np.asarray(expected))


ARRAYS = {
    "new": lambda x: x + 1,
    "of 64-bit floats": lambda x: x.astype("f8"),
    "of 64-bit integers": lambda x: x.astype("i8"),
    "of unsigned 64-bit integers": lambda x: abs(x).astype("u8"),
    "of complex numbers": lambda x: x.astype("c16"),
    "of half floats": lambda x: x.astype("f2"),
    "of booleans": lambda x: x > 0,
    "of bfloat16": lambda x: x.astype(ml_dtypes.bfloat16),
    "in Fortran order": np.asfortranarray,
    "of 64 bits in Fortran order": lambda x: np.asfortranarray(x, "f8"),
    "in the other byte order": lambda x: x.astype(">f4"),
    "of 64 bits in the other byte order": lambda x: x.astype(">i8"),
    "that may not be written": lambda x: np.asarray(jnp.asarray(x)),
}


@pytest.mark.parametrize("array", ARRAYS)
def test_a_hook_may_return_an_array(array):
    expected = for_jax(ARRAYS[array](values((8, 3), "f4")[:4]))
    batch = hooked(lambda batch: {"array": ARRAYS[array](batch["x"])})
    assert isinstance(batch["array"], jax.Array)
    assert_same(batch["array"], expected)


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        (3, np.int32(3)),
        (2.5, np.float32(2.5)),
        (True, np.bool_(True)),
        (1j, np.complex64(1j)),
        (np.int64(7), np.int32(7)),
        (np.float64(0.5), np.float32(0.5)),
    ],
)
def test_a_number_that_a_hook_returns_is_an_array_of_jax(scalar, expected):
    batch = hooked(lambda batch: {**batch, "scalar": scalar})
    assert isinstance(batch["scalar"], jax.Array)
    assert_same(batch["scalar"], expected)


@pytest.mark.parametrize("name", ["digits", None, b"bytes", np.array(["a", "b"]), np.str_("a")])
def test_results_of_a_hook_that_are_not_numbers_are_delivered_as_they_are(name):
    batch = hooked(lambda batch: {**batch, "name": name, "names": [name, name]})
    assert batch["name"] is name
    assert batch["names"][1] is name


def test_a_jax_array_that_a_hook_returns_is_delivered_as_it_is():
    array = jnp.arange(3)
    assert hooked(lambda batch: array) is array


def test_a_hook_may_return_any_nesting_of_dicts_lists_and_tuples():
    array = values((8, 3), "f4")[:4]
    batch = hooked(lambda batch: [batch["x"], (batch["x"], {"y": batch["x"]}), []])
    assert isinstance(batch, list)
    assert_same(batch[0], array)
    assert_same(batch[1], (array, {"y": array}))
    assert batch[2] == []


def test_a_hook_may_return_a_named_tuple():
    batch = hooked(lambda batch: Pair(batch["x"], 3))
    assert isinstance(batch, Pair)
    assert_same(batch.image, values((8, 3), "f4")[:4])
    assert_same(batch.number, np.int32(3))


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_an_integer_of_a_hook_that_does_not_fit_into_32_bits_raises(dtype):
    big = np.array([1, 2**40], dtype)
    with pytest.raises(
        DataError, match=rf"`transform` returned {big.dtype} values that do not fit"
    ):
        hooked(lambda batch: {"big": big})


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
def numbers_of_64_bits_stay_so():
    for dtype in NUMBERS:
        array = values((8, 3), dtype)
        watch = Watch()
        batch = DataLoader({"x": array}, batch_size=8, shuffle=False, transform=watch).batch(0)
        assert_same(batch["x"], native(array))
        assert watch.shares("x", batch["x"])


@with_setting("eight devices")
def batches_go_to_the_default_device_of_whoever_asks_for_them():
    loader = DataLoader({"x": values((64, 3), "f4")}, batch_size=8)
    for hook in (None, lambda batch: batch):
        loader = DataLoader({"x": values((64, 3), "f4")}, batch_size=8, transform=hook)
        with iter(loader) as iterator:
            for step, number in enumerate([5, 5, None, 2, None, None, 5]):
                device = None if number is None else jax.devices()[number]
                with jax.default_device(device):
                    batch = next(iterator)["x"]
                    other = loader.batch(step)["x"]
                    expected = jnp.zeros(3)
                assert batch.devices() == other.devices() == expected.devices()
                assert batch.committed == other.committed == expected.committed
                assert np.array_equal(batch, other)


@with_setting("eight devices")
def threads_with_default_devices_of_their_own_share_a_loader():
    loader = DataLoader(values((64, 3), "f4"), batch_size=8)
    found = {}

    def consume(device):
        with jax.default_device(device), iter(loader) as iterator:
            found[device] = [next(iterator) for _ in range(20)]

    threads = [started(consume, device) for device in jax.devices()]
    join(*threads)
    assert all(batch.devices() == {device} for device, own in found.items() for batch in own)
    assert len(found) == 8


@with_setting("x64")
def integers_may_be_as_large_as_64_bits_allow():
    array = np.array([2**62, -(2**62)])
    batch = DataLoader(array, batch_size=2, shuffle=False).batch(0)
    assert_same(batch, array)


@with_setting("x64")
def arrays_and_numbers_of_a_hook_keep_64_bits():
    batch = hooked(lambda batch: (batch["x"].astype("f8"), 2**40, 0.5))
    assert [leaf.dtype for leaf in batch] == [np.float64, np.int64, np.float64]
    assert int(batch[1]) == 2**40


def over_devices(*axes, names=("data",), shape=(8,)):
    mesh = Mesh(np.array(jax.devices()).reshape(shape), names)
    return NamedSharding(mesh, PartitionSpec(*axes))


@with_setting("eight devices")
def rows_are_divided_over_devices_without_a_copy():
    sharding = over_devices("data")
    # Rows of 64 bytes and more per device: JAX shares only memory with this alignment.
    array = values((64, 16), "f4")
    watch = Watch()
    loader = DataLoader({"x": array}, batch_size=32, sharding=sharding, transform=watch)
    batch, rows = loader.batch(0), loader.indices(0)
    assert batch["x"].shape == (32, 16)
    assert batch["x"].sharding == sharding
    assert_same(batch["x"], array[rows])
    for shard in batch["x"].addressable_shards:
        assert shard.data.shape == (4, 16)
        assert_same(shard.data, array[rows][shard.index])
    assert watch.shares("x", batch["x"])


@with_setting("eight devices")
def rows_of_any_size_are_divided_over_devices():
    for dtype in [*NUMBERS, ml_dtypes.bfloat16]:
        array = values((48,), "f4").astype(dtype) if dtype not in NUMBERS else values((48,), dtype)
        loader = DataLoader(array, batch_size=24, sharding=over_devices("data"))
        assert_same(loader.batch(0), for_jax(array[loader.indices(0)]))


@with_setting("eight devices")
def kept_batches_over_devices_are_never_overwritten():
    array = values((256, 16), "f4")
    loader = DataLoader(array, batch_size=32, sharding=over_devices("data"), num_epochs=4)
    with iter(loader) as iterator:
        batches = list(iterator)
    for step, batch in enumerate(batches):
        assert_same(batch, array[loader.indices(step)])


@with_setting("eight devices")
def rows_may_be_divided_and_copied_over_two_axes_of_a_mesh():
    array = values((16, 6, 4), "f4")
    for axes in [("data",), ("data", "model"), (("data", "model"),), (), (None, "model")]:
        sharding = over_devices(*axes, names=("data", "model"), shape=(4, 2))
        batch = DataLoader(array, batch_size=16, shuffle=False, sharding=sharding).batch(0)
        assert batch.sharding == sharding
        assert_same(batch, array)


@with_setting("eight devices")
def all_fields_and_the_mask_are_divided():
    sharding = over_devices("data")
    loader = DataLoader(
        {"image": values((20, 3), "u1"), "label": values((20,), "i8")},
        batch_size=16, shuffle=False, num_epochs=1, remainder="pad", sharding=sharding,
    )  # fmt: skip
    with iter(loader) as iterator:
        first, last = iterator
    for batch in (first, last):
        assert all(array.sharding == sharding for array in batch.values())
    assert_same(last["mask"], np.arange(16) < 4)
    assert_same(last["label"][:4], for_jax(values((20,), "i8")[16:]))


@with_setting("eight devices")
def a_batch_size_that_does_not_divide_over_devices_is_refused():
    with pytest.raises(ArgumentError) as refusal:
        DataLoader({"x": np.arange(64)}, batch_size=12, sharding=over_devices("data"))
    assert all(word in str(refusal.value) for word in ["12 rows", "'x'", "`sharding`"])


@with_setting("eight devices")
def a_last_batch_that_does_not_divide_over_devices_is_refused():
    for options in ({"num_epochs": 1}, {"remainder": "keep"}):
        with pytest.raises(ArgumentError) as refusal:
            DataLoader(np.arange(20), batch_size=16, sharding=over_devices("data"), **options)
        assert all(
            word in str(refusal.value) for word in ["4 rows", "`sharding`", 'remainder="pad"']
        )


@with_setting("eight devices")
def a_last_batch_over_epochs_that_does_not_divide_is_refused():
    options = {"batch_size": 16, "sharding": over_devices("data"), "remainder": "straddle"}
    with pytest.raises(ArgumentError, match="12 rows"):
        DataLoader(np.arange(20), num_epochs=3, **options)
    assert len(DataLoader(np.arange(20), num_epochs=4, **options)) == 5
    DataLoader(np.arange(20), num_epochs=None, **options)


@with_setting("eight devices")
def a_last_batch_that_divides_is_accepted():
    sharding = over_devices("data")
    for options in ({"remainder": "keep"}, {"remainder": "pad"}, {"remainder": "drop"}):
        DataLoader(np.arange(24), batch_size=16, num_epochs=1, sharding=sharding, **options)
    loader = DataLoader(np.arange(24), batch_size=16, num_epochs=1, sharding=sharding)
    assert loader.batch(1).shape == (8,)


@with_setting("eight devices")
def a_batch_without_a_sharding_meets_parameters_on_all_devices():
    watch = Watch()
    batch = hooked(watch)
    assert not batch["x"].committed
    assert watch.shares("x", batch["x"])
    parameters = jax.device_put(np.full(3, 2, np.float32), over_devices())
    product = jax.jit(lambda parameters, batch: parameters * batch)(parameters, batch["x"])
    assert_same(product, values((8, 3), "f4")[:4] * 2)


@with_setting("eight devices")
def one_of_several_devices_may_be_the_default():
    device = jax.devices()[3]
    with jax.default_device(device):
        assert hooked(None)["x"].device == device


@with_setting("eight devices")
def an_array_that_the_hook_keeps_is_copied_for_all_devices():
    kept = aligned(values((32, 16), "f4"))
    array = values((32, 16), "f4")
    loader = DataLoader(
        array, batch_size=32, sharding=over_devices("data"), transform=lambda batch: kept
    )
    batch = loader.batch(0)
    kept[:] = 0
    assert_same(batch, array)


@pytest.mark.parametrize(
    ("setting", "statement"),
    [(setting, statement) for setting in SETTINGS for statement in STATEMENTS[setting]],
)
def test_with_setting(forking, setting, statement):
    assert_holds(forking, __file__, setting, SETTINGS[setting], statement)


def test_a_statement_that_does_not_hold_is_reported(monkeypatch):
    def wrong():
        raise AssertionError("this is wrong")

    def silent():
        with pytest.raises(ValueError, match="anything"):
            pass

    monkeypatch.setitem(STATEMENTS, "x64", {"wrong": wrong, "silent": silent})
    assert "this is wrong" in outcomes(STATEMENTS["x64"])["wrong"]
    assert "DID NOT RAISE" in outcomes(STATEMENTS["x64"])["silent"]


STARTED = """
import threading
import jax
import numpy as np
import loaderx as lx

names = []
original = jax.device_put
def noted(*given, **named):
    names.append(threading.current_thread().name)
    return original(*given, **named)
jax.device_put = noted
lx.DataLoader(np.zeros((8, 3)), batch_size=2).batch(0)
print(names[0])
"""


def test_jax_starts_where_ctrl_c_does_not_reach_it(forking):
    finished = forking.run(STARTED, env=os.environ | {"PYTHONWARNINGS": "error"})
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "loaderx-uninterrupted\n"
