"""Public functions: their results, in plain Python and in a user's own compiled code, and the arguments they refuse."""

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numba
import numpy as np
import pytest
from numba.core import config

import loaderx as lx
from loaderx import kernels
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.kernels import threads
from loaderx.kernels.compilation import kernel, parallel_kernel
from tests.waiting import PATIENCE

compiled_only = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="numba may not compile")
RANDOM = np.random.default_rng(0)
ROWS = [3, -1, 0, 3, -7]


# --- Names ------------------------------------------------------------------------------------


def test_every_public_name_exists_has_words_and_is_seen_by_type_checkers():
    tree = ast.parse(Path(kernels.__file__).read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    # Type checkers treat `from .x import y as y` as an export.
    seen = [alias.asname for statement in imports for alias in statement.names if alias.asname]
    assert sorted(seen) == sorted(kernels.__all__) == sorted(dir(kernels))
    for name in kernels.__all__:
        assert getattr(kernels, name).__doc__, name
    with pytest.raises(AttributeError, match="unknown"):
        _ = kernels.unknown
    assert lx.kernels is kernels


def test_no_file_hides_a_public_function():
    for name in kernels.__all__:
        assert not Path(kernels.__file__).with_name(f"{name}.py").exists()


def test_public_functions_are_typed():
    for name in ("gather", "normalize", "permutation", "draws", "fields_id"):
        signature = inspect.signature(getattr(kernels, name))
        empty = inspect.Signature.empty
        assert signature.return_annotation is not empty
        assert all(each.annotation is not empty for each in signature.parameters.values())


@pytest.mark.parametrize("name", ["gather", "normalize", "permutation", "draws"])
def test_the_examples_of_docstrings_hold(name):
    function = getattr(kernels, name)
    module = importlib.import_module(function.__module__)
    (found,) = doctest.DocTestFinder(recurse=False).find(function, name, globs=vars(module).copy())
    assert found.examples
    results = doctest.DocTestRunner().run(found)
    assert (results.failed, results.attempted) == (0, len(found.examples))


# --- gather -----------------------------------------------------------------------------------


def arrays():
    """Return arrays of seven rows, in every layout."""
    plain = RANDOM.integers(0, 1000, (7, 4, 6)).astype(np.int32)
    read_only = plain.copy()
    read_only.flags.writeable = False
    wide = np.repeat(plain, 2, axis=0)
    return {
        "plain": plain,
        "read-only": read_only,
        "big-endian": plain.astype(">i4"),
        "fortran": np.asfortranarray(plain),
        "reversed rows": plain[::-1],
        "every second row": wide[::2],
        "reversed columns": plain[:, :, ::-1],
        "part of a row": plain[:, 1:3, ::2],
        "one row seven times": np.broadcast_to(plain[:1], plain.shape),
        "numbers": plain[:, 0, 0].copy(),
        "complex big-endian": plain.astype(">c16"),
        "strings": plain.astype("U5"),
        "big-endian strings": plain.astype(">U5"),
        "bfloat16": plain.astype(ml_dtypes.bfloat16),
        "records": np.array([(1, 2.5)] * 7, "i4,f8"),
        "no values": plain[:, :0],
    }


@pytest.mark.parametrize("name", arrays())
def test_rows_of_any_array_are_those_of_numpy(name):
    source = arrays()[name]
    expected = source[ROWS].astype(source.dtype.newbyteorder("="))
    np.testing.assert_array_equal(kernels.gather(source, ROWS), expected, strict=True)
    out = np.empty_like(expected, order="C")
    assert kernels.gather(source, np.array(ROWS, np.int8), out) is out
    np.testing.assert_array_equal(out, expected)


def test_rows_of_a_memory_map(tmp_path):
    array = RANDOM.random((7, 5))
    np.save(tmp_path / "rows.npy", array)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    found = kernels.gather(mapped, ROWS)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, array[ROWS])


