"""The note beside unfinished files that says how far they are, and of what source."""

import fcntl
import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .terminal import UsageError


class Journal:
    """`name.partial.json`, which is replaced as a whole whenever something is noted."""

    def __init__(self, target: Path, request: dict[str, Any]) -> None:
        self.path = target.with_name(f"{target.name}.partial.json")
        self._new = self.path.with_name(f"{self.path.name}.new")
        # As it comes out of the file: tuples are lists there.
        self._request = json.loads(json.dumps(request))

    def read(self) -> tuple[Any, str | None]:
        """What was noted last for the same request, and else why there is nothing to go on from."""
        try:
            noted = json.loads(self.path.read_text())
            request, progress = noted["request"], noted["progress"]
        except FileNotFoundError:
            return None, None
        except (ValueError, KeyError, TypeError):
            return None, f"{self.path} cannot be read"
        if request.get("source") != self._request["source"]:
            return None, "the source has changed since the last run"
        if request != self._request:
            return None, "the last run had other options"
        return progress, None

    def outputs(self) -> list[str]:
        """The names of files that the run which noted something was about to write."""
        try:
            names = json.loads(self.path.read_text())["request"]["outputs"]
            return [Path(name).name for name in names]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def write(self, progress: Any) -> None:
        """Note how far all files are. They must be on the disk that far."""
        self._new.write_text(json.dumps({"request": self._request, "progress": progress}))
        self._new.replace(self.path)

    def remove(self) -> None:
        """Nothing is unfinished any more."""
        self.path.unlink(missing_ok=True)
        self._new.unlink(missing_ok=True)


@contextmanager
def only_one(target: Path) -> Generator[None]:
    """Refuse a second process that writes the same files."""
    lock = target.with_name(f"{target.name}.partial.lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{target} is being written by another process.") from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
