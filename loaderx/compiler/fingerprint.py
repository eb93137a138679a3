"""A hash of everything that compiled code depends on: the function, what it calls, and the globals it reads."""

import enum
import hashlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

SIMPLE = (str, bytes, int, float, complex, type(...), np.generic, np.dtype)
# Known by their version; everything else is looked into.
PACKAGES = frozenset({"numpy", "numba", "llvmlite", "scipy", "jax"}) | sys.stdlib_module_names


def fingerprint(*functions: Callable[..., Any]) -> str:
    """The same for the same code and values in any process; another one when any of them changed."""
    digest = hashlib.sha256()
    seen: set[int] = set()
    for function in functions:
        _add(digest, function, seen)
    return digest.hexdigest()


def known(module: str | None) -> bool:
    """Whether a module is one of those that are not looked into."""
    # The kernels are hashed as a whole, by content.
    name = module or ""
    return name.split(".")[0] in PACKAGES or name.startswith("loaderx.kernels")


def names_in(code: types.CodeType) -> set[str]:
    """The globals and attributes that code reads, also in the functions inside of it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_in(constant)
    return names


def cells_of(function: types.FunctionType) -> Iterator[Any]:
    """The values that a function found around it where it was defined."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # empty: defined further down, and not yet
            yield None


def _add(digest: Any, value: Any, seen: set[int]) -> None:
    digest.update(type(value).__name__.encode())
    if hasattr(value, "targetoptions"):
        # Of `numba.njit`: fastmath, inline, error_model.
        _add(digest, dict(sorted(value.targetoptions.items())), seen)
    value = _plain(value)
    if isinstance(value, types.FunctionType):
        if id(value) not in seen:
            seen.add(id(value))
            if known(value.__module__):
                digest.update(f"{value.__module__}.{value.__qualname__}".encode())
            else:
                _add_function(digest, value, seen)
    elif isinstance(value, types.CodeType):
        _add_code(digest, value, seen)
    elif isinstance(value, types.ModuleType):
        digest.update(f"{value.__name__} {getattr(value, '__version__', '')}".encode())
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, tuple | list):
        for entry in value:
            _add(digest, entry, seen)
    elif isinstance(value, dict):
        for key, entry in value.items():
            _add(digest, key, seen)
            _add(digest, entry, seen)
    elif isinstance(value, set | frozenset):
        # In an order that does not depend on how strings are hashed in this process.
        digest.update(repr(sorted(map(repr, value))).encode())
    elif isinstance(value, enum.EnumMeta):
        digest.update(repr([(entry.name, entry.value) for entry in value]).encode())  # type: ignore[var-annotated]
    elif value is None or isinstance(value, SIMPLE):
        digest.update(repr(value).encode())
    else:
        # Types, builtins, extension objects: known by name, and changed only together with the package they are in.
        digest.update(
            f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}".encode()
        )


def _plain(value: Any) -> Any:
    """The function that `numba.njit` or `numba.vectorize` was given, or the value itself."""
    dispatcher = getattr(value, "_dispatcher", value)
    return getattr(dispatcher, "py_func", value)


def _add_function(digest: Any, function: types.FunctionType, seen: set[int]) -> None:
    _add_code(digest, function.__code__, seen)
    _add(digest, function.__defaults__, seen)
    _add(digest, function.__kwdefaults__, seen)
    names = sorted(names_in(function.__code__))
    opened: set[int] = set()
    for value in cells_of(function):
        _add(digest, value, seen)
        _add_members(digest, value, names, seen, opened)
    for name in names:
        if name in function.__globals__:
            digest.update(name.encode())
            value = function.__globals__[name]
            _add(digest, value, seen)
            _add_members(digest, value, names, seen, opened)


def _add_members(
    digest: Any, module: Any, names: list[str], seen: set[int], opened: set[int]
) -> None:
    """What is read through a module that is no installed package: helpers.gain, package.config.LEVEL."""
    if not isinstance(module, types.ModuleType) or known(module.__name__) or id(module) in opened:
        return
    opened.add(id(module))
    for name in names:
        if name in vars(module):
            digest.update(name.encode())
            value = vars(module)[name]
            _add(digest, value, seen)
            _add_members(digest, value, names, seen, opened)


def _add_code(digest: Any, code: types.CodeType, seen: set[int]) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for constant in code.co_consts:
        _add(digest, constant, seen)
