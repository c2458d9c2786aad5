"""Every command line that stands in a page or in a help is one that the programs understand.

The help of every command begins as the command is listed, and ends with an example, which runs where it needs no
server.
"""

import io
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


FILES = {
    "people.csv": "entry,time,answer\n1,2026-01-05,yes\n2,2026-02-05,no\n1,2026-03-05,no\n",
    "members.csv": "name,member\na,yes\nb,no\n",
    "experiment.toml": "surveys=2\nanswers=2\nperiods=4\nat_most=1\nchanges=1\nentries=1000\nepsilon=[4, 8]\n",
    "store.key": "07" * 32,
}
IN_ORDER = (
    *("authority new", "survey new", "survey sign", "survey show", "survey code", "survey extend", "survey notice"),
    *("keys new", "keys sign", "keys list", "keys reencrypt", "token new", "token list", "token revoke"),
    *("store version", "store upgrade", "segments list", "segments compact", "backup", "restore", "doctor"),
    *("release", "smooth", "count", "ask", "plan", "sweep", "capacity"),
)
"""The examples that run here, each on what those before it wrote."""
OF_A_SERVER = {"serve", "fold", "relay", "dev"}
LONG = {"run", "compare"}


def test_the_example_in_the_help_of_a_command_runs(tmp_path, monkeypatch):
    """As it is pasted, on files of the names that it has. Left out: what serves, or asks a server; and `run` and
    `compare` of changeling-sim, which take ten seconds and four.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("5\n"))
    examples = {name: (main, words) for main, line in MAINS.items() for name, words in line.examples.items()}
    asking = {name for name, (_, words) in examples.items() if "--server " in words}
    assert set(IN_ORDER) == examples.keys() - asking - OF_A_SERVER - LONG
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for name in IN_ORDER:
        main, words = examples[name]
        _before(name, tmp_path)
        if name == "token revoke":
            listed = invoked(changeling, "token", "list", "--store", "server.db").stdout
            words = words.replace("3f1c9a2b", listed.split("│")[1].strip())
        done = invoked(main, *name.split(), *shlex.split(words))
        assert done.exit_code == 0, f"{name}: {done.output}"


def _before(name, folder):
    """Puts what the example of a command is about where it looks for it."""
    if name == "survey new":
        for key in (folder / "authority").iterdir():
            key.rename(folder / key.name)
    elif name == "restore":
        (folder / "server.db").rename(folder / "old.db")
    elif name == "capacity":
        (folder / "tea.signed").rename(folder / "survey.signed")
