"""Private API of Numba: everything this library uses that no release of Numba promises to keep.

No other file of this library imports or accesses it. `tests/kernels/test_numba_internals.py` tests the required
behaviour of each name, so that a release of Numba that changes one of them fails there.
"""

import builtins
import functools
import pickle
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from typing import Any

# NumPy imports it when Numba first asks for the type of an array: Ctrl-C could interrupt that import.
import numpy.ma  # noqa: F401
from llvmlite import binding
from llvmlite import ir as lir
from numba.core import cgutils, config, event, imputils, ir
from numba.core import types as numba_types
from numba.core.caching import NullCache
from numba.core.caching import _Cache as Cache
from numba.core.codegen import JITCodeLibrary, RuntimeLinker
from numba.core.compiler import CompileResult, run_frontend
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target
from numba.core.serialize import dumps
from numba.core.typing import builtins as typed_builtins
from numba.core.typing import templates
from numba.core.typing.templates import Signature
from numba.np import linalg
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import as_dtype
from numba.np.ufunc import parallel
from numba.np.ufunc.dufunc import DUFunc

__all__ = [
    "Cache",  # the base class of the caches from which a dispatcher loads compiled code and to which it saves it
    "DUFunc",  # the class of the result of `numba.vectorize`
    "Dispatcher",  # the class of the result of `numba.njit`
    "Signature",  # the class of signatures: `args` and `return_type`
    "as_dtype",  # from a Numba type to the NumPy dtype
    "run_frontend",  # raises if Numba does not know a statement of a function
]


# --- Loading Numba ----------------------------------------------------------------------------


def load_builtins() -> None:
    """Import what Numba would import itself when it compiles or loads its first function."""
    if config.DISABLE_JIT:
        return
    # Numba imports SciPy's linear algebra only to see whether it is there. Without that import, a process with
    # everything cached needs 0.64 s of CPU time up to its first batch as NumPy arrays instead of 0.74, and 1.00 s as
    # JAX arrays instead of 1.12. For a function that multiplies matrices, SciPy is imported when the function is
    # compiled or called.
    check = getattr(linalg, "ensure_blas", None)
    if check is not None and "numba.np.arraymath" not in sys.modules and find_spec("scipy"):
        linalg.ensure_blas = lambda: None
        try:
            import numba.np.arraymath  # noqa: F401 - for what it registers
        finally:
            linalg.ensure_blas = check
    cpu_target.target_context.refresh()


# --- Compilation ------------------------------------------------------------------------------


def is_compiling() -> bool:
    """Tell whether this thread holds Numba's lock of compilers: it is in the middle of a compilation."""
    return bool(global_compiler_lock.is_locked())


def compiler_lock() -> AbstractContextManager[Any]:
    """Return the lock that a thread holds while it compiles; hold it to remove anything that a compilation uses."""
    lock: AbstractContextManager[Any] = global_compiler_lock
    return lock


def wrap_compilation(dispatcher: Any, wrapper: Callable[..., Any]) -> None:
    """Call `wrapper(compile, *arguments)` where a call with arguments of new types would call `compile(*arguments)`."""
    dispatcher._compile_for_args = functools.partial(wrapper, dispatcher._compile_for_args)


def watch_compilations(on_start: Callable[[Any, Any], None], on_end: Callable[[Any], None]) -> None:
    """Call `on_start(token, dispatcher)` before each compilation of this process, and `on_end(token)` after it.

    Both calls are in the thread that compiles, with the same token. Loading code from a cache is not a compilation.
    """

    class Listener(event.Listener):  # type: ignore[misc, unused-ignore]
        def on_start(self, event: Any) -> None:
            on_start(event.data, event.data["dispatcher"])

        def on_end(self, event: Any) -> None:
            on_end(event.data)

    event.register("numba:compile", Listener())


