"""The tree that is measured: the packages that are shipped, and their source files."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def packages() -> list[Path]:
    """The folders of the packages that the wheel holds."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [ROOT / folder for folder in settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]


def shipped() -> list[Path]:
    """Every source file that the wheel holds."""
    return sorted(path for package in packages() for path in package.rglob("*.py"))
