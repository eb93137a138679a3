"""Numba still provides what this library uses of its private API: one test per name."""

import ast
import builtins
import ctypes
import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import llvmlite.binding
import numba
import numpy as np
import pytest
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.core.codegen import JITCodeLibrary
from numba.core.registry import cpu_target
from numba.extending import (
    intrinsic,
    lower_builtin,
    overload,
    overload_attribute,
    overload_method,
    register_jitable,
    type_callable,
)

from loaderx.kernels import numba_internals as internals
from tests.waiting import PATIENCE

REPOSITORY = Path(__file__).parents[2]
compiled_only = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="numba may not compile")


def twice(value):
    return 2 * value


# --- classes ----------------------------------------------------------------------------------


@compiled_only
def test_dispatcher_is_the_class_of_jitted_functions():
    assert isinstance(numba.njit(twice), internals.Dispatcher)
    assert isinstance(numba.jit(twice, forceobj=True), internals.Dispatcher)
    assert not isinstance(twice, internals.Dispatcher)
    assert not isinstance(numba.vectorize(twice), internals.Dispatcher)


@compiled_only
def test_dufunc_is_the_class_of_vectorized_functions_with_and_without_signatures():
    assert isinstance(numba.vectorize(twice), internals.DUFunc)
    assert isinstance(numba.vectorize(["f8(f8)"])(twice), internals.DUFunc)
    assert not isinstance(np.add, internals.DUFunc)


def test_signature_has_the_types_of_arguments_and_result():
    signature = types.int64(types.float32, types.boolean)
    assert isinstance(signature, internals.Signature)
    assert signature.args == (types.float32, types.boolean)
    assert signature.return_type == types.int64


def test_as_dtype_goes_from_a_numba_type_to_a_dtype():
    for name in ("uint8", "int64", "float32", "complex64", "bool"):
        assert internals.as_dtype(numba.from_dtype(np.dtype(name))) == np.dtype(name)


def test_run_frontend_raises_where_a_statement_is_unknown():
    def imports(x):
        import math

        x[0] = math.pi

    internals.run_frontend(twice)
    with pytest.raises(Exception, match="IMPORT_NAME"):
        internals.run_frontend(imports)


BODIES = {
    "x[0] = 1": False,
    "return": False,
    "return None": False,
    "nothing = None; return nothing": False,
    "raise ValueError": False,
    "def inner(y): return y\n x[0] = inner(1)": False,
    "x[0] = (lambda y: y)(1)": False,
    "if x[0]: return\n x[1] = 2": False,
    "import math": False,  # Numba compiles no such function
    "return x": True,
    "return 5": True,
    "return x[0], None": True,
    "return None if x[0] else 3": True,
    "if x[0]: return\n return x": True,
    "for i in range(3):\n  if x[i]: return x\n  elif x[i] > 2: return": True,
}


@pytest.mark.parametrize("body", BODIES)
def test_returns_value_needs_no_source(body):
    module = {}
    exec(f"def function(x):\n {body}", module)
    assert internals.returns_value(module["function"]) == BODIES[body]


# --- compilation ------------------------------------------------------------------------------


@compiled_only
def test_is_compiling_is_true_inside_of_a_compilation_and_in_that_thread_only():
    def probe(value):
        pass

    seen = []

    @overload(probe)
    def probe_overload(value):
        seen.append(internals.is_compiling())
        other = threading.Thread(target=lambda: seen.append(internals.is_compiling()))
        other.start()
        other.join()
        return lambda value: value

    @numba.njit
    def calls(value):
        return probe(value)

    assert not internals.is_compiling()
    assert calls(3) == 3
    assert seen[:2] == [True, False]
    assert not internals.is_compiling()


@compiled_only
def test_a_thread_that_holds_the_compiler_lock_may_compile_and_others_wait():
    seen = []

    def compile_too():
        numba.njit(twice)(3)
        seen.append("other")

    with internals.compiler_lock():
        other = threading.Thread(target=compile_too)
        other.start()
        assert numba.njit(twice)(2) == 4
        assert internals.is_compiling()
        seen.append("holder")
    other.join(60)
    assert seen == ["holder", "other"]
    assert not internals.is_compiling()


@compiled_only
def test_wrap_compilation_is_called_for_arguments_of_new_types_only():
    calls = []

    def wrapper(compile_function, *arguments):
        calls.append(arguments)
        return compile_function(*arguments)

    function = numba.njit(twice)
    internals.wrap_compilation(function, wrapper)
    assert [function(1), function(2), function(1.5), function(2.5)] == [2, 4, 3.0, 5.0]
    assert calls == [(1,), (1.5,)]


