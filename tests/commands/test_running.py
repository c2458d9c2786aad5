"""Both command lines: the version, and what is told where an extra is missing."""

import re
import subprocess
import sys

import pytest
from changeling_protocol import __version__

from tests.command_line import changeling, changeling_sim, invoked


@pytest.mark.parametrize(("main", "name"), [(changeling, "changeling"), (changeling_sim, "changeling-sim")])
def test_the_version_is_one_line_and_the_help_names_the_option(main, name):
    """Of both programs, and of the SDK's own version."""
    assert invoked(main, "--version").output == f"{name} {__version__}\n"
    assert "--version" in invoked(main, "--help").stdout


def bare(module, *lines):
    """Runs command lines of a program in a process as if no extra were installed; the code, output and errors of
    each."""
    script = f"""
import io, sys
from contextlib import redirect_stderr, redirect_stdout
sys.modules |= dict.fromkeys(["typer", "rich", "numpy"])
from {module}.__main__ import main
for words in {[line.split() for line in lines]}:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main(words)
    print([code, out.getvalue(), err.getvalue()])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return [eval(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("module", "told", "missing"),
    [
        (
            "changeling_commands",
            {"server": "serve, fold, .*segments", "central": "release, smooth", "papers": "count, ask"},
            {"survey notice x": "server", "release --help": "central"},
        ),
        (
            "changeling_simulations",
            {"simulate": "plan, run, compare, sweep, fleet, fleet-check, capacity"},
            {"run": "simulate"},
        ),
    ],
)
def test_a_bare_install_says_which_extra_brings_which_command(module, told, missing):
    """In its help, which is what somebody types first who has just installed the SDK, and no error; and where a command
    is asked for, also behind an option, or as part of a group."""
    version, helped, nothing, *wanting = bare(module, "--version", "--help", "", *missing)
    assert (version[0], version[2], helped[0], helped[2]) == (0, "", 0, "")
    assert version[1].endswith(f" {__version__}\n")
    for extra, commands in told.items():
        assert re.search(rf'"changeling\[{extra}\]".*: {commands}$', helped[1], re.MULTILINE)
    assert nothing[1] == helped[1]
    for (code, out, err), extra in zip(wanting, missing.values(), strict=True):
        assert (code, out) == (1, "")
        assert f'pip install "changeling[{extra}]", or ".[{extra}]" in a clone' in err


@pytest.mark.parametrize(
    ("command", "extra"), [("serve", "server"), ("dev", "server"), ("survey", "server"), ("release", "central")]
)
def test_the_help_of_a_command_names_its_extra(command, extra):
    """As it can be read with either of them installed."""
    assert f'Part of "changeling[{extra}]".' in invoked(changeling, command, "--help").stdout
