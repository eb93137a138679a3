"""NumPy whose new memory ends the process that reads or writes beyond it."""

import math

import numpy as np

from tests.kernels.guard_pages import between_guard_pages

# Larger arrays are not guarded: their size is forged.
LARGE = 64 << 20


class GuardedNumpy:
    """NumPy with guard pages around new memory, if `on`."""

    def __init__(self):
        self.on = False

    def __getattr__(self, name):
        return getattr(np, name)

    def empty(self, shape, dtype=np.float64):
        sizes = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        nbytes = math.prod(sizes) * np.dtype(dtype).itemsize
        if not self.on or not 0 <= nbytes < LARGE:
            return np.empty(shape, dtype)
        return np.ndarray(sizes, dtype, between_guard_pages(nbytes))


GUARDED = GuardedNumpy()
