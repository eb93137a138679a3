"""MNIST reads plain and compressed idx files, and downloads them only when asked."""

import gzip
import hashlib
import os
import struct
import tracemalloc
import urllib.error

import numpy as np
import pytest

from loaderx import DataError, Spec
from loaderx.sources import download, mnist
from loaderx.sources.mnist import MNIST, IDXDataset
from tests.loaderx.sources.loading import assert_loads, serving
from tests.loaderx.sources.rows import assert_delivers, assert_same, values

IMAGES = values((7, 28, 28), "u1")
LABELS = np.array([5, 0, 4, 1, 9, 2, 1], np.uint8)
ROWS = {"image": IMAGES, "label": LABELS}
CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}


def idx(array):
    """Return the bytes of an idx file."""
    code = CODES[array.dtype.str[1:]]
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write(folder, part="train", images=IMAGES, labels=LABELS, ending="", images_name="images-idx3"):
    folder.mkdir(parents=True, exist_ok=True)
    compress = gzip.compress if ending == ".gz" else bytes
    (folder / f"{part}-{images_name}-ubyte{ending}").write_bytes(compress(idx(images)))
    (folder / f"{part}-labels-idx1-ubyte{ending}").write_bytes(compress(idx(labels)))
    return folder


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_folder_of_idx_files_is_images_and_labels(tmp_path, ending):
    source = MNIST(write(tmp_path, ending=ending))
    assert source.spec == {"image": Spec((28, 28), np.uint8), "label": Spec((), np.uint8)}
    assert repr(source) == "MNIST(7 rows of {image: uint8[28, 28], label: uint8[]})"
    assert_loads(source, ROWS)


def test_the_images_to_test_with_are_another_data_set(tmp_path):
    write(tmp_path)
    write(tmp_path, "t10k", IMAGES[::-1], LABELS[::-1])
    assert_same(MNIST(tmp_path)[:], ROWS)
    assert_same(
        MNIST(str(tmp_path), train=False)[:], {"image": IMAGES[::-1], "label": LABELS[::-1]}
    )


@pytest.mark.parametrize("place", mnist.SUBFOLDERS)
def test_the_folders_of_torchvision_are_known(tmp_path, place):
    write(tmp_path / place)
    assert_same(MNIST(tmp_path)[:], ROWS)


def test_a_dot_in_the_names_is_known(tmp_path):
    write(tmp_path, images_name="images.idx3")
    assert_same(MNIST(tmp_path)[:], ROWS)


def test_a_file_is_known_as_compressed_by_its_bytes_and_not_by_its_name(tmp_path):
    write(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.rename(tmp_path / "train-images-idx3-ubyte.gz")
    assert_same(MNIST(tmp_path)[:], ROWS)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("shape", [(6,), (6, 3), (6, 2, 3), (6, 2, 1, 3)])
@pytest.mark.parametrize("dtype", CODES)
def test_an_idx_file_of_any_dtype_and_rank_is_read(tmp_path, dtype, shape, ending):
    array = values(shape, dtype)
    path = tmp_path / f"rows{ending}"
    path.write_bytes(gzip.compress(idx(array)) if ending else idx(array))
    assert_delivers(IDXDataset(path), array)


def test_an_uncompressed_file_is_mapped_and_not_read(tmp_path):
    path = tmp_path / "sparse"
    path.write_bytes(struct.pack(">BBBB3I", 0, 0, 8, 3, 1 << 26, 28, 28))
    os.truncate(path, 16 + (28 * 28 << 26))  # 52 GB that need no space.
    assert_same(IDXDataset(path)[-1], np.zeros((28, 28), np.uint8))


def test_a_file_that_shrinks_while_it_is_mapped_is_an_error_and_not_a_crash(tmp_path):
    source = MNIST(write(tmp_path))
    os.truncate(tmp_path / "train-images-idx3-ubyte", 100)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte shrank from 5504 to 100 bytes"):
        source[0]


def test_a_missing_file_is_named_with_all_names_that_were_looked_for(tmp_path):
    write(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError) as refusal:
        MNIST(tmp_path)
    for words in [
        "train-labels-idx1-ubyte,",
        "train-labels-idx1-ubyte.gz",
        "train-labels.idx1-ubyte",
        str(tmp_path),
        "download=True",
    ]:
        assert words in str(refusal.value)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not an idx file: it begins with nothing"),
        (b"\x93NUMPY", "is not an idx file: it begins with 93 4e 55 4d"),
        (b"\0\0\x07\x01", "is not an idx file: it begins with 00 00 07 01"),
        (b"\0\0\x08\x00", "is not an idx file"),
        (b"\0\0\x08\xff" + b"\0\0\0\1" * 255 + b"\0", "is not an idx file"),
        (b"\0\0\x08\x03\0\0", "is truncated: it ends within its header"),
        (idx(IMAGES)[:-1], r"promises 5488 bytes of data .* it has 5487"),
        (idx(IMAGES[:0]), "has no rows"),
    ],
)
def test_a_damaged_file_is_refused_with_what_is_wrong(tmp_path, content, words, compress):
    path = tmp_path / "rows"
    path.write_bytes(compress(content))
    with pytest.raises(DataError, match=words) as refusal:
        IDXDataset(path)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:40] + b"x" * 40])
