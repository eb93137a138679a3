"""Normalize, ToFloat and Cast give NumPy's numbers, in every dtype and either order of axes."""

import math
import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.loaderx.transforms.images import apply, images

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def white_of(dtype):
    dtype = np.dtype(dtype)
    return np.iinfo(dtype).max if dtype.kind in "iu" else 1


def normalized(x, mean, std):
    """Normalise by one multiplication and one addition in float32."""
    mean, std = np.asarray(mean, float), np.asarray(std, float)
    scale = (1 / (std * white_of(x.dtype))).astype(np.float32)
    return x.astype(np.float32) * scale + (-mean / std).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("channels_first", [False, True])
def test_normalized_images_are_those_of_numpy_in_every_dtype_and_order(dtype, channels_first):
    x = images()
    out = apply(x, T.Normalize(MEAN, STD, dtype=dtype, channels_first=channels_first))
    assert out.dtype == np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    assert out.shape == ((5, 3, 7, 10) if channels_first else x.shape)
    out = np.moveaxis(out, 1, -1) if channels_first else out
    np.testing.assert_array_equal(out, normalized(x, MEAN, STD).astype(out.dtype))
    # The definition, which rounds in other places.
    definition = (x / 255 - MEAN) / STD
    tolerance = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
    np.testing.assert_allclose(out.astype(float), definition, atol=tolerance)


@pytest.mark.parametrize(
    ("shape", "dtype", "mean", "std"),
    [
        ((5, 6), np.uint16, 0.5, 0.25),
        ((4,), np.int32, [0.1, 0.2, 0.3, 0.4], 1.0),
        ((6, 4, 2), np.float32, 0.5, [0.1, 2.0]),
        ((), np.float64, 0.3, 0.2),
        ((3, 4, 1), np.bool, [0.5], [0.5]),
    ],
)
def test_samples_of_any_shape_and_dtype_are_normalized(shape, dtype, mean, std):
    x = images(shape, dtype)
    out = apply(x, T.Normalize(mean, std))
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, normalized(x, mean, std))
    definition = (x.astype(float) / white_of(dtype) - mean) / std
    np.testing.assert_allclose(out, definition, rtol=1e-5, atol=1e-6)


numbers = st.floats(-1e6, 1e6, width=32)


@pytest.mark.filterwarnings("ignore:.* on the scale from 0 to 1")
@settings(deadline=None, max_examples=30)
@given(
    samples=st_numpy.arrays(np.int32, (3, 4)),
    mean=st.lists(numbers, min_size=4, max_size=4),
    std=st.floats(1e-3, 1e6),
)
def test_any_mean_and_deviation_gives_numpys_numbers(samples, mean, std):
    out = lx.pipeline([T.Normalize(mean, std)])(samples)
    np.testing.assert_array_equal(out, normalized(samples, mean, std))


def test_integers_become_floats_from_zero_to_one():
    x = np.arange(256, dtype=np.uint8).repeat(3)[: 7 * 10 * 3].reshape(1, 7, 10, 3)
    x = np.concatenate([x, 255 - x, images(count=1)])
    out = apply(x, T.ToFloat())
    np.testing.assert_array_equal(out, x.astype(np.float32) * np.float32(1 / 255))
    np.testing.assert_allclose(out, x / 255, atol=1e-7)
    assert out.min() == 0.0
    assert out.max() == 1.0


def test_floats_stay_what_they_are():
    x = images(dtype=np.float32)
    x[0, 0, 0] = [np.nan, np.inf, -np.inf]
    x[1] *= 1e30
    np.testing.assert_array_equal(apply(x, T.ToFloat()), x)


def test_a_mask_becomes_one_plane():
    x = images((7, 10))
    out = apply(x, T.ToFloat(dtype="float16", channels_first=True))
    assert out.shape == (5, 1, 7, 10)
    expected = x.astype(np.float32) * np.float32(1 / 255)
    np.testing.assert_array_equal(out[:, 0], expected.astype(np.float16))


