"""The resume example ends with the same weights whether it was killed on the way or not."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

EXAMPLE = Path(__file__).parents[2] / "examples" / "checkpoint_resume.py"
OPTIONS = ["--steps=10", "--save-every=5"]

# Runs the example, which pauses in the middle of step 7 once it has announced it.
STOPPING = """
import runpy, sys, time

def print_and_stop(text, **options):
    print(text, **options)
    if text.startswith("step 7:"):
        time.sleep(600)

sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], {"print": print_and_stop}, "__main__")
"""


def run_and_kill(folder, errors):
    """Output of a run until it was killed in the middle of step 7."""
    command = [sys.executable, "-c", STOPPING, EXAMPLE, folder, *OPTIONS]
    lines = []
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            command,
            # As `run` does.
            env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as child,
    ):
        try:
            for line in child.stdout:
                lines.append(line.rstrip("\n"))
                if line.startswith("step 7:"):
                    break
            # Written in the background. Killed before that, it would begin at step 0 again, and prove nothing.
            deadline = time.monotonic() + PATIENCE
            while child.poll() is None and not (folder / "5").exists():
                assert time.monotonic() < deadline, lines
                time.sleep(0.05)
        finally:
            child.kill()
    assert child.returncode == -9, errors.read_text()
    return lines


def steps_of(lines):
    return [int(number) for number in re.findall(r"^step (\d+): loss", "\n".join(lines), re.M)]


def digests_of(what, lines):
    """The weights at each "saving", "restored" or "weights after"."""
    found = re.findall(rf"^{what} step \d+:(?: weights)? (\w{{16}})$", "\n".join(lines), re.M)
    assert found, lines
    return found


@pytest.mark.timeout(4 * PATIENCE)
def test_killed_and_started_again_the_weights_are_those_of_an_uninterrupted_run(run, tmp_path):
    uninterrupted = run(EXAMPLE.name, tmp_path / "uninterrupted", *OPTIONS).splitlines()
    assert steps_of(uninterrupted) == list(range(1, 11))
    assert not any(line.startswith("restored") for line in uninterrupted)

    folder = tmp_path / "killed"
    killed = run_and_kill(folder, tmp_path / "stderr")
    assert steps_of(killed) == list(range(1, 8))
    assert killed == uninterrupted[: len(killed)]

    restarted = run(EXAMPLE.name, folder, *OPTIONS).splitlines()
    assert restarted[0].startswith("restored step 5: ")
    assert digests_of("restored", restarted) == digests_of("saving", killed)
    # Steps 6 and 7 are done again, with the same loss.
    assert steps_of(restarted) == list(range(6, 11))
    assert restarted[1:] == uninterrupted[len(uninterrupted) - len(restarted) + 1 :]

    assert digests_of("weights after", restarted) == digests_of("weights after", uninterrupted)
    # The digest is one that training changes.
    assert len(set(digests_of("saving", uninterrupted))) == 2
