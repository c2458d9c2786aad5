"""The console script `changeling`: the commands of the server and of the curator, in one table."""

from functools import partial

from .running import CHANGELING, run_program

main = partial(run_program, CHANGELING)
"""Run a command, by default the process's own words; returns the exit code. Where an extra is missing, one line names
it."""

__all__ = ["main"]
