"""Four images meet at a drawn point: their pixels, instances and points against twins, in parts and anywhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import config
from scipy import stats

from loaderx.kernels import mosaic
from loaderx.kernels.distributions import Draws
from tests import reference

KEY = np.uint64(2**63 + 17)
COUNT = 6
HEIGHT, WIDTH = 7, 9
# Smaller than an image, as large, and so large that four of them do not fill it.
RESULTS = [(7, 9), (4, 5), (1, 1), (14, 18), (17, 30), (9, 6)]
RANGES = [(0.25, 0.75), (0.0, 1.0), (0.0, 0.0), (1.0, 1.0), (0.5, 0.5)]
ROWS = 4
# A sample costs a millisecond in plain Python.
SAMPLES = 200 if config.DISABLE_JIT else 4000


def partners(count=COUNT):
    return (np.arange(count) + np.array([[1], [4], [2]])) % count


def boxes(columns=8, seed=0):
    """Return boxes in and around images, some of them not valid, with further columns."""
    rng = np.random.default_rng(seed)
    corners = rng.uniform(-2, [WIDTH + 2, HEIGHT + 2], (COUNT, ROWS, 2, 2))
    x = np.ones((COUNT, ROWS, columns), np.float32)
    x[..., :2], x[..., 2:4] = corners.min(axis=2), corners.max(axis=2)
    x[..., 4] = rng.random((COUNT, ROWS)) < 0.8
    x[..., 5] = rng.random((COUNT, ROWS))
    x[..., 6:] = rng.normal(size=(COUNT, ROWS, columns - 6))
    x[x[..., 4] == 0, :4] = 0
    return x


def keypoints(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 10, (COUNT, ROWS, 3)).astype(np.float32)
    x[..., 2] = rng.random((COUNT, ROWS)) < 0.8
    return x


def run(kernel, samples, out, *more, first=0, probability=1.0, center=(0.25, 0.75), result=(7, 9)):
    count = len(out)
    positions = np.arange(100 + first, 100 + first + count)
    given = (first, positions, partners()[:, first : first + count], KEY, probability, *center)
    kernel(*given, (HEIGHT, WIDTH), result, *more, samples, out)
    return out


def pixels(module, result, pixel=3, **options):
    rng = np.random.default_rng(0)
    samples = rng.integers(0, 256, (COUNT, HEIGHT * WIDTH * pixel), np.uint8)
    fill = np.tile(np.arange(pixel, dtype=np.uint8) + 100, result[1])
    out = np.full((options.pop("count", COUNT), result[0] * len(fill)), 7, np.uint8)
    return run(module.mosaic_pixels, samples, out, fill, result=result, **options)


def instances(module, result, dtype=np.int32, **options):
    values = np.random.default_rng(0).integers(-1, ROWS + 2, (COUNT, HEIGHT * WIDTH))
    out = np.full((options.pop("count", COUNT), result[0] * result[1]), 77, dtype)
    samples, more = values.astype(dtype), (dtype(9), ROWS)
    return run(module.mosaic_instances, samples, out, *more, result=result, **options)


def points(module, result, x=None, packed=False, rows=4 * ROWS, **options):
    x = boxes() if x is None else x
    out = np.full((options.pop("count", COUNT), rows, x.shape[2]), np.nan, np.float32)
    return run(module.mosaic_points, x, out, packed, result=result, **options)


@pytest.mark.parametrize("center", RANGES)
@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("pixel", [1, 3, 8])
def test_pixels_equal_those_of_the_twin(pixel, result, center):
    for probability in (1.0, 0.5) if result == (HEIGHT, WIDTH) else (1.0,):
        given = {"pixel": pixel, "center": center, "probability": probability}
        out = pixels(mosaic, result, **given)
        np.testing.assert_array_equal(out, pixels(reference, result, **given))


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64])
@pytest.mark.parametrize("result", RESULTS)
def test_numbers_of_boxes_equal_those_of_the_twin(result, dtype):
    for center in RANGES:
        out = instances(mosaic, result, dtype, center=center)
        np.testing.assert_array_equal(out, instances(reference, result, dtype, center=center))


@pytest.mark.parametrize("center", RANGES)
@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("make", [boxes, keypoints])
@pytest.mark.parametrize(("packed", "rows"), [(False, 16), (True, 16), (True, 3), (True, 1)])
def test_points_equal_those_of_the_twin(make, result, center, packed, rows):
    for probability in (1.0, 0.5):
        given = {"x": make(), "center": center, "packed": packed, "rows": rows}
        out = points(mosaic, result, probability=probability, **given)
        expected = points(reference, result, probability=probability, **given)
        np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)


def test_parts_of_a_batch_are_those_of_the_whole():
    for make in (pixels, instances, points):
        whole = make(mosaic, (7, 9), probability=0.7)
        for first, stop in [(0, 2), (2, 3), (3, 6)]:
            part = make(mosaic, (7, 9), probability=0.7, first=first, count=stop - first)
            np.testing.assert_array_equal(part, whole[first:stop])


@settings(deadline=None, max_examples=80)
@given(
    row=st.integers(0, 30),
    column=st.integers(0, 30),
    size=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    result=st.tuples(st.integers(1, 30), st.integers(1, 30)),
)
def test_quarters_do_not_overlap_and_touch_the_point(row, column, size, result):
    point = min(row, result[0]), min(column, result[1])
    seen = np.zeros(result, int)
    for number in range(4):
        begin, left_end, top, bottom, left, right = mosaic.quarter(number, point, *size, *result)
        assert (begin + size[0] if number < 2 else begin) == point[0]
        assert (left_end + size[1] if number % 2 == 0 else left_end) == point[1]
        seen[top:bottom, left:right] += 1
    assert seen.max(initial=0) <= 1
    assert bool(seen.all()) == mosaic.is_covered(point, *size, *result)


def test_the_point_is_anywhere_in_its_range_and_draws_happen_as_often_as_they_should():
    found = np.array(
        [mosaic.meeting_point(Draws(state), 0.6, 0.2, 0.7, 1000, 2000) for state in range(SAMPLES)]
    )
    happened = found[:, 0] >= 0
    assert stats.binomtest(int(happened.sum()), SAMPLES, 0.6).pvalue > 1e-3
    rows, columns = found[happened].T
    for values, size in ((rows, 1000), (columns, 2000)):
        law = stats.uniform(0.2 * size, 0.5 * size)
        assert stats.kstest(values + 0.5, law.cdf).pvalue > 1e-3
    assert abs(np.corrcoef(rows, columns)[0, 1]) < 4 / np.sqrt(happened.sum())
