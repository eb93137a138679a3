"""`ImageFolder`: a folder of image files, a sub-folder per class, decoded by Pillow on worker threads."""

import operator
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError

from .array import NPDataset
from .extras import require
from .files import open_file
from .object import ObjectSource
from .source import FieldsSource

SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)
MODES = ("RGB", "L", "RGBA")


class ImageFolder(FieldsSource):
    """Images of a folder with a sub-folder per class: {"image": uint8[height, width, 3], "label": int32[]}.

    folder  its sub-folders, sorted by name, are the classes 0, 1, ...; the images of a class are those of all folders
                    below its sub-folder, sorted by path
    size    None: all images must be of one size. A number or (height, width): every image is scaled until it just
                    covers that size, and cropped to its centre
    mode    "RGB"; "L" for grey images, which are uint8[height, width]; "RGBA"

    Only files with a known suffix are read, and none whose name begins with a dot. Images are rotated as their EXIF
    data says. JPEG files much larger than `size` are decoded at a fraction of their resolution.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        size: int | tuple[int, int] | None = None,
        *,
        mode: Literal["RGB", "L", "RGBA"] = "RGB",
    ) -> None:
        root = Path(folder).absolute()  # The current folder may change later.
        if mode not in MODES:
            raise ArgumentError(f"`mode` (={mode!r}) must be one of {', '.join(map(repr, MODES))}.")
        names = sorted(_visible(entry.name for entry in root.iterdir() if entry.is_dir()))
        if not names:
            raise DataError(
                f"{root} has no sub-folders; put the images of each class into a sub-folder."
            )
        found = [_images_below(root / name) for name in names]
        empty = [name for name, paths in zip(names, found, strict=True) if not paths]
        if empty:
            raise DataError(
                f"no images in the sub-folder {', '.join(map(repr, empty))} of {root}: looked for files that end with "
                f"{', '.join(sorted(SUFFIXES))}."
            )
        self.classes = tuple(names)
        self.paths = tuple(path for paths in found for path in paths)
        labels = np.repeat(np.arange(len(names), dtype=np.int32), [len(paths) for paths in found])
        images = ImageFiles(self.paths, _height_and_width(size), mode)
        super().__init__({"image": ObjectSource(images), "label": NPDataset(labels)})


class ImageFiles:
    """Images of a list of files, as arrays."""

    def __init__(self, paths: Sequence[Path], size: tuple[int, int] | None, mode: str) -> None:
        self._paths = paths
        self._size = size
        self._mode = mode
        self._require()
        self._shape = size or self._read(paths[0]).shape[:2]

    def _require(self) -> None:
        self._pillow = require("PIL.Image", "images", "ImageFolder")
        self._operations = require("PIL.ImageOps", "images", "ImageFolder")

    def __getstate__(self) -> dict[str, Any]:
        modules = ("_pillow", "_operations")
        return {name: value for name, value in self.__dict__.items() if name not in modules}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._require()

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, row: int) -> NDArray[np.uint8]:
        path = self._paths[row]
        pixels = self._read(path)
        if pixels.shape[:2] != self._shape:
            raise DataError(
                f"{path} is {pixels.shape[0]} pixels high and {pixels.shape[1]} wide, {self._paths[0]} is "
                f"{self._shape[0]} high and {self._shape[1]} wide. Give a `size` to which all images are resized."
            )
        return pixels

    def _read(self, path: Path) -> NDArray[np.uint8]:
        try:
            with open_file(path, "an image") as file, self._pillow.open(file) as image:
                return self._pixels(image)
        except (FileNotFoundError, DataError):
            raise
        except Exception as error:  # Pillow raises almost any exception on damaged files.
            raise DataError(f"{path} cannot be read as an image: {error}") from error

    def _pixels(self, image: Any) -> NDArray[np.uint8]:
        if image.mode[0] in "IF":
            # Pillow would clip all values above 255 without a warning.
            raise ValueError(
                f"its pixels are of mode {image.mode!r}, which does not fit into 8 bits"
            )
        if self._size is not None:
            side = max(self._size)  # The longer side, because EXIF data may swap both below.
            image.draft(None, (side, side))
        # Copies take a quarter of the time unless this is in place and RGB images are not converted again.
        self._operations.exif_transpose(image, in_place=True)
        upright = image if image.mode == self._mode else image.convert(self._mode)
        if self._size is not None:
            width_and_height = self._size[::-1]
            bilinear = self._pillow.Resampling.BILINEAR
            upright = self._operations.fit(upright, width_and_height, bilinear)
        return np.asarray(upright)


def _height_and_width(size: Any) -> tuple[int, int] | None:
    if size is None:
        return None
    try:
        sides = tuple(
            operator.index(side)
            for side in (size if isinstance(size, tuple | list) else (size, size))
        )
    except TypeError:
        sides = ()
    if len(sides) != 2 or min(sides) < 1:
        raise ArgumentError(f"`size` (={size!r}) must be a number of pixels or (height, width).")
    return sides[0], sides[1]


def _images_below(folder: Path) -> list[Path]:
    found: list[Path] = []
    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, onerror=_raise, followlinks=True):
        status = Path(place).stat()
        if (status.st_dev, status.st_ino) in seen:
            raise DataError(f"{place} is in {folder} twice: a link points to it. Remove the link.")
        seen.add((status.st_dev, status.st_ino))
        folders[:] = _visible(folders)
        found += (
            Path(place, name) for name in _visible(files) if Path(name).suffix.lower() in SUFFIXES
        )
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error


def _visible(names: Any) -> list[str]:
    return [name for name in names if not name.startswith(".")]
