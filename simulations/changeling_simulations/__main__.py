"""The console script `changeling-sim`; where its extra is missing, one line that names it."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
