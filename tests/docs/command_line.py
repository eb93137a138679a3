"""The page about the command line, made of its parsers: `python -m tests.docs.command_line` writes it anew."""

import argparse

from loaderx import cli
from tests.docs.markdown import DOCS

PAGE = DOCS / "reference" / "command-line.md"
BEGIN, END = "<!-- commands: begin -->", "<!-- commands: end -->"


def commands():
    """Return the parsers of all commands by name."""
    parser = cli._parser()
    action = next(one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    return action.choices


def name_of(action):
    """Return an argument as users write it."""
    values = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    if action.choices:
        values = "{" + ",".join(action.choices) + "}"
    shown = " ".join(values) if isinstance(values, tuple) else values
    if action.nargs in ("+", "*"):
        shown += " ..."
    if not action.option_strings:
        return shown
    flag = ", ".join(action.option_strings)
    return flag if action.nargs == 0 else f"{flag} {shown}"


def section(name, parser):
    """Return the section of one command."""
    lines = [f"## loaderx {name}", "", parser.description, ""]
    actions = [action for action in parser._actions if action.dest != "help"]
    if actions:
        lines += ["| argument | what it means |", "|---|---|"]
        for action in actions:
            words = action.help % vars(action)
            lines.append(f"| `{name_of(action)}` | {words} |".replace("\n", " "))
        lines.append("")
    if parser.epilog:
        lines += ["```text", parser.epilog.strip(), "```", ""]
    return "\n".join(lines)


def generated():
    """Return what belongs between the markers."""
    return "\n".join(section(name, parser) for name, parser in commands().items()).strip()


def written():
    """Return the page with the sections of today."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return f"{before}{BEGIN}\n\n{generated()}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
