"""Table of all transforms, from their signatures and docstrings.

`python -m tests.loaderx.transforms.catalogue` writes it into the page docs/transforms.md.
"""

import inspect
import re
from pathlib import Path

from loaderx import transforms as T  # noqa: N812 - as users write it

PAGE = Path(__file__).parents[3] / "docs" / "transforms.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
# Heading -> the files whose ops are under it.
SECTIONS = {
    "Windows onto an image": ("spatial", "scale_jitter"),
    "Maps of an image": ("geometric", "elastic", "distortion"),
    "Boxes": ("boxes", "detection"),
    "Colours and tones": ("colour", "tones", "photometric"),
    "Filters, noise and holes": ("filters", "blurs", "noise", "dropout", "degrade", "weather"),
    "Values and labels": ("values", "labels", "channels"),
    "Combinators and policies": ("combinators", "rounds", "policies", "image", "amounts"),
    "Views of one sample": ("views", "corners"),
    "Samples of a batch": ("mix", "mosaic", "copy_paste"),
    "Signals": (
        "signals",
        "resampling",
        "levels",
        "audio_filters",
        "recordings",
        "stretching",
        "spectrograms",
    ),
    "Skeletons": ("skeletons",),
    "Tokens": ("tokens",),
}
# Exported names that are not ops.
OTHERS = {"Transform", "transform"}


def exported():
    """Return the public names, and their objects."""
    found = {
        name: value
        for name, value in vars(T).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("loaderx")
    }
    return {name: value for name, value in found.items() if name not in OTHERS}


def signature(name, value):
    """Return the signature of a constructor, without the types."""
    given = inspect.signature(value)
    shown = []
    for parameter in given.parameters.values():
        bare = parameter.replace(annotation=inspect.Parameter.empty)
        shown.append(re.sub(r"(?<=\d)\.0(?!\d)", "", str(bare)))
        if bare.kind is bare.VAR_POSITIONAL:
            continue
        if bare.kind is bare.KEYWORD_ONLY and not any("*" in text for text in shown[:-1]):
            shown.insert(-1, "*")
    return f"{name}({', '.join(shown)})"


def sentence(value):
    """Return the first paragraph of a docstring."""
    text = " ".join(inspect.getdoc(value).split("\n\n")[0].split())
    return text.replace("|", "\\|")


def table():
    """Return the text between the markers."""
    ops = exported()
    lines = []
    for heading, files in SECTIONS.items():
        lines += [f"### {heading}", "", "| op | what it does |", "|---|---|"]
        for file in files:
            module = f"loaderx.transforms.{file}"
            own = [(name, value) for name, value in ops.items() if value.__module__ == module]
            lines += [f"| `{signature(name, value)}` | {sentence(value)} |" for name, value in own]
            for name, _ in own:
                del ops[name]
        lines.append("")
    assert not ops, f"no section has {', '.join(ops)}"
    return "\n".join(lines)


def written():
    """Return the page with the current table."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(written())