@compiled_only
def test_watch_compilations_is_told_of_each_with_its_function_and_of_those_inside_of_it():
    inner = numba.njit(twice)
    outer = numba.njit(lambda value: inner(value) + 1)
    events = []
    internals.watch_compilations(
        lambda token, dispatcher: events.append(("start", id(token), dispatcher)),
        lambda token: events.append(("end", id(token))),
    )
    outer(1)
    ours = [event for event in events if event[0] == "end" or event[2] in (inner, outer)]
    assert [event[0] for event in ours] == ["start", "start", "end", "end"]
    assert [event[2] for event in ours[:2]] == [outer, inner]
    assert [event[1] for event in ours[2:]] == [ours[1][1], ours[0][1]]
    events.clear()
    outer(2)
    assert events == []


THREADS = """
import loaderx.kernels.numba_internals as internals
print("imported", flush=True)
import threading
import numba
assert not internals.layer_is_launched()
assert internals.num_threads() == numba.config.NUMBA_NUM_THREADS == 3
assert not internals.layer_is_launched()
numba.set_num_threads(2)
assert internals.layer_is_launched()
assert internals.num_threads() == numba.get_num_threads() == 2
other = []
thread = threading.Thread(target=lambda: other.append(internals.num_threads()))
thread.start()
thread.join()
assert other == [3], other
"""


