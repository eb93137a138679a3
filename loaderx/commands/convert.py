"""`loaderx convert`: convert files of other kinds to .npy, .npz and ArrayRecord files."""

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loaderx.process.cores import cores

from .terminal import (
    DONE,
    UsageError,
    axis_length,
    count_from,
    ctrl_c_waits,
    readable_bytes,
    write_line,
    write_note,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .conversion import Conversion
    from .tables import Input

EPILOG = """\
what SRC may be:
  a .npy or .npz file          every array of a .npz file is a column
  an ArrayRecord file          also `name` or `name@4` for the files name-00000-of-00004 and so on
  a folder of pictures         a class per sub-folder; needs the extra images
  a Parquet file               columns of numbers, lists of equal length, pictures; needs the extra huggingface
  a folder by `save_to_disk`   of Hugging Face `datasets`; needs the extra huggingface
  with --jpeg                  all of these that have encoded pictures, and tar, TFRecord and Bagz files; also patterns

what DST becomes:
  One column is the file DST. Several columns are files with their names in DST: train_image.npy and train_label.npy
    for train.npy. Next to ArrayRecord files, columns of single numbers are .npy files. Class names are
    train_label_classes.json.

With --jpeg all columns are one file DST, whose records have several fields. `lx.ARDataset` knows them, and a loader
decodes only the rows of a JPEG picture that it needs. Sequential JPEG files that are not larger than --max-side change
in no coefficient: they get a restart marker after every row of blocks. Others are encoded anew, upright and without
EXIF data. Files with alpha or a palette stay as they are, and so do masks: grey files that are not JPEG, unless --mode
says that they are pictures.

Files appear under their names when all are complete. After Ctrl-C, a kill or a full disk the same command resumes where
it stopped. Until then the rows are in the hidden folder .DST.*.unfinished next to DST. Delete it to begin again.

A cell of a Parquet file may contain the path of a picture. Only files below the folder of the Parquet file are
read, and none by an absolute path, by `..` or through a link that leads out of it.

examples:
  loaderx convert train.npy train.array_record
  loaderx convert train.array_record train.npy
  loaderx convert photos/ train.array_record --size 224 224 --jobs 8
  loaderx convert mnist.parquet mnist.npy --columns image label
  loaderx convert photos/ train.ar --jpeg 90 --max-side 512
  loaderx convert 'train-{000000..000146}.tar' train.ar --jpeg 90 --columns 'image=jpg;png' label=cls
"""


def add(commands: Any) -> None:
    """Add the parser of this command."""
    parser = commands.add_parser(
        "convert",
        help="convert arrays, pictures, Parquet and Hugging Face data to .npy, .npz or ArrayRecord",
        description="Convert SRC to DST, a name that ends in .npy, .npz or .array_record (or .ar).",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="SRC", help="a file or folder, see below")
    parser.add_argument(
        "target", metavar="DST", help="the file to write; its ending selects the format"
    )
    parser.add_argument(
        "--columns",
        nargs="+",
        metavar="NAME",
        help="read only these columns of a .npz file, Parquet or a dataset; with --jpeg also of other files, as "
        "NAME=WHERE: an extension in tar files, a feature in TFRecord files, a dtype in others; :P after it is a mask",
    )
    parser.add_argument(
        "--split", metavar="NAME", help="the split to read of a dataset with splits"
    )
    parser.add_argument(
        "--size",
        nargs=2,
        type=count_from(1),
        metavar=("H", "W"),
        help="resize the shorter side of pictures and crop the centre; without it all must be of one size",
    )
    parser.add_argument(
        "--mode",
        choices=("auto", "RGB", "L"),
        default="auto",
        help="mode of pictures: RGB, or L for one grey channel; auto is as the first picture (default), with --jpeg as "
        "the source says, or RGB",
    )
    parser.add_argument(
        "--jpeg",
        type=count_from(1, 100),
        metavar="QUALITY",
        help="keep pictures encoded, as JPEG files whose rows of blocks are decoded on their own; the quality, 1 to "
        "100, is of those that must be encoded anew",
    )
    parser.add_argument(
        "--max-side",
        type=count_from(1),
        metavar="N",
        help="with --jpeg: shrink pictures whose longer side is longer, with antialiasing (Lanczos)",
    )
    parser.add_argument(
        "--compression",
        type=compression,
        metavar="zstd:LEVEL|none",
        help="compression of ArrayRecord files (default: zstd:3, with --jpeg none)",
    )
    parser.add_argument(
        "--group-size",
        type=count_from(1),
        default=1,
        metavar="N",
        help="records per chunk of ArrayRecord files; 1 is fastest in random order (default)",
    )
    parser.add_argument(
        "--shards",
        type=count_from(1),
        default=1,
        metavar="N",
        help="divide the rows among N ArrayRecord files, DST-00000-of-0000N and so on",
    )
    parser.add_argument(
        "--dtype",
        metavar="NAME",
        help="dtype of records, for ArrayRecord files that do not contain it",
    )
    parser.add_argument(
        "--shape",
        nargs="*",
        type=axis_length,
        metavar="N",
        help="shape of one record, for these files; the first may be `any`",
    )
    parser.add_argument(
        "--pad-to",
        type=count_from(1),
        metavar="N",
        help="pad or cut records of any length to N; their lengths are a second column",
    )
    parser.add_argument(
        "--jobs", type=count_from(1), metavar="N", help="threads (default: one per core)"
    )
    parser.add_argument("--force", action="store_true", help="replace existing files")
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Compression:
    """Level of zstd, or None."""

    level: int | None


def compression(text: str) -> Compression:
    """Convert an argument to a compression."""
    kind, _, level = text.partition(":")
    if text in ("none", "uncompressed"):
        return Compression(None)
    try:
        number = int(level) if level else 3
    except ValueError:
        number = -(1 << 31)
    if kind != "zstd" or not -131072 <= number <= 22:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not none, zstd or zstd:LEVEL with a level from -131072 to 22"
        )
    return Compression(number)


