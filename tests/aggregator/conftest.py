"""A store in a temporary folder, the command line, and a server whose clock moves, which the tests of HTTP share."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from changeling_aggregator.segments import Folder
from changeling_aggregator.store import Store
from changeling_aggregator.testing.services import PostgreSQL
from changeling_commands import main as run
from changeling_protocol import Breakdown

from ..protocol.examples import survey
from .devices import Log
from .serving import TOKEN, Cli, ServerHere, ServerProcess


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "server.db")
    yield opened
    opened.close()


@pytest.fixture
def url(postgresql: PostgreSQL) -> str:
    """Of a schema of PostgreSQL with nothing in it."""
    return postgresql.new()


@pytest.fixture
def postgresql_store(url: str) -> Iterator[Store]:
    """In that schema."""
    opened = Store.open(url)
    yield opened
    opened.close()


@pytest.fixture
def log(store: Store) -> Log:
    """With a survey of eight minutes, in three strata."""
    return Log.of(store, replace(survey(), breakdowns=(Breakdown("platform", ("linux", "mac", "windows")),)))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """For segments."""
    return Folder(tmp_path / "segments", make=True)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """One that a test shares with no other, as of two keys one is valid at a time."""
    with ServerHere(tmp_path) as running:
        running.move_clock(1_800_000_000)
        yield running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerHere(tmp_path_factory.mktemp("server")) as running:
        running.move_clock(1_800_000_000)
        yield running


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command in a folder of its own; returns what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHANGELING_TOKEN", TOKEN)

    def call(*arguments: str) -> str:
        assert run(arguments) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return call
