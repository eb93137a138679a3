"""Compiled code: NumPy arrays in, `out` filled, nothing else. Knows numba and numpy only.

The names in `__all__` are public: functions that check their arguments and work on all cores.
"""

from importlib import import_module

from .uninterrupted import import_uninterrupted

# Imports of `numba_internals`. Not that module itself: the first thread that imports it holds the lock of its import,
# and this one would wait for that. NumPy imports `numpy.ma` when Numba first asks for the type of an array.
PARTS = (
    *("numpy.ma", "numba", "numba.core.registry", "numba.core.caching", "numba.core.event"),
    *("numba.np.arrayobj", "numba.np.linalg", "numba.np.numpy_support", "numba.np.ufunc.dufunc"),
)


def _import_numba() -> None:
    for part in PARTS:
        import_module(part)


# Before any of the kernels, since it compiles them.
import_uninterrupted(_import_numba)

from .numba_internals import load_builtins  # noqa: E402

import_uninterrupted(load_builtins)

# Now, and not when they are first used: in a user's compiled code Numba does not find what a module imports later. No
# file of this package may have one of these names: importing it would hide the function.
from .api import draws as draws  # noqa: E402
from .api import gather as gather  # noqa: E402
from .api import normalize as normalize  # noqa: E402
from .distributions import Draws as Draws  # noqa: E402
from .keys import fields_id as fields_id  # noqa: E402
from .shuffling import Permutation as Permutation  # noqa: E402
from .shuffling import permutation as permutation  # noqa: E402

__all__ = [
    "Draws",
    "Permutation",
    "draws",
    "fields_id",
    "gather",
    "normalize",
    "permutation",
]


def __dir__() -> list[str]:
    return list(__all__)
