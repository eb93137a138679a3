"""Cache of passes: never stale code from the disk or from memory, and never in need of the disk."""

import importlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numba
import numba.experimental.structref
import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as its users call it
from loaderx.compiler import failures, passes
from tests.waiting import PATIENCE

REPOSITORY = Path(__file__).parents[3]
ZEROS = np.zeros((2, 3), np.float32)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOADERX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def built(*transforms, samples=ZEROS):
    """Return the result of a chain, and whether its passes came from the disk, as in a new process."""
    passes._LOADED.clear()
    run = lx.pipeline(list(transforms))
    out = run(samples)
    chain = run.chain(lx.Spec(samples.shape[1:], samples.dtype), samples[0])
    (segment,) = chain.phases[0].segments
    return out, segment.program.cached


def module(source, **values):
    """Execute a module with this source; return its names."""
    names = {"__name__": __name__, "lx": lx, "numba": numba, "np": np, **values}
    exec(source, names)
    return names


# --- never old code ---------------------------------------------------------------------------

OP = """
@numba.njit
def inner(value):
    return value + LEVEL

@numba.njit
def helper(value):
    return inner(value) + 1

@lx.transform
def op(x):
    x[0] = helper(x[0]) + OWN
"""


def test_a_pass_is_loaded_when_nothing_changed_and_a_change_is_seen_at_once(cache):
    names = module(OP, LEVEL=10.0, OWN=100.0)

    def check_built(value, cached, names):
        out, loaded = built(names["op"])
        assert np.all(out == [value, 0, 0])
        assert loaded is cached

    check_built(111, False, names)
    check_built(111, True, names)
    check_built(111, True, module(OP, LEVEL=10.0, OWN=100.0))
    # A global of the op.
    names["OWN"] = 200.0
    check_built(211, False, names)
    # A global of a helper. `inner` was compiled with the old value, which Numba would keep.
    names["LEVEL"] = 20.0
    check_built(221, False, names)
    check_built(221, True, module(OP, LEVEL=20.0, OWN=200.0))
    # And the user's own function is unchanged.
    assert names["helper"](1.0) == names["inner"](1.0) + 1
    # A helper.
    names["helper"] = numba.njit(lambda value: value - 1)
    check_built(199, False, names)


def test_a_changed_closure_is_seen_at_once(cache):
    def made(amount):
        @numba.njit
        def helper(value):
            return value + amount

        @lx.transform
        def op(x):
            x[0] = helper(x[0]) + amount

        return op

    for amount, cached in ((1.0, False), (2.0, False), (1.0, True)):
        out, loaded = built(made(amount))
        assert np.all(out == [2 * amount, 0, 0])
        assert loaded is cached


def test_a_helper_that_calls_itself_is_compiled(cache):
    names = module(
        """
@numba.njit
def total(n):
    if n < 1:
        return START
    return n + total(n - 1)

@lx.transform
def op(x):
    x[0] = total(4)
""",
        START=0.0,
    )
    assert built(names["op"])[0][0].tolist() == [10, 0, 0]
    names["START"] = 1.0
    assert built(names["op"])[0][0].tolist() == [11, 0, 0]


def test_a_transform_of_a_jitted_function_is_compiled(cache):
    names = module(OP.replace("@lx.transform", "@lx.transform\n@numba.njit"), LEVEL=1.0, OWN=1.0)
    assert np.all(built(names["op"])[0] == [3, 0, 0])


