"""A conversion touches only its own files, however it ends, and leaves only files that the next one uses."""

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from loaderx import ARDataset, cli
from loaderx.commands.workspace import Workspace
from tests.loaderx.commands.paused import ROWS, paused_conversion


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def convert(*arguments):
    return cli.main(["convert", *map(str, arguments)])


def names(folder):
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("suffix", ["", ".json", ".json.new", ".lock", ".index"])
def test_a_source_called_as_an_unfinished_file_is_kept(folder, suffix):
    source = Path(f"z.npy.partial{suffix}")
    with source.open("wb") as file:
        np.save(file, np.arange(100))
    content = source.read_bytes()
    assert convert(source, "z.npy") == 0
    assert source.read_bytes() == content == Path("z.npy").read_bytes()
    assert names(folder) == sorted(["z.npy", source.name])


@pytest.mark.parametrize("kind", ["file", "folder", "link", "link to a folder of ours"])
def test_a_folder_that_is_not_a_workspace_is_left_alone(folder, capsys, kind):
    np.save("x.npy", np.arange(10))
    place = Workspace(Path("y.npy")).path
    if kind == "file":
        place.write_text("theirs")
    elif kind == "folder":
        place.mkdir()
        (place / "journal.json").write_text("theirs")
    else:
        Path("elsewhere").mkdir()
        if kind != "link":
            (Path("elsewhere") / "lock").write_bytes(b"")
        (Path("elsewhere") / "y.npy").write_text("theirs")
        place.symlink_to("elsewhere")
    before = sorted(folder.rglob("*"))
    assert convert("x.npy", "y.npy") == 2
    assert "was not made by this command: move it away" in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before
    assert all(
        file.read_text() in ("theirs", "")
        for file in before
        if file.is_file() and file.name != "x.npy"
    )


def test_a_file_that_somebody_put_into_the_workspace_stays():
    np.save("x.npy", np.arange(10))
    with Workspace(Path("y.npy")) as workspace:
        (workspace.path / "theirs.txt").write_text("theirs")
    assert convert("x.npy", "y.npy") == 0
    assert (workspace.path / "theirs.txt").read_text() == "theirs"
    assert np.load("y.npy").tolist() == list(range(10))


@pytest.mark.parametrize("way", ["same", "relative", "link", "second name", "through a folder"])
def test_the_source_is_not_written_over(folder, capsys, way):
    np.save("x.npy", np.arange(10))
    content = Path("x.npy").read_bytes()
    target = {"same": "x.npy", "relative": f"../{folder.name}/x.npy"}.get(way, "y.npy")
    if way == "link":
        Path("y.npy").symlink_to("x.npy")
    elif way == "second name":
        Path("y.npy").hardlink_to("x.npy")
    elif way == "through a folder":
        Path("here").symlink_to(".")
        target = "here/x.npy"
    before = names(folder)
    assert convert("x.npy", target, "--force") == 2
    assert "both the source and the target" in capsys.readouterr().err
    assert Path("x.npy").read_bytes() == content
    assert names(folder) == before


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_folder_or_a_pipe_is_not_replaced(folder, capsys, force):
    np.save("x.npy", np.arange(10))
    Path("y.npy").mkdir()
    os.mkfifo("z.npy")
    assert convert("x.npy", "y.npy", *force) == 2
    assert "y.npy is a folder" in capsys.readouterr().err
    assert convert("x.npy", "z.npy", *force) == 2
    assert "z.npy is not a regular file" in capsys.readouterr().err
    assert names(folder) == ["x.npy", "y.npy", "z.npy"]


def test_a_link_that_leads_nowhere_is_replaced_on_request_only(capsys):
    np.save("x.npy", np.arange(10))
    Path("y.npy").symlink_to("nowhere.npy")
    assert convert("x.npy", "y.npy") == 2
    assert convert("x.npy", "y.npy", "--force") == 0
    assert not Path("y.npy").is_symlink()
    assert not Path("nowhere.npy").exists()


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signals_end_a_conversion_that_resumes_later(forking, folder, capsys, number, status):
    np.save("x.npy", ROWS)
    with paused_conversion(forking, "x.npy", "y.ar") as process:
        process.send_signal(number)
        out, err = process.communicate()
    assert process.returncode == status
    (line,) = err.splitlines()
    assert line.endswith("of 4,000 rows; the same command resumes there")
    assert out == ""
    assert convert("x.npy", "y.ar") == 0
    assert capsys.readouterr().err.startswith("resuming after ")
    assert np.array_equal(ARDataset("y.ar")[:], ROWS)
    assert names(folder) == ["x.npy", "y.ar"]


