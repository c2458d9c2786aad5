"""A store in a temporary folder, and one server under a movable clock that the tests of HTTP share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from changeling_aggregator.store import Store

from .serving import ServerProcess


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "server.db")
    yield opened
    opened.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """One that a test shares with no other, as of two keys one is valid at a time."""
    with ServerProcess(tmp_path, "--movable-clock") as running:
        running.move_clock(1_800_000_000)
        yield running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server"), "--movable-clock") as running:
        running.move_clock(1_800_000_000)
        yield running
