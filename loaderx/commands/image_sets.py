"""Image data sets on disk: their container, and the fields that are found in it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from loaderx.errors import DataError
from loaderx.sources.byte_rows import Buffer
from loaderx.sources.encoded.bagz import BagzDataset, BagzReader, bagz_names
from loaderx.sources.encoded.decoding import read_header
from loaderx.sources.encoded.examples import BYTES, INTEGERS
from loaderx.sources.encoded.field import MODES, MOST_PIXELS, Encoded, Mode
from loaderx.sources.encoded.files import EncodedFiles
from loaderx.sources.encoded.tar import IMAGES, TarDataset, first_members
from loaderx.sources.encoded.tar import INTEGERS as INTEGER_EXTENSIONS
from loaderx.sources.encoded.tar_members import is_tar
from loaderx.sources.encoded.tfrecord import TFRecordDataset, first_features, is_tfrecord
from loaderx.sources.files import open_file
from loaderx.sources.open_files import OpenFiles
from loaderx.sources.records.dataset import ARDataset
from loaderx.sources.records.paths import record_paths
from loaderx.sources.source import FieldsSource

from .tables import record_readers
from .terminal import UsageError

# Members of a tar file, and records of other files, that tell the fields.
MOST_MEMBERS, MOST_RECORDS = 10_000, 100
# An image of any size is an image.
ANY_SIZE = Encoded(max_pixels=1 << 62)
DECLARED = "NAME for images, NAME=MODE for images of another mode, or NAME=DTYPE and NAME=DTYPE:SHAPE for numbers"


@dataclass(frozen=True)
class Declared:
    """Field that a user declares: images of a mode, or numbers."""

    name: str
    mode: Mode | None
    dtype: str = ""
    shape: tuple[int, ...] = ()


@dataclass
class ImageSet:
    """Image data set: its fields, and the reasons why some of its files cannot be read.

    `classes` are the names of sub-folders, with the number of images of each.
    """

    format: str
    files: Sequence[Path]
    source: FieldsSource
    classes: dict[str, int] | None = None
    damage: list[str] = field(default_factory=list)


def declared_field(text: str) -> Declared:
    """Return the field that an argument declares."""
    name, _, kind = text.partition("=")
    if name and kind in ("", *MODES):
        return Declared(name, cast(Mode, kind) if kind else None)
    dtype, colon, shape = kind.partition(":")
    try:
        sizes = tuple(map(int, shape.split("x"))) if colon else ()
        known = np.dtype(dtype).kind in "biuf" and min(sizes, default=1) > 0
    except (TypeError, ValueError):
        known = False
    if not name or not known:
        raise UsageError(
            f"--fields: {text!r} must be {DECLARED}, such as label=int64 or box=float32:4."
        )
    return Declared(name, None, dtype, sizes)


def image_set(file: str, kind: str, options: Any) -> ImageSet | None:
    """Return the image data set of a path or a pattern, None if it is something else.

    `kind` is what `kind_of` says: only a folder or records can be images.
    """
    fields = None if options.fields is None else [declared_field(text) for text in options.fields]
    encoded = Encoded(mode=options.mode or "RGB", max_pixels=options.max_pixels or MOST_PIXELS)
    if kind == "folder":
        if fields is not None:
            raise UsageError(f"--fields: {file} is a folder, whose images are its only field.")
        return _folder(file, encoded)
    if kind != "records":
        return None
    paths = [path for name in bagz_names(file) for path in record_paths(name, "a file of images")]
    what = container_of(next((path for path in paths if path.stat().st_size), paths[0]))
    if what is None:
        return _records(file, fields, encoded, options)
    container = CONTAINERS[what]
    if options.dtype is not None or options.shape is not None:
        raise UsageError(
            f"--dtype and --shape are for ArrayRecord files; {file} is a {what} file. Give --fields."
        )
    found = container.find(paths, encoded) if fields is None else container.declare(fields, encoded)
    if not found:
        raise UsageError(
            f"{file}: no images were found in it; declare its fields by --fields: {DECLARED}."
        )
    return _opened(what, paths, container.open, found, options)


def _opened(
    what: str,
    paths: Sequence[Path],
    open_files: Callable[..., FieldsSource],
    fields: Mapping[str, Any] | None,
    options: Any,
) -> ImageSet:
    """Open files. With --verify, those that cannot be opened are damage to the data set."""
    try:
        return ImageSet(what, paths, open_files(paths, fields))
    except DataError as error:
        if not options.verify or len(paths) == 1:
            raise
        first = error
    # Each next to one that has rows: a file without rows is not damaged.
    anchor = next((path for path in paths if _error_of(open_files, [path], fields) is None), None)
    if anchor is None:
        raise first
    errors = {path: _error_of(open_files, [anchor, path], fields) for path in paths}
    whole = [path for path, error in errors.items() if error is None]
    damage = [error for error in errors.values() if error is not None]
    if not damage:
        raise first
    return ImageSet(what, paths, open_files(whole, fields), damage=damage)


def _error_of(
    open_files: Callable[..., FieldsSource], paths: Sequence[Path], fields: Mapping[str, Any] | None
) -> str | None:
    try:
        open_files(paths, fields)
    except DataError as error:
        return str(error)
    return None


def _folder(file: str, encoded: Encoded) -> ImageSet | None:
    """Return the images in and below a folder; their classes are the sub-folders, if all of them are in one."""
    try:
        images = EncodedFiles(file, encoded.mode, max_pixels=encoded.max_pixels)
    except DataError as error:
        if not str(error).startswith("no images in"):
            raise
        return None
    root = Path(file).absolute()
    parts = Counter(path.relative_to(root).parts[:-1][:1] for path in images.paths)
    classes = {name: count for (name,), count in sorted(parts.items())} if () not in parts else None
    what = (
        "folder of images" if classes is None else f"folder of images, {len(classes):,} sub-folders"
    )
    return ImageSet(what, images.paths, FieldsSource({"image": images}), classes)


def container_of(path: Path) -> str | None:
    """Return the name of the container that a file is, None for another one."""
    with open_file(path, "a file of images") as opened:
        head = opened.read(512)
    if is_tar(head) or ".tar" in path.suffixes or path.suffix == ".tgz":
        return "tar"
    if path.suffix in (".bagz", ".bag"):
        return "Bagz"
    if is_tfrecord(head) or any(suffix.startswith(".tfrec") for suffix in path.suffixes):
        return "TFRecord"
    return None


# Tar files.


def fields_by_extension(paths: Iterable[Path], encoded: Encoded) -> dict[str, Any]:
    """Return fields for the extensions in tar files that are images, and for those that are integers.

    Extensions without a dot, no two of which are in one sample, are one field: samples have either of them.
    """
    samples: dict[str, list[str]] = {}
    for path in paths:
        for key, extension in first_members(path, MOST_MEMBERS):
            samples.setdefault(key, []).append(extension)
        if samples:
            break
    extensions = dict.fromkeys(chain.from_iterable(samples.values()))
    images = [name for name in extensions if name.rpartition(".")[2] in IMAGES]
    plain = [name for name in images if "." not in name]
    if all(sum(name in plain for name in own) <= 1 for own in samples.values()):
        images = [";".join(plain)] * bool(plain) + [name for name in images if "." in name]
    if not images:
        return {}
    numbers = [name for name in extensions if name in INTEGER_EXTENSIONS]
    return {
        **{name: Encoded(name, encoded.mode, encoded.max_pixels) for name in images},
        **{name: ("int64", name) for name in numbers},
    }


# TFRecord files.


def _features(paths: Iterable[Path], encoded: Encoded) -> dict[str, Any]:
    """Return fields for the features that are images, and for those that are one integer in every record."""
    records = list(
        islice(chain.from_iterable(first_features(path) for path in paths), MOST_RECORDS)
    )
    fields: dict[str, Any] = {}
    for name in dict.fromkeys(chain.from_iterable(records)):
        found = [record[name] for record in records if name in record]
        if any(kind == BYTES and any(map(_is_image, values)) for kind, values in found):
            fields[name] = Encoded(name, encoded.mode, encoded.max_pixels)
        elif len(found) == len(records) and all(
            kind == INTEGERS and len(values) == 1 for kind, values in found
        ):
            fields[name] = ("int64", name)
    return fields if any(isinstance(one, Encoded) for one in fields.values()) else {}


# Bagz and ArrayRecord files.


def _single_image(readers: Iterable[Any], encoded: Encoded) -> dict[str, Any]:
    """Return the field of records each of which is an image."""
    for reader in readers:
        for record in reader.records(range(min(len(reader), MOST_RECORDS))):
            if _is_image(record.data):
                return {"image": encoded}
    return {}


def _is_image(data: Buffer) -> bool:
    try:
        read_header(data, ANY_SIZE)
    except DataError:
        return False
    return True


def _bagz_field(paths: Iterable[Path], encoded: Encoded) -> dict[str, Any]:
    # Files that are not compressed are read alike: a frame of zstd is not an image.
    files = OpenFiles()
    for path in paths:
        if found := _single_image([BagzReader(path, path.suffix == ".bagz", files)], encoded):
            return found
    return {}


def _records(
    file: str, fields: list[Declared] | None, encoded: Encoded, options: Any
) -> ImageSet | None:
    """Return the fields of ArrayRecord files, None if they hold something else."""
    readers = record_readers(file)
    row = next((reader.metadata.row for reader in readers if reader.metadata.row), {})
    given: Mapping[str, Any] | None = None
    if fields is not None:
        given = _by_order(fields, encoded)
    elif "fields" not in row:
        if "dtype" in row or options.dtype is not None or options.shape is not None:
            return None
        given = _single_image(readers, encoded)
        if not given:
            return None
    if options.dtype is not None or options.shape is not None:
        raise UsageError(f"{file} has several fields; leave --dtype and --shape out.")
    paths = [reader.path for reader in readers]
    return _opened("ArrayRecord", paths, _array_record, given, options)


def _array_record(paths: Sequence[Path], fields: Mapping[str, Any] | None) -> FieldsSource:
    dataset: Any = ARDataset(list(paths)) if fields is None else ARDataset(list(paths), fields)
    rows: FieldsSource = dataset.rows
    return rows


# Fields that a user declares.


def _by_name(fields: Iterable[Declared], encoded: Encoded) -> dict[str, Any]:
    """Return the fields of containers that have names for them."""
    return {
        one.name: Encoded(one.name, one.mode or encoded.mode, encoded.max_pixels)
        if not one.dtype
        else (one.dtype, one.name, one.shape)
        for one in fields
    }


def _by_order(fields: Iterable[Declared], encoded: Encoded) -> dict[str, Any]:
    """Return the fields of records, which follow one another."""
    return {
        one.name: Encoded(None, one.mode or encoded.mode, encoded.max_pixels)
        if not one.dtype
        else (one.dtype, one.shape)
        for one in fields
    }


@dataclass(frozen=True)
class Container:
    """Kind of files: how they are opened, their fields found, and those that a user declares."""

    open: Callable[[Sequence[Path], Mapping[str, Any]], FieldsSource]
    find: Callable[[Iterable[Path], Encoded], dict[str, Any]]
    declare: Callable[[Iterable[Declared], Encoded], dict[str, Any]]


CONTAINERS = {
    "tar": Container(TarDataset, fields_by_extension, _by_name),
    "TFRecord": Container(TFRecordDataset, _features, _by_name),
    "Bagz": Container(BagzDataset, _bagz_field, _by_order),
}
