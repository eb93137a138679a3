"""Program of each process of a distributed test: runs many loaders and writes the results of its devices to a file."""

import json
import os
import pickle
import sys
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from loaderx import ARDataset, DataLoader, LoaderxError, Mixture, NPDataset, Source, Spec
from loaderx import transforms as ops

ROWS = 500
# Divides over 3, 4, 5 and 8 devices.
BATCH = 120
CLASSES = 10
STEPS = 3
FAR = 10**9
COUNTED_STEPS = (0, 3)
TRAINING_STEPS = 6

# --- loaders, the same in every process and in the test ---------------------------------------


class Counting(Source):
    """Array that records which rows were read."""

    def __init__(self, array):
        self.array = array
        self.rows = []

    @property
    def spec(self):
        return Spec(self.array.shape[1:], self.array.dtype)

    def __len__(self):
        return len(self.array)

    def read(self, rows, out):
        self.rows += rows.tolist()
        out[0][...] = self.array[rows]


def images():
    return np.random.default_rng(0).integers(0, 256, (ROWS, 10, 10, 3), np.uint8)


def labels():
    return np.random.default_rng(1).integers(0, CLASSES, ROWS, np.int32)


def arrays():
    return {"image": images(), "label": labels()}


def augmented(label=(), both=None):
    image = [
        ops.RandomCrop(8, pad=1),
        ops.RandomFlip(),
        ops.Normalize([0.5] * 3, [0.25] * 3),
    ]
    entries = {"image": image, "label": list(label)}
    return entries if both is None else {**entries, ("image", "label"): list(both)}


def hook(batch):
    """Write how many rows the hook saw."""
    seen = np.full(len(batch["label"]), len(batch["label"]), np.int32)
    return {"image": batch["image"] * 2, "label": batch["label"] + 1, "seen": seen}


def mixed(*both):
    return {"transforms": augmented(label=[ops.OneHot(CLASSES)], both=both)}


def boxes():
    """Return two boxes for every image, and the mask that numbers them."""
    corners = np.random.default_rng(2).integers(0, 6, (ROWS, 2, 2))
    found = np.concatenate([corners, corners + 4], axis=2).astype(np.float32)
    mask = np.zeros((ROWS, 10, 10), np.uint8)
    for row, number in np.ndindex(ROWS, 2):
        left, top = corners[row, number]
        mask[row, top : top + 4, left : left + 4] = number + 1
    return found, mask


def composed(*both, fields=("image", "label"), **options):
    return {"transforms": {fields: [ops.RandomFlip(), *both, ops.RandomFlip()]}, **options}


PLAIN = {"transforms": augmented()}
OPTIONS = {
    "plain": {},
    "augmented": PLAIN,
    "mixup": mixed(ops.MixUp(0.4)),
    "cutmix": mixed(ops.CutMix()),
    "mixup and cutmix": mixed(ops.MixUp(0.4), ops.CutMix()),
    "copy paste": composed(ops.CopyPaste(), kinds={"label": "labels"}),
    "mosaic": composed(ops.Mosaic(), ops.CopyPaste(), fields=("image", "instances", "boxes")),
    "padded": {**PLAIN, "num_epochs": 1, "remainder": "pad"},
    "mixed and padded": {**mixed(ops.MixUp()), "num_epochs": 1, "remainder": "pad"},
    "dropped": {**PLAIN, "num_epochs": 2, "remainder": "drop"},
    "straddling": {**PLAIN, "num_epochs": 6, "remainder": "straddle"},
    "in order": {**PLAIN, "shuffle": False},
    "hook": {**PLAIN, "transform": hook},
    "weights": {**PLAIN, "weights": np.arange(ROWS) % 7},
    "one worker": {**PLAIN, "workers": 1, "prefetch": 1},
}


def write_files(folder):
    """Write the files of the sources of some loaders."""
    from loaderx import write_array_record

    np.save(folder / "image.npy", images())
    write_array_record(folder / "image.ar", images())


def dataset_and_options(name, folder):
    """Return the dataset and the options of a loader."""
    options = {"batch_size": BATCH, "seed": 3, **OPTIONS.get(name, PLAIN)}
    dataset = arrays()
    if name == "npy":
        dataset["image"] = NPDataset(folder / "image.npy")
    elif name == "array record":
        dataset["image"] = ARDataset(folder / "image.ar")
    elif name == "mixture":
        first = {field: array[:200] for field, array in dataset.items()}
        second = {field: array[200:] for field, array in dataset.items()}
        dataset = Mixture({"a": (first, 0.7), "b": (second, 0.3)})
    elif name == "wide numbers":
        dataset["label"] = labels().astype(np.int64)
    elif name == "copy paste":
        # Labels of pixels, so that its layouts are those of the others.
        dataset["label"] = boxes()[1]
    elif name == "mosaic":
        dataset["boxes"], dataset["instances"] = boxes()
    return dataset, options


