"""Fingerprint of compiled code: a hash of the functions, their callees, and the values they read.

Every value is encoded with its type and length, so that no two values are encoded alike. A value whose whole state is
not known has no fingerprint: code that depends on it is not cached.
"""

import builtins
import dis
import enum
import functools
import hashlib
import struct
import types
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
from numba.core import types as numba_types

from loaderx.kernels.numba_internals import (
    Dispatcher,
    DUFunc,
    Signature,
    dispatcher_of,
    fixed_signatures,
    jit_options,
    pipeline_class,
)

from .extensions import foreign_extensions
from .packages import is_known, is_known_module, version_of


class Uncacheable(Exception):  # noqa: N818 - not an error: the code is then compiled without a cache
    """Signal that code depends on something without a fingerprint."""


def fingerprint(*functions: Callable[..., Any]) -> str:
    """Return a hash that is equal for the same code and values in any process, and different for any others.

    Raise `Uncacheable` if that cannot be guaranteed.
    """
    encoder = _Encoder()
    encoder.sequence("functions", functions)
    encoder.extensions()
    return encoder.digest.hexdigest()


def names_in(code: types.CodeType) -> set[str]:
    """Return the globals and attributes that code reads, also in the functions inside of it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_in(constant)
    return names


@functools.lru_cache(maxsize=4096)
def globals_in(code: types.CodeType) -> frozenset[str]:
    """Return the globals that code reads, also in the functions inside of it."""
    names = {
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    inner = (globals_in(part) for part in code.co_consts if isinstance(part, types.CodeType))
    return frozenset(names.union(*inner))


def cells_of(function: types.FunctionType) -> Iterator[Any]:
    """Yield the values of the closure of a function."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # empty: defined further down, and not yet
            yield _ABSENT


_ABSENT = object()
_PLAIN = (bool, int, str, bytes, type(None), type(...))


