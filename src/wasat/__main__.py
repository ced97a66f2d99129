"""`python -m wasat` is the command `wasat`."""

import sys

from wasat.surfaces.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
