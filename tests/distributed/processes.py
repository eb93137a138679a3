"""Several processes of one `jax.distributed` run over loopback, ended in every case."""

import json
import os
import pickle
import re
import socket
import time
from pathlib import Path

import numpy as np

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


PROGRAM = """
import runpy
runpy.run_module("tests.distributed.program", run_name="__main__", alter_sys=True)
"""


def start(forking, folder, processes, devices, jobs, port, **settings):
    """The processes, which write what they say to files: a pipe that nobody reads would stop them."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    # Short programs: optimising them takes longer than running them.
    environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    started = []
    for process in range(processes):
        order = {
            "port": port, "process": process, "processes": processes, "devices": devices,
            "folder": str(folder), "jobs": jobs, **settings,
        }  # fmt: skip
        with (folder / f"words.{port}.{process}").open("wb") as words:
            options = {"cwd": ROOT, "env": environment, "stdout": words, "stderr": words}
            started.append(forking.start(PROGRAM, json.dumps(order), **options))
    return started


def wait(started, seconds, *, one_failure_ends_it=True):
    """Return the exit codes; None for processes still running after this many seconds, which are ended."""
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            codes = [process.poll() for process in started]
            if None not in codes or (one_failure_ends_it and any(codes)):
                return codes
            time.sleep(0.05)
        return [process.poll() for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait(timeout=PATIENCE)


def run(forking, folder, processes, devices, jobs, seconds=400):
    """Run a program in several processes; return the output of each, in their order."""
    for _ in range(2):
        port = free_port()
        codes = wait(start(forking, folder, processes, devices, jobs, port), seconds)
        words = [(folder / f"words.{port}.{i}").read_text() for i in range(processes)]
        # Another process took the port in between.
        if not any(re.search("already in use", text) for text in words):
            break
    assert codes == [0] * processes, f"exit codes {codes}\n" + "\n---\n".join(words)
    files = [folder / f"results.{port}.{process}" for process in range(processes)]
    return [pickle.loads(file.read_bytes()) for file in files]


def whole(parts):
    """Return a global array, put together from the parts of all processes; replicas must be the same bytes."""
    shape, dtype = parts[0]["shape"], parts[0]["dtype"]
    array, filled = np.zeros(shape, dtype), np.zeros(shape, bool)
    for part in parts:
        assert (part["shape"], part["dtype"]) == (shape, dtype)
        for index, piece in part["pieces"]:
            where = tuple(slice(start, stop) for start, stop in index)
            assert piece.dtype == dtype
            assert piece.shape == array[where].shape
            known = filled[where]
            assert piece[known].tobytes() == array[where][known].tobytes(), "replicas differ"
            array[where], filled[where] = piece, True
    assert filled.all(), "no process holds some rows"
    return array


def whole_batch(batches):
    """Return a global batch, put together from those of all processes."""
    assert all(batch.keys() == batches[0].keys() for batch in batches)
    return {name: whole([batch[name] for batch in batches]) for name in batches[0]}


def places(batch, names):
    """Return which places of a global batch a process holds in some of its fields."""
    found = set()
    for name in names:
        for index, _ in batch[name]["pieces"]:
            found.update(range(*index[0]))
    return found
