"""`CIFAR10`: images of the original files, binary or pickled, in memory."""

import os
import pickle
import shutil
import tarfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import DataError

from .array import NPDataset
from .download import download as download_file
from .parts import ColumnArrays
from .records.replacing import replacing
from .source import FieldsSource

MIRROR = "https://www.cs.toronto.edu/~kriz/"
# The binary version: nothing in it needs to be unpickled.
ARCHIVE = "cifar-10-binary.tar.gz"
SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
BINARY_FOLDER = "cifar-10-batches-bin"
PICKLED_FOLDER = "cifar-10-batches-py"

TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = ("test_batch",)
IMAGE_BYTES = 3 * 32 * 32

Batch = tuple[NDArray[np.uint8], NDArray[np.uint8]]


class CIFAR10(FieldsSource):
    """CIFAR-10 images from their original files: {"image": uint8[32, 32, 3], "label": uint8[]}.

    folder    holds data_batch_1.bin to data_batch_5.bin and test_batch.bin (the binary version), or these without
                        .bin (the Python version), or the folder with them that the archive contains
    train     the 50,000 images to train with, or the 10,000 to test with
    download  download the binary version into the folder if neither is there, and compare its checksum

    The files hold one plane per colour; the images have colours last, and are held in memory (150 MB).
    """

    classes: ClassVar[tuple[str, ...]] = (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    )  # fmt: skip

    def __init__(
        self, folder: str | os.PathLike[str], train: bool = True, download: bool = False
    ) -> None:
        batches = Batches(_find(Path(folder).absolute(), TRAIN if train else TEST, download))
        super().__init__({name: NPDataset.of_column(batches, name) for name in ("image", "label")})


class Batches(ColumnArrays):
    """Images and labels of several files. Unpickling reads the files again."""

    def __init__(self, paths: list[Path]) -> None:
        super().__init__()
        self._paths = paths
        batches = [
            read_binary(path) if path.suffix == ".bin" else read_pickled(path) for path in paths
        ]
        planes = np.concatenate([images for images, _ in batches]).reshape(-1, 3, 32, 32)
        images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        labels = np.concatenate([labels for _, labels in batches])
        self._fields = {"image": images, "label": labels}

    def read(self, name: str) -> list[NDArray[Any]]:
        return [self._fields[name]]

    def __repr__(self) -> str:
        return f"{self._paths[0]} and {len(self._paths) - 1} more files"

    def __reduce__(self) -> tuple[Any, ...]:
        return Batches, (self._paths,)


def read_binary(path: Path) -> Batch:
    """Return images and labels of a binary batch: per image its label in one byte, then 3072 bytes."""
    data = np.fromfile(path, np.uint8)
    if data.size == 0 or data.size % (1 + IMAGE_BYTES):
        raise DataError(
            f"{path} has {data.size} bytes, which is not a whole number of images of {1 + IMAGE_BYTES} bytes."
        )
    rows = data.reshape(-1, 1 + IMAGE_BYTES)
    return rows[:, 1:], _checked_labels(rows[:, 0], path)


def read_pickled(path: Path) -> Batch:
    """Return images and labels of a batch of the Python version, unpickled without running code from the file."""
    with path.open("rb") as file:
        try:
            batch = BatchUnpickler(file, encoding="bytes").load()
        except DataError:
            raise
        except Exception as error:  # The unpickler raises nearly anything on damaged files.
            raise DataError(f"{path} is not a batch of CIFAR-10: {error!r}") from error
    fields = {}
    if isinstance(batch, dict):
        fields = {key.decode() if isinstance(key, bytes) else key: batch[key] for key in batch}
    data, labels = fields.get("data"), fields.get("labels")
    if not isinstance(data, PickledArray) or not isinstance(labels, list):
        raise DataError(
            f"{path} is not a batch of CIFAR-10: it needs an array 'data' and a list 'labels', and has {list(fields)}."
        )
    images = data.images(path)
    if len(images) != len(labels):
        raise DataError(f"{path} has {len(images)} images and {len(labels)} labels.")
    return images, _checked_labels(np.asarray(labels), path)


