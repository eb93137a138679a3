"""Compiled code: NumPy arrays in, `out` filled, nothing else. Knows numba and numpy only.

The names in `__all__` are public: functions that check their arguments and work on all cores. They are imported when
they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .uninterrupted import import_uninterrupted

# What `numba_internals` imports. Not that module itself: whoever imports it first holds the lock of its import, and
# the thread would wait for that. NumPy imports `numpy.ma` when Numba first asks for the type of an array.
PARTS = (
    *("numpy.ma", "numba", "numba.core.registry", "numba.core.caching", "numba.core.event"),
    *("numba.np.arrayobj", "numba.np.linalg", "numba.np.numpy_support", "numba.np.ufunc.dufunc"),
)


def _import_numba() -> None:
    for part in PARTS:
        import_module(part)


# Before any of the kernels: they are compiled by it.
import_uninterrupted(_import_numba)

from .numba_internals import load_builtins  # noqa: E402

import_uninterrupted(load_builtins)

if TYPE_CHECKING:
    from .api import draws as draws
    from .api import gather as gather
    from .api import normalize as normalize
    from .distributions import Draws as Draws
    from .keys import fields_id as fields_id
    from .shuffling import Permutation as Permutation
    from .shuffling import permutation as permutation

# The file of every public name. None of these files may have one of the names: importing it would hide the function.
_HOMES = {
    "Draws": "distributions",
    "Permutation": "shuffling",
    "draws": "api",
    "fields_id": "keys",
    "gather": "api",
    "normalize": "api",
    "permutation": "shuffling",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'loaderx.kernels' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
