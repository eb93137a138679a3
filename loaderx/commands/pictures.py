"""Pictures as rows: a folder with a class per sub-folder, and decoding by Pillow."""

import hashlib
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError
from loaderx.sources.byte_rows import Buffer
from loaderx.spec import Spec

from .tables import Block, Column, Input, Range, Table
from .terminal import UsageError, required

SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)
MODES = ("auto", "RGB", "L")


@dataclass(frozen=True)
class EncodedPicture:
    """Picture as the bytes of its file, and where it is, for messages."""

    where: str
    data: Buffer


@dataclass(frozen=True)
class Decoding:
    """Mode and size to which every picture is decoded."""

    mode: str
    height: int
    width: int
    crop: bool
    strict: bool

    @property
    def spec(self) -> Spec:
        """Spec of a decoded picture: height, width and channels."""
        return Spec((self.height, self.width, 1 if self.mode == "L" else 3), np.uint8)

    def __call__(self, content: Path | bytes, name: str) -> NDArray[np.uint8]:
        """Decode a picture; `name` is for messages."""
        with _opened(content, name) as image:
            if self.strict and image.mode not in ("L", "1"):
                raise DataError(
                    f"{name} is in colour ({image.mode}), and the first picture is grey: give --mode RGB or L."
                )
            if image.mode[0] in "IF":
                raise DataError(
                    f"{name} has the mode {image.mode}, which does not fit into 8 bits per channel."
                )
            try:
                pixels = image.convert(self.mode)
                if self.crop:
                    pixels = _fitted(pixels, self.height, self.width)
            except Exception as error:  # Pillow raises almost any exception on damaged files.
                raise DataError(f"{name} cannot be decoded: {error}") from error
        if (pixels.height, pixels.width) != (self.height, self.width):
            raise DataError(
                f"{name} has {pixels.height} x {pixels.width} pixels, and the first picture has "
                f"{self.height} x {self.width}: give --size HEIGHT WIDTH."
            )
        return np.asarray(pixels).reshape(self.spec.shape)


def decoding_of(
    first: Path | bytes, name: str, mode: str, size: tuple[int, int] | None
) -> Decoding:
    """Return how all pictures are decoded; the first picture decides what the user did not."""
    with _opened(first, name) as image:
        grey = image.mode in ("L", "1")
        height, width = size or (image.height, image.width)
    chosen = ("L" if grey else "RGB") if mode == "auto" else mode
    return Decoding(
        chosen, height, width, crop=size is not None, strict=mode == "auto" and chosen == "L"
    )


def _opened(content: Path | bytes, name: str) -> Any:
    image = required("PIL.Image", "images", "reading pictures")
    try:
        return image.open(io.BytesIO(content) if isinstance(content, bytes) else content)
    except FileNotFoundError:
        raise
    except (
        Exception
    ) as error:  # Almost any exception again, also on pictures that would fill the memory.
        reason = (
            "Pillow does not know its format" if "cannot identify" in str(error) else str(error)
        )
        raise DataError(f"{name} is not a picture: {reason}.") from error


def _fitted(pixels: Any, height: int, width: int) -> Any:
    """Return the largest centre crop of these proportions, scaled, in one pass."""
    scale = min(pixels.height / height, pixels.width / width)
    part = scale * width, scale * height
    left, top = (pixels.width - part[0]) / 2, (pixels.height - part[1]) / 2
    bilinear = required("PIL.Image", "images", "reading pictures").Resampling.BILINEAR
    return pixels.resize((width, height), bilinear, (left, top, left + part[0], top + part[1]))


class PictureTable(Table):
    """Picture files, and the class number of each."""

    def __init__(
        self,
        folder: Path,
        files: list[str],
        labels: NDArray[np.int32],
        classes: tuple[str, ...],
        decoding: Decoding,
    ) -> None:
        self._folder, self._files, self._labels, self._decoding = folder, files, labels, decoding
        self.rows = len(files)
        self.columns = [Column("image", decoding.spec)]
        if classes:
            self.columns.append(Column("label", Spec((), np.int32), classes))

    def blocks(self, ranges: Iterable[Range]) -> Iterator[Callable[[], Block]]:
        for start, stop in ranges:
            yield lambda start=start, stop=stop: self._read(start, stop)  # type: ignore[misc]

    def _read(self, start: int, stop: int) -> Block:
        spec = self._decoding.spec
        pixels = np.empty((stop - start, *spec.shape), spec.dtype)
        for place, name in enumerate(self._files[start:stop]):
            path = self._folder / name
            pixels[place] = self._decoding(path, str(path))
        return {"image": pixels, "label": self._labels[start:stop]}


@dataclass(frozen=True)
class PictureFiles:
    """Files of a folder by their paths below it, and the class of each; and what `Input` needs besides."""

    files: list[str]
    labels: NDArray[np.int32]
    classes: tuple[str, ...]
    identity: list[Any]
    left_out: list[str]


def picture_input(folder: Path, mode: str, size: tuple[int, int] | None) -> Input:
    """Open a folder of pictures with a class per sub-folder, sorted by name; without these there are no labels."""
    found = picture_files(folder)
    first = folder / found.files[0]
    decoding = decoding_of(first, str(first), mode, size)
    table = PictureTable(folder, found.files, found.labels, found.classes, decoding)
    return Input([table], found.identity, found.left_out)


def picture_files(folder: Path) -> PictureFiles:
    """Find the pictures of a folder with a class per sub-folder, sorted by name; without these there are no labels."""
    required("PIL.Image", "images", "reading pictures")
    with os.scandir(folder) as entries:
        classes = sorted(entry.name for entry in entries if _is_class(entry))
    if not classes:
        return _picture_files(folder, [("", 0)], ())
    with os.scandir(folder) as entries:
        loose = sorted(entry.name for entry in entries if _is_picture(entry.name))
    if loose:
        raise UsageError(
            f"{folder} has both sub-folders, which are classes, and pictures next to them, such as {loose[0]}. "
            "Move the pictures into sub-folders."
        )
    parts = [(name, number) for number, name in enumerate(classes)]
    return _picture_files(folder, parts, tuple(classes))


def _picture_files(
    folder: Path, parts: list[tuple[str, int]], classes: tuple[str, ...]
) -> PictureFiles:
    # Strings and not paths: there may be millions.
    files: list[str] = []
    labels: list[NDArray[np.int32]] = []
    others = 0
    digest = hashlib.blake2b(digest_size=16)
    for part, label in parts:
        before = len(files)
        for parent, folders, names in os.walk(folder / part):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            inside = os.path.relpath(parent, folder)
            for name in sorted(names):
                if not _is_picture(name):
                    others += not name.startswith(".")
                    continue
                file = os.path.normpath(f"{inside}/{name}")
                facts = (folder / file).stat()
                if not stat.S_ISREG(facts.st_mode):
                    # Reading a pipe would block for ever.
                    others += 1
                    continue
                digest.update(os.fsencode(f"{file}\0{facts.st_size}\0{facts.st_mtime_ns}\0"))
                files.append(file)
        labels.append(np.full(len(files) - before, label, np.int32))
    if not files:
        raise DataError(
            f"{folder} has no pictures in it (files that end in {', '.join(sorted(SUFFIXES))})."
        )
    left_out = [f"{others:,} other files next to the pictures"] if others else []
    identity = [str(folder.resolve()), len(files), digest.hexdigest()]
    return PictureFiles(files, np.concatenate(labels), classes, identity, left_out)


def _is_class(entry: "os.DirEntry[str]") -> bool:
    return entry.is_dir() and not entry.name.startswith(".")


def _is_picture(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")  # noqa: PTH122 - of millions
