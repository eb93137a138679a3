"""Dropped boxes have the number, sizes and places that are asked for, and are filled with a value or noise."""

import math
import re

import numpy as np
import pytest
from scipy import stats

import loaderx as lx
from loaderx.kernels.distributions import next_bits
from loaderx.transforms.colour import RandomErasing
from loaderx.transforms.dropout import CoarseDropout
from tests import reference
from tests.loaderx.transforms.images import Applied, apply, images

DTYPES = [np.uint8, np.float32, np.uint16]


@pytest.fixture
def interpreted(monkeypatch):
    """Run ops in plain Python, their kernels compiled: no other sizes and parameters to compile for."""
    monkeypatch.setenv("LOADERX_DEBUG", "1")


def noise_of(image, key):
    """Return any value from black to white, for every value of an image."""
    bits = reference.hash_index(image.size, key).reshape(image.shape)
    if image.dtype.kind == "f":
        return ((bits >> np.uint64(8)) / 2**24).astype(image.dtype)
    return (bits * np.uint64(np.iinfo(image.dtype).max + 1) >> np.uint64(32)).astype(image.dtype)


def dropped(image, rng, holes, height, width, fill):
    """Drop boxes with the same draws; sides are fractions."""
    out, key = image.copy(), next_bits(rng)
    for _ in range(rng.integers(holes[0], holes[1] + 1)):
        down = max(1, round(image.shape[0] * rng.uniform(*height)))
        across = max(1, round(image.shape[1] * rng.uniform(*width)))
        top = rng.integers(0, image.shape[0] - down + 1)
        left = rng.integers(0, image.shape[1] - across + 1)
        box = np.s_[top : top + down, left : left + across]
        out[box] = noise_of(image, key)[box] if isinstance(fill, str) else fill
    return out


# Every dtype with three channels; an op is compiled anew for another number of them.
@pytest.mark.parametrize(
    ("channels", "fill", "dtype"),
    [
        pytest.param(channels, fill, dtype, marks=() if dtype in kept else pytest.mark.long)
        for channels, fill, kept in (
            (3, 0, DTYPES),
            (3, "noise", DTYPES),
            (4, [1, 0.5, 0, 1], [np.uint8]),
            (1, 1, [np.float32]),
        )
        for dtype in DTYPES
    ],
)
def test_dropped_boxes_equal_their_twin(channels, fill, dtype, monkeypatch):
    x = images((20, 31, channels), dtype, count=12)
    op = CoarseDropout((1, 5), (0.1, 0.5), (0.05, 0.3), fill=fill)
    applied = Applied(x, op)
    values = fill if fill == "noise" or dtype == np.float32 else np.floor(np.array(fill) + 0.5)
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        expected = dropped(image, rng, (1, 5), (0.1, 0.5), (0.05, 0.3), values)
        np.testing.assert_array_equal(out, expected)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(x, op), applied.out)


@pytest.mark.usefixtures("interpreted")
def test_a_box_has_any_size_of_its_range_and_any_place():
    x = np.ones((1500, 40, 30), np.float32)
    out = lx.pipeline([CoarseDropout(1, height=(3, 8), width=(0.2, 0.6))])(x, batch=True) == 0
    rows, columns = out.any(axis=2), out.any(axis=1)
    tall, wide = rows.sum(axis=1), columns.sum(axis=1)
    np.testing.assert_array_equal(out.sum(axis=(1, 2)), tall * wide)
    # Integers are pixels, each number of them as likely as the others; fractions are of the image.
    counts = [int(np.sum(tall == side)) for side in range(3, 9)]
    assert sum(counts) == 1500
    assert stats.chisquare(counts).pvalue > 0.001
    assert (wide.min(), wide.max()) == (6, 18)
    for start, free in ((rows.argmax(axis=1), 40 - tall), (columns.argmax(axis=1), 30 - wide)):
        place = (start + np.random.default_rng(0).random(1500)) / (free + 1)
        assert stats.kstest(place, "uniform").pvalue > 0.001


@pytest.mark.usefixtures("interpreted")
def test_every_number_of_holes_is_as_likely_as_the_others():
    x = np.ones((900, 1, 60, 1), np.float32)
    applied = Applied(x, CoarseDropout((2, 4), 1, 1))
    counts = []
    for rng in applied.draws():
        next_bits(rng)
        counts.append(int(rng.integers(2, 5)))
    assert stats.chisquare(np.bincount(counts)[2:]).pvalue > 0.001
    holes = np.sum(applied.out == 0, axis=(1, 2, 3))
    # Boxes of a pixel may overlap.
    assert np.all((holes <= counts) & (holes >= 1))
    assert np.mean(holes == counts) > 0.8


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    "op",
    [
        CoarseDropout(1, 1.0, 1.0, fill="noise"),
        RandomErasing(1.0, scale=(0.9, 0.9), ratio=(1, 1), value="noise"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_noise_is_any_value_from_black_to_white(op, dtype):
    white = 255 if dtype == np.uint8 else 1
    x = np.full((4, 60, 60, 3), white, dtype)
    out = apply(x, op)
    share = out[:, 2:50, 2:50][out[:, 2:50, 2:50] != white]
    if dtype == np.uint8:
        assert stats.chisquare(np.bincount(share, minlength=256)[:255]).pvalue > 0.001
    else:
        assert stats.kstest(share, "uniform").pvalue > 0.001
    assert np.mean(out[0] == out[1]) < 0.3


# RandomErasing


@pytest.mark.parametrize("holes", [3, (1, 3)])
def test_several_rectangles_are_erased_one_after_the_other(holes):
    x = images((40, 30, 3), count=30)
    value = (9, 8, 7)
    applied = Applied(x, RandomErasing(0.7, scale=(0.02, 0.1), value=value, holes=holes))
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        expected = image.copy()
        if rng.random() < 0.7:
            for _ in range(holes if holes == 3 else rng.integers(1, 4)):
                area = 1200 * rng.uniform(0.02, 0.1)
                aspect = math.exp(rng.uniform(math.log(0.3), math.log(3.3)))
                down, across = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
                top, left = rng.integers(0, 41 - down), rng.integers(0, 31 - across)
                expected[top : top + down, left : left + across] = value
        np.testing.assert_array_equal(out, expected)


FILL = "must be a finite number, one for each channel, or 'noise'."
REFUSED = [
    (lambda: CoarseDropout(0), "`holes` (=0) must be an integer of at least 1, or a range of two of them."),
    (lambda: CoarseDropout((3, 2)), "`holes` (=(3, 2)) must be"),
    (lambda: CoarseDropout(1, height=1.5), "`height` (=1.5) must be a number from 0 to 1"),
    (lambda: CoarseDropout(1, width=0), "`width` (=0) must be a number of at least 1"),
    (lambda: CoarseDropout(fill="red"), f"`fill` (='red') {FILL}"),
    (lambda: CoarseDropout(fill=[0, math.nan]), f"`fill` (=[0, nan]) {FILL}"),
    (lambda: RandomErasing(holes=1.5), "`holes` (=1.5) must be an integer of at least 1"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_that_cannot_work_are_refused_at_once(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("op", [CoarseDropout(fill=[1, 2]), RandomErasing(value=[1, 2])], ids=repr)
def test_values_are_as_many_as_channels(op):
    with pytest.raises(lx.ArgumentError, match=r"has 2 values, the image .* has 3 channels"):
        lx.pipeline([op])(images())
