"""Both command lines: the version, and what is told where an extra is missing."""

import subprocess
import sys

import pytest
from changeling_commands.__main__ import main as changeling
from changeling_protocol import __version__
from changeling_simulations.__main__ import main as changeling_sim

from tests.command_line import invoked

PROGRAMS = [(changeling, "changeling"), (changeling_sim, "changeling-sim")]


@pytest.mark.parametrize(("main", "name"), PROGRAMS)
def test_the_version_is_one_line_and_the_help_names_the_option(main, name):
    """Of both programs, and of the SDK's own version."""
    assert invoked(main, "--version").output == f"{name} {__version__}\n"
    assert "--version" in invoked(main, "--help").stdout


@pytest.mark.parametrize("module", ["changeling_commands", "changeling_simulations"])
def test_a_bare_install_knows_its_version(module):
    """No extra is needed to ask for it."""
    code = (
        "import sys; sys.modules |= dict.fromkeys(['typer', 'rich', 'numpy']); "
        f"from {module}.__main__ import main; sys.exit(main(['--version']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f" {__version__}\n")


@pytest.mark.parametrize(
    ("command", "extra"), [("serve", "server"), ("dev", "server"), ("survey", "server"), ("release", "central")]
)
def test_the_help_of_a_command_names_its_extra(command, extra):
    """As it can be read with either of them installed."""
    assert f'Part of "changeling[{extra}]".' in invoked(changeling, command, "--help").stdout
