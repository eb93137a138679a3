"""Programs of consumers in processes of their own: `python -m tests.loaderx.ray.consumer '{"job": ...}'`."""

import json
import os
import pickle
import sys
import warnings
from pathlib import Path

# As in conftest.py.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_AUTH_MODE"] = "disabled"

import numpy as np
import ray
from PIL import Image, ImageFilter

from loaderx import DataLoader
from loaderx.ray import RayLoader
from tests.loaderx.ray import loaders

warnings.simplefilter("ignore")


def connect(order):
    ray.init(address=order["address"], log_to_driver=False, logging_level="error")


def sharded(order):
    """Take global batches over the devices of two processes, and write what this one holds."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    from tests.distributed.program import held

    jax.distributed.initialize(f"127.0.0.1:{order['port']}", 2, order["process"])
    connect(order)
    sharding = NamedSharding(jax.make_mesh((jax.device_count(),), ("data",)), PartitionSpec("data"))
    found = {}
    for name in order["names"]:
        local = loaders.make(name, "jax", batch_size=order["batch_size"], sharding=sharding)
        loader = RayLoader(local, workers=1)
        with iter(loader) as it:
            steps = [next(it) for _ in range(order["steps"])]
            found[name] = [
                {
                    field: held(array, sharding)
                    for field, array in batch.items()
                    if hasattr(array, "sharding")
                }
                for batch in steps
            ]
            found[name, "rows"] = it.stats().transport_bytes
        loader.close()
    Path(order["result"]).write_bytes(pickle.dumps(found))


def steps(order):
    """Print the digest and the state after every step, until it is killed."""
    connect(order)
    loader = RayLoader(loaders.make(), workers=2)
    with iter(loader) as it:
        if order["state"] is not None:
            it.set_state(order["state"])
        while it.step < order["stop"]:
            found = loaders.digest(next(it))
            print(json.dumps([found, it.get_state()]), flush=True)  # noqa: T201


def emboss(x):
    return np.asarray(Image.fromarray(x).filter(ImageFilter.EMBOSS))


class Blur:
    """Op of a program: workers get its code by value, and import neither this file nor another `__main__`."""

    def __init__(self, radius):
        self.radius = radius

    def __call__(self, x, rng):
        radius = rng.uniform(self.radius, 2 * self.radius)
        return np.asarray(Image.fromarray(x).filter(ImageFilter.GaussianBlur(radius)))


def own_ops():
    images = np.random.default_rng(0).integers(0, 256, (20, 12, 16, 3), np.uint8)
    return DataLoader(images, batch_size=5, transforms=[emboss, Blur(0.5)], output="numpy")


def alone(order):
    """Start a local Ray, and print where its processes listen."""
    import psutil

    del os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"]
    loader = RayLoader(loaders.make(), workers=1)
    with iter(loader) as it:
        same = loaders.digest(next(it)) == loaders.digest(loaders.make().batch(0))
    loader.close()
    loader = RayLoader(own_ops(), workers=1, cpus_per_worker=0.5)
    with iter(loader) as it:
        same = same and np.array_equal(next(it), own_ops().batch(0))
        here = it.stats().built_here
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = {
        connection.laddr.ip
        for process in family
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    print(json.dumps({"same": same, "here": here, "listening": sorted(listening)}))  # noqa: T201


def forked(order):
    """Continue in a forked child, which has no connection to the cluster."""
    connect(order)
    it = iter(RayLoader(loaders.make(), workers=1))
    first = loaders.digest(next(it))
    child = os.fork()
    if child == 0:
        found = loaders.digest(next(it))
        os.write(1, (json.dumps([first, found]) + "\n").encode())
        os._exit(0)
    os.waitpid(child, 0)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    {"sharded": sharded, "steps": steps, "alone": alone, "forked": forked}[given["job"]](given)
