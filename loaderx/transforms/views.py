"""Views and MultiCrop: several views of one sample, each augmented in its own way and in a field of its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from loaderx.display.reprs import ReprFromArguments
from loaderx.errors import ArgumentError

from .base import is_integer
from .spatial import RandomResizedCrop, Scaling


class Views(ReprFromArguments):
    """Several views, as the last entry of a list of transforms: the sample so far goes through several lists of ops.

    `Views(2, ops)` gives the fields `image_0` and `image_1` in place of `image`, and `Views([ops, others])` one for
    each list. With `names` they are called `image_<name>`.
    """

    def __init__(
        self, views: int | Sequence[Any], ops: Any = None, *, names: Sequence[str] | None = None
    ) -> None:
        if isinstance(views, list | tuple):
            if ops is not None or not all(isinstance(view, list | tuple) for view in views):
                raise ArgumentError(
                    f"`views` (={views!r}) must be a number followed by `ops`, or a list of lists of transforms."
                )
            self.views = [list(view) for view in views]
        else:
            if not isinstance(views, int | np.integer) or views < 1:
                raise ArgumentError(f"`views` (={views!r}) must be an integer of at least 1.")
            if not isinstance(ops, list | tuple):
                raise ArgumentError(f"`ops` (={ops!r}) must be a list of transforms.")
            self.views = [list(ops) for _ in range(views)]
        if not self.views:
            raise ArgumentError(f"`views` (={views!r}) must be at least one.")
        self.names = [str(number) for number in range(len(self.views))]
        if names is not None:
            self.names = [str(name) for name in names]
            if len(self.names) != len(self.views) or len(set(self.names)) < len(self.names):
                raise ArgumentError(
                    f"`names` (={names!r}) must be {len(self.views)} different names, one for each view."
                )


class MultiCrop(Views):
    """Multi-crop views: `counts[k]` random crops that cover `scales[k]` of the image, as `sizes[k]` pixels.

    Every crop then goes through `ops`, with draws of its own. DINO uses two large and several small ones.
    """

    def __init__(
        self,
        sizes: Sequence[int | tuple[int, int]] = (224, 96),
        counts: Sequence[int] = (2, 6),
        scales: Sequence[tuple[float, float]] = ((0.4, 1.0), (0.05, 0.4)),
        ops: Sequence[Any] = (),
        *,
        interpolation: Scaling = "bilinear",
        antialias: bool = True,
    ) -> None:
        if not len(sizes) == len(counts) == len(scales):
            raise ArgumentError(
                f"`sizes`, `counts` and `scales` must have the same length, got {len(sizes)}, {len(counts)} and "
                f"{len(scales)}."
            )
        views: list[Any] = []
        for size, count, scale in zip(sizes, counts, scales, strict=True):
            if not is_integer(count, 0):
                raise ArgumentError(f"`counts` (={counts!r}) must be integers of at least 0.")
            crop = RandomResizedCrop(
                size, scale=scale, interpolation=interpolation, antialias=antialias
            )
            views += [[crop, *ops]] * int(count)
        super().__init__(views)
