"""EncodedFiles are rows of image files, and of the masks that belong to them."""

import numpy as np
import pytest

from loaderx import ArgumentError, DataError, Encoded, EncodedFiles
from loaderx.sources.adapter import as_rows
from loaderx.sources.encoded.field import EncodedSpec
from tests.loaderx.sources.encoded_images import assert_delivers_images, bytes_of, pictures

IMAGES, MASKS = pictures(5), pictures(5, "PNG", 1)


@pytest.fixture
def folder(tmp_path):
    for number in range(5):
        for name, files in (("images", IMAGES), ("masks", MASKS)):
            path = (
                tmp_path
                / name
                / "xy"[number // 3]
                / f"{number}.{name[0]}.{('jpg', 'png')[name == 'masks']}"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[number])
    for path in (tmp_path / "masks").rglob("*.png"):
        path.rename(path.with_name(path.name.replace(".m.", ".i.")))
    return tmp_path


def test_a_folder_a_pattern_and_a_list_are_rows_of_images(folder, monkeypatch):
    monkeypatch.chdir(folder)
    paths = sorted((folder / "images").rglob("*.jpg"))
    for given in ("images", folder / "images", "images/*/*.jpg", "images/**/*.jpg", paths):
        source = EncodedFiles(given)
        assert source.spec == EncodedSpec(Encoded())
        assert list(source.paths) == paths
        assert bytes_of(source[:]) == IMAGES
    assert bytes_of(EncodedFiles(paths[::-1])[:]) == IMAGES[::-1]
    assert bytes_of(EncodedFiles("images/x/0.i.jpg")[:]) == IMAGES[:1]
    assert bytes_of(EncodedFiles(EncodedFiles("images").paths)[:]) == IMAGES
    monkeypatch.chdir("/")
    assert bytes_of(source[:]) == IMAGES


def test_masks_are_found_by_the_names_of_the_images(folder):
    (folder / "masks" / "x" / "other.png").write_bytes(b"")
    images = EncodedFiles(folder / "images")
    masks = images.partners(folder / "masks", mode="P")
    assert masks.spec == EncodedSpec(Encoded(mode="P"))
    assert [path.name for path in masks.paths] == [f"{number}.i.png" for number in range(5)]
    source = as_rows({"image": images, "mask": masks, "label": np.arange(5)})
    assert_delivers_images(source, {"image": IMAGES, "mask": MASKS, "label": np.arange(5)})


def test_a_mask_that_is_missing_or_there_twice_is_named(folder):
    images = EncodedFiles(folder / "images")
    second = folder / "masks" / "x" / "0.i.bmp"
    second.write_bytes(b"")
    with pytest.raises(DataError, match=r"0\.i\.bmp and .*0\.i\.png differ in their suffix only"):
        images.partners(folder / "masks")
    second.unlink()
    (folder / "masks" / "y" / "4.i.png").unlink()
    with pytest.raises(DataError, match=r"4\.i\.jpg has no partner y/4\.i\.\* in .*masks"):
        images.partners(folder / "masks")
    with pytest.raises(ArgumentError, match="`partners` needs files of a folder"):
        EncodedFiles(list(images.paths)).partners(folder / "masks")


@pytest.mark.parametrize(
    ("paths", "error", "words"),
    [
        ([], ArgumentError, "empty list"),
        (5, ArgumentError, "must be a folder, a pattern, or a list"),
        ([5], TypeError, "int"),
        ("nowhere/*.jpg", FileNotFoundError, "no file 'nowhere"),
        ("nowhere.jpg", FileNotFoundError, "no file 'nowhere"),
        ("empty", DataError, "no images in .*empty"),
    ],
)
def test_paths_that_name_no_image_are_refused(folder, monkeypatch, paths, error, words):
    monkeypatch.chdir(folder)
    (folder / "empty").mkdir()
    with pytest.raises(error, match=words):
        EncodedFiles(paths)
