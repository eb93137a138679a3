"""Channels are split and merged, tables are looked up and values counted, compiled as in plain Python."""

import numpy as np
import pytest

from loaderx.kernels import tones
from loaderx.kernels.compilation import kernel

JIT = [
    pytest.param(lambda function: function, id="plain"),
    pytest.param(kernel, id="compiled"),
]


def bytes_of(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize("compile_", JIT)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.bool_])
def test_channels_come_apart_and_together_again(compile_, dtype):
    @compile_
    def split(x, start, count, planes):
        tones.split_pixels(x, start, count, planes)

    @compile_
    def merge(planes, start, count, x):
        tones.merge_pixels(planes, start, count, x)

    x = bytes_of((150, 3)).astype(dtype)
    for start, count in ((0, 150), (3, 1), (5, 70), (149, 1), (7, 0)):
        planes = np.zeros((3, 160), dtype)
        split(x.reshape(-1), start, count, planes)
        np.testing.assert_array_equal(planes[:, :count], x[start : start + count].T)
        assert not planes[:, count:].any()
        out = np.zeros_like(x)
        merge(planes, start, count, out.reshape(-1))
        np.testing.assert_array_equal(out[start : start + count], x[start : start + count])
        assert not out[:start].any()
        assert not out[start + count :].any()


@pytest.mark.parametrize("compile_", JIT)
def test_every_byte_is_looked_up_in_the_table_of_its_channel(compile_):
    @compile_
    def look_up(x, tables):
        tones.look_up(x, tables)

    for shape in ((1, 1, 1), (5, 3, 2), (7, 11, 3), (16, 16, 4)):
        x, tables = bytes_of(shape), bytes_of((shape[2], 256), seed=1)
        expected = np.stack([tables[c][x[..., c]] for c in range(shape[2])], axis=2)
        look_up(x, tables)
        np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("compile_", JIT)
def test_values_are_counted_by_channel(compile_):
    @compile_
    def count(x, counts):
        tones.count_values(x, counts)

    for shape in ((1, 1, 1), (5, 3, 2), (7, 11, 3), (16, 16, 4)):
        x, counts = bytes_of(shape) // 3, np.full((4, shape[2], 256), 7, np.uint32)
        count(x, counts)
        for c in range(shape[2]):
            expected = np.bincount(x[..., c].reshape(-1), minlength=256)
            np.testing.assert_array_equal(counts[0, c], expected)


@pytest.mark.parametrize("compile_", JIT)
def test_bytes_are_rounded_halves_up_as_other_numbers_are(compile_):
    @compile_
    def round_all(values, out):
        for k in range(len(values)):
            out[k] = tones.rounded(values[k], out)

    for dtype, kind in ((np.uint8, np.float32), (np.uint16, np.float32), (np.uint8, np.float64)):
        values = (np.arange(255 * 8 + 1) / 8).astype(kind)
        out = np.empty(len(values), dtype)
        round_all(values, out)
        np.testing.assert_array_equal(out, np.floor(values + 0.5))
