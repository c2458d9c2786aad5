"""Nobody but a randomizer's own room asks of which kind it is, so a new kind touches no existing file."""

import ast
from pathlib import Path

import pytest
from changeling_protocol import registered

ROOT = Path(__file__).parents[2]
KINDS = {kind.__name__ for kind in registered().values() if kind.__module__.startswith("changeling_")}
FILES = [
    file
    for folder in ("protocol", "client_sdk", "aggregator", "simulations", "benchmarks")
    for file in sorted((ROOT / folder).rglob("*.py"))
]


def named(node) -> set[str]:
    """Every name in a piece of code, a module's prefix left off."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def kinds_asked_for(source: str) -> list[str]:
    """Where code tells kinds of randomizers apart: isinstance and issubclass, class patterns, type(...) compared,
    and singledispatch, which does it out of sight."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name("isinstance" | "issubclass"), args=[_, asked]) if named(asked) & KINDS:
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
            case ast.MatchClass(cls=asked) if named(asked) & KINDS:
                found.append(f"line {node.lineno}: case {ast.unparse(node)}")
            case ast.Compare() if "type" in named(node) and named(node) & KINDS:
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
            case ast.Name("singledispatch") | ast.Attribute(attr="singledispatch"):
                found.append(f"line {node.lineno}: singledispatch")
    return found


def test_no_file_tells_kinds_of_randomizers_apart():
    """They ask its class in the protocol, or its counterpart."""
    asking = {file.relative_to(ROOT).as_posix(): kinds_asked_for(file.read_text()) for file in FILES}
    assert {file: found for file, found in asking.items() if found} == {}


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(r, KaryResponse)",
        "issubclass(type(r), (int, protocol.SignedSubset))",
        "isinstance(r, KaryResponse | UnaryEncoding)",
        "type(r) is CustomResponse",
        "match r:\n    case SubsetSelection():\n        pass",
        "@singledispatch\ndef tally(r): ...",
    ],
)
def test_the_forms_that_are_looked_for_are_found(source):
    """Each way there is."""
    assert len(kinds_asked_for(source)) == 1
