"""Import of Numba as a whole: what it registers, without SciPy's linear algebra, and not to be interrupted."""

import functools
import sys
from importlib.util import find_spec

from .uninterrupted import import_uninterrupted


@functools.cache
def import_numba() -> None:
    """Import Numba, and what it would import itself when it compiles or loads its first function."""
    import_uninterrupted(_import_all)


def _import_all() -> None:
    # NumPy imports it when Numba first asks for the type of an array.
    import numpy.ma  # noqa: F401
    from numba.core import config
    from numba.np import linalg

    if config.DISABLE_JIT:
        return
    # Numba loads SciPy only to see whether it is there; where a function multiplies matrices, it still does when it
    # compiles or calls it.
    check = getattr(linalg, "ensure_blas", None)
    if check is None or "numba.np.arraymath" in sys.modules or find_spec("scipy") is None:
        _register()
        return
    linalg.ensure_blas = lambda: None
    try:
        import numba.np.arraymath  # noqa: F401 - for what it registers
    finally:
        linalg.ensure_blas = check
    _register()


def _register() -> None:
    from numba.core.registry import cpu_target

    cpu_target.target_context.refresh()
