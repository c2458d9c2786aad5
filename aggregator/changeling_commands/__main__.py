"""The console script `changeling`; where an extra is missing, one line that names it."""

import sys
from collections.abc import Sequence

from .running import Program, run_program


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default the process's own words; returns the exit code."""
    return run_program("changeling", _commands, _extra_of, arguments)


def _commands() -> Program:
    from .table import app

    return app


def _extra_of(command: str) -> str:
    return "central" if command == "release" else "server"


if __name__ == "__main__":
    sys.exit(main())
