"""Arrays of normal numbers are those of their twin, normal, and decided by the key alone."""

import numpy as np
import pytest
from numba.core import config
from scipy import stats

from loaderx.kernels import normals
from tests import reference

KEY = np.uint64(2**63 + 17)
SIZE = 2000 if config.DISABLE_JIT else 100_001


def filled(kernel, size, key=KEY):
    out = np.full(size, np.nan, np.float32)
    kernel(key, out)
    return out


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_normal_numbers_equal_their_twin(size):
    found = filled(normals.fill_normals, size)
    np.testing.assert_allclose(found, filled(reference.fill_normals, size), rtol=1e-6, atol=1e-7)


def test_numbers_are_normal_and_neither_neighbours_nor_pairs_know_of_each_other():
    found = filled(normals.fill_normals, SIZE).astype(np.float64)
    assert stats.kstest(found, "norm").pvalue > 0.001
    assert abs(np.mean(found**2) - 1) < 4 * np.sqrt(2 / SIZE)
    for apart in (1, 2, (SIZE + 1) // 2):
        assert stats.pearsonr(found[apart:], found[:-apart]).pvalue > 0.001


def test_another_key_gives_other_numbers():
    first, second = (filled(normals.fill_normals, SIZE, np.uint64(key)) for key in (1, 2))
    assert stats.pearsonr(first, second).pvalue > 0.001
