"""Batches of a cluster are those of a local loader, bytes and order, for any number of workers."""

import gc
import pickle
import warnings

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import loaderx as lx
from loaderx import ArgumentError
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.ray import RayLoader
from tests.loaderx.ray import loaders
from tests.loaderx.ray.loaders import digest, digests, make

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:'negative' is a plain Python function"),
]
STEPS = 7


@pytest.fixture(scope="module")
def two(nodes):
    """Return the digests of all configurations, of two workers; one loader after the other."""
    found = {}

    def digests_of(name, **options):
        if name not in found:
            loader = RayLoader(make(name), workers=2, **options)
            try:
                found[name] = digests(loader, len(loader) if loader.num_epochs else STEPS)
            finally:
                loader.close()
        return found[name]

    return digests_of


# Starting actors takes most of the time: some cases here, the others in `make test-long`.
USUAL = ("plain", "own op", "python", "padded hook", "mixup", "bfloat16")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in USUAL else [pytest.mark.long])
        for name in loaders.OPTIONS
    ],
)
def test_batches_are_those_of_a_local_loader(two, name):
    local = make(name)
    assert two(name) == digests(local, len(local) if local.num_epochs else STEPS)


@pytest.mark.parametrize("workers", [1, 4])
def test_the_number_of_workers_does_not_matter(two, ray_loader, workers):
    assert digests(ray_loader(make(), workers=workers), STEPS) == two("chain")


def test_large_batches_are_divided_and_put_together(ray_loader):
    images = np.random.default_rng(1).integers(0, 256, (90, 96, 96, 3), np.uint8)
    options = {"images": images, "batch_size": 64, "transforms": {"image": [T.RandomFlip()]}}
    loader = ray_loader(make("plain", **options), workers=4)
    with iter(loader) as it, iter(make("plain", **options)) as local:
        assert it._scheduler.pieces == 4
        for _ in range(6):
            assert digest(next(it)) == digest(next(local))


@pytest.mark.parametrize("name", ["chain", "hook"])
def test_jax_arrays_share_the_object_store(ray_loader, name):
    loader = ray_loader(make(name, "jax", batch_size=90), workers=1)
    local = make(name, "jax", batch_size=90)
    with iter(loader) as it:
        kept = [next(it) for _ in range(6)]
    del it
    assert loader._shared.nbytes > 0
    for step, batch in enumerate(kept):
        assert isinstance(batch["image"], jax.Array)
        assert digest(batch) == digest(local.batch(step))
    # A donated array is not written to: others may see the store.
    before = digest(kept[0])
    jax.jit(lambda x: x + 1, donate_argnums=0)(kept[1]["image"])
    assert digest(kept[0]) == before
    del batch, kept
    gc.collect()
    assert loader._shared.nbytes == 0


@pytest.mark.parametrize("name", ["chain", "hook"])
def test_numpy_arrays_may_be_written_to(ray_loader, name):
    with iter(ray_loader(make(name), workers=1)) as it:
        batch = next(it)
        batch["image"][:] = 0
        batch["label"] += 1
        assert digest(next(it)) == digest(make(name).batch(1))


def test_numbers_are_narrowed_as_by_the_consumer(ray_loader):
    with iter(ray_loader(make("plain", "jax"), workers=1)) as it:
        assert next(it)["label"].dtype == np.int32
    with iter(ray_loader(make("plain", "dlpack"), workers=1)) as it:
        assert np.asarray(next(it)["label"]).dtype == np.int64


def test_other_outputs(ray_loader):
    with iter(ray_loader(make("plain", lambda array: array.tolist()), workers=1)) as it:
        assert next(it)["label"] == make("plain").batch(0)["label"].tolist()


def test_a_function_makes_the_loader_on_each_worker(ray_loader):
    assert digests(ray_loader(make, workers=2), STEPS) == digests(make(), STEPS)


def test_rows_of_one_field_and_of_tuples(ray_loader):
    for data in (loaders.IMAGES, (loaders.IMAGES, loaders.LABELS)):
        local = lx.DataLoader(data, batch_size=40, output="numpy")
        with iter(ray_loader(local, workers=1)) as it:
            batch, expected = next(it), local.batch(0)
        assert type(batch) is type(expected)
        for one, other in zip([batch], [expected], strict=True):
            np.testing.assert_equal(one, other)


def test_a_sharding_over_devices(ray_loader):
    sharding = NamedSharding(jax.make_mesh((1,), ("data",)), PartitionSpec("data"))
    loader = ray_loader(make("padded", "jax", sharding=sharding), workers=2)
    with iter(loader) as it:
        for step, batch in enumerate(it):
            assert batch["image"].sharding == sharding
            assert digest(batch) == digest(make("padded", "jax").batch(step))
    assert step == len(loader) - 1


# --- the interface of a loader ------------------------------------------------------------------