@pytest.fixture(scope="module")
def with_three_threads():
    """Run a process that imports this module before all others, and then asks for its threads."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", THREADS],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "NUMBA_NUM_THREADS": "3"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@compiled_only
def test_the_number_of_threads_is_known_without_launching_them(with_three_threads):
    assert with_three_threads.returncode == 0, with_three_threads.stderr


@intrinsic
def call_at(typing_context, address, value, raises):
    """Call a function int64 -> int64 at its native address; return -1 if it raised."""

    def generate(context, builder, signature, arguments):
        address, value, raises = arguments
        condition = cgutils.is_true(builder, raises)
        result, raised = internals.call_native(
            context, builder, address, types.int64, (types.int64,), (value,), condition
        )
        return builder.select(raised, ir.Constant(ir.IntType(64), -1), result)

    return types.int64(types.int64, types.int64, types.boolean), generate


@compiled_only
def test_a_native_address_is_called_by_compiled_code_and_its_exceptions_are_raised_or_told():
    @numba.njit
    def half(value):
        if value % 2:
            raise ValueError("odd", value)
        return value // 2

    code = internals.compiled(half, (types.int64,))
    address = internals.native_address(code)
    call = numba.njit(lambda address, value, raises: call_at(address, value, raises))
    assert call(address, 8, True) == 4
    assert call(address, 8, False) == 4
    assert call(address, 7, False) == -1
    with pytest.raises(ValueError, match="odd") as raised:
        call(address, 7, True)
    assert raised.value.args == ("odd", 7)


@compiled_only
def test_memory_is_viewed_and_loaded_with_constants_or_without():
    kind = types.Array(types.uint16, 2, "C")

    @intrinsic
    def view(typing_context, address, height):
        def generate(context, builder, signature, arguments):
            shape = [arguments[1], ir.Constant(ir.IntType(64), 3)]
            return internals.view_memory(context, builder, kind, arguments[0], shape)

        return kind(types.int64, types.int64), generate

    def load(kind):
        @intrinsic
        def load_number(typing_context, address):
            def generate(context, builder, signature, arguments):
                return internals.load_value(context, builder, kind, arguments[0])

            return kind(types.int64), generate

        return load_number

    numbers = np.arange(6, dtype=np.uint16)
    found = numba.njit(lambda address, height: view(address, height) * 1)(numbers.ctypes.data, 2)
    np.testing.assert_array_equal(found, numbers.reshape(2, 3))
    for name, value in (
        ("float32", 1.5),
        ("boolean", True),
        ("uint64", 2**64 - 1),
        ("complex128", 2j),
    ):
        load_number = load(getattr(types, name))
        held = np.array([value], {"boolean": "bool"}.get(name, name))
        assert numba.njit(lambda address: load_number(address))(held.ctypes.data) == value  # noqa: B023


@compiled_only
def test_a_compiled_address_is_called_by_c():
    address = internals.compiled_address(numba.njit(twice), (types.int64,))
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(21) == 42


def callee_of(body):
    """Return a function for compiled code whose implementation is compiled for its callers only."""

    def stub(value):
        raise NotImplementedError

    overload(stub)(lambda value: body)
    return stub


@contextmanager
def linked():
    with internals.compiler_lock(), internals.known_print(), internals.link_callees_only():
        yield


def machine_code_of(function):
    """List the symbols of a function in machine code by its name, without the variable with its environment."""
    symbols = cpu_target.target_context.codegen()._engine._defined_symbols
    return [name for name in symbols if function in name and internals.ENVIRONMENT not in name]


@compiled_only
def test_callees_are_linked_into_their_callers_and_are_not_machine_code_of_their_own():
    def seventeenfold(value):
        return value * 17

    inner = callee_of(seventeenfold)
    first = numba.njit(lambda value: inner(value) + 1)
    second = numba.njit(lambda value: inner(value) + 2)
    with linked():
        assert first(1) == 18
    assert not machine_code_of("seventeenfold")
    # The code compiled there is linked into later callers, too.
    assert second(1) == 19
    assert cpu_target.target_context.codegen()._library_class is JITCodeLibrary


@compiled_only
def test_callees_print_raise_and_call_themselves(capfd):
    def speaking(value):
        print("got", value)  # noqa: T201
        if value < 0:
            raise ValueError("negative", value)
        return value

    @numba.njit(no_cpython_wrapper=True)
    def factorial(value):
        return value * factorial(value - 1) if value > 1 else 1

    inner = callee_of(speaking)
    with linked():
        call = numba.njit(lambda value: inner(value) + factorial(np.int64(5)))
        assert call(1) == 121
        with pytest.raises(ValueError, match="negative") as raised:
            call(-3)
    assert raised.value.args == ("negative", -3)
    assert capfd.readouterr().out == "got 1\ngot -3\n"


@compiled_only
def test_functions_that_print_compile_after_print_was_replaced(capfd, monkeypatch):
    before = builtins.print
    for _ in range(2):
        replacing = lambda *values: before(*values)  # noqa: E731
        monkeypatch.setattr(builtins, "print", replacing)
        with linked():
            numba.njit(lambda value: print("got", value))(np.int64(3))  # noqa: T201
        assert builtins.print is replacing
    assert capfd.readouterr().out == "got 3\n" * 2


@compiled_only
def test_callees_are_optimized_by_themselves_where_that_is_asked_for(monkeypatch):
    def eighteenfold(value):
        return value * 18

    def nineteenfold(value):
        return value * 19

    optimized = []
    optimize = JITCodeLibrary._optimize_final_module
    monkeypatch.setattr(
        JITCodeLibrary,
        "_optimize_final_module",
        lambda library: (optimized.append(library.name), optimize(library)),
    )
    internals.optimize_twice(nineteenfold)
    once, twice = callee_of(eighteenfold), callee_of(nineteenfold)
    with linked():
        assert numba.njit(lambda value: once(value) + twice(value))(1) == 37
    assert any("nineteenfold" in name for name in optimized)
    assert not any("eighteenfold" in name for name in optimized)
    assert not machine_code_of("nineteenfold")


@compiled_only
def test_functions_that_python_calls_too_are_compiled_by_themselves():
    @numba.njit
    def twentyfold(value):
        return value * 20

    with linked():
        assert numba.njit(lambda value: twentyfold(value) + 1)(1) == 21
    assert machine_code_of("twentyfold")
    assert twentyfold(2) == 40


@compiled_only
def test_after_a_failed_compilation_libraries_are_as_before():
    with pytest.raises(numba.errors.TypingError), linked():
        numba.njit(lambda value: callee_of(lambda value: value.nothing)(value))(1)
    assert cpu_target.target_context.codegen()._library_class is JITCodeLibrary


# --- caching ----------------------------------------------------------------------------------


class Memory(internals.Cache):
    """Cache in memory."""

    cache_path = None

    def __init__(self):
        self.codes = {}
        self.processors = set()

    def load_overload(self, sig, target_context):
        self.processors.add(internals.processor_of(target_context.codegen()))
        code = self.codes.get(tuple(sig))
        return None if code is None else internals.unpacked(target_context, code)

    def save_overload(self, sig, data):
        self.processors.add(internals.processor_of(data.codegen))
        self.codes[tuple(sig)] = internals.packed(data)

    def enable(self):
        pass

    def disable(self):
        pass

    def flush(self):
        pass


@compiled_only
def test_a_cache_is_asked_before_a_function_is_compiled_and_given_what_was():
    cache = Memory()
    first, second = numba.njit(twice), numba.njit(twice)
    for function in (first, second):
        assert not internals.has_cache(function)
        internals.set_cache(function, cache)
        assert internals.has_cache(function)
    assert first(21) == 42
    assert isinstance(cache.codes[types.int64,], bytes)
    assert second(21) == 42
    assert sum(second.stats.cache_hits.values()) == 1
    assert sum(second.stats.cache_misses.values()) == 0
    assert second(1.5) == 3.0
    assert sum(second.stats.cache_misses.values()) == 1
    # One processor, for compiling and for loading.
    (processor,) = cache.processors
    assert (config.CPU_NAME or llvmlite.binding.get_host_cpu_name()) in processor


@compiled_only
def test_packed_returns_none_for_code_that_holds_addresses_of_this_process():
    large = np.arange(10**6, dtype=np.float64)
    function = numba.njit(lambda place: large[place])
    cache = Memory()
    internals.set_cache(function, cache)
    assert function(7) == 7.0
    assert list(cache.codes.values()) == [None]


# --- functions --------------------------------------------------------------------------------


@compiled_only
def test_a_dispatcher_tells_what_it_was_made_with():
    free = numba.njit(fastmath=True, error_model="numpy")(twice)
    fixed = numba.njit([types.int64(types.int64), types.float64(types.float64)])(twice)
    assert internals.jit_options(free) == {
        "nopython": True, "fastmath": True, "error_model": "numpy", "boundscheck": None,
    }  # fmt: skip
    free(1)
    assert internals.fixed_signatures(free) == ()
    assert [signature.args for signature in internals.fixed_signatures(fixed)] == [
        (types.int64,),
        (types.float64,),
    ]

    class Own(numba.core.compiler.Compiler):
        pass

    assert internals.pipeline_class(free) is numba.core.compiler.Compiler
    assert internals.pipeline_class(numba.njit(pipeline_class=Own)(twice)) is Own


@compiled_only
def test_a_ufunc_tells_what_it_was_made_with_and_can_be_made_again():
    free = numba.vectorize(identity=1)(twice)
    fixed = numba.vectorize(["f8(f8)"], identity=0)(twice)
    assert internals.dispatcher_of(free).py_func is twice
    assert internals.fixed_signatures(free) == ()
    assert [signature.args for signature in internals.fixed_signatures(fixed)] == [(types.float64,)]
    assert internals.jit_options(fixed)["nopython"] is True
    inner = numba.jit(**internals.jit_options(fixed), _target="npyufunc")(negated)
    copy = internals.ufunc_of(inner, like=fixed)
    assert copy.identity == 0
    assert copy.types == []
    assert copy(np.array([1.0, 2.0])).tolist() == [-1.0, -2.0]


def negated(value):
    return -value


# --- extensions -------------------------------------------------------------------------------


def subject(value):
    """Subject of the extensions below."""


def added(registry, extend):
    """Return the entries that a function appends to a registry."""
    before = len(registry)
    extend()
    return registry[before:]


def test_an_overload_is_a_template_with_its_function_and_its_subject():
    def written(value):
        return lambda value: value

    (entry,) = added(internals.TYPED_GLOBALS, lambda: overload(subject)(written))
    value, kind = entry
    assert value is subject
    (template,) = kind.templates
    assert internals.origin_of(template) is written


@pytest.mark.parametrize("extend", [overload_method, overload_attribute])
def test_an_attribute_is_a_template_with_its_function_and_its_name(extend):
    def written(x):
        return lambda x: x

    own = type("Own", (types.Type,), {})
    entries = added(
        internals.TYPED_ATTRIBUTES, lambda: extend(own, "named_in_no_other_test")(written)
    )
    (template,) = entries
    assert internals.origin_of(template) is written
    assert internals.subject_of(template) == "named_in_no_other_test"


def test_an_intrinsic_is_a_template_with_its_function():
    def written(typing_context, value):
        return value(value), lambda context, builder, signature, arguments: arguments[0]

    (template,) = added(internals.TYPED_FUNCTIONS, lambda: intrinsic(written))
    assert internals.origin_of(template) is written


def test_a_type_callable_is_a_template_around_its_function():
    def written(context):
        return lambda value: value

    (entry,) = added(internals.TYPED_GLOBALS, lambda: type_callable(negated)(written))
    assert entry[0] is negated
    (template,) = entry[1].templates
    assert internals.unwrapped(internals.origin_of(template)) == [written]


def test_lowered_parts_come_with_their_subject_and_types():
    def written(context, builder, signature, arguments):
        return arguments[0]

    (entry,) = added(
        internals.LOWERED_FUNCTIONS, lambda: lower_builtin(subject, types.int64)(written)
    )
    implementation, about, kinds = entry
    assert written in (implementation, *internals.unwrapped(implementation))
    assert about is subject
    assert kinds == (types.int64,)


@pytest.mark.parametrize(
    ("registry", "parts"),
    [
        ("TYPED_GLOBALS", 2),
        ("LOWERED_FUNCTIONS", 3),
        ("LOWERED_GETATTRS", 3),
        ("LOWERED_SETATTRS", 3),
        ("LOWERED_CASTS", 2),
        ("LOWERED_CONSTANTS", 2),
    ],
)
def test_registrations_of_numba_itself_have_so_many_parts(registry, parts):
    entries = getattr(internals, registry)
    assert isinstance(entries, list)
    assert {len(entry) for entry in entries} == {parts}


@compiled_only
def test_forget_implementations_calls_an_overload_again():
    calls = []

    def probe(value):
        pass

    def written(value):
        calls.append(value)
        return lambda value: value

    (entry,) = added(internals.TYPED_GLOBALS, lambda: overload(probe)(written))
    (template,) = entry[1].templates
    numba.njit(lambda value: probe(value))(1)
    before = len(calls)
    numba.njit(lambda value: probe(value) + 1)(1)
    assert len(calls) == before
    internals.forget_implementations(template)
    numba.njit(lambda value: probe(value) + 2)(1)
    assert len(calls) > before
    internals.forget_implementations(None)


@compiled_only
def test_unwrapped_finds_the_function_of_register_jitable():
    def written(value):
        return value

    (entry,) = added(internals.TYPED_GLOBALS, lambda: register_jitable(written))
    (template,) = entry[1].templates
    assert internals.unwrapped(internals.origin_of(template)) == [written]
    assert internals.unwrapped(written) == [written]
    assert internals.unwrapped(len) == [len]


# --- loading Numba ----------------------------------------------------------------------------

FIRST_BATCH = """
import sys
import numba, numpy as np
import loaderx as lx
from loaderx import transforms as T
loader = lx.DataLoader(np.ones((8, 4, 4, 3), np.uint8), batch_size=4, output="numpy", transforms=[T.RandomFlip()])
assert loader.batch(0).all()
assert "scipy.linalg" not in sys.modules
"""
PRODUCT = """
@numba.njit
def product(a, b):
    return a @ b + np.dot(a, b)
