"""`python -m midspan` is the command `midspan`."""

import sys

from midspan._cli.main import main

if __name__ == "__main__":
    sys.exit(main())
