"""A function, and copies of the compiled functions it calls, to be compiled anew.

A jitted function keeps the values that globals had when it was compiled first, and Numba's own cache on disk looks at
no file but that of the function. In a driver either would be old code under a name that says something newer.
"""

import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba
from numba.core.dispatcher import Dispatcher
from numba.np.ufunc.dufunc import DUFunc

from .extensions import forget_compiled_extensions
from .fingerprint import names_in
from .packages import is_known, is_known_module


def renewed(function: Any, **options: Any) -> Any:
    """The same function, which calls no compiled code of before; what it calls gets these options of Numba."""
    forget_compiled_extensions()
    made: dict[Any, Any] = {"options": options}
    if isinstance(function, types.FunctionType):
        copy = _empty_copy(function)
        _fill(copy, function, made)
        return copy
    return _renew(function, frozenset(), made)


def _empty_copy(function: types.FunctionType) -> types.FunctionType:
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    copy = types.FunctionType(
        function.__code__, {}, function.__name__, function.__defaults__, cells or None
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    return copy


def _fill(copy: types.FunctionType, function: types.FunctionType, made: dict[Any, Any]) -> None:
    names = frozenset(names_in(function.__code__))
    values = copy.__globals__
    values.update(function.__globals__)
    for name in names & values.keys():
        values[name] = _renew(values[name], names, made)
    for cell, original in zip(copy.__closure__ or (), function.__closure__ or (), strict=True):
        with suppress(ValueError):  # empty: defined further down, and not yet
            cell.cell_contents = _renew(original.cell_contents, names, made)


def _renew(value: Any, names: frozenset[str], made: dict[Any, Any]) -> Any:
    if isinstance(value, DUFunc):
        if id(value) not in made:
            renew, inner = _renewing(value._dispatcher, _target="npyufunc")
            copy = made[id(value)] = DUFunc._rebuild(inner, value.identity, False, [])
            renew(made)
            if value._frozen:
                for signature in value._dispatcher.overloads:
                    copy.add(signature)
                copy.disable_compile()
        return made[id(value)]
    if isinstance(value, Dispatcher) and not is_known(value):
        if id(value) not in made:
            dispatcher: Any = value
            pipeline = dispatcher._compiler.pipeline_class
            renew, copy = _renewing(dispatcher, pipeline_class=pipeline, **made["options"])
            made[id(value)] = copy
            renew(made)
            if not dispatcher._can_compile:
                for signature in dispatcher.nopython_signatures:
                    copy.compile(signature)
                copy.disable_compile()
        return made[id(value)]
    if isinstance(value, types.ModuleType) and not is_known_module(value):
        if (id(value), names) not in made:
            module = made[id(value), names] = types.ModuleType(value.__name__)
            vars(module).update(vars(value))
            for name in names & vars(module).keys():
                vars(module)[name] = _renew(vars(module)[name], names, made)
        return made[id(value), names]
    return value


def _renewing(dispatcher: Any, **options: Any) -> tuple[Callable[[dict[Any, Any]], None], Any]:
    """Make a copy without globals, and what fills them in: it may call itself, and so must exist before."""
    copy = _empty_copy(dispatcher.py_func)
    jit = numba.jit(**{**dispatcher.targetoptions, **options})
    return lambda made: _fill(copy, dispatcher.py_func, made), jit(copy)
