"""The console script `changeling`; where an extra is missing, one line that names it."""

import sys
from collections.abc import Sequence

from .running import run_program
from .table import CHANGELING


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default the process's own words; returns the exit code."""
    return run_program(CHANGELING, arguments)


if __name__ == "__main__":
    sys.exit(main())
