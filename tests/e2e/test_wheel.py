"""The two wheels, the SDK's and the other, in environments of their own."""

import re
import tomllib
import zipfile

import pytest
from changeling_central import read_rows
from changeling_protocol import __version__

from .conftest import PINNED, ROOT, Environment

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

MOST_BYTES, MOST_OF_THE_SDK, MOST_LOADED = 900_000, 200_000, 155_000
ON_REQUEST = {"testing", "async_client", "explanation", "reports", "postgresql", "handover", "editions"}
"""Modules of the SDK that an app loads only if it asks for what they do, or a reader of results does."""
OF_A_SERVER = {"starlette", "uvicorn", "uvloop", "httptools", "sqlalchemy"}
OF_A_CURATOR = {"opendp", "dp-accounting", "matplotlib"}


@pytest.fixture(scope="module")
def environment(sdk, tmp_path_factory):
    """The SDK's wheel and what it asks for, and pytest; a test below adds the other wheel."""
    environment = Environment(tmp_path_factory.mktemp("environment"))
    environment.install(*PINNED, sdk, "pytest")
    return environment


@pytest.fixture
def with_extra(request, sdk, wheel, tmp_path):
    """Both wheels, and the extra that the test names."""
    environment = Environment(tmp_path / "environment")
    environment.install("--no-deps", sdk, wheel)
    environment.link(request.param)
    return environment


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


def test_a_bare_install_is_the_sdk_and_no_numbers(environment, wheel):
    """The client imports, numpy is not there; each command line knows its version and names its extra."""
    environment.install(*PINNED, wheel)
    assert not environment.installed().keys() & {"numpy", "typer", "rich"}
    assert environment.printed("python", "-c", "from changeling_client import Client, __version__; print(__version__)")
    for command, words, extra in (
        ("changeling", ("serve", "--help"), "server"),
        ("changeling", ("release", "--help"), "central"),
        ("changeling-sim", ("run", "--help"), "simulate"),
    ):
        assert environment.printed(command, "--version") == f"{command} {__version__}\n"
        assert f'pip install "changeling[{extra}]"' in environment.refusal(command, *words)


def test_an_apps_pytest_finds_the_fixtures_by_itself(environment):
    """The tests that docs/app.md shows pass with no more than pytest added, every warning being an error; the first is
    no longer than a dozen lines."""
    app = (ROOT / "docs/app.md").read_text()
    shown = re.findall(r"```python\n(from changeling_client.testing.*?)```", app, re.DOTALL)
    assert len(shown[0].strip().splitlines()) <= 12
    files = [f"test_app_{number}.py" for number in range(len(shown))]
    for name, text in zip(files, shown, strict=True):
        (environment.folder / name).write_text(text)
    printed = environment.printed("python", "-m", "pytest", "-W", "error", "--strict-markers", *files)
    assert f"{len(files)} passed" in printed


@pytest.mark.parametrize("with_extra", ["simulate"], indirect=True)
def test_the_extra_simulate_brings_no_server_and_no_curator(with_extra):
    """The bundled changelog is simulated by name."""
    assert not with_extra.installed().keys() & {*OF_A_SERVER, "opendp", "msgspec", "filelock"}
    assert "employment" in with_extra.printed("changeling-sim", "run", "school-to-work", "--entries", 10**4)


@pytest.mark.parametrize("with_extra", ["central"], indirect=True)
def test_the_extra_central_brings_no_server(with_extra):
    """A release runs, with its picture; the help of `serve` names its extra, and so does the attempt to run it."""
    assert not with_extra.installed().keys() & OF_A_SERVER
    (with_extra.folder / "log.csv").write_text("entry,time,answer\nada,1,tea\nbob,2,tea\nada,4,\n")
    every = ("--every", "1s", "--start", "0", "--until", "4")
    words = ("log.csv", "--query", "any answer", *every, "--epsilon", "1", "--at-most", "2", "-o", "out.csv")
    with_extra.printed("changeling", "release", *words, "--plot", "out.png")
    assert len(read_rows(with_extra.folder / "out.csv")) == 4
    assert "changeling[server]" in with_extra.printed("changeling", "serve", "--help")
    (with_extra.folder / "authority.pub").write_text("00" * 31 + "01\n")
    refused = with_extra.refusal("changeling", "serve", "--store", "server.db", "--authority", "authority.pub")
    assert 'pip install "changeling[server]"' in refused


@pytest.mark.parametrize("with_extra", ["server"], indirect=True)
def test_the_extra_server_brings_the_server(with_extra):
    """Its store opens, and a sealing key is made in it."""
    assert not with_extra.installed().keys() & OF_A_CURATOR
    with_extra.printed("changeling", "keys", "new", "--store", "server.db", "-o", "key.request")
    assert "changeling[central]" in with_extra.printed("changeling", "release", "--help")
