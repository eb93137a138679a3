"""Spec: shape and dtype of one row; JAX without x64 narrows 64-bit dtypes."""

import dataclasses

import numpy as np
import pytest

from loaderx import ArgumentError, Spec
from loaderx.spec import check_dtype, narrowed


def test_a_spec_knows_how_many_elements_and_bytes_a_row_has():
    spec = Spec((3, 4), np.float32)
    assert (spec.size, spec.nbytes) == (12, 48)
    assert (Spec((), ">i8").size, Spec((), ">i8").nbytes) == (1, 8)
    assert (Spec((2, 0), "U3").size, Spec((2, 0), "U3").nbytes) == (0, 0)


def test_specs_are_equal_when_shape_and_dtype_are():
    assert Spec((2,), "f4") == Spec((np.int64(2),), np.float32)
    assert hash(Spec((2,), "f4")) == hash(Spec([2], np.float32))
    assert Spec((2,), "f4") != Spec((2,), ">f4")
    assert Spec((2,), "f4") != Spec((2, 1), "f4")


def test_a_spec_holds_plain_integers_and_a_dtype():
    spec = Spec((np.int64(2),), "f4")
    assert type(spec.shape[0]) is int
    assert isinstance(spec.dtype, np.dtype)


def test_a_spec_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Spec((2,), "f4").shape = (3,)


def test_a_spec_reads_as_dtype_and_shape():
    assert str(Spec((32, 32, 3), np.uint8)) == "uint8[32, 32, 3]"
    assert str(Spec((), np.int64)) == "int64[]"


@pytest.mark.parametrize(
    ("wide", "narrow"), [("i8", "i4"), ("u8", "u4"), ("f8", "f4"), ("c16", "c8")]
)
def test_64_bits_become_32(wide, narrow):
    assert narrowed(np.dtype(wide)) == np.dtype(narrow)


@pytest.mark.parametrize("dtype", ["?", "i1", "i2", "i4", "u1", "u2", "u4", "f2", "f4", "c8", "U2"])
def test_dtypes_of_at_most_32_bits_stay(dtype):
    assert narrowed(np.dtype(dtype)) == np.dtype(dtype)


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        (object, ["object", "Python objects cannot be mapped"]),
        ([("x", "f4"), ("y", "i4")], ["structured", "['x', 'y']", "as a dict"]),
        ("S0", ["S0", "no bytes per element"]),
        ("U0", ["U0", "no bytes per element"]),
    ],
)
def test_a_dtype_without_fixed_numbers_in_it_is_refused(dtype, words):
    with pytest.raises(ArgumentError) as refusal:
        check_dtype(np.dtype(dtype), "rows.npy")
    assert all(word in str(refusal.value) for word in ["rows.npy", *words])


@pytest.mark.parametrize("dtype", ["?", "i8", "f2", "g", "c16", "M8[s]", "m8[ns]", "S3", ">U2"])
def test_every_other_dtype_is_accepted(dtype):
    check_dtype(np.dtype(dtype), "rows.npy")
