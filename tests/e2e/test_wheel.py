"""The wheel, in environments of its own."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_BYTES, MOST_OF_THE_SDK = 500_000, 100_000


def run(*command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, cwd=ROOT)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def empty_environment(wheel, tmp_path_factory):
    """A new environment with the bare wheel in it, at our pinned versions."""
    folder = tmp_path_factory.mktemp("environment")
    assert run(sys.executable, "-m", "venv", folder).returncode == 0
    install(folder, wheel)
    return folder / "bin"


def install(folder, requirement):
    pip = [folder / "bin" / "pip", "install", "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt"]
    installed = run(*pip, requirement)
    assert installed.returncode == 0, installed.stdout + installed.stderr


def test_the_wheel_is_small_and_holds_our_packages_only(wheel):
    """At most 500 kB, of which what an app imports at most 100 kB; all inner names prefixed, nothing of the tests."""
    assert wheel.stat().st_size <= MOST_BYTES
    files = zipfile.ZipFile(wheel).infolist()
    sdk = [file for file in files if file.filename.startswith(("changeling_client/", "changeling_protocol/"))]
    assert 0 < sum(file.compress_size for file in sdk) <= MOST_OF_THE_SDK
    tops = {file.filename.split("/")[0] for file in files}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "changeling_protocol",
        "changeling_client",
        "changeling_statistics",
        "changeling_central",
        "changeling_aggregator",
        "changeling_commands",
        "changeling_simulations",
    }


@pytest.mark.timeout(600)
def test_a_bare_install_is_the_sdk_alone_and_the_extras_bring_the_command_lines(wheel, empty_environment):
    """Bare: the client imports, numpy is not there, and each command names its extra. With the extras both run."""
    python = empty_environment / "python"
    assert run(python, "-c", "from changeling_client import Client").returncode == 0
    assert run(python, "-c", "import numpy").returncode == 1
    for command, extra in (("changeling", "changeling[server]"), ("changeling-sim", "changeling[simulate]")):
        refused = run(empty_environment / command, "--help")
        assert refused.returncode == 1
        assert extra in refused.stderr
        assert "Traceback" not in refused.stderr

    install(empty_environment.parent, f"changeling[server,simulate] @ {wheel.as_uri()}")
    assert "serve" in run(empty_environment / "changeling", "--help", check=True).stdout
    simulated = run(empty_environment / "changeling-sim", "run", "school-to-work", "--entries", 10**6, check=True)
    assert "employment" in simulated.stdout
