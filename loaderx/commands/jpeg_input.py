"""Sources of `convert --jpeg`: folders, tar, TFRecord, ArrayRecord, Bagz and Parquet files with encoded images."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loaderx.sources.array import NPDataset
from loaderx.sources.encoded.bagz import BagzDataset
from loaderx.sources.encoded.examples import FLOATS, INTEGERS
from loaderx.sources.encoded.field import MODES, Encoded, EncodedSpec
from loaderx.sources.encoded.files import WholeFiles
from loaderx.sources.encoded.paths import PathList, runs_of
from loaderx.sources.encoded.source import EncodedSource
from loaderx.sources.encoded.tar import INTEGERS as INTEGER_EXTENSIONS
from loaderx.sources.encoded.tar import TarDataset
from loaderx.sources.encoded.tfrecord import TFRecordDataset, first_features
from loaderx.sources.records.dataset import ARDataset
from loaderx.sources.records.paths import record_paths
from loaderx.sources.source import FieldsSource

from .image_sets import container_of, fields_by_extension
from .jpeg_images import PICTURES, JpegOptions
from .jpeg_tables import JpegTable, SourceTable
from .pictures import picture_files
from .tables import Input, Table, stamp
from .terminal import UsageError

# NAME, NAME=WHERE or either with :MODE.
COLUMN = re.compile(
    rf"(?P<name>[^=:]+)(?:=(?P<where>.+?))?(?::(?P<mode>{'|'.join(MODES)}))?", re.DOTALL
)
# Features of TFRecord files: their kinds, and the numbers of the longest that are a field.
DTYPES = {FLOATS: "float32", INTEGERS: "int64"}
MOST_NUMBERS = 10_000
Open = Callable[[str, "list[Wanted]", Encoded], FieldsSource]


@dataclass(frozen=True)
class Wanted:
    """Field that the user asks for: its name, the name it has in the file, and the mode of its images."""

    name: str
    where: str | None
    mode: str | None

    def encoded(self, where: str | None, usual: Encoded) -> Encoded:
        """Return the declaration of encoded images."""
        return Encoded(where, self.mode or usual.mode)  # type: ignore[arg-type]


def wanted_columns(columns: list[str] | None) -> list[Wanted]:
    """Read the values of --columns."""
    found = []
    for text in columns or ():
        match = COLUMN.fullmatch(text)
        if match is None:
            raise UsageError(f"--columns {text!r} must be NAME, NAME=WHERE or NAME=WHERE:MODE.")
        found.append(Wanted(match["name"], match["where"], match["mode"]))
    return found


def folder_input(folder: Path, usual: Encoded) -> Input:
    """Open a folder of pictures, as without --jpeg."""
    found = picture_files(folder)
    paths = PathList(runs_of(folder / name for name in found.files))
    fields: dict[str, Any] = {"image": EncodedSource(WholeFiles(paths), usual)}
    if found.classes:
        fields["label"] = NPDataset(found.labels)
    classes = {"label": found.classes} if found.classes else {}
    return Input([SourceTable(FieldsSource(fields), classes)], found.identity, found.left_out)


def container_input(path: str, columns: list[str] | None, usual: Encoded) -> Input:
    """Open files whose kind their first bytes tell."""
    files = record_paths(path)
    source = opener_of(files[0])(path, wanted_columns(columns), usual)
    return Input([SourceTable(source)], stamp(files))


def opener_of(file: Path) -> Open:
    """Return the function that opens files of this kind."""
    openers: dict[str | None, Open] = {"tar": _tar, "TFRecord": _tfrecord, "Bagz": _bagz}
    return openers.get(container_of(file), _records)


def _tar(path: str, wanted: list[Wanted], usual: Encoded) -> FieldsSource:
    if not wanted:
        wanted = _tar_columns(record_paths(path)[0])
    fields: dict[str, Any] = {}
    for one in wanted:
        where = one.where or one.name
        numbers = (
            {"int64"}
            if set(where.lower().split(";")) <= INTEGER_EXTENSIONS or ":" in where
            else set()
        )
        fields[one.name] = (*numbers, where) if numbers else one.encoded(where, usual)
    return TarDataset(path, fields)


def _tar_columns(file: Path) -> list[Wanted]:
    """Return the images and the labels of the first samples of a tar file."""
    found = fields_by_extension([file], Encoded())
    images = [name for name, one in found.items() if isinstance(one, Encoded)]
    if len(images) != 1:
        shown = ", ".join(map(repr, images)) or "no images"
        raise UsageError(
            f"{file}: its first samples have {shown}; say which are images and labels, such as --columns image=jpg "
            "label=cls."
        )
    labels = [Wanted("label", "cls", None)] if "cls" in found else []
    return [Wanted("image", images[0], None), *labels]


def _tfrecord(path: str, wanted: list[Wanted], usual: Encoded) -> FieldsSource:
    file = record_paths(path)[0]
    features = next(first_features(file, MOST_NUMBERS), {})
    fields: dict[str, Any] = {}
    for one in wanted:
        where = one.where or one.name
        kind, values = features.get(where, (None, []))
        if kind is None:
            wanted = []
            break
        shape = () if len(values) == 1 else (len(values),)
        number = kind in DTYPES and 0 < len(values) <= MOST_NUMBERS
        fields[one.name] = (DTYPES[kind], where, shape) if number else one.encoded(where, usual)
    if not wanted:
        raise UsageError(
            f"{file}: say which features of its records are fields, such as --columns image=image/encoded "
            f"label=image/class/label; it has {', '.join(map(repr, sorted(features)))}."
        )
    return TFRecordDataset(path, fields)


def _bagz(path: str, wanted: list[Wanted], usual: Encoded) -> FieldsSource:
    return BagzDataset(path, _declared(wanted or [Wanted("image", None, None)], usual))


def _records(path: str, wanted: list[Wanted], usual: Encoded) -> FieldsSource:
    opened: Any = ARDataset
    if not any(one.where or one.mode for one in wanted):
        found = opened(path).rows
        if isinstance(found, FieldsSource):
            unknown = [one.name for one in wanted if one.name not in found.fields]
            if unknown:
                raise UsageError(
                    f"{path} has no field {unknown[0]!r}; it has {', '.join(map(repr, found.fields))}."
                )
            names = [one.name for one in wanted] or list(found.fields)
            return FieldsSource({name: found.fields[name] for name in names})
    if not wanted:
        raise UsageError(
            f"{path}: nothing in the file says what its records hold; say it, such as --columns image label=int64."
        )
    fields: FieldsSource = opened(path, _declared(wanted, usual)).rows
    return fields


def _declared(wanted: list[Wanted], usual: Encoded) -> Mapping[str, Any]:
    """Return the fields of records that do not note them: numbers by their dtype, and images."""
    return {one.name: one.where or one.encoded(None, usual) for one in wanted}


def jpeg_input(source: Input, path: str, options: JpegOptions) -> Input:
    """Return the table of another input with its images as JPEG. Refuse tables for which this makes no sense."""
    (table,) = source.tables
    images = {
        one.name: one.spec.encoded.mode
        for one in table.columns
        if isinstance(one.spec, EncodedSpec)
    }
    if not images:
        raise UsageError(f"{path} has no encoded images, which --jpeg needs.")
    others = [name for name, mode in images.items() if mode not in PICTURES]
    if others and options.max_side is not None:
        raise UsageError(
            f"--max-side would shrink pictures and not {others[0]!r}, whose mode is {images[others[0]]!r}; leave it "
            "out, or choose other --columns."
        )
    made: list[Table] = [JpegTable(table, options)]
    return Input(made, source.identity, source.left_out)
