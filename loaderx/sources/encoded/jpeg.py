"""JPEG: headers by a kernel, and pixels by simplejpeg, of those rows only that are needed."""

import functools
import importlib
import math
import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError
from loaderx.kernels import jpeg_markers as kernels
from loaderx.sources.byte_rows import Buffer

BLOCK = 8
# Reductions of the cosine transform by halves, which make decoding faster; others make it slower.
FACTORS = (1, 2, 4, 8)
# simplejpeg names a size, and libjpeg chooses the smallest reduction that is not smaller: for narrow images that is
# another one of the same size.
LEAST_SIDE = 8
# Sampling of colours that simplejpeg decodes: as many samples of the brightness, across and down.
SAMPLINGS = frozenset(((1, 1), (2, 1), (1, 2), (2, 2), (4, 1)))
# Usual files have ten scans. Without a limit a small file can take minutes.
MOST_SCANS = 100
# Numbers of bytes are of 32 bits in simplejpeg.
MOST_BYTES = 1 << 31
SPACES = {"RGB": ("RGB", 3), "RGBA": ("RGBA", 4)}
GREY = ("GRAY", 1)
# The end of the warning about bytes that were not decoded. Without it, only meaningless bytes are noticed.
# [Of damage in the decoded rows: 20 to 87 percent when all of a file is decoded, 0.5 percent when it is shortened]
LEFT_OVER = "extraneous bytes before marker 0xd9"
OTHER_IMAGE = "the image is of another size than its header."
REASONS = {
    kernels.CUT: "it ends within its header",
    kernels.NO_MARKER: "there is no marker where one must be, at byte {place}",
    kernels.BAD_LENGTH: "its header has a segment of a wrong length at byte {place}",
    kernels.TWO_FRAMES: "its header gives the size twice",
    kernels.NO_SIZE: "its height, width or number of components is 0",
    kernels.NO_FRAME: "its pixels begin before its header gives their size",
    kernels.NO_SCAN: "it ends before its pixels",
}


class Markers(NamedTuple):
    """Header of a JPEG file, as in `kernels.HEADER`."""

    status: int
    place: int
    height: int
    width: int
    frame: int
    precision: int
    components: int
    across: int
    down: int
    regular: int
    interval: int
    odd: int
    orientation: int
    xmp: int
    xmp_end: int
    scan_components: int
    height_place: int
    scan: int

    @property
    def sequential(self) -> bool:
        """Whether all values follow one another, row by row."""
        return self.frame < 2 and self.scan_components == self.components

    @property
    def simple(self) -> bool:
        """Whether simplejpeg decodes it."""
        return (
            self.frame <= 2
            and self.precision == 8
            and not self.odd
            and (
                self.components == 1
                or (
                    self.components == 3
                    and self.regular == 1
                    and (self.across, self.down) in SAMPLINGS
                )
            )
        )

    @property
    def factors(self) -> tuple[int, ...]:
        """The factors by which it can be decoded smaller."""
        transformed = self.frame <= 2 and min(self.height, self.width) >= LEAST_SIDE
        return FACTORS if transformed else (1,)


@functools.cache
def library() -> Any:
    """Return the module simplejpeg, or None if it is not installed."""
    try:
        return importlib.import_module("simplejpeg")
    except ModuleNotFoundError:
        return None


def bytes_of(data: Buffer) -> NDArray[np.uint8]:
    """Return bytes as an array, always read-only: kernels are compiled for one kind of arrays."""
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


def read_markers(data: Buffer) -> Markers:
    """Read the header of a JPEG file, with its orientation; raise DataError if it is damaged."""
    out = np.empty(len(kernels.HEADER), np.int64)
    kernels.read_markers(bytes_of(data), out)
    found = Markers._make(out.tolist())
    if found.status != kernels.FINE:
        reason = REASONS[found.status].format(place=found.place)
        raise DataError(f"the JPEG file is damaged: {reason}.")
    if found.orientation == 0:
        found = found._replace(orientation=_xmp_orientation(data, found))
    return found


def _xmp_orientation(data: Buffer, markers: Markers) -> int:
    if markers.xmp == 0:
        return 1
    text = bytes(data[markers.xmp : markers.xmp_end])
    found = re.search(rb'tiff:Orientation(?:="|>)([1-8])', text)
    return int(found[1]) if found else 1


def check_scans(data: Buffer, markers: Markers) -> None:
    """Raise DataError if a file has so many scans that decoding would not end."""
    if markers.sequential:
        return
    count = np.empty(1, np.int64)
    kernels.count_scans(bytes_of(data), markers.scan, MOST_SCANS, count)
    if count[0] > MOST_SCANS:
        raise DataError(
            f"the JPEG file has more than {MOST_SCANS} scans, which take minutes to decode."
        )


