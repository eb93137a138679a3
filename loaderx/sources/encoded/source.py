"""Source of encoded images: rows of bytes, which are decoded when a window onto them is known."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError, annotate
from loaderx.sources.byte_rows import Buffer, ByteRows
from loaderx.sources.source import Array, Rows, Source

from .decoding import Decoded, Header, decode, read_header
from .field import Encoded, EncodedSpec


class EncodedImage:
    """Encoded image of a row: its bytes, and where they are from."""

    __slots__ = ("_row", "_rows", "_verified", "data", "encoded")

    def __init__(
        self,
        data: Buffer,
        encoded: Encoded,
        rows: ByteRows,
        row: int,
        verified: NDArray[np.bool_],
    ) -> None:
        self.data = data
        self.encoded = encoded
        self._rows, self._row, self._verified = rows, row, verified

    @property
    def where(self) -> str:
        """File of the image, and its place there."""
        return self._rows.where(self._row)

    def header(self) -> Header:
        """Read the header: the format and the size of the image. Raise DataError if it is damaged."""
        try:
            return read_header(self.data, self.encoded)
        except DataError as error:
            self.annotate(error)
            raise

    def decode(self) -> NDArray[Any]:
        """Decode the whole image, upright as its EXIF data says."""
        try:
            header = read_header(self.data, self.encoded)
            return decode(self.data, header, self.encoded).pixels
        except DataError as error:
            self.annotate(error)
            raise

    def decode_rows(self, header: Header, rows: tuple[int, int], factor: int) -> Decoded:
        """Decode at least these rows of the image, reduced by a factor: see `decode`.

        Damage to a JPEG file is often seen only at its end, so the first time all of it is read.
        """
        verified = bool(self._verified[self._row])
        found = decode(self.data, header, self.encoded, rows, factor, stop_early=verified)
        self._verified[self._row] = True
        return found

    def annotate(self, error: Exception) -> None:
        """Add a note with the place of the image to an exception."""
        annotate(error, "while decoding", f"{self.where} (row {self._row})")

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"EncodedImage({len(self.data)} bytes of {self.where})"


class EncodedSource(Source):
    """Rows that are encoded images."""

    def __init__(self, rows: ByteRows, encoded: Encoded) -> None:
        if len(rows) == 0:
            raise DataError("the source has no encoded images.")
        self._rows = rows
        self._encoded = encoded
        # Rows whose images have been decoded without an error, by this process.
        self._verified = np.zeros(len(rows), np.bool_)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_verified"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._verified = np.zeros(len(self._rows), np.bool_)

    @property
    def spec(self) -> EncodedSpec:
        return EncodedSpec(self._encoded)

    def __len__(self) -> int:
        return len(self._rows)

    def where(self, row: int) -> str:
        """Return where an image is, for messages: its file, and its place there."""
        return self._rows.where(row)

    def read(self, rows: Rows, out: Sequence[Array]) -> None:
        for place, (row, data) in enumerate(
            zip(rows.tolist(), self._rows.fetch(rows), strict=True)
        ):
            out[0][place] = EncodedImage(data, self._encoded, self._rows, row, self._verified)
