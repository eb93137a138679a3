"""Values at a rank are those of the sorted array."""

import numpy as np
import pytest

from loaderx.kernels import selection
from tests import reference

VALUES = np.random.default_rng(0).normal(size=41).astype(np.float32)
ARRAYS = {
    "normal": VALUES,
    "equal": np.full(5, -2, np.float32),
    "ties": np.round(VALUES),
    "extremes": np.array([np.inf, -np.inf, 0, 1e-45, -1e-45, 3e38, -3e38], np.float32),
    "one": np.array([-1.5], np.float32),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_value_at_a_rank_is_that_of_the_sorted_array(name):
    x = ARRAYS[name]
    keys, expected = np.zeros((2, len(x)), np.uint32)
    selection.sortable_keys(x, keys)
    reference.sortable_keys(x, expected)
    np.testing.assert_array_equal(keys, expected)
    counts = np.zeros(1 << selection.DIGIT, np.int64)
    found, twin = np.zeros((2, 1), np.float32)
    for rank, value in enumerate(np.sort(x)):
        selection.value_at_rank(keys, rank, counts, found)
        reference.value_at_rank(keys, rank, counts, twin)
        assert found[0] == twin[0] == value
