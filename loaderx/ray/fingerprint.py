"""Fingerprint of a loader: facts that must be equal wherever its batches are built.

They are versions, the configuration of the stream, hashes of a user's code, and the bytes of the first rows.
"""

import functools
import hashlib
import importlib.metadata
import platform
import site
import struct
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import loaderx
from loaderx.batch.builder import BatchBuilder
from loaderx.display.reprs import ReprFromArguments
from loaderx.kernels.caching.fingerprint import cells_of, globals_in, names_in
from loaderx.loader import DataLoader
from loaderx.sources import Source
from loaderx.transforms.authoring import AuthoredTransform, TransformFactory
from loaderx.transforms.base import Transform

Fingerprint = dict[str, str]
# Packages whose version decides bytes.
PACKAGES = ("numpy", "numba", "llvmlite", "ml_dtypes")
# Rows of step 0 that are built and compared.
ROWS_COMPARED = 2
# Bytes of an array that code refers to, above which only its shape is compared.
MOST_BYTES = 1 << 24


def fingerprint(loader: DataLoader, builder: BatchBuilder) -> Fingerprint:
    """Return the facts about a loader, and about the builder of its batches."""
    order = builder.order
    facts = {
        "Python": platform.python_version(),
        "architecture": f"{platform.machine()}, {sys.byteorder}-endian",
        "loaderx": f"{loaderx.__version__} (source {_source_hash()})",
        **{package: importlib.metadata.version(package) for package in PACKAGES},
        "image decoders": str(builder.decoder),
        "rows": str(order.rows),
        "batch_size": str(order.batch_size),
        "shuffle": str(order.shuffle),
        "seed": str(order.seed),
        "num_epochs": str(order.epochs),
        "remainder": order.remainder,
        "fields of the data": builder.description,
        "dtypes": ", ".join(f"{field.name}: {field.spec}" for field in builder.planner.fields),
    }
    for field in builder.planner.fields:
        chain = field.chain
        steps = [] if chain is None else [*(chain.head.steps if chain.head else ()), *chain.steps]
        for number, step in enumerate(steps):
            name = f"op {number} of field {field.name!r}, {step.transform.name}"
            facts[name] = f"code and parameters {_hash((step.transform, step.key))}"
    if builder.hook is not None:
        facts["`transform`"] = f"code {_hash(builder.hook)}"
    for kind in _user_classes(loader.dataset, loader.labelset):
        facts[f"class {kind.__qualname__} of the data"] = f"code {_hash(kind)}"
    facts["first rows of step 0"] = _first_rows(builder)
    return facts


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Return a text of what differs; an empty one if nothing does."""
    names = [*ours, *(name for name in theirs if name not in ours)]
    return "; ".join(
        f"{name}: {theirs.get(name, 'missing')} there, {ours.get(name, 'missing')} here"
        for name in names
        if ours.get(name) != theirs.get(name)
    )


def _first_rows(builder: BatchBuilder) -> str:
    """Return a hash of the first rows of step 0, or the error that they raise."""
    span = builder.order.span(builder.order.position_of(0))
    if span is None:
        return "none"
    fields = builder.planner.fields
    try:
        built = builder.filled(0, span, [((0, min(ROWS_COMPARED, span.size)),)] * len(fields))
    except Exception as error:  # noqa: BLE001 - it is raised again at its step
        return f"{type(error).__name__} is raised"
    digest = hashlib.sha256()
    for (array,) in built.arrays:
        digest.update(array.tobytes())
    return f"bytes {digest.hexdigest()[:16]}"


@functools.cache
def _source_hash() -> str:
    """Return a hash of all source files of this package."""
    folder = Path(loaderx.__file__).parent
    digest = hashlib.sha256()
    # The kernels are behind a link in a clone, which `rglob` does not follow.
    files = {*folder.rglob("*.py"), *(folder / "kernels").rglob("*.py")}
    for file in sorted(files, key=lambda file: file.relative_to(folder).as_posix()):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _user_classes(*values: Any) -> Iterator[type]:
    """Yield the classes of a user among sources, each once."""
    found: dict[type, None] = {}
    _collect_classes(values, found, 0)
    yield from found


def _collect_classes(value: Any, found: dict[type, None], depth: int) -> None:
    if depth > 8:
        return
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list) and len(value) <= 1000:
        for item in value:
            _collect_classes(item, found, depth + 1)
        return
    for kind in type(value).__mro__:
        if not _is_installed(kind.__module__):
            found[kind] = None
    if isinstance(value, Source | ReprFromArguments):
        _collect_classes(tuple(vars(value).values()), found, depth + 1)


def _hash(value: Any) -> str:
    """Return a hash of a value: of code by what it does, of data by its content."""
    encoder = _Encoder()
    encoder.add(value)
    return encoder.digest.hexdigest()[:16]


class _Encoder:
    """Encoder of values into one hash. Of an object of an unknown class only the code of the class counts."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        # With the values, so that no other object gets the same id meanwhile.
        self._seen: dict[int, tuple[int, Any]] = {}

    def put(self, *parts: str | bytes) -> None:
        for part in parts:
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            self.digest.update(len(data).to_bytes(8, "little") + data)

    def add(self, value: Any) -> None:
        """Encode a value."""
        if isinstance(value, bool | int | str | bytes | type(None) | np.dtype):
            self.put(type(value).__name__, value if isinstance(value, str | bytes) else str(value))
        elif isinstance(value, float):
            self.put("float", struct.pack("<d", value))
        elif isinstance(value, np.ndarray | np.generic):
            self._array(np.asarray(value))
        elif id(value) in self._seen:
            self.put("seen", str(self._seen[id(value)][0]))
        else:
            self._seen[id(value)] = len(self._seen), value
            self._add_once(value)

    def _add_once(self, value: Any) -> None:
        if isinstance(value, tuple | list):
            self.put("sequence", str(len(value)))
            for item in value:
                self.add(item)
        elif isinstance(value, set | frozenset):
            self.put("set", *sorted(map(_hash, value)))
        elif isinstance(value, Mapping):
            self.put("mapping", str(len(value)))
            for key, item in value.items():
                self.add(key)
                self.add(item)
        elif isinstance(value, types.CodeType):
            self._code(value)
        elif isinstance(value, types.ModuleType):
            self._module(value)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType | functools.partial):
            self.put("bound")
            if isinstance(value, types.MethodType):
                self.add((value.__func__, value.__self__))
            else:
                self.add((value.func, value.args, value.keywords))
        elif isinstance(value, staticmethod | classmethod):
            self.put(type(value).__name__)
            self.add(value.__func__)
        elif isinstance(value, property):
            self.put("property")
            for function in (value.fget, value.fset):
                self.add(function)
        elif isinstance(value, type):
            self._class(value)
        else:
            self._object(value)

    def _object(self, value: Any) -> None:
        kind = type(value)
        named = getattr(value, "__qualname__", getattr(value, "__name__", ""))
        self.put("object", kind.__module__, kind.__qualname__, str(named))
        plain = getattr(value, "py_func", None)
        if isinstance(plain, types.FunctionType):  # compiled by Numba
            self.add(plain)
        elif isinstance(value, TransformFactory):
            self.add((value.py, value.out))
        elif isinstance(value, AuthoredTransform):
            self.add(value.__reduce__()[1])
        elif isinstance(value, Transform):
            if value._written != ((), {}):
                self.add(value._written)
            else:
                self.add({name: own for name, own in vars(value).items() if name[:1] != "_"})
        self._class(kind)

    def _class(self, kind: type) -> None:
        self.put("class", kind.__module__, kind.__qualname__)
        for base in kind.__mro__:
            if _is_installed(base.__module__):
                continue
            for name, value in sorted(vars(base).items()):
                called = callable(value) or isinstance(value, property | staticmethod | classmethod)
                if called or not name.startswith("__"):
                    self.put(name)
                    self.add(value)

    def _module(self, module: types.ModuleType) -> None:
        self.put("module")
        self._package(module.__name__)

    def _package(self, module: str) -> None:
        """Encode the name of a module, and the version of its package."""
        package = sys.modules.get(module.partition(".")[0])
        self.put(module, str(getattr(package, "__version__", "")))

    def _function(self, function: types.FunctionType) -> None:
        self.put("function", function.__qualname__)
        if _is_installed(str(function.__module__)):
            self._package(str(function.__module__))
            return
        self._code(function.__code__)
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        names = names_in(function.__code__)
        read = list(cells_of(function))
        for name in sorted(globals_in(function.__code__)):
            self.put("global", name)
            if name in function.__globals__:
                read.append(function.__globals__[name])
        for value in read:
            self._read(value, names)

    def _read(self, value: Any, names: set[str]) -> None:
        """Encode a value that a function reads, and what it reads through a module of the user."""
        if type(value) is object:  # the mark of a closure that is not filled yet
            self.put("absent")
            return
        self.add(value)
        if isinstance(value, types.ModuleType) and not _is_installed(value.__name__):
            for name in sorted(names & vars(value).keys()):
                self.put("attribute", name)
                self.add(vars(value)[name])

    def _array(self, array: Any) -> None:
        self.put("array", str(array.dtype), repr(array.shape))
        if array.dtype.hasobject or array.nbytes > MOST_BYTES:
            return
        self.put(np.ascontiguousarray(array).tobytes())

    def _code(self, code: types.CodeType) -> None:
        self.put("code", code.co_code, code.co_exceptiontable)
        self.add((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
        for constant in code.co_consts:
            # A docstring may differ, but code that reads it may not.
            self.add(constant)


@functools.cache
def _is_installed(module: str) -> bool:
    """Tell whether a module is part of Python or of an installed package, whose version tells its code."""
    package = module.partition(".")[0]
    if package == "__main__":
        # In a worker that is a program of Ray's; code of the user's is sent there by value.
        return False
    if package == "loaderx" or package in (*sys.builtin_module_names, *sys.stdlib_module_names):
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return False
    path = str(Path(file).resolve())
    return any(path.startswith(folder) for folder in _installed_folders())


@functools.cache
def _installed_folders() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [*(sysconfig.get_path(name) for name in names), *site.getsitepackages()]
    return tuple(str(Path(folder).resolve()) + "/" for folder in folders)
