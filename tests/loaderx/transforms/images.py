"""Images to transform, and the draws of each sample, for twins that repeat them."""

import numpy as np
import pytest

import loaderx as lx
from loaderx.kernels.distributions import Draws
from loaderx.kernels.random import fold
from loaderx.spec import Spec


def halved(cases):
    """Return each case with one of two dtypes, in turn; with the other one it is for the long tests.

    An op is compiled anew for every dtype and every number of channels.
    """
    return [
        pytest.param(
            case,
            dtype,
            id=f"{case!r}-{np.dtype(dtype).name}",
            marks=() if (place + number) % 2 == 0 else pytest.mark.long,
        )
        for place, case in enumerate(cases)
        for number, dtype in enumerate((np.uint8, np.float32))
    ]


def images(shape=(7, 10, 3), dtype=np.uint8, count=5, seed=0):
    """Return any values from black to white."""
    values = np.random.default_rng(seed).random((count, *shape))
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return values < 0.5
    return (values * (np.iinfo(dtype).max if dtype.kind in "iu" else 1)).astype(dtype)


class Applied:
    """Samples after a chain of ops, compiled as one, and the draws of each of the ops for them."""

    def __init__(self, samples, *ops, seed=0):
        before = samples.copy()
        pipeline = lx.pipeline(list(ops), seed=seed)
        self.out = pipeline(samples)
        np.testing.assert_array_equal(samples, before)
        chain = pipeline.chain(Spec(samples.shape[1:], samples.dtype), samples[0])
        self._keys = [np.uint64(step.key) for step in chain.steps]

    def draws(self, step=0):
        """Return a generator for each of the samples that draws what `ops[step]` has drawn."""
        key = self._keys[step]
        return [Draws(fold(key, np.uint64(position))) for position in range(len(self.out))]


def apply(samples, *ops, seed=0):
    """Return the samples after a chain of ops."""
    return Applied(samples, *ops, seed=seed).out
