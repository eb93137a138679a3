"""Consumers in processes of their own: over several hosts, killed and restarted, without a cluster, forked."""

import json
import os
import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.distributed import processes
from tests.loaderx.ray.loaders import digest, make
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.timeout(300)
SETTINGS = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}


def start(folder, name, **order):
    with (folder / f"{name}.err").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.loaderx.ray.consumer", json.dumps(order)],
            cwd=processes.ROOT,
            env=os.environ | SETTINGS,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def run(folder, **order):
    process = start(folder, "alone", **order)
    try:
        out, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, (folder / "alone.err").read_text()
    return json.loads(out.splitlines()[-1])


def test_two_processes_share_global_batches(nodes, tmp_path):
    """Each asks for the rows that its devices hold; together they have the batches of a local loader."""
    names, steps = ["chain", "mixup"], 3
    order = {"address": nodes.address, "port": processes.free_port(), "names": names}
    order |= {"steps": steps, "batch_size": 32}
    started = [
        start(
            tmp_path,
            number,
            job="sharded",
            process=number,
            result=str(tmp_path / f"{number}"),
            **order,
        )
        for number in range(2)
    ]
    codes = processes.wait(started, PATIENCE)
    errors = [(tmp_path / f"{number}.err").read_text()[-3000:] for number in range(2)]
    for process in started:
        process.stdout.close()
    assert codes == [0, 0], errors
    found = [pickle.loads((tmp_path / f"{number}").read_bytes()) for number in range(2)]
    for name in names:
        local = make(name, "jax", batch_size=32)
        for step in range(steps):
            whole = processes.whole_batch([one[name][step] for one in found])
            expected = local.batch(step)
            for field, array in whole.items():
                np.testing.assert_array_equal(array, np.asarray(expected[field]), strict=True)
    # Each asked for half of the rows.
    row = 12 * 12 * 3 * 4
    for one in found:
        assert 16 * steps * row <= one["chain", "rows"] < 16 * (steps + 6) * row * 1.5


def test_a_consumer_that_is_killed_continues_in_another_process(nodes, tmp_path):
    import ray

    found, state = [], None
    for stop in (8, 16):
        order = {"job": "steps", "address": nodes.address, "state": state, "stop": 10**6}
        process = start(tmp_path, stop, **order)
        try:
            while len(found) < stop:
                line = process.stdout.readline()
                assert line, (tmp_path / f"{stop}.err").read_text()
                taken, state = json.loads(line)
                found.append(taken)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
    with iter(make()) as it:
        assert found == [digest(next(it)) for _ in range(16)]
    # Its actors went with it.
    wait_until(lambda: ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"])


def test_without_a_cluster_a_local_ray_runs_ops_of_the_program_on_loopback(tmp_path):
    answer = run(tmp_path, job="alone")
    assert answer["same"]
    assert answer["here"] == 0
    assert answer["listening"]
    assert {ip.rpartition(":")[2] for ip in answer["listening"]} <= {"127.0.0.1", "1"}


def test_a_forked_child_builds_by_itself(nodes, tmp_path):
    local = make()
    answer = run(tmp_path, job="forked", address=nodes.address)
    assert answer == [digest(local.batch(0)), digest(local.batch(1))]