def test_a_signal_that_is_ignored_stays_ignored(forking, folder):
    np.save("x.npy", ROWS)
    with paused_conversion(forking, "x.npy", "y.ar", ignored=[signal.SIGHUP]) as process:
        process.send_signal(signal.SIGHUP)
        process.communicate()
    assert process.returncode == 0
    assert names(folder) == ["x.npy", "y.ar"]


@pytest.mark.parametrize("after", ["same", "other"])
def test_files_of_a_killed_conversion_are_gone_after_the_next(forking, folder, after):
    np.save("x.npy", ROWS)
    with paused_conversion(forking, "x.npy", "y.ar") as process:
        process.kill()
    (place,) = folder.glob(".y.ar.*")
    options = () if after == "same" else ("--shards", 2, "--compression", "none")
    assert convert("x.npy", "y.ar", *options) == 0
    assert not place.exists()
    assert np.array_equal(ARDataset("y.ar")[:], ROWS)
    assert [name for name in names(folder) if name.startswith(".")] == []


def test_a_second_process_is_refused_while_the_first_lives_and_not_after(forking, folder, capsys):
    np.save("x.npy", ROWS)
    Path("here").symlink_to(".")
    with paused_conversion(forking, "x.npy", "y.ar") as process:
        # It holds its lock, and does not end meanwhile.
        for target in ("y.ar", "here/y.ar"):
            assert convert("x.npy", target) == 2
            assert (
                capsys.readouterr().err
                == f"loaderx convert: {target} is being written by another process.\n"
            )
        assert process.poll() is None
    assert convert("x.npy", "y.ar") == 0
    assert np.array_equal(ARDataset("y.ar")[:], ROWS)


def test_one_of_many_that_want_a_workspace_has_it(folder):
    inside, seen, refused = [], [], []

    def use():
        for _ in range(50):
            try:
                with Workspace(Path("y.npy")) as workspace:
                    inside.append(1)
                    seen.append(len(inside))
                    (workspace.path / "y.npy").write_text("x")
                    workspace.remove(["y.npy"])
                    inside.pop()
            except cli.LoaderxError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=use, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert len(seen) + len(refused) == 400
    assert set(seen) == {1}
    assert set(refused) <= {"y.npy is being written by another process."}
    assert names(folder) == []


def test_a_file_that_appeared_meanwhile_is_not_replaced(forking, folder, capsys):
    np.save("x.npy", ROWS)
    with paused_conversion(forking, "x.npy", "y.ar") as process:
        Path("y.ar").write_text("theirs")
        _, err = process.communicate()
    assert process.returncode == 2
    assert "y.ar was created meanwhile; the same command with --force replaces it" in err
    assert Path("y.ar").read_text() == "theirs"
    assert convert("x.npy", "y.ar", "--force") == 0
    assert "resuming after 4,000 of 4,000 rows" in capsys.readouterr().err
    assert np.array_equal(ARDataset("y.ar")[:], ROWS)


def test_a_folder_that_cannot_be_written_is_one_line(capsys):
    np.save("x.npy", np.arange(10))
    # Even root cannot create files there.
    assert convert("x.npy", "/proc/self/y.npy") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("loaderx convert: cannot write into the folder /proc/self: ")


@pytest.mark.parametrize("length", [40, 200, 248])
def test_names_may_be_as_long_as_they_can_be(folder, length):
    np.save("x.npy", np.arange(10))
    name = "n" * (length - 4) + ".npy"
    assert convert("x.npy", name) == 0
    assert names(folder) == sorted([name, "x.npy"])


def test_a_damaged_journal_begins_again(capsys):
    np.save("x.npy", np.arange(10))
    for content in ("", "{", "[]", "null", '{"request": 5, "progress": []}'):
        with Workspace(Path("y.npy")) as workspace:
            (workspace.path / "journal.json").write_text(content)
        assert convert("x.npy", "y.npy", "--force") == 0
        assert "beginning again" in capsys.readouterr().err
        assert not workspace.path.exists()
