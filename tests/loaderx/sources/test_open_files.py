"""Data sets of more files than a process may have open are read, and their open files are bounded."""

import os
import pickle
import resource
from pathlib import Path

import bagz
import pytest

from loaderx import (
    ARDataset,
    BagzDataset,
    DataError,
    Encoded,
    TarDataset,
    TFRecordDataset,
    write_array_record,
)
from loaderx.sources.open_files import MOST_OPEN, OpenFiles
from tests.loaderx.sources.encoded_images import bytes_of, pictures
from tests.loaderx.sources.tar_files import write_tar
from tests.loaderx.sources.tfrecord_files import write_tfrecord

FILES = 200
IMAGES = pictures(3)


def write_bagz(path, image):
    with bagz.Writer(str(path)) as writer:
        writer.write(image)


def write_records(path, image):
    rows = [{"image": image, "label": 1}]
    write_array_record(path, rows, fields={"image": Encoded(), "label": "int64"}, progress=False)


CONTAINERS = {
    "tar": (
        lambda path, image: write_tar(path, [("a.jpg", image)]),
        lambda pattern: TarDataset(pattern, {"image": "jpg"}),
    ),
    "tfrecord": (
        lambda path, image: write_tfrecord(path, [{"a": image}]),
        lambda pattern: TFRecordDataset(pattern, {"image": Encoded("a")}),
    ),
    "bagz": (write_bagz, lambda pattern: BagzDataset(pattern, {"image": Encoded()})),
    "ar": (write_records, lambda pattern: ARDataset(pattern, mmap=False)),
}


@pytest.fixture
def few_open_files():
    """Let this process have few files more open than now."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + MOST_OPEN + 40, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def open_now():
    return len([*Path("/dev/fd").iterdir()])


def written(folder, name):
    for number in range(FILES):
        CONTAINERS[name][0](folder / f"{number:04}.{name}", IMAGES[number % 3])
    return str(folder / f"*.{name}")


def assert_reads(source, expected):
    assert bytes_of(source[:]["image"]) == expected
    assert bytes_of(source[::-1]["image"]) == expected[::-1]


@pytest.mark.usefixtures("few_open_files")
@pytest.mark.parametrize("name", CONTAINERS)
def test_there_may_be_more_files_than_a_process_may_open(tmp_path, name):
    source = CONTAINERS[name][1](written(tmp_path, name))
    expected = [IMAGES[number % 3] for number in range(FILES)]
    assert_reads(source, expected)
    pickled = pickle.dumps(source)
    # The copy has open files of its own.
    del source
    assert_reads(pickle.loads(pickled), expected)


@pytest.mark.usefixtures("few_open_files")
def test_more_mapped_files_than_a_process_may_open_are_an_error_that_says_what_to_do(tmp_path):
    pattern = written(tmp_path, "ar")
    with pytest.raises(
        OSError, match=r"`ulimit -n`, or read the files with `mmap=False`: '.*\.ar'"
    ):
        ARDataset(pattern)


def test_files_are_closed_when_nobody_reads_them(tmp_path):
    before = open_now()
    for number in range(MOST_OPEN + 30):
        (tmp_path / str(number)).write_bytes(b"%03d" % number)
    files = OpenFiles()
    for _ in range(2):
        for number in range(MOST_OPEN + 30):
            assert files.read(tmp_path / str(number), "a file", None, 2, 1) == b"%02d" % (
                number % 100
            )
        assert open_now() == before + MOST_OPEN
    held = files.descriptor(tmp_path / "0", "a file", None)
    del files
    assert open_now() == before + 1
    assert os.pread(held.number, 3, 0) == b"000"
    del held
    assert open_now() == before


def test_a_file_that_changed_before_it_is_opened_again_is_refused(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    os.utime(path, (1, 1))
    status = path.stat()
    stamp = status.st_size, status.st_mtime_ns
    assert OpenFiles().read(path, "a file", stamp, 3, 0) == b"abc"
    path.write_bytes(b"xyz")
    with pytest.raises(
        DataError, match="x has changed since it was indexed: it has been written since"
    ):
        OpenFiles().read(path, "a file", stamp, 3, 0)
    path.write_bytes(b"xyzw")
    with pytest.raises(DataError, match="it is 4 bytes now and was 3"):
        OpenFiles().read(path, "a file", stamp, 3, 0)
