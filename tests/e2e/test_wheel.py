"""The two wheels, the SDK's and the other, in environments of their own."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from changeling_aggregator.testing.serving import free_port
from changeling_central import read_rows
from changeling_protocol import __version__

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]
MOST_BYTES, MOST_OF_THE_SDK, MOST_LOADED = 900_000, 200_000, 155_000
LIFE = Path(__file__).with_name("sdk_life.py")
ON_REQUEST = {"testing", "async_client", "explanation", "reports", "postgresql", "handover", "editions"}
"""Modules of the SDK that an app loads only if it asks for what they do, or a reader of results does."""
OF_A_SERVER = {"starlette", "uvicorn", "uvloop", "httptools", "sqlalchemy"}
OF_A_CURATOR = {"opendp", "dp-accounting", "matplotlib"}


def run(*command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def environment(wheel, sdk, tmp_path_factory):
    """A new environment with the SDK's wheel in it. The tests below add the other, and one extra after the other, in
    their order."""
    folder = tmp_path_factory.mktemp("environment")
    assert run(sys.executable, "-m", "venv", folder).returncode == 0
    environment = Environment(folder, wheel)
    environment.install(sdk)
    return environment


@dataclass(frozen=True)
class Environment:
    """An environment of its own, at our pinned versions, that knows nothing of this tree."""

    folder: Path
    wheel: Path

    def run(self, command, *words):
        """Runs a script of the environment."""
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return run(self.folder / "bin" / command, *words, cwd=self.folder, env=clean)

    def printed(self, command, *words):
        """What a script prints; it must succeed."""
        done = self.run(command, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def install(self, required):
        """Installs a wheel, or what is asked for by name."""
        self.printed(
            "pip", "install", "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt", required
        )

    def with_extra(self, extra):
        """The environment with an extra added, "" for the bare wheel."""
        self.install(f"changeling[{extra}] @ {self.wheel.as_uri()}" if extra else self.wheel)
        return self

    def without(self, *distributions):
        """The environment with some distributions taken away."""
        self.printed("pip", "uninstall", "--yes", *distributions)
        return self

    def installed(self):
        """The names of the distributions in it."""
        listed = self.printed("pip", "list", "--format=json", "--disable-pip-version-check")
        return {each["name"].lower() for each in json.loads(listed)}

    def refusal(self, command, *words):
        """The one line that says why a command does not run."""
        done = self.run(command, *words)
        assert done.returncode == 1, done.stdout + done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr


def packages(wheel):
    """The packages that a wheel holds, and the bytes that each file takes in it."""
    taken = {file.filename: file.compress_size for file in zipfile.ZipFile(wheel).infolist()}
    return {name.split("/")[0] for name in taken if ".dist-info/" not in name}, taken


def test_the_sdk_is_small_and_alone(sdk):
    """At most 200 kB, of which what every app loads at most 155 kB: the protocol and the client."""
    assert sdk.stat().st_size <= MOST_OF_THE_SDK
    tops, taken = packages(sdk)
    assert tops == {"changeling_protocol", "changeling_client", "changeling_pytest"}
    modules = {
        name: size for name, size in taken.items() if name.startswith(("changeling_protocol", "changeling_client/"))
    }
    loaded = [size for name, size in modules.items() if name.split("/")[1].removesuffix(".py") not in ON_REQUEST]
    assert 0 < sum(loaded) <= MOST_LOADED


def test_the_wheel_is_small_and_holds_our_packages_only(wheel):
    """At most 900 kB; all inner names prefixed, nothing of the tests, and no file that the SDK's wheel has."""
    assert wheel.stat().st_size <= MOST_BYTES
    tops, _ = packages(wheel)
    assert tops == {
        "changeling_statistics",
        "changeling_central",
        "changeling_papers",
        "changeling_aggregator",
        "changeling_spark",
        "changeling_commands",
        "changeling_reader",
        "changeling_simulations",
    }


def test_the_version_is_that_of_the_wheels(wheel, sdk):
    """One number, in the protocol; hatch reads it there for both, and the one asks for just this one of the other."""
    assert wheel.name.startswith(f"changeling-{__version__}-")
    assert sdk.name.startswith(f"changeling_client-{__version__}-")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["dependencies"] == [f"changeling-client=={__version__}"]


