"""The hidden folder beside DST in which the files of a conversion grow, locked by the process that writes them."""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from loaderx.sources.records.replacing import is_same

from .terminal import UsageError

LOCK = "lock"
# By this content of its lock a folder is known as one of ours: nothing is ever removed from another.
MARK = b"unfinished files of `loaderx convert`\n"


class Workspace:
    """A folder of one target, held by one process at a time; the kernel releases it, however that process ends."""

    def __init__(self, target: Path) -> None:
        self._target = target
        # Names may be as long as the file system allows, and the folder's is longer.
        digest = hashlib.blake2b(os.fsencode(target.name), digest_size=6).hexdigest()
        self.path = target.with_name(f".{target.name[:40]}.{digest}.unfinished")
        self._lock: BinaryIO | None = None

    def __enter__(self) -> "Workspace":
        while self._lock is None:
            try:
                self.path.mkdir()
            except FileExistsError:
                pass
            except OSError as error:
                folder = self._target.parent
                raise UsageError(f"cannot write into the folder {folder}: {error.strerror}.") from error
            # Another process may make or remove its files at every moment.
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                self._check()
                self._lock = self._locked()
        return self

    def __exit__(self, *_: object) -> None:
        """Release the folder; it is gone if nothing but the lock is left in it."""
        assert self._lock is not None
        with self._lock:
            self._lock.flush()
            if os.listdir(self.path) == [LOCK]:  # noqa: PTH208 - names, not paths
                self.remove([LOCK])
                # What somebody else put there stays.
                with contextlib.suppress(OSError):
                    self.path.rmdir()
        self._lock = None

    def remove(self, names: Iterable[str]) -> None:
        """Remove files of the folder by their names, which may be those of a journal that somebody wrote."""
        for name in names:
            if Path(name).name == name:
                (self.path / name).unlink(missing_ok=True)

    def _check(self) -> None:
        """Refuse what is not a folder of ours: an empty one is as good as new."""
        if not self.path.is_symlink() and self.path.is_dir():
            lock = self.path / LOCK
            ours = not lock.is_symlink() and lock.is_file() and MARK.startswith(lock.read_bytes())
            if ours or not os.listdir(self.path):  # noqa: PTH208 - the same
                return
        elif not os.path.lexists(self.path):
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
        file.write(MARK)
        file.flush()
        return file
