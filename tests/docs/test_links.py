"""Links of the documentation lead somewhere: to files that exist, and to headings that these have."""

import re
import subprocess

import pytest

from tests.docs.markdown import DOCS, ROOT, anchors, links, name_of, pages, prose

TEXTS = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
).stdout.splitlines()
# Paths of this repository in prose: in backquotes, beginning with a folder of it.
NAMED = re.compile(r"`((?:benchmarks|docs|examples|kernels|loaderx|tests)/[\w./-]*[\w/])`")


def broken(page, text):
    """Return the links of a page that lead nowhere."""
    found = []
    for link in links(text):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        inside = DOCS not in page.parents or DOCS in (target, *target.parents)
        if not (target.exists() and inside):
            found.append(link)
        elif anchor and target.suffix == ".md":
            known = anchors(text if target == page else target.read_text(encoding="utf-8"))
            # API entries: mkdocstrings makes their anchors, and `mkdocs build --strict` checks them.
            if anchor not in known and not anchor.startswith("loaderx."):
                found.append(link)
    return found


@pytest.mark.parametrize("name", [name for name in TEXTS if (ROOT / name).exists()])
def test_links_lead_to_files_and_headings(name):
    page = ROOT / name
    assert broken(page, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_files_that_the_text_names_exist(page):
    named = set(NAMED.findall(prose(page.read_text(encoding="utf-8"))))
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_broken_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text("# A heading\n## A heading\n")
    text = """# Here
[a](other.md) [b](other.md#a-heading) [c](other.md#a-heading_1) [d](#here) [e](https://jax.dev)
![f](none.png) [g](other.md#none) [h](#none) <img src="none.svg">
`[i](code.md)`
```python
x["j"](k)
```
"""
    page.write_text(text)
    assert broken(page, text) == ["none.png", "other.md#none", "#none", "none.svg"]
