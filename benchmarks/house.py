"""Measures of the house: its size, what an addition touches, how far data travel, what is documented and private.

Everything is read from the tree, but for the journeys, which are walked by execution, and for the seconds of the test
suites, which their last runs left in `build/`.
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from xml.etree import ElementTree

from . import journeys

ROOT = Path(__file__).parents[1]
TOYS = ("randomizer", "mechanism", "store")
"""Each is added in one file of tests, `tests/contracts/test_a_toy_NAME.py`, that registers itself."""
ROUTE = ROOT / "docs/patches/new_route.patch"
SECOND_DOORS = ("testing", "wire", "store", "ingest", "fold", "segments", "server", "relay", "cli", "fleet")
"""What other wings may import of a wing beside its `__init__`: its contracts, and the doors of rooms that have one."""


def measure() -> dict[str, float | None]:
    """All seven measures; None for a figure whose source is missing."""
    return {
        **size(),
        **touched_by_additions(),
        **{f"3_files_on_journey_{name}": len(files) for name, files in journeys.walk_all().items()},
        **undocumented(),
        **past_doors(),
        **suites(),
        **{"7_class_names_used_twice": len(repeated_classes()), "7_functions_too_complex": too_complex()},
    }


def packages() -> list[Path]:
    """The folders of the packages that are shipped: the SDK's, in a wheel of their own, and all others."""
    found = [ROOT / "protocol/changeling_protocol"]
    for project in (ROOT / "client_sdk", ROOT):
        settings = tomllib.loads((project / "pyproject.toml").read_text())
        found += [project / folder for folder in settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
    return found


def size() -> dict[str, float | None]:
    """Measure 1: source lines and files by wing, with the median and the longest; empty files do not count."""
    lines = {
        package.name: [count for path in package.rglob("*.py") if (count := _lines(path))] for package in packages()
    }
    every = [count for counts in lines.values() for count in counts]
    return {
        "1_lines": sum(every),
        "1_files": len(every),
        "1_median_lines": median(every),
        "1_longest_lines": max(every),
        **{f"1_lines_{wing}": sum(counts) for wing, counts in lines.items()},
        **{f"1_files_{wing}": len(counts) for wing, counts in lines.items()},
        "1_lines_of_benchmarks": sum(_lines(path) for path in (ROOT / "benchmarks").rglob("*.py")),
        "1_lines_of_tests": sum(_lines(path) for path in (ROOT / "tests").rglob("*.py")),
    }


def touched_by_additions() -> dict[str, float | None]:
    """Measure 2: existing files that a toy of each kind, and a new route, touch.

    A toy is one file; had another file to change for it, that file would name the toy's module or one of its classes.
    A route is added by a patch that is kept with the guide for contributors, and a test applies it.
    """
    touched: dict[str, float | None] = {f"2_toy_{name}_touches": _naming(name) for name in TOYS}
    changed = re.findall(r"^--- a/", ROUTE.read_text(), re.MULTILINE) if ROUTE.exists() else None
    return {**touched, "2_new_route_touches": None if changed is None else len(changed)}


def undocumented() -> dict[str, float | None]:
    """Measure 4: public functions without a docstring, and public names of doors whose docstrings have no example."""
    silent = _ruff("D102,D103")
    names = [(package, name) for package in packages() for name in _door(package)]
    shown = sum(">>>" in (_docstring(package, name) or "") for package, name in names)
    return {
        "4_public_functions_without_docstring": len(silent),
        "4_names_of_doors": len(names),
        "4_names_of_doors_without_example": len(names) - shown,
    }


def past_doors() -> dict[str, float | None]:
    """Measure 5: names that are imported from inside of a wing, by other wings' source and by tests."""
    wings = {package.name for package in packages()}
    counted = Counter[str]()
    for kind, path in _python_files():
        own = next((part for part in path.relative_to(ROOT).parts if part in wings), None)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                wing, dot, inner = node.module.partition(".")
                past = dot and inner not in SECOND_DOORS and not inner.startswith("testing.")
                if wing in wings and wing != own and past:
                    counted[kind] += len(node.names)
    return {f"5_names_past_doors_in_{kind}": counted[kind] for kind in ("source", "tests", "benchmarks")}


def suites() -> dict[str, float | None]:
    """Measure 6: tests and seconds of the last `make test` and `make test-heavy`, from what they wrote to `build/`."""
    figures: dict[str, float | None] = {}
    for suite in ("test", "test-heavy"):
        path = ROOT / f"build/{suite}.xml"
        ran = ElementTree.parse(path).getroot().find("testsuite") if path.exists() else None  # noqa: S314
        figures[f"6_seconds_of_make_{suite}"] = None if ran is None else float(ran.attrib["time"])
        figures[f"6_tests_of_make_{suite}"] = None if ran is None else int(ran.attrib["tests"])
    return figures


def repeated_classes() -> list[str]:
    """Measure 7: names of public classes that more than one module of the house defines."""
    defined = Counter(
        node.name
        for package in packages()
        for path in package.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, times in defined.items() if times > 1)


def too_complex() -> int:
    """Measure 7: functions above ruff's bounds on complexity, branches, statements and returns, marked or not."""
    return len(_ruff("C901,PLR0911,PLR0912,PLR0915", "--ignore-noqa"))


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def _python_files() -> Iterator[tuple[str, Path]]:
    """Every Python file of the tree, with its kind: source, tests or benchmarks."""
    for package in packages():
        yield from (("source", path) for path in package.rglob("*.py"))
    for kind in ("tests", "benchmarks"):
        yield from ((kind, path) for path in (ROOT / kind).rglob("*.py"))


def _naming(kind: str) -> int | None:
    """How many other files name the toy of this kind."""
    toy = ROOT / f"tests/contracts/test_a_toy_{kind}.py"
    if not toy.exists():
        return None
    classes = [node.name for node in ast.parse(toy.read_text()).body if isinstance(node, ast.ClassDef)]
    named = re.compile(r"\b(" + "|".join([toy.stem, *classes]) + r")\b")
    return sum(bool(named.search(path.read_text())) for _, path in _python_files() if path != toy)


def _ruff(rules: str, *options: str) -> list[str]:
    """The files of all violations of these rules, one for each."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--exit-zero", *options]
    command += ["--select", rules, "--output-format", "json", *map(str, packages())]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    return [violation["filename"] for violation in json.loads(found.stdout)]


def _door(package: Path) -> list[str]:
    """The names in `__all__` of a wing's door."""
    for node in ast.parse((package / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return []


def _docstring(package: Path, name: str) -> str | None:
    """The docstring of a class or function of this name, wherever in the wing it is defined."""
    for path in package.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                return ast.get_docstring(node)
    return None
