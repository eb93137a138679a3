"""Downloading a file whose checksum is known."""

import hashlib
import urllib.request
from pathlib import Path

from tqdm import tqdm

from loaderx.errors import DataError

from .records.replacing import replacing

BLOCK = 1 << 20
# No data set here has a file as large: what goes on for longer is something else, and would fill the disk.
MOST_BYTES = 1 << 30
# Without any byte from the server.
PATIENCE_SECONDS = 60


def download(url: str, path: Path, sha256: str) -> None:
    """The file at `url` as `path`, which exists only once all of it is there and has that SHA-256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    try:
        with (
            urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as response,
            replacing(path) as file,
            tqdm(
                total=int(response.headers.get("Content-Length") or 0) or None,
                desc=path.name,
                unit="B",
                unit_scale=True,
                disable=None,
            ) as bar,
        ):
            received = 0
            while block := response.read(BLOCK):
                received += len(block)
                if received > MOST_BYTES:
                    raise DataError(
                        f"{url} delivers more than {MOST_BYTES} bytes; nothing was kept."
                    )
                digest.update(block)
                file.write(block)
                bar.update(len(block))
            if digest.hexdigest() != sha256:
                raise DataError(
                    f"what {url} delivered has the SHA-256 {digest.hexdigest()} and not {sha256}; nothing of it was "
                    "kept. Try again, or download the file yourself."
                )
    except OSError as error:
        error.add_note(f"loaderx: while downloading {url} to {path}")
        raise
