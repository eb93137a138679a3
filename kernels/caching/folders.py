"""Cache folders: where they are, and whether only this user can write files into them."""

import functools
import os
import stat
import sys
import warnings
from contextlib import suppress
from pathlib import Path

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_folder() -> Path:
    """Return `LOADERX_CACHE_DIR`, or the folder of this library in the user's cache."""
    named = os.environ.get("LOADERX_CACHE_DIR")
    if named:
        return Path(named)
    if sys.platform == "darwin":
        return Path("~/Library/Caches/loaderx").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "loaderx"


def is_protected(status: os.stat_result) -> bool:
    """Tell whether a file or folder belongs to this user or to root, and others may not write to it."""
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & OTHERS_WRITE


def is_private(folder: Path) -> bool:
    """Tell whether only this user and root can write files into a folder."""
    with suppress(OSError):
        # The mode of a link means nothing, but its owner decides where it leads.
        led_by_us = folder.lstat().st_uid in (os.geteuid(), 0)
        return led_by_us and folder.is_dir() and is_protected(folder.stat())
    return False


def private_folder(named: Path) -> Path | None:
    """Return a folder to load code from: the named one, or one inside of it if others may write to that.

    Return None if neither can be used. Cached code is unpickled and run, so only this user may write it.
    """
    with suppress(OSError, RuntimeError):
        _make(named)
        if is_private(named):
            return named
        inner = named / f"loaderx-{os.geteuid()}"
        with suppress(OSError):
            _make(inner)
        found = is_private(inner)
        _warn(named, inner if found else None)
        return inner if found else None
    return None


def _make(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


@functools.cache
def _warn(folder: Path, instead: Path | None) -> None:
    status = folder.stat()
    used = f"{instead} is used instead" if instead else "nothing is cached"
    warnings.warn(
        f"The cache folder {folder} (owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}) is not used: it "
        f"must belong to this user ({os.geteuid()}), and others must not be able to write to it, since code is loaded "
        f"from it. For now {used}. Run `chmod go-w {folder}` if it is yours, or set LOADERX_CACHE_DIR (or "
        "NUMBA_CACHE_DIR) to a folder of your own.",
        stacklevel=3,
    )
