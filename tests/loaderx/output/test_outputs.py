"""Outputs: arrays of a batch, their memory, and the dtypes of each output."""

import gc
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

from loaderx import ArgumentError, DataLoader, transforms
from loaderx.output import OUTPUTS
from loaderx.output.dlpack import DLPackArray
from tests.waiting import join

DTYPES = ["?", "u1", "i4", "i8", "u2", "f2", "f4", "f8", "c8", ml_dtypes.bfloat16]


def loader_of(data, output, **options):
    options = {"batch_size": 4, "shuffle": False, **options}
    return DataLoader(data, output=output, **options)


def values(shape, dtype="f4"):
    return (np.arange(np.prod(shape)) % 7).reshape(shape).astype(dtype)


def test_an_unknown_output_names_what_there_is():
    with pytest.raises(ArgumentError) as refusal:
        loader_of(values((8, 2)), "tensorflow")
    assert all(name in str(refusal.value) for name in (*OUTPUTS, "'tensorflow'", "callable"))


@pytest.mark.parametrize("output", ["numpy", "torch", "dlpack", np.asarray])
def test_shardings_are_for_jax(output):
    with pytest.raises(ArgumentError, match='`sharding` needs output="jax"'):
        loader_of(values((8, 2)), output, sharding=object())


def test_torch_where_it_is_not_installed_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ArgumentError, match="pip install torch"):
        loader_of(values((8, 2)), "torch")


# --- a callable -------------------------------------------------------------------------------


def test_a_callable_gets_every_array_and_its_results_are_delivered():
    seen = []

    def shape_and_sum(array):
        seen.append(type(array))
        return array.shape, float(array.sum())

    data = {"x": values((8, 3)), "y": np.arange(8)}
    with iter(loader_of(data, shape_and_sum)) as batches:
        assert next(batches) == {"x": ((4, 3), float(data["x"][:4].sum())), "y": ((4,), 6.0)}
    assert set(seen) == {np.ndarray}


def test_a_callable_that_raises_does_so_at_its_step():
    def fails_at_second(array):
        if array[0] == 4:
            raise OSError("no")
        return array

    with iter(loader_of(np.arange(16), fails_at_second)) as batches:
        assert next(batches).tolist() == [0, 1, 2, 3]
        with pytest.raises(OSError, match="no") as raised:
            next(batches)
        assert batches.step == 1
    assert "while building step 1" in "".join(raised.value.__notes__)


def test_the_mask_and_structures_go_through_it_too():
    loader = loader_of((np.arange(5), values((5, 2))), list, num_epochs=1, remainder="pad")
    first, second, mask = loader.batch(1)
    assert (first, mask) == ([4, 0, 1, 2], [True, False, False, False])
    assert len(second) == 4


def test_arrays_of_a_hook_are_converted_and_other_values_stay():
    own = values((4, 2))

    def hook(batch):
        return {"x": batch, "own": own, "name": "a", "none": None, "number": 3}

    loader = loader_of(values((8, 2)), lambda array: ("converted", array), transform=hook)
    batch = loader.batch(0)
    assert (batch["name"], batch["none"], batch["number"]) == ("a", None, 3)
    assert batch["x"][0] == batch["own"][0] == "converted"
    # Memory that the hook may write to later is copied.
    assert not np.shares_memory(batch["own"][1], own)


def test_a_loader_with_a_callable_pickles_if_that_does():
    import pickle

    loader = loader_of(values((8, 2)), np.ascontiguousarray)
    again = pickle.loads(pickle.dumps(loader))
    np.testing.assert_array_equal(again.batch(1), loader.batch(1))
    assert again.output is np.ascontiguousarray


# --- DLPack -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES[:-1])
@pytest.mark.parametrize("shape", [(8,), (8, 3), (8, 0), (8, 2, 3)], ids=str)
def test_dlpack_arrays_are_the_memory_of_the_batch(dtype, shape):
    data = values(shape, dtype)
    batch = loader_of(data, "dlpack").batch(1)
    assert isinstance(batch, DLPackArray)
    assert (batch.shape, batch.dtype) == ((4, *shape[1:]), np.dtype(dtype))
    assert batch.__dlpack_device__() == (1, 0)
    imported = np.from_dlpack(batch)
    np.testing.assert_array_equal(imported, data[4:])
    assert imported.ctypes.data == np.asarray(batch).ctypes.data
    assert imported.ctypes.data % 64 == 0
    assert repr(batch) == f"DLPackArray(shape={batch.shape}, dtype={batch.dtype})"


