"""Every public module, class, function and method of the protocol and of the server says what it is."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "protocol/changeling_protocol",
    "aggregator/changeling_aggregator",
    "aggregator/changeling_commands",
)
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_whatever_is_public_has_a_docstring(path):
    """But for the methods of randomizers, which their interface describes."""
    tree = ast.parse(path.read_text())
    described = path.parent.name == "randomizers"
    silent = [name for name, node in public(tree, in_classes=not described) if not ast.get_docstring(node)]
    assert ast.get_docstring(tree)
    assert silent == []


def public(tree: ast.AST, in_classes: bool) -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef) and in_classes:
                yield from public(node, in_classes)
