"""Grids are stretched as a NumPy twin says and a lens is OpenCV's; labels and points follow both."""

import re

import cv2
import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.loaderx.transforms.images import Applied, apply, images

STRONG = [T.GridDistortion(3, 0.6), T.OpticalDistortion((-0.3, 0.9))]


def stretched(draws, low, high, cells, size, normalized):
    """Return borders of cells in the input, and the source coordinates of the pixels of an axis."""
    factors = [1 + draws.uniform(low, high) for _ in range(cells)]
    knots = np.concatenate([[0], np.cumsum(factors)]) * size / cells
    knots = knots * size / knots[-1] if normalized else knots
    borders = np.linspace(0, size, cells + 1)
    return knots, np.interp(np.arange(size) + 0.5, borders, knots) - 0.5


def remapped(image, rows, columns, **options):
    """Return OpenCV's remap of floats, which mixes exactly; of bytes it has 32 steps between pixels."""
    maps = np.broadcast_arrays(columns.astype(np.float32), rows.astype(np.float32))
    return cv2.remap(image.astype(np.float32), *map(np.ascontiguousarray, maps), **options)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_cells_of_a_grid_are_stretched_by_factors_of_their_own(dtype, normalized):
    x = images((23, 31, 3), dtype)
    op = T.GridDistortion(4, (-0.5, 0.3), normalized=normalized, border="edge")
    applied = Applied(x, op)
    for image, out, draws in zip(x, applied.out, applied.draws(), strict=True):
        _, columns = stretched(draws, -0.5, 0.3, 4, 31, normalized)
        _, rows = stretched(draws, -0.5, 0.3, 4, 23, normalized)
        expected = remapped(
            image,
            rows[:, None],
            columns,
            interpolation=cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REPLICATE,
        )
        # Places are rounded to a 32nd of a pixel by OpenCV.
        scale = 255 if dtype == np.uint8 else 1
        np.testing.assert_allclose(out, expected, atol=0.04 * scale)


def test_a_normalized_grid_fills_its_frame_and_another_one_does_not():
    x = np.full((20, 24, 30, 3), 200, np.uint8)
    whole = apply(x, T.GridDistortion(5, 0.8))
    assert (whole == 200).all()
    # All cells see twice as much, or half.
    shrunk = apply(x, T.GridDistortion(5, (0.9, 0.9), normalized=False))
    assert (shrunk[:, -8:] == 0).all()
    assert (shrunk[:, :12, :15] == 200).all()
    grown = apply(x, T.GridDistortion(5, (-0.5, -0.5), normalized=False))
    assert (grown[:, 2:, 2:] == 200).all()


@pytest.mark.parametrize("k", [-0.35, 0.05, 0.8])
def test_a_lens_is_that_of_opencv(k):
    height, width = 41, 60
    x = images((height, width, 3), np.float32, count=1)
    camera = np.array([[width, 0, (width - 1) / 2], [0, height, (height - 1) / 2], [0, 0, 1]])
    columns, rows = cv2.initUndistortRectifyMap(
        camera, np.array([k, k, 0, 0, 0]), None, camera, (width, height), cv2.CV_32FC1
    )
    out = apply(x, T.OpticalDistortion((k, k), border="reflect"))[0]
    expected = remapped(
        x[0], rows, columns, interpolation=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101
    )
    np.testing.assert_allclose(out, expected, atol=0.04)


@pytest.mark.parametrize(
    "op", [T.GridDistortion(3, (0, 0)), T.OpticalDistortion(0)], ids=lambda op: op.name
)
def test_nothing_is_distorted_by_zero(op):
    for shape in ((9, 14, 3), (9, 14), (1, 1, 3), (1, 7, 1)):
        x = images(shape)
        np.testing.assert_array_equal(apply(x, op), x)


@pytest.mark.parametrize("op", STRONG, ids=lambda op: op.name)
def test_any_shape_and_dtype_is_accepted(op):
    for shape, dtype in (((1, 1, 3), np.uint8), ((1, 9, 3), np.float32), ((12, 1, 4), np.uint16)):
        x = images(shape, dtype)
        out = apply(x, op)
        assert (out.shape, out.dtype) == (x.shape, x.dtype)
    grey = images((9, 11))
    np.testing.assert_array_equal(apply(grey, op), apply(grey[..., None], op)[..., 0])


