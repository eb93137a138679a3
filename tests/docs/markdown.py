"""Parsing of the documentation: pages, their code blocks, headings and links."""

import re
import shlex
import textwrap
import unicodedata
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

# The line above a block that is not run: `<!-- not run: code of Grain -->`. The reason is for the next author.
NOT_RUN = re.compile(r"<!-- not run: .+ -->")
# Code that readers need not see, such as checks of what a page says: from `<!-- python` to `-->`.
HIDDEN = "<!-- python"
FENCE = re.compile(r"(?P<indent>\s*)```(?P<language>[\w+-]*)(?P<rest>.*)")
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)[^)]*\)|(?:src|href)=\"(?P<html>[^\"]+)\"")


@dataclass(frozen=True)
class Block:
    """A fenced or hidden block of code: where it begins (lines from 1), and whether it runs."""

    language: str
    line: int
    lines: tuple[str, ...]
    runs: bool = True
    title: str = ""

    @property
    def code(self):
        return textwrap.dedent("\n".join(self.lines))


def pages():
    """Return README.md and all pages of the site."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def blocks(text):
    """Return all code blocks of a page, in order."""
    found = []
    lines = text.splitlines()
    above, at = "", 0
    while at < len(lines):
        line = lines[at]
        fence = FENCE.fullmatch(line)
        start = at + 1
        if fence or line == HIDDEN:
            end = (fence["indent"] + "```") if fence else "-->"
            at = start
            while at < len(lines) and lines[at].rstrip() != end:
                at += 1
            assert at < len(lines), f"the block in line {start} has no end"
            language = fence["language"] if fence else "python"
            title = re.search(r'title="(.+?)"', fence["rest"]) if fence else None
            # A block with a title is a file.
            runs = not (NOT_RUN.fullmatch(above.strip()) or title)
            inside = tuple(lines[start:at])
            found.append(Block(language, start + 1, inside, runs, title[1] if title else ""))
        if line.strip():
            above = line
        at += 1
    return found


def prose(text):
    """Return the text with its code blocks blanked out."""
    lines = text.splitlines()
    for block in blocks(text):
        start = block.line - 2
        lines[start : start + len(block.lines) + 2] = [""] * (len(block.lines) + 2)
    return "\n".join(lines)


def commands(block):
    """Return the commands of a shell block: line number, and words without comments."""
    found, begun, start = [], "", block.line
    for number, line in enumerate(block.code.splitlines(), block.line):
        start = start if begun else number
        begun += line.removeprefix("$ ")
        if begun.endswith("\\"):
            begun = begun[:-1]
            continue
        if words := shlex.split(begun, comments=True):
            found.append((start, words))
        begun = ""
    return found


def program_of(text):
    """Return what of a page runs, as one program with the line numbers of the page.

    A `loaderx ...` line of a shell block becomes a call of `run_command`.
    """
    program = [""] * len(text.splitlines())
    for block in blocks(text):
        if not block.runs:
            continue
        if block.language == "python":
            at = block.line - 1
            program[at : at + len(block.lines)] = block.code.split("\n")
        elif block.language == "sh":
            for number, words in commands(block):
                if words[0] == "loaderx":
                    program[number - 1] = f"run_command({words[1:]!r})"
    return "\n".join(program)


def slug(heading):
    """Return the anchor of a heading, as Markdown's extension `toc` makes it."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)  # the words of a link
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def anchors(text):
    """Return the anchors that links to a page may name."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE):
        given = re.search(r"\{ ?#([\w-]+) ?\}$", heading)
        name = given[1] if given else slug(heading)
        while name in found:
            stem, _, count = name.rpartition("_")
            name = f"{stem}_{int(count) + 1}" if count.isdigit() and stem else f"{name}_1"
        found.add(name)
    return found | set(re.findall(r"(?:id|name)=\"([\w.-]+)\"", text))


def links(text):
    """Return the targets of all links and pictures of a page, but for those that lead elsewhere in the world."""
    found = [
        match["target"] or match["html"]
        for match in LINK.finditer(re.sub(r"`[^`\n]*`", "", prose(text)))
    ]
    return [link for link in found if not re.match(r"[a-z]+:", link)]
