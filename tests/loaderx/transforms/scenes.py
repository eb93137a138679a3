"""Images of rectangles with a mask that numbers them, their boxes and middles: an op must move all of them alike."""

import numpy as np

import loaderx as lx

HEIGHT, WIDTH = 24, 30
ROWS = 3
FIELDS = ("image", "instances", "seg", "boxes", "keypoints")


def scenes(count=32, seed=0, dtype=np.uint8, channels=3):
    """Return images with up to two rectangles of whole pixels, one right of the other, and a third row of zeros.

    Boxes have a class, which is in the mask, too, and the number of their image. Pixels of rectangles have one colour,
    which no other rectangle has; the first channel of all others is 0.
    """
    rng = np.random.default_rng(seed)
    data = {
        "image": np.zeros((count, HEIGHT, WIDTH, channels), dtype),
        "instances": np.zeros((count, HEIGHT, WIDTH), np.uint8),
        "seg": np.zeros((count, HEIGHT, WIDTH), np.int32),
        "boxes": np.zeros((count, ROWS, 6), np.float32),
        "keypoints": np.full((count, ROWS, 2), np.nan, np.float32),
    }
    for i in range(count):
        for k in range(2):
            top, left = rng.integers(0, 15), rng.integers(0, 7) + 15 * k
            bottom, right = top + rng.integers(3, 10), left + rng.integers(3, 9)
            at = i, slice(top, bottom), slice(left, right)
            data["image"][at] = 2 * i + k + 1
            data["instances"][at] = k + 1
            data["seg"][at] = 5 + k
            data["boxes"][i, k] = left, top, right, bottom, 5 + k, i
            data["keypoints"][i, k] = (left + right) / 2, (top + bottom) / 2
        data["boxes"][i, :, 5] = i
    return data


def batch_of(data, *ops, fields=None, step=0, **options):
    """Return a batch of the whole data, with ops on some fields, by default on all."""
    options = {"batch_size": len(data["image"]), "shuffle": False, "output": "numpy", **options}
    names = tuple(data) if fields is None else fields
    return lx.DataLoader(data, transforms={names: list(ops)}, **options).batch(step)


def extent(mask):
    """Return left, top, right and bottom of the pixels of a mask."""
    rows, columns = np.nonzero(mask)
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


def assert_boxes_are_around_their_pixels(batch):
    """Check that every valid box is around the pixels of its number, and that no other number has pixels."""
    for instances, boxes, valid in zip(
        batch["instances"], batch["boxes"], batch["boxes_valid"], strict=True
    ):
        assert set(np.unique(instances)) - {0} == set(np.flatnonzero(valid) + 1)
        assert not boxes[~valid, :4].any()
        for row in np.flatnonzero(valid):
            np.testing.assert_array_equal(boxes[row, :4], extent(instances == row + 1))


def same(batch, other):
    """Compare two batches."""
    assert batch.keys() == other.keys()
    for name, array in batch.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name, strict=True)
