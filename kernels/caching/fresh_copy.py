"""Copy of a function, and of the compiled functions it calls, without compiled code.

A jitted function keeps the values that globals had when it was first compiled, and Numba's own cache on disk checks
only the file of that function. Either would be old code, saved under the fingerprint of newer code.
"""

import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numba

from loaderx.kernels.numba_internals import (
    Dispatcher,
    DUFunc,
    dispatcher_of,
    fixed_signatures,
    jit_options,
    pipeline_class,
    ufunc_of,
)

from .extensions import forget_compiled_extensions
from .fingerprint import names_in
from .packages import is_known, is_known_module


def fresh_copy(function: Any, **options: Any) -> Any:
    """Copy a function so that none of its callees is compiled yet; the callees get these options of Numba."""
    forget_compiled_extensions()
    made: dict[Any, Any] = {"options": options}
    if isinstance(function, types.FunctionType):
        copy = _empty_copy(function)
        _fill(copy, function, made)
        return copy
    return _copied(function, frozenset(), made)


def _empty_copy(function: types.FunctionType) -> types.FunctionType:
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    copy = types.FunctionType(
        function.__code__, {}, function.__name__, function.__defaults__, cells or None
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    # Not the module of the function: Numba imports it, by its name, in every process that loads the compiled code.
    # There it may be `__main__`, absent, or the module being imported, whose import would be waited for without end.
    copy.__module__, copy.__qualname__ = __name__, function.__qualname__
    return copy


def _fill(copy: types.FunctionType, function: types.FunctionType, made: dict[Any, Any]) -> None:
    names = frozenset(names_in(function.__code__))
    values = copy.__globals__
    values.update(function.__globals__)
    for name in names & values.keys():
        values[name] = _copied(values[name], names, made)
    for cell, original in zip(copy.__closure__ or (), function.__closure__ or (), strict=True):
        with suppress(ValueError):  # empty: defined further down, and not yet
            cell.cell_contents = _copied(original.cell_contents, names, made)


def _copied(value: Any, names: frozenset[str], made: dict[Any, Any]) -> Any:
    if isinstance(value, DUFunc):
        if id(value) not in made:
            inner = dispatcher_of(value)
            function, copy = _uncompiled(inner, _target="npyufunc")
            made[id(value)] = ufunc = ufunc_of(copy, like=value)
            _fill(function, inner.py_func, made)
            _compile_fixed(ufunc, ufunc.add, fixed_signatures(value))
        return made[id(value)]
    if isinstance(value, Dispatcher) and not is_known(value):
        if id(value) not in made:
            options = {"pipeline_class": pipeline_class(value), **made["options"]}
            function, copy = _uncompiled(value, **options)
            made[id(value)] = copy
            _fill(function, value.py_func, made)
            _compile_fixed(copy, copy.compile, fixed_signatures(value))
        return made[id(value)]
    if isinstance(value, types.ModuleType) and not is_known_module(value):
        if (id(value), names) not in made:
            module = made[id(value), names] = types.ModuleType(value.__name__)
            vars(module).update(vars(value))
            for name in names & vars(module).keys():
                vars(module)[name] = _copied(vars(module)[name], names, made)
        return made[id(value), names]
    return value


def _uncompiled(dispatcher: Any, **options: Any) -> tuple[types.FunctionType, Any]:
    """Make a copy, and the function in it, still without globals: a function that calls itself needs its copy first."""
    function = _empty_copy(dispatcher.py_func)
    return function, numba.jit(**{**jit_options(dispatcher), **options})(function)


def _compile_fixed(copy: Any, compile_for: Callable[[Any], Any], signatures: Sequence[Any]) -> None:
    for signature in signatures:
        compile_for(signature)
    if signatures:
        copy.disable_compile()
