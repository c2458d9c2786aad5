"""The patches that show how to add something apply to this tree, and what they add works."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOWN_BY = {"new_route": "tests/aggregator/test_costs.py"}
"""The test that shows what each patch adds."""
SOURCES = ("protocol", "client_sdk", "aggregator", "simulations", "benchmarks", "demo", "tests", "pyproject.toml")


@pytest.fixture
def copy(tmp_path):
    """A copy of the sources, where nothing of this tree is imported."""
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path)
    return tmp_path


@pytest.mark.parametrize("addition", SHOWN_BY)
def test_a_patch_applies_and_what_it_adds_works(addition, copy):
    """Whoever changes a line that a patch shows keeps the patch up to date."""
    patch = ROOT / f"docs/patches/{addition}.patch"
    applied = subprocess.run(["git", "apply", str(patch)], cwd=copy, capture_output=True, text=True)
    assert applied.returncode == 0, applied.stderr
    folders = ("protocol", "client_sdk", "aggregator", "simulations", ".")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(copy / folder) for folder in folders)}
    command = [sys.executable, "-m", "pytest", SHOWN_BY[addition], "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout
