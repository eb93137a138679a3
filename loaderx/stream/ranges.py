"""Places of a batch as stretches (start, stop): in order, and neither touching nor empty after `union`."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Range = tuple[int, int]
Ranges = tuple[Range, ...]


def union(stretches: Iterable[Range]) -> Ranges:
    """All places that lie in any of them."""
    joined: list[Range] = []
    for start, stop in sorted(stretches):
        if start == stop:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return tuple(joined)


def rotated(stretches: Iterable[Range], step: int, size: int) -> Iterator[Range]:
    """Every place `step` further around a batch of `size`."""
    for start, stop in stretches:
        first, last = start + step, stop + step
        if last <= size:
            yield first, last
        elif first >= size:
            yield first - size, last - size
        else:
            yield first, size
            yield 0, last - size


def count(stretches: Iterable[Range]) -> int:
    """How many places they hold."""
    return sum(stop - start for start, stop in stretches)


def places(stretches: Sequence[Range]) -> NDArray[np.int64]:
    """The places themselves."""
    if len(stretches) == 1:
        return np.arange(*stretches[0], dtype=np.int64)
    parts = [np.arange(start, stop, dtype=np.int64) for start, stop in stretches]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def cut(stretches: Iterable[Range], at: Iterable[int]) -> list[Range]:
    """The same places in stretches that end wherever one of `at` lies inside."""
    borders = sorted(set(at))
    pieces: list[Range] = []
    for start, stop in stretches:
        inner = [border for border in borders if start < border < stop]
        pieces += zip([start, *inner], [*inner, stop], strict=True)
    return pieces


def divided(stretches: Sequence[Range], parts: int) -> list[list[Range]]:
    """The same places in `parts` parts of about the same size."""
    total = count(stretches)
    limits = [total * part // parts for part in range(parts + 1)]
    result: list[list[Range]] = []
    for low, high in itertools.pairwise(limits):
        own: list[Range] = []
        passed = 0
        for start, stop in stretches:
            first, last = max(low, passed), min(high, passed + stop - start)
            if first < last:
                own.append((start + first - passed, start + last - passed))
            passed += stop - start
        result.append(own)
    return result