class _CalleeLibrary(JITCodeLibrary):  # type: ignore[misc, unused-ignore]
    """Code of a function that only compiled code calls: it is linked into its callers, and never run by itself.

    So it is neither optimised nor turned into machine code by itself, because each caller does that anyway. This is a
    third of the compile time of RandAugment.
    """

    def _optimize_final_module(self) -> None:
        """Skip the optimisation: the caller does it."""

    def _finalize_final_module(self) -> None:
        names = [variable.name for variable in self._final_module.global_variables]
        if getattr(self, "_compiled_object", None) is not None:  # loaded from a cache
            super()._finalize_final_module()
            return
        if any(name.startswith(RuntimeLinker.PREFIX) for name in names):
            # A function that calls itself does so by its address.
            super()._optimize_final_module()
            super()._finalize_final_module()
            return
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        # Numba writes the address of a function's environment to a variable, which must exist.
        module = binding.parse_assembly(
            "\n".join(
                f'@"{name}" = common global i8* null' for name in names if ENVIRONMENT in name
            )
        )
        module.triple = self._final_module.triple
        module.data_layout = self._final_module.data_layout
        self._codegen._engine.add_module(module)
        self._codegen._engine.finalize_object()
        self._finalized = True


class _OptimizedCalleeLibrary(_CalleeLibrary):
    """Code that only compiled code calls, and that is also optimised by itself."""

    def _optimize_final_module(self) -> None:
        JITCodeLibrary._optimize_final_module(self)


# A part of the name of the variable that holds the address of a function's environment.
ENVIRONMENT = "NumbaEnv"


TWICE = "_loaderx_optimize_twice"


def optimize_twice(function: types.FunctionType) -> None:
    """Optimise a function by itself, and once more in its callers.

    Loops in an order that the compiler does not expect gain by that. One over channels, then rows and columns, takes 60
    us for 224 x 224 x 3 floats, and 90 us if it is optimised in its caller only.
    """
    setattr(function, TWICE, True)


@contextmanager
def link_callees_only() -> Iterator[None]:
    """Compile functions that are compiled for a caller as parts of that caller only.

    Functions that Python may call too, or that have a cache of their own, are excluded. Those that `optimize_twice` was
    called with are optimised by themselves as well. Call it in a thread that holds the `compiler_lock`: a code
    generator has one kind of library for all threads.
    """
    generator = cpu_target.target_context.codegen()
    kind = generator._library_class
    kinds: list[Any] = []

    class Listener(event.Listener):  # type: ignore[misc, unused-ignore]
        def on_start(self, event: Any) -> None:
            function = event.data["dispatcher"]
            alone = not jit_options(function).get("no_cpython_wrapper") or has_cache(function)
            twice = getattr(function.py_func, TWICE, False)
            callee = _OptimizedCalleeLibrary if twice else _CalleeLibrary
            kinds.append(kind if alone or not kinds else callee)
            generator._library_class = kinds[-1]

        def on_end(self, event: Any) -> None:
            kinds.pop()
            generator._library_class = kinds[-1] if kinds else kind

    try:
        with event.install_listener("numba:compile", Listener()):
            yield
    finally:
        generator._library_class = kind


# The `print` that was there when Numba was imported.
KNOWN_PRINT: Callable[..., None] = next(
    value
    for value, kind in templates.builtin_registry.globals
    if isinstance(kind, numba_types.Function)
    and issubclass(kind.templates[0], typed_builtins.Print)
)


@contextmanager
def known_print() -> Iterator[None]:
    """Put the `print` that Numba can compile back into `builtins`.

    Libraries replace it: Ray does so in a program as soon as a worker of it prints. What other threads print meanwhile
    goes past the library.
    """
    replaced = print
    builtins.print = KNOWN_PRINT
    try:
        yield
    finally:
        if print is KNOWN_PRINT:  # otherwise a library has replaced it meanwhile
            builtins.print = replaced


def compiled_address(dispatcher: Any, arguments: tuple[Any, ...]) -> int:
    """Compile a function for these types, and return the address at which C code can call it."""
    result = compiled(dispatcher, arguments)
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name))


def compiled(dispatcher: Any, arguments: tuple[Any, ...]) -> Any:
    """Compile a function for these types, or load it; return the compiled code, as a `Cache` is given it."""
    dispatcher.compile(arguments)
    return dispatcher.overloads[arguments]


