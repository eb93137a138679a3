"""Statements to check in a process with certain settings; all of one setting share one process."""

import functools
import json
import os
import traceback
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def outcomes(statements):
    """Check every statement; return an empty text, or the failure, for each."""
    texts = {}
    for name, check in statements.items():
        try:
            check()
            texts[name] = ""
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - the failure of one test
            texts[name] = traceback.format_exc()
    return texts


def assert_holds(forking, file, setting, environment, statement):
    """Check one of the STATEMENTS of a test file in a process with this environment."""
    process = process_with(forking, file, setting, tuple(environment.items()))
    assert process.returncode == 0, process.stderr
    failure = json.loads(process.stdout)[statement]
    assert not failure, failure


@functools.cache
def process_with(forking, file, setting, environment):
    """Start one process for all statements of a file that need a setting."""
    program = (
        "import json, runpy\n"
        "from tests.loaderx.settings import outcomes\n"
        f"module = runpy.run_path({str(file)!r})\n"
        f"print(json.dumps(outcomes(module['STATEMENTS'][{setting!r}])))\n"
    )
    return forking.run(program, env=os.environ | dict(environment), cwd=ROOT)
