"""JPEG files of the benchmarks are photographs, of one content in a folder, a tar file and a file of loaderx."""

import io
import tarfile
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import loaderx as lx
from benchmarks import photographs
from benchmarks import workloads as W  # noqa: N812
from benchmarks.images import normalised
from benchmarks.peers.loaderx_worker import fields_of

SMALL = replace(W.JPEG, shape=(96, 128, 3), rows=80)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return W.write(SMALL, tmp_path_factory.mktemp("photographs"))


def pixels_of(data):
    return np.asarray(Image.open(io.BytesIO(data)))


def test_photographs_are_the_same_whenever_they_are_made():
    first, again = (photographs.photograph(5, 60, 80) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, photographs.photograph(6, 60, 80))


def test_some_are_upright():
    shapes = [photographs.photograph(row, 60, 80).shape[:2] for row in range(8)]
    assert shapes.count((80, 60)) == 2
    assert shapes.count((60, 80)) == 6


@pytest.mark.parametrize(
    ("work", "bits"), [(W.JPEG, 4.5), (W.LARGE_JPEG, 2.2)], ids=lambda one: getattr(one, "name", "")
)
def test_files_have_as_many_bits_per_pixel_as_the_titles_say(work, bits):
    height, width, _ = work.shape
    # Of the whole data set the mean is that of the title; of ten it is about that.
    rows = range(10) if work is W.JPEG else range(2)
    sizes = [
        len(photographs.encoded(photographs.photograph(row, height, width), work.quality))
        for row in rows
    ]
    assert f"{bits} bits per pixel" in work.title
    assert np.mean(sizes) * 8 / (height * width) == pytest.approx(bits, rel=0.3)


def test_a_tar_file_and_a_file_of_loaderx_have_the_same_pixels_and_labels(written):
    files = photographs.files_of(written.data.parent)
    records = lx.ARDataset(photographs.convert(written.data.parent, None))
    with tarfile.open(written.tar) as tar:
        for row in (0, 7, 39):
            with open(files[row], "rb") as file:  # noqa: PTH123
                data = file.read()
            name = photographs.name_of(row)
            assert tar.extractfile(name).read() == data
            assert tar.extractfile(name.replace(".jpg", ".cls")).read() == b"%d" % row
            record = records[row]
            assert record["label"] == row
            assert bytes(record["data"]) != data  # it has restart markers
            assert np.array_equal(pixels_of(bytes(record["data"])), pixels_of(data))


@pytest.mark.parametrize("variant", ["", "tar", "converted"])
def test_loaderx_reads_the_same_images_from_each_of_them(written, variant):
    source = fields_of(written, variant)
    files = photographs.files_of(written.data.parent)
    for number in (0, 41):
        row = (
            {name: field[number] for name, field in source.items()}
            if not variant
            else source[number]
        )
        assert row["label"] == number
        whole = np.asarray(Image.open(files[number]))
        assert (
            np.abs(row["data"].decode().astype(int) - whole).max() <= 2
        )  # of two builds of libjpeg


def test_a_file_of_shrunk_images_has_them_at_the_size_given(written):
    records = lx.ARDataset(photographs.convert(written.data.parent, 64))
    assert {max(pixels_of(bytes(records[row]["data"])).shape) for row in range(8)} == {64}


def epoch_of(work, mirrored=True, shift=0, swapped=False):
    """Return batches of a simple chain: whole images, resized, normalised, every second one mirrored."""
    files = photographs.files_of(work.data.parent)
    order = np.random.default_rng(0).permutation(work.rows)
    samples = []
    for number, row in enumerate(order):
        image = np.asarray(Image.open(files[row]).resize((32, 32), Image.Resampling.BOX))
        image = image[..., ::-1] if swapped else image
        sample = normalised(image).astype(np.float32)
        samples.append(sample[:, ::-1] if mirrored and number % 2 else sample)
    return [(np.stack(samples), (order + shift) % work.rows)]


def test_an_epoch_of_the_files_passes_and_others_are_refused(written):
    expected = W.check_epoch(written, epoch_of(written))
    W.same_chain(expected, expected, written)
    for changes, message in (
        ({"shift": 1}, "images and labels do not match"),
        ({"mirrored": False}, "not half are mirrored"),
        ({"swapped": True}, "red and blue are exchanged"),
    ):
        summary = W.check_epoch(written, epoch_of(written, **changes))
        with pytest.raises(ValueError, match=message):
            W.same_chain(summary, expected, written)


def test_a_file_twice_is_refused(written):
    (samples, labels), *_ = epoch_of(written)
    expected = W.check_epoch(written, [(samples, labels)])
    twice = np.where(labels == 3, 4, labels)
    summary = W.check_epoch(written, [(samples, twice)])
    with pytest.raises(ValueError, match="every row once is False"):
        W.same_chain(summary, expected, written)