def test_large_numbers_become_infinite_in_half_precision_only():
    x = np.array([[65504.0, 65520.0, -1e9, 1e-8, 6e-8]], np.float32)
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    np.testing.assert_array_equal(apply(x, T.ToFloat(dtype=np.float16)), expected)
    assert np.isinf(expected).tolist() == [[False, True, True, False, False]]


@pytest.mark.parametrize(
    ("given_dtype", "dtype"),
    [
        (np.uint8, np.float32),
        (np.float64, np.int32),
        (np.int32, np.uint8),
        (np.float64, np.float32),
        (np.float32, np.bool),
    ],
)
def test_a_cast_is_that_of_numpy(given_dtype, dtype):
    random = np.random.default_rng(0)
    x = random.normal(0, 1000, (3, 4, 5))
    x = np.where(random.random(x.shape) < 0.3, 0, x)
    x = np.abs(x % 256 if given_dtype == np.uint8 else x).astype(given_dtype)
    out = apply(x, T.Cast(dtype))
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, x.astype(dtype))


@pytest.mark.parametrize("order", ["<", ">", "="])
def test_the_byte_order_of_a_dtype_is_not_a_part_of_it(order):
    out = apply(images((3, 4, 5)), T.Cast(np.dtype(np.float32).newbyteorder(order)))
    assert out.dtype == np.float32
    assert out.dtype.isnative
    assert T.Normalize(0, 1, dtype=np.dtype(np.float32).newbyteorder(order)).dtype.isnative


