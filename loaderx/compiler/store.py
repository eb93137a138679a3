"""Compiled drivers on disk: compiled once for all processes, never stale, bounded in size, and never in the way."""

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOST_BYTES = 256 * 1024 * 1024


def folder() -> Path:
    """Where drivers are kept: `LOADERX_CACHE_DIR`, or the user's cache folder."""
    named = os.environ.get("LOADERX_CACHE_DIR")
    if named:
        return Path(named)
    if sys.platform == "darwin":
        return Path("~/Library/Caches/loaderx").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "loaderx"


def write_driver(name: str, source: str) -> Path | None:
    """The file of a driver, written if it is not there; None where nothing can be written."""
    with suppress(OSError, RuntimeError):
        home = folder()
        home.mkdir(parents=True, exist_ok=True)
        file = home / f"{name}.py"
        if not file.exists():
            # Under another name first: a process that starts meanwhile must not read half of it.
            with tempfile.NamedTemporaryFile("w", dir=home, suffix=".tmp", delete=False) as half:
                half.write(source)
            Path(half.name).replace(file)
        else:
            # What is used stays longest.
            os.utime(file)
        return file
    return None


@contextmanager
def locked(file: Path | None) -> Iterator[None]:
    """One process compiles a driver, the others wait and then load it."""
    if file is None:
        yield
        return
    try:
        handle = file.with_suffix(".lock").open("w")
    except OSError:
        yield
        return
    with handle:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def clean(most_bytes: int = MOST_BYTES) -> None:
    """Remove the drivers not used for longest while all together are larger than `most_bytes`."""
    with suppress(OSError):
        drivers = _drivers()
        total = sum(size for _, files in drivers for _, size in files)
        for _, files in drivers:
            if total <= most_bytes:
                return
            for file, size in files:
                Path(file).unlink(missing_ok=True)
                total -= size


def _drivers() -> list[tuple[float, list[tuple[str, int]]]]:
    """When each driver was last used, and its files with their sizes; the one not used for longest first."""
    home = folder()
    used: dict[str, float] = {}
    files: dict[str, list[tuple[str, int]]] = {}
    # Each folder is read once: with a thousand drivers in it, this happens behind every compilation.
    for place in (home, home / "__pycache__"):
        with suppress(FileNotFoundError), os.scandir(place) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process cleans, too
                    name, status = entry.name.split(".")[0], entry.stat()
                    files.setdefault(name, []).append((entry.path, status.st_size))
                    if entry.name == f"{name}.py":
                        used[name] = status.st_mtime
    return [(used[name], files[name]) for name in sorted(used, key=lambda name: used[name])]
