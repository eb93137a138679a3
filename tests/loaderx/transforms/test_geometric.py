"""Maps are those of Pillow, OpenCV and torchvision's published formulas; elastic fields are SciPy's splines."""

import math
import re

import cv2
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage, stats

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.kernels.distributions import Draws
from loaderx.kernels.random import fold
from loaderx.kernels.windows import FILL, REFLECT
from loaderx.spec import Spec
from loaderx.transforms.amounts import Choice
from loaderx.transforms.geometric import Translate
from tests import reference
from tests.loaderx.transforms.images import Applied, apply, images

SHAPE = (13, 17, 3)


def matrix_of(op, rng=None, height=13, width=17):
    """Return the map that an op draws, as a 3 x 3 array."""
    found = op.function(rng or Draws(0), height, width, height, width, *op.parameters())
    assert {type(float(entry)) for entry in found} == {float}
    return np.reshape(found, (3, 3))


def streams(count):
    """Return generators like those of samples."""
    return [Draws(fold(np.uint64(1), np.uint64(k))) for k in range(count)]


def through(x, op, matrix):
    """Apply the twin of an op."""
    out = np.empty(op.output(Spec(x.shape, x.dtype)).shape, x.dtype)
    fill = op.fill if isinstance(op.fill, tuple) else (op.fill,) * x.shape[2]
    flat = tuple(matrix.reshape(-1))
    if op.interpolation == "nearest":
        reference.warp_nearest(x, flat, op.border, fill, None, None, out)
    else:
        reference.warp_bilinear(x, flat, op.border, fill, None, None, None, out)
    return out


# Matrices


@pytest.mark.parametrize("degrees", [-170, -33.3, 0, 12, 45, 90, 180, 270])
def test_a_rotation_is_that_of_opencv(degrees):
    forward = np.eye(3)
    forward[:2] = cv2.getRotationMatrix2D((8.0, 6.0), degrees, 1.0)
    found = matrix_of(T.Rotate((degrees, degrees)))
    np.testing.assert_allclose(found, np.linalg.inv(forward), atol=1e-12)


def torchvision_inverse(centre, angle, translate, scale, shear):
    """Return the inverse of torchvision's T C RSS C', from the documentation of its `_get_inverse_affine_matrix`."""
    rotation, sx, sy = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    turned = np.array(
        [[math.cos(rotation), -math.sin(rotation)], [math.sin(rotation), math.cos(rotation)]]
    )
    sheared_y = np.array([[1, 0], [-math.tan(sy), 1]])
    sheared_x = np.array([[1, -math.tan(sx)], [0, 1]])
    forward = np.eye(3)
    forward[:2, :2] = scale * turned @ sheared_y @ sheared_x
    there, back = np.eye(3), np.eye(3)
    there[:2, 2] = np.add(centre, translate)
    back[:2, 2] = np.negative(centre)
    return np.linalg.inv(there @ forward @ back)


@pytest.mark.parametrize(
    ("degrees", "translate", "scale", "shear"),
    [
        (0, (0, 0), 1, (0, 0)),
        (25, (0, 0), 1, (0, 0)),
        (0, (0.25, -0.5), 1, (0, 0)),
        (0, (0, 0), 1.5, (0, 0)),
        (0, (0, 0), 1, (20, 0)),
        (0, (0, 0), 1, (0, -30)),
        (-40, (0.1, 0.2), 0.6, (12, 7)),
    ],
)
def test_an_affine_map_is_composed_as_by_torchvision(degrees, translate, scale, shear):
    op = T.Affine(
        Choice(degrees), translate_x=Choice(translate[0]), translate_y=Choice(translate[1]), scale=scale,
        shear_x=Choice(shear[0]), shear_y=Choice(shear[1]),
    )  # fmt: skip
    moved = translate[0] * 17, translate[1] * 13
    # There an angle is counted clockwise.
    expected = torchvision_inverse((8, 6), -degrees, moved, scale, shear)
    np.testing.assert_allclose(matrix_of(op), expected, atol=1e-12)


def test_an_affine_map_that_only_rotates_is_a_rotation():
    np.testing.assert_allclose(
        matrix_of(T.Affine(Choice(30))), matrix_of(T.Rotate(Choice(30))), atol=1e-12
    )