def test_rows_may_be_any_list_of_integers_and_none():
    source = np.arange(10)
    assert kernels.gather(source, range(2, 8, 3)).tolist() == [2, 5]
    assert kernels.gather(source, np.array([9], np.uint64)).tolist() == [9]
    assert kernels.gather(source.tolist(), (1, 1)).tolist() == [1, 1]
    assert kernels.gather(source, []).shape == (0,)


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([7], r"`rows\[0\]` \(=7\) is outside of `source`, which has 7 rows"),
        ([0, -8], r"`rows\[1\]` \(=-8\) is outside"),
        ([0.0], "`rows`.*must be integers"),
        ([True], "`rows`.*must be integers"),
        ([[0]], "`rows`.*one axis"),
        (0, "`rows`.*one axis"),
        (np.array([2**64 - 1], np.uint64), "`rows`.*64 bits"),
    ],
)
def test_rows_outside_are_refused(rows, error):
    source = np.arange(21).reshape(7, 3)
    out = np.full((np.size(rows), 3), -1)
    with pytest.raises(IndexError, match=error):
        kernels.gather(source, rows, out)
    assert np.all(out == -1)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (np.float64(1), r"`source` of shape \(\)"),
        (np.array([None]), "`source` has the dtype object"),
        (np.ma.zeros(3), "`source` is a masked array"),
        (np.array([(1, 2)], ">i4,>i4"), "`source` has the dtype"),
    ],
)
def test_sources_without_rows_of_bytes_are_refused(source, error):
    with pytest.raises(ValueError, match=error):
        kernels.gather(source, [0])


def bad_outs(shape, dtype, source):
    """Return arrays that cannot hold a result, and the message about each."""
    shared = np.frombuffer(source.data, np.uint8)[: int(np.prod(shape)) * np.dtype(dtype).itemsize]
    read_only = np.zeros(shape, dtype)
    read_only.flags.writeable = False
    unaligned = np.zeros(read_only.nbytes + 1, np.uint8)[1:].view(dtype).reshape(shape)
    return {
        "a list": ([0], r"`out` \(a list\) must be a NumPy array"),
        "shape": (np.zeros((9, *shape[1:]), dtype), r"`out` has the shape \(9, "),
        "axes": (np.zeros((*shape, 1), dtype), "`out` has the shape"),
        "dtype": (np.zeros(shape, np.int16), "`out` has the dtype int16, and must have"),
        "byte order": (np.zeros(shape, np.dtype(dtype).newbyteorder()), "`out` has the dtype >"),
        "order": (np.zeros(shape, dtype, order="F"), "`out` has the strides .* C-contiguous"),
        "read-only": (read_only, "`out` is read-only"),
        "unaligned": (unaligned, "`out` begins at the address .* aligned"),
        "overlap": (shared.view(dtype).reshape(shape), "`out` overlaps the memory of"),
    }


SOURCE = RANDOM.random((40, 2, 3))


@pytest.mark.parametrize("kind", bad_outs((5, 2, 3), np.float64, SOURCE))
def test_an_out_that_cannot_hold_the_rows_is_refused(kind):
    out, error = bad_outs((5, 2, 3), np.float64, SOURCE)[kind]
    with pytest.raises(ValueError, match=error):
        kernels.gather(SOURCE, ROWS, out)


@pytest.mark.parametrize("given", [0, -1, 1.0, True, "2"])
def test_numbers_of_threads_are_integers_above_0(given):
    for call in (
        lambda: kernels.gather(SOURCE, ROWS, threads=given),
        lambda: kernels.normalize(SOURCE, 0, 1, threads=given),
        lambda: lx.pipeline([T.Identity()])(SOURCE, threads=given),
    ):
        with pytest.raises(ValueError, match=r"`threads` \(=.*\) must be an integer of at least 1"):
            call()


@pytest.fixture(params=["regions", "own threads"])
def three_parts(request, monkeypatch):
    """Run any work in three parts, in each of the two ways."""
    if config.DISABLE_JIT and request.param == "own threads":
        pytest.skip("plain Python has no threads of its own")
    process = threads.ProcessThreads(forked=True)
    process._regions = request.param == "regions"
    monkeypatch.setattr(threads, "_current", [process])
    monkeypatch.setattr(threads, "BYTES_PER_THREAD", 1)
    monkeypatch.setattr(threads, "POOL_FACTOR", 1)
    monkeypatch.setattr(threads, "num_threads", lambda: 3)
    monkeypatch.setattr(threads, "_run_region", lambda region, bounds: region(bounds))
    monkeypatch.setattr(config, "NUMBA_NUM_THREADS", 3)
    return process


# More than one thread copies without asking for others.
LARGE = (20, 50, 60) if not config.DISABLE_JIT else (20, 5, 6)


