"""Compiled code: NumPy arrays in, `out` filled, nothing else. Knows numba and numpy only."""

from importlib import import_module

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
