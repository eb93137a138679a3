"""Runs of several processes, each done once for all tests."""

import pytest

from tests.distributed import processes, program


class Runs:
    """Results by "processes x devices of each"."""

    def __init__(self, folder):
        self.folder = folder
        self._done = {}
        program.write_files(folder)

    def __call__(self, topology):
        """Of each process in turn, the results of its jobs by name."""
        if topology not in self._done:
            count, devices = map(int, topology.split("x"))
            jobs = {"batches": {}, "training": {}}
            if count > 1:
                jobs["refusals"] = {}
            if topology in program.RESUMED_ON:
                leg = program.RESUMED_ON.index(topology)
                before = self(program.RESUMED_ON[leg - 1])[0]["resuming"] if leg else None
                states = before and {name: result["state"] for name, result in before.items()}
                jobs["resuming"] = {"leg": leg, "states": states}
            # A failure is remembered too: to try again for every test would take hours.
            self._done[topology] = None
            self._done[topology] = processes.run(self.folder, count, devices, jobs)
        results = self._done[topology]
        assert results is not None, f"the processes of {topology} failed in an earlier test"
        return results


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("distributed"))
