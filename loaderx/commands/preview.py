"""`loaderx preview`: draw samples as a user's own loader delivers them, next to their original rows."""

import argparse
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .loaders import TARGET_HELP, with_loader
from .terminal import DONE, UsageError, count_from, required, write_line

if TYPE_CHECKING:
    from loaderx.loader import DataLoader

EPILOG = """\
Images are uint8 or floats of (height, width), or with 1 or 3 channels last or first. Floats outside 0 to 1, as from
Normalize, are stretched so that the smallest value on the sheet is black and the largest white. Fields of Views are
side by side. A field that ends in `boxes` is drawn on the images that it follows.

examples:
  loaderx preview train.py:loader -o sheet.png
  loaderx preview project.data:make_loader -o sheet.png --count 32 --step 1000 --field image
"""


def add(commands: Any) -> None:
    """Add the parser of this command."""
    parser = commands.add_parser(
        "preview",
        help="draw a sheet of augmented samples of your own loader, with originals and labels",
        description="Draw a sheet of augmented samples of a DataLoader of yours, each next to its original.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="module:loader", help=TARGET_HELP)
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="the picture to write, such as sheet.png",
    )
    parser.add_argument(
        "--count",
        type=count_from(1),
        default=16,
        metavar="N",
        help="how many samples to draw (default: 16)",
    )
    parser.add_argument(
        "--step",
        type=count_from(0),
        default=0,
        metavar="N",
        help="the batch to begin with (default: 0)",
    )
    parser.add_argument(
        "--field",
        metavar="NAME",
        help="the field to draw (default: image, or else the first that holds images)",
    )
    parser.set_defaults(run=lambda options: with_loader(options, run))


def run(loader: "DataLoader", options: argparse.Namespace) -> int:
    """Draw the sheet, and write the file."""
    image = required("PIL.Image", "images", "drawing a sheet")
    output = Path(options.output)
    image.init()
    if output.suffix.lower() not in image.EXTENSION:
        raise UsageError(f"{output} must have the ending of a picture, such as .png.")
    if not output.parent.is_dir():
        raise UsageError(f"there is no folder {output.parent} to write {output.name} into.")
    if output.is_dir():
        raise UsageError(f"{output} is a folder.")

    from loaderx.sources.records.replacing import replacing

    from .sheet import draw, samples_of

    samples = samples_of(loader, options.step, options.count, options.field)
    sheet = draw(samples)
    content = io.BytesIO()
    try:
        sheet.save(content, image.EXTENSION[output.suffix.lower()])
    except (KeyError, ValueError) as error:
        raise UsageError(f"{output}: Pillow does not write such files ({error}).") from error
    # Atomic, so that an interrupt keeps the old file.
    with replacing(output) as file:
        file.write(content.getvalue())
    views = ", ".join(f"{view.name} {view.spec}" for view in samples.views)
    write_line(
        f"{output}: {sheet.width} x {sheet.height} pixels, {len(samples.rows)} samples from step "
        f"{options.step} on: {views}{f', next to {samples.original.spec}' if samples.original else ''}"
    )
    return DONE
