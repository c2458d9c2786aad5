"""Measure 4 of the house: public functions that do not say what they do."""

import json
import subprocess
import sys

from .tree import ROOT, packages

RULES = ("D102", "D103")
"""Of ruff: a public method, a public function without a docstring."""


def measure() -> dict[str, float | None]:
    """How many public functions and methods of each shipped package have no docstring, and of all."""
    options = ("--isolated", "--select", ",".join(RULES), "--output-format", "json", "--exit-zero", "--no-cache")
    command = [sys.executable, "-m", "ruff", "check", *options, *map(str, packages())]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    silent = [violation["filename"] for violation in json.loads(found.stdout)]
    each = {
        f"4_no_docstring_{package.name}": sum(f"/{package.name}/" in name for name in silent) for package in packages()
    }
    return {"4_public_functions_without_docstring": len(silent), **each}
