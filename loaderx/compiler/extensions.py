"""Extensions of Numba (overloads, intrinsics, lowered functions) that are registered outside of known packages.

Numba finds them by what they extend, so that nothing in the code that is compiled refers to them.
"""

import functools
import hashlib
import inspect
import site
import sysconfig
import types
from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numba.core import imputils
from numba.core import types as numba_types
from numba.core.typing import templates

import loaderx

from .packages import is_known, is_known_file


@dataclass(frozen=True)
class Extension:
    """One thing that Numba was taught: by which function or class, and about which function or attribute."""

    origin: Any
    about: Any
    template: Any

    @property
    def called(self) -> str:
        return f"{self.origin.__module__}.{self.origin.__qualname__}"

    @property
    def file_hash(self) -> str | None:
        """Hash of the file, for packages that are installed; what a user edits has none."""
        return _file_hash(_file_of(self.origin))

    def concerns(self, names: set[str], values: Container[int]) -> bool:
        """Tell whether code that reads these names, and values of these ids, may use this extension."""
        if self.origin is self.about:  # of `register_jitable`: the code that is called, itself
            return False
        if isinstance(self.about, str):
            return self.about in names
        # Where Numba knows a function already, syntax (`a + b`, `x[i]`) and its own code call it, too.
        return self.about is None or id(self.about) in _IMPLEMENTED or id(self.about) in values


def foreign_extensions() -> list[Extension]:
    """List the extensions that no known package registered."""
    for registered, read in _READERS:
        # Only what is new since the last time: Numba's own are thousands. Two threads may find the same.
        new = registered[_DONE.get(id(registered), 0) :]
        end = _DONE.get(id(registered), 0) + len(new)
        _FOUND.update({found: None for entry in new for found in read(entry)})
        _DONE[id(registered)] = end
    return list(_FOUND)


def forget_compiled_extensions() -> None:
    """Make Numba compile the implementations of users' extensions anew: a global they read may have changed."""
    for extension in foreign_extensions():
        if extension.file_hash is None and getattr(extension.template, "_impl_cache", None):
            extension.template._impl_cache.clear()


def _of_template(template: Any, about: Any = None) -> Iterator[Extension]:
    origin = getattr(template, "_overload_func", None) or getattr(
        template, "_definition_func", None
    )
    if origin is None:
        # `type_callable` makes a class around a function, `infer_global` one around a class.
        written = template.__mro__[1] if template.__module__ == templates.__name__ else template
        origin = vars(written).get("generic", written)
    if about is None:
        about = getattr(template, "_attr", None) or template.key
    if inspect.isclass(about) and issubclass(about, numba_types.Type) and is_known(about):
        about = None
    yield from _foreign(origin, about, template)


def _of_global(entry: Any) -> Iterator[Extension]:
    value, kind = entry
    for template in getattr(kind, "templates", ()):
        yield from _of_template(template, value)


def _of_lowered(entry: Any) -> Iterator[Extension]:
    implementation, about, kinds = entry
    if all(_is_builtin(kind) for kind in kinds):
        yield from _foreign(implementation, None if isinstance(about, str) else about, None)


def _of_attribute(entry: Any) -> Iterator[Extension]:
    implementation, name, kinds = entry
    if all(_is_builtin(kind) for kind in kinds):
        yield from _foreign(implementation, name, None)


def _of_conversion(entry: Any) -> Iterator[Extension]:
    implementation, kinds = entry
    if all(_is_builtin(kind) for kind in kinds):
        yield from _foreign(implementation, None, None)


def _is_builtin(kind: Any) -> bool:
    return is_known(kind if inspect.isclass(kind) else type(kind))


def _foreign(origin: Any, about: Any, template: Any) -> Iterator[Extension]:
    # `register_jitable` and others wrap what they were given.
    for inner in _wrapped(origin):
        file = _file_of(inner)
        if file is None or not is_known_file(file, (inner.__module__ or "").split(".")[0]):
            yield Extension(inner, about, template)
        elif about is not None:
            _IMPLEMENTED[id(about)] = about


def _wrapped(origin: Any) -> list[Any]:
    if isinstance(origin, types.FunctionType) and (origin.__module__ or "").startswith("numba."):
        cells = [cell.cell_contents for cell in origin.__closure__ or ()]
        return [cell for cell in cells if isinstance(cell, types.FunctionType)] or [origin]
    return [origin]


def _file_of(origin: Any) -> str | None:
    with suppress(TypeError, OSError):
        return inspect.getfile(origin)
    return None


@functools.cache
def _file_hash(file: str | None) -> str | None:
    if file is None:
        return None
    path = Path(file).resolve()
    if not any(path.is_relative_to(root) for root in _installed_roots()):
        return None
    with suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return None


@functools.cache
def _installed_roots() -> list[Path]:
    roots = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    return [Path(root).resolve() for root in roots] + [Path(loaderx.__file__).resolve().parent]


_FOUND: dict[Extension, None] = {}
_DONE: dict[int, int] = {}
# By id, with the function itself, so that no other can have the same.
_IMPLEMENTED: dict[int, Any] = {}
_READERS = (
    (templates.builtin_registry.functions, _of_template),
    (templates.builtin_registry.attributes, _of_template),
    (templates.builtin_registry.globals, _of_global),
    (imputils.builtin_registry.functions, _of_lowered),
    (imputils.builtin_registry.getattrs, _of_attribute),
    (imputils.builtin_registry.setattrs, _of_attribute),
    (imputils.builtin_registry.casts, _of_conversion),
    (imputils.builtin_registry.constants, _of_conversion),
)
