"""Memory between guard pages, which end the process if they are touched."""

import ctypes
import mmap

import numpy as np

LIBRARY = ctypes.CDLL(None, use_errno=True)
PROT_NONE = 0
PAGE = mmap.PAGESIZE


def forbid(address):
    """Protect a page from any access, until its memory is given back."""
    if LIBRARY.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(PAGE), PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")


def between_guard_pages(size, at_end=True):
    """Return bytes at the end of the pages between two guard pages, or at their beginning."""
    room = -(-size // PAGE) * PAGE
    whole = np.frombuffer(mmap.mmap(-1, room + 2 * PAGE), np.uint8)
    forbid(whole.ctypes.data)
    forbid(whole.ctypes.data + PAGE + room)
    start = PAGE + (room - size if at_end else 0)
    return whole[start : start + size]
