"""Number of CPU cores of this process."""

import os


def cores() -> int:
    """Return the number of cores that this process is bound to, or of all cores where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
