"""`python -m loaderx` is the command `loaderx`."""

import sys

try:
    from loaderx.cli import main
except KeyboardInterrupt:
    # Ctrl-C before there is anything to stop.
    sys.exit(130)

sys.exit(main())
