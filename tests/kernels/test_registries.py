"""A first kernel does not load SciPy's linear algebra, and functions that need it still find it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core import config

REPOSITORY = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="numba may not compile")

FIRST_BATCH = """
import sys
import numba, numpy as np
import loaderx as lx
from loaderx import transforms as T
loader = lx.DataLoader(np.ones((8, 4, 4, 3), np.uint8), batch_size=4, output="numpy", transforms=[T.RandomFlip()])
assert loader.batch(0).all()
assert "scipy.linalg" not in sys.modules
"""
PRODUCT = """
@numba.njit
def product(a, b):
    return a @ b + np.dot(a, b)
a = np.arange(6.0).reshape(2, 3)
np.testing.assert_array_equal(product(a, a.T.copy()), 2 * a @ a.T)
assert "scipy.linalg" in sys.modules
"""


def run(script):
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr


def test_a_batch_does_without_the_linear_algebra_of_scipy():
    run(FIRST_BATCH)


def test_products_of_matrices_compile_behind_it():
    run(FIRST_BATCH + PRODUCT)


TRANSFORM = """
@lx.transform
def turn(x, matrix):
    x[:] = np.dot(matrix, x)
samples = np.arange(12, dtype=np.float32).reshape(4, 3)
matrix = np.eye(3, dtype=np.float32)[::-1].copy()
np.testing.assert_array_equal(lx.pipeline([turn(matrix=matrix)])(samples), samples[:, ::-1])
"""


def test_a_transform_may_multiply_matrices_compiled_now_or_before():
    for _ in range(2):  # the second time from the cache
        run(FIRST_BATCH + TRANSFORM)
