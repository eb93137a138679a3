"""Examples run inside of the tests: what they import is there already, and most of what they take is that."""

import runpy
import sys
import threading
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """A function that runs an example as a program in an empty folder, and returns what it prints."""

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name), *map(str, arguments)])
        monkeypatch.chdir(tmp_path)
        capsys.readouterr()
        before = set(threading.enumerate())
        runpy.run_path(sys.argv[0], run_name="__main__")
        # That of tqdm is one for the whole process.
        left = {thread.name for thread in set(threading.enumerate()) - before} - {"tqdm_monitor"}
        assert left == set(), "the example leaves threads behind"
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out

    return run