class PickledArray:
    """State of an array in a pickle, kept as data: NumPy does not rebuild the array."""

    state: Any = None

    def __init__(self, *_arguments: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def images(self, path: Path) -> NDArray[np.uint8]:
        """Return the array, which must be one of images."""
        try:
            _, shape, dtype, fortran, data = self.state
            rows, size = shape
            fits = size == IMAGE_BYTES and rows > 0 and len(data) == rows * size
            if not fits or fortran or dtype.name not in (b"u1", "u1"):
                raise ValueError(f"{dtype.name!r} of shape {shape} in {len(data)} bytes")
        except (AttributeError, TypeError, ValueError) as error:
            raise DataError(
                f"'data' of {path} is not an array of rows of {IMAGE_BYTES} uint8: {error}"
            ) from error
        return np.frombuffer(data, np.uint8).reshape(shape)


class PickledDtype:
    """State of a dtype in a pickle, kept as data."""

    def __init__(self, name: Any = None, *_arguments: Any) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and alignment, which single bytes do not have."""


def _latin1(text: str, encoding: str) -> bytes:
    """Return `bytes` from the text as which Python 3 pickles them for Python 2."""
    if encoding not in ("latin1", b"latin1"):
        raise DataError(f"a batch of CIFAR-10 does not use the encoding {encoding!r}.")
    return text.encode("latin1")


class BatchUnpickler(pickle.Unpickler):
    """Unpickler of numbers, text, lists, dicts and arrays of bytes. It refuses everything else."""

    ALLOWED: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): PickledArray,
        ("numpy._core.multiarray", "_reconstruct"): PickledArray,
        ("numpy", "ndarray"): PickledArray,
        ("numpy", "dtype"): PickledDtype,
        ("_codecs", "encode"): _latin1,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise DataError(
                f"the pickle asks for {module}.{name}, which no batch of CIFAR-10 needs; it was not run."
            )
        return self.ALLOWED[module, name]


def _checked_labels(labels: NDArray[Any], path: Path) -> NDArray[np.uint8]:
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise DataError(f"the labels of {path} are not integers.")
    outside = np.flatnonzero((labels < 0) | (labels > 9))
    if outside.size:
        raise DataError(
            f"image {outside[0]} of {path} has the label {labels[outside[0]]}; labels of CIFAR-10 are from 0 to 9."
        )
    return labels.astype(np.uint8)


def _find(folder: Path, names: tuple[str, ...], download: bool) -> list[Path]:
    binary = [f"{name}.bin" for name in names]
    candidates = [
        [folder / place / name for name in own]
        for own, places in [
            (binary, ("", BINARY_FOLDER)),
            (names, ("", PICKLED_FOLDER)),
        ]
        for place in places
    ]
    for paths in candidates:
        if all(path.is_file() for path in paths):
            return paths
    # A clear error about a missing file is better than another version of the data.
    for paths in candidates:
        if any(path.is_file() for path in paths) and not download:
            missing = ", ".join(path.name for path in paths if not path.is_file())
            raise FileNotFoundError(f"{paths[0].parent} is not complete: {missing} is missing.")
    if not download:
        raise FileNotFoundError(
            f"no CIFAR-10 in {folder}: looked for {binary[0]} and {names[0]} there, in {BINARY_FOLDER} and in "
            f"{PICKLED_FOLDER}. Pass download=True to download it."
        )
    archive = folder / ARCHIVE
    download_file(MIRROR + ARCHIVE, archive, SHA256)
    _extract(archive, folder / BINARY_FOLDER)
    archive.unlink()
    return [folder / BINARY_FOLDER / name for name in binary]


def _extract(archive: Path, folder: Path) -> None:
    """Extract the six batches, and nothing else that the archive contains."""
    folder.mkdir(exist_ok=True)
    with tarfile.open(archive) as members:
        for name in (*TRAIN, *TEST):
            member = members.extractfile(f"{BINARY_FOLDER}/{name}.bin")
            if member is None:
                raise DataError(f"{name}.bin in {archive} is not a file.")
            with replacing(folder / f"{name}.bin") as file:
                shutil.copyfileobj(member, file)
