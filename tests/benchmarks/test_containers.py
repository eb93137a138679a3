"""The benchmark of containers writes them all, finds the same batches in them, and writes its table into a page."""

import json
from functools import partial

import pytest

from benchmarks import containers


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(containers, "ROWS", 72)
    monkeypatch.setattr(containers, "HEIGHT", 60)
    monkeypatch.setattr(containers, "WIDTH", 80)
    measure = partial(containers.measure, seconds=0.01, repeats=1, scans=1)
    monkeypatch.setattr(containers, "measure", measure)


def test_all_containers_are_measured_and_in_the_table(few, tmp_path):
    found = containers.measure(tmp_path)
    assert not found.rates.absent
    lines = found.table().splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines[2:]] == [
        one.name for one in containers.CONTAINERS
    ]
    assert all(figures.size > 50_000 for figures in found.figures.values())
    assert json.loads(json.dumps(found.as_dict()))["name"] == "containers"


def test_a_container_with_other_batches_is_not_measured(few, tmp_path, monkeypatch):
    def swapped(images):
        for name, data, label in labelled(images):
            yield name, data, 1 - label if label < 2 else label

    labelled = containers.labelled
    monkeypatch.setattr(containers, "labelled", swapped)
    chosen = [one for one in containers.CONTAINERS if "Bagz" in one.name or one.name == "folder"]
    monkeypatch.setattr(containers, "CONTAINERS", chosen)
    monkeypatch.setattr(containers, "SUFFIXES", ("", ".bag"))
    found = containers.measure(tmp_path)
    assert found.rates.absent == {chosen[1].name: "its batches differ from those of the folder"}
    assert "did not run: its batches differ" in found.table()


def test_the_table_goes_between_the_markers_of_the_page(few, tmp_path, monkeypatch):
    monkeypatch.setattr(containers, "CONTAINERS", containers.CONTAINERS[:1])
    monkeypatch.setattr(containers, "SUFFIXES", ("",))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{containers.BEGIN}\nyesterday\n{containers.END}\nafter\n")
    (found,) = containers.run(page)
    text = page.read_text()
    assert found.table() in text
    assert "yesterday" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert containers.PAGE.read_text().count(containers.BEGIN) == 1
