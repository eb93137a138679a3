"""Run the code of pages in one process: `python -m tests.docs.run_pages RESULTS FOLDER PAGE...`.

Each page is a program of its own, from its first block to its last, in a folder of its own. All of them share the
cost of imports and of loading compiled code. RESULTS gets a line of JSON per page.
"""

import json
import os
import sys
import time
import traceback
import types
from pathlib import Path

from loaderx.cli import main as loaderx
from tests.docs import files
from tests.docs.markdown import ROOT, program_of


def run_command(words):
    """Run `loaderx ...` as a page says; a command line that is refused is an error of the page."""
    try:
        status = loaderx(words)
    except SystemExit as refused:  # by argparse
        status = refused.code
    if status:
        raise RuntimeError(f"loaderx {' '.join(words)} ended with status {status}")


def run(page, folder):
    """Run a page in `folder`, with the files it names. Return the traceback of its error, or None."""
    text = (ROOT / page).read_text(encoding="utf-8")
    folder.mkdir(parents=True)
    os.chdir(folder)
    files.write(text, folder)
    # A file, for those who read the source of their functions: compiled transforms, tracebacks.
    path = folder / f"{Path(page).stem}.py"
    path.write_text(program_of(text), encoding="utf-8")
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=str(path), run_command=run_command)
    ours = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    except BaseException:  # noqa: BLE001 - the other pages still run
        return traceback.format_exc()
    finally:
        sys.modules["__main__"] = ours
    return None


def main(results, folder, *pages):
    with Path(results).open("w", encoding="utf-8") as file:
        for number, page in enumerate(pages):
            started = time.process_time()
            error = run(page, Path(folder) / str(number))
            seconds = round(time.process_time() - started, 3)
            file.write(json.dumps({"page": page, "error": error, "seconds": seconds}) + "\n")
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
