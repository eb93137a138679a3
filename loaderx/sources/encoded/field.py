"""`Encoded`: the declaration of a field of encoded images."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.spec import Spec

Mode: TypeAlias = Literal["RGB", "L", "RGBA", "P", "I;16"]
# Channels and dtype of the pixels of a mode. Without channels an image is (height, width).
MODES: dict[str, tuple[int, type[np.generic]]] = {
    "RGB": (3, np.uint8),
    "L": (0, np.uint8),
    "RGBA": (4, np.uint8),
    "P": (0, np.uint8),
    "I;16": (0, np.uint16),
}
# The limit of Pillow, above which it calls an image a decompression bomb.
MOST_PIXELS = 178_956_970


@dataclass(frozen=True)
class Encoded:
    """Field of encoded images, such as JPEG, PNG or WebP files, of any sizes.

    field       name of the field, column or suffix in the container, where it has several
    mode        "RGB"; "L" for grey and "RGBA" for images with alpha; "P" for the labels of a mask: the indices of a
                palette or the values of a grey image, as they are; "I;16" for 16-bit values
    max_pixels  limit for the pixels of an image: a larger one is an error, and is not decoded
    """

    field: str | None = None
    mode: Mode = "RGB"
    max_pixels: int = MOST_PIXELS

    def __post_init__(self) -> None:
        if self.field is not None and not isinstance(self.field, str):
            raise ArgumentError(f"`field` (={self.field!r}) must be a name.")
        if self.mode not in MODES:
            raise ArgumentError(
                f"`mode` (={self.mode!r}) must be one of {', '.join(map(repr, MODES))}."
            )
        if isinstance(self.max_pixels, bool) or not isinstance(self.max_pixels, int):
            raise ArgumentError(f"`max_pixels` (={self.max_pixels!r}) must be an integer.")
        if self.max_pixels < 1:
            raise ArgumentError(f"`max_pixels` (={self.max_pixels}) must be at least 1.")

    def pixels(self, height: int, width: int) -> Spec:
        """Return the spec of a decoded image of this size."""
        channels, dtype = MODES[self.mode]
        return Spec((height, width, channels) if channels else (height, width), dtype)


@dataclass(frozen=True)
class EncodedSpec(Spec):
    """Spec of a row that is an encoded image: an object, whose size is known when it is read."""

    encoded: Encoded

    def __init__(self, encoded: Encoded) -> None:
        super().__init__((), np.object_)
        object.__setattr__(self, "encoded", encoded)

    def __str__(self) -> str:
        channels, dtype = MODES[self.encoded.mode]
        more = f", {channels}" if channels else ""
        return f"encoded {np.dtype(dtype)}[height, width{more}]"