USES = """
@lx.transform
def op(x):
    i = 0
    x[i] = {use}
"""
# Code that Numba finds by itself, or has compiled before: it computes {value}.
EXTENSIONS = {
    "an overload": (
        """
def extended(value):
    pass

@numba.extending.overload(extended)
def extended_overload(value):
    return lambda value: value + {value}
""",
        "extended(x[i])",
    ),
    "an overload of a function of NumPy": (
        """
@numba.extending.overload(np.busday_count)
def busday_overload(value):
    return lambda value: value + {value}
""",
        "np.busday_count(x[i])",
    ),
    "an overloaded method": (
        """
@numba.extending.overload_method(numba.types.Float, "raised")
def raised_overload(value):
    return lambda value: value + {value}
""",
        "np.float32(x[i]).raised()",
    ),
    "an overloaded attribute": (
        """
@numba.extending.overload_attribute(numba.types.Float, "higher")
def higher_overload(value):
    return lambda value: value + {value}
""",
        "np.float32(x[i]).higher",
    ),
    "a jitclass": (
        """
@numba.experimental.jitclass([("value", numba.float64)])
class Held:
    def __init__(self, value):
        self.value = value
    def raised(self):
        return self.value + {value}
""",
        "Held(x[i]).raised()",
    ),
    "an intrinsic": (
        """
@numba.extending.intrinsic
def generated(typing_context):
    amount = {value}
    def generate(context, builder, signature, arguments):
        return context.get_constant(numba.float64, amount)
    return numba.float64(), generate
""",
        "x[i] + generated()",
    ),
    "a function that is lowered": (
        """
def lowered(value):
    pass

@numba.extending.type_callable(lowered)
def type_lowered(context):
    return lambda value: numba.float64

@numba.extending.lower_builtin(lowered, numba.float32)
def lower_lowered(context, builder, signature, arguments):
    return context.get_constant(numba.float64, {value})
""",
        "x[i] + lowered(x[i])",
    ),
    "a structure": (
        """
@numba.experimental.structref.register
class HeldType(numba.types.StructRef):
    pass

class Held(numba.experimental.structref.StructRefProxy):
    def __new__(cls, value):
        return numba.experimental.structref.StructRefProxy.__new__(cls, value)

numba.experimental.structref.define_proxy(Held, HeldType, ["value"])

@numba.extending.overload_method(HeldType, "lifted")
def lifted_overload(held):
    return lambda held: held.value + {value}
""",
        "Held(x[i]).lifted()",
    ),
    "a jitable function": (
        """
@numba.extending.register_jitable
def extended(value):
    return value + {value}
""",
        "extended(x[i])",
    ),
    "a vectorized function": (
        """
@numba.vectorize
def extended(value):
    return value + {value}
""",
        "extended(x[i])",
    ),
    "a vectorized function with a signature": (
        """
@numba.vectorize(["float64(float64)"])
def extended(value):
    return value + {value}
""",
        "extended(x[i])",
    ),
    "a jitted function with a signature": (
        """
@numba.njit("float64(float64)")
def extended(value):
    return value + {value}
""",
        "extended(x[i])",
    ),
}
HASHED = {
    name for name in EXTENSIONS if "jitable" in name or "vectorized" in name or "jitted" in name
}
# Methods of a jitclass keep what they were compiled with, as long as the class lives.
RENEWED = [name for name in EXTENSIONS if name not in ("a jitclass", "an intrinsic")]


@pytest.mark.parametrize("what", EXTENSIONS)
def test_another_body_and_a_changed_global_of_an_extension_of_numba_are_seen(cache, what):
    source, use = EXTENSIONS[what]
    text = source + USES.format(use=use)

    def check_built(value, names):
        for cached in (False, True) if what in HASHED else (False,):
            out, loaded = built(names["op"])
            assert np.all(out == [value, 0, 0])
            assert loaded is cached

    check_built(1.0, module(text.replace("{value}", "LEVEL"), LEVEL=1.0))
    # Under another name than before: an extension of NumPy stays, and the latest is no better than the first.
    for name, other in (
        ("busday_count", "is_busday"),
        ("raised", "raised_again"),
        ("higher", "higher_again"),
    ):
        text = text.replace(name, other)
    names = module(text.replace("{value}", "(LEVEL + 1.0)"), LEVEL=1.0)
    check_built(2.0, names)
    if what in RENEWED:
        names["LEVEL"] = 2.0
        check_built(3.0, names)
    assert bool(list(cache.rglob("*.nbc"))) is (what in HASHED)


def test_a_helper_keeps_its_signature(cache):
    names = module(
        """
@numba.njit("float32(float32)")
def rounded(value):
    return value

@lx.transform
def op(x):
    x[0] = rounded(1e-9 + 1.0) - 1.0
"""
    )
    assert built(names["op"], samples=np.zeros((2, 3)))[0][0, 0] == 0


# --- never in need of the disk ----------------------------------------------------------------


