"""Journal of a conversion: how far its unfinished files are, and of which source."""

import json
from typing import Any

from .workspace import Workspace

NAME, NEW = "journal.json", "journal.json.new"


class Journal:
    """`journal.json` of a workspace, which is replaced as a whole by every write."""

    def __init__(self, workspace: Workspace, request: dict[str, Any]) -> None:
        self.path = workspace.path / NAME
        self._new = workspace.path / NEW
        # As JSON returns it: tuples become lists.
        self._request = json.loads(json.dumps(request))

    def read(self) -> tuple[Any, str | None]:
        """Return the progress of the last run of the same request, or None and the reason why it cannot be resumed."""
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
        """Return the names of the files that the last run wrote."""
        try:
            return [str(name) for name in json.loads(self.path.read_text())["request"]["outputs"]]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def write(self, progress: Any) -> None:
        """Write the progress of all files. They must be synced to the disk that far."""
        self._new.write_text(json.dumps({"request": self._request, "progress": progress}))
        self._new.replace(self.path)

    def remove(self) -> None:
        """Remove the journal when nothing is unfinished any more."""
        self.path.unlink(missing_ok=True)
        self._new.unlink(missing_ok=True)
