"""The page with all source files, a line each, made of their first lines: `python -m tests.layout` writes it anew."""

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture" / "source-files.md"
BEGIN, END = "<!-- layout: begin -->", "<!-- layout: end -->"
FOLDERS = ("loaderx", "kernels", "benchmarks")


def files():
    """The source files that belong to the project, in the order of their folders."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *FOLDERS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    found = [Path(name) for name in listed if name.endswith(".py") and (ROOT / name).exists()]
    return sorted(found, key=lambda path: (FOLDERS.index(path.parts[0]), path.parent, path.name))


def what_it_is_for(path):
    """The first sentence of a file's docstring."""
    words = ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    first = words.split("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=\.)\s", first)[0].rstrip(".")


def layout():
    """A table per folder."""
    lines = []
    folder = None
    for path in files():
        if path.parent != folder:
            folder = path.parent
            lines += ["", f"| `{folder}/` | |", "|---|---|"]
        lines.append(f"| `{path.name}` | {what_it_is_for(path).replace('|', chr(92) + '|')} |")
    return "\n".join(lines).strip()


def in_page():
    """Return the list in the page as it is now."""
    return PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0].strip()


def main():
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{layout()}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
