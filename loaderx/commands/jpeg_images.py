"""JPEG images of `convert --jpeg`: kept without loss where that is possible, and encoded anew otherwise."""

import io
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError
from loaderx.sources.byte_rows import Buffer
from loaderx.sources.encoded import pillow
from loaderx.sources.encoded.decoding import Header, decode, read_header
from loaderx.sources.encoded.field import Encoded
from loaderx.sources.encoded.restarts import has_restart_rows, with_restart_rows

from .terminal import required

# An image is decoded at 1/2, 1/4 or 1/8 if it is then still so many times larger than it will be. As Pillow's
# `thumbnail`: the result hardly differs from that of all pixels.
LEAST_FACTOR = 2
# Modes of Pillow whose opacity JPEG would lose, and those whose values may be labels.
WITH_ALPHA = ("RGBA", "RGBa", "LA", "La", "PA")
GREY = ("1", "L")
# Modes of fields of pictures. Fields of other modes are never encoded anew: a mask must not lose a label.
PICTURES = ("RGB", "L")


class Kind(IntEnum):
    """What was done with an image."""

    MARKED = 0
    COPIED = 1
    SHRUNK = 2
    REWRITTEN = 3
    CONVERTED = 4
    GREY_KEPT = 5
    KEPT = 6

    @property
    def words(self) -> str:
        """Description for the user."""
        return WORDS[self]


WORDS = {
    Kind.MARKED: "kept without loss, with restart markers added",
    Kind.COPIED: "copied, with the restart markers that they had",
    Kind.SHRUNK: "shrunk to --max-side and encoded anew",
    Kind.REWRITTEN: "encoded anew: progressive and other unusual JPEG files",
    Kind.CONVERTED: "encoded anew: files of other formats",
    Kind.GREY_KEPT: "copied: grey files of other formats, which may be masks; --mode RGB or L makes them JPEG",
    Kind.KEPT: "copied: files with alpha, a palette or 16 bits, and masks",
}


@dataclass(frozen=True)
class JpegOptions:
    """Quality of images that are encoded anew, the limit for their longer side, and whether all are pictures."""

    quality: int
    max_side: int | None
    no_masks: bool

    def __call__(self, data: Buffer, encoded: Encoded) -> tuple[Buffer, Kind]:
        """Return an image as it is stored, after a check that it can be decoded. Raise DataError if it cannot."""
        header = read_header(data, encoded)
        found, kind = data, self._kind(data, header, encoded)
        if kind == Kind.MARKED:
            assert header.markers is not None
            marked = with_restart_rows(data, header.markers)
            found, kind = (data, Kind.REWRITTEN) if marked is None else (marked, kind)
        if kind == Kind.REWRITTEN and encoded.mode not in PICTURES:
            kind = Kind.KEPT
        if kind in (Kind.SHRUNK, Kind.REWRITTEN, Kind.CONVERTED):
            return self._encoded(data, header, encoded), kind
        # Damage is noticed, as far as it can be, when all of the compressed bytes are read.
        header = read_header(found, encoded)
        decode(found, header, encoded, factor=max(header.factors))
        return found, kind

    def _kind(self, data: Buffer, header: Header, encoded: Encoded) -> Kind:
        """Return what can be done with an image by its header."""
        is_picture = encoded.mode in PICTURES
        if header.markers is None:
            image = pillow.open_image(data, header.format)
            if image.mode in GREY and is_picture and not self.no_masks:
                return Kind.GREY_KEPT
            deep = image.mode == "P" or image.mode.startswith("I")
            if deep or image.mode in WITH_ALPHA or "transparency" in image.info or not is_picture:
                return Kind.KEPT
            return Kind.SHRUNK if self._is_large(header) else Kind.CONVERTED
        if is_picture and self._is_large(header):
            return Kind.SHRUNK
        return Kind.COPIED if has_restart_rows(header.markers) else Kind.MARKED

    def _is_large(self, header: Header) -> bool:
        return self.max_side is not None and max(header.height, header.width) > self.max_side

    def _encoded(self, data: Buffer, header: Header, encoded: Encoded) -> bytes:
        """Return an image that is shrunk, if it is large, upright and encoded by Pillow."""
        image = pillow.open_image(data, header.format)
        # Grey stays grey, which a loader repeats for each colour.
        mode = "L" if image.mode in GREY else encoded.mode
        profile = image.info.get("icc_profile") if image.mode in PICTURES else None
        factor, size = self._size(header)
        usual = Encoded(mode=mode, max_pixels=encoded.max_pixels)
        pixels = decode(data, header, usual, None, factor).pixels
        # The last pixels of a reduced image are of fewer.
        part = header.width / factor, header.height / factor
        return _written(pixels, part, size, self.quality, profile)

    def _size(self, header: Header) -> tuple[int, tuple[int, int]]:
        """Return the factor by which an image is decoded smaller, and its size (width, height)."""
        if not self._is_large(header):
            return 1, (header.width, header.height)
        assert self.max_side is not None
        longer = max(header.height, header.width)
        most = longer // (LEAST_FACTOR * self.max_side)
        factor = max((one for one in header.factors if one <= most), default=1)
        # Rounded to the nearest, and never 0.
        width, height = (
            max(1, (2 * side * self.max_side + longer) // (2 * longer))
            for side in (header.width, header.height)
        )
        return factor, (width, height)


def _written(
    pixels: NDArray[np.uint8],
    part: tuple[float, float],
    size: tuple[int, int],
    quality: int,
    profile: bytes | None,
) -> bytes:
    """Return the upper left part of pixels, scaled to a size, as a JPEG file. Both are (width, height)."""
    library = required("PIL.Image", "images", "writing JPEG images")
    image = library.fromarray(pixels)
    if image.size != size:
        image = image.resize(size, library.Resampling.LANCZOS, (0, 0, *part))
    file = io.BytesIO()
    try:
        image.save(
            file,
            "JPEG",
            quality=quality,
            subsampling="4:2:0",
            restart_marker_rows=1,
            icc_profile=profile,
        )
    except (OSError, ValueError) as error:
        # More than 65,500 pixels on a side, for example.
        raise DataError(
            f"{image.width} x {image.height} pixels cannot be encoded as JPEG: {error}. --max-side shrinks them."
        ) from error
    return file.getvalue()
