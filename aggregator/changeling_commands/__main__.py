"""The console script `changeling`; where an extra is missing, one line that names it."""

import sys
from collections.abc import Sequence

from .running import Program, run_program

_SHOWN = ("histogram", "series", "change", "status", "verify")
_KEPT = ("backup", "restore", "doctor")
_MADE = ("authority", "survey", "keys", "token", "clock", "store", "segments")
_OF_SERVER = (*_MADE, "serve", "fold", "relay", *_SHOWN, *_KEPT, "dev")
EXTRAS = {
    **dict.fromkeys(_OF_SERVER, "server"),
    **dict.fromkeys(("release", "smooth"), "central"),
    **dict.fromkeys(("count", "ask"), "papers"),
}
"""The extra that each command needs, told where none is installed and the table of commands cannot be made."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default the process's own words; returns the exit code."""
    return run_program("changeling", _commands, EXTRAS, arguments)


def _commands() -> Program:
    from .table import app

    return app


if __name__ == "__main__":
    sys.exit(main())
