"""The console script `changeling-sim`; where its extra is missing, one line that names it."""

import sys
from collections.abc import Sequence

from changeling_commands.running import run_program

from .cli import CHANGELING_SIM


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default the process's own words; returns the exit code."""
    return run_program(CHANGELING_SIM, arguments)


if __name__ == "__main__":
    sys.exit(main())
