"""`Mixture`: several data sets as one, each with a fixed share of the stream."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias, overload

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.spec import Spec
from loaderx.stream.sampling import LARGEST_DENOMINATOR

from .adapter import as_rows
from .data_types import Fields, Single, Unknown, Untyped
from .source import Array, Rows, RowSpec_co, Source
from .subsets import concatenate

Weight: TypeAlias = float | Fraction | np.integer[Any] | np.floating[Any]


class Mixture(Source[RowSpec_co]):
    """Rows of several data sets in given proportions: `Mixture({"web": (fields, 0.7), "books": (fields, 0.3)})`.

    A data set is a source, or a dict of sources; the rows of all have one spec. In a DataLoader each data set is
    shuffled on its own and begins again at its own end. In any range of successive samples each has its share, to
    within three samples. An epoch of the loader has as many samples as the data sets have rows together.
    """

    # fmt: off
    @overload
    def __init__(self: "Mixture[Any]", parts: Untyped) -> None: ...
    @overload
    def __init__(self: "Mixture[dict[str, Spec]]", parts: Mapping[str, tuple[Fields, Weight]]) -> None: ...
    @overload
    def __init__(self: "Mixture[Spec]", parts: Mapping[str, tuple[Single, Weight]]) -> None: ...
    @overload
    def __init__(self: "Mixture", parts: Mapping[str, tuple[Unknown, Weight]]) -> None: ...
    # fmt: on
    def __init__(self, parts: Any) -> None:
        if not isinstance(parts, Mapping) or not parts:
            raise ArgumentError(
                f"`parts` (={parts!r}) must be a dict from a name to (data set, weight), and not empty."
            )
        self.names = [str(name) for name in parts]
        sources: list[Source] = []
        weights: list[Fraction] = []
        for name, part in parts.items():
            if not isinstance(part, tuple) or len(part) != 2:
                raise ArgumentError(f"`parts[{name!r}]` must be (data set, weight).")
            data, weight = part
            if (
                isinstance(weight, bool)
                or not isinstance(weight, int | float | Fraction | np.integer | np.floating)
                or not (0 < weight < math.inf)
            ):
                raise ArgumentError(
                    f"`parts[{name!r}]` has the weight {weight!r}; it must be a finite number above 0."
                )
            # 0.7 means seven tenths, not the nearest number with 53 bits.
            weights.append(weight if isinstance(weight, Fraction) else Fraction(str(weight)))
            sources.append(_as_source(data))
        self.shares = [weight / sum(weights) for weight in weights]
        for name, share in zip(self.names, self.shares, strict=True):
            if share * LARGEST_DENOMINATOR < 1:
                raise ArgumentError(
                    f"`parts[{name!r}]` has {float(share):.2g} of all weights; it must have at least 2**-31."
                )
        self.lengths = [len(source) for source in sources]
        self._rows: Source[Any] = concatenate(sources)

    @property
    def spec(self) -> RowSpec_co:
        return self._rows.spec  # type: ignore[no-any-return]

    @property
    def unwrapped(self) -> Source[RowSpec_co]:
        return self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, rows: Rows, out: Sequence[Array]) -> None:
        self._rows.read(rows, out)


def _as_source(data: Any) -> Source:
    inside = data.values() if isinstance(data, Mapping) else [data]
    if any(isinstance(value, Mixture) for value in inside):
        raise ArgumentError("a Mixture cannot be part of a Mixture; mix its parts one by one.")
    return as_rows(data)
