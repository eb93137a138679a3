"""Decoding of encoded images: their headers, and the rows of pixels that are needed."""

from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.sources.byte_rows import Buffer
from loaderx.sources.extras import require

from . import jpeg, pillow
from .field import MODES, Encoded

# Libraries that Pillow decodes by, and whose results are not exactly defined.
LIBRARIES = ("libjpeg_turbo", "webp")
# Orientations in EXIF data: those whose pixels begin at the right edge, at the lower one, and run down, not across.
FROM_RIGHT, FROM_BELOW, DOWNWARDS = (2, 3, 7, 8), (3, 4, 6, 7), (5, 6, 7, 8)


@dataclass(frozen=True)
class Header:
    """Header of an encoded image: the size of the upright image, and by which factors it can be decoded smaller.

    format       as Pillow names its modules
    orientation  how the pixels of the file are turned, as in EXIF data; 1 is upright
    markers      what the markers of a JPEG file say
    """

    height: int
    width: int
    factors: tuple[int, ...] = (1,)
    format: str = field(default="", repr=False)
    orientation: int = field(default=1, repr=False)
    markers: jpeg.Markers | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Decoded:
    """Decoded rows of an upright image, reduced by a factor: `pixels[0]` is row `first` of the reduced image.

    A reduced image has ceil(height / factor) rows and ceil(width / factor) columns.
    """

    pixels: NDArray[Any]
    first: int = 0


def read_header(data: Buffer, encoded: Encoded) -> Header:
    """Read the header of an image; raise DataError if it is damaged or has too many pixels."""
    kind = pillow.format_of(data)
    if kind == "Jpeg":
        markers = jpeg.read_markers(data)
        _check_pixels(markers.height, markers.width, encoded)
        return _upright(
            markers.height, markers.width, kind, markers.orientation, markers.factors, markers
        )
    height, width = pillow.size_of(data, kind)
    _check_pixels(height, width, encoded)
    return _upright(height, width, kind, pillow.orientation_of(data, kind))


def _check_pixels(height: int, width: int, encoded: Encoded) -> None:
    if height < 1 or width < 1:
        raise DataError(f"the image has no pixels: it is {height} high and {width} wide.")
    if height * width > encoded.max_pixels:
        raise DataError(
            f"the image has {height} x {width} = {height * width:,} pixels, and the limit is {encoded.max_pixels:,}. "
            f"If that is intended, raise the limit: Encoded(max_pixels={height * width})."
        )


def _upright(
    height: int,
    width: int,
    kind: str,
    orientation: int,
    factors: tuple[int, ...] = (1,),
    markers: jpeg.Markers | None = None,
) -> Header:
    # A reduced image ends with a row made of fewer rows. Turned, it would begin with it, and all be out of place.
    if orientation in FROM_BELOW:
        factors = tuple(factor for factor in factors if height % factor == 0)
    if orientation in FROM_RIGHT:
        factors = tuple(factor for factor in factors if width % factor == 0)
    if orientation in DOWNWARDS:
        height, width = width, height
    return Header(height, width, factors, kind, orientation, markers)


def decode(
    data: Buffer,
    header: Header,
    encoded: Encoded,
    rows: tuple[int, int] | None = None,
    factor: int = 1,
    *,
    stop_early: bool = False,
) -> Decoded:
    """Decode at least the `rows` (first, stop) of an image that is reduced by one of the factors of its header.

    rows        None is all rows. JPEG files with restart markers are decoded in these rows only
    stop_early  decode JPEG files without restart markers only down to the last of `rows`. Most damage is not noticed
                then, so this is for images that have been decoded whole before

    Raise DataError if the image is damaged. Alpha is dropped if the mode has none, and 255 if the image has none. Grey
    values of 16 bits become their upper 8; those of 1 bit are 0 and 1 in mode "P", and 0 and 255 in others. Grey of
    JPEG is the brightness in the file, which differs by rounding from that of its colours.
    """
    if factor not in header.factors:
        raise ArgumentError(f"`factor` (={factor}) must be one of {header.factors}.")
    height = -(-header.height // factor)
    if rows is not None and not 0 <= rows[0] < rows[1] <= height:
        raise ArgumentError(f"`rows` (={rows}) must be rows (first, stop) of {height}.")
    orientation, markers = header.orientation, header.markers
    if markers is not None:
        jpeg.check_scans(data, markers)
    first = 0
    if markers is not None and _by_simplejpeg(markers, encoded):
        if rows is not None and orientation in FROM_BELOW:
            rows = height - rows[1], height - rows[0]
        if orientation in DOWNWARDS:
            rows = None
        pixels, first = jpeg.decode_jpeg(data, markers, encoded.mode, rows, factor, stop_early)
    else:
        pixels = pillow.decode_by_pillow(data, header.format, encoded.mode, factor)
        sides = (header.height, header.width)[:: -1 if orientation in DOWNWARDS else 1]
        if pixels.shape[:2] != tuple(-(-side // factor) for side in sides):
            raise DataError(jpeg.OTHER_IMAGE)
    if orientation != 1:
        if orientation in FROM_BELOW and orientation not in DOWNWARDS:
            first = height - first - len(pixels)
        pixels = _turned(pixels, orientation)
    if encoded.mode == "I;16":
        pixels = pixels.astype(np.uint16, copy=False)
    return Decoded(pixels, first)


def _by_simplejpeg(markers: jpeg.Markers, encoded: Encoded) -> bool:
    channels = MODES[encoded.mode][0] or 1
    return (
        markers.simple
        and jpeg.library() is not None
        and markers.height * markers.width * channels < jpeg.MOST_BYTES
    )


def _turned(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Return pixels upright."""
    shape = pixels.shape
    if pixels.ndim == 3:
        # As elements of three bytes they are copied in less than half of the time.
        pixels = pixels.view(np.dtype((np.void, shape[2])))[..., 0]
    if orientation in FROM_BELOW:
        pixels = pixels[::-1]
    if orientation in FROM_RIGHT:
        pixels = pixels[:, ::-1]
    if orientation in DOWNWARDS:
        pixels = pixels.T
    pixels = np.ascontiguousarray(pixels)
    return pixels if len(shape) == 2 else pixels.view(np.uint8).reshape(*pixels.shape, shape[2])


def decoder_description() -> str:
    """Return the names and the versions of the libraries that decode images."""
    parts = [] if jpeg.library() is None else [f"simplejpeg {metadata.version('simplejpeg')}"]
    features = require("PIL.features", "images", "decoding of images")
    versions = {name: features.version(name) for name in LIBRARIES}
    linked = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return ", ".join([*parts, f"Pillow {features.version('pil')} ({linked})"])
