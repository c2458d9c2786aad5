"""Measure 2 of the house: how many existing files an addition touches.

A randomizer and a mechanism are added by a toy, in one file of the tests, that registers itself. Had another file to
change for it, that file would name the toy: its module, or a class that it defines. A route is added by a patch that
is kept with the guide for contributors; a test applies it.
"""

import ast
import re
from pathlib import Path

from .tree import ROOT

TOYS = {
    "randomizer": ROOT / "tests/contracts/test_a_toy_randomizer.py",
    "mechanism": ROOT / "tests/contracts/test_a_toy_mechanism.py",
}
PATCHES = {"route": ROOT / "docs/patches/new_route.patch"}
SOURCES = ("protocol", "client_sdk", "aggregator", "simulations", "benchmarks", "demo", "tests")


def measure() -> dict[str, float | None]:
    """The number of existing files touched by each addition; none where its toy or its patch is missing."""
    toys = {f"2_toy_{name}_touches": _naming(path) for name, path in TOYS.items()}
    patches = {f"2_new_{name}_touches": _patched(path) for name, path in PATCHES.items()}
    return {**toys, **patches}


def _naming(toy: Path) -> int | None:
    """How many other source files name the toy."""
    if not toy.exists():
        return None
    classes = [node.name for node in ast.parse(toy.read_text()).body if isinstance(node, ast.ClassDef)]
    named = re.compile(r"\b(" + "|".join([toy.stem, *classes]) + r")\b")
    others = (path for folder in SOURCES for path in (ROOT / folder).rglob("*.py"))
    return sum(bool(named.search(path.read_text())) for path in others if path not in (toy, Path(__file__)))


def _patched(patch: Path) -> int | None:
    """How many files a patch changes that were there before."""
    if not patch.exists():
        return None
    return len(re.findall(r"^--- a/", patch.read_text(), re.MULTILINE))
