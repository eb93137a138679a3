"""Run the command `loaderx` by `python -m loaderx`."""

import sys

try:
    from loaderx.cli import main
except KeyboardInterrupt:
    # Ctrl-C during the imports.
    sys.exit(130)

sys.exit(main())
