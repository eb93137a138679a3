"""`pipeline`: a chain of transforms as a function of an array of samples, without a loader."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.sources.located import located_in
from loaderx.spec import Spec, check_dtype, plain_array

from .chain import Chain
from .entries import chains


class DirectPipeline:
    """Transforms to be called on arrays of samples; compiled at the first call for their shape and dtype."""

    def __init__(self, transforms: list[Any], seed: int) -> None:
        self._transforms = list(transforms)
        self._seed = seed
        self._chains: dict[Spec, Chain] = {}

    def __call__(self, samples: Any, *, positions: Any = None) -> NDArray[Any]:
        """The transformed samples.

        `positions` are the places in a stream that samples draw their random numbers for; without them 0, 1, 2, ...
        """
        given = plain_array(samples, "`samples`")
        if given.ndim == 0 or len(given) == 0:
            raise ArgumentError(
                f"`samples` must be an array of at least one sample, not of shape {given.shape}."
            )
        check_dtype(given.dtype, "`samples`")
        rows = np.ascontiguousarray(given, given.dtype.newbyteorder("="))
        places = np.arange(len(rows)) if positions is None else np.asarray(positions)
        if places.shape != (len(rows),) or places.dtype.kind not in "iu" or places.min() < 0:
            raise ArgumentError(
                f"`positions` (={positions!r}) must be {len(rows)} integers of at least 0, one for each sample."
            )
        places = np.ascontiguousarray(places, np.int64)
        chain = self.chain(Spec(rows.shape[1:], rows.dtype), rows[0])
        located = located_in(rows)
        for phase, step in enumerate(chain.phases):
            if phase == 0 and not step.segments:
                continue
            out = np.empty((len(rows), *step.output.shape), step.output.dtype)
            chain.run(phase, 0, int(places[0]), places, located, rows, out)
            rows, located = out, located_in(out)
        # Never the caller's own array.
        return rows.copy() if np.may_share_memory(rows, given) else rows

    def chain(self, spec: Spec, sample: NDArray[Any]) -> Chain:
        """The compiled chain for samples of `spec`."""
        if spec not in self._chains:
            # A copy: a view would keep all samples of the first call for as long as this lives.
            first = np.array(sample)
            fields = {"data": (spec, lambda: first)}
            found = chains(self._transforms, fields, self._seed)
            if "data" not in found:
                raise ArgumentError(
                    "`transforms` of a pipeline give one array; Views are for a DataLoader."
                )
            self._chains[spec] = found["data"]
        return self._chains[spec]

    def __reduce__(self) -> tuple[Any, ...]:
        return DirectPipeline, (self._transforms, self._seed)

    def _repr_html_(self) -> str:
        from loaderx.html import pipeline_html

        return pipeline_html(self)


def pipeline(transforms: list[Any], *, seed: int = 0) -> DirectPipeline:
    """Transforms as a function of an array of samples: `pipeline([T.RandomFlip()])(images)`."""
    if not isinstance(transforms, list | tuple):
        raise ArgumentError(f"`transforms` (={transforms!r}) must be a list of transforms.")
    if not 0 <= seed < 1 << 64:
        raise ArgumentError(f"`seed` (={seed!r}) must be from 0 to 2**64 - 1.")
    return DirectPipeline(transforms, seed)
