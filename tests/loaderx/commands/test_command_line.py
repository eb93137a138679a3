"""Every command has help, and reports an error in one line."""

import contextlib
import fcntl
import importlib
import itertools
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import tomllib
from pathlib import Path

import numpy as np
import pytest

import loaderx.commands
from loaderx import cli
from tests.waiting import PATIENCE

INSPECT, CONVERT = "inspect", "convert"
MAIN = "import sys, loaderx.cli; sys.exit(loaderx.cli.main())"


def run(*arguments, cwd, program=("-m", "loaderx")):
    return subprocess.run(
        [sys.executable, *program, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_every_command_in_the_folder_is_listed_and_every_one_listed_is_there():
    folder = Path(loaderx.commands.__file__).parent
    having = {file.stem for file in folder.glob("*.py") if "\ndef add(" in file.read_text()}
    assert having == set(loaderx.commands.COMMANDS)


@pytest.mark.parametrize("command", loaderx.commands.COMMANDS)
def test_the_help_of_a_command_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "example" in shown
    assert f"\n  loaderx {command}" in shown


def test_the_help_of_the_program_names_every_command(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    shown = capsys.readouterr().out
    assert [name for name in loaderx.commands.COMMANDS if f"\n    {name} " not in shown] == []


def test_the_script_and_the_module_say_the_same(tmp_path):
    script = Path(sys.executable).with_name("loaderx")
    by_script = subprocess.run(
        [script, "inspect", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    by_module = run("inspect", "--help", cwd=tmp_path)
    assert (by_script.returncode, by_module.returncode) == (0, 0)
    assert by_script.stdout == by_module.stdout != ""


def test_the_help_does_not_wait_for_numba_and_its_like(tmp_path):
    program = """
import sys
from loaderx.cli import main
try:
    main(["convert", "--help"])
except SystemExit:
    pass
print([name for name in ("numba", "numpy", "jax", "tqdm", "PIL", "pyarrow", "datasets") if name in sys.modules])
"""
    finished = run(cwd=tmp_path, program=("-c", program))
    assert finished.stdout.splitlines()[-1] == "[]", finished.stderr


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((3, 2), np.float32))
    np.save("none.npy", np.zeros((0, 2), np.float32))
    np.save("single.npy", np.float32(1))
    np.savez("two.npz", a=np.zeros(3), b=np.zeros(4))
    np.savez("objects.npz", a=np.array([None, 1], object))
    Path("text.npy").write_text("hello")
    Path("text.txt").write_text("hello")
    Path("empty").write_bytes(b"")
    Path("zip.npz").write_bytes(b"PK\x03\x04 and nothing else")
    Path("table.parquet").write_bytes(b"PAR1 and nothing else")
    Path("folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([INSPECT, "missing.npy"], ["no file 'missing.npy'"]),
        ([INSPECT, "empty"], ["empty is empty"]),
        ([INSPECT, "text.npy"], ["text.npy is not a .npy file"]),
        ([INSPECT, "text.txt"], ["text.txt", "not an ArrayRecord file"]),
        ([INSPECT, "zip.npz"], ["zip.npz is not a .npz file"]),
        ([INSPECT, "objects.npz"], ["objects.npz has no array", "Python objects"]),
        ([INSPECT, "single.npy"], ["single.npy holds a single value"]),
        ([INSPECT, "folder"], ["folder is a folder", "loaderx convert"]),
        ([INSPECT, "x.npy", "--dtype", "int8"], ["--dtype", "x.npy"]),
        ([CONVERT, "missing.npy", "y.npy"], ["no file 'missing.npy'"]),
        ([CONVERT, "x.npy", "y.txt"], ["y.txt must end in", ".array_record"]),
        ([CONVERT, "x.npy", "nowhere/y.npy"], ["no folder nowhere"]),
        ([CONVERT, "x.npy", "x.npy"], ["x.npy exists already", "--force"]),
        ([CONVERT, "x.npy", "x.npy", "--force"], ["both the source and the target"]),
        ([CONVERT, "none.npy", "y.ar"], ["no rows"]),
        ([CONVERT, "x.npy", "y.ar", "--shards", "4"], ["--shards (=4)", "at most 3"]),
        ([CONVERT, "x.npy", "y.npy", "--shards", "2"], ["--shards is for ArrayRecord"]),
        ([CONVERT, "x.npy", "y.ar", "--size", "2", "2"], ["--size means nothing for x.npy"]),
        ([CONVERT, "two.npz", "y.npy", "--columns", "c"], ["no array 'c'", "'a', 'b'"]),
        ([CONVERT, "folder", "y.npy"], ["folder has no pictures"]),
        ([CONVERT, "table.parquet", "y.npy"], ["table.parquet is not a Parquet file"]),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(files, capsys, arguments, words):
    before = sorted(files.iterdir())
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith(f"loaderx {arguments[0]}: ")
    assert [word for word in words if word not in line] == []
    assert captured.out == ""
    assert sorted(files.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([INSPECT], "FILE"),
        ([INSPECT, "x.npy", "--sample", "-1"], "-1 is less than 0"),
        ([CONVERT, "x.npy"], "DST"),
        ([CONVERT, "x.npy", "y.ar", "--jobs", "0"], "0 is less than 1"),
        ([CONVERT, "x.npy", "y.ar", "--jobs", "two"], "'two' is not an integer"),
        (
            [CONVERT, "x.npy", "y.ar", "--compression", "zip"],
            "'zip' is not none, zstd or zstd:LEVEL",
        ),
        ([CONVERT, "x.npy", "y.ar", "--compression", "zstd:99"], "'zstd:99'"),
    ],
)
def test_wrong_options_exit_with_2_and_show_the_usage(files, capsys, arguments, words):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"usage: loaderx {arguments[0]}")
    assert words in shown.splitlines()[-1]


@pytest.mark.parametrize(
    ("module", "source", "package", "extra"),
    [
        ("PIL.Image", "pictures", "Pillow", "images"),
        ("pyarrow", "table.parquet", "pyarrow", "huggingface"),
        ("datasets", "saved", "datasets", "huggingface"),
    ],
)
def test_a_missing_package_is_one_line_that_says_what_to_install(
    files, monkeypatch, capsys, module, source, package, extra
):
    (files / "pictures" / "cat").mkdir(parents=True)
    (files / "saved").mkdir()
    (files / "saved" / "state.json").write_text(json.dumps({}))
    (files / "saved" / "dataset_info.json").write_text(json.dumps({}))
    # None makes the import fail as if the package were not installed.
    monkeypatch.setitem(sys.modules, module, None)
    assert cli.main([CONVERT, source, "y.npy"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert package in line
    assert line.endswith(f'pip install ".[{extra}]" in a clone of loaderx')
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert extra in project["optional-dependencies"]


# A program that runs several commands in turn.
COMMANDS_IN_TURN = """
import sys
from loaderx.cli import main
commands = " ".join(sys.argv[1:]).split(" ; ")
sys.exit(max(main(command.split()) for command in commands))
"""


def on_a_terminal(*commands, cwd):
    """Return the screen of a terminal of 100 columns after some commands in turn."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", COMMANDS_IN_TURN, " ; ".join(commands)],
        cwd=cwd,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        # Linux reports that the other end is closed by an error, other systems by no bytes.
        with contextlib.suppress(OSError):
            while part := os.read(ours, 1 << 16):
                shown += part
        assert process.wait(timeout=PATIENCE) == 0
    finally:
        os.close(ours)
        process.kill()
    return shown.decode()


def test_a_terminal_shows_rate_and_time_left_and_a_pipe_does_not(forking, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "x.npy", np.zeros((3000, 500), np.float32))
    shown = on_a_terminal("convert x.npy x.ar", "inspect x.ar --verify", cwd=tmp_path)
    for unit in ("rows", "records"):
        assert re.search(rf"3000/3000 \[\d\d:\d\d<\d\d:\d\d, .*{unit}/s\]", shown), shown
    piped = forking.run(MAIN, "convert", "x.ar", "y.npy")
    assert (piped.returncode, piped.stderr) == (0, "")


def test_a_reader_that_has_seen_enough_gets_no_traceback(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 2), np.float32))
    process = subprocess.Popen(
        [sys.executable, "-m", "loaderx", "inspect", *["x.npy"] * 500],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "x.npy\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=PATIENCE) == 1
    finally:
        process.kill()
        process.stderr.close()


# Names and streams of all kinds.

NAMES = ["ünï 文.npy".encode(), b"\xff.npy"]
# A program that runs commands in turn for each of some encodings of its streams, or for the one that they have, and
# ends what each command writes by a line with its exit status. It sets encodings as PYTHONIOENCODING does.
STATUSES = """
import sys
from loaderx.cli import main
for encoding in sys.argv[1].split():
    if encoding != "own":
        sys.stdout.reconfigure(encoding=encoding, errors="strict")
        sys.stderr.reconfigure(encoding=encoding, errors="backslashreplace")
    command = []
    for argument in sys.argv[2:]:
        if argument != ";":
            command.append(argument)
            continue
        status = main(command)
        for stream in (sys.stdout, sys.stderr):
            print(f"status {status}", file=stream, flush=True)
        command = []
"""


@pytest.mark.parametrize(
    ("settings", "encodings"),
    [
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, ["own"]),
        ({"PYTHONIOENCODING": "ascii"}, ["own", "utf-8", "latin-1"]),
    ],
)
def test_every_name_is_shown_on_every_output(tmp_path, settings, encodings):
    commands = []
    for name in NAMES:
        np.save(os.fsdecode(os.fsencode(tmp_path) + b"/" + name), np.arange(6.0))
        commands += [
            [b"inspect", name],
            [b"inspect", b"--json", name],
            [b"convert", b"--force", name, b"y" + name],
            [b"inspect", b"no" + name],
        ]
    finished = subprocess.run(
        [
            sys.executable,
            "-c",
            STATUSES,
            " ".join(encodings),
            *(word for command in commands for word in (*command, b";")),
        ],
        cwd=tmp_path,
        env=os.environ | settings,
        capture_output=True,
        timeout=PATIENCE,
    )
    assert finished.returncode == 0, finished.stderr
    shown, said = (
        re.findall(rb"(.*?)^status (\d)\n", text, re.DOTALL | re.MULTILINE)
        for text in (finished.stdout, finished.stderr)
    )
    assert len(shown) == len(said) == len(commands) * len(encodings)
    for command, (out, status), (err, _) in zip(
        commands * len(encodings), shown, said, strict=True
    ):
        if command[1].startswith(b"no"):
            assert (status, out, err.count(b"\n")) == (b"2", b"", 1), command
        else:
            assert (status, err) == (b"0", b""), command
            assert b".npy" in out


@pytest.mark.parametrize("arguments", ["--help", "convert --help", "--version"])
@pytest.mark.parametrize(
    ("ending", "statuses"),
    [
        ("| true", {0}),
        (">&-", {0}),
        ("2>&-", {0}),
        (">&- 2>&-", {0}),
        (">/dev/full", {0, 2}),
    ],
)
def test_an_output_that_cannot_be_written_is_not_a_traceback(tmp_path, arguments, ending, statuses):
    program = f"{sys.executable} -m loaderx {arguments} {ending}"
    finished = subprocess.run(
        ["/bin/sh", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert finished.returncode in statuses, finished.stderr
    assert "Traceback" not in finished.stderr
    assert "Exception ignored" not in finished.stderr


CLOSED_OUTPUT = "os.close(1); sys.stdout = sys.__stdout__ = None"
CLOSED_ERRORS = "os.close(2); sys.stderr = sys.__stderr__ = None"


@pytest.mark.parametrize(
    ("before", "statuses"),
    [
        ("reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1)", {1}),
        (CLOSED_OUTPUT, {0}),
        (CLOSED_ERRORS, {0}),
        (f"{CLOSED_OUTPUT}; {CLOSED_ERRORS}", {0}),
        ('os.dup2(os.open("/dev/full", os.O_WRONLY), 1)', {2}),
    ],
    ids=["| true", ">&-", "2>&-", ">&- 2>&-", ">/dev/full"],
)
def test_a_result_that_cannot_be_written_is_not_a_traceback(forking, training, before, statuses):
    finished = forking.run(f"import os, sys\n{before}\n{MAIN}", "inspect", "x.npy")
    assert finished.returncode in statuses, finished.stderr
    assert "Traceback" not in finished.stderr
    assert "Exception ignored" not in finished.stderr


# For each command: arguments and a function that it calls. The demo has its own test: its imports take seconds.
OTHERS = [command for command in loaderx.commands.COMMANDS if command != "demo"]
PLACES = {
    "inspect": (["inspect", "x.npy"], "loaderx.commands.tables:kind_of"),
    "convert": (["convert", "x.npy", "y.npy"], "loaderx.commands.tables:kind_of"),
    "bench": (["bench", "train.py:loader"], "loaderx.commands.stages:measure"),
    "preview": (["preview", "train.py:loader", "-o", "s.png"], "loaderx.commands.sheet:draw"),
    "warm": (["warm", "train.py:loader"], "loaderx.commands.warm:_check_compiler"),
}
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def training(tmp_path, monkeypatch):
    """Yield a folder with files for all commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "train", raising=False)
    np.save("x.npy", np.zeros((8, 9, 9, 3), np.uint8))
    Path("train.py").write_text(
        'import loaderx as lx\nloader = lx.DataLoader({"image": lx.NPDataset("x.npy")}, output="numpy")\n'
    )
    yield tmp_path
    names = {file.name for file in tmp_path.iterdir()}
    assert names <= {"x.npy", "train.py", "__pycache__"}


@pytest.mark.parametrize("command", OTHERS)
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_command_in_one_line(training, monkeypatch, capsys, command, number):
    arguments, place = PLACES[command]
    module, name = place.split(":")
    monkeypatch.setattr(
        importlib.import_module(module), name, lambda *_, **__: signal.raise_signal(number)
    )
    before = [signal.getsignal(other) for other in SIGNALS]
    assert cli.main(arguments) == 128 + number
    assert capsys.readouterr() == ("", f"loaderx {command}: stopped\n")
    assert [signal.getsignal(other) for other in SIGNALS] == before


# The same as a program of its own.
SIGNALLED = """
import importlib, signal, sys
from loaderx.cli import main
number = signal.Signals(int(sys.argv.pop(1)))
module, name = sys.argv.pop(1).split(":")
setattr(importlib.import_module(module), name, lambda *_, **__: signal.raise_signal(number))
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("number", "command"), list(zip(itertools.cycle(SIGNALS), OTHERS, strict=False))
)
def test_a_signal_ends_a_process_with_its_status(forking, training, command, number):
    arguments, place = PLACES[command]
    finished = forking.run(SIGNALLED, int(number), place, *arguments)
    assert finished.returncode == 128 + number, finished.stderr
    assert finished.stderr == f"loaderx {command}: stopped\n"
    assert finished.stdout == ""


def test_a_signal_ends_the_demo_in_one_line_and_its_process_with_its_status(forking, training):
    program = """
import signal, sys
import loaderx.demo
from loaderx.cli import main
for number in map(int, sys.argv.pop(1).split()):
    loaderx.demo.write_digits = lambda *_, **__: signal.raise_signal(number)
    before = [signal.getsignal(other) for other in signal.valid_signals()]
    print(main(["demo"]))
    assert [signal.getsignal(other) for other in signal.valid_signals()] == before
sys.stdout.flush()
main()
"""
    numbers = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
    finished = forking.run(program, " ".join(str(int(number)) for number in numbers), "demo")
    assert finished.stdout.split() == [str(128 + number) for number in numbers]
    assert finished.stderr == "loaderx demo: stopped\n" * (len(numbers) + 1)
    assert finished.returncode == 128 + signal.SIGINT


def test_a_signal_that_an_import_makes_an_error_of_is_still_one(forking):
    program = SIGNALLED.replace(
        "lambda *_, **__: signal.raise_signal(number)", "interrupted_import"
    )
    inside = """
def interrupted_import(*_, **__):
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt:
        raise ImportError("Encountered an error while initializing the extension.") from None
"""
    program = inside + program
    finished = forking.run(program, 2, "loaderx.commands.tables:kind_of", "inspect", "x.npy")
    assert (finished.returncode, finished.stderr) == (130, "loaderx inspect: stopped\n")


@pytest.mark.parametrize("repeated", ["late", "at once"])
def test_a_signal_in_a_callback_of_the_garbage_collector_is_not_lost(forking, repeated):
    program = """
import gc, signal, sys, threading, time
import loaderx.commands.tables as tables
from loaderx.cli import main

def callback(*_):
    signal.raise_signal(signal.SIGINT)

def collect(path):
    gc.callbacks.append(callback)
    gc.collect()
    gc.callbacks.remove(callback)
    time.sleep(100)

tables.kind_of = collect
"""
    if repeated == "at once":
        # As on a busy machine, where the thread of the timer is done before it counts as started.
        program += """
start = threading.Timer.start
def slow_start(timer):
    threading.Timer.start = start
    start(timer)
    time.sleep(0.1)
threading.Timer.start = slow_start
"""
    program += "sys.exit(main())"
    finished = forking.run(program, "inspect", "x.npy")
    assert (finished.returncode, finished.stderr) == (130, "loaderx inspect: stopped\n")


# Advice on missing packages.


def test_nothing_tells_people_to_install_the_project_of_that_name_on_the_package_index():
    repository = Path(__file__).parents[3]
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=repository, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    texts = [name for name in listed if Path(name).suffix in (".py", ".md", ".toml", ".txt", "")]
    found = [
        name
        for name in texts
        if (repository / name).is_file()
        and not name.startswith("tests/")
        and re.search(
            r"""install\s+(-\S+\s+)*["'`]?loaderx\b""", (repository / name).read_text("utf-8")
        )
    ]
    assert len(texts) > 100
    assert found == []
