"""Batches as PyTorch tensors share the memory of the batch, which lives as long as a tensor, view or storage of it."""

import gc
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from loaderx import ArgumentError, DataLoader, transforms

REPOSITORY = Path(__file__).parents[2]
DTYPES = {
    "bool": torch.bool,
    "uint8": torch.uint8,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint16": torch.uint16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
    "complex64": torch.complex64,
    "bfloat16": torch.bfloat16,
}


def values(shape, dtype="float32"):
    return (np.arange(np.prod(shape)) % 5).reshape(shape).astype(getattr(ml_dtypes, dtype, dtype))


def loader_of(data, **options):
    return DataLoader(data, **{"batch_size": 4, "shuffle": False, "output": "torch", **options})


def as_numbers(tensor):
    return tensor.to(torch.float32 if not tensor.is_complex() else torch.complex64).numpy()


@pytest.mark.parametrize("shape", [(8,), (8, 3), (8, 0), (8, 2, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_have_the_dtype_and_the_values(dtype, shape):
    data = values(shape, dtype)
    batch = loader_of(data).batch(1)
    assert isinstance(batch, torch.Tensor)
    assert batch.dtype == DTYPES[dtype]
    assert tuple(batch.shape) == (4, *shape[1:])
    assert batch.device.type == "cpu"
    np.testing.assert_array_equal(as_numbers(batch), data[4:].astype(as_numbers(batch).dtype))


def test_a_tensor_is_the_memory_that_was_gathered_into():
    addresses = []

    def watch(batch):
        addresses.append(batch["x"].ctypes.data)
        return batch

    for dtype in DTYPES:
        loader = loader_of({"x": values((16, 32), dtype)}, transform=watch, workers=1)
        with iter(loader) as batches:
            taken = [next(batches)["x"] for _ in range(3)]
        assert [tensor.data_ptr() for tensor in taken] == addresses[: len(taken)]
        assert all(tensor.data_ptr() % 64 == 0 for tensor in taken)
        addresses.clear()


def test_tensors_are_writable_and_share_nothing_with_other_batches():
    data = values((16, 3))
    with iter(loader_of(data)) as batches:
        first, second = next(batches), next(batches)
        first.fill_(100)
        np.testing.assert_array_equal(second.numpy(), data[4:8])
        np.testing.assert_array_equal(next(batches).numpy(), data[8:12])
    np.testing.assert_array_equal(data, values((16, 3)))


KEEPERS = {
    "the tensor": lambda tensor: tensor,
    "a view": lambda tensor: tensor[1:, 2:4],
    "a storage": lambda tensor: tensor.untyped_storage(),
    "a NumPy view": lambda tensor: tensor.numpy(),
    "a detached tensor": lambda tensor: tensor.detach(),
    "a capsule": lambda tensor: torch.from_dlpack(tensor),
}


@pytest.mark.parametrize("keeper", KEEPERS)
def test_memory_is_not_used_again_while_something_sees_it(keeper):
    data = values((4000, 64))
    loader = loader_of(data, workers=2, batch_size=40)
    with iter(loader) as batches:
        tensor = next(batches)
        address = tensor.data_ptr()
        kept = KEEPERS[keeper](tensor)
        del tensor
        for _ in range(60):
            assert next(batches).data_ptr() != address
        seen = np.frombuffer(bytes(kept), np.float32) if keeper == "a storage" else np.asarray(kept)
        expected = data[:40] if keeper != "a view" else data[1:40, 2:4]
        np.testing.assert_array_equal(seen.reshape(expected.shape), expected)


@pytest.mark.parametrize("thread", [False, True], ids=["here", "in another thread"])
def test_memory_is_used_again_when_nothing_sees_it(thread):
    loader = loader_of(values((4000, 64)), workers=1)
    held = [loader.batch(step) for step in range(50)]
    addresses = {tensor.data_ptr() for tensor in held}
    if thread:
        dropping = threading.Thread(target=held.clear)
        dropping.start()
        dropping.join(timeout=30)
    else:
        held.clear()
    gc.collect()
    again = loader.batch(0)
    assert again.data_ptr() in addresses


def test_a_training_step_learns():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(512, 8)).astype(np.float32)
    data = {"x": inputs, "y": inputs @ rng.normal(size=(8, 1)).astype(np.float32)}
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with iter(loader_of(data, batch_size=64, shuffle=True)) as batches:
        for _ in range(100):
            batch = next(batches)
            loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0] / 100


def test_transforms_give_the_bytes_of_the_numpy_output():
    images = values((32, 8, 8, 3), "uint8")
    for dtype in ("float32", "float16", "bfloat16"):
        ops = [transforms.RandomFlip(), transforms.Normalize([0.5] * 3, [0.25] * 3, dtype=dtype)]
        got = loader_of(images, transforms=ops).batch(3)
        expected = loader_of(images, transforms=ops, output="numpy").batch(3)
        assert got.dtype == DTYPES[dtype]
        assert got.view(torch.uint8).numpy().tobytes() == expected.tobytes()


def test_arrays_of_a_hook_become_tensors_and_those_that_it_keeps_are_copied():
    own = values((4, 2))

    def hook(batch):
        return {
            "x": batch[:, ::-1],
            "own": own,
            "name": np.array(["a"] * 4),
            "tensor": torch.ones(2),
        }

    batch = loader_of(values((8, 2)), transform=hook).batch(0)
    np.testing.assert_array_equal(batch["x"].numpy(), values((8, 2))[:4, ::-1])
    own[:] = -1
    np.testing.assert_array_equal(batch["own"].numpy(), values((4, 2)))
    assert batch["name"].tolist() == ["a"] * 4
    assert batch["tensor"].tolist() == [1, 1]


def test_a_dtype_that_torch_does_not_have_is_refused_when_the_loader_is_made():
    with pytest.raises(ArgumentError, match=r"field 'name'.*PyTorch does not have"):
        loader_of({"x": np.arange(8), "name": np.zeros(8, "S3")})


def test_loaders_pickle_and_resume():
    loader = loader_of(values((64, 3)), shuffle=True)
    with iter(loader) as batches:
        for _ in range(5):
            next(batches)
        state, expected = batches.get_state(), next(batches)
    with iter(pickle.loads(pickle.dumps(loader))) as batches:
        batches.set_state(state)
        assert torch.equal(next(batches), expected)


def test_dlpack_arrays_are_imported_by_torch():
    for dtype in DTYPES:
        data = values((8, 16), dtype)
        batch = loader_of(data, output="dlpack").batch(0)
        tensor = torch.from_dlpack(batch)
        assert tensor.dtype == DTYPES[dtype]
        assert tensor.data_ptr() == np.asarray(batch).ctypes.data


PROGRAM = """
import numpy as np, sys, threading
from loaderx import DataLoader
kept = []
def take():
    iterator = iter(DataLoader(np.zeros((512, 1000), np.float32), batch_size=64, output="torch"))
    kept.append((next(iterator), next(iterator)[1:], next(iterator).untyped_storage()))
    return iterator
ending = sys.argv[1]
if ending == "thread":
    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
else:
    iterator = take()
if ending == "raise":
    raise SystemExit(3)
if ending == "cycle":
    cycle = [iterator]
    cycle.append(cycle)
    del iterator
assert "jax" not in sys.modules
"""


@pytest.mark.parametrize("ending", ["plain", "raise", "thread", "cycle"])
def test_processes_end_with_tensors_alive(ending):
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PROGRAM, ending],
            cwd=REPOSITORY,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(5)
    ]
    for process in running:
        _, errors = process.communicate(timeout=100)
        assert (process.returncode, errors) == (3 if ending == "raise" else 0, "")
