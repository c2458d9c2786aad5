"""The wheels, built once, and environments of their own in which tests install them."""

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PINNED = ("--constraint", ROOT / "constraints.txt")


def run(*command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


def built(source, folder):
    """The wheel of a folder with a pyproject.toml."""
    done = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source)
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


@dataclass(frozen=True)
class Environment:
    """An environment of its own that knows nothing of this tree, in a folder where it is made."""

    folder: Path

    def __post_init__(self):
        made = run(sys.executable, "-m", "venv", "--without-pip", self.folder)  # ours installs into it
        assert made.returncode == 0, made.stderr

    def run(self, command, *words):
        """Runs a script of the environment, in its folder."""
        clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_CONSTRAINT")}
        command = sys.executable if command == sys.executable else self.folder / "bin" / command
        return run(command, *words, cwd=self.folder, env=clean)

    def printed(self, command, *words):
        """What a script prints; it must succeed."""
        done = self.run(command, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def pip(self, *words):
        python = self.folder / "bin" / "python"
        return self.printed(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, *words)

    def install(self, *required):
        """Installs wheels, or what is asked for by name; nothing is compiled that is not run."""
        self.pip("install", "--no-compile", *required)

    @property
    def packages(self):
        (folder,) = self.folder.glob("lib/python*/site-packages")
        return folder

    def installed(self):
        """The versions of the distributions in it, by name."""
        named = (each.name.removesuffix(".dist-info").rsplit("-", 1) for each in self.packages.glob("*.dist-info"))
        return {name.lower().replace("_", "-"): version for name, version in named}

    def link(self, extra):
        """Adds what the wheels in it ask for, with an extra, from where the tests run: copies would take a minute."""
        asked = [(each, {extra}) for each in distributions(path=[str(self.packages)])]
        ours, found = len(asked), {"changeling-client"}
        for one, extras in asked:
            for requirement in map(Requirement, one.requires or ()):
                marker, name = requirement.marker, str(requirement)
                wanted = marker is None or any(marker.evaluate({"extra": each}) for each in ("", *extras))
                if wanted and not found & {name, requirement.name}:
                    found.add(name)
                    asked.append((distribution(requirement.name), requirement.extras))
        for one, _ in asked[ours:]:
            for top in {file.parts[0] for file in one.files} - {"..", "__pycache__"}:
                if not (self.packages / top).exists():
                    (self.packages / top).symlink_to(one.locate_file(top))

    def refusal(self, command, *words):
        """The one line that says why a command does not run."""
        done = self.run(command, *words)
        assert done.returncode == 1, done.stdout + done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr
