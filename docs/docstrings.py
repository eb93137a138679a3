"""Docstrings as the site shows them: two columns of arguments become sections that Griffe parses."""

import re

import griffe

# `batch_size  how many rows`, with further lines below the text.
ARGUMENT = re.compile(r"(?P<name>[a-z_]+)(?P<gap> {2,})(?P<text>\S.*)")
# Characters of code in prose that Markdown would take for its own.
MARKUP = re.compile(r"(?<!`)([*<|])(?!`)")


def sections(docstring: str) -> str:
    """Return a docstring with each block of arguments as a section `Args:`."""
    blocks = docstring.split("\n\n")
    return "\n\n".join(_section(block) or block for block in blocks)


def _section(block: str) -> str | None:
    lines: list[str] = []
    width = 0
    for line in block.splitlines():
        if found := ARGUMENT.fullmatch(line):
            width = found.start("text")
            lines.append(f"    {found['name']}: {_escaped(found['text'])}")
        elif lines and line[:width].isspace():
            lines.append(f"        {_escaped(line.strip())}")
        else:
            return None
    return "\n".join(["Args:", *lines])


def _escaped(text: str) -> str:
    return MARKUP.sub(r"\\\1", text)


class Docstrings(griffe.Extension):
    """Rewrites docstrings when objects are read, before they are parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite the docstring of one class or function."""
        if obj.docstring is not None:
            obj.docstring.value = sections(obj.docstring.value)
