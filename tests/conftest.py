"""Settings of all tests."""

import signal


def pytest_configure():
    """Have Ctrl-C work in tests that press it: a process in the background, as by `make test &`, ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
