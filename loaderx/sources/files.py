"""Opening the files that rows are read from, in any order and again and again."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from loaderx.errors import DataError

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_file(path: str | os.PathLike[str], what: str) -> BinaryIO:
    """Open a regular file, which is to be `what`; refuse everything else that a path can name."""
    kind = stat.S_IFMT(Path(path).stat().st_mode)
    if kind != stat.S_IFREG:
        advice = "" if kind == stat.S_IFDIR else " Copy what it delivers to a file first."
        raise DataError(f"{path} is {KINDS.get(kind, 'not a regular file')}, not {what}.{advice}")
    # Without waiting: a pipe that took its place meanwhile would block until somebody writes to it.
    return open(path, "rb", opener=_at_once)


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