class _Encoder:
    """Encoder of values into one hash."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        # With the values themselves, so that no other object can get the same id meanwhile.
        self._seen: dict[int, tuple[int, Any]] = {}
        self._names: set[str] = set()
        self._reached: dict[int, Any] = {}

    def put(self, *parts: str | bytes) -> None:
        for part in parts:
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            self.digest.update(len(data).to_bytes(8, "little") + data)

    def sequence(self, kind: str, values: Any) -> None:
        values = tuple(values)
        self.put(kind, str(len(values)))
        for value in values:
            self.add(value)

    def add(self, value: Any) -> None:
        kind = type(value)
        self._reached[id(value)] = value
        if kind in _PLAIN:
            self.put(kind.__name__, value if kind in (str, bytes) else repr(value))
        elif kind is float:
            self.put("float", struct.pack("<d", value))
        elif kind is complex:
            self.put("complex", struct.pack("<dd", value.real, value.imag))
        elif kind is tuple:
            self.sequence("tuple", value)
        elif kind in (slice, range):
            self.sequence(kind.__name__, (value.start, value.stop, value.step))
        elif isinstance(value, np.dtype):
            self._dtype(value)
        elif isinstance(value, np.generic):
            self.put("scalar")
            self._array(np.asarray(value))
        elif kind in (np.ndarray, np.memmap):
            self.put(kind.__name__)
            self._array(value)
        elif kind in (set, frozenset):
            self.put(kind.__name__, str(len(value)), *sorted(map(self._apart, value)))
        elif value is _ABSENT:
            self.put("absent")
        else:
            self._add_once(value)

    def _add_once(self, value: Any) -> None:
        """Encode a value that may contain itself or be met often: by its number if it was met before."""
        if id(value) in self._seen:
            self.put("seen", str(self._seen[id(value)][0]))
            return
        self._seen[id(value)] = len(self._seen), value
        if type(value) is list:
            self.sequence("list", value)
        elif type(value) is dict:
            self.sequence("dict", (part for item in value.items() for part in item))
        elif isinstance(value, types.ModuleType):
            self.put("module", value.__name__, version_of(value))
        elif isinstance(value, types.CodeType):
            self._code(value)
        elif isinstance(value, numba_types.Type):
            self._numba_type(value)
        elif isinstance(value, Signature):
            self.sequence("signature", (value.return_type, *value.args))
        elif isinstance(value, enum.Enum):
            self.put("member", repr(value._name_))
            self.add(value._value_)
            self.add(type(value))
        elif is_known(value):
            # A ufunc of NumPy 2.1 has no module.
            module = getattr(value, "__module__", "numpy")
            self.put("known", str(module), getattr(value, "__qualname__", value.__name__))
        elif isinstance(value, DUFunc):
            self.put("ufunc", repr(value.identity))
            self._jitted(value, dispatcher_of(value).py_func)
        elif isinstance(value, Dispatcher):
            self.put("dispatcher", type(value).__name__)
            self.add(pipeline_class(value))
            self._jitted(value, value.py_func)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, tuple) and hasattr(type(value), "_fields"):
            self.put("named tuple")
            self.add(type(value))
            self.sequence("values", value)
        elif any(value is held for held in vars(numba).values()):
            self.put("of numba", *(name for name, held in vars(numba).items() if held is value))
        else:
            raise Uncacheable(f"{_called(value)} has a state that cannot be hashed")

    def _apart(self, value: Any) -> bytes:
        other = _Encoder()
        other.add(value)
        self._reached.update(other._reached)
        self._names |= other._names
        return other.digest.digest()

    def _dtype(self, dtype: np.dtype[Any]) -> None:
        self.put("dtype", dtype.str, f"{dtype.type.__module__}.{dtype.type.__qualname__}")
        self.put(str(dtype.itemsize), str(dtype.alignment), str(dtype.isalignedstruct))
        if dtype.subdtype is not None:
            self.sequence("subarray", dtype.subdtype)
        fields: Any = dtype.fields or {}
        self.put(str(len(fields)))
        for name, field in fields.items():
            self.put(name)
            self.sequence("field", field)

    def _array(self, array: Any) -> None:
        if array.dtype.hasobject or array.dtype.kind not in "biufcmMSUV":
            raise Uncacheable(f"an array of dtype {array.dtype} holds references")
        self._dtype(array.dtype)
        flags = array.flags
        contiguous = flags.c_contiguous or flags.f_contiguous
        self.put(repr((array.shape, flags.c_contiguous, flags.f_contiguous, flags.aligned)))
        self.put(repr((flags.writeable, None if contiguous else array.strides)))
        self.put(np.ascontiguousarray(array).tobytes())

    def _numba_type(self, value: Any) -> None:
        if isinstance(value, _TYPES_OF_CODE) or not is_known(type(value)):
            raise Uncacheable(f"the Numba type {value} represents code")
        self.put("type", type(value).__module__, type(value).__qualname__, str(value))
        if value.key is not value:
            self.add(value.key)

    def _jitted(self, value: Any, function: types.FunctionType) -> None:
        self.add(dict(sorted(jit_options(value).items())))
        self.sequence("signatures", fixed_signatures(value))
        self.add(function)

    def _function(self, function: types.FunctionType) -> None:
        self.put("function")
        self._code(function.__code__)
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        names = names_in(function.__code__)
        self._names |= names
        opened: set[int] = set()
        for value in cells_of(function):
            self.put("cell")
            self.add(value)
            self._open(value, names, opened)
        for name in sorted(globals_in(function.__code__)):
            value = function.__globals__.get(name, vars(builtins).get(name, _ABSENT))
            self.put("global", name)
            self.add(value)
            self._open(value, names, opened)

    def _open(self, module: Any, names: set[str], opened: set[int]) -> None:
        """Encode the values that are read through a module: helpers.gain, package.config.LEVEL."""
        if not isinstance(module, types.ModuleType) or id(module) in opened:
            return
        opened.add(id(module))
        known = is_known_module(module)
        if not known and (
            "getattr" in names
            or "__getattr__" in vars(module)
            or type(module) is not types.ModuleType
        ):
            raise Uncacheable(f"what is read from the module {module.__name__!r} is decided later")
        for name in sorted(names & vars(module).keys()):
            value = vars(module)[name]
            if known and not isinstance(value, _OWN) and not isinstance(value, types.ModuleType):
                self._reached[id(value)] = value
                continue  # changes with the version of the package only
            self.put("attribute", name)
            self.add(value)
            self._open(value, names, opened)

    def _class(self, value: type) -> None:
        self.put("class", value.__module__, value.__qualname__)
        if isinstance(value, enum.EnumMeta):
            self.sequence("bases", (base.__qualname__ for base in value.__mro__))
            members: Any = value.__members__.items()
            self.sequence("members", ((name, member._value_) for name, member in members))
        elif issubclass(value, tuple) and hasattr(value, "_fields"):
            self.add(value._fields)
            self.add(dict(getattr(value, "_field_defaults", {})))
        elif not issubclass(value, BaseException) or value.__module__ == "__main__":
            # Exceptions of modules are found by name in the process that raises them.
            raise Uncacheable(f"{_called(value)} is code that is compiled elsewhere")

    def _code(self, code: types.CodeType) -> None:
        self.put("code", code.co_code, code.co_exceptiontable, str(code.co_flags))
        self.put(str((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)))
        for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
            self.sequence("names", names)
        self.sequence("constants", code.co_consts)

    def extensions(self) -> None:
        """Encode the extensions of Numba that this code may use."""
        found = set()
        for extension in foreign_extensions():
            if extension.concerns(self._names, self._reached):
                if extension.file_hash is None:
                    raise Uncacheable(f"{extension.called} extends Numba")
                found.add((extension.called, extension.file_hash))
        self.sequence("extensions", sorted(found))


# By name: type checkers do not find all of them.
_TYPES_OF_CODE = tuple(
    getattr(numba_types, name) for name in ("ClassType", "ClassInstanceType", "Callable")
)
# These types are encoded by their content, in whatever module they are.
_OWN = (bool, int, float, complex, str, bytes, tuple, np.generic, np.ndarray, types.FunctionType,
        Dispatcher, DUFunc)  # fmt: skip


def _called(value: Any) -> str:
    name = getattr(value, "__qualname__", None) or f"a value of type {type(value).__qualname__}"
    return f"{name!r} of {getattr(value, '__module__', None)}"
