"""The harness that compares loaders, on small data and with contestants that this environment has."""

from dataclasses import replace

import pytest

from benchmarks import growth, side_by_side
from benchmarks.contestants import CONTESTANTS, CONVERTED, LOADERX, OPENCV, Contestant
from benchmarks.workloads import CIFAR, JPEG, RECORDS, SMALL, WINDOWS

BY_HAND = [one for one in CONTESTANTS if one.peer is None]
MEMMAP = next(one for one in BY_HAND if one.library == "by hand")
# A contestant whose rows are in the order of the file, or that ends when it is opened.
LIARS = {
    "in order": "rows = np.sort(rows)",
    "cannot": "raise CannotError('it has no rows')",
}
LIAR = """
import numpy as np
from benchmarks.peers.worker import Actions, CannotError, Session, numpy_epochs, serve

class Liar(Session):
    def open(self):
        rows = np.arange(self.work.rows)
        {trick}
        self.batch = np.load(self.work.data)[rows], np.load(self.work.label)[rows]
    def epoch(self):
        yield self.batch
    def stream(self):
        while True:
            yield self.batch

if __name__ == "__main__":
    serve(Actions(Liar))
"""


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch):
    """Measure for a moment, and once: what is measured here is not reported."""
    monkeypatch.setattr(side_by_side, "SECONDS", 0.02)
    monkeypatch.setattr(side_by_side, "JPEG_SECONDS", 0.02)
    monkeypatch.setattr(side_by_side, "TRAINING_REPEATS", 1)
    monkeypatch.setattr(growth, "SECONDS", 0.02)


def assert_measured(comparison, work):
    """Check that every contestant without an environment has figures of its own."""
    expected = {one.name for one in BY_HAND if one.takes_part(work)}
    assert set(comparison.samples) == expected
    assert comparison.ratio(LOADERX.name) == 1
    assert all(figure > 0 for samples in comparison.samples.values() for figure in samples)


# Less of each, but enough for the checks of an epoch: those of a chain compare averages.
@pytest.mark.parametrize(
    "work",
    [
        replace(CIFAR, rows=2000, batch_size=64),
        replace(RECORDS, rows=130, batch_size=64),
        replace(WINDOWS, rows=200_000, shape=(256,)),
    ],
    ids=lambda work: work.name,
)
def test_throughput_of_everyone_who_needs_no_environment(work):
    comparison = side_by_side.throughput(work, BY_HAND, repeats=1)
    assert comparison.absent == {}
    assert_measured(comparison, work)


def test_throughput_of_jpeg_files():
    contestants = [LOADERX, CONVERTED, OPENCV]
    work = replace(JPEG, rows=200, shape=(72, 96, 3), batch_size=64)
    comparison = side_by_side.throughput(work, contestants, repeats=1)
    assert comparison.absent == {}
    assert set(comparison.samples) == {one.name for one in contestants}


def test_configurations_for_jpeg_files_take_part_there_only():
    names = {
        work.name: {one.name for one in BY_HAND if one.takes_part(work)}
        for work in (JPEG, CIFAR, SMALL)
    }
    assert names["jpeg"] & names["cifar"] == {LOADERX.name}
    assert names["cifar"] - names["gather-3KB"] == {"by hand, 2 threads"}


def test_who_cannot_or_lies_is_named_with_the_reason_and_all_others_are_measured(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    liars = []
    for name, trick in LIARS.items():
        module = f"liar_{len(liars)}"
        (tmp_path / f"{module}.py").write_text(LIAR.format(trick=trick))
        liars.append(Contestant(name, name, 0, worker=module))
    small = replace(SMALL, rows=300, batch_size=64)
    comparison = side_by_side.throughput(small, [*BY_HAND, *liars], repeats=1)
    assert_measured(comparison, small)
    assert set(comparison.absent) == set(LIARS)
    assert "not shuffled" in comparison.absent["in order"]
    assert "it has no rows" in comparison.absent["cannot"]
    assert "did not run" in comparison.table()


@pytest.mark.parametrize(
    ("contestants", "rows"),
    [
        pytest.param([LOADERX], 300, id="loaderx"),
        pytest.param([LOADERX, MEMMAP], 3000, id="and by hand", marks=pytest.mark.long),
    ],
)
def test_waiting_is_a_part_of_the_time_a_flax_model_trains(monkeypatch, contestants, rows):
    # Compiling a model that trains for a moment takes longer than training it as it is.
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    small = replace(CIFAR, rows=rows, batch_size=32)
    comparison = side_by_side.training(small, contestants, steps=3)
    assert set(comparison.samples) == {one.name for one in contestants}
    assert comparison.lower_is_better
    assert all(0 < figure < 100 for samples in comparison.samples.values() for figure in samples)


def test_growth_of_rows_and_of_batches():
    opening = growth.growth_of_rows(BY_HAND, rows=(1000, 10_000), repeats=1)
    small = replace(SMALL, rows=2000)
    gather = growth.growth_of_batch(BY_HAND, sizes=(4, 64), repeats=1, work=small)
    for found, sizes in ((opening, [1000, 10_000]), (gather, [4, 64])):
        assert set(found.series) == {one.name for one in BY_HAND if one.takes_part(SMALL)}
        assert [list(figures) for figures in found.series.values()] == [sizes] * len(found.series)
        assert found.table().count("\n") == 1 + len(found.series)


def test_memory_counts_what_a_process_holds_itself():
    with MEMMAP.start() as peer:
        peer.ask("close")
        assert 5e6 < peer.memory() < 1e9
