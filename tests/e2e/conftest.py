"""The wheels that tests install in environments of their own, built once."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def built(source, folder):
    """The wheel of a folder with a pyproject.toml."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """All but the SDK."""
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def sdk(tmp_path_factory):
    """The SDK alone, with the protocol."""
    return built(ROOT / "client_sdk", tmp_path_factory.mktemp("sdk"))
