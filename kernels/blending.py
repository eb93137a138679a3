"""A sample mixed with what was made of it."""

from typing import Any

import numpy as np

from .compilation import jitable, kernel


@jitable
def draw_shares(rng: Any, alpha: Any, shares: Any) -> None:
    """shares[0], of the sample itself, from Beta(alpha, alpha); the rest divided by Dirichlet(alpha, ..., alpha)."""
    total = 0.0
    for k in range(1, shares.shape[0]):
        size = rng.standard_gamma(alpha)
        shares[k] = np.float32(size)
        total += size
    own = rng.beta(alpha, alpha)
    shares[0] = np.float32(own)
    for k in range(1, shares.shape[0]):
        # All gamma draws of a tiny alpha may be 0.
        part = shares[k] / total if total > 0 else 1.0 / (shares.shape[0] - 1)
        shares[k] = np.float32(part * (1.0 - own))


@kernel
def add_share(x: Any, shares: Any, number: Any, total: Any) -> None:
    """Begin `total` with a share of x, or add one if `number` is above 0."""
    share = shares[number]
    if number == 0:
        for k in range(x.shape[0]):
            total[k] = np.float32(x[k]) * share
    else:
        for k in range(x.shape[0]):
            total[k] += np.float32(x[k]) * share


@jitable
def add_counted_share(x: Any, shares: Any, counter: Any, total: Any) -> None:
    """The share of the chain that `counter` holds the number of, or of the sample itself where that is -1."""
    add_share(x, shares, counter[0] + 1, total)
