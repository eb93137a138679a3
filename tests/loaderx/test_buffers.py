"""Memory of batches: never overwritten while anything can see it, used again afterwards, bounded."""

import collections
import contextlib
import ctypes
import gc
import itertools
import sys
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loaderx import DataLoader, buffers
from loaderx.batch.scheduler import MAX_COALESCED
from loaderx.buffers import ALIGNMENT, Pool
from tests.waiting import join, started

POISON = 0xA5
ROWS = 160
DATA = np.random.default_rng(0).integers(0, 1000, (ROWS, 32)).astype(np.float32)

outputs = pytest.mark.parametrize("output", ["numpy", "jax", "sharded"])


@pytest.fixture
def poisoned(monkeypatch):
    """Overwrite memory as soon as it is free."""

    def poison(lease):
        # Before the weak references to it are cleared, and so before the slab can be leased again.
        ctypes.memset(lease.address, POISON, lease._slab.nbytes)

    monkeypatch.setattr(buffers.Lease, "__del__", poison, raising=False)


def loader_of(data=DATA, output="numpy", **options):
    options = {"batch_size": 16, "workers": 2, "prefetch": 3} | options
    if output == "sharded":
        options["sharding"] = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        output = "jax"
    return DataLoader(data, output=output, **options)


def churn(loader, batches=30):
    """Take and drop many batches, so that all free memory is poisoned and used again."""
    with iter(loader) as iterator:
        for batch in itertools.islice(iterator, batches):
            jax.block_until_ready(batch)


# The pool itself.


@pytest.mark.parametrize("nbytes", [1, 63, 64, 65, 1000, 3 * 2**20])
def test_memory_begins_at_a_cache_line(nbytes):
    pool = Pool(nbytes, 1)
    leased = [pool.lease((nbytes,), np.dtype(np.uint8)) for _ in range(5)]
    assert [array.ctypes.data % ALIGNMENT for array in leased] == [0] * 5
    assert ALIGNMENT == 64


def test_leased_arrays_have_the_shape_and_dtype_asked_for_and_do_not_overlap():
    pool = Pool(3 * 4 * 8, 2)
    leased = [pool.lease((3, 4), np.dtype(np.float64)) for _ in range(3)]
    leased.append(pool.lease((2, 4), np.dtype(np.float64)))
    leased.append(pool.lease((0, 4), np.dtype(np.int16)))
    for number, array in enumerate(leased):
        array[...] = number
    assert [array.shape for array in leased] == [(3, 4)] * 3 + [(2, 4), (0, 4)]
    assert leased[0].dtype == np.float64
    assert leased[0].flags.c_contiguous
    assert leased[0].flags.writeable
    for number, array in enumerate(leased):
        np.testing.assert_array_equal(array, number)


def test_memory_is_used_again_only_when_the_last_view_is_gone():
    pool = Pool(64, 4)
    array = pool.lease((16,), np.dtype(np.float32))
    address = array.ctypes.data
    views = [array[3:], array.reshape(4, 4).T, array.view(np.uint8), memoryview(array)]
    del array
    while views:
        others = [pool.lease((16,), np.dtype(np.float32)) for _ in range(3)]
        assert address not in [other.ctypes.data for other in others]
        del views[0], others
    assert pool.free > 0
    leased = [pool.lease((16,), np.dtype(np.float32)) for _ in range(pool.free)]
    assert address in [array.ctypes.data for array in leased]


def test_free_memory_is_poisoned_where_a_test_asks_for_it(poisoned):
    """Check that the tests below can fail: memory that was returned to the pool reads as poison."""
    pool = Pool(256, 1)
    array = pool.lease((256,), np.dtype(np.uint8))
    array[:] = 1
    address = array.ctypes.data
    assert ctypes.string_at(address, 256) == bytes([1]) * 256
    del array
    assert ctypes.string_at(address, 256) == bytes([POISON]) * 256


def test_the_pool_grows_when_memory_is_kept_and_shrinks_back():
    pool = Pool(1024, 2)
    kept = [pool.lease((1024,), np.dtype(np.uint8)) for _ in range(50)]
    assert len({array.ctypes.data for array in kept}) == 50
    assert pool.free == 0
    del kept
    assert pool.free == 2


