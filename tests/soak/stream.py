"""Random configurations of loaders, and ways to obtain their batches that must all give the same bytes."""

import contextlib
import copy
import hashlib
import json
import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
from pathlib import Path

import numpy as np

BEGAN = "began"
if __name__ == "__main__":
    # From here on a signal may come: an interrupted import of NumPy is not ours to handle.
    print(BEGAN, flush=True)  # noqa: T201

import loaderx  # noqa: E402
from loaderx import transforms as T  # noqa: E402, N812
from tests.soak.transforms import brightness  # noqa: E402

ROWS = 203
SHAPES = {"image": (24, 20, 3), "grey": (16, 16, 1), "vector": (12,)}
CHAINS = {
    "none": list,
    "crop": lambda: [T.RandomCrop((16, 16), pad=2), T.RandomFlip(), T.Normalize(0.5, 0.25)],
    "resize": lambda: [T.RandomResizedCrop(16), T.ToFloat()],
    "colour": lambda: [T.ColorJitter(0.2, 0.2, 0.2), T.Maybe(0.3, T.Invert())],
    "authored": lambda: [T.ToFloat(), brightness(amount=0.3)],
    "mix": lambda: [T.ToFloat(), T.MixUp(0.4)],
    "mosaic": lambda: [T.RandomFlip(), T.Mosaic(), T.RandomFlip()],
}


def random_configuration(rng: random.Random) -> dict:
    """Return one of several hundred thousand configurations."""
    shape = rng.choice(list(SHAPES))
    chains = list(CHAINS) if shape == "image" else ["none"]
    epochs = rng.choice([None, None, 1, 3])
    return {
        "shape": shape,
        "dtype": "uint8" if shape == "image" else rng.choice(["uint8", "float32", "int64"]),
        "source": rng.choice(["array", "npy", "records", "object", "select", "sum"]),
        "chain": rng.choice(chains),
        "batch_size": rng.choice([1, 3, 8, 32, 50]),
        "shuffle": rng.random() < 0.8,
        "seed": rng.randrange(1 << 64),
        "num_epochs": epochs,
        "remainder": rng.choice([None, "straddle", "keep", "drop", "pad"]),
        "weighted": rng.random() < 0.15,
        "hook": rng.random() < 0.2,
        "output": rng.choice(["jax", "numpy", "numpy"]),
        "steps": rng.choice([3, 7, 12]),
    }


def data_of(configuration: dict) -> np.ndarray:
    """Return the rows, which are a function of the configuration."""
    shape = (ROWS, *SHAPES[configuration["shape"]])
    numbers = np.random.default_rng(5).integers(0, 256, shape)
    return numbers.astype(configuration["dtype"])


def source_of(configuration: dict, folder: Path):
    """Return the rows in the source of the configuration; the first process writes its files."""
    data = data_of(configuration)
    kind = configuration["source"]
    name = folder / f"{configuration['shape']}-{configuration['dtype']}"
    if kind == "npy":
        return loaderx.NPDataset(once(name.with_suffix(".npy"), lambda path: np.save(path, data)))
    if kind == "records":
        path = once(
            name.with_suffix(".array_record"),
            lambda path: loaderx.write_array_record(path, data, progress=False),
        )
        return loaderx.ARDataset(path, data.dtype, data.shape[1:])
    if kind == "object":
        return list(data)
    if kind == "select":
        return loaderx.NPDataset(np.concatenate([data, data])).select(range(ROWS))
    if kind == "sum":
        return loaderx.NPDataset(data[:100]) + loaderx.NPDataset(data[100:])
    return data


def once(path: Path, write) -> Path:
    """Create a file that several processes may want at once."""
    if not path.exists():
        half = path.with_name(f"{os.getpid()}-{path.name}")
        write(half)
        half.replace(path)
    return path


def negate(batch):
    """Negate a batch: a hook in Python."""
    return {**batch, "data": -batch["data"].astype(np.float32)}


def loader_of(configuration: dict, folder: Path, rng: random.Random):
    """Return the loader, with numbers of threads and batches that must not matter."""
    weights = np.arange(1, ROWS + 1) if configuration["weighted"] else None
    chain = CHAINS[configuration["chain"]]()
    return loaderx.DataLoader(
        {"data": source_of(configuration, folder), "label": np.arange(ROWS)},
        batch_size=configuration["batch_size"],
        shuffle=configuration["shuffle"] or weights is not None,
        seed=configuration["seed"],
        num_epochs=configuration["num_epochs"],
        remainder=configuration["remainder"],
        weights=weights,
        transforms={"data": chain} if chain else None,
        transform=negate if configuration["hook"] else None,
        output=configuration["output"],
        workers=rng.choice([1, 2, 3]),
        prefetch=rng.choice([1, 2, 4]),
    )


def digest(batch) -> str:
    """Return a hash of all fields of a batch."""
    found = hashlib.sha256()
    for name in sorted(batch):
        array = np.asarray(batch[name])
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()[:16]


def take(iterator, steps: int) -> list[str]:
    """Return the digests of the next batches."""
    return [digest(batch) for _, batch in zip(range(steps), iterator, strict=False)]


def iterated(loader, steps, rng):
    with iter(loader) as iterator:
        return take(iterator, steps)


def by_number(loader, steps, rng):
    """Obtain batches by random access, last batch first."""
    with contextlib.suppress(TypeError):
        steps = min(steps, len(loader))
    return [digest(loader.batch(step)) for step in reversed(range(steps))][::-1]


