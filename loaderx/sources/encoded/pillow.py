"""Images that Pillow decodes: all formats but JPEG, and JPEG that simplejpeg does not decode."""

import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError
from loaderx.sources.byte_rows import Buffer
from loaderx.sources.extras import require

# The bytes a file begins with, and the format as Pillow names its modules. Formats are few: some others run programs.
MAGIC = (
    (b"\xff\xd8\xff", "Jpeg"),
    (b"\x89PNG\r\n\x1a\n", "Png"),
    (b"RIFF", "WebP"),
    (b"GIF8", "Gif"),
    (b"BM", "Bmp"),
    (b"II*\0", "Tiff"),
    (b"MM\0*", "Tiff"),
    *((b"P%d" % number, "Ppm") for number in range(1, 7)),
)
ORIENTATION_TAG = 0x0112
TIFF_WIDTH, TIFF_HEIGHT = 256, 257
# Bytes of a PNG file up to the end of its first chunk, and of a WebP file up to its size.
PNG_HEADER, WEBP_HEADER = 33, 30
# Bits that say that a WebP file has EXIF or XMP data.
WEBP_METADATA = 0x0C
TEXTS = (b"tEXt", b"zTXt", b"iTXt")
# Chunks of text in PNG files that can hold an orientation begin with these words.
EXIF_TEXTS = (b"Raw profile type exif\0", b"XML:com.adobe.xmp\0")
SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")


def format_of(data: Buffer) -> str:
    """Return the format of a file, which its first bytes tell."""
    head = bytes(data[:16])
    if not head:
        raise DataError("the file of the image is empty: it has 0 bytes.")
    for magic, name in MAGIC:
        if head.startswith(magic) and (name != "WebP" or head[8:12] == b"WEBP"):
            return name
    known = ", ".join(dict.fromkeys(name.upper() for _, name in MAGIC))
    raise DataError(
        f"the file is not an image of a known format ({known}): it begins with {head!r}."
    )


def open_image(data: Buffer, kind: str) -> Any:
    """Open an image, which reads its header.

    Not by `PIL.Image.open`, which warns above a limit of its own.
    """
    plugin = require(f"PIL.{kind}ImagePlugin", "images", f"decoding of {kind.upper()} images")
    return getattr(plugin, f"{kind}ImageFile")(io.BytesIO(data), "")


@contextmanager
def _errors_as_damage(kind: str) -> Iterator[None]:
    """Raise DataError for all errors of Pillow, which raises almost any exception on damaged files."""
    try:
        yield
    except (DataError, ModuleNotFoundError):
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise DataError(f"the {kind.upper()} file is damaged: {reason}.") from error


def size_of(data: Buffer, kind: str) -> tuple[int, int]:
    """Return the height and the width of the pixels of a file.

    PNG and WebP are not opened for that: Pillow would allocate memory for the pixels of WebP before the size is known.
    """
    with _errors_as_damage(kind):
        if kind == "Png":
            return _size_of_png(data)
        if kind == "WebP":
            return _size_of_webp(data)
        image = open_image(data, kind)
        if kind == "Tiff":
            # Pillow itself turns these upright when it decodes them.
            tags = image.tag_v2
            turned = tags.get(ORIENTATION_TAG, 1) in (5, 6, 7, 8)
            sides = (TIFF_WIDTH, TIFF_HEIGHT) if turned else (TIFF_HEIGHT, TIFF_WIDTH)
            return int(tags[sides[0]]), int(tags[sides[1]])
        return image.height, image.width


def _size_of_png(data: Buffer) -> tuple[int, int]:
    if len(data) < PNG_HEADER or data[12:16] != b"IHDR":
        raise ValueError("it ends within its header or has none")
    return _number(data, 20, 4, "big"), _number(data, 16, 4, "big")


def _size_of_webp(data: Buffer) -> tuple[int, int]:
    if len(data) < WEBP_HEADER:
        raise ValueError("it ends within its header")
    kind = bytes(data[12:16])
    if kind == b"VP8X":
        return _number(data, 27, 3) + 1, _number(data, 24, 3) + 1
    if kind == b"VP8L":
        sides = _number(data, 21, 4)
        return (sides >> 14 & 0x3FFF) + 1, (sides & 0x3FFF) + 1
    if kind == b"VP8 ":
        return _number(data, 28, 2) & 0x3FFF, _number(data, 26, 2) & 0x3FFF
    raise ValueError(f"it begins with an unknown part {kind!r}")


