"""The help of every command ends with an example, which the command would understand, and begins as it is listed."""

import shlex

import pytest
from changeling_commands.running import CHANGELING
from changeling_simulations.cli import CHANGELING_SIM
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.main import get_command

from tests.command_line import changeling as run_changeling
from tests.command_line import changeling_sim as run_simulations
from tests.command_line import invoked

PROGRAMS = {
    "changeling": (run_changeling, CHANGELING),
    "changeling-sim": (run_simulations, CHANGELING_SIM),
}
AUTHORITY = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
EXAMPLES = [(program, name) for program, (_, line) in PROGRAMS.items() for name in line.examples]


@pytest.mark.parametrize(("program", "name"), EXAMPLES, ids=map(" ".join, EXAMPLES))
def test_the_example_of_a_command_is_shown_and_understood(program, name, tmp_path, monkeypatch):
    """Its words are those that the command has, none that is required is missing, and its values can be read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "authority.pub").write_text(AUTHORITY)  # which one of the commands reads at once
    main, line = PROGRAMS[program]
    examples = line.examples
    command = get_command(line.typer([name.split()[0]]))
    for word in name.split():
        command = command.commands[word]
    with command.make_context(f"{program} {name}", shlex.split(examples[name])):
        pass
    shown = invoked(main, *name.split(), "--help")
    assert shown.exit_code == 0
    assert f"Example: {program} {name} {examples[name]}" in " ".join(shown.stdout.split())


@pytest.mark.parametrize("line", [CHANGELING, CHANGELING_SIM], ids=lambda line: line.name)
def test_a_command_is_listed_by_the_first_paragraph_of_its_help(line):
    """The list has it in words of its own, as it imports no command."""
    whole = get_command(line.typer(line.commands)).commands
    assert {name: command.help.partition("\n\n")[0].replace("\n", " ") for name, command in whole.items()} == {
        name: listed.line for name, listed in line.commands.items()
    }
