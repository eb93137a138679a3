"""Encoded images of any sizes become what the same ops make of their pixels, whatever the ops."""

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.sources.encoded import decoding
from loaderx.sources.encoded.decoding import Decoded
from loaderx.sources.encoded.source import EncodedImage
from tests.loaderx.encoded_images import (
    ROWS,
    encode,
    encoded,
    from_pixels,
    labels_of,
    loader,
    photographs,
)

CHAINS = {
    "RandomResizedCrop": [T.RandomResizedCrop(40)],
    "normalised": [T.RandomResizedCrop(40), T.RandomFlip(), T.Normalize([0.5] * 3, [0.2] * 3)],
    "nearest": [
        T.RandomResizedCrop((31, 50), interpolation="nearest"),
        T.RandomFlip(axis="vertical"),
    ],
    "bicubic": [T.RandomResizedCrop(40, interpolation="bicubic")],
    "not antialiased": [T.RandomResizedCrop(20, antialias=False)],
    "Resize": [T.Resize((30, 55))],
    "Resize and crop": [T.Resize(shorter=48), T.CenterCrop(40)],
    "longer side": [T.Resize(longer=64), T.PadIfNeeded(64, 64, fill=7), T.CenterCrop(64)],
    "RandomCrop": [T.RandomCrop(32)],
    "padded crop": [T.RandomCrop(32, pad=9, border="reflect")],
    "CenterCrop larger than some images": [T.CenterCrop(100, fill=(1, 2, 3))],
    "flip before": [T.RandomFlip(), T.RandomResizedCrop(40)],
    "pad before": [T.Pad(5, fill=200), T.RandomResizedCrop(40)],
    "LetterBox": [T.LetterBox(64, fill=114), T.RandomFlip()],
    "two filters": [T.Resize(shorter=50, interpolation="lanczos"), T.RandomResizedCrop(24)],
    "two fill colours": [T.Pad(3, fill=9), T.Pad(2, fill=200), T.CenterCrop(120, fill=3)],
    "ScaleJitter": [T.ScaleJitter(48, (0.3, 2.0), fill=114), T.RandomFlip()],
    "ScaleJitter, bicubic": [T.ScaleJitter((40, 60), interpolation="bicubic", fill=(1, 2, 3))],
    "ScaleJitter, nearest": [T.ScaleJitter((40, 60), interpolation="nearest", fill=9)],
    "fill before ScaleJitter": [T.Pad(3, fill=200), T.ScaleJitter(40, fill=9), T.Pad(2, fill=9)],
    "other ops after": [T.RandomResizedCrop(40), T.ColorJitter(0.4, 0.4), T.GaussianBlur(3)],
}


@pytest.mark.parametrize("name", CHAINS)
def test_samples_are_those_of_decoded_images(name):
    files, pixels = photographs()
    batch = loader({"image": encoded(files)}, {"image": CHAINS[name]}).batch(3)
    expected = from_pixels(pixels, {"image": CHAINS[name]}, 3)
    np.testing.assert_array_equal(batch["image"], expected["image"])


