"""Damage to an ArrayRecord file leads to an error at worst: thousands of mutations of small files are read.

`make test-long` reads ten thousand. The mutations are in fuzz_damage.py and fuzz_forgery.py, the allowed outcomes in
fuzz_outcomes.py. All of it happens in separate processes with limited memory, which must survive.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from numba.core import config

from tests.waiting import PATIENCE

pytest.importorskip("array_record.python.array_record_module")
if sys.platform != "linux" or config.DISABLE_JIT:
    pytest.skip("needs /proc, and compiled code for the time it takes", allow_module_level=True)

from loaderx import ARDataset
from loaderx.kernels.blocks import BLOCK
from tests.loaderx.sources import fuzz_records, guarded_numpy
from tests.loaderx.sources.fuzz_damage import PLAIN_DAMAGE, unnoticed
from tests.loaderx.sources.fuzz_forgery import WITH_HASHES, lay
from tests.loaderx.sources.fuzz_mutations import Mutation, mutation
from tests.loaderx.sources.fuzz_originals import chunk_at, write_original
from tests.loaderx.sources.fuzz_outcomes import WrongError, outcome

# Thousands of files are read for the first of these tests.
pytestmark = pytest.mark.timeout(900)

REPOSITORY = Path(__file__).parents[3]
PROGRAM = fuzz_records.__name__
# Mutations, and processes that share them.
FEW, MANY = (1_500, 1), (10_000, 2)
SEED = 0


def start(forking, folder, first, count):
    program = f"import runpy; runpy.run_module({PROGRAM!r}, run_name='__main__', alter_sys=True)"
    return forking.start(program, folder, first, count, SEED, cwd=REPOSITORY)


@pytest.fixture(scope="module")
def folder():
    """Return a folder, in memory if possible: half a gigabyte is written."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture(
    scope="module", params=[FEW, pytest.param(MANY, marks=pytest.mark.long)], ids=["few", "many"]
)
def reports(request, forking, folder):
    """Return the output and exit code of each process."""
    mutations, processes = request.param
    share = mutations // processes
    running = []
    for number in range(processes):
        own = folder / f"{mutations}.{number}"
        own.mkdir()
        running.append((own, start(forking, own, number * share, share)))
    found = []
    for own, process in running:
        try:
            out, errors = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            out, errors = process.communicate(timeout=PATIENCE)
        found.append((own, process.returncode, out, errors))
    return found


def test_no_mutation_ends_or_upsets_the_process(reports):
    for own, code, out, errors in reports:
        if code == 1 and out:
            failures = json.loads(out)["failures"]
            pytest.fail(
                f"{len(failures)} of the mutations by `python -m {PROGRAM} FOLDER NUMBER 1 {SEED}`:\n"
                + "\n".join(failures)
            )
        number = (own / "current").read_text().strip()
        assert code == 0, f"exit code {code} in mutation {number} of seed {SEED}: {errors[-2000:]}"


@pytest.mark.parametrize("kind", [*PLAIN_DAMAGE, *WITH_HASHES, "loaded"])
def test_there_are_mutations_of_every_class_that_do_harm_and_that_do_none(reports, kind):
    counts = Counter()
    for _, _, out, _ in reports:
        counts.update(json.loads(out)["counts"] if out else {})
    assert counts[f"{kind} right"] > 0
    assert counts[f"{kind} error"] > 0


# Checks that the tests above can fail.


@pytest.fixture(scope="module")
def padded(folder):
    """Return a file in which each chunk begins with a block, all of one size."""
    return write_original(folder / "padded", "uncompressed", 1, True, True)


def test_a_mutation_is_the_same_whenever_it_is_made(padded):
    for number in range(50):
        first, second = (mutation(number, SEED, [padded]) for _ in range(2))
        assert first == second
    assert mutation(1, SEED, [padded]) != mutation(1, SEED + 1, [padded])


def test_blocks_that_look_alike_are_the_one_damage_that_goes_unnoticed_and_wrong_bytes_are_reported(
    padded, folder
):
    order = list(range(padded.blocks))
    order[1], order[2] = 2, 1
    assert unnoticed(padded, order)
    swapped = b"".join(padded.data[BLOCK * n : BLOCK * (n + 1)] for n in order)
    path = folder / "swapped"
    path.write_bytes(swapped)
    damaged = Mutation("blocks", padded, swapped, "bytes", "always", True, False, False)
    with pytest.raises(WrongError, match=r"the records \[1, 2\] have wrong bytes"):
        outcome(damaged, path)


def test_forged_numbers_have_right_hashes(padded, folder):
    path = folder / "rehashed"
    content = bytearray(padded.data)
    kind, data = chunk_at(content, padded.chunks[1].begin)
    changed = data[:-1] + bytes([data[-1] ^ 1])
    lay(content, padded.chunks[1].begin, kind, changed)
    path.write_bytes(content)
    assert ARDataset(path)[1][-1] == padded.records[1][-1] ^ 1


def test_memory_after_an_array_ends_the_process_that_touches_it(forking):
    program = (
        f"import ctypes; from {guarded_numpy.__name__} import GUARDED; GUARDED.on = True; "
        "array = GUARDED.empty(100, 'u1'); print(ctypes.string_at(array.ctypes.data, SIZE))"
    )
    codes = [
        forking.run(program.replace("SIZE", str(size)), cwd=REPOSITORY).returncode
        for size in (100, 101)
    ]
    assert codes[0] == 0
    assert codes[1] < 0
