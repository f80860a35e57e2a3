"""`python -m api.cli`: the same as `governance`."""

import sys

from api.cli import main

if __name__ == "__main__":
    sys.exit(main())
