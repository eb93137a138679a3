"""The small examples run to the end, and show their point."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

EXAMPLES = Path(__file__).parents[2] / "examples"


def numbers(pattern, text):
    """The numbers that a pattern catches, in the one place where it fits."""
    (found,) = re.findall(pattern, text)
    return [float(number) for number in (found if isinstance(found, tuple) else [found])]


def assert_compared_where_installed(library, output, verdict):
    """The half of the other library runs where that is, and its absence is told where it is not."""
    if importlib.util.find_spec(library) is None:
        verdict = f"{library} is not installed: only the part for loaderx ran"
    assert verdict in output


def test_the_program_from_loadax_has_its_batches(run):
    output = run("from_loadax.py", "--items=6", "--batch-size=2")
    assert_compared_where_installed("loadax", output, "3 batches, equal in both")
    assert output.startswith("loaderx: [[2, 4], [6, 8], [10, 12]]\n")
    assert "sums of the batches: [6, 14, 22]" in output
    assert "two iterators: one is at [3, 4], the other at [1, 2]" in output


def test_a_process_of_its_own_prints_the_same(run, tmp_path):
    finished = subprocess.run(
        [sys.executable, EXAMPLES / "from_loadax.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    assert finished.stdout == run("from_loadax.py")


def test_the_program_from_grain_has_its_batches(run):
    output = run("from_grain.py", "--rows=300")
    assert_compared_where_installed(
        "grain", output, "4 batches, equal in both but for the last bit"
    )
    assert "loaderx: 4 batches, image (64, 32, 32, 3) float32" in output
    low, high = numbers(r"factors from (\S+) to (\S+)", output)
    assert 0.8 <= low < 0.85
    assert 1.15 < high <= 1.2
    assert "resumed at step 1: the same batch again" in output


def test_the_program_from_torch_has_its_batches(run):
    output = run("from_torch.py", "--rows=300")
    assert_compared_where_installed("torch", output, "5 batches, equal in both")
    assert numbers(r"differ from its __getitem__ by at most (\S+)", output)[0] < 1e-6
    low, high = numbers(r"every class is (\S+)% to (\S+)% of", output)
    assert 8 < low <= 10 <= high < 12


def test_the_program_from_cyreal_has_its_batches(run):
    output = run("from_cyreal.py", "--rows=300")
    assert_compared_where_installed("cyreal", output, "equal in every image")
    (steps,) = re.findall(r"^loaderx: (\d+) steps", output, re.M)
    assert int(steps) == 3
    assert output.count("from within") == 2
    assert "shuffled: every row once" in output
    assert "from disk, in a scan: 10 steps" in output


def test_skeletons_from_array_record_are_learned(run):
    output = run("array_record_skeletons.py", "--rows=80", "--batch-size=8")
    in_memory, in_file = numbers(r"(\S+) MB of skeletons, (\S+) MB in the file", output)
    assert in_file < in_memory
    (first,), (last,) = (numbers(rf"step {step}: loss (\S+)", output) for step in (1, 60))
    assert last < first / 2
    correct, rows = numbers(r"held out: (\d+) of (\d+) correct", output)
    assert correct > 0.9 * rows


@pytest.mark.parametrize("debug", ["", "1"])
def test_a_transform_of_ones_own_is_the_same_compiled_and_in_plain_python(run, monkeypatch, debug):
    monkeypatch.setenv("LOADERX_DEBUG", debug)
    output = run("custom_transform.py")
    corner, inside = numbers(r"times (\S+) in a corner, (\S+) inside", output)
    assert corner < 0.6
    assert inside > 0.99
    assert len(re.findall(r"compiled and plain differ by at most", output)) == 2
    assert "off_by_one: index 16 is out of bounds" in output
    assert "in transform 'off_by_one'" in output
    (changed,) = numbers(r"(\d+)% of the samples are changed", output)
    assert 35 < changed < 65
    assert "sum 1.000" in output


def test_random_windows_of_tokens_are_learned_and_a_run_resumes(run):
    output = run("tokens_nanogpt.py", "--words=5000", "--batch-size=8", "--steps=80")
    inputs, targets = re.findall(r"^(?:inputs|targets): +'(.*)'$", output, re.M)
    assert inputs[1:] == targets[:-1]
    first, last = numbers(r"step 1: loss (\S+), step 80: loss (\S+)", output)
    assert last < first / 2
    assert "resumed at step 40: the same 40 losses again" in output


def test_masks_and_boxes_stay_on_their_image(run, tmp_path):
    output = run("segmentation_masks.py", "--sheet=sheet.png")
    right, wrong = numbers(
        r"right for (\S+)% of the pixels, that of other images for (\S+)%", output
    )
    assert right > 99
    assert wrong < 90
    assert numbers(r"(\S+)% of the shapes are in their boxes", output)[0] > 99
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")
