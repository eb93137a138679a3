"""The note among unfinished files that says how far they are, and of what source."""

import json
from typing import Any

from .workspace import Workspace

NAME, NEW = "journal.json", "journal.json.new"


class Journal:
    """`journal.json` of a workspace, which is replaced as a whole whenever something is noted."""

    def __init__(self, workspace: Workspace, request: dict[str, Any]) -> None:
        self.path = workspace.path / NAME
        self._new = workspace.path / NEW
        # As it comes out of the file: tuples are lists there.
        self._request = json.loads(json.dumps(request))

    def read(self) -> tuple[Any, str | None]:
        """What was noted last for the same request, and else why there is nothing to go on from."""
        try:
            noted = json.loads(self.path.read_text())
            request, progress = noted["request"], noted["progress"]
            same = request["source"] == self._request["source"]
        except FileNotFoundError:
            return None, None
        except (ValueError, KeyError, TypeError):
            return None, f"{self.path} cannot be read"
        if not same:
            return None, "the source has changed since the last run"
        if request != self._request:
            return None, "the last run had other options"
        return progress, None

    def outputs(self) -> list[str]:
        """The names of files that the run which noted something was about to write."""
        try:
            return [str(name) for name in json.loads(self.path.read_text())["request"]["outputs"]]
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
