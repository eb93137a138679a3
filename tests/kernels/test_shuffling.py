"""`kernels.permutation`: the shuffle of a loader, with the indexing of an array."""

import numpy as np
import pytest

import loaderx as lx
from loaderx import kernels


@pytest.mark.parametrize("rows", [1, 2, 10, 97])
@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (7, 3), (2**64 - 1, 10**6)])
def test_it_is_the_order_of_a_loader(rows, seed, epoch):
    loader = lx.DataLoader(
        np.zeros(rows), batch_size=rows, seed=seed, num_epochs=epoch + 1, output="numpy"
    )
    expected = np.asarray(loader.indices(epoch))
    order = kernels.permutation(rows, seed, epoch)
    assert len(order) == rows
    np.testing.assert_array_equal(order[:], expected, strict=True)
    np.testing.assert_array_equal(np.asarray(order), expected, strict=True)
    assert sorted(order) == list(range(rows))


ARRAY = np.asarray(kernels.permutation(50, 3, 1))


@pytest.mark.parametrize(
    "key",
    [
        *(slice(None), slice(3, 9), slice(-5, None), slice(40, 3, -7), slice(100, 200)),
        *([1, -1, 1], np.array([[0, 5], [49, -50]]), np.array([3], np.uint8), [], range(4, 8)),
        np.array([7, 2**5], np.uint64),
    ],
    ids=str,
)
def test_indexing_is_that_of_an_array(key):
    expected = ARRAY[np.asarray(key, np.int64) if not isinstance(key, slice) else key]
    np.testing.assert_array_equal(kernels.permutation(50, 3, 1)[key], expected, strict=True)


def test_one_place_is_one_number():
    order = kernels.permutation(50, 3, 1)
    for place in (0, 49, -1, -50, np.int8(7), np.array(3)):
        assert order[place] == ARRAY[place]
        assert type(order[place]) is int


@pytest.mark.parametrize("key", [50, -51, [0, 50], np.array([2**64 - 1], np.uint64)])
def test_places_outside_are_refused(key):
    with pytest.raises(IndexError, match=r"place .* is outside of a permutation of 50 rows"):
        kernels.permutation(50, 3, 1)[key]


@pytest.mark.parametrize("key", [1.0, [True] * 50, "a", None, (1.5, 2)])
def test_indices_that_are_not_places_are_refused(key):
    with pytest.raises(IndexError, match="indexed by integers"):
        kernels.permutation(50, 3, 1)[key]


def test_it_needs_no_memory_for_the_rows():
    rows = 1 << 62
    order = kernels.permutation(rows, 1, 2)
    some = order[[0, -1, rows // 2]]
    assert len(set(some.tolist())) == 3
    assert np.all((some >= 0) & (some < rows))
    assert order[rows - 4 :].shape == (4,)
    assert repr(kernels.permutation(10)) == "<permutation of 10 rows>"


def test_an_array_of_it_is_a_new_one():
    order = kernels.permutation(10, 1)
    assert np.asarray(order, np.int16).dtype == np.int16
    with pytest.raises(ValueError, match="always a new one"):
        np.array(order, copy=False)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ((0,), r"`n` \(=0\) must be an integer from 1"),
        ((2**62 + 1,), "`n`"),
        ((5, -1), r"`seed` \(=-1\) must be an integer from 0"),
        ((5, 2**64), "`seed`"),
        ((5, 0, -1), r"`epoch` \(=-1\)"),
    ],
)
def test_numbers_out_of_range_are_refused(given, error):
    with pytest.raises(ValueError, match=error):
        kernels.permutation(*given)


@pytest.mark.parametrize("given", [(5.0,), ("5",), (5, 1.5), (5, 0, None)])
def test_arguments_that_are_not_integers_are_refused(given):
    with pytest.raises(TypeError, match=r"`\w+` \(=.*\) must be an integer"):
        kernels.permutation(*given)
