"""Measure 5 of the house: lines on which a type is Any."""

import tokenize
from pathlib import Path

from .tree import packages


def measure() -> dict[str, float | None]:
    """How many lines name Any, in all shipped packages and in each."""
    each = {f"5_any_{package.name}": sum(map(_lines, package.rglob("*.py"))) for package in packages()}
    return {"5_lines_with_any": sum(each.values()), **each}


def _lines(path: Path) -> int:
    """How many lines of a file name Any, comments and texts left out."""
    with path.open("rb") as file:
        return len(
            {
                token.start[0]
                for token in tokenize.tokenize(file.readline)
                if token.type == tokenize.NAME and token.string == "Any"
            }
        )