def native_address(code: Any) -> int:
    """Return the address of compiled code, for `call_native`; it is valid while a reference to the code exists."""
    return int(code.library.get_pointer_to_function(code.fndesc.llvm_func_name))


# --- Threads ----------------------------------------------------------------------------------


def layer_is_launched() -> bool:
    """Tell whether Numba's threading layer was launched in this process, or in the one that it was forked from."""
    return parallel._threading_layer is not None


def num_threads() -> int:
    """Return the result of `numba.get_num_threads`, without launching the layer and without its locks.

    A process that is forked while another thread holds one of these locks would wait forever.
    """
    return int(parallel._get_num_threads() if layer_is_launched() else config.NUMBA_NUM_THREADS)


# --- Code generation --------------------------------------------------------------------------


def call_native(
    context: Any,
    builder: Any,
    address: Any,
    result: Any,
    kinds: Sequence[Any],
    values: Any,
    raises: Any,
) -> tuple[Any, Any]:
    """Call compiled code at its `native_address`, inside an intrinsic; return its result, and whether it raised.

    If the boolean `raises` is true, the caller raises the same exception. A function by `numba.cfunc` would print the
    exception and return 0.
    """
    convention = context.call_conv
    function = convention.get_function_type(result, kinds).as_pointer()
    callee = builder.inttoptr(address, function)
    status, value = convention.call_function(builder, callee, result, kinds, values)
    with cgutils.if_unlikely(builder, builder.and_(status.is_error, raises)):
        convention.return_status_propagate(builder, status)
    return value, status.is_error


def view_memory(context: Any, builder: Any, kind: Any, address: Any, shape: Sequence[Any]) -> Any:
    """Make a C-contiguous array over memory that another object owns; extents that are constants stay constants."""
    element = context.get_data_type(kind.dtype)
    itemsize = lir.Constant(lir.IntType(64), context.get_abi_sizeof(element))
    strides: list[Any] = []
    stride = itemsize
    for extent in reversed(shape):
        strides.insert(0, stride)
        stride = builder.mul(stride, extent)
    array = context.make_array(kind)(context, builder)
    populate_array(
        array,
        data=builder.inttoptr(address, element.as_pointer()),
        shape=cgutils.pack_array(builder, shape),
        strides=cgutils.pack_array(builder, strides),
        itemsize=itemsize,
        meminfo=None,
    )
    return array._getvalue()


def load_value(context: Any, builder: Any, kind: Any, address: Any) -> Any:
    """Load a number of a Numba type from memory."""
    model = context.data_model_manager[kind]
    place = builder.inttoptr(address, model.get_data_type().as_pointer())
    return model.load_from_data_pointer(builder, place)


# --- Caching ----------------------------------------------------------------------------------


def loaded(cache: Any, arguments: tuple[Any, ...]) -> Any:
    """Load the code for these types from a `Cache`; return None if it has none."""
    return cache.load_overload(arguments, cpu_target.target_context)


def holds(cache: Any, arguments: tuple[Any, ...]) -> bool:
    """Tell whether a `Cache` of this library has the code for these types, without loading it."""
    return bool(cache.holds(arguments, cpu_target.target_context))


def set_cache(dispatcher: Any, cache: Any) -> None:
    """Attach a `Cache` to a function: its compiled code is loaded from it, and saved to it."""
    dispatcher._cache = cache


def has_cache(dispatcher: Any) -> bool:
    """Tell whether the compiled code of a function is saved anywhere."""
    return not isinstance(dispatcher._cache, NullCache)


def processor_of(codegen: Any) -> str:
    """Name the processor and features for which a code generator generates code."""
    return str(codegen.magic_tuple())


def packed(result: Any) -> bytes | None:
    """Serialise compiled code as a `Cache` receives it; return None if it contains addresses of this process."""
    if result.library.has_dynamic_globals or any(not lifted.can_cache for lifted in result.lifted):
        return None
    return bytes(dumps(result._reduce()))


def unpacked(target_context: Any, code: bytes) -> Any:
    """Deserialise compiled code, as a `Cache` returns it, from the result of `packed` in any process."""
    target_context.refresh()
    return CompileResult._rebuild(target_context, *pickle.loads(code))


