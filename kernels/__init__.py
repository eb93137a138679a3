"""Compiled code: NumPy arrays in, `out` filled, nothing else. Knows numba and numpy only."""

from .registries import import_numba

# Before any of them: they are compiled by it.
import_numba()