@lx.transform
def count_up(x):
    for i in range(x.shape[0]):
        x[i] += i


def check(out):
    assert out.tolist() == [[0, 1, 2], [0, 1, 2]]


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def fill_with_garbage(path):
    path.write_bytes(np.random.default_rng(0).bytes(path.stat().st_size))


def test_a_damaged_file_costs_a_compilation_and_nothing_else(cache):
    check(built(count_up)[0])
    for damage in (truncate, empty, fill_with_garbage):
        for file in cache.rglob("*.nbc"):
            damage(file)
        for cached in (False, True):
            out, loaded = built(count_up)
            check(out)
            assert loaded is cached


def test_a_folder_in_the_way_of_a_lock_does_not_matter(cache):
    check(built(count_up)[0])
    for lock in list(cache.glob("*.lock")):
        lock.unlink()
        lock.mkdir()
    out, loaded = built(count_up)
    check(out)
    assert loaded


@pytest.mark.parametrize("names", [["LOADERX_CACHE_DIR"], ["HOME", "XDG_CACHE_HOME"]])
def test_where_nothing_can_be_written_it_is_compiled_every_time(tmp_path, monkeypatch, names):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.delenv("LOADERX_CACHE_DIR", raising=False)
    for name in names:
        monkeypatch.setenv(name, str(tmp_path / "file" / "folder"))
    for _ in range(2):
        out, loaded = built(count_up)
        check(out)
        assert not loaded


