"""The demo and the examples run to the end and learn something."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import loaderx
from loaderx import cli
from tests.waiting import PATIENCE

EXAMPLES = Path(__file__).parents[2] / "examples"


def assert_it_reaches_97_percent(printed, folder):
    report = dict(re.findall(r"^(held-out accuracy|speed|waited for data) +(\S+)", printed, re.M))
    assert float(report["held-out accuracy"].rstrip("%")) > 97
    assert float(report["speed"]) > 0
    assert 0 <= float(report["waited for data"].rstrip("%")) <= 100
    assert list(folder.iterdir()) == [], "the demo leaves no files"


def test_half_of_the_demo_reaches_97_percent_on_images_it_never_saw(monkeypatch, capsys, tmp_path):
    from loaderx import demo

    monkeypatch.setattr(demo, "STEPS", demo.STEPS // 2)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert_it_reaches_97_percent(printed.out, tmp_path)


@pytest.mark.long
def test_the_demo_reaches_97_percent_on_images_it_never_saw(tmp_path):
    finished = subprocess.run(
        [sys.executable, "-m", "loaderx", "demo"],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    assert_it_reaches_97_percent(finished.stdout, tmp_path)


def test_the_flax_example_learns(run):
    accuracies = re.findall(r"validation: loss \S+, accuracy (\S+)%", run("flax_digits.py"))
    assert len(accuracies) == 5
    assert float(accuracies[-1]) > 95


def test_every_example_is_listed_and_tested():
    listed = set(re.findall(r"`(\w+\.py)`", (EXAMPLES / "README.md").read_text()))
    assert listed == {file.name for file in EXAMPLES.glob("*.py")}
    tested = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in listed if f'"{name}"' not in tested] == []


@pytest.mark.parametrize("package", sorted(cli.EXAMPLE_PACKAGES))
def test_a_missing_package_gives_one_line_that_says_what_to_install(monkeypatch, capsys, package):
    monkeypatch.delitem(sys.modules, "loaderx.demo", raising=False)
    monkeypatch.delattr(loaderx, "demo", raising=False)
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    # None in sys.modules makes the import fail as if the package were not installed.
    monkeypatch.setitem(sys.modules, package, None)
    assert cli.main(["demo"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert package in line
    assert line.endswith('pip install ".[examples]" in a clone of loaderx')


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"loaderx {loaderx.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["--unknown"], ["demo", "extra"]])
def test_wrong_input_exits_with_2_and_shows_the_usage(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("usage: loaderx")
