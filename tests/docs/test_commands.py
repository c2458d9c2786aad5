"""Every command line that stands in a page or in a help is one that the programs understand.

The help of every command ends with an example, and begins as the command is listed.
"""

import re
import shlex

import pytest
from changeling_commands import CHANGELING
from changeling_simulations.cli import CHANGELING_SIM
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.main import get_command

from tests.command_line import changeling, changeling_sim, invoked

from .blocks import PAGES, commands_of, named

MAINS = {changeling: CHANGELING, changeling_sim: CHANGELING_SIM}
PROGRAMS = {line.name: get_command(line.typer(line.commands)) for line in MAINS.values()}
AUTHORITY = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()


def shown():
    """Each command line with its page, or the help that it is the example of."""
    for line in MAINS.values():
        yield from (("help", [line.name, *name.split(), *shlex.split(said)]) for name, said in line.examples.items())
    for page in PAGES:
        text = page.read_text()
        for block in re.findall(r"```(?:console|sh|bash)\n(.*?)```", text, re.DOTALL):
            for words in commands_of(block):
                yield named(page), words
        for cell in re.findall(r"^%%bash\n(.*?)```", text, re.MULTILINE | re.DOTALL):
            yield named(page), shlex.split(cell.replace("\\\n", " "))


OURS = [
    pytest.param(words, id=f"{page}: {' '.join(words)[:60]}")
    for page, words in shown()
    if words and words[0] in PROGRAMS
]


@pytest.mark.parametrize("words", OURS)
def test_a_command_of_a_page_is_understood(words, tmp_path, monkeypatch):
    """Its words are the command's, none that is required is missing, and its values can be read."""
    monkeypatch.chdir(tmp_path)
    for name in ("authority.pub", "next.pub", "authority/authority.pub", "store-key"):  # each 64 digits
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(AUTHORITY)
    command, rest = PROGRAMS[words[0]], words[1:]
    while hasattr(command, "commands"):
        command, rest = command.commands[rest[0]], rest[1:]
    for stop in ("|", ">", "&", "&&", ";"):
        rest = rest[: rest.index(stop)] if stop in rest else rest
    with command.make_context(words[0], rest):
        pass


@pytest.mark.parametrize("main", MAINS, ids=[line.name for line in MAINS.values()])
def test_the_help_of_every_command_ends_with_its_example_and_begins_as_it_is_listed(main):
    """The list has the first paragraph in words of its own, as it imports no command."""
    line = MAINS[main]
    for name, words in line.examples.items():
        shown = invoked(main, *name.split(), "--help")
        assert shown.exit_code == 0
        assert f"Example: {line.name} {name} {words}" in " ".join(shown.stdout.split())
    whole = PROGRAMS[line.name].commands
    assert {name: command.help.partition("\n\n")[0].replace("\n", " ") for name, command in whole.items()} == {
        name: listed.line for name, listed in line.commands.items()
    }
