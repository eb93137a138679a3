"""`pipeline`: a chain of transforms as a function of one sample or an array of samples, without a loader.

It never guesses whether an array is one sample or several. If the first ops are ops on images, the shape decides:

    (height, width)                         one image
    (height, width, channels)               one image, with 1 to 4 channels, or as many as `T.Channels` says
    (samples, height, width)                several images, if neither of the outer axes can be channels
    (samples, height, width, channels)      several images

and an array that may have its channels first is refused. All other chains expect several samples. `batch=True` and
`batch=False` decide for any chain and any shape; `rows` and a list of `positions` mean several samples.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels import gather
from loaderx.kernels.arguments import integers_in, out_problem, threads_problem
from loaderx.kernels.gathering import address_rows
from loaderx.kernels.row_layout import row_layout
from loaderx.sources.row_addresses import RowAddresses, addresses_of_rows
from loaderx.spec import Spec, check_dtype, plain_array
from loaderx.transforms.base import Transform
from loaderx.transforms.channels import USUAL, Channels
from loaderx.transforms.views import Views

from .chain import Chain
from .entries import as_op, chains


class Pipeline:
    """Pipeline of transforms, called on arrays of samples; compiled at the first call for a shape and dtype."""

    def __init__(self, transforms: list[Any], seed: int) -> None:
        self._transforms = list(transforms)
        self._seed = seed
        self._chains: dict[tuple[tuple[int, ...], np.dtype[Any]], Chain] = {}

    def __call__(
        self,
        samples: Any,
        *,
        rows: Any = None,
        positions: Any = None,
        out: NDArray[Any] | None = None,
        batch: bool | None = None,
        threads: int | None = None,
    ) -> NDArray[Any]:
        """Return the transformed samples, or the one sample.

        `rows` are indices of the samples to transform, which are read without a copy; negative ones count from the end.
        `positions` are the positions in a stream by which samples draw random numbers, by default 0, 1, 2, ... `out` is
        the C-contiguous array that the result is written to; without it a new one is made.

        With `batch=True` the first axis counts samples; with `batch=False` `samples` is one sample. By default the ops
        and the shape decide, as described above, and `rows` or a list of `positions` means several samples.

        Samples are divided among as many threads as Numba has (`numba.set_num_threads`), or among at most `threads`.
        The result does not depend on the number of threads.
        """
        given = plain_array(samples, "`samples`")
        if batch not in (None, True, False):
            raise ArgumentError(f"`batch` (={batch!r}) must be True, False or None.")
        if rows is not None and batch is False:
            raise ArgumentError(
                "`rows` are several samples, and `batch` (=False) means one; leave one of them out."
            )
        _refuse(threads_problem(threads))
        listed = rows is not None or (positions is not None and np.ndim(positions) > 0)
        if batch or (batch is None and (listed or self._is_batch(given))):
            return self._run(given, rows, positions, out, threads)
        places = None if positions is None else [positions]
        return self._run(given[None], None, places, out, threads, single=True)

    def _run(
        self,
        given: NDArray[Any],
        rows: Any,
        positions: Any,
        out: Any,
        threads: int | None,
        *,
        single: bool = False,
    ) -> NDArray[Any]:
        """Run an array of samples, or these rows of it, through the chain; with `single` return one sample."""
        if given.ndim == 0 or len(given) == 0:
            raise ArgumentError(
                f"`samples` must be an array of at least one sample, not of shape {given.shape}."
            )
        chain = self._chains.get((given.shape[1:], given.dtype))
        if chain is None:
            check_dtype(given.dtype, "`samples`")
            spec = Spec(given.shape[1:], given.dtype.newbyteorder("="))
            chain = self.chain(spec, given[0])
        count, addresses = len(given), None
        if rows is not None:
            addresses = _addresses(given, rows)
            count = len(addresses)
        places = _places(positions, count)
        shape, dtype = chain.output.shape, chain.output.dtype
        shape = shape if single else (count, *shape)
        if out is None:
            out = np.empty(shape, dtype)
        else:
            _refuse(out_problem(out, shape, dtype, {"samples": given}))
        first = chain.phases[0]
        array: NDArray[Any] | None = given
        if _rows_are_plain(given) and first.segments and not chain.needs_samples:
            if addresses is None:
                addresses = given.ctypes.data + np.arange(count) * given.strides[0]
            located, array = RowAddresses(addresses, hold=given), None
        else:
            if rows is None:
                array = np.ascontiguousarray(given, given.dtype.newbyteorder("="))
            else:
                array = gather(given, rows, threads=threads)
            located = addresses_of_rows(array)
        last = len(chain.phases) - 1
        for phase, step in enumerate(chain.phases):
            if phase == 0 and last > 0 and not step.segments:
                continue
            target = out[None] if single else out
            if phase < last:
                target = np.empty((count, *step.output.shape), step.output.dtype)
            chain.run(phase, 0, int(places[0]), places, located, array, target, threads)
            if phase < last:
                array, located = target, addresses_of_rows(target)
        result: NDArray[Any] = out if shape else out[()]
        return result

    @functools.cached_property
    def _stated(self) -> tuple[int, ...] | None:
        return stated_channels(self._transforms)

    def _is_batch(self, samples: NDArray[Any]) -> bool:
        """Return True if the first axis counts samples."""
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
        """Return the compiled chain for samples of `spec`."""
        known = self._chains.get((spec.shape, spec.dtype))
        if known is None:
            # A copy: a view would keep all samples of the first call alive.
            first = np.array(sample, spec.dtype, order="C")
            fields = {"data": (spec, lambda: first)}
            found = chains(self._transforms, fields, self._seed)
            if "data" not in found:
                raise ArgumentError(
                    "`transforms` of a pipeline give one array; Views are for a DataLoader."
                )
            known = self._chains[spec.shape, spec.dtype] = found["data"]
        return known

    def __reduce__(self) -> tuple[Any, ...]:
        return Pipeline, (self._transforms, self._seed)

    def __repr__(self) -> str:
        return f"pipeline({self._transforms!r}, seed={self._seed})"

    def _repr_html_(self) -> str:
        from loaderx.display.html import pipeline_html

        return pipeline_html(self)


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise ArgumentError(problem)


def _addresses(samples: NDArray[Any], rows: Any) -> NDArray[np.int64]:
    """Return the address of every row; negative ones count from the end."""
    numbers = integers_in(rows)
    if numbers is None or len(numbers) == 0:
        raise ArgumentError(f"`rows` (={rows!r}) must be at least one integer, along one axis.")
    found, misfit = np.empty(len(numbers), np.int64), np.empty(1, np.int64)
    address_rows(numbers, len(samples), samples.ctypes.data, samples.strides[0], found, misfit)
    if misfit[0] >= 0:
        place = int(misfit[0])
        raise IndexError(
            f"`rows[{place}]` (={numbers[place]}) is outside of `samples`, which are {len(samples)}."
        )
    return found


def _places(positions: Any, count: int) -> NDArray[np.int64]:
    """Return the position of every sample."""
    if positions is None:
        return np.arange(count)
    found = integers_in(positions) if np.ndim(positions) == 1 else None
    if found is None or len(found) != count or found.min() < 0:
        raise ArgumentError(
            f"`positions` (={positions!r}) must be {count} integers of at least 0, one for each sample."
        )
    return found


def _rows_are_plain(samples: NDArray[Any]) -> bool:
    """Return True if every row is C-contiguous, aligned and in native byte order."""
    flags = samples.flags
    if flags.c_contiguous and flags.aligned and samples.dtype.isnative:
        return True
    return row_layout(samples).offsets is None


def stated_channels(ops: Sequence[Any]) -> tuple[int, ...] | None:
    """Return the numbers of channels of `T.Channels`, if samples must be images; None if they may be anything."""
    stated: tuple[int, ...] = ()
    for given in ops:
        op = given if isinstance(given, Views) else as_op(given)
        if isinstance(op, Channels):
            stated += op.numbers
        elif isinstance(op, Transform) and op.takes_images:
            return stated
        # Any other op may change the kind of its samples.
        elif not (isinstance(op, Transform) and (op.keeps_axes or op.in_place)):
            break
    return stated or None


def pipeline(transforms: list[Any], *, seed: int = 0) -> Pipeline:
    """Return transforms as a function of an array of samples, of some of its rows, or of one image.

    >>> import numpy as np
    >>> import loaderx as lx
    >>> from loaderx import transforms as T
    >>> images = np.random.default_rng(0).integers(0, 256, (100, 40, 40, 3), np.uint8)
    >>> augment = lx.pipeline([T.RandomCrop(32), T.RandomFlip(), T.Normalize(0.5, 0.25)], seed=7)
    >>> batch = np.empty((4, 32, 32, 3), np.float32)
    >>> augment(images, rows=[5, 17, 5, -1], positions=[0, 1, 2, 3], out=batch) is batch
    True
    >>> augment(images[5]).shape
    (32, 32, 3)
    """
    if not isinstance(transforms, list | tuple):
        raise ArgumentError(f"`transforms` (={transforms!r}) must be a list of transforms.")
    if not 0 <= seed < 1 << 64:
        raise ArgumentError(f"`seed` (={seed!r}) must be from 0 to 2**64 - 1.")
    return Pipeline(list(transforms), seed)
