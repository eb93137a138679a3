"""Types that users see. Type checkers read this file, and nothing runs it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_type

import jax
import numpy as np
import torch
from numpy.typing import NDArray

import loaderx as lx
from loaderx import kernels
from loaderx import transforms as T  # noqa: N812
from loaderx.output.dlpack import DLPackArray
from loaderx.run.iterator import LoaderIterator, Stats

Images = NDArray[np.uint8]


def batches_have_the_structure_of_the_data(
    images: Images, labels: NDArray[np.int64], source: lx.Source
) -> None:
    fields = {"image": images, "label": labels}
    loader = lx.DataLoader(fields, batch_size=8, transforms={"image": [T.RandomFlip()]})
    assert_type(next(iter(loader))["image"], jax.Array)
    assert_type(loader, lx.DataLoader[dict[str, jax.Array]])
    for batch in loader:
        assert_type(batch["label"], jax.Array)
    for batch in loader.epoch(3):
        assert_type(batch["label"], jax.Array)
    assert_type(loader.batch(7)["image"], jax.Array)
    assert_type(lx.DataLoader(images, labels).batch(0), dict[str, jax.Array])
    assert_type(lx.DataLoader(source, source).batch(0), dict[str, jax.Array])
    assert_type(lx.DataLoader(lx.MNIST("folder")).batch(0), dict[str, jax.Array])
    assert_type(lx.DataLoader(lx.Dataset("f", "x", "y"), seed=1).batch(0), dict[str, jax.Array])
    assert_type(lx.DataLoader(fields, remainder="pad").batch(0)["mask"], jax.Array)

    assert_type(lx.DataLoader((images, labels)).batch(0), tuple[jax.Array, ...])
    assert_type(lx.DataLoader((images, labels)).batch(0)[1], jax.Array)

    assert_type(lx.DataLoader(images).batch(0), jax.Array)
    assert_type(lx.DataLoader(images, None).batch(0), jax.Array)
    assert_type(lx.DataLoader(range(9)).batch(0), jax.Array)
    assert_type(lx.DataLoader(lx.NPDataset("x.npy")).batch(0), jax.Array)
    assert_type(next(iter(lx.DataLoader(images, transforms=[T.Resize(8)]))), jax.Array)


def outputs_have_arrays_of_their_own(images: Images) -> None:
    fields = {"image": images}
    assert_type(next(iter(lx.DataLoader(fields, output="jax")))["image"], jax.Array)
    assert_type(next(iter(lx.DataLoader(fields, output="numpy")))["image"], NDArray[Any])
    assert_type(next(iter(lx.DataLoader(fields, output="torch")))["image"], torch.Tensor)
    assert_type(next(iter(lx.DataLoader(fields, output="dlpack")))["image"], DLPackArray)
    assert_type(next(iter(lx.DataLoader(fields, output=total)))["image"], float)

    assert_type(lx.DataLoader((images, images), output="numpy").batch(0), tuple[NDArray[Any], ...])
    assert_type(lx.DataLoader((images, images), output="torch").batch(0), tuple[torch.Tensor, ...])
    assert_type(lx.DataLoader((images, images), output=brightest).batch(0), tuple[int, ...])
    assert_type(lx.DataLoader(images, output="numpy").batch(0), NDArray[Any])
    assert_type(lx.DataLoader(images, output="dlpack").batch(0), DLPackArray)
    assert_type(lx.DataLoader(images, output=total).batch(0), float)
    assert_type(lx.DataLoader(images, images, output="numpy").batch(0), dict[str, NDArray[Any]])
    assert_type(lx.DataLoader(images, images, output="torch").batch(0), dict[str, torch.Tensor])


def views_have_the_structure_of_their_data(images: Images, labels: NDArray[np.int64]) -> None:
    fields = {"image": images, "label": labels}
    train, test = lx.split(fields, 0.9)
    assert_type(next(iter(lx.DataLoader(train)))["image"], jax.Array)
    assert_type(next(iter(lx.DataLoader(test.split(0.5)[1].select([3]))))["image"], jax.Array)
    assert_type(lx.DataLoader(lx.select(fields, range(9))).batch(0), dict[str, jax.Array])
    assert_type(lx.DataLoader(lx.MNIST("folder").select([3])).batch(0), dict[str, jax.Array])
    assert_type(lx.DataLoader(lx.concatenate([fields, train])).batch(0), dict[str, jax.Array])
    assert_type(lx.DataLoader(lx.split(images, 0.9)[0]).batch(0), jax.Array)
    assert_type(lx.DataLoader(lx.select(lx.NPDataset("x.npy"), [3])).batch(0), jax.Array)
    assert_type(lx.DataLoader(lx.concatenate([images, images])).batch(0), jax.Array)
    assert_type(lx.DataLoader(lx.split((images, labels), 0.9)[0]).batch(0), tuple[jax.Array, ...])
    assert_type(lx.DataLoader(lx.select((images, labels), [3])).batch(0), tuple[jax.Array, ...])


def mixtures_have_the_structure_of_their_parts(images: Images) -> None:
    mixture = lx.Mixture({"web": ({"image": images}, 0.7), "books": ({"image": images}, 0.3)})
    assert_type(next(iter(lx.DataLoader(mixture)))["image"], jax.Array)
    assert_type(lx.DataLoader(lx.Mixture({"web": (images, 1)})).batch(0), jax.Array)


def records_are_arrays_and_padded_ones_have_a_length() -> None:
    assert_type(lx.DataLoader(lx.ARDataset("x.ar", "float32", (3,))).batch(0), jax.Array)
    declared = lx.ARDataset("x.ar", {"image": lx.Encoded(), "label": "int64"})
    assert_type(next(iter(lx.DataLoader(declared)))["label"], jax.Array)
    # The file knows whether its rows have fields.
    assert_type(lx.DataLoader(lx.ARDataset("x.ar")).batch(0), Any)
    padded = lx.ARDataset("x.ar", "float32", (None,), pad_to=8)
    assert_type(next(iter(lx.DataLoader(padded)))["length"], jax.Array)


def total(array: NDArray[Any]) -> float:
    return float(array.sum())


def brightest(array: Images) -> int:
    return int(array.max())


def mean(batch: NDArray[Any]) -> float:
    return float(batch.mean())


def arrays_of_any_dtype_do(data: NDArray[Any]) -> None:
    assert_type(lx.DataLoader({"x": data, "y": np.load("y.npy")}).batch(0), dict[str, jax.Array])
    assert_type(lx.DataLoader(data, data, output=total).batch(0), dict[str, float])
    assert_type(lx.DataLoader(data, output="numpy").batch(0), NDArray[Any])


class Rows:
    """A source of a user's."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {}


