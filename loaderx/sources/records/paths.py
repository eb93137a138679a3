"""Expansion of a path, a pattern, a set of shards or a list of these to files."""

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path

from loaderx.errors import ArgumentError, DataError

PathLike = str | os.PathLike[str]
SHARD = re.compile(r"(?P<name>.*)-(?P<number>\d+)-of-(?P<count>\d+)", re.DOTALL)
COUNTED = re.compile(r"(?P<name>.+)@(?P<count>\d+)", re.DOTALL)


# `{000..146}`, or `{train,val}`.
BRACES = re.compile(r"\{(?:(?P<first>\d+)\.\.(?P<last>\d+)|(?P<names>[^{}]*,[^{}]*))\}")
MOST_NAMES = 1_000_000


def record_paths(
    path: PathLike | Sequence[PathLike], what: str = "an ArrayRecord file"
) -> list[Path]:
    """Return the files of a path, `a*.ar`, `a{0..3}.ar`, `a@4` or `a` for a-00000-of-00004 ..., or a list of these."""
    if isinstance(path, str | os.PathLike):
        return _expanded(os.fspath(path), what)
    if not isinstance(path, list | tuple):
        raise ArgumentError(f"`path` (={path!r}) must be a path, a pattern, or a list of these.")
    if not path:
        raise ArgumentError("`path` is an empty list; name at least one file.")
    for one in path:
        if not isinstance(one, str | os.PathLike):
            raise ArgumentError(f"`path` contains {one!r}, which is not a path.")
    return [file for one in path for file in _expanded(os.fspath(one), what)]


def expanded_braces(name: str) -> list[str]:
    """Return the names of a pattern with braces, as a shell expands it: `{08..10}` is 08, 09, 10, `{a,b}` is a, b."""
    names, end = [""], 0
    for found in BRACES.finditer(name):
        between = name[end : found.start()]
        if "{" in between and "}" in name[found.end() :]:
            raise ArgumentError(f"`path` (={name!r}) has braces inside of braces; give a list.")
        inside = _inside(found)
        if len(names) * len(inside) > MOST_NAMES:
            raise ArgumentError(f"`path` (={name!r}) is more than {MOST_NAMES} names.")
        names = [f"{begin}{between}{part}" for begin in names for part in inside]
        end = found.end()
    return [begin + name[end:] for begin in names]


def _inside(braces: "re.Match[str]") -> Sequence[str]:
    if braces["names"] is not None:
        return braces["names"].split(",")
    first, last = int(braces["first"]), int(braces["last"])
    if abs(last - first) >= MOST_NAMES:
        raise ArgumentError(f"`path` has {braces[0]}, which is more than {MOST_NAMES} names.")
    ends = braces["first"], braces["last"]
    padded = any(len(end) > 1 and end.startswith("0") for end in ends)
    width = max(map(len, ends)) if padded else 0
    step = 1 if first <= last else -1
    return [str(number).zfill(width) for number in range(first, last + step, step)]


def _expanded(name: str, what: str) -> list[Path]:
    if os.path.lexists(name):
        if Path(name).is_dir():
            raise DataError(f"{name} is a folder, not {what}.")
        return [Path(name)]
    if BRACES.search(name):
        return [file for one in expanded_braces(name) for file in _expanded(one, what)]
    counted = COUNTED.fullmatch(name)
    if counted is not None:
        shards = f"{glob.escape(counted['name'])}-*-of-*"
        found = [file for file in _shards(shards) if _count(file) == int(counted["count"])]
    elif glob.has_magic(name):
        found = sorted((Path(file) for file in glob.glob(name, recursive=True)), key=_place)  # noqa: PTH207 - may be absolute
        found = [file for file in found if not file.is_dir()]
    else:
        found = _shards(f"{glob.escape(name)}-*-of-*")
    if not found:
        raise FileNotFoundError(f"there is no file {name!r}, and no file matches it as a pattern")
    _check_complete(found)
    return found


def _shards(pattern: str) -> list[Path]:
    found = glob.glob(pattern)  # noqa: PTH207 - may be absolute
    return sorted((Path(file) for file in found if SHARD.fullmatch(file)), key=_place)


def _place(file: Path) -> tuple[str, int, str]:
    """Sort key: the files of a set by their number, which may lack leading zeros; others by name."""
    match = SHARD.match(str(file))
    return (match["name"], int(match["number"]), str(file)) if match else (str(file), 0, "")


def _count(file: Path) -> int:
    match = SHARD.fullmatch(str(file))
    return int(match["count"]) if match else 0


def _check_complete(files: Sequence[Path]) -> None:
    """Refuse patterns that match only some of the files of a set, or files of two sets."""
    matches = [SHARD.match(str(file)) for file in files]
    shards = [match for match in matches if match is not None]
    for name in {match["name"] for match in shards}:
        own = [match for match in shards if match["name"] == name]
        counts = {int(match["count"]) for match in own}
        if len(counts) > 1:
            raise DataError(
                f"{name}: there are sets of {sorted(counts)} files; name one of them, as in "
                f"'{name}@{min(counts)}'."
            )
        missing = set(range(counts.pop())) - {int(match["number"]) for match in own}
        if missing:
            raise DataError(
                f"{name}: these of {own[0]['count']} files are missing: {sorted(missing)}."
            )