@pytest.mark.parametrize(
    ("degrees", "scale", "shear"), [(25, 1, (0, 0)), (0, 1.5, (20, 0)), (-40, 0.6, (12, 7))]
)
def test_an_affine_map_keeps_any_center_in_place(degrees, scale, shear):
    op = T.Affine(
        Choice(degrees), scale=scale, shear_x=Choice(shear[0]), shear_y=Choice(shear[1]), center=(3, 11)
    )  # fmt: skip
    # (3, 11) from the corner is 2.5 and 10.5 from the centre of the first pixel.
    expected = torchvision_inverse((2.5, 10.5), -degrees, (0, 0), scale, shear)
    np.testing.assert_allclose(matrix_of(op), expected, atol=1e-12)
    same = T.Affine(Choice(degrees), scale=scale, center=(8.5, 6.5))
    centred = T.Affine(Choice(degrees), scale=scale)
    np.testing.assert_array_equal(matrix_of(same), matrix_of(centred))


def test_a_perspective_maps_the_drawn_corners_to_those_of_the_image():
    for rng, twin in zip(streams(200), streams(200), strict=True):
        found = matrix_of(T.Perspective(0.8), rng)
        draws = np.reshape([twin.uniform(0, most) for _ in range(4) for most in (6.4, 4.8)], (4, 2))
        corners = np.array([[0, 0], [16, 0], [16, 12], [0, 12]])
        moved = corners + draws * [[1, 1], [-1, 1], [-1, -1], [1, -1]]
        back = np.column_stack([moved, np.ones(4)]) @ found.T
        np.testing.assert_allclose(back[:, :2] / back[:, 2:], corners, atol=1e-6)
        expected = cv2.getPerspectiveTransform(moved.astype(np.float32), corners.astype(np.float32))
        np.testing.assert_allclose(found / found[2, 2], expected, rtol=1e-2, atol=1e-3)


def test_zooming_keeps_the_centre():
    found = matrix_of(T.RandomScale(2.0))
    np.testing.assert_allclose(found, [[0.5, 0, 4], [0, 0.5, 3], [0, 0, 1]])


IDENTITIES = [
    T.Rotate(0),
    T.Affine(),
    T.Perspective(0),
    T.Rot90(0),
    T.Transpose(0),
    T.RandomScale(1.0),
]


@pytest.mark.parametrize("op", IDENTITIES, ids=repr)
@pytest.mark.parametrize("size", [(13, 17), (1, 1), (224, 224), (500, 333)])
def test_no_amount_is_exactly_the_identity(op, size):
    np.testing.assert_array_equal(matrix_of(op, None, *size), np.eye(3))


@pytest.mark.parametrize("turns", [-1, 1, 2, 3, 4])
def test_rotating_by_quarter_turns_is_exact(turns):
    found = matrix_of(T.Rotate((90 * turns, 90 * turns)), None, 16, 16)
    np.testing.assert_array_equal(found, matrix_of(T.Rot90(turns), None, 16, 16))


# Draws


def test_angles_are_spread_evenly():
    matrices = [matrix_of(T.Rotate(40), rng) for rng in streams(3000)]
    degrees = [math.degrees(math.atan2(matrix[1, 0], matrix[0, 0])) for matrix in matrices]
    assert stats.kstest(degrees, stats.uniform(-40, 80).cdf).pvalue > 0.001


def test_amounts_of_an_affine_map_are_drawn_one_by_one():
    op = T.Affine(translate_x=0.5, translate_y=(0.1, 0.2), scale=(0.5, 2))
    found = np.array([matrix_of(op, rng) for rng in streams(3000)])
    scale = 1 / found[:, 0, 0]
    centre = np.linalg.inv(found) @ [8, 6, 1]
    right, down = (centre[:, 0] - 8) / 17, (centre[:, 1] - 6) / 13
    assert stats.kstest(scale, stats.uniform(0.5, 1.5).cdf).pvalue > 0.001
    assert stats.kstest(right, stats.uniform(-0.5, 1).cdf).pvalue > 0.001
    assert stats.kstest(down, stats.uniform(0.1, 0.1).cdf).pvalue > 0.001
    assert abs(np.corrcoef([scale, right, down])[np.triu_indices(3, 1)]).max() < 0.08


def test_every_quarter_turn_is_as_likely():
    found = [matrix_of(T.Rot90((0, 1, 3)), rng) for rng in streams(3000)]
    counts = [sum(matrix[0, 1] == entry for matrix in found) for entry in (0, -1, 1)]
    assert stats.chisquare(counts).pvalue > 0.001


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_images_are_transposed_as_often_as_asked(probability):
    hit = sum(matrix_of(T.Transpose(probability), rng)[0, 0] == 0 for rng in streams(2000))
    if probability in (0, 1):
        assert hit == 2000 * probability
    else:
        assert stats.binomtest(hit, 2000, probability).pvalue > 0.001


