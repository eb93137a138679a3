"""Numba's own modules for NumPy, without SciPy's linear algebra: it loads that only to see whether it is there."""

import functools
import sys
from importlib.util import find_spec


@functools.cache
def import_registries() -> None:
    """Import what Numba needs before its first function, and would import itself right then.

    Where a function multiplies matrices, Numba still loads SciPy when it compiles or calls it.
    """
    from numba.np import linalg

    check = getattr(linalg, "ensure_blas", None)
    if check is None or "numba.np.arraymath" in sys.modules or find_spec("scipy") is None:
        return
    linalg.ensure_blas = lambda: None
    try:
        import numba.np.arraymath  # noqa: F401 - for what it registers
    finally:
        linalg.ensure_blas = check
