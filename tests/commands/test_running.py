"""Both command lines: the version, and what is told where an extra is missing."""

import re
import subprocess
import sys

import pytest
from changeling_protocol import __version__

from tests.command_line import changeling, changeling_sim, invoked

PROGRAMS = [(changeling, "changeling"), (changeling_sim, "changeling-sim")]


@pytest.mark.parametrize(("main", "name"), PROGRAMS)
def test_the_version_is_one_line_and_the_help_names_the_option(main, name):
    """Of both programs, and of the SDK's own version."""
    assert invoked(main, "--version").output == f"{name} {__version__}\n"
    assert "--version" in invoked(main, "--help").stdout


def bare(module, *words):
    """Runs a program as if no extra were installed."""
    code = (
        "import sys; sys.modules |= dict.fromkeys(['typer', 'rich', 'numpy']); "
        f"from {module}.__main__ import main; sys.exit(main({list(words)}))"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_the_help_of_a_bare_install_says_which_extra_brings_which_command():
    """It is what somebody types first who has just installed the SDK; that is no error, and needs no extra."""
    for module, told in {
        "changeling_commands": {
            "server": "serve, fold, .*segments",
            "central": "release, smooth",
            "papers": "count, ask",
        },
        "changeling_simulations": {"simulate": "plan, run, compare, sweep, fleet, fleet-check, capacity"},
    }.items():
        version, helped = bare(module, "--version"), bare(module, "--help")
        assert (version.returncode, version.stderr, helped.returncode, helped.stderr) == (0, "", 0, "")
        assert version.stdout.endswith(f" {__version__}\n")
        for extra, commands in told.items():
            assert re.search(rf'"changeling\[{extra}\]".*: {commands}$', helped.stdout, re.MULTILINE)
        assert bare(module).stdout == helped.stdout


def test_a_command_of_a_bare_install_names_its_own_extra():
    """Also behind an option, or as part of a group."""
    for module, words, extra in (
        ("changeling_commands", ["survey", "notice", "x"], "server"),
        ("changeling_commands", ["release", "--help"], "central"),
        ("changeling_simulations", ["run"], "simulate"),
    ):
        done = bare(module, *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert f'pip install "changeling[{extra}]", or ".[{extra}]" in a clone' in done.stderr


@pytest.mark.parametrize(
    ("command", "extra"), [("serve", "server"), ("dev", "server"), ("survey", "server"), ("release", "central")]
)
def test_the_help_of_a_command_names_its_extra(command, extra):
    """As it can be read with either of them installed."""
    assert f'Part of "changeling[{extra}]".' in invoked(changeling, command, "--help").stdout
