"""The console script `changeling`: the commands of the server and of the curator, in one table.

For other programs' commands: a program of commands that are imported when they are asked for, and the options of a
wish, which is planned, and said what it will show, in the same words. Names that need a terminal's libraries are
imported where they are first used, so that in a bare install the script can say what is missing.
"""

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from .running import CHANGELING, CommandLine, ListedCommand, run_program

if TYPE_CHECKING:
    from .questionnaires import planned_questions, refuse_hopeless_questions
    from .settling import best_rung, planning_bar, settled
    from .survey_code import survey_module
    from .wishes import (
        WishOptions,
        ask_to_overwrite,
        read_count,
        read_date,
        read_duration,
        read_epsilon,
        read_length,
        read_url,
        taking,
    )

__all__ = [
    "CHANGELING",
    "CommandLine",
    "ListedCommand",
    "WishOptions",
    "ask_to_overwrite",
    "best_rung",
    "main",
    "planned_questions",
    "planning_bar",
    "read_count",
    "read_date",
    "read_duration",
    "read_epsilon",
    "read_length",
    "read_url",
    "refuse_hopeless_questions",
    "run_program",
    "settled",
    "survey_module",
    "taking",
]

main = partial(run_program, CHANGELING)
"""Run a command, by default the process's own words; returns the exit code. Where an extra is missing, one line names
it."""


def __getattr__(name: str) -> object:
    homes = ("wishes", "settling", "questionnaires", "survey_code") if name in __all__ else ()
    for module in (import_module(f".{home}", __name__) for home in homes):
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
