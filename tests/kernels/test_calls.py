"""Functions are called by their addresses, those of a C library and compiled ones, with all their arguments."""

import ctypes

import numba
import numpy as np
import pytest
import zstandard

from loaderx.kernels import calls
from loaderx.kernels.calls import function_address
from loaderx.kernels.compilation import kernel
from loaderx.sources.records.worker import Worker

LARGE = 2**62 + 12_345


@numba.njit
def fetch(function, entry, target, worker):
    return calls.fetch(function, entry, target, worker)


@numba.njit
def decompress(function, context, target, room, source, size):
    return calls.decompress(function, context, target, room, source, size)


@kernel
def combine(first, second, third):
    return first + 10 * second + 100 * third


@kernel
def refuse(first, second, third):
    return -7


@kernel
def minus(number):
    return -number


@numba.njit
def fetch_all(functions, out):
    for i in range(functions.shape[0]):
        out[i] = calls.fetch(functions[i], i, 2, 3)


def from_python(count):
    """Return the ctypes function type for so many numbers."""
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * count)


def test_a_kernel_is_called_by_its_address():
    address = function_address(combine, 3)
    assert address > 0
    assert fetch(address, 1, 2, 3) == 321
    assert fetch(address, LARGE, -1, 0) == LARGE - 10
    assert fetch(address, np.int64(4), np.int64(0), 0) == 4


def test_the_number_of_a_reason_comes_back():
    assert fetch(function_address(refuse, 3), 1, 2, 3) == -7


def test_a_kernel_has_one_address():
    assert function_address(combine, 3) == function_address(combine, 3)
    assert function_address(combine, 3) != function_address(refuse, 3)


def test_others_may_call_a_kernel_by_its_address_too():
    assert from_python(3)(function_address(combine, 3))(1, 2, 3) == 321
    assert from_python(1)(function_address(minus, 1))(LARGE) == -LARGE


def test_a_kernel_chooses_whom_to_call_while_it_runs():
    functions = np.array(
        [function_address(refuse, 3), function_address(combine, 3), function_address(refuse, 3)]
    )
    out = np.zeros(3, np.int64)
    fetch_all(functions, out)
    assert out.tolist() == [-7, 321, -7]


def test_a_function_of_python_is_called_by_its_address():
    seen = []

    def function(*numbers):
        seen.append(numbers)
        return LARGE

    callback = from_python(5)(function)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert decompress(address, 1, 2, 3, 4, LARGE) == LARGE
    assert seen == [(1, 2, 3, 4, LARGE)]


@pytest.mark.parametrize("size", [0, 1, 100, 100_000])
def test_a_decompressor_is_called_with_what_it_needs(size):
    content = np.random.default_rng(0).integers(0, 4, size, dtype=np.uint8)
    frame = np.frombuffer(zstandard.compress(content), np.uint8)
    own, out = Worker(), np.full(size + 64, 0xA5, np.uint8)
    function, context = own.words[:2].tolist()
    given = out.ctypes.data, size, frame.ctypes.data, len(frame)

    assert decompress(function, context, *given) == size
    assert out[:size].tobytes() == content.tobytes()
    assert (out[size:] == 0xA5).all()


def test_a_decompressor_that_fails_says_so():
    content = bytes(range(100))
    frame = np.frombuffer(zstandard.compress(content), np.uint8)
    own, out = Worker(), np.full(164, 0xA5, np.uint8)
    function, context = own.words[:2].tolist()
    for room, size in [(99, len(frame)), (100, len(frame) - 1), (0, len(frame))]:
        assert decompress(function, context, out.ctypes.data, room, frame.ctypes.data, size) < 0
        assert (out[100:] == 0xA5).all()