def test_a_cache_that_vanishes_is_made_again(cache):
    check(built(count_up)[0])
    for path in sorted(cache.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    cache.rmdir()
    out, loaded = built(count_up)
    check(out)
    assert not loaded
    assert built(count_up)[1]


# --- how it runs ------------------------------------------------------------------------------


def test_a_pass_can_run_in_many_threads_at_once():
    images = np.random.default_rng(0).integers(0, 256, (64, 8, 8, 3), np.uint8)
    # Ops with scratch memory between them.
    run = lx.pipeline([T.RandomCrop(8, pad=2), T.Brightness(0.3), T.RandomFlip(), T.ToFloat()])
    expected = run(images)
    results = [None] * 8

    def work(number):
        for _ in range(20):
            results[number] = run(images)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_rows_are_only_read():
    images = np.full((2, 4, 4, 3), 100, np.uint8)
    images.flags.writeable = False
    out = lx.pipeline([T.Brightness(0.5)])(images)
    assert np.any(out != 100)
    assert np.all(images == 100)


def test_half_precision_is_moved_as_it_is():
    images = np.random.default_rng(0).random((3, 4, 5, 3)).astype(np.float16)
    out = lx.pipeline([T.RandomFlip(1.0), T.Pad(1, fill=0.5)])(images)
    assert out.dtype == np.float16
    np.testing.assert_array_equal(out[:, 1:-1, 1:-1], images[:, :, ::-1])
    assert np.all(out[:, 0] == 0.5)


def test_samples_may_be_single_numbers():
    labels = np.arange(4)
    out = lx.pipeline([T.OneHot(4)])(labels)
    np.testing.assert_array_equal(out, np.eye(4, dtype=np.float32), strict=True)


WITHOUT_COMPILER = """
import numpy as np
import loaderx as lx
from loaderx import transforms as T
images = np.random.default_rng(0).integers(0, 256, (4, 6, 6, 3), np.uint8)
chain = [T.RandomCrop(6, pad=1), T.Brightness(0.3), T.RandomResizedCrop(4), T.Normalize(0.5, 0.2)]
result = lx.pipeline(chain)(images).tobytes()
"""


def test_without_the_compiler_the_same_bytes_come_out():
    names = {}
    exec(WITHOUT_COMPILER, names)
    assert len(names["result"]) == 4 * 4 * 4 * 3 * 4
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_COMPILER + "print(result.hex())"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    assert bytes.fromhex(finished.stdout) == names["result"]


# --- what cannot be compiled ------------------------------------------------------------------


def plain_helper(value):
    return value + 1


@lx.transform
def fine(x):
    x[0] = 1


@lx.transform
def reads_a_file(x):
    with open("values") as file:  # noqa: PTH123
        x[0] = float(file.read())


@lx.transform
def imports(x):
    import math

    x[0] = math.pi


@lx.transform
def asks_too_much(x, rng):
    x[0] = rng.choice(3, p=x)


@lx.transform
def has_too_many_axes(x):
    x[0, 0] = 1


@lx.transform
def calls_plain_python(x):
    x[0] = plain_helper(x[0])


@lx.transform
def misspelt(x):
    x[0] = undefined  # noqa: F821


@pytest.mark.parametrize(
    ("op", "reason", "code"),
    [
        (reads_a_file, "'with", None),
        (imports, "IMPORT_NAME", "import math"),
        (asks_too_much, "`rng` has random(), uniform(low, high)", "x[0] = rng.choice(3, p=x)"),
        (has_too_many_axes, "setitem(array(float32, 1d, C)", "x[0, 0] = 1"),
        (calls_plain_python, "decorate it with `@numba.njit`", None),
        (misspelt, "name 'undefined' is not defined", None),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_functions_that_numba_cannot_compile_are_explained(op, reason, code):
    name, first = op.__name__, op.py.__code__.co_firstlineno
    with pytest.raises(lx.TransformError) as refusal:
        lx.DataLoader(ZEROS, transforms=[fine, op, T.Cast("int32")])
    message = str(refusal.value)
    assert f"cannot compile the transform '{name}' ({__file__}:{first})" in message
    assert reason in message
    assert ".py(sample, np.random.default_rng(0), ...)" in message
    if code is not None:
        lines = Path(__file__).read_text().splitlines()
        line = next(n for n in range(first, first + 9) if lines[n - 1].strip() == code)
        assert f"in line {line} of {__file__}: {code}" in message
    # Nothing of the text that the user did not write, and not of ops that are right.
    for word in ("entry", "unpack", "'fine'", "cast_values", "During"):
        assert word not in message
    assert len(message.splitlines()) < 8
    assert refusal.value.__cause__ is not None


def test_colours_of_numba_are_not_part_of_a_message():
    error = RuntimeError(
        "\x1b[1m\x1b[1mFailed in nopython mode\x1b[0m\n\x1b[1mNo such name\x1b[0m\n"
        "\x1b[0m\x1b[1mDuring: typing of call at /folder/file.py (12)\x1b[0m"
    )
    message = failures.explain_failure(error, test_colours_of_numba_are_not_part_of_a_message)
    assert ":\n  No such name\n  in line 12 of /folder/file.py\n" in message
    assert not {"\x1b", "During", "Failed"} & set(re.findall(r"\x1b|During|Failed", message))


def test_a_pass_that_cannot_be_compiled_does_not_stop_others(cache):
    for _ in range(2):
        with pytest.raises(lx.TransformError):
            built(misspelt)
    check(built(count_up)[0])


MODULE = """
import numpy as np
import loaderx as lx

print("imported as", __name__)

@lx.transform
def op(x):
    for i in range(x.shape[0]):
        x[i] += 1

print(lx.pipeline([op])(np.zeros((2, 3), np.float32))[0].tolist())
"""


def test_code_compiled_in_a_module_is_loaded_wherever_the_function_is_and_imports_nothing(
    cache, tmp_path, monkeypatch, capsys
):
    (tmp_path / "data.py").write_text(MODULE)
    shown = "imported as {}\n[1.0, 1.0, 1.0]\n"
    # Compiled while it is imported, in this process.
    with monkeypatch.context() as patched:
        patched.syspath_prepend(tmp_path)
        importlib.import_module("data")
        patched.delitem(sys.modules, "data")
    assert capsys.readouterr().out == shown.format("data")
    stored = {file.name: file.stat().st_mtime_ns for file in cache.glob("*.nbc")}
    assert stored
    paths = os.pathsep.join([str(REPOSITORY), str(tmp_path)])
    # Then loaded there, where it would wait for itself; then as a program.
    for arguments in (["-c", "import data"], [str(tmp_path / "data.py")]):
        finished = subprocess.run(
            [sys.executable, *arguments],
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        name = "data" if "-c" in arguments else "__main__"
        assert finished.stdout == shown.format(name), finished.stderr
        assert stored == {file.name: file.stat().st_mtime_ns for file in cache.glob("*.nbc")}
