"""The gallery draws every image op, and each can be seen to do something."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from loaderx import transforms
from loaderx.transforms.image import ImageTransform
from loaderx.transforms.moving import MovingTransform
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "gallery.py"
SIZE = 20

# Prints the tiles, then runs the program itself, in one process: imports take as long as the drawing.
# In plain Python, which is as exact: compiling all ops takes longer than so few pixels.
SCRIPT = """
import json, sys
program, tile_size, *sys.argv[1:] = sys.argv[1:]
from pathlib import Path
sys.path.insert(0, str(Path(program).parent))
import gallery
rows = list(gallery.catalogue(int(tile_size))) + list(gallery.draws(int(tile_size)))
original = rows[0][1][0].image
print(json.dumps([
    [tile.name, list(tile.image.shape), tile.image.shape == original.shape and bool((tile.image == original).all())]
    for _, tiles in rows for tile in tiles
]))
gallery.main()
"""


def run(*arguments):
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    finished = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Tiles of both sheets, and the folder of the sheets."""
    folder = tmp_path_factory.mktemp("gallery")
    return json.loads(run("-c", SCRIPT, PROGRAM, SIZE, folder, "--size", "8")), folder


def test_every_image_op_is_there_and_none_leaves_the_photograph_as_it_is(drawn):
    tiles, _ = drawn
    image_ops = {
        name
        for name, op in vars(transforms).items()
        if isinstance(op, type) and issubclass(op, ImageTransform | MovingTransform)
    }
    assert image_ops | {"ElasticDeform", "Resize", "Normalize"} <= {name for name, _, _ in tiles}
    (first, shape, same), *others = tiles
    assert (first, shape, same) == ("original", [SIZE, SIZE, 3], True)
    # Half of the draws of Maybe are the photograph, and one of 14 ops of the policies is.
    policies = {"Maybe", "RandAugment", "TrivialAugment"}
    assert [name for name, _, same in others if same and name not in policies] == []
    for policy in policies:
        assert not all(same for name, _, same in others if name == policy)


def test_the_sheets_are_drawn_and_twice_the_same(drawn, tmp_path):
    _, before = drawn
    run(PROGRAM, tmp_path, "--size", "8")
    for sheet in ("gallery.png", "policies.png"):
        first, again = (folder / sheet for folder in (before, tmp_path))
        assert first.read_bytes() == again.read_bytes()
        with Image.open(first) as image:
            assert image.width == 10 + 8 * (8 + 10)
            assert image.height > image.width


def test_every_op_on_waveforms_can_be_seen(monkeypatch):
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    import gallery

    tiles = [tile for _, tiles in gallery.sounds(SIZE) for tile in tiles]
    original = tiles[0].image
    assert original.shape == (SIZE, SIZE, 3)
    names = {tile.name for tile in tiles}
    assert {"BackgroundNoise", "ImpulseResponse", "PitchShift", "TimeStretch", "TimeWarp"} <= names
    assert not any((tile.image == original).all() for tile in tiles[1:])


def test_the_committed_sheets_are_small_enough_to_be_part_of_a_page():
    for sheet in ("gallery.png", "policies.png"):
        assert (ROOT / "docs" / "pictures" / sheet).stat().st_size < 700_000
