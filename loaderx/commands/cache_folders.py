"""Cache folders of compiled code, counted and measured for `loaderx warm`."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from loaderx import kernels
from loaderx.kernels.caching import store
from loaderx.kernels.caching.files import SUFFIX


def pass_folders() -> list[Path]:
    """Return the folder of compiled passes as a list, which is empty if none can be made."""
    found = store.folder()
    return [found] if found else []


def kernel_folders() -> list[Path]:
    """Return the folders of kernels."""
    return store.kernel_folders(Path(kernels.__file__).parent)


def stored_in(folders: Sequence[Path]) -> dict[Path, int]:
    """Return the files of compiled code in folders, with their sizes."""
    sizes: dict[Path, int] = {}
    for folder in folders:
        for file in folder.glob(f"*{SUFFIX}"):
            with suppress(FileNotFoundError):  # Another process cleans up.
                sizes[file] = file.stat().st_size
    return sizes
