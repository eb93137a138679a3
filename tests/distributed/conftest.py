"""Runs of several processes, each done once for all tests."""

import pytest

from tests.distributed import processes, program


class Runs:
    """Results by "processes x devices of each"."""

    def __init__(self, forking, folder):
        self.forking, self.folder = forking, folder
        self._done = {}
        program.write_files(folder)

    def __call__(self, topology):
        """Return the results of the jobs by name, for each process in turn."""
        if topology not in self._done:
            count, devices = map(int, topology.split("x"))
            jobs = {"batches": {}, "training": {}}
            if count > 1:
                jobs["refusals"] = {}
            for chain in (program.RESUMED_ON, program.RESUMED_ON_MORE):
                if topology in chain and "resuming" not in jobs:
                    leg = chain.index(topology)
                    before = self(chain[leg - 1])[0]["resuming"] if leg else None
                    states = before and {name: result["state"] for name, result in before.items()}
                    jobs["resuming"] = {"leg": leg, "states": states}
            # A failure is cached too: a retry in every test would take hours.
            self._done[topology] = None
            self._done[topology] = processes.run(self.forking, self.folder, count, devices, jobs)
        results = self._done[topology]
        assert results is not None, f"the processes of {topology} failed in an earlier test"
        return results


@pytest.fixture(scope="session")
def runs(forking, tmp_path_factory):
    return Runs(forking, tmp_path_factory.mktemp("distributed"))


HEARTBEAT = 10  # seconds after which a process that is silent counts as dead


@pytest.fixture(scope="session", autouse=True)
def begun_deaths(forking, request, tmp_path_factory):
    """Of every death that a test asks for its two processes, their folder and their port.

    They mostly wait, so they begin before all other tests, and no other test waits for them.
    """
    timeouts = {"heartbeat_timeout_seconds": HEARTBEAT, "shutdown_timeout_seconds": HEARTBEAT}
    asked = [
        item.callspec.params for item in request.session.items if "deaths" in item.fixturenames
    ]
    begun = {}
    try:
        for case in asked:
            folder, port = tmp_path_factory.mktemp("death"), processes.free_port()
            jobs = {"dying": {"victim": case["victim"], "how": case["how"]}}
            started = processes.start(forking, folder, 2, 1, jobs, port, timeouts=timeouts)
            begun[case["victim"], case["how"]] = started, folder, port
        yield begun
    finally:
        for started, _, _ in begun.values():
            processes.wait(started, 0)
