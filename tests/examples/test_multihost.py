"""The example of several processes: a run resumes from a checkpoint, with the same losses, on twice as many."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "multihost.py"

pytestmark = pytest.mark.timeout(900)

# Processes and devices of each. Most of the time is that of starting processes: those of the example are left to
# `make test-long`.
SMALL, OWN = (1, 2), (2, 2)


@pytest.fixture(scope="module", params=[SMALL, pytest.param(OWN, marks=pytest.mark.long)], ids=str)
def topology(request):
    return request.param


@pytest.fixture(scope="module")
def text(topology, tmp_path_factory):
    arguments = [] if topology == OWN else map(str, topology)
    folder = tmp_path_factory.mktemp("multihost")
    # A file, because a pipe would stay open in processes that outlive this one.
    with (folder / "words").open("w+") as words:
        finished = subprocess.run(
            [sys.executable, EXAMPLE, *arguments],
            cwd=folder,
            # Compiling a program that runs for a moment takes longer than running it as it is.
            env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
            stdout=words,
            stderr=subprocess.STDOUT,
            timeout=870,
        )
        words.seek(0)
        text = words.read()
    assert finished.returncode == 0, text
    return text


@pytest.fixture(scope="module")
def losses(text):
    """Of both runs the losses that were printed, by step."""
    runs = re.split(r"^\d processes", text, flags=re.M)[1:]
    return [dict(re.findall(r"step +(\d+)  loss (\S+)", run)) for run in runs]


def test_the_training_learns(losses):
    assert list(losses[0]) == ["1", "5", "10", "15", "20"]
    assert float(losses[0]["20"]) < 0.6 * float(losses[0]["1"])


def test_a_checkpoint_resumes_over_more_processes_with_the_same_losses(losses):
    assert list(losses[1]) == ["11", "15", "20"]
    for step in ("15", "20"):
        assert float(losses[1][step]) == pytest.approx(float(losses[0][step]), abs=1e-5)


def test_batches_are_global_and_each_process_has_its_part(text, topology):
    processes, devices = topology
    for count, each in ((processes, devices), (2 * processes, devices // 2)):
        line = f"{count} processes x {each} devices, global batches of [96, 8, 8, 1], "
        assert f"{line}{96 // count} rows of each" in text
    assert '"position": 960' in text


def test_nothing_but_the_report_is_printed(text):
    assert len(text.splitlines()) == 15, text
