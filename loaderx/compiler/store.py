"""Folder of compiled drivers on disk: one process compiles, the others wait a while and load; bounded in size."""

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from loaderx.kernels.folders import cache_folder, private_folder
from loaderx.kernels.progress import SECONDS, say

MOST_BYTES = 256 * 1024 * 1024
# The largest chains compile for 44 s where nothing else runs. Whoever holds a lock longer may be stopped, and never
# release it.
WAIT_SECONDS = 90.0
POLL_SECONDS = 0.02
PREFIX = "driver_"
logger = logging.getLogger("loaderx")


def folder() -> Path | None:
    """Return the folder of drivers; None where none can be made, or where others could write to it."""
    with suppress(RuntimeError):  # no home
        return private_folder(cache_folder())
    return None


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
            say(f"waiting for process {holder}, which compiles the same ({file.name})")
            silent = False
        time.sleep(POLL_SECONDS)


def mark_used(lock: Path) -> None:
    """Make a driver the youngest: what is used stays longest."""
    with suppress(OSError):
        os.utime(lock)


def clean(home: Path, most_bytes: int = MOST_BYTES) -> None:
    """Remove the drivers not used for longest while all together are larger than `most_bytes`."""
    with suppress(OSError):
        drivers = _drivers(home)
        total = sum(size for _, files in drivers for _, size in files)
        for _, files in drivers:
            if total <= most_bytes:
                return
            for file, size in files:
                Path(file).unlink(missing_ok=True)
                total -= size


def _drivers(home: Path) -> list[tuple[float, list[tuple[str, int]]]]:
    """List when each driver was last used, and its files with their sizes; the one not used for longest first."""
    drivers: dict[str, tuple[float, list[tuple[str, int]]]] = {}
    # The folder is read once: with a thousand drivers in it, this happens after every compilation.
    with os.scandir(home) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # another process cleans, too
                name, status = entry.name.split(".")[0], entry.stat()
                if name.startswith(PREFIX) and entry.is_file():
                    used, files = drivers.get(name, (0.0, []))
                    drivers[name] = (
                        max(used, status.st_mtime),
                        [*files, (entry.path, status.st_size)],
                    )
    return sorted(drivers.values(), key=lambda driver: driver[0])
