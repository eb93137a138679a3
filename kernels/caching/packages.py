"""Packages that are known by their version: Python's own modules, NumPy, Numba and a few more, and the kernels.

The version of the kernels is a hash of their source. The location of a file decides, not the name of its module: a
user's `statistics.py` or `scipy.py` is the user's.
"""

import functools
import hashlib
import os
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np

# This library runs on these, so they are really the packages of these names.
IMPORTED = (np, numba, llvmlite)
KERNELS = Path(__file__).parents[1]
INSTALLED = ("scipy", "jax", "jaxlib")
FOREIGN_FOLDERS = ("site-packages", "dist-packages")


def is_known(value: Any) -> bool:
    """Tell whether a known package holds a value under the value's own name."""
    if isinstance(value, np.ufunc):
        return getattr(np, value.__name__, None) is value
    place, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(place, str) or not isinstance(name, str):
        return False
    found: Any = sys.modules.get(place)
    if found is None or not is_known_module(found):
        return False
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


def is_known_module(module: types.ModuleType) -> bool:
    """Tell whether a module is part of a known package, by the location of its file."""
    if sys.modules.get(module.__name__) is not module:
        return False
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ in sys.builtin_module_names
    return is_known_file(file, module.__name__.split(".")[0])


def is_known_file(file: str, package: str) -> bool:
    """Tell whether a file belongs to Python or to a known package."""
    if _is_own_or_python(file):
        return True
    root = _installed_root(package) if package in INSTALLED and package in sys.modules else None
    return root is not None and _real(file).startswith(root)


def version_of(module: types.ModuleType) -> str:
    """Return the version of the package that a module is part of."""
    package = sys.modules.get(module.__name__.split(".")[0], module)
    return str(getattr(module, "__version__", getattr(package, "__version__", "")))


def versions() -> tuple[str, ...]:
    """Return the versions of everything that compiles, and of the kernels."""
    return numba.__version__, llvmlite.__version__, sys.version, source_hash()


@functools.cache
def source_hash() -> str:
    """Return one hash of the source of all kernels."""
    hashes = "".join(file_hash(file) for file in sorted(KERNELS.rglob("*.py")))
    return hashlib.sha256(hashes.encode()).hexdigest()


@functools.cache
def file_hash(file: Path) -> str:
    """Return a hash of the content that a file had at the first call."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


@functools.cache
def _real(file: str) -> str:
    return os.path.realpath(file)


@functools.cache
def _is_own_or_python(file: str) -> bool:
    path = _real(file)
    if path.startswith(_own_roots()):
        return True
    python = path.startswith(_python_roots())
    return python and not any(part in FOREIGN_FOLDERS for part in Path(path).parts)


@functools.cache
def _own_roots() -> tuple[str, ...]:
    return (*(_folder_of(module) for module in IMPORTED), _real(str(KERNELS)) + os.sep)


@functools.cache
def _python_roots() -> tuple[str, ...]:
    return tuple(_real(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib"))


@functools.cache
def _installed_root(package: str) -> str | None:
    """Return the folder of an imported package if an installer put it there: its record is next to it."""
    root = Path(_folder_of(sys.modules[package]))
    records = (root.parent.glob(f"{package}-*.{kind}-info") for kind in ("dist", "egg"))
    return str(root) + os.sep if any(any(found) for found in records) else None


def _folder_of(module: types.ModuleType) -> str:
    return os.path.dirname(_real(module.__file__ or "")) + os.sep  # noqa: PTH120 - of a text, to a text