a = np.arange(6.0).reshape(2, 3)
np.testing.assert_array_equal(product(a, a.T.copy()), 2 * a @ a.T)
assert "scipy.linalg" in sys.modules
"""


TRANSFORM = """
@lx.transform
def turn(x, matrix):
    x[:] = np.dot(matrix, x)
samples = np.arange(12, dtype=np.float32).reshape(4, 3)
matrix = np.eye(3, dtype=np.float32)[::-1].copy()
np.testing.assert_array_equal(lx.pipeline([turn(matrix=matrix)])(samples), samples[:, ::-1])
"""
# Programs that run after the first batch, each in a process of its own.
CONTINUATIONS = {
    "nothing": "",
    "a product": PRODUCT,
    "a transform": TRANSFORM,
    "a transform from the cache": TRANSFORM,
}
EACH = """
import json, os, traceback, warnings
warnings.filterwarnings("ignore", "This process", DeprecationWarning)  # Python 3.12 warns of forks with threads
codes = {}
for name, source in CONTINUATIONS.items():
    child = os.fork()
    if child == 0:
        try:
            exec(source)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    codes[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(codes))
"""


@pytest.fixture(scope="module")
def after_a_batch():
    """Return the exit status of processes that continue after a batch, and their stderr."""
    finished = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            f"{FIRST_BATCH}\nCONTINUATIONS = {CONTINUATIONS!r}\n{EACH}",
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout), finished.stderr


@compiled_only
def test_a_batch_does_without_the_linear_algebra_of_scipy(after_a_batch):
    codes, written = after_a_batch
    assert codes["nothing"] == 0, written


@compiled_only
def test_products_of_matrices_compile_after_it(after_a_batch):
    codes, written = after_a_batch
    assert codes["a product"] == 0, written


@compiled_only
@pytest.mark.parametrize("name", ["a transform", "a transform from the cache"])
def test_a_transform_may_multiply_matrices_compiled_now_or_before(after_a_batch, name):
    codes, written = after_a_batch
    assert codes[name] == 0, written


# --- nowhere else -----------------------------------------------------------------------------

# Other names that `kernels/` and `loaderx/` import from Numba and llvmlite: these modules, and names of them.
PUBLIC = {"numba", "numba.core", "numba.extending", "numba.types", "llvmlite", "llvmlite.ir"}
PUBLIC_OF_CORE = {"cgutils", "config", "types"}
PRIVATE_ATTRIBUTES = {
    *("call_conv", "get_pointer_to_function", "llvm_func_name", "targetctx"),
    *("_can_compile", "_compile_for_args", "_dispatcher", "_frozen", "_impl_cache", "_rebuild", "_reduce"),
    *("fndesc", "has_dynamic_globals", "magic_tuple", "nopython_signatures", "targetoptions"),
}  # fmt: skip


def private_parts(source):
    """Return the private names of Numba that a source imports, and the private attributes it reads."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported = [(name.name, None) for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [(node.module or "", name.name) for name in node.names]
        else:
            imported = []
        for module, name in imported:
            if module.split(".")[0] not in ("numba", "llvmlite"):
                continue
            of_core = module == "numba.core" and name not in PUBLIC_OF_CORE
            if module not in PUBLIC or of_core or (name or "").startswith("_"):
                found.append(f"{module}.{name}" if name else module)
        if isinstance(node, ast.Attribute):
            path = ast.unparse(node)
            if node.attr in PRIVATE_ATTRIBUTES or path.startswith(("numba.core.", "numba.np.")):
                found.append(path)
    return found


