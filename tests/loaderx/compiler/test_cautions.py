"""Warnings about values on another scale than an op expects: once, at the line of the user."""

import warnings

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as its users call it

BYTES = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), np.uint8)
FLOATS = BYTES.astype(np.float32)
MEAN, STD = [123.7, 116.3, 103.5], [58.4, 57.1, 57.4]


def warned_of(samples, *ops):
    """Return the warnings of a loader with these ops."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lx.DataLoader(samples, transforms=list(ops))
        made = len(caught)
        lx.DataLoader(samples, transforms=list(ops), output="numpy").batch(0)
    assert len(caught) == 2 * made
    for warning in caught:
        assert (warning.category, warning.filename) == (UserWarning, __file__)
    return [str(warning.message) for warning in caught[:made]]


@pytest.mark.parametrize(("mean", "std"), [(MEAN, STD), (0.0, 255.0), (128, 1)])
def test_a_mean_of_bytes_is_warned_of_with_what_to_write(mean, std):
    (message,) = warned_of(BYTES, T.RandomFlip(), T.Normalize(mean, std))
    assert f"Normalize({mean!r}, {std!r}) gets uint8, which it divides by 255 before" in message
    wanted = [np.round(np.atleast_1d(value) / 255, 4).tolist() for value in (mean, std)]
    assert f"Normalize({wanted[0]}, {wanted[1]})" in message


@pytest.mark.parametrize(
    "ops",
    [
        [T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])],
        [T.Normalize(1, 1)],
        [T.Cast("float32"), T.Normalize(MEAN, STD)],
        [T.ToFloat(), T.Brightness(0.1)],
        [T.Sequence(T.ToFloat(), T.Brightness(0.1))],
        [T.Sequence(T.RandomFlip(), T.Sequence(T.ToFloat())), T.Maybe(0.5, T.Contrast(0.1))],
        [T.Sequence(T.ToFloat(), T.OneOf(T.Identity(), [T.Rotate(5), T.Brightness(0.1)]))],
        [T.OneOf([T.ToFloat(), T.Rotate(5)], [T.Rotate(5), T.ToFloat()]), T.Brightness(0.1)],
        [T.Sequence(T.Brightness(0.1), T.Normalize(0.5, 0.1))],
        [T.Brightness(0.1), T.Normalize(0.5, 0.1)],
        [T.Cast("float32"), T.GaussianBlur(1.0), T.ChannelShuffle(), T.RandomErasing()],
    ],
)
def test_values_on_their_scale_are_not_warned_of(ops):
    assert warned_of(BYTES, *ops) == []


@pytest.mark.parametrize(
    "ops",
    [
        [T.Brightness(0.1)],
        [T.RandomFlip(), T.Rotate(5), T.Contrast(0.1), T.Brightness(0.1), T.Gamma(2.0)],
        [T.Maybe(0.5, T.ColorJitter(0.1))],
        [T.Brightness(0.1, probability=0.5)],
        [T.Sequence(T.Cast("float32"), T.Maybe(0.5, T.RandomFlip()), T.Brightness(0.1))],
        [T.OneOf(T.Posterize(4), [T.RandomFlip(), T.Sharpness(0.5)])],
        [T.Normalize(MEAN, 1.0), T.GaussianNoise()],
    ],
)
def test_floats_above_one_are_warned_of_once(ops):
    (message,) = warned_of(FLOATS, *ops)
    assert "treats floats as images from 0 to 1 and clips" in message
    largest = FLOATS[0].max() if len(ops) != 2 else (FLOATS[0] - MEAN).max()
    assert f"values go up to {largest:g} in the first row" in message


def test_normalized_values_before_a_change_of_colours_are_warned_of():
    (message,) = warned_of(BYTES, T.Normalize(0.5, 0.1), T.Brightness(0.1))
    assert "put Normalize after it" in message


def test_floats_from_0_to_1_and_unknown_values_are_not_warned_of():
    @lx.transform
    def halved(x):
        x *= 0.5

    sharpened = FLOATS / 200
    for samples, ops in (
        (FLOATS / 255, [T.Brightness(0.1)]),
        (sharpened, [T.Brightness(0.1)]),
        (FLOATS, [halved, T.Brightness(0.1)]),
        (np.full_like(FLOATS, np.nan), [T.Brightness(0.1)]),
    ):
        assert warned_of(samples, *ops) == []


def test_a_pipeline_warns_too():
    with pytest.warns(UserWarning, match="on the scale from 0 to 1"):
        lx.pipeline([T.Normalize(MEAN, STD)])(BYTES)
