"""`TarDataset`: WebDataset shards with random access."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.sources.files import open_file
from loaderx.sources.records.paths import PathLike, record_paths
from loaderx.sources.source import FieldsSource
from loaderx.spec import Spec

from .declared import Numbers, declared_fields, fits
from .field import Encoded
from .index import Columns, Shard, indexed
from .labels import Labels, sidecar_labels
from .paths import SUFFIXES
from .shards import (
    Fields,
    Keyed,
    RowColumns,
    field_sources,
    is_consistent,
    joined_strings,
)
from .tar_members import Member, tar_members

# The key of a member, and its extension, which begins after the first dot of the file name.
NAME = re.compile(r"(?P<key>(?:.*/)?[^./]+)\.(?P<extension>[^/]*)", re.DOTALL)
IMAGES = frozenset(suffix[1:] for suffix in SUFFIXES)
INTEGERS = frozenset(("cls", "cls2", "class", "count", "id", "index", "inx"))
# Labels are short. Reading a large file for a number would be a mistake.
MOST_TEXT = 1 << 24
Missing = Literal["raise", "drop"]


class TarDataset(FieldsSource):
    """Samples of tar files in the form of WebDataset: files of one name and different extensions are a row.

    path     a tar file, a pattern such as "train-{000000..000146}.tar" or "train-*.tar", or a list of these
    fields   the fields of a row by their extension: {"image": "jpg", "label": "cls"}. "jpg;png" is either of them,
             `Encoded("jpg", mode="L")` an encoded image with options, ("int64", "cls") a number in text, and ("int64",
             "json:label") a number in a JSON file
    missing  "raise" refuses samples without one of the fields, "drop" leaves them out
    labels   numbers for a field "label" more: a mapping from each key to an integer, a JSON file with such a mapping,
             or an array in the order of the rows

    `keys` are the keys of the rows: the path of a file in the archive up to the first dot of its name. Rows are in the
    order of the files. Images are read from the place that they have in the archive, so it must not be compressed.
    The headers are scanned once, and an index is kept next to each file or in the cache folder.

        train = lx.TarDataset("train-{000000..000146}.tar", {"image": "jpg", "label": "cls"})
    """

    def __init__(
        self,
        path: PathLike | Sequence[PathLike],
        fields: Mapping[str, Any],
        *,
        missing: Missing = "raise",
        labels: Labels | None = None,
    ) -> None:
        if missing not in ("raise", "drop"):
            raise ArgumentError(f'`missing` (={missing!r}) must be "raise" or "drop".')
        declared = declared_fields(fields, _by_extension)
        if labels is not None and "label" in declared:
            raise ArgumentError(
                "`labels` makes a field 'label', and `fields` has one: leave one of them out."
            )
        paths = [file.absolute() for file in record_paths(path, "a tar file")]
        scan = _Scan(declared, missing)
        found = indexed(paths, "a tar file", scan.request, scan, scan.accepts)
        self.keys = joined_strings((columns["keys"], columns["ends"]) for columns, _ in found)
        sources = field_sources(paths, found, declared, Keyed(self.keys))
        if labels is not None:
            sources["label"] = sidecar_labels(labels, self.keys, len(self.keys))
        super().__init__(sources)


def _by_extension(extension: str) -> Encoded | Numbers | None:
    names = extension.lower().split(";")
    if all(name in IMAGES for name in names):
        return Encoded(extension)
    if all(name in INTEGERS for name in names):
        return Numbers(extension, Spec((), np.int64))
    raise ArgumentError(
        f"`fields` has the extension {extension!r}, and images ({', '.join(sorted(IMAGES))}) and integers "
        f"({', '.join(sorted(INTEGERS))}) are known by theirs. Give `Encoded({extension!r})` for images, or a dtype "
        f"for numbers, such as ('float32', {extension!r})."
    )


class _Scan:
    """Scan of tar files for the members of some fields."""

    def __init__(self, fields: Fields, missing: Missing) -> None:
        self._fields, self._missing = fields, missing
        self.request = [
            [name, field.field, None if isinstance(field, Encoded) else [*_kind(field.spec)]]
            for name, field in fields.items()
        ] + [missing]
        # Members of several fields by their extension, and the path of a number in a JSON file.
        self._wanted: dict[str, list[str]] = {}
        self._inside: dict[str, list[str]] = {}
        for name, field in fields.items():
            extensions = field.field or ""
            if isinstance(field, Numbers) and ":" in extensions:
                extensions, _, inside = extensions.partition(":")
                self._inside[name] = inside.split(".")
            for extension in extensions.lower().split(";"):
                self._wanted.setdefault(extension, []).append(name)

    def accepts(self, columns: Columns, size: int) -> bool:
        """Return True if an index has what this scan finds."""
        keys, ends = columns.get("keys"), columns.get("ends")
        return (
            is_consistent(columns, self._fields, size)
            and keys is not None
            and ends is not None
            and (keys.dtype.str, ends.dtype.str, keys.ndim, ends.ndim) == ("|u1", "<i8", 1, 1)
            and len(ends) == len(columns[next(iter(self._fields))])
            and bool(np.all(np.diff(ends, prepend=0, append=len(keys)) >= 0))
        )

    def __call__(self, shard: Shard) -> Columns:
        samples: dict[str, dict[str, Member]] = {}
        for member, key, extension in _named(shard):
            if member.link:
                # A row that is left out without a word would be missed by nobody.
                if extension in self._wanted and self._missing == "raise":
                    raise DataError(
                        f"{shard.path} has a link in place of the file {member.name!r}, at {member.offset}. Pack the "
                        'files anew, with `tar --dereference --hard-dereference`, or give missing="drop" to leave such '
                        "samples out."
                    )
                continue
            if extension not in self._wanted:
                if self._missing == "raise":
                    samples.setdefault(key, {})
                continue
            sample = samples.setdefault(key, {})
            for name in self._wanted[extension]:
                if name in sample:
                    raise DataError(
                        f"{shard.path} has two files for the field {name!r} of the key {key!r}: {sample[name].name!r} "
                        f"at {sample[name].offset}, and {member.name!r} at {member.offset}."
                    )
                sample[name] = member
        rows, memory, ends = RowColumns(self._fields), bytearray(), []
        for key, sample in samples.items():
            absent = [name for name in self._fields if name not in sample]
            if absent and self._missing == "drop":
                continue
            if absent:
                raise DataError(
                    f"{shard.path} has no file {_described(self._fields[absent[0]])} for the field {absent[0]!r} of "
                    f'the key {key!r}. Correct the extension in `fields`, or leave such samples out by missing="drop".'
                )
            rows.add({name: self._value(shard, name, sample[name]) for name in self._fields})
            memory += key.encode("utf-8", "surrogateescape")
            ends.append(len(memory))
        found = rows.columns()
        found["keys"] = np.frombuffer(bytes(memory), np.uint8)
        found["ends"] = np.array(ends, np.int64)
        return found

    def _value(self, shard: Shard, name: str, member: Member) -> Any:
        field = self._fields[name]
        if isinstance(field, Encoded):
            return member.offset, member.size
        if member.size > MOST_TEXT:
            raise DataError(f"{shard.path}, {member.name!r}: {member.size} bytes are not a number.")
        text = shard.read(member.size, member.offset)
        try:
            value = _number(text, self._inside.get(name), field.spec.dtype)
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise DataError(
                f"{shard.path}, {member.name!r}: {text[:80]!r} is not a number of {field.spec.dtype} for the field "
                f"{name!r}: {error!r}."
            ) from error
        if np.shape(value) != field.spec.shape:
            raise DataError(
                f"{shard.path}, {member.name!r}: {text[:80]!r} is not {field.spec} for the field {name!r}."
            )
        return value


def first_members(path: Path, most: int) -> Iterator[tuple[str, str]]:
    """Yield the key and the extension of each of the first members of a tar file."""
    with open_file(path, "a tar file") as file:
        for _, key, extension in islice(_named(Shard(path, file, lambda _: None)), most):
            yield key, extension


def _named(shard: Shard) -> Iterator[tuple[Member, str, str]]:
    """Yield the members that have a key, links too, with it and their extension."""
    for member in tar_members(shard):
        match = NAME.fullmatch(member.name)
        # Members that macOS adds have names that begin with a dot, or are in a folder of their own.
        if match is not None and "__MACOSX" not in member.name.split("/"):
            yield member, match["key"], match["extension"].lower()


def _number(text: bytes, inside: list[str] | None, dtype: np.dtype[Any]) -> Any:
    """Return the number in a text, or at a path in JSON."""
    value: Any
    if inside is None:
        value = float(text) if dtype.kind == "f" else int(text)
    else:
        value = json.loads(text)
        for key in inside:
            value = value[int(key)] if isinstance(value, list) else value[key]
    flat: NDArray[Any] = np.array(value, object)
    if not all(fits(one, dtype) for one in flat.flat):
        raise ValueError(f"{value!r} does not fit into {dtype}")
    return value


def _described(field: Encoded | Numbers) -> str:
    return " or ".join(f".{one}" for one in (field.field or "").partition(":")[0].split(";"))


def _kind(spec: Spec) -> tuple[str, tuple[int, ...]]:
    return spec.dtype.str, spec.shape
