"""The program `reticent`, for `python -m reticent`."""

import sys

from reticent.console.program import main

if __name__ == "__main__":
    sys.exit(main())
