"""What all workers have in common: one JSON line on stdout per JSON line on stdin, until stdin ends.

{"do": "open", "chain": "cifar", ...} calls `session.open(chain="cifar", ...)`, which gives the answer. A request that
fails ends the process, with the reason on stderr.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any


def serve(session: object) -> None:
    """Answer requests until stdin ends."""
    # Whatever a library prints must not end up between two answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        action: Callable[..., dict[str, Any]] = getattr(session, request.pop("do"))
        answers.write(json.dumps(action(**request)) + "\n")


def timed(sizes: Iterator[int], batches: int, ready: int) -> dict[str, float]:
    """Time `batches` batches of an endless loader that is asked for them by `next(sizes)`.

    It may keep as many as `ready` in stock, made before the clock started, and these do not count.
    """
    for _ in islice(sizes, ready):
        pass
    started = time.perf_counter()
    images = sum(islice(sizes, batches))
    return {"images": images, "seconds": time.perf_counter() - started}
