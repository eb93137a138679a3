"""Rows are read from regular files; pipes, sockets, devices and folders are refused without waiting."""

import os
import socket

import pytest

from loaderx import (
    ARDataset,
    DataError,
    Dataset,
    IDXDataset,
    ImageFolder,
    NPDataset,
    PackedDataset,
    PolarsDataset,
    SQLiteDataset,
    TokenDataset,
    write_array_record,
)
from loaderx.sources.files import open_file

OPENERS = {
    "NPDataset": lambda path: NPDataset(path),
    "NPDataset of several": lambda path: NPDataset([path]),
    "Dataset": lambda path: Dataset(path.parent, path.name, path.name),
    "ARDataset": lambda path: ARDataset(path, "u1", ()),
    "ARDataset, read": lambda path: ARDataset(path, "u1", (), mmap=False),
    "TokenDataset": lambda path: TokenDataset(path, 4, dtype="u2"),
    "PackedDataset": lambda path: PackedDataset(path, 4, dtype="u2", lengths=[3]),
    "IDXDataset": lambda path: IDXDataset(path),
    "write_array_record": lambda path: write_array_record(path.parent / "out.ar", path),
}


@pytest.fixture
def strange(tmp_path, monkeypatch):
    """Yield paths that are not files, by kind."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.npy")
    (tmp_path / "folder.npy").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.npy")
        (tmp_path / "device.npy").symlink_to("/dev/zero")
        (tmp_path / "link.npy").symlink_to("pipe.npy")
        yield {
            "a named pipe": tmp_path / "pipe.npy",
            "a folder": tmp_path / "folder.npy",
            "a socket": tmp_path / "socket.npy",
            "a device": tmp_path / "device.npy",
        }


@pytest.mark.parametrize("opener", OPENERS)
def test_paths_that_are_not_files_are_refused_and_named(strange, opener):
    for kind, path in strange.items():
        with pytest.raises(DataError, match=rf"{path.name} is {kind}, not an? "):
            OPENERS[opener](path)
    link = strange["a named pipe"].with_name("link.npy")
    with pytest.raises(DataError, match=r"link.npy is a named pipe.*Copy its content to a file"):
        OPENERS[opener](link)


def test_a_pipe_is_neither_a_database_nor_a_table(strange, tmp_path):
    os.mkfifo(tmp_path / "rows.csv")
    for opened in (
        lambda: PolarsDataset(tmp_path / "rows.csv"),
        lambda: SQLiteDataset(strange["a named pipe"], "rows", {"x": "int64"}),
    ):
        with pytest.raises(FileNotFoundError, match="there is no file"):
            opened()


def test_a_pipe_among_images_is_refused(tmp_path):
    (tmp_path / "class").mkdir()
    os.mkfifo(tmp_path / "class" / "image.png")
    with pytest.raises(DataError, match=r"image.png is a named pipe, not an image"):
        ImageFolder(tmp_path)[0]
    with pytest.raises(DataError, match=r"image.png is a named pipe, not an image"):
        ImageFolder(tmp_path, 8)[0]


def test_a_pipe_with_a_writer_is_refused_as_well(strange):
    path = strange["a named pipe"]
    number = os.open(path, os.O_RDWR)
    try:
        os.write(number, b"\x93NUMPY")
        with pytest.raises(DataError, match="a named pipe"):
            NPDataset(path)
    finally:
        os.close(number)


def test_a_file_is_opened_for_reading(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    with open_file(tmp_path / "file", "a file") as file:
        assert file.read() == b"content"
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "none", "a file")
