"""Amounts of an op: a number, a range that is drawn from evenly, or a choice of numbers."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable

from .base import as_number


class Choice:
    """Choice of one of these numbers, each equally likely, where an op accepts a number or a range."""

    def __init__(self, *values: float) -> None:
        self.values = tuple(map(as_number, values))
        if not self.values or not all(map(math.isfinite, self.values)):
            raise ArgumentError(f"Choice accepts one or more finite numbers, got {values!r}.")

    def __repr__(self) -> str:
        return f"Choice({', '.join(f'{value:g}' for value in self.values)})"


Amount: TypeAlias = float | Sequence[float] | Choice
# Two numbers are the ends of a range; any other number of them is a choice.
Amounts: TypeAlias = NDArray[np.float64]


@jitable
def draw_amount(rng: Any, values: Any) -> Any:
    """Draw a number from a range or a choice; where there is only one, nothing is drawn."""
    if len(values) == 1:
        return values[0]
    if len(values) == 2:
        return rng.uniform(values[0], values[1])
    return values[rng.integers(0, len(values))]


def amounts(name: str, value: Amount, least: float = -math.inf, most: float = math.inf) -> Amounts:
    """Return what to draw from: a number is itself, two numbers are a range."""
    return _amounts(name, value, least, most, lambda number: (number,), least)


def spread(name: str, value: Amount, most: float = math.inf) -> Amounts:
    """Return what to draw from: a number is the range from its negative to it, two numbers are a range."""
    return _amounts(name, value, -most, most, lambda number: (-number, number), 0.0)


def factors(name: str, value: Amount) -> Amounts:
    """Return the factors to draw from: a number is the range of that much below and above 1, none below 0."""
    return _amounts(
        name, value, 0.0, math.inf, lambda number: (max(0.0, 1.0 - number), 1.0 + number), 0.0
    )


def _amounts(
    name: str, value: Any, least: float, most: float, alone: Any, least_alone: float
) -> Amounts:
    if isinstance(value, Choice):
        numbers = value.values
        # A choice of two must not be taken for a range.
        found = numbers * 2 if len(numbers) == 2 else numbers
        good = all(least <= number <= most for number in numbers)
    elif isinstance(value, tuple | list | np.ndarray) and len(value) == 2:
        found = tuple(map(as_number, value))
        good = least <= found[0] <= found[1] <= most
    else:
        number = as_number(value)
        found = alone(number)
        good = least_alone <= number <= most
    if not good or not all(map(math.isfinite, found)):
        rule = f"from {least_alone:g} to {most:g}"
        if most == math.inf:
            rule = f"of at least {least_alone:g}"
        if least_alone == -math.inf:
            rule = f"of at most {most:g}" if most < math.inf else "that is finite"
        pair_rule = "low <= high" if least == -math.inf else f"{least:g} <= low <= high"
        raise ArgumentError(
            f"`{name}` (={value!r}) must be a number {rule}, a range of two with {pair_rule}"
            f"{f' <= {most:g}' if most < math.inf else ''}, or a Choice of such."
        )
    return np.array(found, np.float64)
