"""`loaderx convert` and `inspect` read only the files they are given, in bounded memory, even from hostile files."""

import functools
import io
import os
import re
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from loaderx import cli

PIXELS = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "data" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "data")
    Image.fromarray(PIXELS).save(tmp_path / "secret.png")
    Image.fromarray(PIXELS).save("below/own.png")
    return tmp_path


def write_table(*paths):
    cells = [{"bytes": None, "path": str(path)} for path in paths]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    parquet.write_table(pa.table({"image": pa.array(cells, kind)}), "t.parquet")


def test_a_picture_below_the_folder_of_a_parquet_file_is_read_from_any_current_folder(
    folder, monkeypatch
):
    write_table("below/own.png", "below/../below/own.png")
    monkeypatch.chdir(folder)
    assert cli.main(["convert", "data/t.parquet", "t.npy"]) == 0
    assert np.array_equal(np.load("t.npy"), [PIXELS, PIXELS])


@pytest.mark.parametrize("place", ["first", "later"])
@pytest.mark.parametrize("path", ["../secret.png", "absolute", "link.png", "linked/secret.png"])
def test_a_path_in_a_cell_does_not_lead_out_of_the_folder(folder, capsys, path, place):
    Path("link.png").symlink_to(folder / "secret.png")
    Path("linked").symlink_to(folder)
    given = str(folder / "data/below/own.png") if path == "absolute" else path
    write_table(*([given] if place == "first" else ["below/own.png", given]))
    assert cli.main(["convert", "t.parquet", "t.npy"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    row = 0 if place == "first" else 1
    assert f"column 'image', row {row} holds only the path {given!r}" in line
    assert "store its bytes" in line
    assert not Path("t.npy").exists()


@pytest.mark.parametrize("path", ["missing.png", "below", "a\0b", "x" * 5000, "pipe.png"])
def test_a_path_in_a_cell_that_is_not_a_file_is_one_line(capsys, path):
    os.mkfifo("pipe.png")
    write_table(path)
    assert cli.main(["convert", "t.parquet", "t.npy"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"row 0 names the file {path!r}" in line


# Bombs: a few bytes on the disk that would fill the memory.


def npy_header(shape, order=False):
    header = io.BytesIO()
    facts = {"descr": "|u1", "fortran_order": order, "shape": shape}
    np.lib.format.write_array_header_1_0(header, facts)
    return header.getvalue()


def write_npz(shape, nbytes, order=False):
    """Write a compressed archive of zeros."""
    with (
        zipfile.ZipFile("bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        member.write(npy_header(shape, order))
        for _ in range(nbytes >> 20):
            member.write(bytes(1 << 20))


LIMITED = """
import os, resource, sys
os.environ["OMP_NUM_THREADS"] = "2"
import numpy, numba, pyarrow.parquet
from loaderx.cli import main
now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (270 << 20),) * 2)
sys.exit(main())
"""


@pytest.fixture
def run_limited(forking):
    """Return a function that runs a command in memory for some blocks of a bomb, but not for all of it."""
    return functools.partial(forking.run, LIMITED)


def test_a_row_that_would_fill_the_memory_is_refused(run_limited):
    write_npz((1, 280 << 20), 280 << 20)
    assert Path("bomb.npz").stat().st_size < 2_000_000
    for command, status in ((["inspect", "bomb.npz"], 1), (["convert", "bomb.npz", "y.npy"], 2)):
        finished = run_limited(*command)
        (line,) = finished.stderr.splitlines()
        assert "array 'x': a row has 294 MB, and at most 268 MB are unpacked in memory" in line
        assert "unzip" in line
        assert finished.returncode == status


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("command", [["inspect", "bomb.npz"], ["convert", "bomb.npz", "y.npy"]])
def test_an_array_that_is_not_in_the_archive_is_refused(capsys, command, order):
    write_npz((1 << 20, 1 << 20), 1 << 20, order)
    assert cli.main(command) == (1 if command[0] == "inspect" else 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "array 'x' is truncated: its header promises 1,099,511,627," in line
    assert not Path("y.npy").exists()


@pytest.mark.parametrize("kind", ["list", "bytes"])
def test_a_parquet_row_that_would_fill_the_memory_is_refused(run_limited, kind):
    zeros = np.zeros(280 << 20, np.uint8)
    if kind == "list":
        zeros = zeros.view(np.int64)
        column = pa.ListArray.from_arrays(pa.array([0, len(zeros)], pa.int32()), pa.array(zeros))
    else:
        column = pa.array([zeros.tobytes()], pa.binary())
    # A dictionary of one row of 280 MB, and its least and greatest value, take seconds to find.
    parquet.write_table(
        pa.table({"x": column}),
        "t.parquet",
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
    )
    assert Path("t.parquet").stat().st_size < 1_000_000
    finished = run_limited("convert", "t.parquet", "y.npy")
    (line,) = finished.stderr.splitlines()
    assert re.search(r"column 'x': a row has (29|30)\d MB, and at most 268 MB are unpacked", line)
    assert finished.returncode == 2


def test_row_groups_without_rows_are_nothing_special():
    table = pa.table({"x": np.arange(5)})
    with parquet.ParquetWriter("t.parquet", table.schema) as writer:
        for part in (table[:0], table, table[:0]):
            writer.write_table(part)
    assert cli.main(["convert", "t.parquet", "y.npy"]) == 0
    assert np.load("y.npy").tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "notes", ["{", "[]", '{"info": 5}', '{"info": {"features": {"x": {"_type": "ClassLabel"}}}}']
)
def test_damaged_notes_of_a_parquet_file_are_one_line(capsys, notes):
    table = pa.table({"x": np.arange(5)}).replace_schema_metadata({"huggingface": notes})
    parquet.write_table(table, "t.parquet")
    assert cli.main(["convert", "t.parquet", "y.npy"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "t.parquet: its metadata for Hugging Face `datasets` is damaged" in line


def png_of(width, height):
    def chunk(kind, content):
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_a_picture_that_would_fill_the_memory_is_refused(capsys):
    Path("below/own.png").write_bytes(png_of(100_000, 100_000))
    assert cli.main(["convert", "below", "y.npy"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "below/own.png is not a picture: Image size (10000000000 pixels) exceeds limit" in line


# Names, pickles and pipes.


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "a/b", ".hidden"])
def test_the_names_of_members_do_not_lead_out_of_the_folder(folder, capsys, name):
    with zipfile.ZipFile("bomb.npz", "w") as archive:
        for member in (name, "other"):
            archive.writestr(f"{member}.npy", npy_header((1,)) + b"\0")
    before = sorted(folder.rglob("*"))
    assert cli.main(["convert", "bomb.npz", "y.npy"]) == 2
    assert f"column {name!r} cannot be the name of a file" in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before


class Boom:
    def __reduce__(self):
        return (os.mkdir, ("pwned",))


@pytest.mark.parametrize("file", ["x.npy", "x.npz"])
@pytest.mark.parametrize("command", ["inspect", "convert"])
def test_pickled_objects_are_refused_and_not_run(capsys, file, command):
    objects = np.array([Boom()], object)
    np.save("x.npy", objects, allow_pickle=True)
    np.savez("x.npz", objects)
    assert cli.main([command, file, *(["y.npy"] if command == "convert" else [])]) == 2
    assert "Python objects" in capsys.readouterr().err
    assert not Path("pwned").exists()


def test_a_pipe_is_refused_and_not_waited_for(capsys):
    os.mkfifo("x.npy")
    os.mkfifo("below/pipe.png")
    for command in (["inspect", "x.npy"], ["convert", "x.npy", "y.npy"]):
        assert cli.main(command) == 2
        assert "x.npy is not a regular file" in capsys.readouterr().err
    assert cli.main(["convert", "below", "y.npy"]) == 0
    assert "left out: 1 other files" in capsys.readouterr().err
