"""The console script `changeling-sim`; where its extra is missing, one line that names it."""

import sys
from collections.abc import Sequence

from changeling_commands.running import Program, run_program

EXTRAS = dict.fromkeys(("plan", "run", "compare", "sweep", "fleet", "fleet-check", "capacity"), "simulate")
"""The extra that each command needs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default the process's own words; returns the exit code."""
    return run_program("changeling-sim", _commands, EXTRAS, arguments)


def _commands() -> Program:
    from .cli import app

    return app


if __name__ == "__main__":
    sys.exit(main())
