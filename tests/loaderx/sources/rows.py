"""Arrays of every kind, and checks of their batches."""

import jax
import numpy as np

from loaderx import DataLoader

LITTLE = [
    "b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "g", "c8", "c16", "G",
    "M8[ns]", "m8[s]", "S5", "U3", "V3",
]  # fmt: skip
DTYPES = LITTLE + [f">{code}" for code in LITTLE if code not in ("b1", "i1", "u1", "S5", "V3")]
# Dtypes that JAX has.
NUMBERS = [code for code in DTYPES if np.dtype(code).char in "?bBhHiIlLqQefdFD"]
NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


def values(shape, dtype, seed=0):
    """Return an array of different elements, whose 64-bit integers fit into 32 bits."""
    dtype = np.dtype(dtype)
    random = np.random.default_rng(seed)
    count = int(np.prod(shape))
    if dtype.kind in "iu":
        limits = np.iinfo(f"{dtype.kind}{min(dtype.itemsize, 4)}")
        flat = random.integers(limits.min, limits.max, count, endpoint=True)
    elif dtype.kind == "b":
        flat = random.random(count) < 0.5
    elif dtype.kind in "fc":
        flat = random.normal(size=count) + (1j * random.normal(size=count))
        flat = flat if dtype.kind == "c" else flat.real
    elif dtype.kind in "mM":
        flat = random.integers(0, 10**15, count)
    elif dtype.kind in "SU":
        flat = np.array([f"{number:x}" for number in random.integers(0, 4096, count)], object)
    else:
        flat = np.frombuffer(random.bytes(count * dtype.itemsize), dtype)
    return flat.astype(dtype).reshape(shape)


def native(array):
    """Return the same values in the byte order of the machine, in which rows are delivered."""
    return array.astype(array.dtype.newbyteorder("="))


def for_jax(array):
    """Return the same values in the dtype that JAX uses while x64 is off."""
    return array.astype(NARROW.get(array.dtype.name, array.dtype.newbyteorder("=")))


def assert_same(actual, expected):
    """Assert equal structure, type, shape and values."""
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for name, array in expected.items():
            assert_same(actual[name], array)
    elif isinstance(expected, tuple):
        assert isinstance(actual, tuple)
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other)
    else:
        assert isinstance(actual, np.ndarray | np.generic | jax.Array)
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        np.testing.assert_array_equal(np.asarray(actual), expected)


def one_pass(data, output="numpy", batch_size=3, **options):
    """Return all rows of a source in order, as a loader delivers them."""
    loader = DataLoader(
        data, batch_size=batch_size, shuffle=False, num_epochs=1, output=output, **options
    )
    with iter(loader) as iterator:
        batches = list(iterator)
    kind = jax.Array if output == "jax" else np.ndarray
    assert all(isinstance(leaf, kind) for leaf in jax.tree.leaves(batches))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *batches)


def assert_delivers(data, expected):
    """Assert that a source has these rows: by indexing, through a loader to NumPy, shuffled, and to JAX."""
    assert len(data) == len(jax.tree.leaves(expected)[0])
    assert_same(data[:], jax.tree.map(native, expected))
    assert_same(one_pass(data), jax.tree.map(native, expected))
    loader = DataLoader(data, batch_size=4, seed=3, output="numpy")
    rows = loader.indices(1)
    assert_same(loader.batch(1), jax.tree.map(lambda array: native(array)[rows], expected))
    if all(array.dtype.str[1:] in NUMBERS for array in jax.tree.leaves(expected)):
        assert_same(one_pass(data, "jax"), jax.tree.map(for_jax, expected))
