"""The console script `changeling`, by its module's name."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
