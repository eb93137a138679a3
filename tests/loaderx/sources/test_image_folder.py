"""ImageFolder delivers the images of a folder, one class per sub-folder: encoded, or decoded to one size."""

import json
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from loaderx import ArgumentError, DataError, DataLoader, Encoded, Spec
from loaderx.sources.encoded.field import EncodedSpec
from loaderx.sources.image_folder import ImageFolder
from tests.loaderx.sources.encoded_images import assert_delivers_images, bytes_of, pictures
from tests.loaderx.sources.loading import assert_loads
from tests.loaderx.sources.rows import assert_same, values

PIXELS = values((6, 8, 5, 3), "u1")
# In the order of the rows, which is not the order in which they are written.
FILES = [
    "ant/1.png", "ant/deep/er.PNG", "ant/x.bmp", "bee/10.png", "bee/9.png", "cat/a.tiff",
]  # fmt: skip
SIZE = PIXELS.shape[1:3]
ROWS = {"image": PIXELS, "label": np.array([0, 0, 0, 1, 1, 2], np.int32)}


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


@pytest.fixture
def folder(tmp_path):
    for name, pixels in reversed(list(zip(FILES, PIXELS, strict=True))):
        save(tmp_path / name, pixels)
    return tmp_path


def test_a_folder_is_images_and_the_numbers_of_their_classes(folder):
    source = ImageFolder(folder, SIZE)
    assert source.classes == ("ant", "bee", "cat")
    assert [path.relative_to(folder).as_posix() for path in source.paths] == FILES
    assert source.spec == {"image": Spec((8, 5, 3), np.uint8), "label": Spec((), np.int32)}
    assert repr(source) == "ImageFolder(6 rows of {image: uint8[8, 5, 3], label: int32[]})"
    assert_loads(source, ROWS)


def test_hidden_and_other_files_are_left_out(folder):
    for name in [".hidden.png", "ant/.hidden.png", "ant/.folder/x.png", ".folder/x.png"]:
        save(folder / name, PIXELS[0])
    (folder / "ant" / "notes.txt").write_text("not an image")
    save(folder / "in_no_class.png", PIXELS[0])
    assert_same(ImageFolder(str(folder), SIZE)[:], ROWS)


