"""`ImageFolder`: a folder of image files, a sub-folder per class."""

import operator
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError

from .array import NPDataset
from .encoded.field import MODES, MOST_PIXELS, Encoded, Mode
from .encoded.files import WholeFiles
from .encoded.labels import Labels, sidecar_labels
from .encoded.paths import PathList, image_runs, is_hidden, no_images, scan_bar
from .encoded.source import EncodedSource
from .extras import require
from .files import open_file
from .object import ObjectSource
from .source import FieldsSource, Source

MODES_OF_ONE_SIZE = ("RGB", "L", "RGBA")


class ImageFolder(FieldsSource):
    """Images of a folder with a sub-folder per class: {"image": an encoded image of any size, "label": int32[]}.

    folder      its sub-folders, sorted by name, are the classes 0, 1, ...; the images of a class are those of all
                folders below its sub-folder, sorted by path
    size        None: a loader decodes the images, so its transforms crop or resize them to one size. A number or
                (height, width): Pillow scales every image until it just covers that size, and crops it to its centre
    mode        "RGB"; "L" for grey images, which have no axis of colours; "RGBA"; without a size also the other
                modes of `Encoded`
    max_pixels  limit for the pixels of an image that a loader decodes
    labels      None: the classes. Otherwise sub-folders are not classes, and the labels are a mapping from the path of
                each image below the folder to an integer, a JSON file with such a mapping, or an array in the order
                of `paths`

    Only files with a known suffix are read, and none whose name begins with a dot. Images are rotated as their EXIF
    data says.

        images = lx.ImageFolder("imagenet/train")
        loader = lx.DataLoader(images, transforms={"image": [T.RandomResizedCrop(224), T.RandomFlip(), T.ToFloat()]})
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        size: int | tuple[int, int] | None = None,
        *,
        mode: Mode = "RGB",
        max_pixels: int = MOST_PIXELS,
        labels: Labels | None = None,
    ) -> None:
        root = Path(folder).absolute()  # The current folder may change later.
        sides = _height_and_width(size)
        if mode not in (MODES if sides is None else MODES_OF_ONE_SIZE):
            known = MODES if sides is None else MODES_OF_ONE_SIZE
            raise ArgumentError(f"`mode` (={mode!r}) must be one of {', '.join(map(repr, known))}.")
        self.classes: tuple[str, ...] = () if labels is not None else _classes(root)
        counts: list[int] = []
        with scan_bar(root.name, " files") as bar:

            def runs() -> Iterator[tuple[str, list[str]]]:
                for place, name in enumerate(self.classes or ("",)):
                    counts.append(0)
                    for run in image_runs(root / name, bar):
                        counts[place] += len(run[1])
                        yield run

            paths = PathList(runs())
        for name, count in zip(self.classes or (".",), counts, strict=True):
            if count == 0:
                raise no_images(root / name)
        self.paths: Sequence[Path] = paths
        known_labels: Source
        if labels is None:
            classes = np.arange(len(self.classes), dtype=np.int32)
            known_labels = NPDataset(np.repeat(classes, counts))
        else:
            names = (os.path.relpath(paths.text(row), root) for row in range(len(paths)))
            known_labels = sidecar_labels(labels, names, len(paths))
        images: Source
        if sides is None:
            images = EncodedSource(WholeFiles(paths), Encoded(mode=mode, max_pixels=max_pixels))
        else:
            images = ObjectSource(ImageFiles(paths, sides, mode))
        super().__init__({"image": images, "label": known_labels})


def _classes(root: Path) -> tuple[str, ...]:
    with os.scandir(root) as entries:
        names = sorted(
            entry.name for entry in entries if entry.is_dir() and not is_hidden(entry.name)
        )
    if not names:
        raise DataError(
            f"{root} has no sub-folders; put the images of each class into a sub-folder, or give their `labels`."
        )
    return tuple(names)


class ImageFiles:
    """Images of a list of files, as arrays of one size."""

    def __init__(self, paths: Sequence[Path], size: tuple[int, int], mode: str) -> None:
        self._paths = paths
        self._size = size
        self._mode = mode
        self._require()

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
        side = max(self._size)  # The longer side, because EXIF data may swap both below.
        # JPEG files that are much larger are decoded at a fraction of their resolution.
        image.draft(None, (side, side))
        # Copies take a quarter of the time unless this is in place and RGB images are not converted again.
        self._operations.exif_transpose(image, in_place=True)
        upright = image if image.mode == self._mode else image.convert(self._mode)
        width_and_height = self._size[::-1]
        bilinear = self._pillow.Resampling.BILINEAR
        return np.asarray(self._operations.fit(upright, width_and_height, bilinear))


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