# Images


@pytest.mark.parametrize(
    "op",
    [
        T.Rotate(60, border="reflect"),
        T.Perspective(0.6, fill=9, interpolation="nearest"),
        T.Affine(20, translate_x=0.2, scale=(0.7, 1.4), shear_y=20, fill=200),
    ],
    ids=repr,
)
def test_images_are_seen_through_the_map_that_was_drawn(op):
    x = images(SHAPE)
    applied = Applied(x, op)
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        np.testing.assert_array_equal(out, through(image, op, matrix_of(op, rng)))


def test_a_positive_rotation_is_counter_clockwise_as_in_pillow():
    x = np.zeros((1, 40, 40, 3), np.uint8)
    x[0, 5:15, 20:30] = 255
    out = apply(x, T.Rotate((30, 30)))[0]
    expected = np.asarray(Image.fromarray(x[0]).rotate(30, Image.Resampling.BILINEAR))
    assert np.abs(out.astype(int) - expected).mean() < 1
    assert np.nonzero(out[..., 0])[1].mean() < 20


@pytest.mark.parametrize("degrees", [30, -75, 90, 137.5])
def test_an_affine_map_turns_as_a_rotation_does(degrees):
    x = images((40, 52, 3), count=2)
    turned = apply(x, T.Rotate((degrees, degrees)))
    np.testing.assert_array_equal(apply(x, T.Affine((degrees, degrees))), turned)
    nearest = apply(x, T.Affine((degrees, degrees), interpolation="nearest"))
    for image, out in zip(x, nearest, strict=True):
        expected = np.asarray(Image.fromarray(image).rotate(degrees))
        assert np.mean(np.all(out == expected, axis=-1)) > 0.995


def by_pillow(image, matrix):
    """Return an image through a map of Pillow, which is of places from the corner of the image."""
    size = image.shape[1], image.shape[0]
    return np.asarray(Image.fromarray(image).transform(size, Image.Transform.AFFINE, matrix))


def as_pillow(out, x, matrix):
    """Return the share of pixels that are those of Pillow."""
    return np.mean([np.all(a == by_pillow(b, matrix), -1) for a, b in zip(out, x, strict=True)])


@pytest.mark.parametrize("slope", [-0.99, -0.3, 0.09, 0.17, 0.3, 0.8])
def test_a_shear_around_the_corner_is_that_of_pillow(slope):
    x = images((61, 47, 3), count=3)
    slant = Choice(math.degrees(math.atan(slope)))
    look = {"center": (0, 0), "interpolation": "nearest"}
    across = apply(x, T.Affine(shear_x=slant, **look))
    assert as_pillow(across, x, (1, slope, 0, 0, 1, 0)) >= 0.995
    down = apply(x, T.Affine(shear_y=slant, **look))
    assert as_pillow(down, x, (1, 0, 0, slope, 1, 0)) >= 0.995
    # Around the centre it is another image.
    centred = apply(x, T.Affine(shear_x=slant, interpolation="nearest"))
    assert as_pillow(centred, x, (1, slope, 0, 0, 1, 0)) < 0.9


@pytest.mark.parametrize(
    ("unit", "amount", "pixels"),
    [("pixels", 5.9, 5), ("pixels", -5.9, -5), ("size", 0.2, 12), ("size", -0.34, -20)],
)
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_policies_translate_by_whole_pixels_as_pillow(unit, amount, pixels, interpolation):
    x = images((61, 61, 3), count=2)
    look = {"unit": unit, "interpolation": interpolation}
    right = apply(x, Translate(Choice(amount), **look))
    assert as_pillow(right, x, (1, 0, -pixels, 0, 1, 0)) == 1
    down = apply(x, Translate(down=Choice(amount), **look))
    assert as_pillow(down, x, (1, 0, 0, 0, 1, -pixels)) == 1


def test_a_whole_translation_stays_whole_where_rounding_falls_short():
    op = Translate(Choice(150 / 331 * 0.3), unit="size")
    assert matrix_of(op, width=331)[0, 2] == -45


SQUARE = [
    *(lambda x, turns=turns: np.rot90(x, turns) for turns in range(4)),
    *(lambda x, turns=turns: np.rot90(x, turns).swapaxes(0, 1) for turns in range(4)),
]


