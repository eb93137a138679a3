"""Determinism: a batch is a function of (data, configuration, step), not of threads and prefetching."""

import functools
import itertools

import jax
import numpy as np
import pytest

from loaderx import DataLoader, NPDataset
from loaderx.batch import scheduler

ROWS = 150
BATCH = 64
STEPS = 5  # more than two epochs
POOLS = [
    {"workers": workers, "prefetch": prefetch}
    for workers, prefetch in itertools.product([1, 2, 4], [1, 4])
]
crews = pytest.mark.parametrize(
    "pool", POOLS, ids=lambda pool: "workers{workers}-prefetch{prefetch}".format(**pool)
)

VALUES = np.random.default_rng(0).integers(0, 256, (ROWS, 16 * 1024), np.uint8)
LABELS = np.arange(ROWS) * 3 - 100


@pytest.fixture(autouse=True)
def _divided(monkeypatch):
    """Divide batches of these rows into parts, one for each worker of the largest pool."""
    monkeypatch.setattr(scheduler, "COPIED_BYTES_PER_PART", BATCH * VALUES[0].nbytes // 4)


class Rows:
    """Source of a user, read row by row."""

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return {"image": VALUES[row, :100], "label": LABELS[row]}


class ManyRows(Rows):
    """Source of a user, read many rows at a time."""

    def __getitems__(self, rows):
        return {"image": VALUES[rows, :100], "label": LABELS[rows]}


@functools.cache
def path_of_values(folder):
    np.save(folder / "values.npy", VALUES)
    return folder / "values.npy"


def darken(batch):
    return batch | {"image": batch["image"] // 2}


SOURCES = {
    "arrays": lambda folder: {"image": VALUES, "label": LABELS},
    "mapped": lambda folder: {"image": NPDataset(path_of_values(folder)), "label": LABELS},
    "split": lambda folder: NPDataset(VALUES).split(0.9)[0],
    "fortran": lambda folder: np.asfortranarray(VALUES),
    "tuple": lambda folder: (VALUES, LABELS),
    "object": lambda folder: Rows(),
    "object of many rows": lambda folder: ManyRows(),
}


def taken(loader, steps=STEPS):
    """Return the first batches as NumPy arrays, leaf by leaf."""
    with iter(loader) as iterator:
        return [
            [np.array(leaf) for leaf in jax.tree.leaves(batch)]
            for batch in itertools.islice(iterator, steps)
        ]


def assert_identical(batches, expected):
    assert len(batches) == len(expected)
    for leaves, twins in zip(batches, expected, strict=True):
        for leaf, twin in zip(leaves, twins, strict=True):
            np.testing.assert_array_equal(leaf, twin, strict=True)


@pytest.fixture
def divided(monkeypatch):
    """Divide small batches among the workers like large ones."""
    monkeypatch.setattr(scheduler, "COPIED_BYTES_PER_PART", 1024)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("determinism")


@pytest.mark.parametrize("output", ["numpy", "jax"])
@pytest.mark.parametrize("source", SOURCES)
def test_batches_are_bit_identical_for_any_crew(divided, folder, source, output):
    def batches_of(pool):
        data = SOURCES[source](folder)
        return taken(DataLoader(data, batch_size=BATCH, seed=5, output=output, **pool))

    expected = batches_of(POOLS[0])
    assert any(np.any(a != b) for a, b in zip(expected[0], expected[1], strict=True))
    for pool in POOLS[1:]:
        assert_identical(batches_of(pool), expected)


@crews
@pytest.mark.parametrize("output", ["numpy", "jax"])
def test_batches_hold_the_rows_that_the_loader_names(divided, output, pool):
    data = {"image": VALUES, "label": LABELS}
    loader = DataLoader(data, batch_size=BATCH, output=output, transform=darken, **pool)
    label_type = np.int64 if output == "numpy" else np.int32
    expected = [
        [VALUES[rows] // 2, LABELS[rows].astype(label_type)]
        for rows in (loader.indices(step) for step in range(STEPS))
    ]
    assert_identical(taken(loader), expected)


@crews
@pytest.mark.parametrize("remainder", ["straddle", "keep", "drop", "pad"])
def test_any_batch_can_be_had_by_its_step(divided, remainder, pool):
    data = {"image": VALUES[:, :10], "label": LABELS}
    options = {"batch_size": BATCH, "num_epochs": 3, "remainder": remainder, "output": "numpy"}
    loader = DataLoader(data, **options, **pool)
    walked = taken(loader, len(loader))
    assert len(walked) == len(loader)
    for step in np.random.default_rng(0).permutation(len(loader)):
        picked = loader.batch(step)
        assert_identical([list(picked.values())], [walked[step]])
        rows = loader.indices(step)
        np.testing.assert_array_equal(picked["image"], VALUES[rows, :10])
        np.testing.assert_array_equal(picked["label"], LABELS[rows])


def test_a_batch_picked_while_an_iterator_runs_disturbs_neither(divided):
    loader = DataLoader(VALUES, batch_size=BATCH, output="numpy", workers=2, prefetch=4)
    expected = taken(loader, 20)
    with iter(loader) as iterator:
        for step, batch in enumerate(itertools.islice(iterator, 20)):
            np.testing.assert_array_equal(loader.batch(19 - step), expected[19 - step][0])
            np.testing.assert_array_equal(batch, expected[step][0])


def test_batches_large_enough_to_be_divided_are_bit_identical_too():
    row = 4 * scheduler.COPIED_BYTES_PER_PART // BATCH
    values = np.random.default_rng(0).integers(0, 256, (ROWS, row), np.uint8)
    for pool in POOLS:
        loader = DataLoader(values, batch_size=BATCH, output="numpy", **pool)
        with iter(loader) as iterator:
            for step, batch in enumerate(itertools.islice(iterator, 3)):
                np.testing.assert_array_equal(batch, values[loader.indices(step)])


def test_one_batch_is_read_in_parts_by_several_threads():
    """Check the premise of the tests above."""
    sizes = []

    class Recorded(ManyRows):
        def __getitems__(self, rows):
            sizes.append(len(rows))
            return super().__getitems__(rows)

    loader = DataLoader(Recorded(), batch_size=BATCH, output="numpy", workers=4, prefetch=1)
    sizes.clear()  # what was read to learn the shape of a row
    taken(loader, 3)
    assert set(sizes) == {BATCH // 4}


def test_the_same_arguments_give_the_same_stream_and_another_seed_another_one():
    def rows_of(seed):
        return taken(DataLoader(LABELS, batch_size=BATCH, seed=seed, output="numpy"))

    assert_identical(rows_of(1), rows_of(1))
    for first, second in zip(rows_of(1), rows_of(2), strict=True):
        assert np.any(first[0] != second[0])
