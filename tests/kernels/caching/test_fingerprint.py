"""The fingerprint of a function changes with everything that its compiled code depends on, and with nothing else."""

import collections
import enum
import functools
import importlib
import itertools
import math
import os
import struct
import subprocess
import sys
import types
from pathlib import Path

import ml_dtypes
import numba
import numpy as np
import pytest
from numba.core import config
from numba.experimental import jitclass
from numba.extending import intrinsic

if config.DISABLE_JIT:
    pytest.skip("numba may not compile", allow_module_level=True)

from loaderx import transforms  # noqa: F401 - it registers its functions
from loaderx.kernels.caching.extensions import foreign_extensions
from loaderx.kernels.caching.fingerprint import Uncacheable, fingerprint

REPOSITORY = Path(__file__).parents[3]
FUNCTION = """
def op(x, amount=1.0):
    x[0] = level * amount
"""


def made(source=FUNCTION, name="op", **values):
    """Return a function of a module of its own, which holds these values."""
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


# Other code of the same module has the same name; only its content differs.
OtherMode.__name__, OtherMode.__qualname__ = Mode.__name__, Mode.__qualname__


class Plain(enum.Enum):
    LOW = 1
    HIGH = 2
    TOP = HIGH


class OtherPlain(enum.Enum):
    LOW = 1
    HIGH = 3
    TOP = HIGH


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


OtherPlain.__name__, OtherPlain.__qualname__ = Plain.__name__, Plain.__qualname__
Point = collections.namedtuple("Point", "x y")
Swapped = collections.namedtuple("Point", "y x")
Defaulted = collections.namedtuple("Point", "x y", defaults=[1])


def nan(payload):
    return struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000000 + payload))[0]


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
    # As in real packages, it can be reached from its own module.
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
    "the arguments that have a name": (
        made("def op(x, y, /):\n    x[0] = y"),
        made("def op(x, /, y):\n    x[0] = y"),
    ),
    "where an exception is caught": (
        made(
            "def op(x):\n    try:\n        x[0] = 1\n        x[1] = 2\n    except Exception:\n        x[0] = 3"
        ),
        made(
            "def op(x):\n    x[0] = 1\n    try:\n        x[1] = 2\n    except Exception:\n        x[0] = 3"
        ),
    ),
    "an exception of the user's": (
        made(level=type("WrongInput", (ValueError,), {"__module__": "own"})),
        made(level=type("OtherInput", (ValueError,), {"__module__": "own"})),
    ),
    "the signature of a jitted helper": (
        made(CALLS, helper=numba.njit("float64(float64)")(helper())),
        made(CALLS, helper=numba.njit("float32(float64)")(helper())),
    ),
    "the signature of a vectorized helper": (
        made(CALLS, helper=numba.vectorize(["float64(float64)"])(helper())),
        made(CALLS, helper=numba.vectorize(["float32(float32)"])(helper())),
    ),
    "what a name is without a global": (made(), made(level=None)),
    "what a helper that is met twice is": (
        made("def op(x):\n    x[0] = a(b(0))", a=(first := helper()), b=first),
        made("def op(x):\n    x[0] = a(b(0))", a=first, b=helper("return v + 2")),
    ),
    "the version of a package": (
        made(level=module_of("numpy", __version__="2.0")),
        made(level=module_of("numpy", __version__="2.1")),
    ),
}


