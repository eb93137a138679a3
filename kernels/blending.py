"""Blending of a sample with the results of its augmentation chains."""

from typing import Any

import numpy as np

from .compilation import jitable, kernel


@jitable
def draw_shares(rng: Any, alpha: Any, shares: Any) -> None:
    """Draw shares[0], that of the sample, from Beta(alpha, alpha); divide the rest by Dirichlet(alpha, ..., alpha)."""
    total = 0.0
    for k in range(1, shares.shape[0]):
        size = rng.standard_gamma(alpha)
        shares[k] = np.float32(size)
        total += size
    own = rng.beta(alpha, alpha)
    shares[0] = np.float32(own)
    for k in range(1, shares.shape[0]):
        # All gamma draws of a tiny alpha can be 0.
        part = shares[k] / total if total > 0 else 1.0 / (shares.shape[0] - 1)
        shares[k] = np.float32(part * (1.0 - own))


@kernel
def add_share(x: Any, shares: Any, number: Any, total: Any) -> None:
    """Start `total` with a share of x, or add one to it if `number` is above 0."""
    share = shares[number]
    if number == 0:
        for k in range(x.shape[0]):
            total[k] = np.float32(x[k]) * share
    else:
        for k in range(x.shape[0]):
            total[k] += np.float32(x[k]) * share


@jitable
def add_counted_share(x: Any, shares: Any, counter: Any, total: Any) -> None:
    """Add the share of the chain whose number `counter` holds, or of the sample itself if that number is -1."""
    add_share(x, shares, counter[0] + 1, total)
