"""`python -m sardonyx`: the same as the command `sardonyx`."""

import sys

from sardonyx.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
