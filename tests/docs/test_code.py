"""The code of README.md and of the site runs unchanged: each page from its first block to its last."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib

import pytest
import yaml

from loaderx import cli
from tests.docs import markdown
from tests.docs.markdown import ROOT, blocks, commands, name_of, pages, program_of

PAGES = {name_of(page): page.read_text(encoding="utf-8") for page in pages()}
WITH_CODE = [name for name, text in PAGES.items() if program_of(text).strip()]
# Languages of blocks that nothing runs.
SILENT = {"", "text", "dockerfile", "diff"}
PARSERS = {"toml": tomllib.loads, "json": json.loads, "yaml": yaml.safe_load}


def run_pages(names, folder):
    """Run pages in a process of their own; return its results by page, and how it ended."""
    results = folder / "results.jsonl"
    search_path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    devices = "--xla_force_host_platform_device_count=4"  # for pages about several of them
    # A page must not call anything deprecated.
    python = [sys.executable, "-W", "error::DeprecationWarning:__main__"]
    finished = subprocess.run(
        [*python, "-m", "tests.docs.run_pages", str(results), str(folder / "pages"), *names],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": search_path, "XLA_FLAGS": devices},
        capture_output=True,
        text=True,
    )
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    return {result["page"]: result for result in map(json.loads, lines)}, finished


@pytest.fixture(scope="module")
def ran(request, tmp_path_factory):
    """Run all pages that tests were chosen for, in one process."""
    chosen = [
        item.callspec.params["name"]
        for item in request.session.items
        if item.path == request.path and "ran" in item.fixturenames
    ]
    return run_pages(dict.fromkeys(chosen), tmp_path_factory.mktemp("docs"))


# The first one waits for all of them, and the first run compiles what they use.
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", WITH_CODE)
def test_the_code_of_a_page_runs(ran, name):
    results, finished = ran
    assert name in results, f"the process ended before:\n{finished.stderr[-3000:]}"
    assert results[name]["error"] is None, results[name]["error"]
    assert finished.returncode == 0, finished.stderr[-3000:]


@pytest.mark.parametrize("name", PAGES)
def test_blocks_that_do_not_run_are_checked_as_far_as_possible(name):
    for block in blocks(PAGES[name]):
        where = f"{name}, line {block.line}"
        if block.language == "python":
            compile(block.code, where, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        elif block.language == "sh":
            for number, words in commands(block):
                check_command(words, f"{name}, line {number}")
        elif block.language in PARSERS:
            PARSERS[block.language](block.code)
        else:
            assert block.language in SILENT, f"{where}: nothing is known of {block.language!r}"


def check_command(words, where):
    """Check a command as far as that is possible without running it."""
    while re.fullmatch(r"[A-Z_]+=\S*", words[0]):  # variables in front of it
        words = words[1:]
    if words[:3] == ["python", "-m", "loaderx"]:
        words = ["loaderx", *words[3:]]
    if words[0] == "loaderx":
        cli._parser().parse_args(words[1:])
    elif words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        wanted = {word for word in words[1:] if "=" not in word}
        assert wanted <= set(targets), f"{where}: the Makefile has no {wanted - set(targets)}"
    elif words[0] == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for named in re.findall(r"\[([\w,-]+)\]", " ".join(words)):
            unknown = set(named.split(",")) - set(extras["optional-dependencies"])
            assert not unknown, f"{where}: there is no extra {unknown}"
    elif words[0].endswith("python") and words[1] == "-m":
        module = ROOT / words[2].replace(".", "/")
        assert module.with_suffix(".py").exists() or module.is_dir() or words[2] == "pytest", where
    elif words[0].endswith("python"):
        assert (ROOT / words[1]).exists(), f"{where}: there is no {words[1]}"
    else:
        assert words[0] in {"cd", "export", "git", "pytest"}, (
            f"{where}: nothing is known of {words[0]!r}"
        )


EXAMPLE = """# A title

```python
x = 1
```

```sh
loaderx inspect x.npy  # a comment
make test
```

x = "no code"

<!-- not run: code of another library -->
```python
raise ValueError("never")
```

<!-- python
hidden = x
-->

- In a list:

  ```python
  assert hidden == 1
  raise ValueError("in line 27")
  ```
"""


def test_a_program_has_what_runs_at_the_lines_of_the_page():
    lines = {number: line for number, line in enumerate(program_of(EXAMPLE).split("\n"), 1) if line}
    assert lines == {
        4: "x = 1",
        8: "run_command(['inspect', 'x.npy'])",
        20: "hidden = x",
        26: "assert hidden == 1",
        27: 'raise ValueError("in line 27")',
    }


def test_an_error_names_the_page_and_its_line_and_other_pages_still_run(tmp_path, monkeypatch):
    first, second = tmp_path / "first.md", tmp_path / "second.md"
    first.write_text(EXAMPLE)
    second.write_text("```python\nassert 'x' not in globals()\n```\n")
    results, finished = run_pages([str(first), str(second)], tmp_path)
    error = results[str(first)]["error"]
    assert 'first.py", line 27, in <module>' in error
    assert "ValueError: in line 27" in error
    assert results[str(second)]["error"] is None
    assert "32 x 32 x 3, uint8" in finished.stdout


def test_a_text_without_code_gives_an_empty_program():
    assert program_of("# A title\n\n```sh\nmake test\n```\n").strip() == ""


def test_a_command_that_does_not_exist_is_found():
    for command in ("loaderx bnech x", "make tset", "pip install .[none]", "python none.py"):
        with pytest.raises((AssertionError, SystemExit)):
            check_command(command.split(), "here")
    assert markdown.slug("What is compiled, and `when`") == "what-is-compiled-and-when"