def run(options: argparse.Namespace) -> int:
    """Convert, and print what was written."""
    from loaderx.sources.records.encoding import Encoding

    from .conversion import SUFFIXES, Conversion, Format

    target = Path(options.target)
    if target.suffix not in SUFFIXES:
        raise UsageError(f"{target} must end in one of {', '.join(SUFFIXES)}.")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent} to write {target.name} into.")
    _refuse_combinations(options, target)
    source = opened(options) if options.jpeg is None else opened_encoded(options)
    # JPEG pictures would hardly become smaller.
    usual = Compression(3 if options.jpeg is None else None)
    level = (options.compression or usual).level
    how = {name: getattr(options, name) for name in (*MEANT_FOR, "mode", "group_size")}
    how |= {"compression": level, "jpeg": options.jpeg, "max_side": options.max_side}
    records = Format(Encoding(level, options.group_size), options.shards)
    conversion = Conversion(source, target, records, how)
    _refuse_targets(conversion.files, options)
    for line in source.left_out:
        write_note(f"left out: {line}")
    with conversion.workspace:
        reason = conversion.resume()
        if reason is not None:
            write_note(f"beginning again: {reason}")
        if conversion.done:
            write_note(f"resuming after {conversion.done:,} of {conversion.rows:,} rows")
        started = time.perf_counter()
        with ctrl_c_waits() as stop:
            conversion.run(options.jobs or cores(), stop, force=options.force)
    _report(conversion, time.perf_counter() - started)
    return DONE


def _refuse_targets(targets: "Sequence[Path]", options: argparse.Namespace) -> None:
    """Refuse to replace the source, anything but regular files, and existing files without --force."""
    from loaderx.sources.records.paths import record_paths

    sources = [] if Path(options.source).is_dir() else record_paths(options.source)
    for target in targets:
        if target.exists() and not target.is_file():
            what = "a folder" if target.is_dir() else "not a regular file"
            raise UsageError(f"{target} is {what}: give the name of a file to write.")
        if os.path.lexists(target) and not options.force:
            raise UsageError(f"{target} exists already; --force replaces it.")
        # Also by another path: other case, a link, a second name.
        if target.exists() and any(target.samefile(file) for file in sources):
            raise UsageError(f"{target} is both the source and the target; choose another target.")


