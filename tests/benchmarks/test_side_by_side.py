"""The harness that compares loaders, on small data and with contestants that this environment has."""

from dataclasses import replace

import pytest

from benchmarks import side_by_side
from benchmarks.contestants import CONTESTANTS, LOADERX, Contestant
from benchmarks.growth import growth_of_batch, growth_of_rows
from benchmarks.workloads import CIFAR, RECORDS, SMALL, WINDOWS

BY_HAND = [one for one in CONTESTANTS if one.peer is None]
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
    monkeypatch.setattr(side_by_side, "TRAINING_REPEATS", 1)


@pytest.mark.parametrize("work", [SMALL, CIFAR, RECORDS, WINDOWS], ids=lambda work: work.name)
def test_throughput_of_everyone_who_needs_no_environment(work):
    rows = {"cifar": 3000, "windows": 200_000}.get(work.name, 300)
    small = replace(work, rows=rows, batch_size=64)
    comparison = side_by_side.throughput(small, BY_HAND, repeats=1)
    assert comparison.absent == {}
    expected = {one.name for one in BY_HAND if work.chain or not one.chains_only}
    assert set(comparison.samples) == expected
    assert comparison.ratio(LOADERX.name) == 1
    assert all(figure > 0 for samples in comparison.samples.values() for figure in samples)


def test_who_cannot_or_lies_is_named_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    liars = []
    for name, trick in LIARS.items():
        module = f"liar_{len(liars)}"
        (tmp_path / f"{module}.py").write_text(LIAR.format(trick=trick))
        liars.append(Contestant(name, name, 0, worker=module))
    small = replace(SMALL, rows=300, batch_size=64)
    comparison = side_by_side.throughput(small, [LOADERX, *liars], repeats=1)
    assert set(comparison.samples) == {LOADERX.name}
    assert "not shuffled" in comparison.absent["in order"]
    assert "it has no rows" in comparison.absent["cannot"]
    assert "did not run" in comparison.table()


def test_waiting_is_a_part_of_the_time_a_flax_model_trains():
    small = replace(CIFAR, rows=3000, batch_size=32)
    comparison = side_by_side.training(small, BY_HAND[:2], steps=3)
    assert comparison.lower_is_better
    assert all(0 < figure < 100 for samples in comparison.samples.values() for figure in samples)


def test_growth_of_rows_and_of_batches():
    opening = growth_of_rows(BY_HAND, rows=(1000, 10_000), repeats=1)
    small = replace(SMALL, rows=2000)
    gather = growth_of_batch(BY_HAND, sizes=(4, 64), repeats=1, work=small)
    for growth, sizes in ((opening, [1000, 10_000]), (gather, [4, 64])):
        assert set(growth.series) == {one.name for one in BY_HAND if not one.chains_only}
        assert [list(figures) for figures in growth.series.values()] == [sizes] * len(growth.series)
        assert growth.table().count("\n") == 1 + len(growth.series)


def test_memory_counts_what_a_process_holds_itself():
    with LOADERX.start() as peer:
        peer.ask("close")
        assert 5e6 < peer.memory() < 1e9
