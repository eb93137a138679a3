"""Statistics of a column: mean and standard deviation per channel, and the count of each label."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.spec import Spec

Numbers = NDArray[np.float64]
# The last axis is that of channels if it is at most this long: grey, colour, colour with alpha.
MAX_CHANNELS = 4
# Limit for rows of one axis, which are features.
MAX_FEATURES = 16
# Integers with more different values than this are not labels.
MAX_LABELS = 1000
# Number of values that are processed together.
BLOCK_VALUES = 1 << 20


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation, in the unit of `Normalize`, and the number of rows they are of."""

    rows: int
    mean: list[float]
    std: list[float]
    not_finite: int


def channels_of(spec: Spec) -> int:
    """Return the number of means and standard deviations; 1 is for all values together."""
    most = {0: 1, 1: MAX_FEATURES, 2: 1}.get(len(spec.shape), MAX_CHANNELS)
    return spec.shape[-1] if spec.shape and 1 <= spec.shape[-1] <= most else 1


def sampled_rows(rows: int, count: int) -> NDArray[np.int64]:
    """Return one random row of each of `count` ranges of equal length, the same rows every time."""
    if count >= rows:
        return np.arange(rows)
    edges = np.arange(count + 1) * rows // count
    places = np.random.default_rng(0).random(count) * np.diff(edges)
    return edges[:-1] + places.astype(np.int64)


def moments_of(rows: Iterable[NDArray[Any]], spec: Spec) -> Moments | None:
    """Return the moments of rows, None if no value is finite. White is 1, as in `Normalize`."""
    from loaderx.transforms.values import full_scale

    channels = channels_of(spec)
    count = np.zeros(channels)
    mean, squares = np.zeros(channels), np.zeros(channels)
    seen = not_finite = 0
    for values, number in _blocks(rows, channels):
        seen += number
        finite = np.isfinite(values)
        not_finite += int(values.size - finite.sum())
        more = finite.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            own = np.where(more > 0, np.sum(values, axis=0, where=finite) / more, mean)
            total = np.maximum(count + more, 1)
            squares += np.sum((values - own) ** 2, axis=0, where=finite)
            # Parts are joined by the formula of Chan et al.: sums of squares would lose digits far from 0.
            squares += (own - mean) ** 2 * count * more / total
            mean += (own - mean) * more / total
        count += more
    if not np.all(count):
        return None
    white = full_scale(spec)
    std = np.sqrt(squares / count)
    return Moments(seen, _short(mean / white), _short(std / white), not_finite)


def _blocks(rows: Iterable[NDArray[Any]], channels: int) -> Iterator[tuple[Numbers, int]]:
    """Yield rows joined to blocks of values by channel."""
    waiting: list[Numbers] = []
    for row in rows:
        waiting.append(row.astype(np.float64).reshape(-1, channels))
        if sum(map(len, waiting)) * channels >= BLOCK_VALUES:
            yield np.concatenate(waiting), len(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting), len(waiting)


def _short(values: Numbers) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def count_labels(blocks: Iterable[NDArray[Any]]) -> dict[int, int] | None:
    """Return the count of each value, in ascending order; None if there are too many to be labels."""
    counts: dict[int, int] = {}
    for block in blocks:
        values, numbers = np.unique(block, return_counts=True)
        if len(values) > MAX_LABELS:
            return None
        for value, number in zip(values.tolist(), numbers.tolist(), strict=True):
            counts[int(value)] = counts.get(int(value), 0) + number
        if len(counts) > MAX_LABELS:
            return None
    return dict(sorted(counts.items()))