def test_parts_of_a_gather_are_the_same_rows(three_parts):
    source = RANDOM.integers(0, 1000, LARGE).astype(np.float32)
    rows = RANDOM.integers(-20, 20, 19)
    for array in (source, source.astype(">f4"), source[:, ::-1]):
        np.testing.assert_array_equal(kernels.gather(array, rows), array[rows].astype(np.float32))


# --- normalize --------------------------------------------------------------------------------

MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.3, 0.1]
INPUTS = ("uint8", "bool", "int16", "uint32", "float32", "float64")
OUTPUTS = ("float32", "float16", "bfloat16")


def values(dtype, shape=(5, 7, 9, 3)):
    numbers = RANDOM.integers(0, 256, shape)
    if np.dtype(dtype).kind == "f":
        found = (numbers / 255).astype(dtype)
        found.reshape(-1)[:4] = np.nan, np.inf, -np.inf, 1e30
        return found
    return (numbers % 2 if dtype == "bool" else numbers).astype(dtype)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("dtype", INPUTS)
def test_values_are_those_of_the_transform(dtype, output):
    batch = values(dtype)
    expected = lx.pipeline([T.Normalize(MEAN, STD, dtype=output)])(batch)
    out = np.empty(batch.shape, expected.dtype)
    assert kernels.normalize(batch, MEAN, STD, out) is out
    assert out.tobytes() == expected.tobytes()
    if output == "float32":
        np.testing.assert_array_equal(kernels.normalize(batch, MEAN, STD), expected, strict=True)


@pytest.mark.parametrize(("mean", "std"), [(0.5, 0.25), (MEAN, 0.25), (0.5, STD)])
@pytest.mark.parametrize("shape", [(6, 3), (3,), (1, 2, 3), (2000, 3), (4, 0, 3)])
def test_one_number_is_that_of_all_channels(mean, std, shape):
    batch = values("uint8", shape)
    found = kernels.normalize(batch, mean, std)
    np.testing.assert_allclose(found, (batch / 255 - mean) / std, rtol=1e-5, atol=1e-6)
    assert found.dtype == np.float32


def test_floats_are_normalised_in_place():
    batch = values("float32")
    expected = kernels.normalize(batch, MEAN, STD)
    assert kernels.normalize(batch, MEAN, STD, out=batch) is batch
    np.testing.assert_array_equal(batch, expected)
    other = batch.view()
    kernels.normalize(other, 0, 1, out=batch)
    np.testing.assert_array_equal(batch, expected)


def test_a_batch_in_any_layout_is_normalised():
    batch = values("int16")
    expected = kernels.normalize(batch, MEAN, STD)
    for given in (batch.astype(">i2"), np.asfortranarray(batch), np.repeat(batch, 2, 0)[::2]):
        np.testing.assert_array_equal(kernels.normalize(given, MEAN, STD), expected)
    np.testing.assert_array_equal(kernels.normalize(batch.tolist(), 0, 1).shape, batch.shape)


@pytest.mark.parametrize(
    ("batch", "mean", "std", "error"),
    [
        (np.zeros((2, 3)), [1, 2], 1, r"`mean` has 2 entries, and must have 1 or 3"),
        (np.zeros((2, 3)), 0, [1, 2], r"`std` has 2 entries"),
        (np.zeros((2, 3)), 0, 0, r"`std` \(=0\) must be finite and above 0"),
        (np.zeros((2, 3)), np.nan, 1, r"`mean` \(=nan\) must be finite"),
        (np.zeros((2, 3)), "a", 1, r"`mean` \(='a'\) must be a number"),
        (np.zeros((2, 3)), 0, 1e-45, r"`std` .* too small"),
        (np.zeros((2, 3), np.float16), 0, 1, "`batch` has the dtype float16"),
        (np.zeros((2, 3), complex), 0, 1, "`batch` has the dtype complex128"),
        (np.float32(1), 0, 1, r"`batch` of shape \(\)"),
    ],
)
def test_arrays_that_cannot_be_normalised_are_refused(batch, mean, std, error):
    with pytest.raises(ValueError, match=error):
        kernels.normalize(batch, mean, std)


IMAGES = RANDOM.random((40, 2, 3)).astype(np.float32)


@pytest.mark.parametrize("kind", bad_outs((40, 2, 3), np.float32, IMAGES))
def test_an_out_that_cannot_hold_floats_is_refused(kind):
    batch = np.concatenate([IMAGES, IMAGES])[:41].reshape(-1)[3:-3].reshape(40, 2, 3)
    out, error = bad_outs((40, 2, 3), np.float32, batch.base)[kind]
    with pytest.raises(ValueError, match=error.replace(", and must have", "")):
        kernels.normalize(batch, 0, 1, out)