def test_jax_imports_them_without_a_copy_also_bfloat16():
    import jax

    for dtype in (np.uint8, np.float32, np.float16, np.bool_, ml_dtypes.bfloat16):
        data = values((8, 16), dtype)
        batch = loader_of(data, "dlpack").batch(1)
        imported = jax.dlpack.from_dlpack(batch)
        assert imported.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(np.asarray(imported), data[4:])
        assert imported.unsafe_buffer_pointer() == np.asarray(batch).ctypes.data


@pytest.mark.parametrize("versions", [{}, {"max_version": (0, 8)}, {"max_version": (1, 0)}])
def test_capsules_of_both_kinds_say_bfloat16(versions):
    import ctypes

    from loaderx.output import dlpack

    batch = loader_of(values((8, 2), ml_dtypes.bfloat16), "dlpack").batch(0)
    capsule = batch.__dlpack__(**versions)
    name = dlpack._name_of(capsule)
    assert name == (b"dltensor_versioned" if versions.get("max_version") == (1, 0) else b"dltensor")
    address = dlpack._pointer_of(capsule, name) + dlpack.TENSOR_OFFSETS[name]
    data, device, ndim, code, bits = (
        ctypes.c_void_p.from_address(address).value,
        ctypes.c_int32.from_address(address + 8).value,
        ctypes.c_int32.from_address(address + 16).value,
        ctypes.c_uint8.from_address(address + 20).value,
        ctypes.c_uint8.from_address(address + 21).value,
    )
    assert (data, device, ndim) == (np.asarray(batch).ctypes.data, 1, 2)
    assert (code, bits) == (4, 16)


def test_memory_is_used_again_when_the_last_importer_is_gone():
    loader = loader_of(values((64, 1000)), "dlpack", workers=1)
    (pool,) = loader._builder.planner.pools
    batch = loader.batch(0)
    address = np.asarray(batch).ctypes.data
    view = np.from_dlpack(batch)[1:3]
    before = view.copy()
    del batch
    kept = [loader.batch(step) for step in range(1, 9)]
    assert all(np.asarray(other).ctypes.data != address for other in kept)
    np.testing.assert_array_equal(view, before)
    del kept
    gc.collect()
    free = pool.free
    ended = threading.Thread(target=lambda held: held.clear(), args=([view],))
    del view
    ended.start()
    join(ended)
    gc.collect()
    assert pool.free >= free


@pytest.mark.parametrize("dtype", ["S3", "U3", "M8[s]", "g", ml_dtypes.float8_e4m3fn])
def test_a_dtype_that_dlpack_does_not_have_is_refused_when_the_loader_is_made(dtype):
    with pytest.raises(ArgumentError, match=r"field 'name'.*DLPack does not have"):
        loader_of({"x": np.arange(8), "name": np.zeros(8, dtype)}, "dlpack")


def test_byte_swapped_numbers_are_delivered_in_native_order():
    data = values((8, 2), ">f4")
    batch = loader_of(data, "dlpack").batch(0)
    np.testing.assert_array_equal(np.from_dlpack(batch), data[:4])


def test_transforms_write_into_what_is_delivered():
    images = values((8, 6, 6, 3), "u1")
    ops = [transforms.RandomFlip(), transforms.Normalize([0.5] * 3, [0.25] * 3)]
    expected = loader_of(images, "numpy", transforms=ops).batch(1)
    got = loader_of(images, "dlpack", transforms=ops).batch(1)
    assert np.from_dlpack(got).tobytes() == expected.tobytes()


def test_nothing_keeps_a_batch_but_its_importers():
    batch = loader_of(values((8, 2)), "dlpack").batch(0)
    imported = np.from_dlpack(batch)
    gone = weakref.ref(imported)
    del batch, imported
    gc.collect()
    assert gone() is None
