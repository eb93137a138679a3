"""Session with Ray: join a cluster, or start a local Ray that only this machine can reach."""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loaderx.errors import ArgumentError
from loaderx.sources.extras import require

USAGE_STATISTICS = "RAY_USAGE_STATS_ENABLED"


def connect() -> Any:
    """Import Ray and connect to a cluster unless the program did so; return the module.

    The cluster is that of the environment variable RAY_ADDRESS. Without it a local Ray is started, with all cores.
    """
    ray = require("ray", "ray", "RayLoader")
    if ray.util.client.ray.is_connected():
        raise ArgumentError(
            "RayLoader cannot use Ray Client (an address `ray://...`), which copies all batches through one slow "
            'connection. Run the program on a node of the cluster, with `ray.init(address="auto")`.'
        )
    if ray.is_initialized():
        return ray
    if os.environ.get("RAY_ADDRESS"):
        ray.init()
        return ray
    # Nothing is sent over the network that the user did not ask for.
    os.environ.setdefault(USAGE_STATISTICS, "0")
    with _on_loopback():
        ray.init(address="local", include_dashboard=False)
    return ray


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Have Ray bind its ports to 127.0.0.1, as it does by itself on macOS.

    Ray replaces an address of this machine that it is given by one that other machines can reach.
    """
    constants = importlib.import_module("ray._private.ray_constants")
    before = getattr(constants, "ENABLE_RAY_CLUSTER", True)
    constants.ENABLE_RAY_CLUSTER = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before  # type: ignore[attr-defined]
