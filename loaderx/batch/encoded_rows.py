"""Rows with encoded images: read, decoded by the heads of their chains, and replaced where they are damaged."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaderx.compiler.head import Head
from loaderx.compiler.points_head import PointsHead
from loaderx.errors import DataError
from loaderx.kernels.keys import derive_key
from loaderx.kernels.random import REPLACEMENT
from loaderx.sources import Source
from loaderx.sources.encoded.decoding import Header
from loaderx.sources.encoded.source import EncodedImage

OnError: TypeAlias = Literal["raise", "replace"]
ON_ERROR = ("raise", "replace")
# Errors of a row that another one can replace: damaged data, and files that are gone.
DAMAGES = (DataError, OSError)
# So many damaged rows one after the other are not an accident.
MOST_ATTEMPTS = 100
# Rows that are logged: a data set may have any number of damaged ones.
MOST_LOGGED = 100
logger = logging.getLogger("loaderx")
Array = NDArray[Any]


class Replacement:
    """Choice of rows in place of damaged ones: a function of the seed and the position, so the same on every host."""

    def __init__(self, seed: int, rows: int) -> None:
        self._key = derive_key(seed, REPLACEMENT)
        self._rows = rows
        self._logged: set[int] = set()

    def row(self, position: int, attempt: int) -> int:
        """Return the row to try at a position after `attempt` others."""
        return derive_key(self._key, position, attempt) % self._rows

    def log(self, row: int, new: int, error: Exception) -> None:
        """Log that a row is damaged, once."""
        if row in self._logged or len(self._logged) == MOST_LOGGED:
            return
        self._logged.add(row)
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", []))
        logger.warning("row %d is replaced by row %d: %s%s", row, new, error, notes)


class EncodedReader:
    """Reader of a source some of whose columns are encoded images.

    `heads` are the heads of a column, one for each field that is made from it, `points` those of columns of boxes and
    keypoints, and `origins` the names of the columns.
    """

    def __init__(
        self,
        source: Source,
        heads: Mapping[int, Sequence[Head]],
        points: Mapping[int, Sequence[PointsHead]],
        origins: Mapping[str, int],
        replacement: Replacement | None,
    ) -> None:
        self._source, self._heads, self._points, self._origins = source, heads, points, origins
        self._replacement = replacement

    def read(
        self,
        rows: NDArray[np.int64],
        positions: NDArray[np.int64],
        columns: Sequence[Array | None],
        samples: Mapping[Head | PointsHead, Array],
    ) -> NDArray[np.int64]:
        """Read rows: encoded images and what moves with them into the `samples` of their heads, others into `columns`.

        Return the rows that were read: the given ones, unless damaged rows are replaced. Points that follow images are
        read into `columns`, too.
        """
        try:
            self._read(rows, positions, columns, samples)
            return rows
        except DAMAGES:
            if self._replacement is None:
                raise
        found = rows.copy()
        for place in range(len(rows)):
            one = slice(place, place + 1)
            own = [None if column is None else column[one] for column in columns]
            decoded = {head: out[one] for head, out in samples.items()}
            found[place] = self._read_any(int(rows[place]), positions[one], own, decoded)
        return found

    def _read_any(
        self,
        row: int,
        positions: NDArray[np.int64],
        columns: Sequence[Array | None],
        samples: Mapping[Head | PointsHead, Array],
    ) -> int:
        """Read a row, or one in its place; return which."""
        assert self._replacement is not None
        first: Exception | None = None
        for attempt in range(MOST_ATTEMPTS):
            tried = self._replacement.row(int(positions[0]), attempt) if attempt else row
            try:
                self._read(np.array([tried]), positions, columns, samples)
            except DAMAGES as error:
                first = first or error
                continue
            if first is not None:
                self._replacement.log(row, tried, first)
            return tried
        assert first is not None
        first.add_note(f"loaderx: {MOST_ATTEMPTS - 1} rows in place of row {row} are damaged, too")
        raise first

    def _read(
        self,
        rows: NDArray[np.int64],
        positions: NDArray[np.int64],
        columns: Sequence[Array | None],
        samples: Mapping[Head | PointsHead, Array],
    ) -> None:
        read = [np.empty(len(rows), np.object_) if out is None else out for out in columns]
        self._source.read(rows, read)
        images: dict[int, list[EncodedImage]] = {
            number: read[number].tolist() for number in self._heads
        }
        headers = {number: [image.header() for image in own] for number, own in images.items()}
        for number, heads in self._heads.items():
            for head in heads:
                if head.alongside is not None:
                    lead = self._origins[head.alongside]
                    _check_sizes(images[number], headers[number], images[lead], headers[lead])
        for number, heads in self._heads.items():
            for head in heads:
                head.run(images[number], headers[number], positions, samples[head])
        for number, followers in self._points.items():
            for follower in followers:
                lead = self._origins[follower.alongside]
                follower.run(
                    read[number], images[lead], headers[lead], positions, samples[follower]
                )


def _check_sizes(
    images: Sequence[EncodedImage],
    headers: Sequence[Header],
    leads: Sequence[EncodedImage],
    lead_headers: Sequence[Header],
) -> None:
    """Raise for images of other sizes than those that they move with."""
    for image, own, lead, other in zip(images, headers, leads, lead_headers, strict=True):
        if (own.height, own.width) != (other.height, other.width):
            turned = (
                ", upright as EXIF data says" if {own.orientation, other.orientation} != {1} else ""
            )
            raise DataError(
                f"{image.where} is {own.height} x {own.width} pixels, and {lead.where} is {other.height} x "
                f"{other.width}{turned}; images that move together must have one size."
            )
