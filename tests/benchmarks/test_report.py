"""Tables in the README and on the site, and charts, are made from a file of results."""

import json
from pathlib import Path

import pytest

from benchmarks import report

ROOT = Path(__file__).parents[2]


def comparison(name, lower, medians):
    reference = medians["loaderx"]
    return {
        "name": name,
        "title": f"title of {name}",
        "unit": "us/batch" if lower else "rows/s",
        "lower is better": lower,
        "reference": "loaderx",
        "contestants": {
            contestant: {"median": median, "ratio": median / reference, "samples": [median]}
            for contestant, median in medians.items()
        },
        "absent": {"FFCV": "peers.CannotError: FFCV has no blur."},
    }


@pytest.fixture
def results():
    grain = {"Grain, no workers": 9.0, "Grain, 2 workers": 30.0}
    fast = comparison("gather", False, {"loaderx": 900.0, **grain})
    slow = comparison("per-batch", True, {"loaderx": 20.0, "np.memmap by hand": 4.0, "SPDL": 200.0})
    growth = {
        "name": "growth-rows",
        "title": "opening",
        "unit": "seconds",
        "size": "rows",
        "lower is better": True,
        "series": {
            "loaderx": {"1000": 0.001, "10000": 0.001},
            "Loadax, 2 workers": {"1000": 0.01},
            "SPDL": {"1000": 0.0005, "10000": 0.1},
        },
        "absent": {"Loadax, 2 workers": "took 4 s"},
    }
    machine = {
        "cores": 2,
        "architecture": "x86_64",
        "python": "3.11",
        "jax": "0.9",
        "numba": "0.63",
    }
    return {"date": "2026-01-01", "machine": machine, "workloads": [fast, slow, growth]}


def test_the_table_has_the_best_configuration_of_each_library(results):
    lines = report.table(results["workloads"][:2], "charts").splitlines()
    columns = [cell.strip() for cell in lines[0].strip("|").split("|")]
    assert columns[1] == "loaderx"
    cells = dict(
        zip(columns, (cell.strip() for cell in lines[2].strip("|").split("|")), strict=True)
    )
    assert cells["loaderx"] == "900 rows/s"
    assert cells["Grain"] == "30"  # times as many rows as with 2 workers, its best
    assert cells["FFCV"] == "–"
    cells = dict(
        zip(columns, (cell.strip() for cell in lines[3].strip("|").split("|")), strict=True)
    )
    assert cells["by hand"] == "**0.2**"
    assert cells["SPDL"] == "10"


def test_the_table_has_all_configurations_of_loaderx_and_only_libraries_that_were_asked():
    medians = {"loaderx": 900.0, "loaderx, from a tar file": 880.0, "loaderx, with 1 worker": 460.0}
    lines = report.table([comparison("jpeg", False, medians)], "charts").splitlines()
    head, cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[::2])
    assert head == ["", "loaderx", "FFCV"]
    assert cells[1] == "900 rows/s; 880 from a tar file; 460 with 1 worker"


def test_it_says_where_loaderx_loses_and_who_did_not_run(results):
    assert report.losses(results) == [
        "per-batch: np.memmap by hand is 5 times as good",
        "growth-rows: SPDL is better at 1,000 rows",
    ]
    text = report.full(results)
    assert "- per-batch: np.memmap by hand is 5 times as good" in text
    assert "- FFCV: FFCV has no blur (gather, per-batch)" in text
    assert "Of 4 comparisons" in text


def test_the_readme_has_chosen_rows_and_links_to_charts_from_its_own_folder(results, monkeypatch):
    monkeypatch.setattr(report, "CHOSEN", ("gather",))
    lines = report.summary(results).splitlines()
    rows = [line for line in lines if line.startswith("| [")]
    assert len(rows) == 1
    assert rows[0].startswith("| [title of gather](docs/charts/gather.png) | 900 rows/s |")


def test_a_file_is_changed_between_its_markers_only(tmp_path):
    file = tmp_path / "README.md"
    file.write_text(f"before\n{report.BEGIN}\nyesterday\n{report.END}\nafter\n")
    report.write_between("today", file)
    assert file.read_text() == f"before\n{report.BEGIN}\ntoday\n{report.END}\nafter\n"
    file.write_text("no markers")
    with pytest.raises(ValueError, match="must hold"):
        report.write_between("today", file)


def test_every_workload_gets_a_picture(results, tmp_path):
    report.write_charts(results, tmp_path)
    for name in ("gather", "per-batch", "growth-rows", "overview"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("file", "write"), [("README.md", report.summary), ("docs/benchmarks.md", report.full)]
)
def test_our_tables_are_those_of_the_newest_results(file, write):
    newest = max(report.RESULTS.glob("*.json"))
    between = (ROOT / file).read_text().split(report.BEGIN)[1].split(report.END)[0].strip("\n")
    assert between == write(json.loads(newest.read_text()))


def test_the_readme_has_seven_rows():
    newest = json.loads(max(report.RESULTS.glob("*.json")).read_text())
    assert report.summary(newest).count("\n| [") == 7