def test_no_other_file_touches_what_is_private_in_numba():
    files = [
        file
        for folder in ("kernels", "loaderx")
        for file in sorted((REPOSITORY / folder).rglob("*.py"))
        if file.relative_to(REPOSITORY) != Path("kernels/numba_internals.py")
        and "kernels" not in file.relative_to(REPOSITORY).parts[1:]  # the link
    ]
    assert len(files) > 100
    found = {str(file): private_parts(file.read_text(encoding="utf-8")) for file in files}
    assert {file: parts for file, parts in found.items() if parts} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import numba.core.dispatcher",
        "import numba.np.ufunc as u",
        "from numba.core import event",
        "from numba.core.caching import _Cache",
        "from numba.extending import _Intrinsic",
        "from numba.np import linalg",
        "from llvmlite.ir import _utils",
        "import llvmlite.binding",
        "import numba\nnumba.core.registry.cpu_target",
        "def f(kernel):\n    return kernel.targetoptions",
        "if True:\n    def f():\n        from numba.core import compiler",
    ],
)
def test_the_search_finds_what_is_private(source):
    assert private_parts(source)


def test_the_search_finds_what_is_private_in_the_one_file_that_has_it():
    assert private_parts((REPOSITORY / "kernels/numba_internals.py").read_text())