def test_a_damaged_compressed_file_is_refused(tmp_path, damage):
    path = tmp_path / "rows.gz"
    path.write_bytes(damage(gzip.compress(idx(IMAGES))))
    with pytest.raises(DataError, match=r"rows\.gz cannot be decompressed"):
        IDXDataset(path)


def test_a_folder_is_not_an_idx_file(tmp_path):
    with pytest.raises(DataError, match="is a folder"):
        IDXDataset(tmp_path)


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (IMAGES[0], LABELS, r"rows of uint8\[28\]; images are uint8 of two axes"),
        (IMAGES.astype("f4"), LABELS, r"rows of float32\[28, 28\]"),
        (IMAGES, IMAGES, r"rows of uint8\[28, 28\]; a label is one uint8"),
        (IMAGES, LABELS[1:], "has 7 images and .* 6 labels"),
    ],
)
def test_files_that_are_not_images_and_their_labels_are_refused(tmp_path, images, labels, words):
    write(tmp_path, images=images, labels=labels)
    with pytest.raises(DataError, match=words):
        MNIST(tmp_path)


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """Serve small files with these names; yield the list of requested paths."""
    monkeypatch.setenv("no_proxy", "*")
    with serving(write(tmp_path / "mirror", ending=".gz")) as (address, asked):
        monkeypatch.setattr(mnist, "MIRROR", address)
        yield asked


@pytest.fixture
def checksums(tmp_path, mirror, monkeypatch):
    for path in (tmp_path / "mirror").iterdir():
        monkeypatch.setitem(mnist.SHA256, path.name, hashlib.sha256(path.read_bytes()).hexdigest())


def test_files_are_downloaded_when_asked_and_only_once(tmp_path, mirror, checksums):
    folder = tmp_path / "new" / "folder"
    with pytest.raises(FileNotFoundError):
        MNIST(folder)
    assert mirror == []
    assert_same(MNIST(folder, download=True)[:], ROWS)
    names = ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"]
    assert mirror == [f"/{name}" for name in names]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert_same(MNIST(folder, download=True)[:], ROWS)
    assert_same(MNIST(folder)[:], ROWS)
    assert len(mirror) == 2


def test_a_download_with_another_checksum_than_mnist_is_not_kept(tmp_path, mirror):
    folder = tmp_path / "folder"
    with pytest.raises(DataError) as refusal:
        MNIST(folder, download=True)
    assert mnist.SHA256["train-images-idx3-ubyte.gz"] in str(refusal.value)
    assert list(folder.iterdir()) == []


def test_a_file_that_the_server_does_not_have_is_an_error_with_its_address(
    tmp_path, mirror, checksums
):
    folder = tmp_path / "folder"
    with pytest.raises(urllib.error.HTTPError, match="404") as refusal:
        MNIST(folder, train=False, download=True)
    refusal.value.close()
    assert "/t10k-images-idx3-ubyte.gz" in refusal.value.__notes__[0]
    assert list(folder.iterdir()) == []


def test_a_file_that_unpacks_to_more_than_its_header_says_is_refused(tmp_path):
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb") as file:
        file.write(idx(LABELS))
        for _ in range(64):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="holds more data than the 7 bytes that its header"):
            IDXDataset(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_header_that_promises_more_than_can_be_packed_is_refused_before_there_is_memory(tmp_path):
    path = tmp_path / "lie.gz"
    path.write_bytes(gzip.compress(struct.pack(">BBBBII", 0, 0, 8, 2, 2**32 - 1, 2**32 - 1)))
    with pytest.raises(DataError, match=r"lie.gz is truncated: .* bytes cannot hold that many"):
        IDXDataset(path)


def test_a_file_packed_as_well_as_can_be_is_read(tmp_path):
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(idx(np.zeros((4000, 28, 28), np.uint8))))
    assert not IDXDataset(path)[:].any()


def test_a_server_that_does_not_end_is_not_listened_to(tmp_path, mirror, checksums, monkeypatch):
    monkeypatch.setattr(download, "MAX_BYTES", 100)
    folder = tmp_path / "folder"
    with pytest.raises(DataError, match="delivers more than 100 bytes; nothing was kept"):
        MNIST(folder, download=True)
    assert list(folder.iterdir()) == []


def test_a_compressed_file_is_unpacked_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(mnist, "MAX_UNPACKED_BYTES", 100)
    path = tmp_path / "rows.gz"
    path.write_bytes(gzip.compress(idx(np.zeros((4, 28, 28), np.uint8))))
    with pytest.raises(DataError, match=r"promises 3136 bytes, and at most 100 .* with `gunzip`"):
        IDXDataset(path)
