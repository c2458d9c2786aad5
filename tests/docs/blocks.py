"""The blocks that stand in a page, and running those that are commands of `changeling`."""

import re
import shlex
from pathlib import Path

from tests.command_line import changeling, invoked

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]


def named(page):
    return page.relative_to(ROOT).as_posix()


def section(page, heading):
    """What a page, named from the project's folder, has below a heading."""
    return (ROOT / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def blocks(page, language, heading=None):
    """All blocks of a language in a page, or in one section of it."""
    text = (ROOT / page).read_text() if heading is None else section(page, heading)
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands_of(block):
    """The command lines of a console block, continued lines joined, comments and exports left out."""
    joined = block.replace("\\\n", " ")
    lines = (line[2:] for line in joined.splitlines() if line.startswith("$ "))
    return [shlex.split(line, comments=True) for line in lines if not line.startswith("export")]


def ran(words, put_in={}):  # noqa: B006
    """What a page's command prints, with other words in place of some of its own."""
    assert words[0] == "changeling"
    done = invoked(changeling, *(put_in.get(word, word) for word in words[1:]), columns=200)
    assert done.exit_code == 0, done.stderr
    return done.stdout
