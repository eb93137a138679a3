"""The command line: `loaderx demo` and `loaderx --version`."""

import argparse
import sys
from collections.abc import Sequence

from loaderx import __version__

# The packages of the extra `examples`, by the names they are imported under.
EXAMPLE_PACKAGES = frozenset({"flax", "optax", "sklearn"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status of the process."""
    parser = argparse.ArgumentParser(
        prog="loaderx",
        description="A data loader for JAX in which the per-sample work is compiled.",
    )
    parser.add_argument("--version", action="version", version=f"loaderx {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    commands.add_parser(
        "demo",
        help="train a small Flax model on scikit-learn's digits and report accuracy and speed",
    )
    parser.parse_args(arguments)
    return _demo()


def _demo() -> int:
    try:
        from loaderx import demo
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXAMPLE_PACKAGES:
            raise
        print(
            f'loaderx demo needs {missing}, which is not installed: pip install "loaderx[examples]"',
            file=sys.stderr,
        )
        return 1
    demo.run()
    return 0