def test_a_relative_path_is_relative_to_the_current_folder(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    source = ImageFolder(folder.name, SIZE)
    monkeypatch.chdir("/")
    assert_same(source[:], ROWS)


def test_links_to_files_and_folders_are_followed(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    save(elsewhere / "1.png", PIXELS[0])
    (folder / "dog").symlink_to(elsewhere)
    (folder / "cat" / "b.png").symlink_to(elsewhere / "1.png")
    source = ImageFolder(folder, SIZE)
    assert source.classes == ("ant", "bee", "cat", "dog")
    assert_same(source[-2:]["image"], PIXELS[[0, 0]])


def test_a_link_that_leads_back_is_refused_and_repeats_no_image(folder):
    (folder / "ant" / "deep" / "back").symlink_to(folder / "ant")
    with pytest.raises(DataError, match=r"back is in .*ant twice"):
        ImageFolder(folder)


def test_images_of_any_mode_become_rgb(tmp_path):
    grey = PIXELS[0, :, :, 0]
    save(tmp_path / "a" / "1.png", PIXELS[0])
    save(tmp_path / "a" / "2.png", grey)
    save(tmp_path / "a" / "3.png", np.dstack([PIXELS[0], grey]))
    Image.fromarray(grey).convert("P").save(tmp_path / "a" / "4.png")
    images = ImageFolder(tmp_path, SIZE)[:]["image"]
    assert_same(images[0], PIXELS[0])
    assert_same(images[1], np.dstack([grey] * 3))
    assert_same(images[2], PIXELS[0])
    assert_same(images[3], np.dstack([grey] * 3))


def test_grey_images_have_two_axes(tmp_path):
    save(tmp_path / "a" / "1.png", PIXELS[0, :, :, 0])
    source = ImageFolder(tmp_path, SIZE, mode="L")
    assert source.spec["image"] == Spec((8, 5), np.uint8)
    assert_same(source[0]["image"], PIXELS[0, :, :, 0])


def test_images_can_keep_their_transparency(tmp_path):
    pixels = values((4, 3, 4), "u1")
    save(tmp_path / "a" / "1.png", pixels)
    assert_same(ImageFolder(tmp_path, (4, 3), mode="RGBA")[0]["image"], pixels)


def gradient(height, width):
    """Return an image in which red grows from left to right, green from top to bottom."""
    red = np.broadcast_to(np.linspace(0, 255, width), (height, width))
    green = np.broadcast_to(np.linspace(0, 255, height)[:, None], (height, width))
    return np.dstack([red, green, np.zeros((height, width))]).astype(np.uint8)


@pytest.mark.parametrize(("size", "shape"), [(20, (20, 20)), ((10, 30), (10, 30))])
@pytest.mark.parametrize("sides", [(40, 40), (40, 80), (90, 40), (5, 7)])
def test_with_a_size_images_are_scaled_to_cover_it_and_cut_at_both_sides(
    tmp_path, sides, size, shape
):
    save(tmp_path / "a" / "1.png", gradient(*sides))
    source = ImageFolder(tmp_path, size)
    assert source.spec["image"] == Spec((*shape, 3), np.uint8)
    image = source[0]["image"].astype(float)
    scale = max(shape[0] / sides[0], shape[1] / sides[1])
    for axis, profile in [(1, image[0, :, 0]), (0, image[:, 0, 1])]:
        seen = shape[axis] / scale / sides[axis]  # the part of the original that is left
        assert profile.mean() == pytest.approx(127, abs=4)
        if min(sides) > 10:
            assert np.ptp(profile) == pytest.approx(255 * seen, abs=20)


def test_images_of_different_sizes_become_one_data_set_by_a_size(folder):
    save(folder / "cat" / "b.png", values((30, 20, 3), "u1"))
    assert ImageFolder(folder, 6)[:]["image"].shape == (7, 6, 6, 3)


def test_a_large_jpeg_file_looks_the_same_in_small(tmp_path):
    pixels = gradient(512, 768)
    save(tmp_path / "a" / "1.jpg", pixels, quality=95)
    image = ImageFolder(tmp_path, (32, 48))[0]["image"]
    expected = pixels.reshape(32, 16, 48, 16, 3).mean((1, 3))
    np.testing.assert_allclose(image, expected, atol=12)


def test_an_image_taken_sideways_is_rotated(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    upright = gradient(16, 32)
    save(tmp_path / "a" / "1.jpg", np.rot90(upright), exif=exif, quality=95)
    image = ImageFolder(tmp_path, (4, 8))[0]["image"].astype(int)
    assert image.shape == (4, 8, 3)
    assert image[0, -1, 0] - image[0, 0, 0] > 150
    assert image[-1, 0, 1] - image[0, 0, 1] > 130


@pytest.mark.parametrize("content", [b"", b"not an image", None])
def test_an_unreadable_image_is_an_error_at_its_step_that_names_the_file(folder, content):
    path = folder / "bee" / "9.png"
    path.write_bytes(path.read_bytes()[:-30] if content is None else content)
    source = ImageFolder(folder, SIZE)
    loader = DataLoader(source, batch_size=2, shuffle=False, num_epochs=1, output="numpy")
    with iter(loader) as batches:
        assert_same(next(batches)["image"], PIXELS[:2])
        assert_same(next(batches)["image"], PIXELS[2:4])
        with pytest.raises(DataError, match=r"9\.png cannot be read as an image"):
            next(batches)
        assert batches.step == 2
        save(path, PIXELS[4])
        assert_same(next(batches)["image"], PIXELS[4:])


@pytest.mark.parametrize("size", [None, SIZE])
def test_an_image_that_was_deleted_is_a_missing_file(folder, size):
    source = ImageFolder(folder, size)
    (folder / "bee" / "9.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"9\.png"):
        source[4]


def test_an_image_of_16_bits_is_refused_and_not_cut_off(folder):
    save(folder / "ant" / "0.png", np.full((8, 5), 40000, np.uint16))
    with pytest.raises(DataError, match=r"0\.png .* mode 'I;16', which does not fit into 8 bits"):
        ImageFolder(folder, 4)[0]


def test_a_class_without_images_is_refused(folder):
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match=r"no images in .*empty: looked for"):
        ImageFolder(folder)


def test_a_folder_without_classes_is_refused(tmp_path):
    save(tmp_path / "1.png", PIXELS[0])
    with pytest.raises(DataError, match="has no sub-folders"):
        ImageFolder(tmp_path)


def test_a_missing_folder_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ImageFolder(tmp_path / "nowhere")


@pytest.mark.parametrize("size", [0, -1, 2.5, "32", (1, 2, 3), (4, 0), (4, None)])
def test_an_invalid_size_is_refused(folder, size):
    with pytest.raises(ArgumentError, match="`size`"):
        ImageFolder(folder, size)


def test_an_unknown_mode_is_refused(folder):
    with pytest.raises(
        ArgumentError, match=r"`mode` \(='CMYK'\) must be one of 'RGB', 'L', 'RGBA', 'P', 'I;16'\."
    ):
        ImageFolder(folder, mode="CMYK")
    with pytest.raises(ArgumentError, match=r"`mode` \(='P'\) must be one of .* 'RGBA'\."):
        ImageFolder(folder, 4, mode="P")


def test_without_pillow_the_error_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "PIL.Image")
    with pytest.raises(ModuleNotFoundError, match=r'pip install "\.\[images\]" in a clone'):
        ImageFolder(folder, 4)


def test_a_file_that_unpacks_to_a_huge_image_is_refused(tmp_path):
    (tmp_path / "class").mkdir()
    Image.new("1", (20000, 20000)).save(tmp_path / "class" / "bomb.png")
    with pytest.raises(DataError, match=r"bomb.png cannot be read as an image: .*exceeds limit"):
        ImageFolder(tmp_path, 8)[0]


def encoded_folder(folder):
    """Write images of different sizes in two classes, and other files; return the rows."""
    images = pictures(7)
    for number, image in enumerate(images):
        path = folder / "ab"[number > 3] / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(image)
    (folder / "a" / "notes.txt").write_text("not an image")
    return {"image": images, "label": np.array([0, 0, 0, 0, 1, 1, 1], np.int32)}


def test_without_a_size_images_of_any_size_are_encoded(tmp_path):
    rows = encoded_folder(tmp_path)
    source = ImageFolder(tmp_path, mode="L", max_pixels=1 << 20)
    assert source.classes == ("a", "b")
    assert source.spec == {
        "image": EncodedSpec(Encoded(mode="L", max_pixels=1 << 20)),
        "label": Spec((), np.int32),
    }
    assert_delivers_images(source, rows)
    image = source[5]["image"]
    assert image.where == str(tmp_path / "b" / "5.jpg") == str(source.paths[5])
    assert image.decode().shape == (34, 25)


@pytest.mark.parametrize("content", [b"", b"not an image", None])
def test_a_damaged_image_is_named_by_its_file(tmp_path, content):
    encoded_folder(tmp_path)
    path = tmp_path / "b" / "5.jpg"
    path.write_bytes(path.read_bytes()[:-300] if content is None else content)
    source = ImageFolder(tmp_path)
    with pytest.raises(DataError) as refusal:
        source[5]["image"].decode()
    assert f"{path} (row 5)" in refusal.value.__notes__[0]
    assert source[4]["image"].decode().shape == (29, 26, 3)


def test_paths_take_little_memory_and_are_a_sequence(folder):
    for number in range(1000):
        (folder / "bee" / f"a_name_of_some_length_{number:04}.png").touch()
    source = ImageFolder(folder)
    assert len(source.paths) == 1006
    assert source.paths[-1] == folder / "cat" / "a.tiff"
    assert source.paths[5:7] == (folder / "bee" / "a_name_of_some_length_0000.png", source.paths[6])
    assert list(source.paths) == sorted(source.paths)
    with pytest.raises(IndexError):
        source.paths[1006]
    assert len(pickle.dumps(source)) < 60 * 1006


def test_names_that_are_not_text_are_read(tmp_path):
    images = encoded_folder(tmp_path)["image"]
    odd = tmp_path / "b" / os.fsdecode(b"z \xff\n.jpg")
    (tmp_path / "b" / "5.jpg").rename(odd)
    source = ImageFolder(tmp_path)
    assert source.paths[6] == odd
    assert bytes_of(source[5:]["image"]) == [images[6], images[5]]


def test_a_folder_may_be_deeper_than_python_recurses(tmp_path, monkeypatch):
    images = encoded_folder(tmp_path)["image"]
    monkeypatch.chdir(tmp_path / "b")
    depth = sys.getrecursionlimit() + 100
    for _ in range(depth):
        Path("f").mkdir()
        os.chdir("f")
    Path("7.jpg").write_bytes(images[0])
    try:
        assert bytes_of(ImageFolder(tmp_path)[-1:]["image"]) == images[:1]
    finally:
        # pytest removes the folders of tests by a recursive function.
        Path("7.jpg").unlink()
        for _ in range(depth):
            os.chdir("..")
            Path("f").rmdir()


@pytest.mark.parametrize("form", ["mapping", "file", "array"])
def test_labels_come_from_a_sidecar(tmp_path, form):
    images = encoded_folder(tmp_path)["image"]
    numbers = values((7,), "i8")
    labels = {f"{'ab'[k > 3]}/{k}.jpg": int(number) for k, number in enumerate(numbers)}
    labels["b/absent.jpg"] = 7
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    given = {"mapping": labels, "file": tmp_path / "labels.json", "array": numbers}[form]
    source = ImageFolder(tmp_path, labels=given)
    assert source.classes == ()
    assert_delivers_images(source, {"image": images, "label": numbers})


@pytest.mark.parametrize(
    ("labels", "error", "words"),
    [
        ({"a/0.jpg": 1}, DataError, r"`labels` has None for 'a/1.jpg' \(row 1\), not an integer"),
        ({"a/0.jpg": True}, DataError, "has True for 'a/0.jpg'"),
        ({"a/0.jpg": 1.5}, DataError, "has 1.5 for 'a/0.jpg'"),
        ({"a/0.jpg": 2**64}, DataError, "more than 64 bits"),
        (np.arange(6), ArgumentError, "has 6 numbers for 7 images"),
        (np.float64(3), ArgumentError, "must be a mapping"),
        (["x"] * 7, ArgumentError, "must be a mapping"),
        ("absent.json", FileNotFoundError, "absent.json"),
        ("broken.json", DataError, "broken.json is not a JSON file"),
        ("list.json", ArgumentError, "list.json has 2 numbers for 7 images"),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path, monkeypatch, labels, error, words):
    encoded_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("broken.json").write_text("{")
    Path("list.json").write_text("[1, 2]")
    with pytest.raises(error, match=words):
        ImageFolder(tmp_path, labels=labels)