def test_the_search_lets_pass_what_is_public():
    assert (
        private_parts(
            "import numba\nimport numpy.linalg\nfrom llvmlite import ir\nfrom numba.core import config, types\n"
            "from numba import carray, types\nfrom numba.extending import intrinsic\nnumba.config.DISABLE_JIT"
        )
        == []
    )


@compiled_only
def test_importing_this_module_first_does_not_wait_for_itself(with_three_threads):
    assert with_three_threads.stdout == "imported\n", with_three_threads.stderr


NOTHING_MORE = """
import sys
from importlib import import_module
import ast, pathlib
source = pathlib.Path({kernels!r}, "__init__.py").read_text()
parts = next(node.value for node in ast.parse(source).body if isinstance(node, ast.Assign))
for part in eval(compile(ast.Expression(parts), "parts", "eval")):
    import_module(part)
before = set(sys.modules)
exec(pathlib.Path({kernels!r}, "numba_internals.py").read_text(), {{"__name__": "internals"}})
print(sorted(name for name in set(sys.modules) - before if name.startswith("numba.")))
"""


def test_the_kernels_import_all_of_numba_that_this_module_does_before_it():
    # In a thread, where Ctrl-C does not interrupt it.
    finished = subprocess.run(
        [sys.executable, "-c", NOTHING_MORE.format(kernels=str(REPOSITORY / "kernels"))],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert finished.stdout == "[]\n"
