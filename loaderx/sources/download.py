"""Download of a file whose checksum is known."""

import hashlib
import urllib.request
from pathlib import Path

from tqdm import tqdm

from loaderx.errors import DataError

from .records.replacing import replacing

BLOCK = 1 << 20
# No data set here has a file as large. A longer download is something else and would fill the disk.
MAX_BYTES = 1 << 30
# Socket timeout: the longest time without a byte from the server.
TIMEOUT_SECONDS = 60


def download(url: str, path: Path, sha256: str) -> None:
    """Download `url` to `path`, which exists only after all bytes arrived and their SHA-256 is right."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    try:
        with (
            urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response,
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
                if received > MAX_BYTES:
                    raise DataError(
                        f"{url} delivers more than {MAX_BYTES} bytes; nothing was kept."
                    )
                digest.update(block)
                file.write(block)
                bar.update(len(block))
            if digest.hexdigest() != sha256:
                raise DataError(
                    f"the download from {url} has the SHA-256 {digest.hexdigest()}, expected {sha256}; nothing of it "
                    "was kept. Try again, or download the file yourself."
                )
    except OSError as error:
        error.add_note(f"loaderx: while downloading {url} to {path}")
        raise
