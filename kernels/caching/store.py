"""Folders of compiled code: where they are, one process at a time that compiles into them, and their size.

The folder of kernels holds one file per version, kernel and signature. That of compiled ops grows with every new chain,
and so is bounded.
"""

import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from numba.core import config

from loaderx.kernels.progress import SECONDS, announce

from .folders import cache_folder, is_private, private_folder

MOST_BYTES = 256 * 1024 * 1024
# The largest passes compile for some seconds on an idle machine. A process that holds a lock much longer may be
# stopped, and never release it.
WAIT_SECONDS = 90.0
POLL_SECONDS = 0.02
PREFIX = "pass_"
logger = logging.getLogger("loaderx")


def folder() -> Path | None:
    """Return the folder of compiled ops; None if it cannot be created, or if others could write to it."""
    with suppress(RuntimeError):  # no home
        return private_folder(cache_folder())
    return None


def kernel_folders(sources: Path) -> list[Path]:
    """List the folders of kernels: the one named for Numba, that of the sources, or one in the user's cache."""
    apart = f"kernels-{hashlib.sha256(str(sources.absolute()).encode()).hexdigest()[:16]}"
    named = private_folder(Path(config.CACHE_DIR)) if config.CACHE_DIR else None
    if named:
        return [named / apart]
    folders = []
    pycache = sources / "__pycache__"
    exists = pycache.exists()
    if is_private(pycache) or not exists:
        folders.append(pycache)
        if os.access(pycache if exists else sources, os.W_OK):
            return folders
    own = folder()
    return [*folders, own / apart] if own else folders


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a lock among processes, or none: after `WAIT_SECONDS` of waiting, and on file systems without locks."""
    try:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        if _lock(handle, file):
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        with suppress(OSError):
            # Not by closing alone: a child that was forked meanwhile has the same file open.
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _lock(handle: int, file: Path) -> bool:
    began = time.monotonic()
    silent = True
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - began
        except OSError:  # a file system without locks
            return False
        else:
            return True
        holder = os.pread(handle, 20, 0).decode(errors="replace") or "unknown"
        if waited > WAIT_SECONDS:
            logger.warning(
                "Process %s holds the lock %s for more than %g s (is it stopped?): compiling without it.",
                *(holder, file, WAIT_SECONDS),
            )
            return False
        if silent and waited > SECONDS:
            announce(f"waiting for process {holder}, which compiles the same ({file.name})")
            silent = False
        time.sleep(POLL_SECONDS)


def is_locked(file: Path) -> bool:
    """Tell whether a process holds a lock."""
    # Also if the file is absent, owned by another user, or on a file system without locks.
    with suppress(OSError), file.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def mark_used(lock: Path) -> None:
    """Mark a compiled op as the most recently used."""
    with suppress(OSError):
        os.utime(lock)


def clean(home: Path, most_bytes: int = MOST_BYTES) -> None:
    """Remove the least recently used compiled ops while all together are larger than `most_bytes`."""
    with suppress(OSError):
        ops = _by_last_use(home)
        total = sum(size for files in ops for _, size in files)
        for files in ops:
            if total <= most_bytes:
                return
            for file, size in files:
                Path(file).unlink(missing_ok=True)
                total -= size


def _by_last_use(home: Path) -> list[list[tuple[str, int]]]:
    """List the files of each compiled op with their sizes, the least recently used op first."""
    files: dict[str, list[tuple[str, int]]] = {}
    used: dict[str, float] = {}
    # The folder is read once: with a thousand ops in it, this happens after every compilation.
    with os.scandir(home) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # another process cleans, too
                name, status = entry.name.split(".")[0], entry.stat()
                if name.startswith(PREFIX) and entry.is_file():
                    files.setdefault(name, []).append((entry.path, status.st_size))
                    used[name] = max(used.get(name, 0.0), status.st_mtime)
    return [files[name] for name in sorted(used, key=used.__getitem__)]
