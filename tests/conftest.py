"""Settings of all tests."""

import signal

DEFAULTS = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGTERM: signal.SIG_DFL,
}


def heed_signals():
    """Have signals work in this process and its children: by `nohup make test &` some are ignored."""
    for number, handler in DEFAULTS.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_configure():
    """Prepare for tests that send signals."""
    heed_signals()
