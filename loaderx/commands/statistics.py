"""What the values of a column are like: mean and standard deviation per channel, and how often each label occurs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.spec import Spec

Numbers = NDArray[np.float64]
# The last axis is that of channels if it is no longer than this: grey, colour, colour with alpha.
MOST_CHANNELS = 4
# The same for rows of one axis, which are features.
MOST_FEATURES = 16
# With more values than this, integers are no labels.
MOST_LABELS = 1000
# Values that are looked at together.
BLOCK_VALUES = 1 << 20


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation as `Normalize` takes them, of so many rows."""

    rows: int
    mean: list[float]
    std: list[float]
    not_finite: int


def channels_of(spec: Spec) -> int:
    """How many means and standard deviations there are; 1 is for all values together."""
    most = {0: 1, 1: MOST_FEATURES, 2: 1}.get(len(spec.shape), MOST_CHANNELS)
    return spec.shape[-1] if spec.shape and 1 <= spec.shape[-1] <= most else 1


def sampled_rows(rows: int, count: int) -> NDArray[np.int64]:
    """One row at random of each of `count` stretches of equal length, the same ones every time."""
    if count >= rows:
        return np.arange(rows)
    edges = np.arange(count + 1) * rows // count
    places = np.random.default_rng(0).random(count) * np.diff(edges)
    return edges[:-1] + places.astype(np.int64)


def moments_of(rows: Iterable[NDArray[Any]], spec: Spec) -> Moments | None:
    """The moments of rows, None if no value is finite. White is 1, as in `Normalize`."""
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
            # Parts are joined as by Chan et al.: sums of squares would lose digits far from 0.
            squares += (own - mean) ** 2 * count * more / total
            mean += (own - mean) * more / total
        count += more
    if not np.all(count):
        return None
    white = full_scale(spec)
    std = np.sqrt(squares / count)
    return Moments(seen, _short(mean / white), _short(std / white), not_finite)


def _blocks(rows: Iterable[NDArray[Any]], channels: int) -> Iterator[tuple[Numbers, int]]:
    """Rows joined to blocks of values by channel."""
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
    """How often each value occurs, in ascending order; None if there are too many to be labels."""
    counts: dict[int, int] = {}
    for block in blocks:
        values, numbers = np.unique(block, return_counts=True)
        if len(values) > MOST_LABELS:
            return None
        for value, number in zip(values.tolist(), numbers.tolist(), strict=True):
            counts[int(value)] = counts.get(int(value), 0) + number
        if len(counts) > MOST_LABELS:
            return None
    return dict(sorted(counts.items()))