@pytest.mark.parametrize("op", STRONG, ids=lambda op: op.name)
def test_labels_stay_labels_and_go_where_their_image_goes(op):
    labels = (images((30, 40), np.uint8, count=12) // 64 + 10).astype(np.uint8)
    labels = np.repeat(np.repeat(labels[:, ::10, ::10], 10, 1), 10, 2)
    fields = {"image": np.repeat(labels[..., None], 3, -1), "mask": labels}
    loader = lx.DataLoader(fields, batch_size=12, transforms={tuple(fields): [op]}, output="numpy")
    batch = loader.batch(0)
    assert set(np.unique(batch["mask"])) <= {0, 10, 11, 12, 13}
    same = batch["image"][..., 0] == batch["mask"]
    assert same.mean() > 0.75
    assert (batch["mask"] != loader.batch(1)["mask"]).any()


@pytest.mark.parametrize("op", STRONG, ids=lambda op: op.name)
def test_keypoints_go_where_their_pixels_go(op):
    data = {
        "image": np.zeros((32, 64, 80, 3), np.uint8),
        "keypoints": np.random.default_rng(0).uniform(12, 52, (32, 1, 2)).astype(np.float32),
    }
    down_places, across_places = np.arange(64) + 0.5, np.arange(80) + 0.5
    for image, (across, down) in zip(data["image"], data["keypoints"][:, 0], strict=True):
        distance = (down_places[:, None] - down) ** 2 + (across_places - across) ** 2
        image[...] = (255 * np.exp(-distance / 4))[..., None]
    loader = lx.DataLoader(
        data, batch_size=32, shuffle=False, transforms={tuple(data): [op]}, output="numpy"
    )
    batch = loader.batch(0)
    apart = []
    for image, point in zip(batch["image"], batch["keypoints"][:, 0], strict=True):
        weights = image[..., 0].astype(float) ** 2
        found = np.array([(weights * across_places).sum(), (weights * down_places[:, None]).sum()])
        apart.append(np.abs(found / weights.sum() - point).max())
    # Where cells meet, the two halves of a spot are stretched differently.
    assert np.median(apart) < 0.2
    assert max(apart) < 1.5
    assert batch["keypoints_valid"].all()
    assert np.abs(data["keypoints"] - batch["keypoints"]).max() > 2


def test_points_far_away_are_outside_and_stay_finite():
    points = np.array([[1e6, -1e6], [np.inf, 3], [8, 6]], np.float32)[None]
    data = {"image": np.zeros((1, 12, 16, 3), np.uint8), "keypoints": points}
    for op in (T.OpticalDistortion((-0.36, -0.36)), T.GridDistortion(2, 0.9, normalized=False)):
        batch = lx.DataLoader(
            data, batch_size=1, transforms={tuple(data): [op]}, output="numpy"
        ).batch(0)
        assert not batch["keypoints_valid"][0, :2].any()
        assert np.isfinite(batch["keypoints"][0, 0]).all()
    # The middle of an image is where it was.
    middle = T.OpticalDistortion((-0.36, -0.36))
    batch = lx.DataLoader(
        data, batch_size=1, transforms={tuple(data): [middle]}, output="numpy"
    ).batch(0)
    np.testing.assert_array_equal(batch["keypoints"][0, 2], [8, 6])


@pytest.mark.parametrize("op", STRONG, ids=lambda op: op.name)
def test_plain_python_gives_the_same(op, monkeypatch):
    data = {
        "image": images((9, 12, 3), count=4),
        "boxes": np.tile(np.array([[1, 2, 7, 8], [0, 0, 0, 0]], np.float32), (4, 1, 1)),
    }

    def batch():
        return lx.DataLoader(
            data, batch_size=4, transforms={tuple(data): [op]}, output="numpy"
        ).batch(0)

    compiled = batch()
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    for name, values in batch().items():
        np.testing.assert_allclose(
            values, compiled[name], atol=1e-4 if name == "boxes" else 1, err_msg=name
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.GridDistortion(0), "`num_steps` (=0) must be an integer of at least 1."),
        (lambda: T.GridDistortion(5, 1), "`distort_limit` (=1) must be above -1 and below 1"),
        (
            lambda: T.GridDistortion(5, -0.1),
            "`distort_limit` (=-0.1) must be a number of at least 0",
        ),
        (lambda: T.GridDistortion(normalized="no"), "`normalized` (='no') must be True or False."),
        (
            lambda: T.OpticalDistortion(0.4),
            "`distort_limit` (=0.4) must be above -0.36, where the corners fold",
        ),
        (lambda: T.OpticalDistortion("much"), "`distort_limit` (='much') must be a number"),
        (lambda: T.OpticalDistortion(border="none"), "`border` (='none') must be one of"),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()