# No two of these are the same to compiled code, though many look alike, or are equal.
VALUES = {
    "integers": (1, True, 1.0, 1 + 0j, "1", b"1", np.int8(1), np.uint8(1), np.int64(1), np.bool_(True), Mode.FAST),
    "zeros": (
        0.0, -0.0, 0j, complex(-0.0, 0.0), complex(0.0, -0.0), np.float64(0.0), np.float64(-0.0), np.float32(0.0),
    ),
    "numbers that are nan": (nan(0), nan(1), -nan(0), np.float64(nan(0)), np.float64(nan(1))),
    "nothing": (None, ..., "", b"", (), [], {}, set(), frozenset(), np.zeros(0), np.zeros(0, np.int8), "None", False),
    "texts": ("a", b"a", "ab", ("a", "b"), ("ab",), ("a", "b", ""), ["a", "b"], "\ud800", "é", "é".encode()),
    "tuples": (
        (1, 2, 3, 4), ((1, 2), (3, 4)), ((1, 2, 3), 4), (1, (2, 3), 4), ((1, 2), 3, 4), (1, 2, (3, 4)), ((1, 2, 3, 4),),
        ((), 1, 2, 3, 4), [1, 2, 3, 4], [[1, 2], [3, 4]], ([1, 2], [3, 4]), {1: 2, 3: 4}, {1, 2, 3, 4}, slice(1, 2, 3),
        range(1, 2, 3), (1, 2, 3),
    ),
    "named tuples": (
        Point(1, 2), Point(2, 1), Swapped(1, 2), Swapped(2, 1), Defaulted(1, 2), (1, 2), Point, Swapped, Defaulted,
    ),
    "enumerations": (
        Plain, OtherPlain, Access, Plain.LOW, Plain.HIGH, OtherPlain.LOW, OtherPlain.HIGH, Access.READ, Access.WRITE,
        Access.READ | Access.WRITE, Access.WRITE | Access.RUN, Access(0), Mode.FAST, OtherMode.FAST, 1, 2, "LOW",
    ),
    "dictionaries": (
        {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 1}, {"a": (1, "b", 2)}, {"a": {"b": 2}}, {"a": 1},
    ),
    "sets": ({1, 2}, {(1, 2)}, {(1,), (2,)}, {"1", "2"}, {1, "2"}, frozenset({1, 2}), {frozenset({1, 2})}, {True, 2}),
    "types": (
        numba.float32, numba.float64, numba.int32, numba.uint32, numba.float32[:], numba.float32[::1],
        numba.float32[:, :],
        numba.types.Array(numba.float32, 1, "C", readonly=True), numba.types.UniTuple(numba.int64, 2),
        numba.types.Tuple((numba.int64, numba.float64)), numba.types.literal(1), numba.types.literal(2),
        np.float32, np.float64, np.dtype("f4"), np.dtype("f8"), np.dtype(">f4"), float, int,
    ),
    "dtypes": (
        np.dtype([("a", "i4"), ("b", "f4")]), np.dtype([("b", "i4"), ("a", "f4")]),
        np.dtype([("a", "f4"), ("b", "i4")]),
        np.dtype([("a", "i4"), ("b", "f4")], align=True), np.dtype([("a", "i1"), ("b", "f4")]),
        np.dtype([("a", "i1"), ("b", "f4")], align=True), np.dtype(("f4", (2,))), np.dtype("V8"), np.dtype("V2"),
        np.dtype(ml_dtypes.bfloat16), np.dtype("f2"), np.dtype("M8[s]"), np.dtype("M8[ns]"), np.dtype("m8[s]"),
        np.dtype([("a", [("a", "i4"), ("b", "f4")])]),
    ),
    "arrays": (
        ROWS := np.arange(6.0).reshape(2, 3), np.asfortranarray(ROWS), ROWS.reshape(3, 2), ROWS.ravel(),
        ROWS.astype("f4"),
        ROWS.astype(">f8"), np.repeat(ROWS, 2, axis=1)[:, ::2], np.array(6.0), np.float64(6.0), ROWS.tolist(),
        np.array([0.0]), np.array([-0.0]), np.array([nan(1)]), np.array([nan(2)]), ROWS.view("V8"), ROWS.view("i8"),
        np.array(["a"]), np.array([b"a"]), np.array(["M"], "S4"), np.zeros(2, "M8[s]"), np.zeros(2, "M8[ns]"),
    ),
    "functions": (np.sin, np.cos, math.sin, math.cos, len, abs, np.clip, np, math, np.random, numba.prange, helper()),
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
def test_no_two_values_have_the_same_fingerprint(kind):
    for around in (lambda value: value, lambda value: (value, 1), lambda value: [[value]]):
        found = [fingerprint(made(level=around(value))) for value in VALUES[kind]]
        for (a, one), (b, other) in itertools.combinations(
            zip(VALUES[kind], found, strict=True), 2
        ):
            assert one != other, (a, b)
        assert found == [fingerprint(made(level=around(value))) for value in VALUES[kind]]


class Stateful:
    gain = 2.0


@jitclass([("value", numba.float64)])
class Compiled:
    def __init__(self, value):
        self.value = value


@intrinsic
def generated(typing_context, value):
    return value(value), lambda context, builder, signature, arguments: arguments[0]


class OwnType(numba.types.Type):
    pass


class Words(str):
    __slots__ = ()


# Made when they are asked for: some are compiled.
@pytest.mark.parametrize(
    "make",
    [
        lambda: object(),
        lambda: Stateful(),
        lambda: Stateful,
        lambda: Compiled,
        lambda: Compiled.class_type,
        lambda: generated,
        lambda: OwnType("own"),
        lambda: Words("a"),
        lambda: functools.partial(helper(), 1),
        lambda: [].append,
        lambda: helper().__get__(1),
        lambda: np.array([None]),
        lambda: np.ma.zeros(2),
        lambda: np.frompyfunc(abs, 1, 1),
        lambda: numba.typed.List([1]),
        lambda: numba.guvectorize("(n)->(n)")(lambda x, out: None),
        lambda: numba.cfunc("float64(float64)")(lambda v: v + 1),
        lambda: types.SimpleNamespace(gain=1.0),
        lambda: type("WrongInput", (ValueError,), {"__module__": "__main__"}),
        lambda: iter([1]),
    ],
)
def test_values_that_cannot_be_known_in_full_have_no_fingerprint(make):
    value = make()
    for held in (value, (1, value), [value], {"a": value}):
        with pytest.raises(Uncacheable):
            fingerprint(made(level=held))
    with pytest.raises(Uncacheable):
        fingerprint(closure_over(value))
    tools = module_of("tools", LEVEL=value, gain=helper())
    with pytest.raises(Uncacheable):
        fingerprint(made(THROUGH_MODULE, tools=tools))
    # A name that is not read does not count, nor does an attribute of the same name.
    assert fingerprint(made(level=1, other=value)) == fingerprint(made(level=1))
    shape = made("def op(x):\n    x[0] = x.shape[0]", shape=value)
    assert fingerprint(shape) == fingerprint(made("def op(x):\n    x[0] = x.shape[0]"))


def test_names_that_are_read_from_a_module_must_be_in_it():
    by_name = "def op(x):\n    x[0] = getattr(tools, 'LEVEL')"
    with pytest.raises(Uncacheable, match="'tools' is decided later"):
        fingerprint(made(by_name, tools=module_of("tools", LEVEL=1)))
    lazy = module_of("tools", LEVEL=1, gain=helper(), __getattr__=lambda name: 1)
    with pytest.raises(Uncacheable, match="'tools' is decided later"):
        fingerprint(made(THROUGH_MODULE, tools=lazy))


@pytest.mark.parametrize("name", ["statistics", "profile", "code", "scipy", "jax", "numpy", "math"])
def test_a_module_is_known_by_its_file_not_by_its_name(name, tmp_path, monkeypatch):
    found = []
    for level in ("1", "2"):
        file = tmp_path / level / f"{name}.py"
        file.parent.mkdir()
        source = (
            f"LEVEL = {level}\ndef gain(v):\n    return v\ndef other(v):\n    return v * {level}\n"
        )
        file.write_text(source)
        specification = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(specification)
        monkeypatch.setitem(sys.modules, name, module)
        specification.loader.exec_module(module)
        found += [fingerprint(made(THROUGH_MODULE, tools=module)), fingerprint(module.other)]
        found += [fingerprint(made(CALLS, helper=module.other))]
    assert len(set(found)) == 6


def test_a_value_that_was_put_into_a_known_package_counts(monkeypatch):
    code = "def op(x):\n    x[0] = math.sin(x[0]) + math.LEVEL"
    found = []
    for level in (1, 2, helper(), helper("return v")):
        monkeypatch.setattr(math, "LEVEL", level, raising=False)
        found.append(fingerprint(made(code, math=math)))
    monkeypatch.setattr(math, "sin", helper())
    found.append(fingerprint(made(code, math=math)))
    assert len(set(found)) == 5


def test_a_function_that_only_says_to_be_of_a_known_package_is_looked_into():
    found = []
    for source in ("return v + 1", "return v + 2"):
        pretending = helper(source)
        pretending.__module__, pretending.__qualname__ = "numpy", "clip"
        found.append(fingerprint(made(CALLS, helper=pretending)))
    assert len(set(found)) == 2


def test_lists_and_dictionaries_that_contain_themselves_have_one():
    circle = [1]
    circle.append(circle)
    loop = {"a": 1}
    loop["self"] = loop
    assert fingerprint(made(level=circle)) != fingerprint(made(level=[1, [1]]))
    assert fingerprint(made(level=loop)) != fingerprint(made(level={"a": 1, "self": {"a": 1}}))


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
    assert fingerprint(made(level=array)) == fingerprint(made(level=array.copy()))


def test_every_function_of_the_built_in_transforms_has_one():
    ours = [
        extension.origin
        for extension in foreign_extensions()
        if extension.called.startswith("loaderx.transforms.")
    ]
    assert len(ours) > 20
    assert len({fingerprint(function) for function in ours}) == len(ours)


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
from loaderx.kernels.caching.fingerprint import fingerprint
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