def test_attributes_steps_and_epochs_are_those_of_the_loader(ray_loader):
    local = make("keep")
    loader = ray_loader(local, workers=2)
    for name in ("dataset", "batch_size", "shuffle", "seed", "num_epochs", "remainder", "output"):
        assert getattr(loader, name) is getattr(local, name) or (
            getattr(loader, name) == getattr(local, name)
        )
    assert (len(loader), loader.prefetch, loader.workers) == (len(local), local.prefetch, 2)
    assert digest(loader.batch(3)) == digest(local.batch(3))
    np.testing.assert_array_equal(loader.indices(3), local.indices(3))
    with loader.epoch(1) as ours, local.epoch(1) as theirs:
        assert list(map(digest, ours)) == list(map(digest, theirs))
    assert "RandomFlip" in loader.explain()
    assert "2 workers of the Ray cluster" in loader.explain()
    assert repr(loader).startswith("RayLoader(DataLoader(90 rows of {image: ")


def test_states_are_interchangeable_with_those_of_local_loaders(ray_loader):
    local, loader = make(), ray_loader(make(), workers=2)
    expected = digests(local, 15)
    with iter(local) as first:
        found = [digest(next(first)) for _ in range(4)]
        state = first.get_state()
    with iter(loader) as second:
        second.set_state(state)
        assert (second.step, second.epoch) == (first.step, first.epoch)
        found += [digest(next(second)) for _ in range(6)]
        state = second.get_state()
    with iter(local) as third:
        third.set_state(state)
        found += [digest(next(third)) for _ in range(5)]
    assert found == expected


def test_a_state_set_in_between_continues_there(ray_loader):
    expected = digests(make(), 6)
    with iter(ray_loader(make(), workers=2)) as it:
        state = it.get_state()
        for _ in range(4):
            next(it)
        it.set_state(state)
        assert [digest(next(it)) for _ in range(6)] == expected


def test_several_iterators_share_the_workers(ray_loader):
    loader = ray_loader(make(), workers=2)
    with iter(loader) as one, iter(loader) as other:
        pairs = [(digest(next(one)), digest(next(other))) for _ in range(5)]
    assert all(a == b for a, b in pairs)


def test_a_second_iteration_of_epochs_warns(ray_loader):
    loader = ray_loader(make("keep"), workers=2)
    list(loader)
    with pytest.warns(UserWarning, match="iterated again"):
        list(loader)


def test_a_ray_loader_pickles(ray_loader):
    loader = ray_loader(make(), workers=1)
    copy = pickle.loads(pickle.dumps(loader))
    try:
        assert digests(copy, 2) == digests(make(), 2)
    finally:
        copy.close()


def test_the_number_of_workers_changes_while_it_iterates(ray_loader, nodes):
    expected = digests(make(), 40)
    loader = ray_loader(make(), workers=1)
    with iter(loader) as it:
        found = [digest(next(it)) for _ in range(5)]
        loader.resize(3)
        while it.stats().workers < 3:
            found.append(digest(next(it)))
            if len(found) == 35:
                it.set_state({**it.get_state(), "position": 5 * 32, "step": 5})
                del found[5:]
        loader.resize(1)
        found += [digest(next(it)) for _ in range(40 - len(found))]
        assert it.stats().workers == 1
    assert found == expected
    assert loader.workers == 1


def test_statistics_name_the_workers_and_the_transport(ray_loader):
    with iter(ray_loader(make(), workers=2)) as it:
        batches = 0
        while it.stats().workers < 2 or batches < 8:
            batch, batches = next(it), batches + 1
        stats = it.stats()
    assert stats.batches == batches
    assert stats.bytes == batches * sum(array.nbytes for array in batch.values())
    assert stats.transport_bytes >= stats.bytes
    assert stats.building_seconds > 0
    assert stats.workers == 2
    assert (stats.lost, stats.built_here) == (0, 0)
    assert isinstance(stats.advice, str)


def test_iterators_close_at_once(ray_loader):
    loader = ray_loader(make("python", transforms={"image": [loaders.negative]}), workers=1)
    it = iter(loader)
    next(it)
    it.close()
    with pytest.raises(lx.ClosedError):
        next(it)
    assert repr(it) == "RayIterator(closed, step=1, epoch=0)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1],), "`loader` "),
        ((lambda: 3,), "must be a DataLoader, or a function that makes one"),
    ],
)
def test_other_objects_than_loaders_are_refused(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        RayLoader(*arguments)


def test_bad_numbers_are_refused():
    loader = make()
    for name, value in {"workers": 0, "cpus_per_worker": 0, "timeout": -1, "prefetch": 0}.items():
        with pytest.raises(ArgumentError, match=name):
            RayLoader(loader, **{name: value})


def test_the_warning_of_python_code_and_explain_name_the_ray_loader():
    with pytest.warns(UserWarning, match="RayLoader"):
        loader = make("python")
    assert "RayLoader" in loader.explain()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "RayLoader" not in make().explain()
