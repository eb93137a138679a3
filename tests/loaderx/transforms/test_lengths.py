"""Samples that end with padding: ops in an entry with their length see the data alone, as NumPy does by slices."""

import functools

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as its users call it
from loaderx.kernels.distributions import Draws
from loaderx.kernels.keys import derive_key, fields_id
from loaderx.kernels.random import DRAWS, fold

LENGTHS = np.array([9, 16, 3, 1, 0, 5, 12, 7], np.int32)
PADDED = 16
PAD = -7.0
ENTRY = ("data", "length")


@functools.cache
def rows(channels):
    """Return values from 1 on, and PAD after each row's length."""
    shape = (len(LENGTHS), PADDED, *channels)
    values = np.random.default_rng(0).uniform(1, 2, shape).astype(np.float32)
    values[np.arange(PADDED) >= LENGTHS[:, None]] = PAD
    return values


def loader_of(*ops, channels=(), data=None, **options):
    data = {"data": rows(channels), "length": LENGTHS} if data is None else data
    options = {"batch_size": len(LENGTHS), "shuffle": False, "output": "numpy", **options}
    return lx.DataLoader(data, transforms={ENTRY: list(ops)}, **options)


def draws(position, seed=0):
    key = derive_key(seed, DRAWS, fields_id(ENTRY), 0)
    return Draws(fold(np.uint64(key), np.uint64(position)))


CHANNELS = pytest.mark.parametrize("channels", [(), (3,)])


@CHANNELS
@pytest.mark.parametrize("size", [1, 4, 16])
def test_a_crop_is_one_of_the_data_and_its_length_is_known(size, channels):
    loader = loader_of(T.RandomCrop1D(size), channels=channels)
    for step in range(4):
        batch = loader.batch(step)
        np.testing.assert_array_equal(batch["length"], np.minimum(LENGTHS, size))
        assert batch["length"].dtype == np.int32
        for place, (row, length) in enumerate(zip(rows(channels), LENGTHS, strict=True)):
            start = draws(step * len(LENGTHS) + place).integers(0, max(length - size, 0) + 1)
            np.testing.assert_array_equal(batch["data"][place], row[start : start + size])
            assert not np.any(batch["data"][place][: min(length, size)] == PAD)


def in_place(row, length, rng, op):
    """Return one row after the op, by NumPy."""
    data = row[:length]
    if op == "Reverse":
        data[:] = data[::-1].copy()
    elif op == "TimeShift":
        shift = round(float(rng.uniform(-0.5, 0.5)) * length)
        data[:] = np.roll(data, shift, axis=0)
    else:
        for _ in range(2):
            count = min(rng.integers(0, 5), length)
            start = rng.integers(0, length - count + 1)
            data[start : start + count] = 0


OPS = {"Reverse": T.Reverse(1.0), "TimeShift": T.TimeShift(0.5), "TimeMask": T.TimeMask(4, 2)}


@CHANNELS
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("debug", ["0", "1"])
def test_ops_that_move_or_mask_moments_leave_the_padding_alone(op, channels, debug, monkeypatch):
    monkeypatch.setenv("LOADERX_DEBUG", debug)
    batch = loader_of(OPS[op], channels=channels).batch(0)
    np.testing.assert_array_equal(batch["length"], LENGTHS)
    for place, (row, length) in enumerate(zip(rows(channels).copy(), LENGTHS, strict=True)):
        in_place(row, length, draws(place), op)
        np.testing.assert_array_equal(batch["data"][place], row)


def test_noise_is_as_loud_as_the_data_says_and_not_in_the_padding():
    data = {"data": np.zeros((64, 4000), np.float32), "length": np.full(64, 1000)}
    data["data"][:, :1000] = 1
    batch = loader_of(T.NoiseAtSNR(20.0), data=data, batch_size=64).batch(0)["data"]
    assert np.all(batch[:, 1000:] == 0)
    np.testing.assert_allclose(np.std(batch[:, :1000] - 1), 0.1, rtol=0.02)


@lx.transform
def mean_of_data(x, length, rng, scale):
    total = np.float32(0)
    for i in range(length):
        total += x[i]
    for i in range(x.shape[0]):
        x[i] = scale * total + np.float32(rng.random()) * 0


@lx.transform(out=lambda spec, size: lx.Spec((size,), spec.dtype))
def last_of_data(x, out, length, rng, size):
    for i in range(size):
        out[i] = x[max(length - size + i, 0)]


