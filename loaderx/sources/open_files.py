"""Open files of a data set: at most so many at once, however many files it has."""

import os
import threading
import weakref
from collections import OrderedDict
from pathlib import Path
from typing import Any

from loaderx.errors import DataError

from .files import open_file

# A process may have 1,024 files open by default, and several data sets share them.
MOST_OPEN = 64

# The size and the time of modification of a file, in nanoseconds.
Stamp = tuple[int, int]


class OpenFiles:
    """Files that are opened when they are read; those that were not read for longest are closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptors: OrderedDict[Path, Descriptor] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenFiles, ()

    def read(self, path: Path, what: str, stamp: Stamp | None, length: int, offset: int) -> bytes:
        """Return bytes of a file, fewer at its end.

        Raise DataError if it has another stamp when it is opened, again perhaps.
        """
        # Not mapped: reading a mapped file that was cut ends the process.
        descriptor = self.descriptor(path, what, stamp)
        return os.pread(descriptor.number, length, offset)

    def descriptor(self, path: Path, what: str, stamp: Stamp | None) -> "Descriptor":
        """Return an open file. Another thread may drop it meanwhile: it is closed when nobody holds it."""
        with self._lock:
            found = self._descriptors.get(path)
            if found is None:
                found = self._descriptors[path] = Descriptor(path, what, stamp)
                if len(self._descriptors) > MOST_OPEN:
                    self._descriptors.popitem(last=False)
            self._descriptors.move_to_end(path)
            return found


class Descriptor:
    """Open file, read at any place by any thread through its `number`."""

    def __init__(self, path: Path, what: str, stamp: Stamp | None) -> None:
        with open_file(path, what) as file:
            status = os.fstat(file.fileno())
            if stamp is not None and stamp != (status.st_size, status.st_mtime_ns):
                size = f"it is {status.st_size} bytes now and was {stamp[0]}"
                how = size if status.st_size != stamp[0] else "it has been written since"
                raise DataError(
                    f"{path} has changed since it was indexed: {how}. Open the data set anew."
                )
            # Closed when the last thread that holds it is done.
            self.number = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.number)
