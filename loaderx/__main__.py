"""`python -m loaderx` is the command `loaderx`."""

import sys

from loaderx.cli import main

sys.exit(main())