LOADERS = [*OPTIONS, "npy", "array record", "mixture", "wide numbers"]
COUNTED = ["plain", "augmented", "mixup", "padded"]
ON_EVERY_LAYOUT = ["plain", "mixup", "copy paste", "padded"]
# The last ones need an even number of devices.
IN_PAIRS = ["two axes", "data x model", "other rows for each field", "labels everywhere"]
LAYOUTS = ["data", "replicated", "mixed up", "uneven", *IN_PAIRS]


def layouts(devices):
    """Return shardings over these devices; in a dict, one for each field."""
    spec = PartitionSpec
    line = Mesh(devices, "data")
    mixed_up = Mesh(
        [*devices[::-2], *devices[::2]] if len(devices) % 2 == 0 else devices[::-1], "data"
    )
    # All devices of the first process and one of every other; or a few of one process.
    own = [device for device in devices if device.process_index == 0]
    others = {device.process_index: device for device in reversed(devices)}
    few = [*own[::-1], *(others[index] for index in sorted(others) if index)]
    found = {
        "data": NamedSharding(line, spec("data")),
        "replicated": NamedSharding(line, spec()),
        "mixed up": NamedSharding(mixed_up, spec("data")),
        "uneven": NamedSharding(Mesh(few if len(others) > 1 else few[1:6], "data"), spec("data")),
    }
    if len(devices) % 2 == 0:
        # Replicas of the same rows are half of all devices apart, and so on two hosts.
        mesh = Mesh(np.array(devices).reshape(2, -1).T, ("data", "model"))

        def on(*axes):
            return NamedSharding(mesh, spec(*axes))

        found |= {
            "two axes": on(("model", "data")),
            "data x model": {
                "image": on("data", None, "model"), "label": on("data"), "mask": on("data"),
            },
            "other rows for each field": {
                "image": on("data"), "label": on("model"), "mask": on(("data", "model")),
            },
            "labels everywhere": {
                "image": on(("data", "model")), "label": on(), "mask": on("data"),
            },
        }  # fmt: skip
    return found


def scenarios(devices):
    """Return pairs of a loader and a layout over this many devices."""
    pairs = [(loader, "data") for loader in LOADERS]
    pairs += [(loader, layout) for loader in ON_EVERY_LAYOUT for layout in LAYOUTS]
    pairs += [
        (loader, layout)
        for loader in ("hook", "mosaic")
        for layout in ("mixed up", "uneven", "replicated")
    ]
    odd = devices % 2 == 1
    return [pair for pair in dict.fromkeys(pairs) if not (odd and pair[1] in IN_PAIRS)]


def sharding_of(layout, options):
    """Return the sharding to give to a loader: one for the mask too if there is a mask."""
    if not isinstance(layout, dict):
        return layout
    padded = options.get("remainder") == "pad"
    return {name: sharding for name, sharding in layout.items() if name != "mask" or padded}


# --- jobs of a process ------------------------------------------------------------------------


def held(array, sharding):
    """Return the parts of a global array on the devices of this process."""
    assert array.sharding == sharding
    assert array.committed
    pieces = [
        ([part.indices(size)[:2] for part, size in zip(shard.index, array.shape, strict=True)],
         np.asarray(shard.data))
        for shard in array.addressable_shards
    ]  # fmt: skip
    return {"shape": array.shape, "dtype": array.dtype, "pieces": pieces}


def held_batch(batch, sharding):
    return {
        name: held(array, sharding[name] if isinstance(sharding, dict) else sharding)
        for name, array in batch.items()
    }


def batches(folder):
    """Run every scenario: batches of an iterator with its states, a distant one, and which rows were read."""
    results = {}
    found = layouts(jax.devices())
    for name, layout in scenarios(jax.device_count()):
        dataset, options = dataset_and_options(name, folder)
        sharding = sharding_of(found[layout], options)
        loader = DataLoader(dataset, sharding=sharding, **options)
        result = results[name, layout] = {"steps": {}, "states": [], "read": {}}
        with iter(loader) as iterator:
            for step, batch in enumerate(iterator):
                result["steps"][step] = held_batch(batch, sharding)
                result["states"].append(iterator.get_state())
                if "num_epochs" not in options and step == STEPS - 1:
                    break
        if "num_epochs" not in options:
            result["steps"][FAR] = held_batch(loader.batch(FAR), sharding)
        if name in COUNTED:
            counted = {field: Counting(array) for field, array in dataset.items()}
            loader = DataLoader(counted, sharding=sharding, **options)
            for step in COUNTED_STEPS:
                for source in counted.values():
                    source.rows = []
                result["steps"]["counted", step] = held_batch(loader.batch(step), sharding)
                result["read"][step] = {field: s.rows for field, s in counted.items()}
    return results


