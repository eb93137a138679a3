"""Files of compiled code: one per function, signature and processor, verified before it is loaded.

A file that is damaged, of another version, not owned by this user or writable by others is ignored: the code is
compiled anew, and the file written anew.
"""

import hashlib
import logging
import os
import stat
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from loaderx.kernels.numba_internals import Cache, packed, processor_of, unpacked

from .folders import is_private, is_protected
from .packages import versions

SUFFIX = ".nbc"
UNFINISHED = ".tmp"
DIGEST_SIZE = hashlib.sha256().digest_size
logger = logging.getLogger("loaderx")


class CodeCache(Cache):
    """Cache of one function, with Numba's interface: files `<name>.<hash of signature and processor>.nbc`.

    `stamp` is a hash of everything that the code depends on besides signature, processor and versions. Code is loaded
    from the first of `folders` that has it, and saved in the first that can be written. `on_miss` is called before a
    compilation.
    """

    def __init__(
        self,
        folders: Callable[[], Sequence[Path]],
        name: str,
        stamp: str,
        on_miss: Callable[[], None] = lambda: None,
    ) -> None:
        self._folders, self._name, self._stamp = folders, name, stamp
        self._on_miss = on_miss

    @property
    def cache_path(self) -> str | None:
        folders = self._folders()
        return str(folders[0]) if folders else None

    def holds(self, sig: Any, target_context: Any) -> bool:
        """Tell whether there is a complete file for a signature."""
        key = self._key(sig, target_context.codegen())
        files = (self._file(folder, key) for folder in self._folders())
        return any(read_verified(file, key) is not None for file in files)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        key = self._key(sig, target_context.codegen())
        for folder in self._folders():
            code = read_verified(self._file(folder, key), key)
            # Code that passes the checksum can still need a module that is gone.
            with suppress(Exception):
                if code is not None:
                    found = unpacked(target_context, code)
                    if tuple(found.signature.args) == tuple(sig):
                        return found
        self._on_miss()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        code = packed(data)
        if code is None:
            logger.info("%s is not cached: it holds addresses of this process.", self._name)
            return
        key = self._key(sig, data.codegen)
        for folder in self._folders():
            with suppress(OSError):
                write_verified(self._file(folder, key), key, code)
                return

    def enable(self) -> None:
        """Do nothing: this cache is always on."""

    def disable(self) -> None:
        """Do nothing: this cache is always on."""

    def flush(self) -> None:
        """Forget all code of this function."""
        for folder in self._folders():
            with suppress(OSError):
                for file in folder.glob(f"{self._name}.*{SUFFIX}"):
                    file.unlink(missing_ok=True)

    def _key(self, sig: Any, codegen: Any) -> bytes:
        parts = (versions(), self._stamp, str(tuple(sig)), processor_of(codegen))
        return repr(parts).encode()

    def _file(self, folder: Path, key: bytes) -> Path:
        return folder / f"{self._name}.{hashlib.sha256(key).hexdigest()[:16]}{SUFFIX}"


def read_verified(file: Path, key: bytes) -> bytes | None:
    """Return the code that `write_verified` wrote under this key; None if it is absent, damaged or of another user."""
    with suppress(OSError):
        if not is_private(file.parent):
            return None
        # The checks are of the open file: a path can lead elsewhere a moment later.
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode) or not is_protected(status):
                return None
            content = opened.read()
        code = content[DIGEST_SIZE:]
        if content[:DIGEST_SIZE] == _digest(key, code):
            return code
    return None


def write_verified(file: Path, key: bytes, code: bytes) -> None:
    """Write code with a checksum of it and its key, atomically."""
    # Python's own folders of compiled files are readable for everybody.
    mode = 0o755 if file.parent.name == "__pycache__" else 0o700
    file.parent.mkdir(mode=mode, parents=True, exist_ok=True)
    if not is_private(file.parent):
        raise PermissionError(f"others may write to {file.parent}")
    half = file.with_name(f"{file.name}.{os.getpid()}-{uuid.uuid4().hex}{UNFINISHED}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(half, flags, 0o644), "wb") as opened:
            opened.write(_digest(key, code) + code)
        half.replace(file)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def remove_unfinished(folder: Path, process: int) -> None:
    """Remove the unfinished file of a process that has ended."""
    with suppress(OSError):
        for file in folder.glob(f"*{SUFFIX}.{process}-*{UNFINISHED}"):
            file.unlink(missing_ok=True)


def _digest(key: bytes, code: bytes) -> bytes:
    digest = hashlib.sha256(len(key).to_bytes(8, "little"))
    digest.update(key)
    digest.update(code)
    return digest.digest()
