"""Waiting with a deadline: a test that fails ends, too."""

import threading
import time

# Seconds, of which a test that passes needs one or two: on a machine busy with other work, ten times as many. Less than
# the timeout of a test in pyproject.toml.
PATIENCE = 240


def started(function, *arguments):
    """Start a thread that does not keep the process alive."""
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def join(*threads, seconds=PATIENCE):
    """Wait until threads have ended."""
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
    alive = [thread.name for thread in threads if thread.is_alive()]
    assert not alive, f"still alive after {seconds} s: {alive}"


def wait_until(condition, seconds=PATIENCE):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.005)


def wait_for(event, seconds=PATIENCE):
    """Wait until an event is set."""
    assert event.wait(seconds), f"not set after {seconds} s"
