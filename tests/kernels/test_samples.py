"""The driver runs samples through a table of passes, as its twin does, one by one or in parts at once."""

import os
from pathlib import Path

import numpy as np
import pytest
from numba.core import config

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.compiler.program import NONE
from loaderx.kernels import passes, samples
from loaderx.sources.row_addresses import addresses_of_rows
from tests import reference

REPOSITORY = Path(__file__).parents[2]
ROWS = np.random.default_rng(0).integers(0, 256, (6, 9, 10, 3), dtype=np.uint8)
CHAINS = {
    "no op": [],
    "in place": [T.Brightness(0.5)],
    "one pass after another": [T.RandomCrop(8, pad=1), T.Brightness(0.5), T.RandomFlip(), T.ToFloat()],
    "a choice": [T.OneOf(T.RandomFlip(), T.Brightness(0.9), T.Invert(0.5))],
    "rounds": [T.RandAugment(3, ops=[T.RandomFlip(), T.Invert(0.5), T.Maybe(0.5, T.Pad(1), T.CenterCrop((9, 10)))])],
    "loops in loops": [T.AugMix(ops=[T.RandAugment(2, ops=[T.RandomFlip(), T.Invert(0.5)]), T.Brightness(0.4)])],
}  # fmt: skip


class Run:
    """Arguments of a chain's program, as the driver receives them."""

    def __init__(self, ops, parts=1):
        pipeline = lx.pipeline([*ops, T.Identity()], seed=3)
        chain = pipeline.chain(lx.Spec(ROWS.shape[1:], ROWS.dtype), ROWS[0])
        self.program = chain.phases[0].segments[0].program
        table = self.program._table
        count = len(table.registers)
        self.pitch = -(-(8 * count + table.scratch + 64) // 64) * 64
        self.memory = np.zeros(parts * self.pitch + 64, np.uint8)
        begin = self.memory.ctypes.data + 8 * count
        begin += -begin % 64
        self.table = (
            table.instructions.ctypes.data,
            len(table.names),
            table.registers.ctypes.data,
            count,
        )
        self.fetched, self.begin = self.program._fetched, begin
        self.out = np.zeros((len(ROWS), *self.program.output.shape), self.program.output.dtype)
        self.bytes = self.out.reshape(-1).view(np.uint8)

    def whole(self, driver):
        located, progress = addresses_of_rows(ROWS), np.zeros(4, np.int64)
        driver(
            *self.table, np.arange(len(ROWS)), located.addresses, NONE, NONE, 0, 0, self.fetched, self.begin,
            self.program.output.nbytes, progress, False, self.bytes,
        )  # fmt: skip
        return self.out, progress

    def in_parts(self, driver, parts):
        located, progress = addresses_of_rows(ROWS), np.zeros((len(parts) - 1, 4), np.int64)
        driver(
            np.array(parts), *self.table, np.arange(len(ROWS)), located.addresses, NONE, NONE, 0,
            np.zeros(len(parts) - 1, np.int64), self.fetched, self.begin, self.pitch, self.program.output.nbytes,
            progress, self.bytes,
        )  # fmt: skip
        return self.out, progress


@pytest.mark.parametrize("ops", CHAINS.values(), ids=CHAINS)
def test_a_table_does_what_its_twin_does(ops):
    expected, _ = Run(ops).whole(reference.run_samples)
    out, progress = Run(ops).whole(samples.run_samples)
    np.testing.assert_array_equal(out, expected)
    assert progress[0] == len(ROWS) - 1
    assert progress[3] == 0


@pytest.mark.parametrize("parts", [[0, 6], [0, 2, 3, 3, 6]])
def test_parts_that_run_at_once_give_the_same_bytes(parts):
    ops = CHAINS["rounds"]
    expected, _ = Run(ops).whole(samples.run_samples)
    for driver in (samples.run_parts, reference.run_parts):
        out, progress = Run(ops, len(parts) - 1).in_parts(driver, parts)
        np.testing.assert_array_equal(out, expected)
        assert not progress[:, 3].any()


@lx.transform
def picky(x, rng):
    if rng.random() < 0.5:
        raise ValueError("not this one")


def test_exceptions_of_a_pass_are_raised_or_told():
    run = lx.pipeline([picky], seed=3)
    with pytest.raises(ValueError, match="not this one") as raised:
        run(ROWS)
    (note,) = raised.value.__notes__
    assert "'picky', at sample" in note
    place = int(note.split("at sample ")[1].split()[0])
    for driver in (samples.run_samples, reference.run_samples):
        _, progress = Run([picky]).whole(driver)
        assert progress[0] == place
        assert progress[3] == passes.RAISED
    _, progress = Run([picky], 6).in_parts(samples.run_parts, range(7))
    assert progress[place, 3] == passes.RAISED
    assert progress[:place, 3].tolist() == [0] * place


PROGRAM = """
import threading
import numba
from tests.kernels.test_samples import CHAINS, Run, np, samples
expected, _ = Run(CHAINS["rounds"]).whole(samples.run_samples)
out, _ = Run(CHAINS["rounds"], 3).in_parts(samples.run_parts, [0, 2, 4, 6])
assert np.array_equal(out, expected)
print(numba.threading_layer())
"""


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="plain Python has no threading layer")
@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_parts_run_under_every_threading_layer(forking, layer):
    settings = {"NUMBA_THREADING_LAYER": layer, "PYTHONWARNINGS": "error"}
    finished = forking.run(PROGRAM, env=os.environ | settings, cwd=REPOSITORY)
    if layer == "omp" and "No threading layer could be loaded" in finished.stderr:
        pytest.skip("this machine has no libgomp")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip() == ("omp" if layer == "omp" else "workqueue")
