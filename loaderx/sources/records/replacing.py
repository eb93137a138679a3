"""A file that appears under its name when it is complete, and not before."""

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """A new file beside `path`, which takes its place at the end, and is gone if there is no such end."""
    unfinished = path.with_name(f".{path.name[:40]}.{secrets.token_hex(6)}.unfinished")
    try:
        # Not `tempfile`: its files are for their owner only, those of `open` for whom the umask says.
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
