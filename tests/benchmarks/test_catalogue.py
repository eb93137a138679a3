"""`python -m benchmarks catalogue --cases ...` measures these rows of the catalogue, and refuses names it lacks."""

import json
from functools import partial

import pytest

from benchmarks import __main__, catalogue


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["benchmarks", *map(str, arguments)])
    return __main__.main()


def test_the_cases_named_are_measured_and_no_others(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(catalogue, "measure", partial(catalogue.measure, repeats=1, seconds=0.0))
    file = tmp_path / "figures.json"
    arguments = ["catalogue", "--no-peers", "--json", file, "--cases", "Posterize", "RandomFlip"]
    assert run(monkeypatch, *arguments) == 0

    (table,) = json.loads(file.read_text())["workloads"]
    assert set(table["cases"]) == {"Posterize", "RandomFlip"}
    for case in table["cases"].values():
        for figures in case["threads"].values():
            assert figures["contestants"][catalogue.LOADERX]["median"] > 0
    printed = capsys.readouterr().out
    assert "\nPosterize " in printed
    assert "\nRotate " not in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["catalogue", "--cases", "Posterise"], r"unknown cases ['Posterise']; there are ["),
        (["gather", "--cases", "Posterize"], "--cases applies to the catalogue only"),
    ],
)
def test_other_cases_are_refused(monkeypatch, capsys, arguments, message):
    with pytest.raises(SystemExit, match="2"):
        run(monkeypatch, *arguments)
    assert message in capsys.readouterr().err