def training(folder):
    """Return losses of a data-parallel run, and a sum of integers per batch, which no order of addition changes."""
    dataset, options = dataset_and_options("augmented", folder)
    mesh = Mesh(jax.devices(), "data")
    everywhere = NamedSharding(mesh, PartitionSpec())
    divided = NamedSharding(mesh, PartitionSpec("data"))
    parameters = jax.jit(initial_parameters, out_shardings=everywhere)()
    checksum = jax.jit(
        jax.shard_map(
            local_checksum, mesh=mesh, in_specs=PartitionSpec("data"), out_specs=PartitionSpec()
        )
    )
    losses, checksums = [], []
    with iter(DataLoader(dataset, sharding=divided, **options)) as iterator:
        for _ in range(TRAINING_STEPS):
            batch = next(iterator)
            parameters, loss = training_step(parameters, batch)
            losses.append(np.asarray(loss))
            checksums.append(int(checksum(batch["image"])))
    return {"losses": losses, "checksums": checksums}


def initial_parameters():
    first, second = jax.random.split(jax.random.key(0))
    return {
        "first": jax.random.normal(first, (8 * 8 * 3, 32)) / 14,
        "second": jax.random.normal(second, (32, CLASSES)) / 6,
    }


@jax.jit
def training_step(parameters, batch):
    def mean_loss(parameters):
        hidden = jax.nn.relu(batch["image"].reshape(len(batch["label"]), -1) @ parameters["first"])
        scores = jax.nn.log_softmax(hidden @ parameters["second"])
        return -jnp.take_along_axis(scores, batch["label"][:, None], axis=1).mean()

    loss, gradients = jax.value_and_grad(mean_loss)(parameters)
    return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients), loss


def local_checksum(image):
    """Return the bits of every pixel times its place in the batch, summed over all devices."""
    place = jax.lax.axis_index("data") * len(image) + jnp.arange(len(image))
    bits = jax.lax.bitcast_convert_type(image, jnp.int32).reshape(len(image), -1)
    return jax.lax.psum((bits * (place[:, None] + 1)).sum(), "data")


# A chain of resumed runs: 2 hosts, then 3, then 1. A second one has 4 in place of 3: the states are the same.
RESUMED_ON = ["2x2", "3x1", "1x8"]
RESUMED_ON_MORE = ["2x2", "4x2", "1x8"]
# name -> rows, options of the loader, and (batch size, steps or None for all that are left) of each run
RESUMES = {
    "within an epoch": (384, {}, [(64, 2), (96, 3), (64, 4)]),
    "at the end of an epoch": (
        384, {"num_epochs": 3, "remainder": "keep"}, [(64, 6), (96, 4), (64, None)],
    ),
    "directly after a resume": (384, {}, [(64, 3), (96, 0), (64, 2)]),
    "before anything": (384, {}, [(64, 0), (96, 0), (64, 2)]),
    "padded": (400, {"num_epochs": 2, "remainder": "pad"}, [(64, 1), (96, 3), (64, None)]),
    "dropped": (400, {"num_epochs": 2, "remainder": "drop"}, [(64, 2), (96, 2), (64, None)]),
}  # fmt: skip


def resume_dataset(rows):
    return {"row": np.arange(rows, dtype=np.int32), "image": images()[:rows]}


RESUME_TRANSFORMS = {"image": [ops.RandomCrop(8, pad=1), ops.RandomFlip()]}


def resuming(folder, leg, states):
    """Do one run of each chain of resumed runs, from the states of the one before."""
    sharding = NamedSharding(Mesh(jax.devices(), "data"), PartitionSpec("data"))
    results = {}
    for name, (rows, options, legs) in RESUMES.items():
        batch_size, steps = legs[leg]
        loader = DataLoader(
            resume_dataset(rows), batch_size=batch_size, seed=5, sharding=sharding,
            transforms=RESUME_TRANSFORMS, **options,
        )  # fmt: skip
        result = results[name] = {"steps": {}}
        with iter(loader) as iterator, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if states is not None:
                iterator.set_state(states[name])
            result["warnings"] = [str(warning.message) for warning in caught]
            step = 0
            while steps is None or step < steps:
                batch = next(iterator, None)
                if batch is None:
                    break
                result["steps"][step] = held_batch(batch, sharding)
                step += 1
            result["state"] = iterator.get_state()
    return results