def test_memory_beyond_what_is_kept_is_freed_with_its_last_view(slabs):
    pool = Pool(1024, 2)
    kept = [pool.lease((1024,), np.dtype(np.uint8)) for _ in range(5)]
    view = kept[0][3:]
    kept.clear()
    assert len(slabs.alive[1024]) == 3
    del view
    assert len(slabs.alive[1024]) == 2


def test_memory_that_is_kept_for_good_does_not_keep_later_batches_from_sharing_theirs(slabs):
    pool = Pool(1024, 2)
    kept = [pool.lease((1024,), np.dtype(np.uint8)) for _ in range(2)]
    for _ in range(20):
        pool.lease((1024,), np.dtype(np.uint8))
    assert slabs.made[1024] == 3
    assert len({array.ctypes.data for array in kept}) == 2


def test_a_pool_whose_lease_was_interrupted_uses_memory_again_as_before(slabs):
    pool = Pool(1024, 2)
    for _ in range(5):
        pool.lease((1024,), np.dtype(np.uint8))
        # Ctrl-C at the one moment at which a slab is neither free nor leased.
        pool._ended.pop()
    kept = [pool.lease((1024,), np.dtype(np.uint8)) for _ in range(4)]
    del kept
    assert pool.free == 2
    assert len(slabs.alive[1024]) == 2


@pytest.mark.parametrize("output", ["numpy", "dlpack"])
def test_no_python_code_runs_when_a_batch_is_dropped(output):
    """Check for callbacks in Python: an exception in one, such as that of Ctrl-C, is printed and dropped."""
    loader = loader_of(output=output, workers=1)
    calls = []

    def note(frame, event, argument):
        if event == "call":
            calls.append(frame.f_code.co_qualname)

    def drop_in_the_end(held):
        held.pop()

    held = [loader.batch(step) for step in range(20)]
    gc.collect()
    gc.disable()
    try:
        sys.setprofile(note)
        while held:
            held.pop()
        drop_in_the_end([0])
    finally:
        sys.setprofile(None)
        gc.enable()
    # The last one shows that calls are noted.
    assert [call.rpartition(".")[2] for call in calls] == ["drop_in_the_end"]


def test_leases_may_end_in_any_thread():
    pool = Pool(1024, 4)

    def lease_and_drop():
        for number in range(2000):
            first = pool.lease((1024,), np.dtype(np.uint8))
            first[:] = number % 256
            second = pool.lease((512,), np.dtype(np.uint8))
            second[:] = 0
            if np.any(first != number % 256):
                overwritten.append(number)

    overwritten = []
    threads = [started(lease_and_drop) for _ in range(4)]
    join(*threads)
    assert overwritten == []
    assert 0 < pool.free <= 4 + len(threads)


# Batches of a loader.


@outputs
def test_every_batch_lies_at_a_cache_line_and_is_not_copied_for_jax(output):
    addresses = []

    def note(batch):
        addresses.append(batch.ctypes.data)
        return batch

    # An odd batch size and row: nothing is aligned by accident.
    loader = loader_of(DATA[:, :7], output, batch_size=13, transform=note, workers=1)
    with iter(loader) as iterator:
        batches = list(itertools.islice(iterator, 10))
    assert [address % 64 for address in addresses] == [0] * len(addresses)
    if jax.default_backend() == "cpu":
        shared = [np.asarray(batch).ctypes.data for batch in batches]
        assert shared == addresses[:10]


@outputs
@pytest.mark.parametrize("remainder", ["keep", "pad"])
def test_all_batches_of_an_epoch_can_be_kept(poisoned, output, remainder):
    data = {"image": DATA, "label": np.arange(ROWS)}
    loader = loader_of(data, output, batch_size=7, num_epochs=1, remainder=remainder)
    kept = list(loader)
    with pytest.warns(UserWarning, match="iterated again"):
        churn(loader)
    assert len(kept) == 23
    for step, batch in enumerate(kept):
        rows = loader.indices(step)
        np.testing.assert_array_equal(batch["image"], DATA[rows])
        np.testing.assert_array_equal(batch["label"], rows)
        if remainder == "pad":
            valid = min(7, ROWS - 7 * step)
            np.testing.assert_array_equal(batch["mask"], np.arange(7) < valid)


