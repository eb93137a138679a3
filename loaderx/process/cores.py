"""How many cores this process may use, and so how many threads are worth starting."""

import os


def cores() -> int:
    """Those it is bound to, where the system says so, and otherwise all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