def decode_jpeg(
    data: Buffer,
    markers: Markers,
    mode: str,
    rows: tuple[int, int] | None,
    factor: int,
    stop_early: bool,
) -> tuple[NDArray[np.uint8], int]:
    """Decode a file by simplejpeg; return pixels and the number of the first row, see `decoding.decode`."""
    if mode not in ("L", *SPACES) and markers.components != 1:
        raise DataError(f"the JPEG file has colours, so it cannot be of mode {mode!r}.")
    part = _rows_of_file(data, markers, rows, factor, stop_early) if rows else None
    if rows is None or part is None:
        return _decode_file(data, markers, mode, markers.height, factor, False), 0
    file, top, height = part
    pixels = _decode_file(file, markers, mode, height, factor, not markers.interval)
    first, stop = rows
    return pixels[first - top // factor : stop - top // factor], first


def _rows_of_file(
    data: Buffer, markers: Markers, rows: tuple[int, int], factor: int, stop_early: bool
) -> tuple[NDArray[np.uint8], int, int] | None:
    """Return a file of the blocks that are needed for rows, with its first row and its height; None if all are."""
    if not markers.sequential or not (markers.interval or stop_early):
        return None
    down, across = BLOCK * markers.down, BLOCK * markers.across
    # libjpeg mixes colours of two rows, where they have half as many, unless reducing the brightness made them equal.
    mixed = markers.down == 2 and not (markers.across == 2 and factor > 1)
    top = max(rows[0] * factor - mixed, 0)
    bottom = min(rows[1] * factor + mixed, markers.height)
    if not markers.interval:
        height = -(-bottom // down) * down
        return (_shortened(data, markers, height), 0, height) if height < markers.height else None
    per_row = -(-markers.width // across)
    intervals = -(-per_row * -(-markers.height // down) // markers.interval)
    # The fewest rows of blocks that are whole intervals.
    divisor = math.gcd(markers.interval, per_row)
    unit, per_unit = down * markers.interval // divisor, per_row // divisor
    first, stop = top // unit, -(-bottom // unit)
    top, bottom = first * unit, min(stop * unit, markers.height)
    if bottom - top == markers.height:
        return None
    kept = first * per_unit, min(stop * per_unit, intervals)
    return _spliced(data, markers, intervals, *kept, bottom - top), top, bottom - top


def _spliced(
    data: Buffer, markers: Markers, intervals: int, first: int, stop: int, height: int
) -> NDArray[np.uint8]:
    """Return a file of some intervals between restart markers."""
    out = np.empty(len(data) + 2, np.uint8)
    result = np.empty(2, np.int64)
    kernels.splice_intervals(
        bytes_of(data),
        markers.scan,
        intervals,
        first,
        stop,
        markers.height_place,
        height,
        out,
        result,
    )
    status, size = result.tolist()
    if status != kernels.FINE:
        what = "the file ends in" if status == kernels.CUT else "a wrong marker ends"
        raise DataError(
            f"the JPEG file is damaged: {what} part {size + 1} of {intervals} between restart markers."
        )
    return out[:size]


def _shortened(data: Buffer, markers: Markers, height: int) -> NDArray[np.uint8]:
    """Return the file with a smaller height."""
    out = bytes_of(data).copy()
    out[markers.height_place] = height >> 8
    out[markers.height_place + 1] = height & 255
    return out


def _decode_file(
    file: Buffer | NDArray[np.uint8],
    markers: Markers,
    mode: str,
    height: int,
    factor: int,
    shortened: bool,
) -> NDArray[np.uint8]:
    space, channels = SPACES.get(mode, GREY)
    shape = -(-height // factor), -(-markers.width // factor)
    # Given, so that libjpeg cannot write more than the header says.
    buffer = np.empty(shape[0] * shape[1] * channels, np.uint8)
    # Without a least size nothing is reduced.
    least = shape if factor > 1 else (0, 0)
    try:
        decoded = library().decode_jpeg(
            file, space, min_height=least[0], min_width=least[1], buffer=buffer
        )
        same = decoded.shape[:2] == shape
    except ValueError as error:
        # libjpeg reports the first warning only. If that is about the bytes below the last row that was asked for,
        # there was none about the rows above it.
        if not (shortened and str(error).endswith(LEFT_OVER)):
            raise DataError(f"the JPEG file is damaged: {error}.") from error
        same = True
    if not same:
        raise DataError(OTHER_IMAGE)
    return buffer.reshape(*shape, channels) if channels > 1 else buffer.reshape(shape)
