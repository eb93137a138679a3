"""Compiled code: NumPy arrays in, `out` filled, nothing else. Knows numba and numpy only."""