NUMPY_REMAINS = {
    "a slice": lambda batch: batch[2:5],
    "every second row, backwards": lambda batch: batch[::-2],
    "a transpose": lambda batch: batch.T,
    "other shape": lambda batch: batch.reshape(-1),
    "other dtype": lambda batch: batch.view(np.uint8),
    "a column of a row": lambda batch: batch[3][4:],
    "a buffer": lambda batch: np.frombuffer(memoryview(batch), np.float32),
    "by DLPack": lambda batch: np.from_dlpack(batch),
    "in JAX": lambda batch: jnp.asarray(batch),
    "put on a device": lambda batch: jax.device_put(batch),
    "a sum": lambda batch: batch.sum(axis=0),
}
JAX_REMAINS = {
    "itself": lambda batch: batch,
    "a slice": lambda batch: batch[2:5],
    "a transpose": lambda batch: batch.T,
    "other shape": lambda batch: batch.reshape(-1),
    "in NumPy": lambda batch: np.asarray(batch),
    "a slice in NumPy": lambda batch: np.asarray(batch)[1:3],
    "by DLPack": lambda batch: np.from_dlpack(batch),
    "put on a device": lambda batch: jax.device_put(batch),
    "a shard": lambda batch: batch.addressable_data(0),
    "through jit as it is": jax.jit(lambda batch: batch),
    "computed": lambda batch: jnp.sin(batch) * 2,
    "jitted": jax.jit(lambda batch: batch @ batch.T),
    "deleted": lambda batch: [batch + 1, batch.delete()][0],
}


@pytest.mark.parametrize("remains", NUMPY_REMAINS)
def test_views_of_a_dropped_numpy_batch_stay_right(poisoned, remains):
    loader = loader_of()
    kept = [NUMPY_REMAINS[remains](batch) for batch in itertools.islice(iter(loader), 10)]
    churn(loader)
    for step, value in enumerate(kept):
        expected = NUMPY_REMAINS[remains](DATA[loader.indices(step)])
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("output", ["jax", "sharded"])
@pytest.mark.parametrize("remains", JAX_REMAINS)
def test_arrays_of_a_dropped_jax_batch_stay_right(poisoned, output, remains):
    loader = loader_of(output=output)
    kept = [JAX_REMAINS[remains](batch) for batch in itertools.islice(iter(loader), 10)]
    churn(loader)
    for step, value in enumerate(kept):
        expected = JAX_REMAINS[remains](jnp.array(DATA[loader.indices(step)]))
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize(
    "hook",
    [
        lambda batch: batch[1:],
        lambda batch: batch[8:],
        lambda batch: batch[:, ::-1],
        lambda batch: batch.T,
        lambda batch: batch.view(np.int32),
        lambda batch: {"same": batch, "again": batch, "sum": batch.sum(), "first": batch[0]},
    ],
    ids=["odd slice", "slice", "reversed", "transpose", "view", "several"],
)
@outputs
def test_views_that_a_hook_returns_stay_right(poisoned, output, hook):
    loader = loader_of(output=output, transform=hook)
    kept = list(itertools.islice(iter(loader), 10))
    churn(loader)
    for step, batch in enumerate(kept):
        expected = hook(DATA[loader.indices(step)])
        jax.tree.map(np.testing.assert_array_equal, batch, expected)


@outputs
def test_a_hook_may_keep_what_it_was_given(poisoned, output):
    seen = []

    def keep(batch):
        seen.append(batch)
        return batch.sum(axis=1)

    loader = loader_of(output=output, transform=keep, workers=1)
    for _ in itertools.islice(iter(loader), 10):
        pass
    churn(loader)
    for step, batch in enumerate(seen[:10]):
        np.testing.assert_array_equal(batch, DATA[loader.indices(step)])


@outputs
def test_batches_outlive_the_iterator_and_the_loader(poisoned, output):
    loader = loader_of(output=output)
    rows = [loader.indices(step) for step in range(10)]
    with iter(loader) as iterator:
        batches = [next(iterator) for _ in range(10)]
    del iterator, loader
    gc.collect()
    churn(loader_of(output=output))
    for batch, expected in zip(batches, rows, strict=True):
        np.testing.assert_array_equal(batch, DATA[expected])


