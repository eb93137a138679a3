"""One Ray cluster of three nodes on this machine for all tests; everything is bound to 127.0.0.1."""

import os

# Read by Ray when it is imported. By the second one it leaves 127.0.0.1 as it is; otherwise it replaces that by an
# address that other machines can reach. The third one keeps it from writing into the user's home. By the
# last one workers are not slower than the tests where other work is done, too.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112

import contextlib
import shutil
import signal
import tempfile
import warnings

import pytest

from loaderx.ray import RayLoader

MEGABYTE = 1 << 20
# Small: tests with larger batches fill it.
STORE = 200 * MEGABYTE
NODE = {
    "node_ip_address": "127.0.0.1",
    "object_store_memory": STORE,
    "include_dashboard": False,
}


@contextlib.contextmanager
def same_sigterm():
    """Keep the handler of SIGTERM, which Ray replaces: other tests of this process send that signal."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Nodes:
    """The cluster: the node of the consumer, which has no CPU for actors, and two others with two CPUs each."""

    def __init__(self, folder):
        from ray.cluster_utils import Cluster

        with same_sigterm():
            self.cluster = Cluster(
                initialize_head=True,
                head_node_args={**NODE, "num_cpus": 0, "temp_dir": folder},
                shutdown_at_exit=True,
            )
        self.nodes = []

    @property
    def address(self):
        return self.cluster.address

    def add(self, cpus=2):
        with same_sigterm():
            self.nodes.append(self.cluster.add_node(**NODE, num_cpus=cpus))

    def kill(self, node):
        """End a node at once, with all of its actors."""
        self.nodes.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="package")
def nodes():
    import ray

    folder = tempfile.mkdtemp(
        prefix="lx", dir="/tmp"
    )  # short: the paths of sockets have at most 107 bytes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray itself
        found = Nodes(folder)
        try:
            for _ in range(2):
                found.add()
            # The environment of pytest is that of the workers: they share the folders of compiled code.
            with same_sigterm():
                ray.init(address=found.address, log_to_driver=False, logging_level="error")
            yield found
        finally:
            ray.shutdown()
            found.cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def ray_loader(nodes):
    """Return `RayLoader`, whose actors are dismissed at the end of the test.

    They ask for a quarter of a CPU, so that they need not wait until those of another test have ended.
    """
    with contextlib.ExitStack() as stack:

        def made(*given, **named):
            loader = RayLoader(*given, **{"cpus_per_worker": 0.25, **named})
            stack.callback(loader.close)
            return loader

        yield made
