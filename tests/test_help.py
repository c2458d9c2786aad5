"""The help of every command ends with an example, which the command would understand."""

import shlex

import pytest
from changeling_commands.table import EXAMPLES as OF_CHANGELING
from changeling_commands.table import app as changeling
from changeling_simulations.cli import EXAMPLES as OF_SIMULATIONS
from changeling_simulations.cli import app as simulations
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.main import get_command

from tests.command_line import changeling as run_changeling
from tests.command_line import changeling_sim as run_simulations
from tests.command_line import invoked

PROGRAMS = {
    "changeling": (run_changeling, changeling, OF_CHANGELING),
    "changeling-sim": (run_simulations, simulations, OF_SIMULATIONS),
}
AUTHORITY = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
EXAMPLES = [(program, name) for program, (_, _, examples) in PROGRAMS.items() for name in examples]


@pytest.mark.parametrize(("program", "name"), EXAMPLES, ids=map(" ".join, EXAMPLES))
def test_the_example_of_a_command_is_shown_and_understood(program, name, tmp_path, monkeypatch):
    """Its words are those that the command has, none that is required is missing, and its values can be read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "authority.pub").write_text(AUTHORITY)  # which one of the commands reads at once
    main, app, examples = PROGRAMS[program]
    command = get_command(app)
    for word in name.split():
        command = command.commands[word]
    with command.make_context(f"{program} {name}", shlex.split(examples[name])):
        pass
    shown = invoked(main, *name.split(), "--help")
    assert shown.exit_code == 0
    assert f"Example: {program} {name} {examples[name]}" in " ".join(shown.stdout.split())
