"""Lists of text and of paths in little memory, and the search for image files below a folder."""

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from loaderx.errors import DataError

SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)
# A bar for a scan that takes no longer would only flicker.
SECONDS_BEFORE_BAR = 2.0


class CompactList(Sequence[Any]):
    """Sequence that makes its items when they are asked for."""

    def item(self, place: int) -> Any:
        """Return one item."""
        raise NotImplementedError

    @overload
    def __getitem__(self, key: int) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, key: int | slice) -> Any:
        found = range(len(self))[key]
        return self.item(found) if isinstance(found, int) else tuple(map(self.item, found))

    def __iter__(self) -> Iterator[Any]:
        return map(self.item, range(len(self)))

    def __repr__(self) -> str:
        shown = ", ".join(repr(str(item)) for item in self[:3])
        return f"{type(self).__name__}({len(self)}: {shown}{', ...' if len(self) > 3 else ''})"


class Strings(CompactList):
    """Texts in one piece of memory."""

    def __init__(self, texts: Iterable[str]) -> None:
        memory, ends = bytearray(), array("q", [0])
        for text in texts:
            memory += os.fsencode(text)
            ends.append(len(memory))
        self._hold(bytes(memory), np.frombuffer(ends, np.int64))

    def _hold(self, memory: bytes, ends: NDArray[np.int64]) -> None:
        self._memory = memory
        fits = len(memory) <= np.iinfo(np.uint32).max
        self._ends = ends.astype(np.uint32 if fits else np.int64)

    @classmethod
    def of(cls, memory: bytes, ends: NDArray[np.int64]) -> "Strings":
        """Return the texts between these ends, of which the first is 0."""
        strings = cls.__new__(cls)
        strings._hold(memory, ends)
        return strings

    def __len__(self) -> int:
        return len(self._ends) - 1

    def item(self, place: int) -> str:
        return os.fsdecode(self._memory[self._ends[place] : self._ends[place + 1]])


class PathList(CompactList):
    """Paths, of which those that follow one another in a folder share its name: 30 bytes each and not 300."""

    def __init__(self, runs: Iterable[tuple[str, Sequence[str]]]) -> None:
        folders: list[str] = []
        firsts = array("q", [0])

        def names() -> Iterator[Sequence[str]]:
            for folder, found in runs:
                folders.append(folder)
                firsts.append(firsts[-1] + len(found))
                yield found

        self._names = Strings(chain.from_iterable(names()))
        self._folders = Strings(folders)
        self._firsts = np.frombuffer(firsts, np.int64)

    def __len__(self) -> int:
        return len(self._names)

    def item(self, place: int) -> Path:
        return Path(self.text(place))

    def text(self, place: int) -> str:
        """Return a path as text."""
        folder = int(np.searchsorted(self._firsts, place, side="right")) - 1
        return os.path.join(self._folders.item(folder), self._names.item(place))  # noqa: PTH118 - of millions


def runs_of(paths: Iterable[str | os.PathLike[str]]) -> Iterator[tuple[str, list[str]]]:
    """Return the runs of a `PathList` for any paths; relative ones are of the current folder."""
    folder, names = "", list[str]()
    for path in paths:
        parent, name = os.path.split(os.path.abspath(path))  # noqa: PTH100 - of millions
        if parent != folder:
            if names:
                yield folder, names
            folder, names = parent, []
        names.append(name)
    if names:
        yield folder, names


def is_hidden(name: str) -> bool:
    """Return True for files and folders that are never read."""
    return name.startswith(".")


def has_image_suffix(name: str) -> bool:
    """Return True if a file is an image by its name."""
    return os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122 - of millions


def image_runs(folder: Path, bar: "tqdm[Any]") -> Iterator[tuple[str, list[str]]]:
    """Yield the images in and below a folder, sorted by path, as the runs of a `PathList`."""
    seen: set[tuple[int, int]] = set()
    # Not recursive: a path may have 2,000 folders.
    waiting = [iter([(str(folder), True)])]
    places: list[str] = []
    run: list[str] = []
    while waiting:
        name, is_folder = next(waiting[-1], (None, False))
        if run and (name is None or is_folder):
            bar.update(len(run))
            yield places[-1], run
            run = []
        if name is None:
            waiting.pop()
            if places:
                places.pop()
        elif is_folder:
            place = os.path.join(places[-1], name) if places else name  # noqa: PTH118
            status = os.stat(place)  # noqa: PTH116
            if (status.st_dev, status.st_ino) in seen:
                raise DataError(
                    f"{place} is in {folder} twice: a link points to it. Remove the link."
                )
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(place) as entries:
                inside = sorted((one.name, _is_folder(one)) for one in entries)
            places.append(place)
            waiting.append(iter([one for one in inside if not is_hidden(one[0])]))
        elif has_image_suffix(name):
            run.append(name)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # A link to itself, for example.
        return False


def scan_bar(what: str, unit: str, total: int | None = None) -> "tqdm[Any]":
    """Return the progress bar of a scan, shown on a terminal if the scan takes long."""
    return tqdm(desc=what, unit=unit, total=total, disable=None, delay=SECONDS_BEFORE_BAR)


def no_images(folder: Path) -> DataError:
    """Return the exception for a folder without images."""
    return DataError(
        f"no images in {folder}: looked for files that end with {', '.join(sorted(SUFFIXES))}."
    )
