"""Opening of files that are read in random order and repeatedly."""

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
    """Open a regular file, expected to be `what`; refuse folders, pipes, sockets and devices."""
    kind = stat.S_IFMT(Path(path).stat().st_mode)
    if kind != stat.S_IFREG:
        advice = "" if kind == stat.S_IFDIR else " Copy its content to a file first."
        raise DataError(f"{path} is {KINDS.get(kind, 'not a regular file')}, not {what}.{advice}")
    # Non-blocking: a pipe that took the place of the file would block until somebody writes to it.
    return open(path, "rb", opener=_open_nonblocking)


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
