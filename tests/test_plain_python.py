"""The tests of the kernels hold in plain Python, too: `NUMBA_DISABLE_JIT=1`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core import config

from tests.conftest import CASES

REPOSITORY = Path(__file__).parents[1]
# Tests of these are about compiling itself.
COMPILING = ("test_compilation", "test_numba_internals", "test_progress", "test_uninterrupted")
FILES = sorted(
    file.relative_to(REPOSITORY)
    for file in REPOSITORY.glob("tests/kernels/test_*.py")
    if file.stem not in COMPILING
)

pytestmark = [
    pytest.mark.skipif(bool(config.DISABLE_JIT), reason="this is such a run"),
    pytest.mark.timeout(1200),  # a thousand tests in one
]


# The compiled kernels pass all cases in either run. In plain Python all take more than three times as long as three of
# each.
@pytest.mark.parametrize(
    ("cases", "fewest"),
    [
        pytest.param({CASES: "3"}, 700, id="three cases of every test"),
        pytest.param({}, 2800, id="all cases", marks=pytest.mark.long),
    ],
)
def test_kernels_pass_their_tests_in_plain_python(tmp_path, cases, fewest):
    # A folder of its own: in the common one several runs clean up after each other, and one may fail by that.
    options = ["-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inside'}"]
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", *FILES, *options],
        cwd=REPOSITORY,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", **cases},
        capture_output=True,
        text=True,
        timeout=1150,
    )
    assert finished.returncode == 0, finished.stdout[-5000:] + finished.stderr
    assert int(re.search(r"(\d+) passed", finished.stdout)[1]) > fewest