def resumed(loader, steps, rng):
    with iter(loader) as iterator:
        first = take(iterator, rng.randrange(steps))
        state = json.loads(json.dumps(iterator.get_state()))
    with iter(loader) as iterator:
        iterator.set_state(state)
        return first + take(iterator, steps - len(first))


def pickled(loader, steps, rng):
    return iterated(pickle.loads(pickle.dumps(loader)), steps, rng)


def copied(loader, steps, rng):
    return iterated(copy.deepcopy(loader), steps, rng)


def spawned(loader, steps, rng):
    """Obtain batches from a loader that is sent to a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(iterated, (loader, steps, None))


def in_epochs(loader, steps, rng):
    """Obtain batches epoch by epoch, up to the end of the stream."""
    found, epoch = [], 0
    while len(found) < steps and epoch != loader.num_epochs:
        with loader.epoch(epoch) as iterator:
            found += take(iterator, steps)
        epoch += 1
    return found[:steps]


def forked(loader, steps, rng):
    """Fork a child that continues where its parent is; both get the same."""
    with iter(loader) as iterator:
        first = take(iterator, rng.randrange(steps))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                os.write(writing, json.dumps(take(iterator, steps - len(first))).encode())
            finally:
                os._exit(0)
        os.close(writing)
        rest = take(iterator, steps - len(first))
        with os.fdopen(reading) as answer:
            found = answer.read()
        _, status = os.waitpid(child, 0)
        assert status == 0, f"the forked child ended with status {status}"
        assert json.loads(found) == rest, "the forked child got other batches"
    return first + rest


def shared_by_threads(loader, steps, rng):
    """Share an iterator between threads: every batch comes once, to any of them."""
    with iter(loader) as iterator:
        lock = threading.Lock()
        found, failures = [], []

        def consume():
            while True:
                with lock:
                    if len(found) == steps:
                        return
                    found.append("")
                try:
                    got = digest(next(iterator))
                except StopIteration:
                    return
                except Exception as error:  # noqa: BLE001 - it is raised below
                    failures.append(error)
                    return
                with lock:
                    found[found.index("")] = got

        threads = [threading.Thread(target=consume) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
    # In any order, so the caller compares them as a set.
    return sorted(filter(None, found))


def interrupted(loader, steps, rng):
    """Interrupt by Ctrl-C at random moments; the iterator resumes exactly where it was."""
    ended = threading.Event()
    pauses = [rng.random() * 0.02 for _ in range(20)]
    # Outside of the lines in `try`, an interrupt would end this test and not the code under test.
    armed = [False]

    def interrupt(number, frame):
        if armed[0]:
            raise KeyboardInterrupt

    def press():
        for pause in pauses:
            if ended.wait(pause):
                return
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, interrupt)
    presser = threading.Thread(target=press)
    presser.start()
    found = []
    iterator = iter(loader)
    while len(found) < steps:
        try:
            armed[0] = True
            before = iterator.step
            batch = next(iterator)
            found.append((before, digest(batch)))
            armed[0] = False
        except KeyboardInterrupt:
            armed[0] = False
        except StopIteration:
            armed[0] = False
            break
    ended.set()
    presser.join()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    iterator.close()
    # An interrupt between `next` and the list loses a batch to this loop, never to the stream.
    whole = by_number(loader, steps, rng)
    for step, got in found:
        if step < len(whole):
            assert whole[step] == got, f"step {step} is another batch after an interrupt"
    return whole


WAYS = {
    "iterated": iterated,
    "by number": by_number,
    "resumed": resumed,
    "pickled": pickled,
    "copied": copied,
    "spawned": spawned,
    "in epochs": in_epochs,
    "forked": forked,
    "shared": shared_by_threads,
    "interrupted": interrupted,
}


def check(configuration: dict, folder: Path, ways: list[str], seed: int) -> list[str]:
    """Obtain the batches in several ways and compare them; return the digests, to compare processes."""
    rng = random.Random(seed)
    expected = None
    for way in ways:
        if way == "forked" and configuration["output"] == "jax":
            continue  # JAX itself does not survive a fork
        loader = loader_of(configuration, folder, rng)
        found = WAYS[way](loader, configuration["steps"], rng)
        if expected is None:
            expected = iterated(loader_of(configuration, folder, rng), configuration["steps"], rng)
            data = data_of(configuration)
            if configuration["chain"] == "none" and not configuration["hook"]:
                check_against_numpy(loader, data, configuration)
        same = sorted(expected) == found if way == "shared" else expected == found
        assert same, f"{way}: {found} instead of {expected}"
    return expected or []


def check_against_numpy(loader, data, configuration) -> None:
    """Compare batches without transforms to NumPy's rows."""
    batch, rows = loader.batch(0), loader.indices(0)
    assert np.array_equal(np.asarray(batch["data"]), data[rows])
    assert np.array_equal(np.asarray(batch["label"]), rows)


def main(arguments: dict) -> None:
    """Run a child process: print the digests, perhaps slowly."""
    import warnings

    warnings.simplefilter("ignore")
    began = time.perf_counter()
    found = check(
        arguments["configuration"], Path(arguments["folder"]), arguments["ways"], arguments["seed"]
    )
    print(json.dumps({"digests": found, "seconds": time.perf_counter() - began}))  # noqa: T201


if __name__ == "__main__":
    import sys

    main(json.loads(sys.argv[1]))
