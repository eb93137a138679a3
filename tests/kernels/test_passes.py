"""Arguments of a pass are read from the places in its layout, compiled or in plain Python."""

import numba
import numpy as np
import pytest
from numba.core import config

from loaderx.kernels import passes
from loaderx.kernels.compilation import jitable, kernel
from loaderx.kernels.distributions import Draws
from loaderx.kernels.memory import store_word
from loaderx.kernels.numba_internals import compiled, native_address
from loaderx.kernels.passes import Array, Length, Numbers, Rng, Scalar, Size


@kernel
def call_compiled(address, x, out, block, scratch, key, sizes, length):
    return passes.call_pass(address, True, x, out, block, scratch, key, sizes, length)


def call(function, layout, *, x=0, out=0, block=(), scratch=0, key=0, sizes=(0, 0), length=0, store=None):  # fmt: skip
    """Call a function as a pass; `block` has words, or floats as the bits of words."""
    words = [np.array([word]).view(np.int64)[0] for word in block]
    block, sizes = np.array(words, np.int64), np.array(sizes, np.int64)
    given = (x, out, block.ctypes.data, scratch, np.uint64(key), sizes.ctypes.data, length)
    if config.DISABLE_JIT:
        return passes.entry_of(function, layout, store)(*given)
    entry = numba.njit(passes.entry_of(numba.njit(function), layout, store))
    code = compiled(entry, passes.SIGNATURE)
    status = call_compiled(native_address(code), *given)
    assert status == entry(*given)
    return status


def note(x, out):
    out[0] = x.shape[0] * 1000 + x.shape[1]
    out[1] = x[1, 2]


@pytest.mark.parametrize(
    ("shape", "block"), [((2, 3), []), ((None, 3), [2]), ((None, None), [2, 3]), (("height", "width"), [])]
)  # fmt: skip
@pytest.mark.parametrize("base", ["x", "scratch", "parameters"])
def test_an_array_has_a_shape_of_constants_words_and_sizes(shape, block, base):
    x, out = np.arange(6, dtype=np.int16).reshape(2, 3), np.zeros(2)
    layout = (Array(base, "int16", shape, offset=base == "scratch"), Array("out", "float64", (2,)))
    address = x.ctypes.data
    given = {"x": {"x": address}, "scratch": {"scratch": address - 16}, "parameters": {}}[base]
    words = {"x": block, "scratch": [16, *block], "parameters": [address, *block]}[base]
    assert call(note, layout, out=out.ctypes.data, block=words, sizes=(2, 3), **given) == 0
    assert out.tolist() == [2003, 5]


@jitable
def list_each(out, flag, integer, single, double, height, width, length, pair):
    out[0], out[1], out[2], out[3] = flag, integer, single, double
    out[4], out[5], out[6], out[7], out[8] = height, width, length, pair[0], pair[1]


@pytest.mark.parametrize(("given", "found"), [(5, 5), (50, 9)])
def test_numbers_are_read_from_words_of_their_own(given, found):
    out = np.zeros(9)
    layout = (
        Array("out", "float64", (9,)), Scalar("boolean"), Scalar("int64"), Scalar("float32"), Scalar("float64"),
        Size("height"), Size("width"), Length(), Numbers("float64", 2),
    )  # fmt: skip
    single = np.zeros(2, np.float32)
    single[0] = 0.5
    block = [1, -7, single.view(np.float64)[0], 2.25, 9, 3.5, 4.5]
    call(list_each, layout, out=out.ctypes.data, block=block, sizes=(11, 12), length=given)
    assert out.tolist() == [1, -7, 0.5, 2.25, 11, 12, found, 3.5, 4.5]


def draw_two(out, rng):
    out[0] = rng.random()
    out[1] = rng.random()


def test_draws_begin_with_the_key():
    out, rng = np.zeros(2), Draws(77)
    call(draw_two, (Array("out", "float64", (2,)), Rng()), out=out.ctypes.data, key=77)
    assert out.tolist() == [rng.random(), rng.random()]


def draw_into(rng, x):
    x[0] = rng.random()


def test_draws_whose_state_is_in_memory_continue_from_it():
    state, found, rng = np.array([77], np.uint64), np.zeros(1), Draws(77)
    layout = (Rng("out"), Array("x", "float64", (1,)))
    expected = [rng.random(), rng.random(), rng.random(), rng.random()]
    for _ in range(2):
        before = state[0]
        call(draw_into, layout, x=found.ctypes.data, out=state.ctypes.data)
        assert found[0] in expected
        assert state[0] != before


@jitable
def store_sum(numbers, address):
    store_word(address, numbers[0] + numbers[1])


@jitable
def both(first, second):
    return first, second


def test_the_result_of_a_function_is_stored():
    out = np.zeros(1, np.int64)
    layout = (Scalar("int64"), Scalar("int64"))
    call(both, layout, out=out.ctypes.data, block=[30, 12], store=store_sum)
    assert out[0] == 42
