"""The console script `changeling`; where an extra is missing, one line that names it."""

import sys
from functools import partial

from .running import CHANGELING, run_program

main = partial(run_program, CHANGELING)
"""Run a command, by default the process's own words; returns the exit code."""

if __name__ == "__main__":
    sys.exit(main())
