"""Examples run inside of the tests: their imports, which are most of their time, are there already."""

import gc
import runpy
import sys
import threading
from pathlib import Path

import jax
import pytest

from tests.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """A function that runs an example as a program in an empty folder, and returns what it prints."""

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name), *map(str, arguments)])
        monkeypatch.chdir(tmp_path)
        capsys.readouterr()
        before = set(threading.enumerate())
        # To optimise models that train for a moment takes longer than they train.
        setting = jax.config.read("jax_disable_most_optimizations")
        jax.config.update("jax_disable_most_optimizations", True)
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        finally:
            jax.config.update("jax_disable_most_optimizations", setting)

        def left():
            """Threads that the example leaves; that of tqdm is one for the whole process."""
            names = {thread.name for thread in set(threading.enumerate()) - before}
            return names - {"tqdm_monitor"}

        # Those of an iterator that was dropped are asked to end, and do so soon.
        gc.collect()
        wait_until(lambda: not left())
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out

    return run