def test_a_reduced_image_is_scaled_by_the_part_of_the_frame_that_it_fills():
    files, _ = photographs([(640, 480), (300, 900), (512, 512), (400, 401), (799, 333)], "JPEG")
    whole = encoded(files)
    pixels = [whole[row].decode() for row in range(ROWS)]
    ops = {"image": [T.ScaleJitter(64, (0.3, 1.0), fill=114)]}
    factors = []
    decode = decoding.decode

    def noted(*given, **options):
        factors.append(given[4])
        return decode(*given, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loaderx.sources.encoded.source.decode", noted)
        batch = loader({"image": encoded(files)}, ops).batch(0)
    expected = from_pixels(pixels, ops, 0)["image"].astype(int)
    assert max(factors) >= 4
    assert np.abs(batch["image"].astype(int) - expected).mean() < 1.5
    np.testing.assert_array_equal(
        (batch["image"] == 114).all(axis=-1), (expected == 114).all(axis=-1)
    )


def test_samples_are_mixed_after_the_windows():
    files, _ = photographs()
    ops = [T.ToFloat(), T.MixUp(0.5)]
    source = loader({"image": encoded(files)}, {"image": [T.RandomResizedCrop(40)]})
    cropped = np.empty((ROWS, 40, 40, 3), np.uint8)
    cropped[source.indices(0)] = source.batch(0)["image"]
    mixed = loader({"image": encoded(files)}, {"image": [T.RandomResizedCrop(40), *ops]}).batch(0)
    expected = loader({"image": cropped}, {"image": [T.CenterCrop(40), *ops]}).batch(0)
    np.testing.assert_array_equal(mixed["image"], expected["image"])


@pytest.mark.parametrize(
    "ops", ["RandomResizedCrop", "LetterBox", "padded crop", "two filters", "ScaleJitter"]
)
def test_masks_move_with_their_images(ops):
    files, pixels = photographs()
    masks = [labels_of(each) for each in pixels]
    data = {
        "image": encoded(files),
        "mask": encoded([encode(each, "PNG") for each in masks], mode="P"),
    }
    batch = loader(data, {("image", "mask"): CHAINS[ops]}).batch(1)
    expected = from_pixels(pixels, {("image", "mask"): CHAINS[ops]}, 1, mask=masks)
    np.testing.assert_array_equal(batch["image"], expected["image"])
    np.testing.assert_array_equal(batch["mask"], expected["mask"])


@pytest.mark.parametrize("mode", ["L", "RGBA"])
def test_other_modes_have_their_channels(mode):
    files, _ = photographs()
    data = encoded(files, mode=mode)
    batch = loader(data, [T.RandomResizedCrop(20), T.RandomFlip()]).batch(0)
    assert batch.shape == ((ROWS, 20, 20) if mode == "L" else (ROWS, 20, 20, 4))


def test_views_have_windows_of_their_own():
    files, _ = photographs()
    ops = [T.RandomResizedCrop(20), T.ColorJitter(0.2, 0.2)]
    data = {"image": encoded(files), "label": np.arange(ROWS)}
    batch = loader(data, {"image": T.Views(2, ops)}).batch(0)
    alone = loader(data, {"image": T.Views([ops, [T.Resize(20)]])}).batch(0)
    assert not np.array_equal(batch["image_0"], batch["image_1"])
    np.testing.assert_array_equal(batch["image_0"], alone["image_0"])
    shared = loader(data, {"image": [T.RandomResizedCrop(20), T.Views([[], [T.Solarize(0)]])]})
    np.testing.assert_array_equal(shared.batch(0)["image_1"], 255 - shared.batch(0)["image_0"])


def test_batches_do_not_depend_on_threads():
    files, _ = photographs()
    data = {"image": encoded(files), "label": np.arange(ROWS)}
    ops = {"image": [T.RandomResizedCrop(20), T.RandomFlip()]}
    batches = []
    for workers in (1, 3):
        with iter(loader(data, ops, workers=workers, batch_size=5)) as it:
            batches.append([next(it) for _ in range(6)])
    for one, other in zip(*batches, strict=True):
        np.testing.assert_array_equal(one["image"], other["image"])
        np.testing.assert_array_equal(one["label"], other["label"])


def test_only_the_rows_of_the_window_are_decoded(monkeypatch):
    files, _pixels = photographs([(100, 60)] * ROWS)
    asked = []

    def decode_rows(image, header, rows, factor):
        asked.append((rows, factor))
        whole = decoding.decode(image.data, header, image.encoded).pixels
        # Everything else is wrong: it must not be looked at.
        return Decoded(np.ascontiguousarray(whole[rows[0] : rows[1]]), rows[0])

    expected = loader(encoded(files), [T.RandomCrop(30), T.RandomFlip()]).batch(0)
    monkeypatch.setattr(EncodedImage, "decode_rows", decode_rows)
    found = loader(encoded(files), [T.RandomCrop(30), T.RandomFlip()]).batch(0)
    np.testing.assert_array_equal(found, expected)
    assert {stop - start for (start, stop), _ in asked} == {30}
    assert len({start for (start, _), _ in asked}) > 3


WINDOW = "its transforms must begin with a window to one size"


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        (None, WINDOW),
        ({"label": [T.ToFloat()]}, WINDOW),
        ({"image": []}, WINDOW),
        ({"image": [T.RandomFlip()]}, WINDOW),
        ({"image": [T.Resize(shorter=20)]}, WINDOW),
        (
            {"image": [T.ColorJitter(0.1), T.RandomCrop(9)]},
            r"ColorJitter\(.* is not such a window: put it after",
        ),
        (
            {"image": [T.Maybe(0.5, T.RandomCrop(9)), T.Resize(9)]},
            r"Maybe\(0.5, RandomCrop\(9\)\) is not such a window",
        ),
        ({"image": [lambda x: x, T.Resize(9)]}, "lambda.* is not such a window"),
        (
            {"image": [T.Resize(9, interpolation="area")]},
            r"Resize\(9, interpolation='area'\) is not such a window",
        ),
        ({("image", "plain"): [T.RandomCrop(9)]}, "must be encoded images, boxes or"),
    ],
)
def test_chains_without_a_window_to_one_size_are_refused(transforms, message):
    files, _ = photographs()
    data = {
        "image": encoded(files),
        "label": np.arange(ROWS),
        "plain": np.zeros((ROWS, 30, 30), np.uint8),
        "boxes": np.zeros((ROWS, 2, 4), np.float32),
    }
    with pytest.raises(lx.ArgumentError, match=message):
        loader(data, transforms)


def test_an_image_that_is_too_small_is_named():
    files, _ = photographs()
    with pytest.raises(
        lx.DataError, match="the image is 33 x 40 pixels: RandomCrop: `size`"
    ) as failure:
        loader(encoded(files), [T.RandomCrop(34)]).batch(0)
    assert "made-up file 4 (row 4)" in str(failure.value.__notes__)


def test_explain_says_what_decoding_costs():
    files, _ = photographs()
    ops = {"image": [T.Resize(shorter=30), T.CenterCrop(20), T.ToFloat()]}
    text = loader({"image": encoded(files)}, ops).explain()
    assert "decode, Resize, CenterCrop" in text
    assert "61 x 83, encoded" in text
    assert "ToFloat" in text


def test_an_image_is_read_to_its_end_once():
    """Damage at the end of a file is noticed, although the window ends before it."""
    files, _ = photographs([(96, 64)] * ROWS, "JPEG", quality=95)
    top = [T.CenterCrop((32, 64)), T.CenterCrop((16, 64))]
    whole = loader(encoded(files), top).batch(0)
    made = loader(encoded(files), top)
    for _ in range(2):
        np.testing.assert_array_equal(made.batch(0), whole)
    cut = [data[:-300] for data in files]
    with pytest.raises(lx.DataError, match="damaged"):
        loader(encoded(cut), top).batch(0)
