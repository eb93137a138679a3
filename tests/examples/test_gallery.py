"""The gallery draws every image op, and each can be seen to do something."""

import json
import os
import subprocess
import sys
from pathlib import Path

from PIL import Image

from loaderx import transforms
from loaderx.transforms.image import ImageTransform
from loaderx.transforms.moving import MovingTransform

ROOT = Path(__file__).parents[2]
SIZE = 24

# In plain Python: compiling them all takes longer than so few pixels. What comes out is the same.
SCRIPT = """
import json, sys
sys.path.insert(0, {examples!r})
import gallery
rows = list(gallery.catalogue({size})) + list(gallery.draws({size}))
original = rows[0][1][0].image
print(json.dumps([
    [tile.name, list(tile.image.shape), tile.image.shape == original.shape and bool((tile.image == original).all())]
    for _, tiles in rows for tile in tiles
]))
"""


def run(*arguments):
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    finished = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_every_image_op_is_there_and_none_leaves_the_photograph_as_it_is():
    tiles = json.loads(run("-c", SCRIPT.format(examples=str(ROOT / "examples"), size=SIZE)))
    image_ops = {
        name
        for name, op in vars(transforms).items()
        if isinstance(op, type) and issubclass(op, ImageTransform | MovingTransform)
    }
    assert image_ops | {"ElasticDeform", "Resize", "Normalize"} <= {name for name, _, _ in tiles}
    (first, shape, same), *others = tiles
    assert (first, shape, same) == ("original", [SIZE, SIZE, 3], True)
    # Half of the draws of Maybe are the photograph, and one of 14 ops of the policies is.
    drawn = {"Maybe", "RandAugment", "TrivialAugment"}
    assert [name for name, _, same in others if same and name not in drawn] == []
    for policy in drawn:
        assert not all(same for name, _, same in others if name == policy)


def test_the_sheets_are_drawn_and_twice_the_same(tmp_path):
    for name in ("first", "again"):
        folder = tmp_path / name
        folder.mkdir()
        run(str(Path("examples") / "gallery.py"), str(folder), "--size", "8")
    for sheet in ("gallery.png", "policies.png"):
        first, again = (tmp_path / name / sheet for name in ("first", "again"))
        assert first.read_bytes() == again.read_bytes()
        with Image.open(first) as image:
            assert image.width == 10 + 8 * (8 + 10)
            assert image.height > image.width


def test_the_committed_sheets_are_small_enough_to_be_part_of_a_page():
    for sheet in ("gallery.png", "policies.png"):
        assert (ROOT / "loaderx" / "transforms" / sheet).stat().st_size < 700_000
