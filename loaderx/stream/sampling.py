"""Samplers: rows drawn by weight, and mixtures of several sources."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import StateError
from loaderx.kernels.alias import build_alias, draw_rows
from loaderx.kernels.keys import derive_key
from loaderx.kernels.random import ORDER
from loaderx.kernels.shuffling import Permutation

Positions = NDArray[np.int64]
# Shares are rounded to fractions with at most this denominator; products with it fit into 64 bits.
LARGEST_DENOMINATOR = 2**31
MOST_ROWS = 2**32
# Prefix of the description of a mixture.
MIXTURE = "mixture "


class RowSampler(ABC):
    """Sampler: positions of a stream -> rows, by arithmetic alone."""

    @abstractmethod
    def rows_at(self, positions: Positions) -> Positions:
        """Return the rows at these positions."""

    @abstractmethod
    def describe(self) -> str:
        """Return the text by which a saved state is compared."""


class WeightedSampler(RowSampler):
    """Sampler with replacement: each row is drawn as often as its weight says.

    No draw depends on those before it. So a stream may continue with other weights from any sample on, if the caller
    passes strict=False.
    """

    def __init__(self, weights: NDArray[np.float64], seed: int) -> None:
        self._key = np.uint64(derive_key(seed, ORDER, 0, 1))
        self._thresholds = np.empty(len(weights), np.uint32)
        self._aliases = np.empty(len(weights), np.int64)
        # Otherwise their sum, or its inverse, may overflow.
        weights = weights / weights.max()
        build_alias(weights * (len(weights) / weights.sum()), self._thresholds, self._aliases)

    def rows_at(self, positions: Positions) -> Positions:
        out = np.empty(len(positions), np.int64)
        draw_rows(self._key, positions, self._thresholds, self._aliases, out)
        return out

    def describe(self) -> str:
        digest = hashlib.blake2b(self._thresholds.data, digest_size=8)
        digest.update(self._aliases.data)
        return f"weights {digest.hexdigest()}"


class MixtureSampler(RowSampler):
    """Sampler over several parts, which are concatenated in the source.

    Among any number of successive samples a part has its share, give or take three samples. Each part has its own
    epochs, each with a new permutation.
    """

    def __init__(
        self, lengths: Sequence[int], shares: Sequence[Fraction], seed: int, shuffle: bool
    ) -> None:
        self._lengths = list(lengths)
        self._starts = np.cumsum([0, *lengths]).tolist()
        self._shares = list(shares)
        self._seed = seed
        self._shuffle = shuffle
        # The small ones first: next to a large part they would make it miss its share at every node above.
        parts = sorted(range(len(lengths)), key=self._shares.__getitem__)
        self._tree = _tree(self._shares, parts)
        # A batch has rows of at most two epochs of each part.
        self._permutation = lru_cache(maxsize=4 * len(lengths))(self._new_permutation)

    def rows_at(self, positions: Positions) -> Positions:
        out = np.empty(len(positions), np.int64)
        self._descend(self._tree, np.arange(len(positions)), positions, out)
        return out

    def describe(self) -> str:
        parts = zip(self._lengths, self._shares, strict=True)
        return MIXTURE + ", ".join(f"{length} x {share}" for length, share in parts)

    def _descend(
        self, node: "_Node", places: Positions, numbers: Positions, out: Positions
    ) -> None:
        """Fill out[places] with the samples `numbers` of those that come to a node."""
        if len(places) == 0:
            return
        if isinstance(node, int):
            out[places] = self._starts[node] + self._rows_of(node, numbers)
            return
        share, left, right = node
        before, after = _passed(numbers, share), _passed(numbers + 1, share)
        goes_left = after > before
        self._descend(left, places[goes_left], before[goes_left], out)
        self._descend(right, places[~goes_left], (numbers - before)[~goes_left], out)

    def _rows_of(self, part: int, numbers: Positions) -> Positions:
        """Return the rows of the samples `numbers` of a part, which is repeated epoch after epoch."""
        length = self._lengths[part]
        epochs, places = numbers // length, numbers % length
        if not self._shuffle:
            return places
        for epoch in np.unique(epochs):
            own = epochs == epoch
            places[own] = self._permutation(part, int(epoch)).at(places[own])
        return places

    def _new_permutation(self, part: int, epoch: int) -> Permutation:
        return Permutation(self._lengths[part], derive_key(self._seed, ORDER, epoch, 2, part))


def check_mixtures(given: object, own: str) -> None:
    """Raise if the data of a state is another mixture: other shares, other lengths, or no mixture.

    The progress in each part follows from the position and these numbers alone.
    """
    theirs, mine = (_mixture(str(data)) for data in (given, own))
    if theirs != mine and given != own:
        raise StateError(
            f"`state` is of {theirs or 'no mixture'}, this loader's data of {mine or 'no mixture'} (rows x share of "
            "each part). A Mixture cannot continue with other weights or lengths, not even with strict=False: rows "
            "would be repeated and skipped. Keep its parts as they were, or begin a new stream."
        )


def _mixture(data: str) -> str:
    """Return the part of a state's data that describes a mixture, or an empty text."""
    _, mark, parts = data.rpartition(f"; {MIXTURE}")
    return mark[2:] + parts if mark else ""


# Node of a binary tree: a part, or (share of the left node, left node, right node).
_Node = int | tuple[Fraction, "_Node", "_Node"]


def _tree(shares: Sequence[Fraction], parts: Sequence[int]) -> _Node:
    """Return a tree that divides the parts into halves of about the same share, recursively."""
    if len(parts) == 1:
        return parts[0]
    total = sum(shares[part] for part in parts)
    left: list[int] = []
    taken = Fraction(0)
    for part in parts[:-1]:
        if left and taken + shares[part] > total / 2:
            break
        left.append(part)
        taken += shares[part]
    share = (taken / total).limit_denominator(LARGEST_DENOMINATOR)
    return share, _tree(shares, left), _tree(shares, parts[len(left) :])


def _passed(numbers: Positions, share: Fraction) -> Positions:
    """Return floor(number * share), without an intermediate result beyond 64 bits."""
    whole, rest = np.divmod(numbers, share.denominator)
    passed: Positions = whole * share.numerator + rest * share.numerator // share.denominator
    return passed
