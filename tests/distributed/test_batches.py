"""Global batches are the same bytes for every number of processes and layout, and no process reads rows of others."""

import functools
import subprocess
import sys

import numpy as np
import pytest

from loaderx import DataLoader
from tests.distributed import processes, program

pytestmark = pytest.mark.timeout(900)  # the first test of a topology waits for its processes

# Most of the time is that of starting processes: the larger runs are left to `make test-long`.
SMALL, LARGE = ["1x8", "2x2", "3x1"], ["2x4", "4x2"]
TOPOLOGIES = [*SMALL, *(pytest.param(topology, marks=pytest.mark.long) for topology in LARGE)]


def scenarios(topology):
    """Return the pairs of a loader and a layout that a topology has."""
    count, devices = map(int, topology.split("x"))
    return program.scenarios(count * devices)


def all_scenarios(loaders=program.LOADERS):
    """List the scenarios of all topologies in which one of these loaders is."""
    return [
        pytest.param(topology, *scenario, marks=[pytest.mark.long] if topology in LARGE else [])
        for topology in (*SMALL, *LARGE)
        for scenario in scenarios(topology)
        if scenario[0] in loaders
    ]


@pytest.fixture(scope="session")
def alone(runs):
    """Return a loader of one process, without JAX."""

    @functools.cache
    def make(name):
        dataset, options = program.dataset_and_options(name, runs.folder)
        return DataLoader(dataset, output="numpy", **options)

    return make


def results_of(runs, topology, loader, layout):
    return [process["batches"][loader, layout] for process in runs(topology)]


