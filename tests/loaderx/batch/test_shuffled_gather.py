"""Shuffled gather: plain arrays go into a batch by the fast path, and the batch is the same as by the general one."""

import gc
import weakref

import numpy as np
import pytest

import loaderx as lx
from loaderx.batch import scheduler, shuffled_gather

ROWS = 103
IMAGES = np.random.default_rng(0).integers(0, 256, (ROWS, 7, 5), np.uint8)
LABELS = np.arange(ROWS, dtype=np.int32)


@pytest.fixture
def ways(monkeypatch):
    """Count the parts of batches that go by the fast path."""
    taken = []
    fill = shuffled_gather.ShuffledGather.fill

    def counted(self, *arguments):
        taken.append(arguments[0].size)
        fill(self, *arguments)

    monkeypatch.setattr(shuffled_gather.ShuffledGather, "fill", counted)
    return taken


def loader_of(**options):
    options = {"batch_size": 16, "seed": 3, "output": "numpy"} | options
    return lx.DataLoader({"image": IMAGES, "label": LABELS}, **options)


@pytest.mark.parametrize("options", [{}, {"workers": 1}, {"batch_size": 1}, {"batch_size": 103}])
def test_the_fast_path_leads_to_the_same_batches(ways, monkeypatch, options):
    loader = loader_of(**options)
    batches = [loader.batch(step) for step in range(20)]
    assert ways
    monkeypatch.setattr(shuffled_gather.ShuffledGather, "of", classmethod(lambda *_arguments: None))
    count = len(ways)
    for step, batch in enumerate(batches):
        other = loader_of(**options).batch(step)
        assert len(ways) == count, "that was the long way"
        for name, array in batch.items():
            assert np.array_equal(array, other[name])
            assert array.dtype == other[name].dtype
        assert np.array_equal(batch["label"], loader.indices(step))


@pytest.mark.parametrize(
    ("options", "short"),
    [
        ({}, True),
        ({"shuffle": False}, False),
        ({"weights": np.ones(ROWS)}, False),
        ({"transforms": {"image": [lx.transforms.ToFloat()]}}, False),
    ],
)
def test_which_data_goes_the_fast_path(ways, options, short):
    loader_of(**options).batch(0)
    assert bool(ways) == short


def test_batches_over_the_end_of_an_epoch_and_padded_ones_go_the_long_way(ways):
    loader = loader_of()
    over = ROWS // 16
    assert len(np.unique(loader.batch(over)["label"])) <= 16
    assert ways == []
    padded = loader_of(num_epochs=1, remainder="pad").batch(over)
    assert ways == []
    assert int(padded["mask"].sum()) == ROWS % 16


def test_parts_of_a_large_batch_go_the_fast_path(ways, monkeypatch):
    monkeypatch.setattr(scheduler, "COPIED_BYTES_PER_PART", 64)
    loader = loader_of(workers=3)
    batch = loader.batch(0)
    assert len(ways) == 3
    assert np.array_equal(batch["image"], IMAGES[batch["label"]])


def test_strided_rows_and_narrowed_numbers_go_the_long_way(ways):
    reversed_columns = lx.DataLoader(IMAGES[:, ::-1], batch_size=8, output="numpy")
    assert np.array_equal(reversed_columns.batch(0), IMAGES[reversed_columns.indices(0), ::-1])
    wide = lx.DataLoader(np.arange(ROWS), batch_size=8, output="jax")
    assert np.array_equal(wide.batch(0), wide.indices(0))
    assert ways == []


def test_every_second_row_of_an_array_goes_the_fast_path(ways):
    half = IMAGES[::2]
    loader = lx.DataLoader(half, batch_size=8, output="numpy")
    assert np.array_equal(loader.batch(1), half[loader.indices(1)])
    assert ways


def test_a_file_that_shrank_is_noticed(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, IMAGES)
    loader = lx.DataLoader(lx.NPDataset(path), batch_size=8, output="numpy")
    loader.batch(0)
    with path.open("r+b") as file:
        file.truncate(200)
    with pytest.raises(lx.DataError, match="shrank"):
        loader.batch(1)


@pytest.mark.parametrize("output", ["numpy", "jax"])
def test_batches_built_in_a_row_come_in_order(monkeypatch, output):
    # Batches of half a megabyte: threads build them, several in a row.
    rows = np.random.default_rng(1).integers(0, 50_000, (5000, 512)).astype(np.uint16)
    loader = lx.DataLoader(rows, batch_size=512, output=output, workers=2)
    assert loader.batch(0).nbytes > scheduler.INLINE_MAX_BYTES
    with iter(loader) as iterator:
        for step in range(60):
            assert np.array_equal(np.asarray(next(iterator)), rows[loader.indices(step)])


def test_an_error_within_a_row_of_batches_comes_at_its_step(monkeypatch):
    rows = np.zeros((5000, 512), np.uint16)
    loader = lx.DataLoader(rows, batch_size=512, output="numpy", workers=2)
    fill = shuffled_gather.ShuffledGather.fill
    failing = {30}

    def fails(self, span, *arguments):
        if span.position // 512 in failing:
            raise OSError("the disk is gone")
        fill(self, span, *arguments)

    monkeypatch.setattr(shuffled_gather.ShuffledGather, "fill", fails)
    with iter(loader) as iterator:
        for _ in range(30):
            next(iterator)
        for _ in range(2):
            with pytest.raises(OSError, match="the disk is gone") as caught:
                next(iterator)
            assert "step 30, rows [" in caught.value.__notes__[0]
        failing.clear()
        assert next(iterator).shape == (512, 512)
        assert iterator.step == 31


def test_jobs_form_no_cycle_that_only_a_collection_ends():
    rows = np.zeros((5000, 512), np.uint16)
    gc.collect()
    gc.disable()
    try:
        with iter(lx.DataLoader(rows, batch_size=512, output="numpy", workers=2)) as iterator:
            for _ in range(50):
                next(iterator)
            job = weakref.ref(iterator._pending[0])
        del iterator
        assert job() is None
    finally:
        gc.enable()