@pytest.mark.parametrize("output", ["jax", "sharded"])
def test_a_computation_still_running_on_a_dropped_batch_reads_the_batch(poisoned, output):
    @jax.jit
    def slow_then_read(batch, ones, rounds):
        # A matrix of 1 / n stays what it is, times itself; the batch is needed after the last round only.
        power = jax.lax.fori_loop(0, rounds, lambda _, matrix: matrix @ ones, ones)
        return batch * power[0, 0] * power.shape[0]

    ones = jnp.full((512, 512), 1 / 512)
    slow_then_read(jnp.zeros((16, 32)), ones, 1).block_until_ready()
    began = time.perf_counter()
    slow_then_read(jnp.zeros((16, 32)), ones, 50).block_until_ready()
    rounds = 50 / (time.perf_counter() - began)

    # Too short, it would tell nothing; how long that is depends on what else the machine does.
    for seconds in (0.5, 2, 8, 32):
        loader = loader_of(output=output)
        expected = DATA[loader.indices(0)]
        iterator = iter(loader)
        batch = next(iterator)
        result = slow_then_read(batch, ones, int(seconds * rounds))
        del batch, iterator
        # Those of the same loader get its memory, if anybody does.
        churn(loader)
        still_running = not result.is_ready()
        del loader
        churn(loader_of(output=output))
        np.testing.assert_array_equal(result, expected)
        if still_running:
            break
    assert still_running, "the computation was too short to tell anything"


@pytest.mark.parametrize("output", ["jax", "sharded"])
def test_donated_batches_spoil_nothing(poisoned, output):
    double = jax.jit(lambda batch: batch * 2, donate_argnums=0)
    loader = loader_of(output=output)
    before = DATA.copy()
    results = [double(batch) for batch in itertools.islice(iter(loader), 60)]
    churn(loader)
    for step, result in enumerate(results):
        np.testing.assert_array_equal(result, 2 * DATA[loader.indices(step)])
    np.testing.assert_array_equal(DATA, before)


def test_a_donated_batch_is_not_the_one_that_another_iterator_holds(poisoned):
    double = jax.jit(lambda batch: batch * 2, donate_argnums=0)
    loader = loader_of(output="jax")
    with iter(loader) as ahead, iter(loader) as late:
        for step in range(20):
            doubled = double(next(ahead))
            np.testing.assert_array_equal(next(late), DATA[loader.indices(step)])
            np.testing.assert_array_equal(doubled, 2 * DATA[loader.indices(step)])


# How much of it there is.


@pytest.fixture
def slabs(monkeypatch):
    """Count slabs by their size: existing, made, and the most at one time."""

    alive, made, most = collections.defaultdict(set), collections.Counter(), collections.Counter()

    class Counted(buffers.Slab):
        def __init__(self, nbytes):
            super().__init__(nbytes)
            alive[nbytes].add(id(self))
            made[nbytes] += 1
            most[nbytes] = max(most[nbytes], len(alive[nbytes]))

        def __del__(self):
            alive[self.nbytes].discard(id(self))

    monkeypatch.setattr(buffers, "Slab", Counted)
    return types.SimpleNamespace(alive=alive, made=made, most=most)


IMAGE_BYTES = 16 * DATA[0].nbytes


@outputs
def test_a_consumer_that_keeps_nothing_is_served_from_a_few_slabs(slabs, output):
    loader = loader_of(output=output, prefetch=2, workers=2)
    with iter(loader) as iterator:
        for batch in itertools.islice(iterator, 300):
            jax.block_until_ready(batch)
    # Ready and being built, in rows where they are small; in hand, exchanged for that, and what JAX lets go of late.
    assert 1 < slabs.most[IMAGE_BYTES] <= (2 + 2) * MAX_COALESCED + 1 + 1 + 2