def orientation_of(data: Buffer, kind: str) -> int:
    """Return how the pixels of a file are turned, as in EXIF data."""
    with _errors_as_damage(kind):
        if kind == "WebP" and data[12:16] == b"VP8X" and data[20] & WEBP_METADATA:
            return _orientation(open_image(data, kind))
        return _orientation_of_png(data) if kind == "Png" else 1


def _orientation_of_png(data: Buffer) -> int:
    place, late = 8, False
    while place + 8 <= len(data):
        length, name = _number(data, place, 4, "big"), bytes(data[place + 4 : place + 8])
        if name == b"IDAT":
            late = True
        elif name == b"eXIf" or (
            name in TEXTS and bytes(data[place + 8 : place + 40]).startswith(EXIF_TEXTS)
        ):
            image = open_image(data, "Png")
            if late:
                image.load()  # reads what follows the pixels
            return _orientation(image)
        place += 12 + length
    return 1


def _check_pixels_of_png(data: Buffer) -> None:
    """Raise ValueError if the checksum of a part with pixels is wrong.

    Pillow does not compare them, and zlib's own one only if there is something after the last pixel. [Of 10,000 damaged
    files 120 had other pixels without a word; the check is a hundredth of the time of decoding]
    """
    view, place = memoryview(data), 8
    while place + 12 <= len(view):
        end = place + 8 + _number(data, place, 4, "big")
        if bytes(view[place + 4 : place + 8]) == b"IDAT" and (
            zlib.crc32(view[place + 4 : end]).to_bytes(4, "big") != view[end : end + 4]
        ):
            raise ValueError(f"the checksum of its part with pixels at byte {place} is wrong")
        place = end + 4


def _orientation(image: Any) -> int:
    try:
        # Not the method of PNG, which decodes all pixels.
        found = require("PIL.Image", "images", "decoding of images").Image.getexif(image)
        value = found.get(ORIENTATION_TAG, 1)
    except Exception:  # noqa: BLE001 - Pillow raises almost any exception on damaged EXIF data, and the pixels are fine.
        return 1
    return int(value) if value in range(1, 9) else 1


def decode_by_pillow(data: Buffer, kind: str, mode: str, factor: int) -> NDArray[Any]:
    """Decode the pixels of a file as they are there, not upright."""
    with _errors_as_damage(kind):
        if kind == "Png":
            _check_pixels_of_png(data)
        image = open_image(data, kind)
        if kind == "Jpeg":
            # Grey is the brightness in the file, as simplejpeg decodes it.
            image.draft(mode, (image.width // factor, image.height // factor))
        image.load()
        return _pixels(image, mode)


def _pixels(image: Any, mode: str) -> NDArray[Any]:
    """Return the pixels of an image; raise DataError if they do not fit into a mode."""
    own = image.mode
    if mode == "P" and own in ("P", "L"):
        return np.array(image)
    if mode == "P" and own == "1":
        return np.array(image.convert("L")) >> 7
    # As 32 bits by old releases of Pillow.
    deep = own in SIXTEEN_BITS or (own == "I" and image.format == "PNG")
    if mode == "I;16" and (deep or own == "L"):
        return np.array(image).astype(np.uint16)
    if mode in ("P", "I;16") or (own[0] in "IF" and not deep):
        raise DataError(
            f"the pixels of the file are of Pillow's mode {own!r}, which does not fit `Encoded(mode={mode!r})`."
        )
    if deep:
        return _from_sixteen_bits(image, mode)
    if mode != "RGBA":
        # Pillow would convert the colour that is transparent, too, and warn if there are several.
        image.info.pop("transparency", None)
    return np.array(image if own == mode else image.convert(mode))


def _from_sixteen_bits(image: Any, mode: str) -> NDArray[np.uint8]:
    """Return the upper bytes of grey pixels. Pillow would set all above 255 to 255."""
    values = np.array(image)
    grey = (values >> 8).astype(np.uint8)
    if mode == "L":
        return grey
    planes = [grey, grey, grey]
    if mode == "RGBA":
        transparent = image.info.get("transparency")
        planes.append(np.where(values == transparent, 0, 255).astype(np.uint8))
    return np.stack(planes, axis=-1)


def _number(data: Buffer, place: int, size: int, order: Literal["big", "little"] = "little") -> int:
    return int.from_bytes(data[place : place + size], order)
