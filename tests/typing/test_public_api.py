"""Batches have types: mypy and pyright infer those that `public_api.py` asserts."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

from mypy import api

from loaderx import DataLoader
from loaderx.batch.batch_types import CommonOptions, HookOptions, Options, SingleOptions

REPOSITORY = Path(__file__).parents[2]
CASES = "tests/typing/public_api.py"


def test_mypy_infers_the_types_of_batches(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    # With the settings and so the cache of `make types`. An assertion that is wrong on purpose is marked in the file,
    # and a mark without an error is an error.
    told, complaints, status = api.run([CASES])
    assert (status, complaints) == (0, ""), told + complaints


def test_pyright_infers_the_types_of_batches():
    command = Path(sys.executable).with_name("basedpyright")
    finished = subprocess.run(
        [command, "--pythonpath", sys.executable, "--outputjson"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    told = json.loads(finished.stdout)
    assert told["summary"]["filesAnalyzed"] == 1
    assert finished.returncode == 0, told["generalDiagnostics"]


def test_the_overloads_have_the_options_of_the_loader():
    named = {"dataset", "labelset", "output"}
    parameters = inspect.signature(DataLoader).parameters.keys() - named
    assert set(Options.__annotations__) == parameters
    assert set(SingleOptions.__annotations__) == parameters
    assert set(HookOptions.__annotations__) == parameters - {"transform"}
    assert set(CommonOptions.__annotations__) <= parameters
