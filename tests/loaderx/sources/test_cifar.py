"""CIFAR10 reads the binary and the pickled batches, runs no code of a pickle, and downloads when asked."""

import hashlib
import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest

from loaderx import DataError, Spec
from loaderx.sources import cifar
from loaderx.sources.cifar import CIFAR10
from tests.loaderx.sources.loading import assert_loads, serving
from tests.loaderx.sources.rows import assert_same, values

BATCHES = [values((count, 32, 32, 3), "u1", count) for count in (2, 1, 3, 1, 2)]
TEST_BATCH = values((4, 32, 32, 3), "u1", 9)


def labels_of(images):
    return (images[:, 0, 0, 0] % 10).astype(np.uint8)


def rows_of(*batches):
    images = np.concatenate(batches)
    return {"image": images, "label": labels_of(images)}


def planes(images):
    """Return one row of 3072 bytes for each image, colour by colour."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), 3072)


def binary(images):
    return np.hstack([labels_of(images)[:, None], planes(images)]).tobytes()


def text(value):
    """Return the opcodes of a `str` of Python 2."""
    return b"U" + bytes([len(value)]) + value


def python_2_pickle(images):
    """Return the opcodes that cPickle of Python 2 wrote for the original files, of protocol 2."""
    data = planes(images)
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
        + b"(K\x01" + b"M" + struct.pack("<H", len(data)) + b"M" + struct.pack("<H", 3072) + b"\x86"
        + b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
        + b"(K\x03" + text(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
        + b"\x89" + b"T" + struct.pack("<I", data.nbytes) + data.tobytes() + b"tb"
    )  # fmt: skip
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in labels_of(images)) + b"e"
    return (
        b"\x80\x02}(" + text(b"batch_label") + text(b"training batch 1 of 5")
        + text(b"labels") + labels + text(b"data") + array + text(b"filenames") + b"]u."
    )  # fmt: skip


def python_3_pickle(images):
    return pickle.dumps({b"labels": labels_of(images).tolist(), b"data": planes(images)}, 2)


def write(folder, encode, ending=""):
    folder.mkdir(parents=True, exist_ok=True)
    for name, images in zip((*cifar.TRAIN, *cifar.TEST), (*BATCHES, TEST_BATCH), strict=True):
        (folder / f"{name}{ending}").write_bytes(encode(images))
    return folder


VERSIONS = {
    "binary": (binary, ".bin", cifar.BINARY_FOLDER),
    "Python 2": (python_2_pickle, "", cifar.PICKLED_FOLDER),
    "Python 3": (python_3_pickle, "", cifar.PICKLED_FOLDER),
}


def test_the_pickles_written_here_are_what_numpy_reads():
    batch = pickle.loads(python_2_pickle(TEST_BATCH), encoding="bytes")
    assert_same(batch[b"data"], planes(TEST_BATCH))
    assert batch[b"labels"] == labels_of(TEST_BATCH).tolist()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_five_batches_are_images_with_colours_last(tmp_path, version):
    encode, ending, _ = VERSIONS[version]
    source = CIFAR10(write(tmp_path, encode, ending))
    assert source.spec == {"image": Spec((32, 32, 3), np.uint8), "label": Spec((), np.uint8)}
    assert_loads(source, rows_of(*BATCHES))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_folder_in_the_archive_is_found(tmp_path, version):
    encode, ending, place = VERSIONS[version]
    write(tmp_path / place, encode, ending)
    assert_same(CIFAR10(tmp_path)[:], rows_of(*BATCHES))
    assert_same(CIFAR10(str(tmp_path), train=False)[:], rows_of(TEST_BATCH))


def test_the_classes_have_names():
    assert CIFAR10.classes[0] == "airplane"
    assert CIFAR10.classes[9] == "truck"
    assert len(CIFAR10.classes) == 10


def test_an_empty_folder_is_an_error_with_what_was_looked_for(tmp_path):
    with pytest.raises(FileNotFoundError) as refusal:
        CIFAR10(tmp_path)
    for words in ["data_batch_1.bin", "cifar-10-batches-py", str(tmp_path), "download=True"]:
        assert words in str(refusal.value)


def test_a_missing_batch_is_named(tmp_path):
    write(tmp_path, binary, ".bin")
    (tmp_path / "data_batch_3.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_3\.bin is missing"):
        CIFAR10(tmp_path)


@pytest.mark.parametrize("content", [b"", binary(TEST_BATCH)[:-1]])
def test_a_truncated_binary_batch_is_refused(tmp_path, content):
    write(tmp_path, binary, ".bin")
    (tmp_path / "test_batch.bin").write_bytes(content)
    with pytest.raises(DataError, match=r"test_batch\.bin has \d+ bytes, .* 3073 bytes"):
        CIFAR10(tmp_path, train=False)


def test_a_label_beyond_the_classes_is_refused(tmp_path):
    content = bytearray(binary(TEST_BATCH))
    content[3073 * 2] = 10
    (tmp_path / "test_batch.bin").write_bytes(content)
    with pytest.raises(DataError, match=r"image 2 of .*test_batch\.bin has the label 10"):
        CIFAR10(tmp_path, train=False)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"data": planes(TEST_BATCH), "labels": Evil()}, "asks for .*mkdir, .* it was not run"),
        ({"data": planes(TEST_BATCH)}, r"needs an array 'data' and a list 'labels'"),
        ([1, 2], "needs an array 'data'"),
        ({"data": [1], "labels": [1]}, "needs an array 'data'"),
        ({"data": planes(TEST_BATCH), "labels": [1]}, "has 4 images and 1 labels"),
        ({"data": planes(TEST_BATCH), "labels": [1, 2, 3, "x"]}, "labels of .* are not integers"),
        ({"data": planes(TEST_BATCH), "labels": [1, 2, 3, -1]}, "image 3 of .* has the label -1"),
        ({"data": planes(TEST_BATCH)[:, 1:], "labels": [1] * 4}, "not an array of rows of 3072"),
        ({"data": np.zeros((1, 3072), "i1"), "labels": [1]}, "not an array of rows of 3072"),
        ({"data": np.zeros((1, 3072), "f4"), "labels": [1]}, "not an array of rows of 3072"),
        ({"data": np.asfortranarray(planes(TEST_BATCH)), "labels": [1] * 4}, "not an array of"),
        ({"data": np.zeros((1, 3072), object), "labels": [1]}, "not an array of rows of 3072"),
    ],
)
def test_a_pickle_of_anything_else_is_refused(tmp_path, monkeypatch, batch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_batch").write_bytes(pickle.dumps(batch, 2))
    with pytest.raises(DataError, match=words):
        CIFAR10(tmp_path, train=False)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("content", [b"", b"\x80\x02", b"text", python_2_pickle(TEST_BATCH)[:-700]])
def test_a_damaged_pickle_is_refused(tmp_path, content):
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(DataError, match="test_batch is not a batch of CIFAR-10"):
        CIFAR10(tmp_path, train=False)


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """Serve a small archive with this name; yield the list of requested paths."""
    monkeypatch.setenv("no_proxy", "*")
    files = write(tmp_path / "mirror" / cifar.BINARY_FOLDER, binary, ".bin")
    with tarfile.open(tmp_path / "mirror" / cifar.ARCHIVE, "w:gz") as archive:
        archive.add(files, cifar.BINARY_FOLDER)
        outside = tarfile.TarInfo("../outside")
        outside.size = 4
        archive.addfile(outside, io.BytesIO(b"evil"))
    with serving(tmp_path / "mirror") as (address, asked):
        monkeypatch.setattr(cifar, "MIRROR", address)
        yield asked


def test_the_archive_is_downloaded_when_asked_and_only_once(tmp_path, mirror, monkeypatch):
    content = (tmp_path / "mirror" / cifar.ARCHIVE).read_bytes()
    monkeypatch.setattr(cifar, "SHA256", hashlib.sha256(content).hexdigest())
    folder = tmp_path / "new" / "folder"
    with pytest.raises(FileNotFoundError):
        CIFAR10(folder)
    assert mirror == []
    assert_same(CIFAR10(folder, download=True)[:], rows_of(*BATCHES))
    assert_same(CIFAR10(folder, train=False, download=True)[:], rows_of(TEST_BATCH))
    assert mirror == [f"/{cifar.ARCHIVE}"]
    assert [path.name for path in folder.iterdir()] == [cifar.BINARY_FOLDER]
    assert not (tmp_path / "new" / "outside").exists()


def test_an_archive_with_another_checksum_is_not_kept(tmp_path, mirror):
    with pytest.raises(DataError, match=cifar.SHA256):
        CIFAR10(tmp_path / "folder", download=True)
    assert list((tmp_path / "folder").iterdir()) == []
