"""HTML representations of loaders, sources and pipelines of all kinds, which read very little data."""

import base64
import io
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.display.html import THUMBNAILS, is_image

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 16, 12, 3), np.uint8)
LABELS = np.arange(40, dtype=np.int32)


class Balance(HTMLParser):
    """Parser that fails where elements are not closed in the order they were opened in."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.text = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def shown(value):
    """Check a representation; return its text and its pictures."""
    html = value._repr_html_()
    parser = Balance()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    found = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    pictures = [np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))) for text in found]
    return " ".join(parser.text), pictures


def loader_of(**options):
    fields = {"image": IMAGES, "label": LABELS}
    return lx.DataLoader(fields, **{"batch_size": 8, "output": "numpy", **options})


def test_a_check_of_html_can_fail():
    with pytest.raises(AssertionError):
        Balance().feed("<div><b></div></b>")


def test_a_loader_shows_fields_shapes_ops_batch_and_rows():
    text, pictures = shown(loader_of(transforms={"image": [T.RandomFlip()]}))
    for word in ("40 rows", "batches of 8", "endless", "seed 0", "image", "label", "RandomFlip"):
        assert word in text
    assert "uint8[16, 12, 3]" in text
    assert "compiled" in text
    assert "Python" not in text
    assert len(pictures) == 2 * THUMBNAILS


def test_thumbnails_are_the_first_samples_of_the_stream_before_and_after_the_ops():
    loader = loader_of(transforms={"image": [T.RandomFlip()]})
    _, pictures = shown(loader)
    np.testing.assert_array_equal(pictures[:4], IMAGES[loader.indices(0)[:4]])
    np.testing.assert_array_equal(pictures[4:], loader.batch(0)["image"][:4])


def test_channels_first_and_normalised_images_are_seen_too():
    ops = [T.Normalize([0.5] * 3, [0.25] * 3, channels_first=True)]
    text, pictures = shown(loader_of(transforms={"image": ops}))
    assert "float32[3, 16, 12]" in text
    assert {picture.shape for picture in pictures} == {(16, 12, 3)}
    assert (np.min(pictures[4:]), np.max(pictures[4:])) == (0, 255)


def test_python_is_called_so_and_names_are_escaped():
    def plain(x):
        return x

    plain.__name__ = "<script>"
    with pytest.warns(UserWarning, match="plain Python function"):
        loader = lx.DataLoader({"<b>&": IMAGES}, transforms={"<b>&": [plain]}, output="numpy")
    assert "<script>" not in loader._repr_html_()
    text, _ = shown(loader)
    assert "<b>&" in text
    assert "<script>  (Python)" in text


def test_the_function_of_each_batch_and_the_mask_are_named():
    def double(batch):
        raise AssertionError("it is not called to be shown")

    text, _ = shown(loader_of(transform=double, num_epochs=1, remainder="pad"))
    assert "double  (Python)" in text
    assert "mask" in text


def test_the_bottleneck_is_shown_while_somebody_iterates_and_nothing_is_measured():
    loader = loader_of(num_epochs=1)
    assert "batches so far" not in shown(loader)[0]
    with iter(loader) as batches:
        assert "batches so far" not in shown(loader)[0]
        next(batches)
        next(batches)
        text, _ = shown(loader)
    assert "2 batches so far" in text
    assert "the loader" in text
    assert "batches so far" not in shown(loader_of())[0]


class Counting:
    """Source in Python that notes which rows are read."""

    def __init__(self, fails=False):
        self.asked = []
        self.fails = fails

    def __len__(self):
        return 1000

    def __getitem__(self, row):
        self.asked.append(row)
        if self.fails and len(self.asked) > 1:
            raise OSError("the disk is gone")
        return {"image": IMAGES[row % 40], "label": row}


def test_only_a_few_rows_are_read():
    rows = Counting()
    loader = lx.DataLoader(rows, batch_size=256, output="numpy")
    rows.asked.clear()
    _, pictures = shown(loader)
    assert len(pictures) == THUMBNAILS
    assert len(rows.asked) <= 2 * THUMBNAILS


def test_rows_that_cannot_be_read_leave_all_but_the_thumbnails():
    text, pictures = shown(lx.DataLoader(Counting(fails=True), batch_size=256, output="numpy"))
    assert "1,000 rows" in text
    assert pictures == []


def test_rows_that_are_too_large_are_not_read():
    rows = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (3, 1 << 13, 1 << 13), (0, 0, 0))
    text, pictures = shown(lx.NPDataset(rows))
    assert "uint8[8192, 8192]" in text
    assert pictures == []


def test_without_pillow_there_is_everything_else(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    html = loader_of()._repr_html_()
    assert "40 rows" in html
    assert "<img" not in html


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (lx.NPDataset(IMAGES), ["NPDataset", "40 rows", "uint8[16, 12, 3]"]),
        (lx.NPDataset(IMAGES).select(range(5)), ["5 rows"]),
        (lx.Mixture({"a": ({"image": IMAGES, "label": LABELS}, 1)}), ["Mixture", "image", "label"]),
        (lx.NPDataset(LABELS), ["int32[]"]),
    ],
)
def test_a_source_shows_fields_and_rows(source, words):
    text, pictures = shown(source)
    assert [word for word in words if word not in text] == []
    assert len(pictures) == (4 if "uint8" in text else 0)


def test_a_pipeline_shows_its_ops_before_and_after_the_first_call():
    pipeline = lx.pipeline([T.RandomFlip(1.0)])
    text, pictures = shown(pipeline)
    assert "RandomFlip" in text
    assert "at the first call" in text
    assert pictures == []
    done = pipeline(IMAGES[:3])
    text, pictures = shown(pipeline)
    assert "uint8[16, 12, 3]" in text
    np.testing.assert_array_equal(pictures, [IMAGES[0], done[0]])


def test_a_representation_never_fails(monkeypatch):
    loader = loader_of()
    monkeypatch.setattr(loader, "_builder", None)
    assert loader._repr_html_() == "<pre>DataLoader</pre>"
    source = lx.NPDataset(LABELS)
    monkeypatch.setattr("loaderx.display.html._source", lambda source: 1 / 0)
    assert source._repr_html_() == "<pre>NPDataset(40 rows of int32[])</pre>"


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((28, 28), "uint8", True),
        ((28, 28, 1), "float32", True),
        ((3, 28, 28), "float16", True),
        ((28, 28, 4), "uint8", False),
        ((28, 28), "int32", False),
        ((10, 4), "float32", False),
        ((300,), "float32", False),
        ((3, 300, 25, 2), "float32", False),
    ],
)
def test_images_are_known_by_dtype_and_shape(shape, dtype, expected):
    assert is_image(lx.Spec(shape, dtype)) is expected
