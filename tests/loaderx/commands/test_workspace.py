"""A conversion touches no file that it did not make, whatever ends it, and leaves nothing the next does not use."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from loaderx import ARDataset, cli
from loaderx.commands.workspace import Workspace

ROWS = np.random.default_rng(0).integers(0, 16, (4000, 48, 48), np.uint8)
# One thread at such a level takes some seconds.
SLOWLY = ("--compression", "zstd:19", "--jobs", "1")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def convert(*arguments):
    return cli.main(["convert", *map(str, arguments)])


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "loaderx", "convert", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=110,
        **options,
    )


def running(*arguments):
    """A slow conversion that has written something."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loaderx", "convert", *arguments, *SLOWLY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    growing = Workspace(Path(arguments[1])).path / Path(arguments[1]).name
    while not growing.exists() or growing.stat().st_size < 100_000:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    return process


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
def test_what_is_not_a_workspace_is_left_alone(folder, capsys, kind):
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
    assert "both what is read and what is written" in capsys.readouterr().err
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
def test_signals_end_a_conversion_that_goes_on_later(folder, number, status):
    np.save("x.npy", ROWS)
    process = running("x.npy", "y.ar")
    process.send_signal(number)
    out, err = process.communicate(timeout=110)
    assert process.returncode == status
    (line,) = err.splitlines()
    assert line.endswith("of 4,000 rows; the same command goes on there")
    assert out == ""
    finished = run("x.npy", "y.ar", *SLOWLY)
    assert finished.stderr.startswith("going on after ")
    assert np.array_equal(ARDataset("y.ar")[:], ROWS)
    assert names(folder) == ["x.npy", "y.ar"]


def test_a_signal_that_is_ignored_stays_ignored(folder):
    np.save("x.npy", ROWS)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = running("x.npy", "y.ar")
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=110)
    assert process.returncode == 0
    assert names(folder) == ["x.npy", "y.ar"]


@pytest.mark.parametrize("after", ["same", "other"])
def test_what_a_killed_conversion_left_is_gone_after_the_next(folder, after):
    np.save("x.npy", ROWS)
    process = running("x.npy", "y.ar")
    process.kill()
    process.communicate()
    (place,) = folder.glob(".y.ar.*")
    options = SLOWLY if after == "same" else ("--shards", 2, "--compression", "none")
    assert run("x.npy", "y.ar", *options).returncode == 0
    assert not place.exists()
    assert np.array_equal(ARDataset("y.ar")[:], ROWS)
    assert [name for name in names(folder) if name.startswith(".")] == []


def test_a_second_process_is_refused_while_the_first_lives_and_not_after(folder):
    np.save("x.npy", ROWS)
    process = running("x.npy", "y.ar")
    # It holds its lock, and does not end meanwhile.
    process.send_signal(signal.SIGSTOP)
    try:
        Path("here").symlink_to(".")
        for target in ("y.ar", "here/y.ar"):
            refused = run("x.npy", target, *SLOWLY)
            assert refused.returncode == 2
            assert (
                refused.stderr
                == f"loaderx convert: {target} is being written by another process.\n"
            )
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
    assert run("x.npy", "y.ar", *SLOWLY).returncode == 0
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

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) + len(refused) == 400
    assert set(seen) == {1}
    assert set(refused) <= {"y.npy is being written by another process."}
    assert names(folder) == []


def test_a_file_that_appeared_meanwhile_is_not_replaced(folder):
    np.save("x.npy", ROWS)
    process = running("x.npy", "y.ar")
    process.send_signal(signal.SIGSTOP)
    Path("y.ar").write_text("theirs")
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=110)
    assert process.returncode == 2
    assert "y.ar exists by now; the same command with --force replaces it at once" in err
    assert Path("y.ar").read_text() == "theirs"
    finished = run("x.npy", "y.ar", *SLOWLY, "--force")
    assert "going on after 4,000 of 4,000 rows" in finished.stderr
    assert np.array_equal(ARDataset("y.ar")[:], ROWS)


def test_a_folder_that_cannot_be_written_is_one_line(folder):
    np.save("x.npy", np.arange(10))
    # Also root cannot make files there.
    finished = run("x.npy", "/proc/self/y.npy")
    assert finished.returncode == 2
    (line,) = finished.stderr.splitlines()
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
