"""The picture of the way of a batch: `python docs/way_of_a_batch.py` draws it into docs/architecture."""

from pathlib import Path
from xml.sax.saxutils import escape

FILE = Path(__file__).parent / "architecture" / "way-of-a-batch.svg"
WIDTH, HEIGHT = 960, 362
INK, ACCENT, LIGHT, BOX = "#263238", "#d9480f", "#eceff1", "#ffffff"

# Title, and lines of text: from left to right.
STAGES = (
    ("order", ("step -> positions,", "row numbers", "", "arithmetic, no", "permutation in memory")),
    (
        "source",
        ("row numbers -> places", "", "mapped files, arrays,", "encoded images,", "Python objects"),
    ),
    (
        "pipeline",
        (
            "per sample, compiled:",
            "fetch or decode,",
            "op, op, out[i]",
            "",
            "while it is in the cache",
        ),
    ),
    ("buffer", ("a slab of the pool,", "64-byte aligned", "", "leased to the batch")),
    ("output", ("hand-off without a copy", "", "JAX, NumPy,", "PyTorch, DLPack")),
)


def text(x, y, words, size=13, colour=INK, weight="normal"):
    """Return a line of text, centred at x."""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" font-weight="{weight}" '
        f'text-anchor="middle">{escape(words)}</text>'
    )


def box(x, y, width, height, fill=BOX, stroke=INK):
    """Return a rectangle with round corners."""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{fill}" '
        f'stroke="{stroke}" stroke-width="1.5"/>'
    )


def arrow(path, colour=INK):
    """Return an arrow along a path."""
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" marker-end="url(#tip)"/>'
    )


def picture():
    """Return the SVG."""
    width, gap, left, top, height = 152, 34, 32, 90, 140
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="Helvetica, Arial, sans-serif" role="img" '
        'aria-label="The way of a batch: order, source, pipeline, buffer, output, consumer">'
    )
    tip = (
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse">'
        f'<path d="M0 0L10 5L0 10z" fill="{INK}"/></marker></defs>'
    )
    lines = [
        svg,
        tip,
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="{LIGHT}"/>',
        # Who does it.
        box(left - 12, 16, 5 * width + 4 * gap + 24, height + 92, fill="#dfe6ea", stroke="#90a4ae"),
        text(
            WIDTH / 2,
            42,
            "worker threads, ahead of the consumer; compiled code runs without the GIL",
            14,
        ),
        text(WIDTH / 2, 64, "the scheduler decides who builds which batch, in how many parts", 12),
    ]
    for number, (title, words) in enumerate(STAGES):
        x = left + number * (width + gap)
        accent = title == "pipeline"
        lines.append(box(x, top, width, height, stroke=ACCENT if accent else INK))
        lines.append(text(x + width / 2, top + 26, title, 16, ACCENT if accent else INK, "bold"))
        for line, word in enumerate(words):
            lines.append(text(x + width / 2, top + 52 + 18 * line, word, 12))
        if number:
            lines.append(arrow(f"M{x - gap} {top + height / 2}H{x - 2}"))
    last = left + 4 * (width + gap)
    buffer = left + 3 * (width + gap)
    y = 286
    lines += [
        box(last, y, width, 52),
        text(last + width / 2, y + 22, "consumer", 16, INK, "bold"),
        text(last + width / 2, y + 41, "next(iterator)", 12),
        arrow(f"M{last + width / 2} {top + height}V{y - 2}"),
        arrow(f"M{last} {y + 26}H{buffer + width / 2}V{top + height + 2}"),
        text(buffer - 80, y + 22, "the memory is reused when the last array that", 12),
        text(buffer - 80, y + 40, "sees it is gone", 12),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(picture(), encoding="utf-8")
