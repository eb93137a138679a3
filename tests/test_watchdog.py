"""A process of tests that hangs ends with the stacks of its threads; a worker that waits for others does not."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

REPOSITORY = Path(__file__).parents[1]
# The hooks of our tests, with half a second instead of a minute, and without the process that forks.
CONFTEST = """
import contextlib, types
from tests import conftest

conftest.GRACE = 0.5
conftest.Server = lambda: types.SimpleNamespace(path="", close=lambda: None)
pytest_configure = conftest.pytest_configure
pytest_runtest_protocol = conftest.pytest_runtest_protocol
pytest_unconfigure = conftest.pytest_unconfigure
"""
SHORT = "def test_short(): pass"
SLEEPS = "import time\ndef test_that_sleeps(): time.sleep(3)"
HANGS = """
import contextlib, time

def test_that_hangs():
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)
"""
LEAVES_A_THREAD = (
    "import threading\ndef test_thread(): threading.Thread(target=threading.Event().wait).start()"
)


def run(folder, *options, **files):
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", folder, *options, folder],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )  # fmt: skip


@pytest.mark.long
def test_a_worker_that_is_done_waits_for_the_others_for_as_long_as_these_take(tmp_path):
    finished = run(
        tmp_path, "-n2", "--dist=loadfile", "-o", "timeout=60", short=SHORT, sleeps=SLEEPS
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "2 passed" in finished.stdout
    assert finished.stderr == ""


@pytest.mark.long
@pytest.mark.parametrize(
    ("test", "place"), [(HANGS, "in test_that_hangs"), (LEAVES_A_THREAD, "in wait")]
)
def test_a_process_that_does_not_end_is_ended_with_the_stacks_of_its_threads(tmp_path, test, place):
    finished = run(tmp_path, "-o", "timeout=0.5", hangs=test)
    assert finished.returncode == 1
    assert "Timeout (" in finished.stderr
    assert place in finished.stderr
