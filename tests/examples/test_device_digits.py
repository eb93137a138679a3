"""The example of the device loader learns, and compiles its epoch once."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "device_digits.py"


def test_it_learns_in_epochs_that_are_compiled_once(tmp_path):
    finished = subprocess.run(
        [sys.executable, EXAMPLE], cwd=tmp_path, capture_output=True, text=True, timeout=110
    )
    assert finished.returncode == 0, finished.stderr
    accuracies = re.findall(r"^epoch \d+: .* accuracy (\S+)%$", finished.stdout, re.M)
    assert len(accuracies) == 10
    assert float(accuracies[0]) < float(accuracies[-1])
    assert float(accuracies[-1]) > 90
    assert len(re.findall(r"from within: epoch \d+ ended with a loss of", finished.stdout)) == 10
    assert "compiled 1 time(s) for 10 epochs" in finished.stdout