@pytest.mark.parametrize("shape", [(9, 9, 3), (9, 9, 1), (9, 9)])
def test_every_symmetry_of_the_square_is_as_likely(shape):
    x = np.repeat(images(shape, count=1), 2000, axis=0)
    out = apply(x, T.D4())
    found = np.array([[np.array_equal(image, turn(x[0])) for turn in SQUARE] for image in out])
    np.testing.assert_array_equal(found.sum(axis=1), np.ones(2000))
    assert stats.chisquare(found.sum(axis=0)).pvalue > 0.001


def test_masks_and_boxes_follow_the_symmetries_of_the_square():
    image = np.zeros((64, 16, 16, 3), np.uint8)
    image[:, 2:7, 4:14] = 255
    data = {
        "image": image,
        "mask": (image[..., 0] > 0).astype(np.int32),
        "boxes": np.tile(np.array([[[4, 2, 14, 7]]], np.float32), (64, 1, 1)),
    }
    fields = ("image", "mask", "boxes")
    loader = lx.DataLoader(data, batch_size=64, transforms={fields: [T.D4()]}, output="numpy")
    batch = loader.batch(0)
    np.testing.assert_array_equal(batch["mask"] > 0, batch["image"][..., 0] > 0)
    for seen, (left, top, right, bottom) in zip(batch["mask"], batch["boxes"][:, 0], strict=True):
        rows, columns = np.nonzero(seen)
        assert (left, top) == (columns.min(), rows.min())
        assert (right, bottom) == (columns.max() + 1, rows.max() + 1)
    assert len({tuple(box) for box in batch["boxes"][:, 0].tolist()}) == 8


FILLED = [
    T.Rotate((30, 30), fill=(1, 2, 3), fill_mask=9),
    T.Affine(translate_x=(0.3, 0.3), fill=(1, 2, 3), fill_mask=9),
    T.Perspective(0.9, fill=(1, 2, 3), fill_mask=9),
    T.RandomScale((0.5, 0.5), fill=(1, 2, 3), fill_mask=9),
    T.ElasticDeform(9, 8, fill=(1, 2, 3), fill_mask=9),
]


@pytest.mark.parametrize("op", FILLED, ids=repr)
def test_channels_and_masks_have_fills_of_their_own(op):
    data = {
        "image": images((33, 33, 3), count=8) // 2 + 100,
        "mask": np.full((8, 33, 33), 4, np.uint8),
    }
    loader = lx.DataLoader(data, batch_size=8, transforms={("image", "mask"): [op]}, output="numpy")
    batch = loader.batch(0)
    assert set(np.unique(batch["mask"])) == {4, 9}
    # Three pixels further out there is no image to mix the colour with.
    outside = ndimage.binary_erosion(batch["mask"] == 9, np.ones((1, 7, 7)), border_value=1)
    assert outside.any()
    np.testing.assert_array_equal(np.unique(batch["image"][outside], axis=0), [[1, 2, 3]])
    assert op.fill == (1, 2, 3)
    labels = op.for_labels()
    assert (labels.fill, labels.interpolation) == (9, "nearest")


@pytest.mark.parametrize("fill", [7, (7, 8, 9), 0.5])
def test_the_colour_of_an_image_is_no_label_and_no_depth(fill):
    for op in (T.Rotate(5, fill=fill), T.ElasticDeform(fill=fill)):
        assert op.for_labels().fill == 0
        assert op.for_kind("values").fill == 0
        assert op.for_kind("image") is op


@pytest.mark.parametrize("fill", [(0.5, 0.25, 1), 0.5], ids=repr)
@pytest.mark.parametrize(
    ("op", "options"),
    [
        (T.Rotate, {"degrees": (45, 45)}),
        (T.ElasticDeform, {"amount": 9, "spacing": 8}),
        (T.Pad, {"amount": 3}),
        (T.ZoomOut, {"size": 33, "probability": 1.0, "sides": (1.5, 1.5)}),
    ],
)
def test_masks_and_depth_next_to_an_image_with_a_colour_outside_are_0_there(op, options, fill):
    data = {
        "image": np.ones((4, 33, 33, 3), np.float32),
        "mask": np.full((4, 33, 33), 4, np.uint8),
        "depth": np.full((4, 33, 33), 2, np.float32),
    }
    ops = {tuple(data): [op(**options, fill=fill)]}
    batch = lx.DataLoader(data, batch_size=4, transforms=ops, output="numpy").batch(0)
    outside = ndimage.binary_erosion(batch["mask"] == 0, np.ones((1, 5, 5)), border_value=1)
    assert outside.any()
    assert set(np.unique(batch["mask"])) == {0, 4}
    np.testing.assert_array_equal(batch["depth"][outside], 0)
    colours = np.unique(batch["image"][outside], axis=0)
    np.testing.assert_array_equal(colours, [np.broadcast_to(np.float32(fill), 3)])


