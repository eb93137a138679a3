"""`pipeline`: a chain of transforms as a function of one sample or an array of samples, without a loader.

Which of both an array is must never be guessed. Where the first ops are ops on images, its shape says it:

    (height, width)                         one image
    (height, width, channels)               one image, with 1 to 4 channels, or as many as `T.Channels` says
    (samples, height, width)                several images, if neither of the outer axes can be channels
    (samples, height, width, channels)      several images

and what may be channels first is refused. All other chains take several samples. `batch=True`, as a list of `positions`
does, and `batch=False` say it for any chain and any shape.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.sources.located import located_in
from loaderx.spec import Spec, check_dtype, plain_array
from loaderx.transforms.base import Transform
from loaderx.transforms.channels import USUAL, Channels
from loaderx.transforms.views import Views

from .chain import Chain
from .entries import as_op, chains


class DirectPipeline:
    """Transforms to be called on arrays of samples; compiled at the first call for their shape and dtype."""

    def __init__(self, transforms: list[Any], seed: int) -> None:
        self._transforms = list(transforms)
        self._seed = seed
        self._chains: dict[Spec, Chain] = {}

    def __call__(
        self, samples: Any, *, positions: Any = None, batch: bool | None = None
    ) -> NDArray[Any]:
        """Return the transformed samples, or the one sample.

        `positions` are the places in a stream that samples draw their random numbers for; without them 0, 1, 2, ...
        With `batch=True` the first axis counts samples, with `batch=False` this is one sample; by default the ops say
        it, as described above.
        """
        given = plain_array(samples, "`samples`")
        if batch not in (None, True, False):
            raise ArgumentError(f"`batch` (={batch!r}) must be True, False or None.")
        if batch is None and np.ndim(positions) > 0:
            batch = True
        if not (self._is_batch(given) if batch is None else batch):
            place = [0 if positions is None else positions]
            one: NDArray[Any] = self(given[None], positions=place, batch=True)[0]
            return one
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

    @functools.cached_property
    def _stated(self) -> tuple[int, ...] | None:
        return stated_channels(self._transforms)

    def _is_batch(self, samples: NDArray[Any]) -> bool:
        """Whether the first axis counts samples."""
        if samples.ndim not in (2, 3) or self._stated is None:
            return True
        channels = (*USUAL, *self._stated)
        if samples.ndim == 2 or samples.shape[2] in channels:
            return False
        if samples.shape[0] in channels[1:]:
            raise ArgumentError(
                f"`samples` of shape {samples.shape} are {samples.shape[0]} images of one channel, or one image with "
                "its channels first. Give batch=True for several images; one image has the shape (height, width, "
                "channels): np.moveaxis(image, 0, -1)."
            )
        return True

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

    def __repr__(self) -> str:
        return f"pipeline({self._transforms!r}, seed={self._seed})"

    def _repr_html_(self) -> str:
        from loaderx.html import pipeline_html

        return pipeline_html(self)


def stated_channels(ops: Sequence[Any]) -> tuple[int, ...] | None:
    """The numbers of channels that are stated, if the samples must be images; None if they may be anything."""
    stated: tuple[int, ...] = ()
    for given in ops:
        op = given if isinstance(given, Views) else as_op(given)
        if isinstance(op, Channels):
            stated += op.numbers
        elif isinstance(op, Transform) and op.takes_images:
            return stated
        # What comes out of any other op may be of another kind than what goes in.
        elif not (isinstance(op, Transform) and (op.keeps_axes or op.in_place)):
            break
    return stated or None


def pipeline(transforms: list[Any], *, seed: int = 0) -> DirectPipeline:
    """Transforms as a function of samples: `pipeline([T.RandomFlip()])(images)`, also of one image."""
    if not isinstance(transforms, list | tuple):
        raise ArgumentError(f"`transforms` (={transforms!r}) must be a list of transforms.")
    if not 0 <= seed < 1 << 64:
        raise ArgumentError(f"`seed` (={seed!r}) must be from 0 to 2**64 - 1.")
    return DirectPipeline(transforms, seed)
