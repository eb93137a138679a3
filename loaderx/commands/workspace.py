"""Workspace: the hidden folder next to DST in which the files of a conversion grow, locked by one process."""

import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Self

from loaderx.sources.records.replacing import is_same

from .terminal import UsageError

LOCK = "lock"
# The content of the lock marks a folder as ours: nothing is ever removed from another folder.
MARK = b"unfinished files of `loaderx convert`\n"


class Workspace:
    """Folder of one target, held by one process at a time; the kernel releases it, however that process ends."""

    def __init__(self, target: Path) -> None:
        self._target = target
        # A name may be as long as the file system allows, and the folder's would be longer.
        digest = hashlib.blake2b(os.fsencode(target.name), digest_size=6).hexdigest()
        self.path = target.with_name(f".{target.name[:40]}.{digest}.unfinished")
        self._lock: BinaryIO | None = None

    def __enter__(self) -> Self:
        try:
            while self._lock is None:
                with contextlib.suppress(FileExistsError):
                    self.path.mkdir()
                # Another process may create or remove its files at any moment.
                with contextlib.suppress(FileNotFoundError, FileExistsError):
                    self._check()
                    self._lock = self._locked()
        except OSError as error:
            folder = self._target.parent
            raise UsageError(f"cannot write into the folder {folder}: {error.strerror}.") from error
        return self

    def __exit__(self, *_: object) -> None:
        assert self._lock is not None
        self._release(self._lock)
        self._lock = None

    def _release(self, lock: BinaryIO) -> None:
        """Release the folder, and remove it if only the lock is left in it."""
        if os.listdir(self.path) == [LOCK]:  # noqa: PTH208 - names, not paths
            self.remove([LOCK])
            # Another process may be about to use it.
            with contextlib.suppress(OSError):
                self.path.rmdir()
        with contextlib.suppress(OSError):
            lock.close()

    def remove(self, names: Iterable[str]) -> None:
        """Remove files of the folder by their names, which may come from a journal that somebody else wrote."""
        for name in names:
            if Path(name).name == name:
                (self.path / name).unlink(missing_ok=True)

    def _check(self) -> None:
        """Refuse a folder that is not ours. An empty folder is accepted."""
        # One lstat: between two calls the folder may be removed and created again.
        if stat.S_ISDIR(self.path.lstat().st_mode):
            lock = self.path / LOCK
            # In this order: a file that is removed meanwhile raises, and the caller checks again.
            found = os.listdir(self.path)  # noqa: PTH208 - the same
            if not found or (
                LOCK in found and not lock.is_symlink() and MARK.startswith(lock.read_bytes())
            ):
                return
        raise UsageError(
            f"{self.path} was not made by this command: move it away, or choose another name than {self._target}."
        )

    def _locked(self) -> BinaryIO | None:
        """Return the lock of the folder, or None if it was removed before it could be locked."""
        lock = self.path / LOCK
        file = lock.open("r+b" if lock.exists() else "xb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise UsageError(f"{self._target} is being written by another process.") from None
        except BaseException:
            file.close()
            raise
        if not is_same(file.fileno(), lock):
            file.close()
            return None
        try:
            file.write(MARK)
            file.flush()
        except OSError:
            # The disk is full.
            self._release(file)
            raise
        return file
