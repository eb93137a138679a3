"""`loaderx demo`: train a small Flax model from an endless loader."""

import argparse
from typing import Any

from .terminal import MissingPackageError, ctrl_c_waits

# Packages of the extra `examples`, by the names they are imported under.
EXAMPLE_PACKAGES = frozenset({"flax", "optax", "sklearn"})


def add(commands: Any) -> None:
    """Add the parser of this command."""
    parser = commands.add_parser(
        "demo",
        help="train a small Flax model on scikit-learn's digits and report accuracy and speed",
        description="Train a small Flax model on scikit-learn's digits and report accuracy and speed.",
        epilog="example:\n  loaderx demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:  # noqa: ARG001 - it has no options
    """Train the model, and print the report."""
    try:
        # An interrupt during the import of JAX crashes the process.
        with ctrl_c_waits() as stop:
            from loaderx import demo
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXAMPLE_PACKAGES:
            raise
        raise MissingPackageError(f"loaderx demo needs {missing}", "examples") from error
    stop.check()
    demo.run()
    return 0