def refusals(folder):
    """Return the messages with which loaders are refused, or None."""
    spec = PartitionSpec
    found = layouts(jax.devices())
    sharding = found["data"]
    first = [device for device in jax.devices() if device.process_index == 0]
    per_field = {"image": sharding, "label": sharding}
    attempts = {
        "keep": {"num_epochs": 1, "remainder": "keep", "batch_size": 8 * 12},
        "default of a finite loader": {"num_epochs": 1, "batch_size": 8 * 12},
        "straddling end": {"num_epochs": 1, "remainder": "straddle", "batch_size": 8 * 12},
        "batch size": {"batch_size": 8 * jax.device_count() + 1},
        "unknown field": {"sharding": {"image": sharding, "name": sharding}},
        "missing field": {"sharding": {"image": sharding}},
        "missing mask": {"sharding": per_field, "num_epochs": 1, "remainder": "pad"},
        "no sharding": {"sharding": {**per_field, "label": spec("data")}},
        "devices of another process": {"sharding": NamedSharding(Mesh(first, "d"), spec("d"))},
        "more axes than the field": {
            "sharding": {**per_field, "label": NamedSharding(sharding.mesh, spec("data", None))}
        },
        "another axis than the field has": {
            "sharding": {**per_field, "label": NamedSharding(sharding.mesh, spec(None, "data"))}
        },
        "hook with other rows": {
            "sharding": {"image": sharding, "label": found["replicated"]},
            "transform": hook,
        },
        "hook that drops rows": {
            "transform": lambda batch: {name: array[1:] for name, array in batch.items()}
        },
        "hook that adds a number": {"transform": lambda batch: {**batch, "number": 3}},
    }
    messages = {}
    for name, options in attempts.items():
        try:
            loader = DataLoader(
                {"image": images()[:490], "label": labels()[:490]},
                **{"sharding": sharding, "batch_size": BATCH, **options},
            )
            if name.startswith("hook"):
                loader.batch(0)
            messages[name] = None
        except LoaderxError as error:
            messages[name] = str(error)
        except Exception as error:  # noqa: BLE001 - the failure of one test
            messages[name] = f"not an error of loaderx: {error!r}"
    messages["resumed between batches"] = refused_state(sharding)
    return messages


def refused_state(sharding):
    """Return the message for a state whose last batch of the epoch the devices do not divide, and when it comes."""
    rows = {"row": np.arange(480)}
    with iter(DataLoader(rows, batch_size=30, output="numpy")) as iterator:
        next(iterator)
        state = iterator.get_state()
    loader = DataLoader(rows, batch_size=96, num_epochs=2, remainder="keep", sharding=sharding)
    with iter(loader) as iterator, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            iterator.set_state(state)
        except LoaderxError as error:
            return str(error)
        try:
            for _ in iterator:
                pass
        except LoaderxError as error:
            return f"after step {iterator.step}: {error}"
    return None


def dying(folder, victim, how):
    """Train until another process dies; write to a file how far this one came."""
    dataset, options = dataset_and_options("augmented", folder)
    mesh = Mesh(jax.devices(), "data")
    divided = NamedSharding(mesh, PartitionSpec("data"))
    everywhere = NamedSharding(mesh, PartitionSpec())
    parameters = jax.jit(initial_parameters, out_shardings=everywhere)()
    with iter(DataLoader(dataset, sharding=divided, **options)) as iterator:
        for step, batch in enumerate(iterator):
            # The first steps keep the processes together, so that all have begun when one dies.
            if how == "in a step" or step < 3:
                parameters, loss = training_step(parameters, batch)
                loss.block_until_ready()
            with (folder / f"steps.{jax.process_index()}").open("a") as file:
                file.write(f"{step}\n")
            time.sleep(0.01)
            if step == 3 and jax.process_index() == victim:
                os._exit(41)


def main(order):
    """Join the other processes, do the jobs, and write the results."""
    port, process, folder = order["port"], order["process"], Path(order["folder"])
    jax.distributed.initialize(
        f"127.0.0.1:{port}",
        order["processes"],
        process,
        coordinator_bind_address=f"127.0.0.1:{port}",
        initialization_timeout=100,
        **order.get("timeouts", {}),
    )
    assert jax.process_count() == order["processes"]
    assert jax.local_device_count() == order["devices"]
    results = {name: globals()[name](folder, **given) for name, given in order["jobs"].items()}
    (folder / f"results.{port}.{process}").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