@pytest.mark.timeout(600)
def test_the_sdk_alone_records_and_reports_to_a_real_server(environment, tmp_path):
    """Nothing of numbers, servers and command lines is there; what it records is counted by `changeling dev`."""
    assert not environment.installed() & {"changeling", "numpy", "typer", "rich", "psycopg", *OF_A_SERVER}
    folder, port = tmp_path / "dev", free_port()
    words = ("dev", "--answers", "tea,coffee", "--store", folder, "--port", port)
    command = [str(Path(sys.executable).parent / "changeling"), *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            until_it_stands = next(line for line in server.stdout if "Stop with" in line)
            assert until_it_stands
            assert environment.printed("python", "-W", "error", LIFE, port, folder) == "counted joined True 0\n"
        finally:
            server.terminate()


@pytest.mark.timeout(600)
def test_a_bare_install_is_the_sdk_and_no_numbers(environment):
    """The client imports, numpy is not there; each command line knows its version and names its extra."""
    environment.with_extra("")
    assert not environment.installed() & {"numpy", "typer", "rich"}
    assert environment.printed("python", "-c", "from changeling_client import Client, __version__; print(__version__)")
    for command, words, extra in (
        ("changeling", ("serve", "--help"), "server"),
        ("changeling", ("release", "--help"), "central"),
        ("changeling-sim", ("run", "--help"), "simulate"),
    ):
        assert environment.printed(command, "--version") == f"{command} {__version__}\n"
        assert f'pip install "changeling[{extra}]"' in environment.refusal(command, *words)


@pytest.mark.timeout(600)
def test_an_apps_pytest_finds_the_fixtures_by_itself(environment):
    """The tests that docs/app.md shows pass with no more than pytest added, every warning being an error."""
    environment.printed(
        "pip", "install", "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt", "pytest"
    )
    shown = re.findall(
        r"```python\n(from changeling_client.testing.*?)```", (ROOT / "docs/app.md").read_text(), re.DOTALL
    )
    files = [f"test_app_{number}.py" for number in range(len(shown))]
    for name, text in zip(files, shown, strict=True):
        (environment.folder / name).write_text(text)
    printed = environment.printed("python", "-m", "pytest", "-W", "error", "--strict-markers", *files)
    assert f"{len(files)} passed" in printed


@pytest.mark.timeout(600)
def test_the_extra_simulate_brings_no_server_and_no_curator(environment):
    """The bundled changelog is simulated by name."""
    environment.with_extra("simulate")
    assert not environment.installed() & {*OF_A_SERVER, "opendp", "msgspec", "filelock"}
    assert "employment" in environment.printed("changeling-sim", "run", "school-to-work", "--entries", 10**4)


@pytest.mark.timeout(600)
def test_the_extra_central_brings_no_server(environment):
    """A release runs, with its picture; the help of `serve` names its extra, and so does the attempt to run it."""
    environment.with_extra("central")
    assert not environment.installed() & OF_A_SERVER
    (environment.folder / "log.csv").write_text("entry,time,answer\nada,1,tea\nbob,2,tea\nada,4,\n")
    every = ("--every", "1s", "--start", "0", "--until", "4")
    words = ("log.csv", "--query", "any answer", *every, "--epsilon", "1", "--at-most", "2", "-o", "out.csv")
    environment.printed("changeling", "release", *words, "--plot", "out.png")
    assert len(read_rows(environment.folder / "out.csv")) == 4
    assert "changeling[server]" in environment.printed("changeling", "serve", "--help")
    (environment.folder / "authority.pub").write_text("00" * 31 + "01\n")
    refused = environment.refusal("changeling", "serve", "--store", "server.db", "--authority", "authority.pub")
    assert 'pip install "changeling[server]"' in refused


@pytest.mark.timeout(600)
def test_the_extra_server_brings_the_server(environment):
    """Its store opens, and a sealing key is made in it."""
    environment.without(*OF_A_CURATOR).with_extra("server")
    assert not environment.installed() & OF_A_CURATOR
    environment.printed("changeling", "keys", "new", "--store", "server.db", "-o", "key.request")
    assert "changeling[central]" in environment.printed("changeling", "release", "--help")
