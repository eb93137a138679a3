"""Kernels are compiled without the GIL, do the same in plain Python, and each has a twin to compare it with."""

import importlib
import inspect
import pkgutil
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numba.core import config

from loaderx import kernels
from loaderx.kernels import random
from loaderx.kernels.numba_internals import Dispatcher
from tests import reference

REPOSITORY = Path(__file__).parents[2]
compiled_only = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="numba may not compile")


def is_kernel(value):
    inside = getattr(value, "__wrapped__", None) if inspect.isfunction(value) else None
    wrapped = inside is not None and not inspect.isgeneratorfunction(inside)
    ours = getattr(value, "__module__", "").startswith("loaderx.kernels.")
    return ours and (wrapped or isinstance(value, Dispatcher))


def kernels_of(module):
    """Return the kernels of one file, by name."""
    members = vars(importlib.import_module(f"loaderx.kernels.{module}"))
    return {
        name: value
        for name, value in members.items()
        if is_kernel(value) and value.__module__ == f"loaderx.kernels.{module}"
    }


MODULES = [module.name for module in pkgutil.iter_modules(kernels.__path__)]


def test_kernels_are_found():
    assert kernels_of("random").keys() >= {"threefry", "fold", "uniforms"}
    assert kernels_of("gathering").keys() >= {"locate_rows", "copy_rows", "narrow_floats"}
    assert kernels_of("compilation") == {}


@compiled_only
@pytest.mark.parametrize("module", MODULES)
def test_every_kernel_has_a_twin_with_the_same_arguments(module):
    for name, kernel in kernels_of(module).items():
        twin = getattr(reference, name, None)
        assert twin is not None, f"tests/reference.py has no {name}"
        assert list(inspect.signature(twin).parameters) == list(
            inspect.signature(kernel.py_func).parameters
        )


@pytest.mark.parametrize("module", MODULES)
def test_kernels_are_compiled_unless_numba_may_not(module):
    for name, kernel in kernels_of(module).items():
        assert isinstance(kernel, Dispatcher) != bool(config.DISABLE_JIT), name


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Return a function that imports a module of kernels in a test."""
    monkeypatch.syspath_prepend(tmp_path)
    names = []

    def write_and_import(name, source):
        (tmp_path / f"{name}.py").write_text(source)
        names.append(name)
        return importlib.import_module(name)

    yield write_and_import
    for name in names:
        sys.modules.pop(name, None)


def test_words_wrap_and_nothing_is_said_about_it(load):
    module = load(
        "wrapping_words",
        "import numpy as np\n"
        "from loaderx.kernels.compilation import kernel\n"
        "@kernel\n"
        "def square(word, out):\n"
        "    out[0] = np.uint32(word * word)\n"
        "    out[1] = np.uint32(word - np.uint32(2**32 - 1))\n",
    )
    out = np.zeros(2, np.uint32)
    module.square(np.uint32(2**31 + 3), out)  # the suite turns warnings into errors
    assert out.tolist() == [(2**31 + 3) ** 2 % 2**32, 2**31 + 4]


@compiled_only
def test_division_by_zero_is_infinite_as_in_numpy(load):
    module = load(
        "dividing",
        "from loaderx.kernels.compilation import kernel\n"
        "@kernel\n"
        "def invert(values, out):\n"
        "    for i in range(values.shape[0]):\n"
        "        out[i] = 1.0 / values[i]\n",
    )
    out = np.zeros(3)
    module.invert(np.array([2.0, 0.0, -0.0]), out)
    assert out.tolist() == [0.5, np.inf, -np.inf]


@compiled_only
def test_other_threads_run_while_a_kernel_does():
    positions, out = np.arange(1000), np.empty((1000, 50_000))
    random.uniforms(np.uint64(0), positions[:1], out[:1])
    times = []

    def work():
        times.append(time.perf_counter())
        random.uniforms(np.uint64(0), positions, out)
        times.append(time.perf_counter())

    thread = threading.Thread(target=work)
    ticks = []
    thread.start()
    while thread.is_alive():
        ticks.append(time.perf_counter())
        time.sleep(0.001)
    thread.join()

    began, ended = times
    assert sum(began < tick < ended for tick in ticks) >= 5
