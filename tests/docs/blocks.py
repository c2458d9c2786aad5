"""The blocks that stand in a page, as what they would run."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(page, language):
    """All blocks of a language in a page, which is named from the project's folder."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def commands_of(block):
    """The command lines of a console block, continued lines joined, comments and exports left out."""
    joined = block.replace("\\\n", " ")
    lines = (line[2:] for line in joined.splitlines() if line.startswith("$ "))
    return [shlex.split(line, comments=True) for line in lines if not line.startswith("export")]
