"""A run resumed with another number of processes and another batch size continues at the very next sample."""

import itertools

import numpy as np
import pytest

from loaderx import DataLoader
from tests.distributed import processes, program

pytestmark = pytest.mark.timeout(900)


def legs(runs, name):
    """Return the global batches of each run of a chain, and the results of its processes."""
    for topology in program.RESUMED_ON:
        results = [process["resuming"][name] for process in runs(topology)]
        steps = list(results[0]["steps"])
        assert all(list(result["steps"]) == steps for result in results)
        yield (
            [processes.whole_batch([r["steps"][step] for r in results]) for step in steps],
            results,
        )


def delivered(runs, name):
    """Return all rows and images in the order of delivery, without padding."""
    batches = [batch for own, _ in legs(runs, name) for batch in own]
    masks = [batch.get("mask", np.ones(len(batch["row"]), bool)) for batch in batches]
    return {
        field: np.concatenate([b[field][mask] for b, mask in zip(batches, masks, strict=True)])
        for field in ("row", "image")
    }


def stream(rows, epochs):
    """Return all samples in order, from one process that has an epoch in a batch."""
    loader = DataLoader(
        program.resume_dataset(rows), batch_size=rows, seed=5, output="numpy",
        transforms=program.RESUME_TRANSFORMS,
    )  # fmt: skip
    batches = [loader.batch(epoch) for epoch in range(epochs)]
    return {field: np.concatenate([batch[field] for batch in batches]) for field in batches[0]}


@pytest.mark.parametrize("name", [name for name in program.RESUMES if name != "dropped"])
def test_resumed_runs_together_are_the_stream(runs, name):
    rows, options, _ = program.RESUMES[name]
    found = delivered(runs, name)
    count = len(found["row"])
    if "num_epochs" in options:
        assert count == rows * options["num_epochs"]
    expected = stream(rows, 3)
    for field, array in found.items():
        np.testing.assert_array_equal(array, expected[field][:count], err_msg=field)


@pytest.mark.parametrize("name", program.RESUMES)
def test_batches_have_the_size_that_was_asked_for(runs, name):
    planned = program.RESUMES[name][2]
    for (batches, _), (size, steps) in zip(legs(runs, name), planned, strict=True):
        assert steps is None or len(batches) == steps
        assert all(len(batch["row"]) == size for batch in batches)


@pytest.mark.parametrize("name", program.RESUMES)
def test_the_state_counts_samples_and_is_the_same_in_all_processes(runs, name):
    rows, options, _ = program.RESUMES[name]
    position = steps = 0
    for batches, results in legs(runs, name):
        state = results[0]["state"]
        assert all(result["state"] == state for result in results)
        steps += len(batches)
        position += sum(int(b["mask"].sum()) if "mask" in b else len(b["row"]) for b in batches)
        assert state["step"] == steps
        if name != "dropped":
            assert state["position"] == position
    if "num_epochs" in options:
        assert state["position"] == rows * options["num_epochs"]


def test_a_run_that_only_resumes_hands_on_what_it_got(runs):
    for name in ("directly after a resume", "before anything"):
        first, second, _ = (results[0]["state"] for _, results in legs(runs, name))
        assert first == second


def test_the_end_of_an_epoch_is_the_start_of_the_next(runs):
    first, second, third = (r[0]["state"] for _, r in legs(runs, "at the end of an epoch"))
    assert [first["position"], second["position"], third["position"]] == [384, 768, 1152]


def test_dropped_rows_are_of_the_end_of_an_epoch_and_none_comes_twice(runs):
    rows = program.RESUMES["dropped"][0]
    found = delivered(runs, "dropped")["row"]
    expected = stream(rows, 2)["row"]
    # 2 x 64 + 2 x 96, and then there are fewer than 96 left; 6 x 64 of the second epoch.
    assert len(found) == 320 + 384
    np.testing.assert_array_equal(found, [*expected[:320], *expected[400:784]])


@pytest.mark.parametrize("name", program.RESUMES)
def test_a_position_inside_a_batch_is_said_where_the_epoch_is_rounded(runs, name):
    """Resume with 96 after 64: the first epoch of "padded" and "dropped" is cut in other places."""
    said = [results[0]["warnings"] for _, results in legs(runs, name)]
    inside = {"padded": [0, 1, 1], "dropped": [0, 1, 0]}.get(name, [0, 0, 0])
    assert [len(warnings) for warnings in said] == inside
    for message in itertools.chain(*said):
        assert "samples into a batch of" in message


@pytest.mark.long
@pytest.mark.parametrize("name", program.RESUMES)
def test_the_second_run_of_a_chain_is_the_same_over_four_processes(runs, name):
    topologies = [chain[1] for chain in (program.RESUMED_ON, program.RESUMED_ON_MORE)]
    three, four = ([p["resuming"][name] for p in runs(topology)] for topology in topologies)
    assert (len(three), len(four)) == (3, 4)
    for result in four:
        assert result["state"] == three[0]["state"]
        assert result["warnings"] == three[0]["warnings"]
        assert list(result["steps"]) == list(three[0]["steps"])
    for step in three[0]["steps"]:
        whole, other = (
            processes.whole_batch([result["steps"][step] for result in results])
            for results in (three, four)
        )
        assert whole.keys() == other.keys()
        for field, array in whole.items():
            np.testing.assert_array_equal(other[field], array, strict=True, err_msg=field)
