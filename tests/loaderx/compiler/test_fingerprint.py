"""The fingerprint of a function changes with everything that its compiled code depends on, and with nothing else."""

import enum
import os
import subprocess
import sys
import types
from pathlib import Path

import numba
import numpy as np
import pytest

from loaderx.compiler.fingerprint import fingerprint

REPOSITORY = Path(__file__).parents[3]
FUNCTION = """
def op(x, amount=1.0):
    x[0] = level * amount
"""


def made(source=FUNCTION, name="op", **values):
    """A function of a module of its own, in which there are these values."""
    module = {"__name__": "somewhere", "np": np, **values}
    exec(source, module)
    return module[name]


def module_of(name, **values):
    module = types.ModuleType(name)
    vars(module).update(values)
    return module


def closure_over(value):
    def op(x):
        x[0] = value

    return op


class Mode(enum.IntEnum):
    FAST = 1


class OtherMode(enum.IntEnum):
    FAST = 2


# Other code of the same module has the same name; only what is in it differs.
OtherMode.__name__, OtherMode.__qualname__ = Mode.__name__, Mode.__qualname__


def helper(source="return v + 1"):
    return made(f"def helper(v):\n    {source}", "helper")


CALLS = "def op(x):\n    x[0] = helper(x[0])"
CALLS_DEEPLY = "def op(x):\n    x[0] = first(x[0])"
THROUGH_MODULE = "def op(x):\n    x[0] = tools.gain(x[0]) * tools.LEVEL"
THROUGH_PACKAGE = "def op(x):\n    x[0] = package.tools.gain(x[0])"


def calling_deeply(inner):
    first = made("def first(v):\n    return second(v)", "first", second=inner)
    return made(CALLS_DEEPLY, first=first)


def through_package(gain):
    tools = module_of("package.tools", gain=gain)
    package = module_of("package", tools=tools)
    # As real packages do, it can be reached from its own module.
    tools.package = package
    return made(THROUGH_PACKAGE, package=package)


