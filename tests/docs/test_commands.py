"""Every command line that stands in a page is one that the programs understand, and every make target is there."""

import re
import shlex

import pytest
from changeling_commands.running import CHANGELING
from changeling_simulations.cli import CHANGELING_SIM
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.main import get_command

from .blocks import ROOT, commands_of

PAGES = ["README.md", "CONTRIBUTING.md", *(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("**/*.md"))]
PROGRAMS = {line.name: get_command(line.typer(line.commands)) for line in (CHANGELING, CHANGELING_SIM)}
AUTHORITY = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()


def shown():
    """Each command line with its page."""
    for page in PAGES:
        text = (ROOT / page).read_text()
        for block in re.findall(r"```(?:console|sh|bash)\n(.*?)```", text, re.DOTALL):
            for words in commands_of(block):
                yield page, words
        for cell in re.findall(r"^%%bash\n(.*?)```", text, re.MULTILINE | re.DOTALL):
            yield page, shlex.split(cell.replace("\\\n", " "))


LINES = [*shown()]
OURS = [(page, words) for page, words in LINES if words and words[0] in PROGRAMS]


@pytest.mark.parametrize(
    "words", [words for _, words in OURS], ids=[f"{page}: {' '.join(words)[:60]}" for page, words in OURS]
)
def test_a_command_of_a_page_is_understood(words, tmp_path, monkeypatch):
    """Its words are the command's, none that is required is missing, and its values can be read."""
    monkeypatch.chdir(tmp_path)
    for name in ("authority.pub", "next.pub", "authority/authority.pub"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(AUTHORITY)
    command, rest = PROGRAMS[words[0]], words[1:]
    while hasattr(command, "commands"):
        command, rest = command.commands[rest[0]], rest[1:]
    for stop in ("|", ">", "&", "&&", ";"):
        rest = rest[: rest.index(stop)] if stop in rest else rest
    with command.make_context(words[0], rest):
        pass


def test_the_make_targets_of_pages_exist():
    """As `make demo`, in code marks or console lines."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for page in PAGES for target in re.findall(r"(?:`|\$ )make ([a-z-]+)", (ROOT / page).read_text())}
    assert named
    assert named <= targets
