"""The fixtures of `changeling_client.testing`, which pytest finds by itself. Without one nothing else is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from changeling_client import Client
    from changeling_client.testing import FakeServer, ManualClock


@pytest.fixture
def changeling_clock() -> ManualClock:
    """A clock that the test moves: `changeling_clock.advance(days=1)`."""
    from changeling_client.testing import ManualClock

    return ManualClock()


@pytest.fixture
def changeling_server(changeling_clock: ManualClock) -> FakeServer:
    """A server without a network, by that clock."""
    from changeling_client.testing import FakeServer

    return FakeServer(changeling_clock)


@pytest.fixture
def changeling_client(tmp_path: Path, changeling_server: FakeServer) -> Iterator[Client]:
    """A client of that server, whose store is in the test's folder; it reports when the test calls `flush`."""
    from changeling_client.testing import make_client

    with make_client(tmp_path / "changeling", changeling_server) as client:
        yield client


@pytest.fixture
def changeling_audit() -> Callable[[Callable[..., object], Iterable[Any]], None]:
    """Plays lives of an app as `changeling_client.testing.audit` does, and fails where their traffic differs."""
    from changeling_client.testing import audit

    def check(app: Callable[..., object], lives: Iterable[Any]) -> None:
        if found := audit(app, lives):
            raise AssertionError("answers can be told from the app's traffic:\n" + "\n".join(found))

    return check
