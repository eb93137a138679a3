"""The code in README.md runs as it stands, from the first block to the last."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).parents[1]
README = REPOSITORY / "README.md"

IMAGES = np.random.default_rng(0).integers(0, 256, (300, 32, 32, 3), np.uint8)
LABELS = np.arange(300, dtype=np.int32) % 10
# What the blocks read, by the names they use.
FILES = {
    "train_data.npy": IMAGES,
    "train_label.npy": LABELS,
    "folder/data.npy": IMAGES,
    "folder/label.npy": LABELS,
    "x.npy": IMAGES,
    "y.npy": LABELS,
    "mask.npy": IMAGES[..., 0] // 128,
}


def program_of(markdown):
    """The text with all but its Python blocks blanked out: one program, with the line numbers of the text."""
    lines, inside = [], False
    for line in markdown.splitlines():
        if line.startswith("```"):
            inside = line.strip() == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines)


def run(program, folder):
    for name, array in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        np.save(folder / name, array)
    path = folder / "README.py"
    path.write_text(program, encoding="utf-8")
    search_path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, path.name],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": search_path},
        capture_output=True,
        text=True,
    )


def test_the_readme_has_python_blocks_and_reads_only_files_that_this_test_writes():
    program = program_of(README.read_text(encoding="utf-8"))
    assert program.strip(), "README.md has no block that begins with ```python"
    named = {Path(name).name for name in re.findall(r"[\w./-]+\.npy", program)}
    written = {Path(name).name for name in FILES}
    written |= set(re.findall(r'open_memmap\("([\w.]+)"', program))  # by itself
    assert named - written == set(), "add these to FILES"


# The first run compiles the transforms that the blocks use.
@pytest.mark.timeout(240)
def test_the_code_of_the_readme_runs(tmp_path):
    finished = run(program_of(README.read_text(encoding="utf-8")), tmp_path)
    assert finished.returncode == 0, finished.stderr


EXAMPLE = """# A title

```python
x = 1
```

```sh
make test
```

x = "no code"

```python
assert x == 1
raise ValueError("in line 15")
```
"""


def test_blocks_are_found_run_in_order_and_fail_with_the_line_of_the_text(tmp_path):
    program = program_of(EXAMPLE)
    code = [line for line in program.splitlines() if line]
    assert code == ["x = 1", "assert x == 1", 'raise ValueError("in line 15")']
    finished = run(program, tmp_path)
    assert finished.returncode == 1
    assert "line 15, in <module>" in finished.stderr
    assert "ValueError: in line 15" in finished.stderr


def test_a_text_without_python_blocks_gives_an_empty_program():
    assert program_of("# A title\n\n```sh\nmake test\n```\n").strip() == ""
