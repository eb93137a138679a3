"""A function, and copies of the compiled functions it calls, to be compiled anew.

A jitted function keeps the values that globals had when it was compiled first, and Numba's own cache on disk looks at
no file but that of the function. In a driver either would be old code under a name that says something newer.
"""

import types
from contextlib import suppress
from typing import Any

import numba
from numba.core.dispatcher import Dispatcher

from .fingerprint import known, names_in


def renewed(function: Any, **options: Any) -> Any:
    """The same function, which calls no compiled code of before; what it calls gets these options of Numba."""
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
    if isinstance(value, Dispatcher) and not known(value.py_func.__module__):
        if id(value) not in made:
            copy = _empty_copy(value.py_func)
            # Before its globals are there: it may call itself.
            made[id(value)] = numba.jit(**{**value.targetoptions, **made["options"]})(copy)
            _fill(copy, value.py_func, made)
        return made[id(value)]
    if isinstance(value, types.ModuleType) and not known(value.__name__):
        if (id(value), names) not in made:
            module = made[id(value), names] = types.ModuleType(value.__name__)
            vars(module).update(vars(value))
            for name in names & vars(module).keys():
                vars(module)[name] = _renew(vars(module)[name], names, made)
        return made[id(value), names]
    return value