@pytest.mark.parametrize("debug", ["0", "1"])
def test_a_transform_of_ones_own_is_told_the_length(debug, monkeypatch):
    monkeypatch.setenv("LOADERX_DEBUG", debug)
    batch = loader_of(mean_of_data(scale=2.0)).batch(0)
    for out, row, length in zip(batch["data"], rows(()), LENGTHS, strict=True):
        np.testing.assert_allclose(out, 2 * row[:length].sum(), rtol=1e-5)
    batch = loader_of(last_of_data(size=3)).batch(0)
    np.testing.assert_array_equal(batch["length"], np.minimum(LENGTHS, 3))
    for out, row, length in zip(batch["data"], rows(()), LENGTHS, strict=True):
        np.testing.assert_array_equal(out, row[np.maximum(length - 3 + np.arange(3), 0)])


def test_a_length_is_that_after_the_ops_before():
    sample = rows(())[1].copy()
    mean_of_data.py(sample, 16, np.random.default_rng(0), scale=1.0)
    np.testing.assert_allclose(sample, rows(())[1].sum(), rtol=1e-5)
    ops = [T.RandomCrop1D(6), T.PadTo(10, -1.0), mean_of_data(scale=1.0)]
    batch = loader_of(*ops).batch(0)
    np.testing.assert_array_equal(batch["length"], np.minimum(LENGTHS, 6))
    cropped = loader_of(T.RandomCrop1D(6)).batch(0)["data"]
    for out, row, length in zip(batch["data"], cropped, LENGTHS, strict=True):
        np.testing.assert_allclose(out, np.full(10, row[: min(length, 6)].sum()), rtol=1e-5)


def test_policies_and_views_know_the_length_too():
    batch = loader_of(T.Maybe(1.0, T.Reverse(1.0))).batch(0)["data"]
    for out, row, length in zip(batch, rows(()), LENGTHS, strict=True):
        np.testing.assert_array_equal(out[:length], row[:length][::-1])
    views = loader_of(T.Views(2, [T.RandomCrop1D(4)])).batch(0)
    for view in ("0", "1"):
        np.testing.assert_array_equal(views[f"length_{view}"], np.minimum(LENGTHS, 4))
        for out, length in zip(views[f"data_{view}"], LENGTHS, strict=True):
            assert not np.any(out[: min(length, 4)] == PAD)


class Records:
    """Source in Python, both fields of a row at once."""

    def __init__(self):
        self.read = 0

    def __len__(self):
        return len(LENGTHS)

    def __getitem__(self, row):
        self.read += 1
        return {"data": rows(())[row], "length": LENGTHS[row]}


@pytest.mark.parametrize("workers", [1, 4])
def test_any_source_and_any_batch_gives_the_same(workers):
    wanted = loader_of(T.RandomCrop1D(4), shuffle=True, batch_size=3, seed=5)
    records = Records()
    same = loader_of(
        T.RandomCrop1D(4), data=records, shuffle=True, batch_size=3, seed=5, workers=workers
    )
    before = records.read
    for step in range(6):
        expected, batch = wanted.batch(step), same.batch(step)
        for name in ENTRY:
            np.testing.assert_array_equal(batch[name], expected[name])
    # No row is read twice for its length.
    assert records.read - before == 6 * 3


def test_padded_records_are_cropped_in_their_data(tmp_path):
    path = tmp_path / "a.ar"
    lx.write_array_record(
        path, [row[:length] for row, length in zip(rows((2,)), LENGTHS, strict=True) if length]
    )
    source = lx.ARDataset(path, "float32", (None, 2), pad_to=PADDED, pad_value=PAD)
    loader = lx.DataLoader(
        source, batch_size=7, transforms={ENTRY: [T.RandomCrop1D(3)]}, output="numpy"
    )
    for step in range(8):
        batch = loader.batch(step)
        for out, length in zip(batch["data"], batch["length"], strict=True):
            assert 0 < length <= 3
            assert np.all(out[:length] >= 1)
            assert np.all(out[length:] == PAD)


def test_ops_that_do_not_know_lengths_are_refused():
    for op, words in (
        (T.Resample(8), "Resample would stretch the padding"),
        (T.RandomCrop1D(8, pad=2), r"`pad` \(=2\) must be 0"),
        (T.Maybe(0.5, T.Resample(16)), "Resample would stretch the padding"),
    ):
        with pytest.raises(lx.ArgumentError, match=words):
            loader_of(op)
    for chain in ([mean_of_data(scale=1.0)], [T.Maybe(0.5, mean_of_data(scale=1.0))]):
        with pytest.raises(lx.ArgumentError, match="'mean_of_data' needs the length of a sample"):
            lx.pipeline(chain)(rows(()))
        with pytest.raises(lx.ArgumentError, match=r"\(\"data\", \"length\"\)"):
            lx.DataLoader({"data": rows(())}, transforms={"data": chain})


def test_a_parameter_may_still_be_called_length():
    @lx.transform
    def cut(x, length):
        for i in range(length, x.shape[0]):
            x[i] = 0

    out = lx.pipeline([cut(length=2)])(rows(()))
    assert np.all(out[:, 2:] == 0)
    np.testing.assert_array_equal(out[:, :2], rows(())[:, :2])
