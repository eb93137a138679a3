"""Atomic replacement: a file appears under its name when it is complete, and not before."""

import contextlib
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """Open a new file that replaces `path` at the end of the block; after an exception it is removed.

    It is written next to `path` under a hidden name, and locked by its process. First, unfinished files of processes
    that were killed are removed: the kernel released their locks.
    """
    remove_abandoned(path)
    with contextlib.ExitStack() as cleanup:
        unfinished, file = _new_locked(path)
        cleanup.callback(unfinished.unlink, missing_ok=True)
        # Closed last, so that no other process removes the file as abandoned meanwhile.
        with file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                # An error of writing to an open file has no name, but the user must find the full disk.
                error.filename = error.filename or str(path)
                raise
            unfinished.replace(path)
            cleanup.pop_all()


def remove_abandoned(path: Path) -> None:
    """Remove unfinished files of processes that ended early."""
    ours = re.compile(rf"\.{re.escape(path.name[:40])}\.[0-9a-f]{{12}}\.unfinished")
    try:
        names = [name for name in os.listdir(path.parent) if ours.fullmatch(name)]  # noqa: PTH208 - names of many
    except OSError:
        return  # A folder may be writable but not readable.
    for name in names:
        file = path.with_name(name)
        # The file belongs to somebody else, was removed meanwhile, or is in use.
        with contextlib.suppress(OSError):
            handle = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if stat.S_ISREG(os.fstat(handle).st_mode):
                    file.unlink()
            finally:
                os.close(handle)


def is_same(handle: int, path: Path) -> bool:
    """Return True if a path still names the file that is open."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _new_locked(path: Path) -> tuple[Path, BinaryIO]:
    while True:
        unfinished = path.with_name(f".{path.name[:40]}.{secrets.token_hex(6)}.unfinished")
        # Not `tempfile`: its files are readable by their owner only, those of `open` follow the umask.
        file = unfinished.open("xb")
        # Some network file systems lack locks: there no file counts as abandoned.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        # Another process may have removed it before it was locked.
        if is_same(file.fileno(), unfinished):
            return unfinished, file
        file.close()
