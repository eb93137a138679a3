"""`MNIST` and `IDXDataset`: idx files, mapped if they are not compressed."""

import gzip
import math
import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from loaderx.errors import DataError
from loaderx.kernels.row_layout import row_layout

from .array import NPDataset
from .download import BLOCK
from .download import download as download_file
from .files import open_file
from .npy import MappedFile
from .parts import Part
from .source import FieldsSource

MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
SHA256 = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
# Sub-folders in which the files may be; torchvision uses the last two.
SUBFOLDERS = ("", "raw", "MNIST/raw")

# Dtype of the numbers by the third byte of an idx file.
DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GZIP = b"\x1f\x8b"
# The best ratio of deflate, reached on zeros: 258 bytes in two bits.
GZIP_RATIO = 1032
# Limit for a compressed file, which is decompressed in memory: twice as many bytes as EMNIST has.
MAX_UNPACKED_BYTES = 1 << 30
# NumPy supports at least this many axes; a header with more is damaged.
MAX_AXES = 32


class MNIST(FieldsSource):
    """MNIST digits from their idx files: {"image": uint8[28, 28], "label": uint8[]}.

    folder    holds train-images-idx3-ubyte, train-labels-idx1-ubyte and the t10k files, plain or with .gz;
                        plain files are mapped, compressed ones are held in memory (47 MB)
    train     the 60,000 images to train with, or the 10,000 to test with
    download  download missing files into the folder, and compare their checksums

    Other data in files of these names, such as Fashion-MNIST, is read as well.
    """

    def __init__(
        self, folder: str | os.PathLike[str], train: bool = True, download: bool = False
    ) -> None:
        part = "train" if train else "t10k"
        paths = [
            _find(Path(folder), f"{part}-{content}", download)
            for content in ("images-idx3-ubyte", "labels-idx1-ubyte")
        ]
        images, labels = (IDXDataset(path) for path in paths)
        if len(images.spec.shape) != 2 or images.spec.dtype != np.uint8:
            raise DataError(f"{paths[0]} has rows of {images.spec}; images are uint8 of two axes.")
        if labels.spec.shape != () or labels.spec.dtype != np.uint8:
            raise DataError(f"{paths[1]} has rows of {labels.spec}; a label is one uint8.")
        if len(images) != len(labels):
            raise DataError(
                f"{paths[0]} has {len(images)} images and {paths[1]} {len(labels)} labels."
            )
        super().__init__({"image": images, "label": labels})


class IDXDataset(NPDataset):
    """Rows of an idx file, mapped, or in memory if the file is compressed with gzip."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        file: Part = UnpackedFile(path) if _is_compressed(Path(path)) else IDXFile(path)
        if len(file.array) == 0:
            raise DataError(f"{path} has no rows: its shape is {file.array.shape}.")
        self._hold([file], row_layout(file.array))


class IDXFile(MappedFile):
    """idx file, mapped read-only."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.arguments = (self.path.absolute(),)
        with open_file(path, "an idx file") as file:
            self._bytes = os.fstat(file.fileno()).st_size
            shape, dtype = _read_header(file, self.path)
            offset = file.tell()
            _check_size(self.path, shape, dtype, self._bytes - offset)
            self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.array = np.ndarray(shape, dtype, self._mapping, offset)


class UnpackedFile(Part):
    """idx file compressed with gzip, in memory."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.arguments = (Path(path).absolute(),)
        try:
            with open_file(path, "an idx file") as packed, gzip.open(packed) as file:
                shape, dtype = _read_header(file, Path(path))
                _check_claimed_size(Path(path), shape, dtype)
                self.array = np.empty(shape, dtype)
                # Read exactly that many bytes: a few compressed bytes can expand until they fill the memory.
                size = _fill(file, self.array)
                more = file.read(1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"{path} cannot be decompressed: {error}") from error
        _check_size(Path(path), shape, dtype, size)
        if more:
            raise DataError(
                f"{path} holds more data than the {size} bytes that its header promises ({shape} of {dtype})."
            )


def _check_claimed_size(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse a header that promises more than gzip can hold or memory should, before memory is allocated."""
    needed, packed = math.prod(shape) * dtype.itemsize, path.stat().st_size
    if needed > packed * GZIP_RATIO:
        raise DataError(
            f"{path} is truncated: its header promises {needed} bytes of data ({shape} of {dtype}), and its "
            f"{packed} bytes cannot hold that many. Get the file again."
        )
    if needed > MAX_UNPACKED_BYTES:
        raise DataError(
            f"{path} promises {needed} bytes, and at most {MAX_UNPACKED_BYTES} are decompressed in memory: decompress "
            "it with `gunzip`, then the file is mapped."
        )


def _fill(file: gzip.GzipFile, array: np.ndarray[Any, Any]) -> int:
    """Read bytes into an array until either ends; return their number."""
    memory, done = array.reshape(-1).view(np.uint8), 0
    while done < len(memory):
        count = file.readinto(memory[done : done + BLOCK].data)
        if count == 0:
            break
        done += count
    return done


def _read_header(
    file: BinaryIO | gzip.GzipFile, path: Path
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype, and leave the file at the first byte of the data."""
    magic = file.read(4)
    if (
        len(magic) < 4
        or magic[:2] != b"\0\0"
        or magic[2] not in DTYPES
        or not 0 < magic[3] <= MAX_AXES
    ):
        raise DataError(
            f"{path} is not an idx file: it begins with {magic.hex(' ') or 'nothing'}, where two zeros, one of "
            f"{' '.join(f'{code:02x}' for code in DTYPES)} and the number of axes are expected."
        )
    lengths = file.read(4 * magic[3])
    if len(lengths) < 4 * magic[3]:
        raise DataError(f"{path} is truncated: it ends within its header.")
    return struct.unpack(f">{magic[3]}I", lengths), np.dtype(DTYPES[magic[2]])


def _check_size(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> None:
    needed = math.prod(shape) * dtype.itemsize
    if size < needed:
        raise DataError(
            f"{path} is truncated: its header promises {needed} bytes of data ({shape} of {dtype}), it has {size}."
        )


def _is_compressed(path: Path) -> bool:
    """Tell by the first bytes: some tools decompress a file and keep its name."""
    with open_file(path, "an idx file") as file:
        return file.read(2) == GZIP


def _find(folder: Path, name: str, download: bool) -> Path:
    # Some archives have a dot in place of the hyphen of the original names.
    names = [name, name.replace("-idx", ".idx")]
    names += [f"{name}.gz" for name in names]
    for place in SUBFOLDERS:
        for candidate in names:
            if (folder / place / candidate).is_file():
                return folder / place / candidate
    path = folder / f"{name}.gz"
    if not download:
        raise FileNotFoundError(
            f"no {name} in {folder}: looked for {', '.join(names)} there, in raw and in MNIST/raw. "
            "Pass download=True to download it."
        )
    download_file(MIRROR + path.name, path, SHA256[path.name])
    return path