@pytest.mark.parametrize("output", OUTPUTS)
def test_parts_of_a_batch_are_the_same_values(three_parts, output):
    for shape in ((20, 50, 3), (7, 3), (1, 1111, 3)):
        batch = values("uint8", shape)
        expected = lx.pipeline([T.Normalize(MEAN, STD, dtype=output)])(batch, batch=True, threads=1)
        out = np.empty(batch.shape, expected.dtype)
        kernels.normalize(batch, MEAN, STD, out)
        assert out.tobytes() == expected.tobytes()
    floats = values("float32", (20, 50, 3))
    expected = kernels.normalize(floats, MEAN, STD, threads=1)
    np.testing.assert_array_equal(kernels.normalize(floats, MEAN, STD, out=floats), expected)


# --- draws ------------------------------------------------------------------------------------


@lx.transform
def draw(x, rng):
    for i in range(x.shape[0]):
        x[i] = rng.uniform(-1.0, 2.0)


@lx.transform
def leave(x):
    x[0] = x[0]


def drawn(seed, position, count, *given):
    rng = kernels.draws(seed, position, *given)
    return [rng.uniform(-1, 2) for _ in range(count)]


@pytest.mark.parametrize("seed", [0, 7, 2**64 - 1])
def test_draws_are_those_of_a_transform(seed):
    out = lx.pipeline([draw], seed=seed)(np.zeros((3, 4)), positions=[0, 5, 10**12])
    for row, position in zip(out, (0, 5, 10**12), strict=True):
        assert row.tolist() == drawn(seed, position, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 0), r"`seed` (=-1) must be an integer from 0 to 2**64 - 1."),
        ((0, -5), r"`position` (=-5) must be an integer from 0 to 2**63 - 1."),
        ((0, 1.5), r"`position` (=1.5) must be an integer"),
        ((0, 0, -1), r"`op` (=-1) must be an integer"),
    ],
)
def test_draws_outside_of_a_stream_are_refused(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        kernels.draws(*arguments)


def test_draws_are_those_of_any_op_of_any_field():
    out = lx.pipeline([leave, draw], seed=3)(np.zeros((2, 4)))
    assert out[1].tolist() == drawn(3, 1, 4, 1)
    fields = {"one": np.zeros((3, 4)), "two": np.zeros((3, 4))}
    transforms = {"two": [draw], ("two", "one"): [leave, draw]}
    loader = lx.DataLoader(fields, batch_size=3, seed=5, transforms=transforms, output="numpy")
    batch = loader.batch(0)
    assert batch["one"][2].tolist() == drawn(5, 2, 4, 1, ("two", "one"))
    number = kernels.fields_id(["two", "one"])
    assert batch["two"][2].tolist() == drawn(5, 2, 4, 1, number)
    only = lx.DataLoader(fields, batch_size=3, seed=5, transforms={"two": [draw]}, output="numpy")
    assert only.batch(0)["two"][1].tolist() == drawn(5, 1, 4, 0, "two")


@numba.njit
def fill(seed, positions, out):
    for i in range(len(positions)):
        rng = kernels.draws(seed, positions[i])
        for j in range(out.shape[1]):
            out[i, j] = rng.uniform(-1.0, 2.0)


def fill_in_parallel(seed, positions, out):
    for i in numba.prange(len(positions)):
        rng = kernels.draws(seed, positions[i])
        for j in range(out.shape[1]):
            out[i, j] = rng.uniform(-1.0, 2.0)


FILLS = [
    pytest.param(fill, id="fill"),
    # From the cache; without it this takes two seconds.
    pytest.param(parallel_kernel(fill_in_parallel), id="fill_in_parallel"),
    pytest.param(
        numba.njit(parallel=True, nogil=True)(fill_in_parallel),
        id="fill_in_parallel, a user's",
        marks=pytest.mark.long,
    ),
]


@kernel
def draw_others(seed, position, number):
    first, second = kernels.draws(seed, position, 1), kernels.draws(seed, position, field="two")
    third = kernels.draws(seed, position, op=2, field=number)
    one, two = first.random(), second.random()
    return one, first.random(), two, second.random(), third.integers(100), third.normal(1.0, 2.0)


@pytest.mark.parametrize("function", FILLS)
def test_a_users_compiled_code_draws_the_same(function):
    positions = np.array([4, 0, 10**12, 3])
    for seed in (0, 7, np.uint64(2**64 - 1)):
        out = np.zeros((4, 5))
        if function is not fill and not config.DISABLE_JIT:
            numba.set_num_threads(1)  # this may be a process with the layer workqueue
        function(seed, positions, out)
        assert out.tolist() == [drawn(int(seed), int(position), 5) for position in positions]


def test_several_generators_in_compiled_code_do_not_disturb_each_other():
    number = np.uint64(kernels.fields_id(["two", "one"]))
    first, second = kernels.draws(7, 5, 1), kernels.draws(7, 5, field="two")
    third = kernels.draws(7, 5, 2, ("two", "one"))
    expected = [first.random(), first.random(), second.random(), second.random()]
    expected += [third.integers(100), third.normal(1, 2)]
    assert list(draw_others(7, 5, number)) == expected


@compiled_only
def test_a_field_that_is_not_constant_is_refused_in_compiled_code():
    @numba.njit
    def unknown(names):
        return kernels.draws(0, 0, 0, names[0]).random()

    with pytest.raises(numba.TypingError, match="`field` must be a string constant"):
        unknown(("a", "b"))


# --- In a user's compiled code ----------------------------------------------------------------


# Numba looks names up in the module at the time of compilation.
FRESH = """
import numba
import numpy as np
from loaderx import kernels

@numba.njit
def fill(source, rows, out):
    kernels.gather(source, rows, out)
    return kernels.draws(7, 0).random()

out = np.zeros((2, 3))
drawn = fill(np.arange(12.0).reshape(4, 3), np.array([2, 0]), out)
print(out.tolist(), drawn == kernels.draws(7, 0).random())
"""


@compiled_only
def test_a_users_compiled_code_is_the_first_to_call_them():
    finished = subprocess.run(
        [sys.executable, "-c", FRESH], capture_output=True, text=True, timeout=PATIENCE
    )
    assert finished.stdout == "[[6.0, 7.0, 8.0], [0.0, 1.0, 2.0]] True\n", finished.stderr


def gather_then_normalize(source, rows, mean, std, batch, out):
    kernels.gather(source, rows, batch)
    return kernels.normalize(batch, mean, std, out)


gather_and_normalize = numba.njit(nogil=True)(gather_then_normalize)
# From the cache: to compile it for an array in any layout takes three seconds.
cached_gather_and_normalize = kernel(gather_then_normalize)
LAYOUTS = [
    ("plain", gather_and_normalize),
    ("read-only", gather_and_normalize),
    ("every second row", cached_gather_and_normalize),
    ("reversed columns", cached_gather_and_normalize),
    pytest.param("every second row", gather_and_normalize, marks=pytest.mark.long),
    pytest.param("reversed columns", gather_and_normalize, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("name", "function"), LAYOUTS)
def test_a_users_compiled_code_calls_gather_and_normalize(name, function):
    source = arrays()[name]
    batch = np.zeros((len(ROWS), 4, 6), source.dtype)
    out = np.zeros(batch.shape, np.float32)
    mean, std = np.linspace(0, 1, 6), np.array([0.25])
    found = function(source, np.array(ROWS), mean, std, batch, out)
    np.testing.assert_array_equal(batch, source[ROWS])
    np.testing.assert_array_equal(found, kernels.normalize(source[ROWS], mean, std))


@pytest.mark.parametrize(
    ("rows", "shape", "error"),
    [([7], (1, 4, 6), IndexError), ([-8], (1, 4, 6), IndexError), ([0], (2, 4, 6), ValueError)],
)
def test_compiled_code_refuses_what_does_not_fit(rows, shape, error):
    source = arrays()["plain"]
    batch, out = np.zeros(shape, source.dtype), np.zeros(shape, np.float32)
    one = np.ones(1)
    with pytest.raises(error, match=r"outside|shape"):
        gather_and_normalize(source, np.array(rows), one, one, batch, out)
    batch = np.zeros((1, 4, 6), source.dtype)
    for mean, out in ((np.ones(2), batch.astype(np.float32)), (one, np.zeros((1, 4, 5), np.float32))):  # fmt: skip
        with pytest.raises(ValueError, match=r"entr|shape"):
            gather_and_normalize(source, np.array([0]), mean, one, batch, out)