def opened(options: argparse.Namespace) -> "Input":
    """Open SRC with the options for its kind; refuse other options."""
    from loaderx.sources.records.paths import record_paths

    from .tables import Input, NpyTable, RecordTable, kind_of, npz_tables, stamp

    path = Path(options.source)
    kind = kind_of(options.source)
    if kind == "folder":
        from .arrow import is_dataset

        kind = "dataset" if is_dataset(path) else "pictures"
    _refuse_options(options, kind)
    size = tuple(options.size) if options.size else None
    if kind == "npy":
        return Input([NpyTable(path)], stamp([path]))
    if kind == "npz":
        tables, left_out = npz_tables(path)
        names = [table.columns[0].name for table in tables]
        for name in options.columns or ():
            if name not in names:
                raise UsageError(
                    f"{path} has no array {name!r}; it has {', '.join(map(repr, names))}."
                )
        chosen = [name for name in names if name in (options.columns or names)]
        return Input(
            [tables[names.index(name)] for name in chosen],
            stamp([path]),
            [] if options.columns else left_out,
        )
    if kind == "records":
        table = RecordTable(options.source, options.dtype, options.shape, options.pad_to)
        return Input([table], stamp(record_paths(options.source)))
    if kind == "pictures":
        from .pictures import picture_input

        return picture_input(path, options.mode, size)
    from .arrow import Wanted, dataset_input, parquet_input

    wanted = Wanted(options.columns, options.mode, size)
    if kind == "parquet":
        return parquet_input(path, wanted)
    return dataset_input(path, options.split, wanted)


def opened_encoded(options: argparse.Namespace) -> "Input":
    """Open SRC with its pictures as they are encoded, which will be JPEG."""
    from loaderx.sources.encoded.field import Encoded

    from .arrow import Wanted, dataset_input, is_dataset, parquet_input
    from .jpeg_images import JpegOptions
    from .jpeg_input import container_input, folder_input, jpeg_input
    from .tables import kind_of

    path = Path(options.source)
    kind = kind_of(options.source)
    if kind == "folder":
        kind = "dataset" if is_dataset(path) else "pictures"
    _refuse_options(options, kind, {"columns": ("parquet", "dataset", "records")})
    usual = Encoded(mode="RGB" if options.mode == "auto" else options.mode)
    wanted = Wanted(options.columns, options.mode, None, usual)
    if kind in ("npy", "npz"):
        raise UsageError(
            f"{path} has no encoded pictures, which --jpeg needs: it is a .{kind} file."
        )
    if kind == "pictures":
        found = folder_input(path, usual)
    elif kind == "parquet":
        found = parquet_input(path, wanted)
    elif kind == "dataset":
        found = dataset_input(path, options.split, wanted)
    else:
        found = container_input(options.source, options.columns, usual)
    how = JpegOptions(options.jpeg, options.max_side, options.mode != "auto")
    return jpeg_input(found, options.source, how)


def _refuse_combinations(options: argparse.Namespace, target: Path) -> None:
    """Refuse options that contradict one another."""
    from .conversion import RECORD_SUFFIXES

    if options.jpeg is None and options.max_side is not None:
        raise UsageError("--max-side is for --jpeg: give the quality of JPEG, too, or --size.")
    if options.jpeg is None:
        return
    if target.suffix not in RECORD_SUFFIXES:
        raise UsageError(
            f"--jpeg writes ArrayRecord files, and {target} is not one by its name: it must end in "
            f"{', '.join(RECORD_SUFFIXES)}."
        )
    for name in ("size", "dtype", "shape", "pad_to"):
        if getattr(options, name) is not None:
            more = "; --max-side shrinks them" if name == "size" else ""
            raise UsageError(
                f"--{name.replace('_', '-')} means nothing with --jpeg, which keeps pictures of any size{more}."
            )


# The kinds of SRC that each option is for.
MEANT_FOR = {
    "columns": ("npz", "parquet", "dataset"),
    "split": ("dataset",),
    "size": ("pictures", "parquet", "dataset"),
    "dtype": ("records",),
    "shape": ("records",),
    "pad_to": ("records",),
}


def _refuse_options(
    options: argparse.Namespace, kind: str, others: "Mapping[str, Sequence[str]] | None" = None
) -> None:
    """Refuse options that would be ignored; `others` are meant for other kinds than usual."""
    for name, kinds in {**MEANT_FOR, **(others or {})}.items():
        if getattr(options, name) is not None and kind not in kinds:
            option = name.replace("_", "-")
            raise UsageError(
                f"--{option} means nothing for {options.source}, which is of the kind {kind!r}."
            )


def _report(conversion: "Conversion", seconds: float) -> None:
    from .program import program_of

    width = max(len(str(file)) for file in conversion.files)
    for file in conversion.files:
        write_line(f"{file!s:{width}}  {readable_bytes(file.stat().st_size)}")
    shown = ", ".join(str(target.column) for target in conversion.targets)
    write_line(f"{conversion.rows:,} rows in {seconds:.1f} s: {shown}")
    for line in conversion.summary():
        write_line(line)
    write_line("\n".join(["to load them:", "", *program_of(conversion)]))