def test_quarter_turns_and_transposing_are_exact_in_half_precision_too():
    x = images((6, 9), np.float16, count=8)
    np.testing.assert_array_equal(apply(x, T.Rot90(1)), np.rot90(x, 1, (1, 2)))
    np.testing.assert_array_equal(apply(x, T.Rot90((-1,))), np.rot90(x, 3, (1, 2)))
    np.testing.assert_array_equal(apply(x, T.Transpose(1)), x.swapaxes(1, 2))


def test_no_amount_gives_the_images_back_bit_for_bit():
    x = images((11, 11, 3), np.float32)
    x[0, 0, 0] = -0.0, np.inf, np.nan
    out = apply(x, *IDENTITIES, T.ElasticDeform(0, 2))
    assert out.tobytes() == x.tobytes()


# Elastic


def field_of(rng, amount, spacing, height, width):
    """Return the sources of pixels: splines through normal numbers at the points of a grid."""
    points = [(size - 1) // spacing + 2 for size in (height, width)]
    places = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    found = []
    for place in places:
        numbers = np.reshape([rng.normal(0, amount) for _ in range(math.prod(points))], points)
        moved = ndimage.map_coordinates(numbers, np.divide(places, spacing), order=3, mode="mirror")
        found.append(place + moved)
    return found


@pytest.mark.parametrize("spacing", [4, 30])
def test_an_elastic_image_is_moved_by_splines_through_normal_numbers(spacing):
    x = images(SHAPE)
    op = T.ElasticDeform(2.5, spacing, border="reflect")
    applied = Applied(x, op)
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        rows, columns = field_of(rng, 2.5, spacing, *SHAPE[:2])
        rows = reference.warp_inside(rows, SHAPE[0], REFLECT)
        columns = reference.warp_inside(columns, SHAPE[1], REFLECT)
        expected = reference.mixed_pixels(image, rows, columns, (0, 0, 0))
        # SciPy solves for the splines in another order.
        assert np.abs(out.astype(int) - expected).max() <= 1


def smallest_jacobian(rng, amount, spacing, size):
    """Return the smallest determinant of the derivative of the sources of pixels: below 0 the image folds."""
    rows, columns = field_of(rng, amount, spacing, size, size)
    (down, across), (left, right) = np.gradient(rows), np.gradient(columns)
    return (down * right - across * left).min()


@pytest.mark.parametrize("spacing", [8, 32])
def test_no_elastic_image_folds_by_default(spacing):
    op = T.ElasticDeform(spacing=spacing)
    (amount,) = op.parameters(Spec((96, 96, 3), np.uint8))["amount"]
    assert amount == spacing / 16
    found = [smallest_jacobian(rng, amount, spacing, 3 * spacing) for rng in streams(200)]
    assert min(found) > 0.3


def test_four_times_the_default_folds_elastic_images():
    found = [smallest_jacobian(rng, 8, 32, 128) for rng in streams(40)]
    assert 0.2 < np.mean(np.array(found) < 0) < 0.9


def test_labels_move_along_with_an_elastic_image():
    x = images((13, 17), np.int32)
    op = T.ElasticDeform((1, 3), 8, fill_mask=-1)
    assert op.for_labels().interpolation == "nearest"
    assert op.interpolation == "bilinear"
    applied = Applied(x, op.for_labels())
    for image, out, rng in zip(x, applied.out, applied.draws(), strict=True):
        amount = rng.uniform(1, 3)
        rows, columns = (np.floor(part + 0.5) for part in field_of(rng, amount, 8, 13, 17))
        expected = reference.warp_pixels(image[..., None], rows, columns, (-1,))[..., 0]
        assert np.mean(out != expected) < 0.01


# Debug mode


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (T.Rotate(60, border="reflect"), np.uint8),
        (T.Perspective(0.6, fill=9, interpolation="nearest"), np.uint8),
        (T.ElasticDeform(2.5, 4, border="reflect"), np.uint8),
    ],
    ids=repr,
)
def test_debug_mode_gives_the_same_images(op, dtype, monkeypatch):
    x = images(SHAPE, dtype)
    compiled = apply(x, op)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(x, op), compiled)


