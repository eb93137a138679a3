"""A fresh copy of a function calls no code that was compiled before."""

import types

import numba
import numpy as np
import pytest
from numba.core import config

from loaderx.kernels import gathering
from loaderx.kernels.caching.fresh_copy import fresh_copy

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="numba may not compile")
LEVEL = 1.0


@numba.njit
def raised(value):
    return value + LEVEL


@numba.vectorize
def lowered(value):
    return value - LEVEL


@numba.njit("f8(f8)")
def fixed(value):
    return value * LEVEL


@numba.njit
def countdown(number):
    return number if number <= 0 else countdown(number - 1) + LEVEL


def function(value):
    return raised(value), lowered(value), countdown(2)


def test_a_copy_reads_the_values_of_now(monkeypatch):
    assert numba.njit(function)(5.0) == (6.0, 4.0, 2.0)
    monkeypatch.setitem(globals(), "LEVEL", 3.0)
    # Compiled code keeps the values it read.
    assert numba.njit(function)(5.0) == (6.0, 4.0, 2.0)
    assert numba.njit(fresh_copy(function))(5.0) == (8.0, 2.0, 6.0)
    assert raised(5.0) == 6.0


def test_a_copy_of_a_jitted_function_is_one_with_its_signatures(monkeypatch):
    monkeypatch.setitem(globals(), "LEVEL", 3.0)
    assert fresh_copy(raised)(5.0) == 8.0
    copy = fresh_copy(fixed)
    assert copy(np.float32(5.0)) == 15.0
    assert len(copy.signatures) == 1
    with pytest.raises(TypeError, match="No matching definition"):
        copy("five")


def test_values_of_closures_and_modules_are_copied_too(monkeypatch):
    held, module = raised, types.ModuleType("tools")
    module.raised = raised

    def closure(value):
        return held(value)

    def through_module(value):
        return module.raised(value)

    assert raised(5.0) == 6.0
    monkeypatch.setitem(globals(), "LEVEL", 3.0)
    assert numba.njit(fresh_copy(closure))(5.0) == 8.0
    assert numba.njit(fresh_copy(through_module))(5.0) == 8.0
    assert module.raised is raised


def test_kernels_are_not_copied():
    def calls(a, b, c):
        return gathering.copy_rows(a, b, c)

    copy = fresh_copy(calls)
    assert copy.__globals__["gathering"] is gathering


def test_options_are_those_of_the_copies():
    @numba.njit
    def first(values):
        return values[3]

    def reads(values):
        return first(values)

    copy = numba.njit(fresh_copy(reads, boundscheck=True))
    with pytest.raises(IndexError):
        copy(np.zeros(2))
