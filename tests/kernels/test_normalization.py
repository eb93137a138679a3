"""Normalisation in lines of scales and biases equals its twin bit for bit, whole and in parts."""

import numpy as np
import pytest

from loaderx.kernels import normalization
from tests import reference

RANDOM = np.random.default_rng(0)
SCALE, BIAS = RANDOM.normal(size=(2, 12)).astype(np.float32)
DTYPES = ("uint8", "bool", "int16", "int64", "float32", "float64")
PARTS = np.array([0, 12, 12, 36, 41])


def values(dtype, count=41):
    return (RANDOM.random(count) * (1 if dtype == "bool" else 200)).astype(dtype)


def both(name, out, *given):
    """Return the outputs of a kernel and of its twin."""
    results = []
    for module in (normalization, reference):
        target = out.copy()
        getattr(module, name)(*given, target)
        results.append(target)
    return results


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_equal_the_twin(dtype):
    x = values(dtype)
    out = np.zeros(len(x), np.float32)
    given = x.ctypes.data, x[:0], SCALE, BIAS
    found, expected = both("normalize_values", out, *given)
    np.testing.assert_array_equal(found, expected)
    assert np.ptp(found) > 0
    for result in both("normalize_values_in_parts", out, PARTS, *given):
        np.testing.assert_array_equal(result, expected)


def test_values_in_place_equal_the_twin():
    x = values("float32")
    found, expected = both("normalize_in_place", x, SCALE, BIAS)
    np.testing.assert_array_equal(found, expected)
    for result in both("normalize_in_place_in_parts", x, PARTS, SCALE, BIAS):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("brain", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_halves_equal_the_twin(dtype, brain):
    x = values(dtype)
    if dtype == "float32":
        x[:5] = np.nan, np.inf, -np.inf, 1e30, 1e-7
    out = np.zeros(len(x), np.uint16)
    floats = np.zeros((4, 12), np.float32)
    given = x.ctypes.data, x[:0], SCALE, BIAS, brain
    found, expected = both("normalize_halves", out, *given, floats[0], floats[0].view(np.uint32))
    np.testing.assert_array_equal(found, expected)
    for result in both(
        "normalize_halves_in_parts", out, PARTS, *given, floats, floats.view(np.uint32)
    ):
        np.testing.assert_array_equal(result, expected)


def test_white_is_the_largest_integer_and_1():
    whites = {dtype: normalization.full_scale(np.dtype(dtype)) for dtype in ("u1", "i2", "f4", "?")}
    assert whites == {"u1": 255, "i2": 32767, "f4": 1, "?": 1}