# Refusals

REFUSED = [
    (lambda: T.Rotate(-1), "`degrees` (=-1) must be a number of at least 0,"),
    (lambda: T.Rotate(math.nan), "`degrees` (=nan) must be"),
    (lambda: T.Rotate(5, interpolation="cubic"), "`interpolation` (='cubic') must be \"bilinear\" or \"nearest\"."),
    (lambda: T.Rotate(5, border="wrap"), "`border` (='wrap') must be one of 'fill', 'reflect', 'edge'."),
    (lambda: T.Rotate(5, fill=math.inf), "`fill` (=inf) must be a finite number."),
    (lambda: T.Affine(scale=0), "`scale` (=0) must be above 0."),
    (lambda: T.Affine(scale=(0, 1)), "`scale` (=(0, 1)) must be above 0."),
    (lambda: T.RandomScale(-1), "`scale` (=-1) must be a number of at least 0,"),
    (lambda: T.Affine(shear_x=90), "`shear_x` (=90) must be a number from 0 to 89,"),
    (lambda: T.Affine(translate_y="far"), "`translate_y` (='far') must be"),
    (lambda: T.Affine(center="corner"), "`center` (='corner') must be \"center\", or two finite numbers (x, y)."),
    (lambda: T.Affine(center=(1, math.nan)), "`center` (=(1, nan)) must be \"center\", or two finite numbers (x, y)."),
    (lambda: T.Rotate(5, fill=(1, math.inf, 2)), "`fill` (=inf) must be a finite number."),
    (lambda: T.Rotate(5, fill_mask="no"), "`fill_mask` (='no') must be a finite number."),
    (lambda: T.Perspective(1.5), "`distortion` (=1.5) must be from 0 to 1."),
    (lambda: T.Rot90(()), "`turns` (=()) must be an integer, or some of them."),
    (lambda: T.Rot90(1.5), "`turns` (=1.5) must be an integer, or some of them."),
    (lambda: T.Transpose(2), "`probability` (=2) must be from 0 to 1."),
    (lambda: T.ElasticDeform(-1), "`amount` (=-1) must be a number of at least 0,"),
    (lambda: T.ElasticDeform(1, 0), "`spacing` (=0) must be an integer of at least 1."),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_that_cannot_work_are_refused_at_once(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()


UNFIT = [
    (T.Rotate(5), (7,), "uint8", "Rotate accepts images of shape (height, width, channels) or (height, width), not"),
    (T.Rotate(5, fill=300), (7, 7, 3), "uint8", "Rotate: `fill` (=300.0) must be a value of uint8; the input is"),
    (T.Rotate(5, fill=(1, 300, 2)), (7, 7, 3), "uint8", "Rotate: `fill` (=300.0) must be a value of uint8; the input"),
    (T.Rotate(5, fill=(1, 2)), (7, 7, 3), "uint8", "Rotate: `fill` (=(1.0, 2.0)) must be one number, or one for each"),
    (T.D4(), (7, 9, 3), "uint8", "D4 accepts square images, not uint8[7, 9, 3]."),
    (T.Rotate(5), (7, 7, 3), "float16", "Rotate accepts integers, float32 or float64, not float16[7, 7, 3]."),
    (T.Rot90(), (7, 9, 3), "uint8", "Rot90: `turns` (=(0, 1, 2, 3)) must be all even or all odd for images that are"),
    (T.Transpose(), (7, 9), "uint8", "Transpose: `probability` (=0.5) must be 0 or 1 for images that are not square;"),
    (T.ElasticDeform(5), (7, 7, 3), "float16", "ElasticDeform accepts integers, float32 or float64, not float16["),
    (T.Rotate(5), (2**16, 2**15), "uint8", "Rotate accepts images of at most 2147483647 values, not uint8["),
]  # fmt: skip


@pytest.mark.parametrize(("op", "shape", "dtype", "message"), UNFIT)
def test_images_that_cannot_be_resampled_are_refused(op, shape, dtype, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        op.output(Spec(shape, dtype))


@pytest.mark.parametrize(("turns", "size"), [((0, 2), (7, 9)), ((1, 3), (9, 7)), (-1, (9, 7))])
def test_odd_turns_exchange_height_and_width(turns, size):
    assert T.Rot90(turns).output(Spec((7, 9, 3), np.uint8)).shape == (*size, 3)


def test_the_border_is_the_fill_colour_unless_asked():
    assert T.Rotate(5).border == T.ElasticDeform(5).border == FILL
