"""Ranges (start, stop) of places in a batch: sorted, disjoint, not adjacent and not empty after `union`."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Range = tuple[int, int]
Ranges = tuple[Range, ...]


def union(ranges: Iterable[Range]) -> Ranges:
    """Return the ranges of all places that are in any of the given ones."""
    joined: list[Range] = []
    for start, stop in sorted(ranges):
        if start == stop:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return tuple(joined)


def rotated(ranges: Iterable[Range], step: int, size: int) -> Iterator[Range]:
    """Yield the ranges rotated by `step` places, modulo a batch of `size`."""
    for start, stop in ranges:
        first, last = start + step, stop + step
        if last <= size:
            yield first, last
        elif first >= size:
            yield first - size, last - size
        else:
            yield first, size
            yield 0, last - size


def count(ranges: Iterable[Range]) -> int:
    """Return the number of places."""
    return sum(stop - start for start, stop in ranges)


def places(ranges: Sequence[Range]) -> NDArray[np.int64]:
    """Return the places as an array."""
    if len(ranges) == 1:
        return np.arange(*ranges[0], dtype=np.int64)
    parts = [np.arange(start, stop, dtype=np.int64) for start, stop in ranges]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def cut(ranges: Iterable[Range], at: Iterable[int]) -> list[Range]:
    """Return the ranges, split at every border in `at`."""
    borders = sorted(set(at))
    pieces: list[Range] = []
    for start, stop in ranges:
        inner = [border for border in borders if start < border < stop]
        pieces += zip([start, *inner], [*inner, stop], strict=True)
    return pieces


def common(ranges: Iterable[Range], others: Sequence[Range]) -> Ranges:
    """Return what of each range is in the others, in parts that are not joined across its borders."""
    shared = [(max(start, low), min(stop, high)) for start, stop in ranges for low, high in others]
    return tuple((start, stop) for start, stop in shared if start < stop)


def divided(ranges: Sequence[Range], parts: int) -> list[list[Range]]:
    """Divide the places into `parts` lists of ranges of about the same size."""
    total = count(ranges)
    limits = [total * part // parts for part in range(parts + 1)]
    result: list[list[Range]] = []
    for low, high in itertools.pairwise(limits):
        own: list[Range] = []
        passed = 0
        for start, stop in ranges:
            first, last = max(low, passed), min(high, passed + stop - start)
            if first < last:
                own.append((start + first - passed, start + last - passed))
            passed += stop - start
        result.append(own)
    return result
