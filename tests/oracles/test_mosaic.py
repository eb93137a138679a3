"""Mosaic equals that of Albumentations: the same images, masks, boxes and keypoints around the same point."""

import numpy as np
import pytest
from scipy import stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.oracles.libraries import A

HEIGHT, WIDTH = 20, 30
# Sizes, the parameters of Albumentations for its part of the grid of four, and the same point as a share of the size.
CASES = [
    ((20, 30), 0.5, 0.5),
    ((20, 30), 0.4, 0.6),
    ((20, 30), 0.25, 0.77),
    ((20, 30), 0.1, 0.9),
    ((14, 22), 0.5, 0.5),
    ((14, 22), 0.4, 0.72),
    ((14, 22), 0.3, 0.88),
]
DRAWS = 1500


def scenes():
    """Return four images whose pixels are all different, with a mask, boxes with a class, and keypoints."""
    rng = np.random.default_rng(0)
    image = np.arange(4 * HEIGHT * WIDTH, dtype=np.float32).reshape(4, HEIGHT, WIDTH, 1)
    corners = rng.uniform(0, [WIDTH - 12, HEIGHT - 12], (4, 3, 2))
    extents, classes = rng.uniform(4, 12, (4, 3, 2)), np.arange(12).reshape(4, 3, 1)
    boxes = np.concatenate([corners, corners + extents, classes], axis=2)
    return {
        "image": image,
        "mask": image[..., 0].astype(np.int16) % 251,
        "boxes": boxes.astype(np.float32),
        "keypoints": rng.uniform(1, 19, (4, 20, 2)).astype(np.float32),
    }


def mosaic_of(size, share):
    return A.Compose(
        [A.Mosaic(target_size=size, cell_shape=(HEIGHT, WIDTH), center_range=(share, share), p=1)],
        bbox_params=A.BboxParams(format="pascal_voc", label_fields=["classes"]),
        keypoint_params=A.KeypointParams(format="xy"),
    )


def by_albumentations(data, order, size, share):
    """Return the mosaic of four images in this order. The first has the largest part, the others any."""
    boxes = data["boxes"]
    items = [
        {
            "image": data["image"][k],
            "mask": data["mask"][k],
            "bboxes": boxes[k, :, :4],
            "classes": boxes[k, :, 4].tolist(),
            "keypoints": data["keypoints"][k],
        }
        for k in order
    ]
    for seed in range(200):
        transform = mosaic_of(size, share)
        transform.set_random_seed(seed)
        found = transform(**items[0], mosaic_metadata=items[1:])
        if order_of(found["image"]) == order:
            return found
    raise AssertionError(f"Albumentations did not draw the order {order}")


def order_of(image):
    """Return the numbers of the images in the corners of a mosaic."""
    return (image[[0, 0, -1, -1], [0, -1, 0, -1], 0] // (HEIGHT * WIDTH)).astype(int).tolist()


@pytest.mark.parametrize(("size", "theirs", "ours"), CASES)
def test_a_mosaic_is_that_of_albumentations(size, theirs, ours):
    data = scenes()
    loader = lx.DataLoader(
        data, batch_size=4, shuffle=False, output="numpy",
        transforms={tuple(data): [T.Mosaic(size, ours)]},
    )  # fmt: skip
    batch = loader.batch(0)
    found = by_albumentations(data, order_of(batch["image"][0]), size, theirs)
    for name in ("image", "mask"):
        np.testing.assert_array_equal(batch[name][0], found[name])
    boxes = batch["boxes"][0][batch["boxes_valid"][0]]
    classes = np.array(found["classes"])
    assert len(classes) > 3
    np.testing.assert_array_equal(np.sort(boxes[:, 4]), np.sort(classes))
    expected = np.asarray(found["bboxes"])[np.argsort(classes)]
    np.testing.assert_allclose(boxes[np.argsort(boxes[:, 4]), :4], expected, atol=1e-4)
    points = batch["keypoints"][0][batch["keypoints_valid"][0]]
    expected = np.asarray(found["keypoints"])
    assert len(points) == len(expected) > 3
    order, theirs = np.lexsort(points.T.round(3)), np.lexsort(expected.T.round(3))
    np.testing.assert_allclose(points[order], expected[theirs], atol=1e-3)


def meeting_points(images):
    """Return the row and the column at which four images of one value each meet."""
    lines = ((image[:, 0, 0], image[0, :, 0]) for image in images.astype(int))
    return np.array([[np.flatnonzero(np.diff(line))[0] for line in both] for both in lines])


def test_points_are_of_the_same_law():
    image = np.zeros((DRAWS, 50, 60, 1), np.uint8)
    image += (np.arange(DRAWS) % 251).astype(np.uint8)[:, None, None, None]
    ours = lx.pipeline([T.Mosaic(center=(0.3, 0.7))])(image)
    transform = A.Mosaic(target_size=(50, 60), cell_shape=(50, 60), center_range=(0.3, 0.7), p=1)
    transform.set_random_seed(3)
    metadata = [{"image": each} for each in image[1:4]]
    theirs = [transform(image=image[0], mosaic_metadata=metadata)["image"] for _ in range(DRAWS)]
    for mine, other in zip(meeting_points(ours).T, meeting_points(np.array(theirs)).T, strict=True):
        assert stats.ks_2samp(mine, other, method="asymp").pvalue > 1e-4
        assert abs(mine.mean() - other.mean()) < 6 * np.hypot(mine.std(), other.std()) / DRAWS**0.5
