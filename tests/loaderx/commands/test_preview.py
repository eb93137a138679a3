"""`loaderx preview` draws samples as the loader delivers them, next to their original rows."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import loaderx as lx
from loaderx import cli
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.commands.sheet import BOX_COLOURS, GAP, LINE, MARGIN, PAPER, draw, samples_of

PROGRAM = """
import numpy as np
import loaderx as lx

loader = lx.DataLoader(
    {"image": lx.NPDataset("x.npy"), "label": lx.NPDataset("y.npy")}, batch_size=8, num_epochs=1
)
numbers = lx.DataLoader({"x": np.zeros((9, 5), np.float32)}, batch_size=4)
"""
GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.integers(0, 256, (20, 16, 12, 3), np.uint8)
LABELS = np.arange(20, dtype=np.int32)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "train", raising=False)
    np.save("x.npy", IMAGES)
    np.save("y.npy", LABELS)
    Path("train.py").write_text(PROGRAM)
    return tmp_path


def loader_of(fields=None, **options):
    fields = {"image": IMAGES, "label": LABELS} if fields is None else fields
    return lx.DataLoader(fields, **{"batch_size": 8, "output": "numpy", **options})


def test_a_sheet_is_written_by_the_program_and_shows_rows_of_the_file(forking, folder):
    program = "import sys, loaderx.cli; sys.exit(loaderx.cli.main())"
    finished = forking.run(program, "preview", "train.py:loader", "-o", "sheet.png")
    assert (finished.returncode, finished.stderr) == (0, "")
    sheet = Image.open("sheet.png")
    size = f"{sheet.width} x {sheet.height} pixels, 16 samples from step 0 on"
    assert finished.stdout.startswith(f"sheet.png: {size}: image uint8[16, 12, 3]")
    assert list(folder.glob("*.partial")) == []
    # 16 pixels become 112: the first image is enlarged by 7, so every pixel is a square of 7.
    row = lx.DataLoader(IMAGES, batch_size=8, num_epochs=1).indices(0)[0]
    pixels = np.asarray(sheet)[MARGIN + LINE :, MARGIN:][3 : 16 * 7 : 7, 3 : 12 * 7 : 7]
    np.testing.assert_array_equal(pixels, IMAGES[row])


def test_originals_are_drawn_next_to_delivered_samples():
    loader = loader_of(transform=lambda batch: {**batch, "image": 255 - batch["image"]})
    samples = samples_of(loader, 2, 5, None)
    np.testing.assert_array_equal(samples.rows, loader.indices(2)[:5])
    np.testing.assert_array_equal(samples.original.pixels, IMAGES[samples.rows])
    (view,) = samples.views
    np.testing.assert_array_equal(view.pixels, 255 - IMAGES[samples.rows])
    sheet = np.asarray(draw(samples))
    left = sheet[MARGIN + LINE + 3, MARGIN + 3]
    right = sheet[MARGIN + LINE + 3, MARGIN + 12 * 7 + GAP + 3]
    np.testing.assert_array_equal(left, 255 - right)


def test_more_samples_than_a_batch_come_from_the_following_ones_until_the_end():
    loader = loader_of(num_epochs=1)
    samples = samples_of(loader, 1, 100, None)
    expected = np.concatenate([loader.indices(1), loader.indices(2)])
    np.testing.assert_array_equal(samples.rows, expected)
    assert samples.captions == [f"row {row} · label {row}" for row in expected]


def test_padding_is_not_drawn():
    samples = samples_of(loader_of(num_epochs=1, remainder="pad"), 0, 100, None)
    assert sorted(samples.rows) == list(range(20))
    assert "mask" not in samples.captions[0]


def test_floats_beyond_0_to_1_are_stretched_over_the_sheet_and_others_are_not():
    values = np.linspace(-3, 5, 20 * 8 * 8, dtype=np.float32).reshape(20, 8, 8)
    samples = samples_of(loader_of({"image": values}, shuffle=False), 0, 20, None)
    assert (samples.views[0].pixels.min(), samples.views[0].pixels.max()) == (0, 255)
    assert np.all(np.diff(samples.views[0].pixels[..., 0].ravel().astype(int)) >= 0)
    halves = np.full((20, 8, 8), 0.5, np.float16)
    samples = samples_of(loader_of({"image": halves}), 0, 2, None)
    assert np.unique(samples.views[0].pixels).tolist() == [128]


def test_values_that_are_not_numbers_do_not_hide_the_others():
    values = np.ones((4, 8, 8), np.float32)
    values[:, 0, 0], values[:, 0, 1], values[:, 0, 2] = np.nan, np.inf, 3
    pixels = samples_of(loader_of({"image": values}, batch_size=4), 0, 4, None).views[0].pixels
    assert pixels[0, 0, :4, 0].tolist() == [0, 0, 255, 85]


@pytest.mark.parametrize(
    "shape", [(16, 12), (16, 12, 1), (16, 12, 3), (1, 16, 12), (3, 16, 12)], ids=str
)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", "bfloat16"])
def test_images_of_every_layout_are_drawn(shape, dtype):
    import ml_dtypes

    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    samples = samples_of(loader_of({"picture": np.ones((9, *shape), kind)}), 0, 3, None)
    assert samples.views[0].pixels.shape == (3, 16, 12, 3)
    assert draw(samples).size[0] > 0


def test_views_are_side_by_side_with_their_own_boxes():
    boxes = np.tile(np.float32([[1, 2, 7, 12], [0, 0, 0, 0]]), (20, 1, 1))
    loader = loader_of(
        {"image": IMAGES, "boxes": boxes, "label": LABELS},
        transforms={
            ("image", "boxes"): [
                T.RandomFlip(0.0),
                T.Views([[T.RandomFlip(1.0)], [T.RandomFlip(0.0)]]),
            ]
        },
    )
    samples = samples_of(loader, 0, 4, "image")
    assert [view.name for view in samples.views] == ["image_0", "image_1"]
    flipped, kept = samples.views
    np.testing.assert_array_equal(flipped.pixels, samples.original.pixels[:, :, ::-1])
    np.testing.assert_array_equal(kept.pixels, samples.original.pixels)
    np.testing.assert_array_equal(flipped.boxes[0, 0], [5, 2, 11, 12])
    np.testing.assert_array_equal(samples.original.boxes[0, 0], [1, 2, 7, 12])
    sheet = np.asarray(draw(samples))
    upper = MARGIN + LINE + 2 * 7
    for view, edge in enumerate((1, 5, 1)):
        left = MARGIN + view * (12 * 7 + GAP) + edge * 7
        assert tuple(sheet[upper, left]) == BOX_COLOURS[0]
        assert tuple(sheet[upper, left - 2]) != BOX_COLOURS[0]
    # The second box has no size, so nothing is drawn for it.
    assert not (sheet == np.array(BOX_COLOURS[1], np.uint8)).all(axis=-1).any()


def test_labels_that_are_mixed_name_the_classes_they_are_mixed_of():
    def mix(batch):
        label = np.zeros((len(batch["label"]), 4), np.float32)
        label[:, 1], label[:, 3] = 0.25, 0.75
        label[0] = [0, 0, 1, 0]
        return {**batch, "label": label}

    captions = samples_of(loader_of(transform=mix, shuffle=False), 0, 2, None).captions
    assert captions == ["row 0 · label 2", "row 1 · label 3: 0.75 + 1: 0.25"]


def test_large_images_are_made_smaller():
    samples = samples_of(loader_of({"image": np.zeros((4, 300, 600), np.uint8)}), 0, 1, None)
    sheet = np.asarray(draw(samples))
    black = (sheet[:, :, 0] == 0) & (sheet[:, :, 2] == 0)
    assert black[:, MARGIN + 5].sum() == 96
    assert tuple(sheet[1, 1]) == PAPER


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train.py:numbers", "-o", "a.png"], ["no image field", "x float32[5]"]),
        (
            ["train.py:loader", "-o", "a.png", "--field", "label"],
            ["'label' is int32[]", "not an image"],
        ),
        (["train.py:loader", "-o", "a.png", "--field", "x"], ["no field 'x'", "image uint8[16"]),
        (["train.py:loader", "-o", "a.png", "--step", "3"], ["--step (=3)", "beyond the 3 steps"]),
        (["train.py:loader", "-o", "nowhere/a.png"], ["no folder nowhere"]),
        (["train.py:loader", "-o", "a.xyz"], ["a.xyz must have the ending of a picture"]),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(folder, capsys, arguments, words):
    assert cli.main(["preview", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("loaderx preview: ")
    assert [word for word in words if word not in line] == []
    assert not [file for file in folder.iterdir() if file.name.startswith("a.")]


def test_without_pillow_one_line_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert cli.main(["preview", "train.py:loader", "-o", "sheet.png"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        line
        == 'drawing a sheet needs Pillow, which is not installed: pip install ".[images]" in a clone of loaderx'
    )
