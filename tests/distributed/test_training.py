"""Training over several processes equals that in one, and ends with JAX's error when one of them dies."""

import re

import jax
import numpy as np
import pytest

from loaderx import DataLoader
from tests.distributed import processes, program
from tests.distributed.test_batches import TOPOLOGIES
from tests.waiting import PATIENCE

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def batches(runs):
    """Return the batches of one process."""
    dataset, options = program.dataset_and_options("augmented", runs.folder)
    loader = DataLoader(dataset, output="numpy", **options)
    return [loader.batch(step) for step in range(program.TRAINING_STEPS)]


@pytest.fixture(scope="module")
def losses(batches):
    """Return the losses of one process with one device."""
    parameters = jax.jit(program.initial_parameters)()
    found = []
    for batch in batches:
        parameters, loss = program.training_step(parameters, batch)
        found.append(np.asarray(loss))
    return found


def checksum(image):
    """Return the result of `local_checksum` for a whole batch: its NumPy twin."""
    bits = image.view(np.uint32).reshape(len(image), -1)
    return int((bits * np.arange(1, len(image) + 1, dtype=np.uint32)[:, None]).sum(dtype=np.uint32))


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_losses_are_those_of_one_device(runs, losses, topology):
    for process in runs(topology):
        np.testing.assert_allclose(process["training"]["losses"], losses, rtol=2e-5)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_losses_are_the_same_bits_in_all_processes(runs, topology):
    first, *others = (process["training"]["losses"] for process in runs(topology))
    assert all(np.array_equal(losses, first) for losses in others)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_psum_of_whole_numbers_is_the_same_bits_everywhere(runs, batches, topology):
    expected = [checksum(batch["image"]) for batch in batches]
    assert len(set(expected)) == program.TRAINING_STEPS
    for process in runs(topology):
        assert [number % 2**32 for number in process["training"]["checksums"]] == expected


def test_other_batches_would_have_other_losses_and_sums(batches, losses):
    parameters = jax.jit(program.initial_parameters)()
    late = program.training_step(parameters, batches[1])[1]
    assert abs(late - losses[0]) > 1e-3
    first = batches[0]["image"]
    assert checksum(np.roll(first, 1, axis=0)) != checksum(first)


# --- a process that dies ----------------------------------------------------------------------

# Starting processes takes most of the time: one case here, the others in `make test-long`.
DEATHS = {
    (0, "in a step"): [],
    (1, "between steps"): [pytest.mark.long],
    (1, "in a step"): [pytest.mark.long],
    (0, "between steps"): [pytest.mark.long],
}


@pytest.fixture(scope="module")
def deaths(begun_deaths):
    """Return the exit codes and the output of the processes, by case."""
    everyone = [process for started, _, _ in begun_deaths.values() for process in started]
    all_codes = processes.wait(everyone, PATIENCE, one_failure_ends_it=False)
    return {
        case: (
            all_codes[2 * number : 2 * number + 2],
            [(folder / f"words.{port}.{process}").read_text() for process in range(2)],
            [(folder / f"steps.{process}").read_text().splitlines() for process in range(2)],
        )
        for number, (case, (_, folder, port)) in enumerate(begun_deaths.items())
    }


@pytest.mark.parametrize(
    ("victim", "how"), [pytest.param(*case, marks=marks) for case, marks in DEATHS.items()]
)
def test_when_a_process_dies_the_other_ends_with_an_error_of_jax(deaths, victim, how):
    codes, words, steps = deaths[victim, how]
    other = 1 - victim
    assert codes[victim] == 41, words[victim]
    assert codes[other] is not None, f"it still runs after {PATIENCE} s:\n{words[other]}"
    assert codes[other] != 0
    assert len(steps[victim]) == 4
    assert len(steps[other]) >= 2
    assert re.search(r"jax\.errors\.|because the JAX distributed service detected", words[other]), (
        words[other]
    )
    assert "loaderx.errors" not in words[other]
