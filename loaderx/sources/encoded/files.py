"""`EncodedFiles`: image files of any sizes, one per row."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.sources.byte_rows import Buffer, ByteRows
from loaderx.sources.files import open_file

from .field import MOST_PIXELS, Encoded, Mode
from .paths import PathList, image_runs, no_images, runs_of, scan_bar
from .source import EncodedSource

PathLike = str | os.PathLike[str]


class WholeFiles(ByteRows):
    """Rows that are whole files."""

    def __init__(self, paths: PathList) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def fetch(self, rows: NDArray[np.int64]) -> list[Buffer]:
        found: list[Buffer] = []
        for row in rows.tolist():
            with open_file(self.paths.text(row), "an image") as file:
                found.append(file.read())
        return found

    def where(self, row: int) -> str:
        return self.paths.text(row)


class EncodedFiles(EncodedSource):
    """Image files of any sizes, one per row, which a loader decodes.

    paths       a folder, all of whose images are rows, also those in its sub-folders, sorted by path; a pattern such
                as "images/*/*.jpg", sorted by path; or a list of paths, in its own order
    mode        mode of the pixels, as that of `Encoded`; "P" for masks
    max_pixels  limit for the pixels of an image

    For images with masks:

        images = lx.EncodedFiles("ade20k/images")
        data = {"image": images, "mask": images.partners("ade20k/annotations", mode="P")}
    """

    def __init__(
        self,
        paths: PathLike | Sequence[PathLike],
        mode: Mode = "RGB",
        *,
        max_pixels: int = MOST_PIXELS,
    ) -> None:
        found = _found(paths)
        self.paths: Sequence[Path] = found
        # For partners: names are relative to it.
        self._root = os.path.abspath(paths) if isinstance(paths, str | os.PathLike) else None  # noqa: PTH100
        super().__init__(WholeFiles(found), Encoded(mode=mode, max_pixels=max_pixels))

    def partners(
        self, folder: PathLike, mode: Mode = "RGB", *, max_pixels: int = MOST_PIXELS
    ) -> "EncodedFiles":
        """Return the image of another folder for each of these: of the same path below the folder, with any suffix.

        Other images of that folder are left out.
        """
        if self._root is None or not Path(self._root).is_dir():
            raise ArgumentError(
                "`partners` needs files of a folder, such as EncodedFiles(folder); for a list of paths give the "
                "list of their partners to EncodedFiles."
            )
        others: dict[str, str] = {}
        for path in map(str, _found(folder)):
            name = _without_suffix(path, os.path.abspath(folder))  # noqa: PTH100
            if name in others:
                raise DataError(f"{others[name]} and {path} differ in their suffix only.")
            others[name] = path
        names = [_without_suffix(str(path), self._root) for path in self.paths]
        for name, image in zip(names, self.paths, strict=True):
            if name not in others:
                raise DataError(f"{image} has no partner {name}.* in {folder}.")
        return EncodedFiles([others[name] for name in names], mode, max_pixels=max_pixels)


def _found(paths: PathLike | Sequence[PathLike]) -> PathList:
    if not isinstance(paths, str | os.PathLike):
        if not isinstance(paths, Sequence):
            raise ArgumentError(
                f"`paths` (={paths!r}) must be a folder, a pattern, or a list of paths."
            )
        found = paths if isinstance(paths, PathList) else PathList(runs_of(paths))
        if not len(found):
            raise ArgumentError("`paths` is an empty list; name at least one file.")
        return found
    if Path(paths).is_dir():
        folder = Path(paths).absolute()
        with scan_bar(folder.name, " files") as bar:
            found = PathList(image_runs(folder, bar))
        if not len(found):
            raise no_images(folder)
        return found
    if os.path.lexists(paths):
        return PathList(runs_of([paths]))
    names = glob.iglob(os.fspath(paths), recursive=True)  # noqa: PTH207 - may be absolute
    found = PathList(runs_of(sorted(name for name in names if not Path(name).is_dir())))
    if not len(found):
        raise FileNotFoundError(f"there is no file {str(paths)!r}, and no file matches it")
    return found


def _without_suffix(path: str, root: str) -> str:
    return os.path.splitext(os.path.relpath(path, root))[0]  # noqa: PTH122
