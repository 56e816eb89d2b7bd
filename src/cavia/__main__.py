"""`python -m cavia`: the command line."""

import sys

from cavia.cli import main

if __name__ == "__main__":
    sys.exit(main())