@dataclass
class Records(Rows):
    """A source that cannot be hashed."""


def what_only_the_data_tells_is_any(images: Images, source: lx.Source, anything: Any) -> None:
    assert_type(lx.DataLoader(source).batch(0), Any)
    assert_type(lx.DataLoader(anything).batch(0), Any)
    assert_type(lx.DataLoader([3, 4]).batch(0), Any)
    assert_type(lx.DataLoader(Rows()).batch(0), Any)
    assert_type(lx.DataLoader(Records()).batch(0), Any)
    assert_type(lx.DataLoader(lx.ARDataset("x.ar", decode=len)).batch(0), Any)
    assert_type(lx.DataLoader(lx.split(Rows(), 0.9)[0]).batch(0), Any)
    assert_type(lx.DataLoader(lx.split(anything, 0.9)[0]).batch(0), Any)
    assert_type(lx.DataLoader(lx.Mixture({"a": (Rows(), 1)})).batch(0), Any)
    assert_type(lx.DataLoader({"image": images}, transform=mean).batch(0), Any)
    assert_type(lx.DataLoader(images, transform=mean, output="numpy").batch(0), float)
    # These are tuples and dicts, with fields besides that of the data.
    assert_type(lx.DataLoader(images, remainder="pad").batch(0), Any)
    assert_type(lx.DataLoader(images, transforms=[T.Views(2, [T.RandomFlip()])]).batch(0), Any)


def annotations_need_no_parameters(
    loader: lx.DataLoader, iterator: LoaderIterator, device: lx.DeviceLoader
) -> None:
    assert_type(loader.batch(0), Any)
    assert_type(next(iterator), Any)
    assert_type(device.next(device.init())[0], Any)


def a_loader_of_arrays_is_one_of_anything(images: Images) -> lx.DataLoader[object]:
    return lx.DataLoader(images)


def iterators_have_types(images: Images) -> None:
    with iter(lx.DataLoader({"image": images})) as iterator:
        assert_type(iterator, LoaderIterator[dict[str, jax.Array]])
        state = iterator.get_state()
        assert_type(state, dict[str, Any])
        iterator.set_state(state, strict=False)
        assert_type(iterator.stats(), Stats)
        assert_type(iterator.step, int)
    assert_type(lx.DataLoader(images).indices(0), NDArray[np.int64])
    assert_type(lx.DataLoader(images).explain(), str)
    assert_type(lx.DataLoader({"x": images}).as_callback()(), dict[str, jax.Array])
    assert_type(lx.DataLoader({"x": images}, output="numpy").as_callback()()["x"], jax.Array)
    assert_type(lx.DataLoader((images,)).as_callback()(), tuple[jax.Array, ...])
    assert_type(lx.DataLoader(images, output="numpy").as_callback()(), jax.Array)


def device_loaders_have_types(
    images: Images, augment: Callable[[dict[str, jax.Array], jax.Array], dict[str, jax.Array]]
) -> None:
    loader = lx.DeviceLoader({"image": images}, batch_size=8, transforms=[augment])
    batch, state = loader.next(loader.init(seed=3))
    assert_type(batch, dict[str, jax.Array])

    def body(carry: jax.Array, batch: dict[str, jax.Array]) -> tuple[jax.Array, float]:
        return carry + batch["image"].sum(), 0.0

    carry, state, metrics = loader.scan_epoch(body, jax.numpy.zeros(()), state)
    assert_type(carry, jax.Array)
    assert_type(metrics, float)
    assert_type(loader.state_to(state, {}), dict[str, Any])
    assert_type(lx.DeviceLoader((images, images)).next(state)[0], tuple[jax.Array, ...])
    assert_type(lx.DeviceLoader(images).next(state)[0], jax.Array)
    assert_type(lx.DeviceLoader(images, remainder="pad").next(state)[0], Any)


def functions_return_arrays(images: Images, out: NDArray[np.float32]) -> None:
    augment = lx.pipeline([T.RandomCrop(32, pad=4), T.Normalize(0.5, 0.25)], seed=7)
    assert_type(augment(images, out=out, batch=True), NDArray[Any])
    assert_type(kernels.gather(images, [3, 5]), NDArray[Any])
    assert_type(kernels.normalize(images, 0.5, 0.25), NDArray[Any])
    assert_type(kernels.draws(seed=7, position=0), kernels.Draws)
    assert_type(kernels.fields_id(["image"]), int)
    assert_type(lx.Spec((3,), "uint8").shape, tuple[int, ...])


def a_checker_that_reads_this_finds_what_is_wrong(images: Images) -> None:
    assert_type(next(iter(lx.DataLoader(images))), Any)  # type: ignore[assert-type]
    lx.DataLoader(images, batch_siez=8)  # type: ignore[call-overload]
    lx.DataLoader(images, output="tensorflow")  # type: ignore[call-overload]
