"""Lines of a summary: a name and a value each, and histograms."""

from collections.abc import Iterator, Mapping
from typing import Any

SHOWN_LABELS = 20
BAR = 30


def line(name: str, value: str) -> str:
    """Return the line of a value."""
    return f"  {name:12} {value}"


def printable(text: str) -> str:
    """Return a text in one line: a name of a file may have newlines, and codes that a terminal obeys."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "replace").decode()
        for one in text
    )


def histogram(title: str, counts: Mapping[Any, int], rows: int) -> Iterator[str]:
    """Yield the lines of a histogram of labels, cut if it is long."""
    values = list(counts)
    yield line(title, f"{len(counts):,} values from {values[0]} to {values[-1]}")
    most = max(counts.values())
    width, digits = max(len(str(value)) for value in values), len(f"{most:,}")
    for value in values[:SHOWN_LABELS]:
        count = counts[value]
        bar = "#" * max(1, round(BAR * count / most))
        yield f"    {value:>{width}}  {count:>{digits},}  {count / rows:6.1%}  {bar}"
    if len(counts) > SHOWN_LABELS:
        rarest = min(counts, key=counts.__getitem__)
        commonest = max(counts, key=counts.__getitem__)
        yield (
            f"    and {len(counts) - SHOWN_LABELS:,} more; most often {commonest} ({counts[commonest]:,}), "
            f"least often {rarest} ({counts[rarest]:,})"
        )