PAIRS = {
    "its code": (made(level=1), made(FUNCTION.replace("*", "+"), level=1)),
    "a name in it": (made("def op(x):\n    x.sort()"), made("def op(x):\n    x.fill()")),
    "a constant": (made("def op(x):\n    x[0] = 1"), made("def op(x):\n    x[0] = 2")),
    "the type of a constant": (
        made("def op(x):\n    x[0] = 1"),
        made("def op(x):\n    x[0] = 1.0"),
    ),
    "a tuple of constants": (
        made("def op(x):\n    x[0] = len(x) in (1, 3)"),
        made("def op(x):\n    x[0] = len(x) in (1, 4)"),
    ),
    "a set of constants": (
        made("def op(x):\n    x[0] = len(x) in {1, 3}"),
        made("def op(x):\n    x[0] = len(x) in {1, 4}"),
    ),
    "a default": (made(level=1), made(FUNCTION.replace("1.0", "2.0"), level=1)),
    "a function inside of it": (
        made("def op(x):\n    x[0] = (lambda v: v + 1)(x[0])"),
        made("def op(x):\n    x[0] = (lambda v: v + 2)(x[0])"),
    ),
    "a global number": (made(level=1), made(level=2)),
    "a global truth": (made(level=True), made(level=False)),
    "a global NumPy scalar": (made(level=np.float32(1)), made(level=np.float64(1))),
    "a global array": (made(level=np.array([1, 2])), made(level=np.array([1, 3]))),
    "the dtype of a global array": (
        made(level=np.zeros(2, np.int32)),
        made(level=np.zeros(2, np.float32)),
    ),
    "the shape of a global array": (
        made(level=np.zeros((2, 3))),
        made(level=np.zeros((3, 2))),
    ),
    "a global tuple": (made(level=(1, (2, 3))), made(level=(1, (2, 4)))),
    "a global enumeration": (made(level=Mode), made(level=OtherMode)),
    "what a global function is": (made(level=np.sin), made(level=np.cos)),
    "a closure": (closure_over(1), closure_over(2)),
    "a function in a closure": (closure_over(helper()), closure_over(helper("return v + 2"))),
    "a helper": (made(CALLS, helper=helper()), made(CALLS, helper=helper("return v + 2"))),
    "a jitted helper": (
        made(CALLS, helper=numba.njit(helper())),
        made(CALLS, helper=numba.njit(helper("return v + 2"))),
    ),
    "how a helper is jitted": (
        made(CALLS, helper=numba.njit(helper())),
        made(CALLS, helper=numba.njit(fastmath=True)(helper())),
    ),
    "a vectorized helper": (
        made(CALLS, helper=numba.vectorize(helper())),
        made(CALLS, helper=numba.vectorize(helper("return v + 2"))),
    ),
    "a helper of a helper": (
        calling_deeply(numba.njit(helper())),
        calling_deeply(numba.njit(helper("return v + 2"))),
    ),
    "a global of a helper": (
        made(CALLS, helper=made("def helper(v):\n    return v + LEVEL", "helper", LEVEL=1)),
        made(CALLS, helper=made("def helper(v):\n    return v + LEVEL", "helper", LEVEL=2)),
    ),
    "a function of a module": (
        made(THROUGH_MODULE, tools=module_of("tools", gain=helper(), LEVEL=1)),
        made(THROUGH_MODULE, tools=module_of("tools", gain=helper("return v"), LEVEL=1)),
    ),
    "a value of a module": (
        made(THROUGH_MODULE, tools=module_of("tools", gain=helper(), LEVEL=1)),
        made(THROUGH_MODULE, tools=module_of("tools", gain=helper(), LEVEL=2)),
    ),
    "a tuple of a module": (
        made(THROUGH_MODULE, tools=module_of("tools", gain=helper(), LEVEL=(1, 2))),
        made(THROUGH_MODULE, tools=module_of("tools", gain=helper(), LEVEL=(1, 3))),
    ),
    "a function of a module of a package": (
        through_package(helper()),
        through_package(helper("return v + 2")),
    ),
    "the version of a package": (
        made(level=module_of("numpy", __version__="2.0")),
        made(level=module_of("numpy", __version__="2.1")),
    ),
}


@pytest.mark.parametrize("what", PAIRS)
def test_another_fingerprint_for_another(what):
    first, second = PAIRS[what]
    assert fingerprint(first) != fingerprint(second)


def test_the_same_code_has_the_same_fingerprint_wherever_it_stands():
    moved = "\n\n# A remark.\n" + FUNCTION.replace("):\n", "):\n    # Another.\n")
    assert fingerprint(made(level=1)) == fingerprint(made(moved, level=1))
    assert fingerprint(made(level=1)) == fingerprint(made(level=1, unrelated=7))
    assert fingerprint(closure_over(1)) == fingerprint(closure_over(1))
    array = np.arange(12.0).reshape(3, 4)
    assert fingerprint(made(level=array)) == fingerprint(made(level=np.asfortranarray(array)))


def test_the_order_of_functions_counts():
    first, second = made(level=1), made(level=2)
    assert fingerprint(first, second) != fingerprint(second, first)
    assert fingerprint(first) != fingerprint(first, first)


def test_functions_that_call_each_other_or_hold_nothing_yet_have_one():
    module = {"__name__": "somewhere"}
    exec("def even(n):\n    return n == 0 or odd(n - 1)", module)
    exec("def odd(n):\n    return n > 0 and even(n - 1)", module)
    assert fingerprint(module["even"]) == fingerprint(module["even"])

    def op(x):
        x[0] = later

    assert fingerprint(op) != fingerprint(made())
    later = 1
    assert fingerprint(op) != fingerprint(made())


PROGRAM = """
from loaderx.compiler.fingerprint import fingerprint
LEVELS = {"low": 1, "high": 2}
NAMES = frozenset({"a", "b", "c", "d", "e"})
def op(x):
    if "a" in {"a", "b", "c", "d", "e"} and NAMES:
        x[0] = LEVELS["low"]
print(fingerprint(op))
"""


def test_all_processes_agree():
    printed = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    assert len(printed.pop().strip()) == 64
