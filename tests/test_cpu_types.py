"""Batches have the same bytes on CPUs of other types: workers of a cluster may have several."""

import json
import os
import subprocess
import sys

import pytest

from tests import golden
from tests.conftest import CACHE
from tests.docs.markdown import ROOT

EXPECTED = {
    name: digest
    for name, digest in json.loads(golden.FILE.read_text()).items()
    if digest != golden.REFUSED
}
# From 128 bits wide vectors, without FMA, to 256 bits with it; the digests are of this machine, perhaps with 512.
TYPES = ("generic", "nehalem", "haswell")
# Sums of floats, resampling, transcendental functions, and code of a user.
SOME = (
    "long",
    "Affine, float32",
    "LogMel",
    "LoudnessNormalize",
    "authored with out",
)

# Whether code has vectors of 256 bits.
VECTORS = """
import numba, numpy as np
@numba.njit
def double(x):
    for i in range(x.shape[0]):
        x[i] *= 2
double.compile("f4[::1],")
print("ymm" in next(iter(double.inspect_asm().values())))
"""


def executable(name):
    """Tell whether this machine runs code for a type of CPU."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    needed = {"generic": (), "nehalem": ("sse4.2",), "haswell": ("avx2", "fma", "bmi2")}[name]
    return all(features.get(feature, False) for feature in needed)


def settings(name):
    """Return the settings of Numba; without the second one it adds all features of this machine."""
    return {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": ""}


def digests(name, cases):
    """Return the digests of cases with code for a type of CPU, from a process of its own, with caches of its own."""
    folder = CACHE / f"cpu-{name}"
    done = subprocess.run(
        [sys.executable, "-m", "tests.cpu_types", *cases],
        cwd=ROOT,
        env=os.environ
        | {
            **settings(name),
            "LOADERX_CACHE_DIR": str(folder / "chains"),
            "NUMBA_CACHE_DIR": str(folder / "kernels"),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(900)  # the first run compiles
@pytest.mark.parametrize("name", TYPES[:1])
def test_some_chains_have_the_same_bytes_on_every_type_of_cpu(name):
    assert digests(name, SOME) == {case: EXPECTED[case] for case in SOME}


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", TYPES)
def test_all_chains_have_the_same_bytes_on_every_type_of_cpu(name):
    if not executable(name):
        pytest.skip(f"this machine cannot run code for {name}")
    found = digests(name, EXPECTED)
    assert {case for case in EXPECTED if found[case] != EXPECTED[case]} == set()


def test_code_is_compiled_for_the_type_that_is_asked_for():
    """Otherwise the tests above would compare this machine with itself."""
    for name, wide in {"generic": False, "haswell": True}.items():
        done = subprocess.run(
            [sys.executable, "-c", VECTORS],
            env=os.environ | settings(name) | {"NUMBA_DISABLE_JIT": "0"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [str(wide)]
