"""Train over several processes, and resume their checkpoint in another number of them, with the same losses.

The processes all run on this machine, started by this program. On a cluster every host runs `train`, and there
`jax.distributed.initialize()` finds the others without being told.

    python examples/multihost.py [processes] [devices of each]
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from loaderx import DataLoader, Dataset
from loaderx import transforms as ops

BATCH_SIZE = 96  # of all processes together
STEPS = 20
CHECKPOINT = 10
PATIENCE = 120  # seconds

Arrays = dict[str, jax.Array]


def new_parameters() -> Arrays:
    first, second = jax.random.split(jax.random.key(0))
    return {
        "hidden": jax.random.normal(first, (64, 128)) / 8,
        "classes": jax.random.normal(second, (128, 10)) / 11,
    }


def mean_loss(parameters: Arrays, batch: Arrays) -> jax.Array:
    images = batch["data"].reshape(len(batch["label"]), -1)
    hidden = jax.nn.relu(images @ parameters["hidden"])
    scores = jax.nn.log_softmax(hidden @ parameters["classes"])
    return -jnp.take_along_axis(scores, batch["label"][:, None], axis=1).mean()


@jax.jit
def train_step(parameters: Arrays, batch: Arrays) -> tuple[Arrays, jax.Array]:
    """Train one step: the batch is on the devices of all processes, so JAX adds up the gradients of all."""
    loss, gradients = jax.value_and_grad(mean_loss)(parameters, batch)
    return jax.tree.map(lambda p, g: p - 0.3 * g, parameters, gradients), loss


def train(folder: Path, resume: bool) -> None:
    """Run one host, from the start or the checkpoint to the last step."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    loader = DataLoader(
        Dataset(folder, "data.npy", "label.npy"),
        batch_size=BATCH_SIZE,
        transforms={"data": [ops.RandomCrop(8, pad=1), ops.Normalize([0.3], [0.4])]},
        sharding=NamedSharding(mesh, PartitionSpec("data")),
    )
    losses = {}
    with iter(loader) as batches:
        parameters = new_parameters()
        if resume:
            # The state counts samples, so it does not depend on the number of processes or devices.
            batches.set_state(json.loads((folder / "loader.json").read_text()))
            parameters = dict(np.load(folder / "parameters.npz"))
        parameters = jax.device_put(parameters, NamedSharding(mesh, PartitionSpec()))
        while batches.step < STEPS:
            batch = next(batches)  # global arrays; this process read only the rows of its devices
            parameters, loss = train_step(parameters, batch)
            losses[batches.step] = float(loss)
            if batches.step == CHECKPOINT and jax.process_index() == 0:
                (folder / "loader.json").write_text(json.dumps(batches.get_state()))
                np.savez(folder / "parameters.npz", **jax.tree.map(np.asarray, parameters))
    if jax.process_index() == 0:
        rows = sum(len(shard.data) for shard in batch["label"].addressable_shards)
        report = {"losses": losses, "rows": rows, "shape": batch["data"].shape}
        (folder / "report.json").write_text(json.dumps(report))


def join_and_train(port: str, processes: str, process: str, folder: str, resume: str) -> None:
    address = f"127.0.0.1:{port}"
    jax.distributed.initialize(
        address, int(processes), int(process), coordinator_bind_address=address
    )
    train(Path(folder), resume == "resume")


def launch(folder: Path, processes: int, devices: int, *, resume: bool = False) -> dict[int, float]:
    """Start this program once for every host, wait for all of them, and return their reports."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    hosts = []
    try:
        for process in range(processes):
            words = [port, processes, process, folder, "resume" if resume else "start"]
            command = [sys.executable, __file__, "host", *map(str, words)]
            # The library of JAX for communication on CPUs reports every connection.
            hosts.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
        end = time.monotonic() + PATIENCE
        while any(host.poll() is None for host in hosts):
            if any(host.poll() for host in hosts) or time.monotonic() > end:
                break
            time.sleep(0.05)
        if any(host.poll() != 0 for host in hosts):
            sys.exit("a process failed or hangs")
    finally:
        for host in hosts:
            host.kill()
            host.wait()

    report = json.loads((folder / "report.json").read_text())
    losses = {int(step): loss for step, loss in report["losses"].items()}
    print(
        f"{processes} processes x {devices} devices, global batches of {report['shape']}, "
        f"{report['rows']} rows of each in process 0"
    )
    for step, loss in losses.items():
        if step % 5 == 0 or step == min(losses):
            print(f"  step {step:2}  loss {loss:.6f}")
    return losses


def main(processes: int = 2, devices: int = 2) -> None:
    from sklearn.datasets import load_digits

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        digits = load_digits()
        np.save(folder / "data.npy", (digits.images * 15).astype(np.uint8)[..., None])
        np.save(folder / "label.npy", digits.target.astype(np.int32))

        before = launch(folder, processes, devices)
        print(f"\ncheckpoint of step {CHECKPOINT}: {(folder / 'loader.json').read_text()}\n")
        after = launch(folder, 2 * processes, max(1, devices // 2), resume=True)

    difference = max(abs(after[step] - before[step]) for step in after)
    print(f"\nlargest difference between the losses: {difference:.1e}")
    # Rows and augmentation are the same; only the order in which devices add numbers may differ.
    if difference > 1e-5:
        sys.exit("these are not the same losses")


if __name__ == "__main__":
    if sys.argv[1:2] == ["host"]:
        join_and_train(*sys.argv[2:])
    else:
        main(*map(int, sys.argv[1:]))
