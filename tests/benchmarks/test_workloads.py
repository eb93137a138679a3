"""Contestants prove that they deliver a workload, and are refused if they do not."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from benchmarks import workloads as W  # noqa: N812
from benchmarks.peers.worker import Actions, Session, batches_per_epoch, numpy_epochs

ROWS = 300


@pytest.fixture
def written(tmp_path):
    return lambda work, rows=ROWS: W.write(replace(work, rows=rows), tmp_path)


def batches_of(work):
    data, label = np.load(work.data), np.load(work.label)
    epoch = list(islice(numpy_epochs(work), batches_per_epoch(work)))
    return [(data[rows], label[rows]) for rows in epoch]


def test_an_epoch_of_the_rows_of_the_file_passes(written):
    work = written(W.SMALL)
    assert W.check_epoch(work, batches_of(work)) == {}


def test_a_row_of_another_is_refused(written):
    work = written(W.SMALL)
    (data, label), *others = batches_of(work)
    data[3, 0, 0, 0] ^= 1
    with pytest.raises(ValueError, match="rows are not those of the file"):
        W.check_epoch(work, [(data, label), *others])


def test_a_row_twice_is_refused(written):
    work = written(W.SMALL)
    batches = batches_of(work)
    with pytest.raises(ValueError, match="not each of 300 once"):
        W.check_epoch(work, [*batches, batches[0]])


def test_rows_in_the_order_of_the_file_are_refused(written):
    work = written(W.SMALL)
    with pytest.raises(ValueError, match="not shuffled"):
        W.check_epoch(work, [(np.load(work.data), np.load(work.label))])


def test_another_dtype_is_refused(written):
    work = written(W.TOKENS)
    batches = [(data.astype(np.int32), label) for data, label in batches_of(work)]
    with pytest.raises(ValueError, match=r"rows are int32\(512,\), not uint16\(512,\)"):
        W.check_epoch(work, batches)


def test_windows_must_be_stretches_of_the_file(written):
    work = written(W.WINDOWS, rows=100_000)
    tokens = np.fromfile(work.data, work.dtype)
    starts = np.array([5, 60_000, 98_000])
    windows = np.stack([tokens[start : start + 1025] for start in starts])
    assert W.check_epoch(work, [(windows[:, :-1], windows[:, 1:])]) == {}
    with pytest.raises(ValueError, match="one token further"):
        W.check_epoch(work, [(windows[:, :-1], windows[:, :-1])])
    with pytest.raises(ValueError, match="not a stretch"):
        W.check_epoch(work, [(windows[:, ::-1][:, 1:], windows[:, 1:])])


@pytest.mark.parametrize("work", [W.RECORDS, W.ZSTD_RECORDS], ids=lambda work: work.name)
def test_records_are_known_by_their_first_number(written, work):
    work = written(work, rows=20)
    rows = np.load(work.data.with_name("data.npy"))
    order = np.random.default_rng(0).permutation(20)
    assert W.check_epoch(work, [(rows[order],)]) == {}
    with pytest.raises(ValueError, match="not each of 20 once"):
        W.check_epoch(work, [(rows[order[1:]],)])


def test_a_chain_must_resemble_that_of_the_reference(written):
    work = written(W.CIFAR)
    summary = {
        "shape": [32, 32, 3],
        "dtype": "float32",
        "every row once": True,
        "mean": [0.0, 0.0, 0.0],
        "std": [1.0, 1.0, 1.0],
        "likeness": 0.95,
        "rows": 2000,
        "handedness": 0.0,
        "tint": 0.9,
    }
    W.same_chain(summary, summary, work)
    for fact, wrong, message in (
        ("dtype", "float64", "dtype is float64, not float32"),
        ("mean", [0.1, 0.0, 0.0], "mean is"),
        ("likeness", 0.1, "images and labels do not match"),
        ("handedness", 0.9, "not half are mirrored"),
        ("tint", -0.9, "red and blue are exchanged"),
        ("every row once", False, "every row once is False"),
    ):
        with pytest.raises(ValueError, match=message):
            W.same_chain(summary | {fact: wrong}, summary, work)


class Slow(Session):
    """Two batches in stock, and a note of when it is closed."""

    ready = 2
    closed = 0

    def open(self):
        self.taken = 0

    def epoch(self):
        return iter(batches_of(self.work))

    def stream(self):
        while True:
            self.taken += 1
            yield (np.zeros((self.work.batch_size, 1)),)

    def close(self):
        Slow.closed += 1


def test_a_session_is_asked_as_the_harness_asks_it(written):
    work = written(W.SMALL)
    facts = {**vars(work), "shape": list(work.shape)}  # as JSON has it
    actions = Actions(Slow)
    actions.open(facts, workers=0)
    assert actions.check() == {}
    answer = actions.run(seconds=0.01)
    assert answer["rows"] == answer["batches"] * work.batch_size
    assert actions.session.taken == answer["batches"] + Slow.ready  # these do not count
    before = Slow.closed
    assert actions.opening(facts, workers=0)["seconds"] > 0
    actions.close()
    assert Slow.closed == before + 2
