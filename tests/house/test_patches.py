"""The patches that show how to add something apply to this tree, and what they add works."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATCHES = sorted((ROOT / "docs/patches").glob("*.patch"))
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


@pytest.mark.parametrize("patch", PATCHES, ids=lambda path: path.stem)
def test_a_patch_applies_and_the_tests_that_it_brings_pass(patch, copy):
    """Whoever changes a line that a patch shows keeps the patch up to date."""
    applied = subprocess.run(["git", "apply", str(patch)], cwd=copy, capture_output=True, text=True)
    assert applied.returncode == 0, applied.stderr
    tests = re.findall(r"^\+\+\+ b/(tests/.*/test_\w+\.py)$", patch.read_text(), re.MULTILINE)
    assert tests, "a patch brings a test"
    folders = ("protocol", "client_sdk", "aggregator", "simulations", ".")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(copy / folder) for folder in folders)}
    command = [sys.executable, "-m", "pytest", *tests, "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout


def test_a_route_and_a_store_are_shown():
    """Those whose addition the guide for contributors explains."""
    assert {patch.stem for patch in PATCHES} <= {"new_route", "new_store"}
    assert "new_route" in {patch.stem for patch in PATCHES}