def assert_same_bytes(batch, expected):
    assert batch.keys() == expected.keys()
    for name, array in expected.items():
        if array.dtype == np.int64:
            array = array.astype(np.int32)
        assert batch[name].dtype == array.dtype
        assert batch[name].shape == array.shape
        np.testing.assert_array_equal(batch[name], array, err_msg=name)
        assert batch[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_all_scenarios_were_run(runs, topology):
    for process in runs(topology):
        assert list(process["batches"]) == scenarios(topology)


@pytest.mark.parametrize(("topology", "loader", "layout"), all_scenarios())
def test_a_global_batch_is_that_of_one_process(runs, alone, topology, loader, layout):
    results = results_of(runs, topology, loader, layout)
    reference = alone(loader)
    steps = list(results[0]["steps"])
    finite = "num_epochs" in program.OPTIONS.get(loader, {})
    assert [step for step in steps if isinstance(step, int)] == (
        list(range(len(reference))) if finite else [*range(program.STEPS), program.FAR]
    )
    assert all(list(result["steps"]) == steps for result in results)
    for step in steps:
        batch = processes.whole_batch([result["steps"][step] for result in results])
        expected = dict(reference.batch(step[1] if isinstance(step, tuple) else step))
        if loader == "hook":
            # The hook saw fewer rows here than there.
            batch.pop("seen")
            expected.pop("seen")
        assert_same_bytes(batch, expected)


@pytest.mark.filterwarnings("ignore:this loader is iterated again")
@pytest.mark.parametrize(("topology", "loader", "layout"), all_scenarios())
def test_the_state_is_the_same_in_all_processes_and_in_one(runs, alone, topology, loader, layout):
    results = results_of(runs, topology, loader, layout)
    with iter(alone(loader)) as iterator:
        for number, state in enumerate(results[0]["states"]):
            next(iterator)
            expected = iterator.get_state()
            assert state == expected, number
    assert all(result["states"] == results[0]["states"] for result in results)


# --- evaluation -------------------------------------------------------------------------------


@pytest.mark.parametrize(("topology", "loader", "layout"), all_scenarios(["padded"]))
def test_with_a_mask_every_row_comes_once_in_as_many_steps_everywhere(
    runs, alone, topology, loader, layout
):
    results = results_of(runs, topology, loader, layout)
    numbers = [[step for step in r["steps"] if isinstance(step, int)] for r in results]
    assert all(steps == [0, 1, 2, 3, 4] for steps in numbers)
    masks = [
        processes.whole_batch([result["steps"][step] for result in results])["mask"]
        for step in range(5)
    ]
    assert sum(mask.sum() for mask in masks) == program.ROWS
    seen = np.concatenate([alone(loader).indices(step)[mask] for step, mask in enumerate(masks)])
    assert sorted(seen) == list(range(program.ROWS))


# --- hooks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("layout", ["data", "mixed up", "uneven", "replicated"])
def test_a_hook_sees_the_rows_of_its_process(runs, topology, layout):
    for result in results_of(runs, topology, "hook", layout):
        for batch in result["steps"].values():
            own = processes.places(batch, ["image", "label"])
            assert processes.places(batch, ["seen"]) == own
            for _, piece in batch["seen"]["pieces"]:
                assert (piece == len(own)).all()


# --- reads ------------------------------------------------------------------------------------


def partner_steps(size, own, read, order):
    """Return the distances to the partners around the batch that explain exactly the rows that were read."""
    return {
        step
        for step in range(1, size)
        if sorted(order[sorted(own | {(place + step) % size for place in own})]) == read
    }


@pytest.mark.parametrize(("topology", "loader", "layout"), all_scenarios(program.COUNTED))
@pytest.mark.parametrize("field", ["image", "label"])
def test_a_process_reads_the_rows_of_its_devices(runs, alone, topology, loader, layout, field):
    results = results_of(runs, topology, loader, layout)
    for step in program.COUNTED_STEPS:
        order = alone(loader).indices(step)
        possible = set(range(1, program.BATCH))
        for result in results:
            own = processes.places(result["steps"]["counted", step], [field])
            read = sorted(result["read"][step][field])
            if loader == "mixup":
                assert len(own) <= len(read) <= min(2 * len(own), program.BATCH)
                possible &= partner_steps(program.BATCH, own, read, order)
            else:
                assert read == sorted(order[sorted(own)])
        assert possible, "the partners are not one step further around the batch"


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_processes_share_the_work(runs, topology):
    results = results_of(runs, topology, "augmented", "data")
    read = [len(result["read"][0]["image"]) for result in results]
    assert read == [program.BATCH // len(read)] * len(read)


def test_the_same_rows_on_two_hosts_are_read_by_both(runs):
    first, second = results_of(runs, "2x2", "plain", "data x model")
    assert len(first["read"][0]["image"]) == program.BATCH
    assert sorted(first["read"][0]["image"]) == sorted(second["read"][0]["image"])


def rows_held(runs, topology, layout, process, field="label"):
    """Return the places of the first batch that a process holds."""
    result = results_of(runs, topology, "plain", layout)[process]
    return processes.places(result["steps"][0], [field])


def test_the_layouts_are_what_they_are_called(runs):
    held = functools.partial(rows_held, runs, "2x2")
    assert held("data", 1) == set(range(60, 120))
    assert held("mixed up", 0) != held("data", 0)
    assert [len(held("uneven", process)) for process in range(2)] == [80, 40]
    for process in range(2):
        assert len(held("data x model", process)) == program.BATCH
        assert len(held("labels everywhere", process, "image")) == 60
    assert held("other rows for each field", 0) == set(range(60))


@pytest.mark.long
def test_the_layouts_are_so_over_more_devices(runs):
    held = functools.partial(rows_held, runs, "2x4")
    assert [len(rows_held(runs, "4x2", "uneven", process)) for process in range(4)] == [
        48, 24, 24, 24,
    ]  # fmt: skip
    assert [len(held("uneven", process)) for process in range(2)] == [96, 24]
    for process in range(2):
        assert len(held("data x model", process)) == program.BATCH
        assert len(held("labels everywhere", process, "image")) == 60
    assert held("other rows for each field", 0) == set(range(60))


# --- refusals ---------------------------------------------------------------------------------

REFUSALS = {
    "keep": ['"pad"', "10 rows"],
    "default of a finite loader": ['"pad"', "10 rows"],
    "straddling end": ['"pad"', "10 rows"],
    "batch size": ["`sharding`", "'image'", "rows"],
    "unknown field": ["`sharding`", "'name'", "'label'"],
    "missing field": ["`sharding`", "'image'", "'label'"],
    "missing mask": ["`sharding`", "'mask'"],
    "no sharding": ["sharding['label']", "must be a jax.sharding.Sharding"],
    "more axes than the field": ["'label'", "`sharding`"],
    "another axis than the field has": ["'label'", "`sharding`"],
    "hook with other rows": ["`transform`", "rows", "'label'"],
    "hook that drops rows": ["`transform` returned", "'image'", "first axis"],
    "hook that adds a number": ["`transform` returned", "'number'", "first axis"],
}


FEW_AND_MANY = ["2x2", pytest.param("4x2", marks=pytest.mark.long)]


@pytest.mark.parametrize("topology", FEW_AND_MANY)
@pytest.mark.parametrize("case", REFUSALS)
def test_arguments_that_cannot_work_are_refused_in_every_process(runs, topology, case):
    for process in runs(topology):
        message = process["refusals"][case]
        assert message is not None
        assert [word for word in REFUSALS[case] if word not in message] == []


@pytest.mark.parametrize("topology", FEW_AND_MANY)
def test_a_state_that_leaves_a_last_batch_that_cannot_be_divided_is_refused_at_once(runs, topology):
    """Refuse it at once, not after hours of training."""
    for process in runs(topology):
        message = process["refusals"]["resumed between batches"]
        assert message is not None
        assert '"pad"' in message
        assert "after step" not in message


@pytest.mark.parametrize("topology", ["3x1", *FEW_AND_MANY])
def test_a_process_without_a_device_of_the_sharding_is_told_so(runs, topology):
    first, *others = (p["refusals"]["devices of another process"] for p in runs(topology))
    assert first is None
    for message in others:
        assert "no device of this process" in message
        assert "`sharding`" in message


# --- the checks themselves --------------------------------------------------------------------


def piece(start, stop, values):
    part = {"shape": (4,), "dtype": np.dtype(int), "pieces": []}
    return {**part, "pieces": [([(start, stop)], np.array(values))]}


def test_arrays_with_holes_or_replicas_that_differ_are_found():
    assert processes.whole([piece(0, 2, [1, 2]), piece(2, 4, [3, 4])]).tolist() == [1, 2, 3, 4]
    with pytest.raises(AssertionError, match="no process holds"):
        processes.whole([piece(0, 2, [1, 2]), piece(1, 3, [2, 3])])
    with pytest.raises(AssertionError, match="replicas differ"):
        processes.whole([piece(0, 2, [1, 2]), piece(1, 4, [9, 3, 4])])


def test_rows_too_many_or_too_few_are_found():
    order = np.arange(12)[::-1]
    own = {0, 1, 2}
    exact = sorted(order[[0, 1, 2, 5, 6, 7]])
    assert partner_steps(12, own, exact, order) == {5}
    assert partner_steps(12, own, exact[1:], order) == set()
    assert partner_steps(12, own, [0, *exact], order) == set()


def test_a_process_that_fails_is_reported_with_its_words(forking, tmp_path):
    with pytest.raises(AssertionError, match="KeyError: 'no such job'"):
        processes.run(forking, tmp_path, 1, 1, {"no such job": {}})


def test_a_process_that_never_ends_is_ended():
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    assert processes.wait([started], 0.2) == [None]
    assert started.poll() is not None
