"""Every central mechanism keeps the contract."""

import ast
import inspect
from pathlib import Path

import changeling_central
from changeling_central import Mechanism, all_offers
from changeling_central.testing import MechanismContract

from .mechanisms import EXAMPLES

PACKAGE = Path(changeling_central.__file__).parent


class TestMechanisms(MechanismContract):
    """All that come with the package, and all that `changeling release` offers."""

    examples = EXAMPLES


def kinds(base):
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_every_mechanism_of_the_package_is_tried():
    """With an example of its own, each offer of `changeling release` included."""
    ours = {
        kind.__qualname__
        for kind in kinds(Mechanism)
        if kind.__module__.startswith(("changeling_central", "changeling_papers")) and not inspect.isabstract(kind)
    }
    assert ours == {type(example.mechanism).__qualname__ for example in EXAMPLES}
    offered = {offer.name for offer in all_offers() if offer.make.__module__.startswith("changeling")}
    assert {f"release, {name}" for name in offered} <= {example.name for example in EXAMPLES}


def test_nothing_in_the_package_is_of_any_type():
    """`Any` says that nobody looked: no line of the package's code names it."""
    found = [
        f"{path.name}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Name) and node.id == "Any") or (isinstance(node, ast.alias) and node.name == "Any")
    ]
    assert found == []
