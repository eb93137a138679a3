"""Golden digests with code for another type of CPU: `NUMBA_CPU_NAME=nehalem python -m tests.cpu_types [name ...]`.

It prints them as JSON. A cluster may have CPUs of several types, and all of them must build the same bytes.
"""

import json
import sys
import tempfile
import warnings
from pathlib import Path

from tests import golden


def main():
    names = sys.argv[1:] or json.loads(golden.FILE.read_text())
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        cases = golden.cases(Path(folder))
        print(json.dumps({name: golden.digest(cases[name]) for name in names}))  # noqa: T201


if __name__ == "__main__":
    main()