REFUSED = [
    (lambda: T.Normalize(0.5, 0), "`std` (=0) must be finite and above 0."),
    (lambda: T.Normalize(MEAN, [0.1, 0.0, 0.1]), "`std` (=[0.1, 0.0, 0.1]) must be finite and above 0."),
    (lambda: T.Normalize(0.5, -1), "`std` (=-1) must be finite and above 0."),
    (lambda: T.Normalize(0.5, math.nan), "`std` (=nan) must be finite and above 0."),
    (lambda: T.Normalize(0.5, math.inf), "`std` (=inf) must be finite and above 0."),
    (lambda: T.Normalize(0.5, 1e-320), "`std` (=1e-320) is too small: float32 cannot hold the result."),
    (lambda: T.Normalize(1e30, 1e-20), "`std` (=1e-20) is too small: float32 cannot hold the result."),
    (lambda: T.Normalize(math.nan, 1), "`mean` (=nan) must be finite."),
    (lambda: T.Normalize([0, math.nan, 0], 1), "`mean` (=[0, nan, 0]) must be finite."),
    (lambda: T.Normalize(math.inf, 1), "`mean` (=inf) must be finite."),
    (lambda: T.Normalize([], 1), "`mean` (=[]) must be a number, or one number per channel."),
    (lambda: T.Normalize(0, [[1, 2]]), "`std` (=[[1, 2]]) must be a number, or one number per channel."),
    (lambda: T.Normalize("a", 1), "`mean` (='a') must be a number, or one number per channel."),
    (lambda: T.Normalize(0, None), "`std` (=None) must be finite and above 0."),
    (lambda: T.Normalize(0, 1, dtype="float64"), "`dtype` (='float64') must be one of float32, float16, bfloat16."),
    (lambda: T.Normalize(0, 1, dtype=np.uint8), "must be one of float32, float16, bfloat16."),
    (lambda: T.ToFloat(dtype="int32"), "`dtype` (='int32') must be one of float32, float16, bfloat16."),
    (lambda: T.Cast("float16"), "`dtype` (='float16') must be an integer dtype, bool, float32 or float64; for"),
    (lambda: T.Cast("complex64"), "`dtype` (='complex64') must be an integer dtype"),
    (lambda: T.Cast("longdouble"), "`dtype` (='longdouble') must be an integer dtype"),
    (lambda: T.Cast("M8[s]"), "`dtype` (='M8[s]') must be an integer dtype"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_that_cannot_work_are_refused_at_once(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()


HALVES = ["float16", "bfloat16"]


def halves(name, shape=(7, 10, 3)):
    return images(shape, np.float32).astype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("dtype", ["float32", *HALVES])
def test_half_precision_is_normalized_as_the_floats_of_the_same_values(name, dtype):
    x = halves(name)
    floats = x.astype(np.float32)
    for op in (
        T.Normalize(MEAN, STD, dtype=dtype),
        T.Normalize(MEAN, STD, dtype=dtype, channels_first=True),
        T.ToFloat(dtype=dtype),
    ):
        out = apply(x, op)
        assert str(out.dtype) == dtype
        np.testing.assert_array_equal(out, apply(floats, op))
    if name == dtype:
        np.testing.assert_array_equal(apply(x, T.ToFloat(dtype=dtype)), x)


@pytest.mark.parametrize("name", HALVES)
def test_half_precision_is_normalized_after_ops_that_move_it(name):
    x = halves(name, (8, 8, 3))
    ops = [T.RandomCrop(6, pad=1), T.RandomFlip(), T.Normalize(MEAN, STD)]
    np.testing.assert_array_equal(apply(x, *ops), apply(x.astype(np.float32), *ops))
    # Colours need a dtype that compiled code calculates with.
    ops = [T.ToFloat(), T.Brightness(0.5, probability=0.5), T.ToFloat(dtype=name)]
    np.testing.assert_array_equal(apply(x, *ops), apply(x.astype(np.float32), *ops))


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint8", "bool"])
def test_half_precision_is_cast_as_numpy_does_it(name, dtype, monkeypatch):
    x = (halves(name, (5, 3)).astype(np.float32) * 200).astype(halves(name).dtype)
    x[0, 0] = 0
    out = apply(x, T.Cast(dtype))
    np.testing.assert_array_equal(out, x.astype(dtype))
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(apply(x, T.Cast(dtype)), out)


@pytest.mark.parametrize("name", HALVES)
def test_loaders_deliver_normalized_halves(name):
    x = halves(name)
    ops = {"image": [T.Normalize(0.5, 0.25)]}
    loader = lx.DataLoader({"image": x}, transforms=ops, batch_size=5, shuffle=False)
    expected = normalized(x.astype(np.float32), 0.5, 0.25)
    np.testing.assert_array_equal(loader.batch(0)["image"], expected)


def zeros(shape, dtype="uint8"):
    return np.zeros((2, *shape), dtype)


MISFITS = [
    (T.Normalize(MEAN, STD), zeros((7, 10, 1)), "Normalize: `mean` has 3 entries, the last axis of uint8[7, 10, 1]"),
    (T.Normalize(0.5, [1, 2]), zeros((7, 10, 3)), "Normalize: `std` has 2 entries, the last axis of uint8[7, 10, 3]"),
    (T.Normalize(MEAN, 1), zeros(()), "Normalize: `mean` has 3 entries, the last axis of uint8[]"),
    (T.Normalize(0, 1), zeros((4,), "complex64"), "Normalize accepts integers, bool, float16, bfloat16, float32 or"),
    (T.Normalize(0, 1), zeros((0, 3)), "Normalize accepts samples of at least one value, not uint8[0, 3]."),
    (T.ToFloat(), zeros((4,), "S3"), "ToFloat accepts integers, bool, float16, bfloat16, float32 or"),
    (T.ToFloat(channels_first=True), zeros((4,)), "ToFloat accepts images of shape (height, width, channels) or"),
    (T.Normalize([0] * 10, 1, channels_first=True), zeros((7, 10)), "Normalize with `channels_first` has values for"),
    (T.Cast("float32"), zeros((4,), "complex64"), "Cast accepts integers, bool, float16, bfloat16, float32 or"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "samples", "message"), MISFITS)
def test_samples_that_do_not_fit_are_refused_with_the_op_and_their_spec(op, samples, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        lx.pipeline([op])(samples, batch=True)


def test_one_mean_for_all_channels_is_that_of_every_plane():
    images = np.random.default_rng(0).integers(0, 256, (5, 6, 7, 3), dtype=np.uint8)
    planes = lx.pipeline([T.Normalize(0.4, 0.2, channels_first=True)])(images)
    np.testing.assert_allclose(
        planes, np.moveaxis((images / 255 - 0.4) / 0.2, -1, 1), rtol=1e-5, atol=1e-5
    )
