"""Measure 6 of the house: how many wheels each extra installs."""

import tomllib
from importlib.metadata import requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .tree import ROOT

EXTRAS = ("server", "simulate", "central")


def measure() -> dict[str, float | None]:
    """The number of distributions, changeling itself included, that a bare install brings, and one with each extra.

    Worked out from what is installed here, for this machine and this Python; nothing is fetched.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bare = project["dependencies"]
    figures: dict[str, float | None] = {"6_wheels_bare": 1 + len(_closure(bare))}
    for extra in EXTRAS:
        wanted = [*bare, *project["optional-dependencies"][extra]]
        figures[f"6_wheels_{extra}"] = 1 + len(_closure(wanted))
    return figures


def _closure(requirements: list[str]) -> set[str]:
    """The names of all distributions that these requirements bring, directly or through others."""
    brought: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(Requirement(text), frozenset({""})) for text in requirements]
    while waiting:
        requirement, extras = waiting.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        name, asked = canonicalize_name(requirement.name), frozenset({"", *requirement.extras})
        if (name, asked) not in seen:
            seen.add((name, asked))
            brought.add(name)
            waiting += [(Requirement(text), asked) for text in requires(name) or []]
    return brought