# --- Functions --------------------------------------------------------------------------------


def returns_value(function: types.FunctionType) -> bool:
    """Tell whether a plain function returns anything but None; False if Numba cannot read or compile it.

    The test reads Numba's representation of the function: it is the same in all versions of Python, and needs no
    source.
    """
    try:
        code = run_frontend(function)
    except Exception:  # noqa: BLE001 - any error is raised again where the function is compiled
        return False
    ends = (block.terminator for block in code.blocks.values())
    return any(isinstance(end, ir.Return) and not _is_none(code, end.value) for end in ends)


def _is_none(code: Any, variable: Any) -> bool:
    try:
        value = code.get_definition(variable)
        while isinstance(value, ir.Expr) and value.op == "cast":
            value = code.get_definition(value.value)
    except KeyError:  # several definitions, in branches
        return False
    return isinstance(value, ir.Const) and value.value is None


def dispatcher_of(ufunc: Any) -> Any:
    """Return the dispatcher of a `DUFunc`, whose `py_func` is the function of one element."""
    return ufunc._dispatcher


def fixed_signatures(function: Any) -> Sequence[Any]:
    """Return the only signatures that a `Dispatcher` or `DUFunc` compiles for; empty if it compiles for any."""
    if isinstance(function, DUFunc):
        return tuple(function._dispatcher.overloads) if function._frozen else ()
    return () if function._can_compile else tuple(function.nopython_signatures)


def jit_options(function: Any) -> dict[str, Any]:
    """Return the options of `numba.jit` with which a `Dispatcher` or `DUFunc` was made: fastmath, inline and others."""
    return dict(function.targetoptions)


def pipeline_class(dispatcher: Any) -> Any:
    """Return the class of the compiler of a `Dispatcher`, which is also an option of `numba.jit`."""
    return dispatcher._compiler.pipeline_class


def ufunc_of(dispatcher: Any, like: Any) -> Any:
    """Make a `DUFunc` without compiled code of a dispatcher for the target "npyufunc", with another's identity."""
    return DUFunc._rebuild(dispatcher, like.identity, False, [])


# --- Extensions -------------------------------------------------------------------------------

# The registries of everything Numba can type and lower: lists, to which every extension is appended.
TYPED_FUNCTIONS = templates.builtin_registry.functions
TYPED_ATTRIBUTES = templates.builtin_registry.attributes
TYPED_GLOBALS = templates.builtin_registry.globals
LOWERED_FUNCTIONS = imputils.builtin_registry.functions
LOWERED_GETATTRS = imputils.builtin_registry.getattrs
LOWERED_SETATTRS = imputils.builtin_registry.setattrs
LOWERED_CASTS = imputils.builtin_registry.casts
LOWERED_CONSTANTS = imputils.builtin_registry.constants


def origin_of(template: Any) -> Any:
    """Return the function or class in the user's code from which Numba made a template."""
    for name in ("_overload_func", "_definition_func"):  # of `overload`, and of `intrinsic`
        if getattr(template, name, None) is not None:
            return getattr(template, name)
    # `type_callable` wraps a function in a class, `infer_global` a class in a class.
    written = template.__mro__[1] if template.__module__ == templates.__name__ else template
    return vars(written).get("generic", written)


def subject_of(template: Any) -> Any:
    """Return the subject of a template: the name of an attribute, a function or a Numba type."""
    return getattr(template, "_attr", None) or template.key


def forget_implementations(template: Any) -> None:
    """Make Numba call an `overload` again, and compile its result anew, for the next function that uses it."""
    if getattr(template, "_impl_cache", None):
        template._impl_cache.clear()


def unwrapped(function: Any) -> list[Any]:
    """Return the functions that one of Numba's own wraps, as those of `register_jitable` do; else the function."""
    if isinstance(function, types.FunctionType) and (function.__module__ or "").startswith(
        "numba."
    ):
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        return [cell for cell in cells if isinstance(cell, types.FunctionType)] or [function]
    return [function]
