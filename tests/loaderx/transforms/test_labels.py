"""OneHot: a label becomes a row of floats, evenly smoothed, and a label beyond the classes an error."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.loaderx.transforms.images import apply


@pytest.mark.parametrize(("shape", "dtype"), [((), np.int64), ((1,), np.uint8), ((), np.uint64)])
def test_labels_become_rows_of_the_identity(shape, dtype):
    labels = np.array([3, 0, 9, 3], dtype).reshape(4, *shape)
    out = apply(labels, T.OneHot(10))
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, np.eye(10, dtype=np.float32)[labels.reshape(-1).astype(int)])


@settings(deadline=None, max_examples=30)
@given(
    labels=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    smoothing=st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.1, 1.0])),
)
def test_smoothing_mixes_in_an_even_spread(labels, smoothing):
    out = lx.pipeline([T.OneHot(10, smoothing=smoothing)])(np.array(labels))
    expected = (1 - smoothing) * np.eye(10)[labels] + smoothing / 10
    np.testing.assert_allclose(out, expected, atol=1e-7)
    np.testing.assert_allclose(out.sum(axis=1), 1, atol=1e-6)


def test_one_class_is_certain():
    np.testing.assert_array_equal(
        apply(np.zeros(3, np.int64), T.OneHot(1, smoothing=0.3)), [[1]] * 3
    )


@pytest.mark.parametrize("label", [10, -1, 2**62])
def test_a_label_beyond_the_classes_is_an_error_that_names_the_sample(label):
    labels = np.array([1, 2, label, 3])
    with pytest.raises(ValueError, match="OneHot: a label is outside of the classes") as caught:
        lx.pipeline([T.OneHot(10)])(labels)
    assert "in transform 'OneHot', at sample 2" in "".join(caught.value.__notes__)


REFUSED = [
    (lambda: T.OneHot(0), "`classes` (=0) must be an integer of at least 1."),
    (lambda: T.OneHot(-3), "`classes` (=-3) must be an integer of at least 1."),
    (lambda: T.OneHot(2.5), "`classes` (=2.5) must be an integer of at least 1."),
    (lambda: T.OneHot(math.nan), "`classes` (=nan) must be an integer of at least 1."),
    (lambda: T.OneHot(math.inf), "`classes` (=inf) must be an integer of at least 1."),
    (lambda: T.OneHot("ten"), "`classes` (='ten') must be an integer of at least 1."),
    (lambda: T.OneHot(10, smoothing=2), "`smoothing` (=2) must be from 0 to 1."),
    (lambda: T.OneHot(10, smoothing=-0.1), "`smoothing` (=-0.1) must be from 0 to 1."),
    (lambda: T.OneHot(10, smoothing=math.nan), "`smoothing` (=nan) must be from 0 to 1."),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_parameters_that_cannot_work_are_refused_at_once(make, message):
    with pytest.raises(lx.ArgumentError, match=re.escape(message)):
        make()


@pytest.mark.parametrize(
    ("labels", "spec"),
    [
        (np.zeros((2, 3), np.int64), "int64[3]"),
        (np.zeros(2, np.float32), "float32[]"),
        (np.zeros(2, np.bool), "bool[]"),
    ],
)
def test_labels_that_are_not_single_integers_are_refused(labels, spec):
    with pytest.raises(
        lx.ArgumentError, match=re.escape(f"OneHot accepts single integers, not {spec}.")
    ):
        lx.pipeline([T.OneHot(10)])(labels)
