"""Data loader for JAX in which the per-sample work is compiled.

Names are imported when they are first used: `import loaderx` alone takes no time.
"""

import importlib
import pkgutil
import re
from typing import Any

__version__ = "0.2.0"
# The one list of public names is the stub that type checkers read. A name is imported when it is first used.
_STUB = (pkgutil.get_data(__name__, "__init__.pyi") or b"").decode()
_HOMES: dict[str, str] = {
    name: home
    for home, name in re.findall(r"^from \.(\S*) import (\w+) as \w+$", _STUB, re.MULTILINE)
}
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'loaderx' has no attribute {name!r}")
    if not _HOMES[name]:
        return importlib.import_module(f".{name}", __name__)
    try:
        home = importlib.import_module(f".{_HOMES[name]}", __name__)
    except AttributeError as error:
        # `from loaderx import ...` would report a missing name, without the reason.
        raise ImportError(f"loaderx.{_HOMES[name]} cannot be imported: {error}") from error
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