@outputs
def test_memory_grows_with_what_the_consumer_keeps_and_shrinks_back(slabs, output):
    loader = loader_of(output=output, prefetch=2, workers=2)
    with iter(loader) as iterator:
        kept = [next(iterator) for _ in range(50)]
        assert len(slabs.alive[IMAGE_BYTES]) >= 50
        kept.clear()
        gc.collect()
        for _ in range(5):
            next(iterator)
        gc.collect()
        assert len(slabs.alive[IMAGE_BYTES]) <= (2 + 2) * MAX_COALESCED + 1 + 1 + 2
    del loader, iterator
    gc.collect()
    assert len(slabs.alive[IMAGE_BYTES]) == 0


def test_keeping_the_labels_does_not_keep_the_memory_of_the_images(slabs):
    loader = loader_of({"image": DATA, "label": np.arange(ROWS)}, prefetch=2, workers=2)
    with iter(loader) as iterator:
        labels = [batch["label"] for batch in itertools.islice(iterator, 100)]
    assert slabs.most[IMAGE_BYTES] <= 2 + 2 + 1 + 1
    assert slabs.most[16 * np.dtype(np.int64).itemsize] >= 100
    for step, label in enumerate(labels):
        np.testing.assert_array_equal(label, loader.indices(step))


def test_an_iterator_left_open_does_not_keep_the_batches_that_were_taken(slabs):
    loader = loader_of(prefetch=1, workers=1, num_epochs=1)
    iterator = iter(loader)
    for _ in iterator:
        pass
    assert iterator.step == 10
    del loader
    assert len(slabs.alive[IMAGE_BYTES]) <= 1 + 1 + 1


def test_an_error_that_is_forgotten_keeps_no_batch_alive(slabs):
    def fail(batch):
        raise OSError("again and again")

    # Without the garbage collector: a batch may be large, and the next collection far.
    gc.collect()
    gc.disable()
    try:
        with iter(loader_of(transform=fail, prefetch=1, workers=1)) as iterator:
            for _ in range(50):
                # Not by pytest.raises, which keeps the error itself.
                with contextlib.suppress(OSError):
                    next(iterator)
    finally:
        gc.enable()
    assert slabs.most[IMAGE_BYTES] <= 1 + 1 + 2


# Batches of more than 32 MB go back to the system when they are freed, so resident memory is used memory.
MEMORY_PROBE = """
import gc
import sys
import time
import types
from pathlib import Path
import numpy as np
from loaderx import DataLoader, NPDataset

MB = 2**20
path, output, prefetch, workers, kept = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])

def resident():
    # RssAnon is VmRSS without the pages of mapped files.
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if "RssAnon" in line)

def count(batch):
    built.append(len(batch))
    return batch

data = NPDataset(path)
# Everything that is loaded or compiled once.
next(iter(DataLoader(data, batch_size=1, output=output)))
gc.collect()
before = resident()
built = []
options = {"prefetch": prefetch, "workers": workers, "output": output, "transform": count}
iterator = iter(DataLoader(data, batch_size=9, **options))
held = []
for step in range(2 * kept + prefetch + workers + 2):
    held.append(next(iterator))
    # Keeps one batch, then more and more, then one again.
    del held[: -(kept if kept <= step < 2 * kept else 1)]
    # The consumer is slow: all that may be kept ready is.
    while len(built) < step + 1 + prefetch:
        time.sleep(0.001)
    allowed = (prefetch + workers + len(held)) * 36 + 64
    # JAX lets go of what was dropped when it takes the next array, or here.
    gc.collect()
    used = (resident() - before) / MB
    # The probe measures something: the batches that are held and ready are there.
    if not (prefetch + len(held) - 0.5) * 36 < used < allowed:
        sys.exit(f"step {step}: {used:.0f} MB with {len(held)} batches held, {allowed} MB allowed")
"""


@pytest.fixture(scope="module")
def large_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("memory") / "rows.npy"
    np.save(path, np.ones((18, 2**20), np.float32))
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("output", "prefetch", "workers", "kept"),
    [("numpy", 4, 1, 5), ("jax", 2, 2, 4)],
)
def test_resident_memory_is_bounded(forking, large_file, output, prefetch, workers, kept):
    finished = forking.run(MEMORY_PROBE, large_file, output, prefetch, workers, kept)
    assert finished.returncode == 0, finished.stderr
