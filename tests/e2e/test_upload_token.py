"""A server that takes uploads of known apps alone, real clients of such an app, and a relay before it."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from changeling_aggregator.store import TokenScope
from changeling_aggregator.testing.serving import free_port
from changeling_client import Client
from changeling_protocol import Calendar, Survey

from ..aggregator.serving import ServerProcess, eventually
from ..protocol.examples import AUTHORITY, PINNED, survey
from ..relay.relaying import RelayProcess

APP, OF_RELAY = "token-of-the-app", "token-of-the-relay"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """By the real clock, as the relay is."""
    process = ServerProcess(tmp_path_factory.mktemp("server"), "--uploads-need-token")
    process.add_token(APP, TokenScope.UPLOAD)
    process.add_token(OF_RELAY, TokenScope.UPLOAD)
    with process as running:
        running.new_key()
        yield running


def begun(question: str, relay: str = "") -> Survey:
    """A survey that began five minutes ago."""
    calendar = Calendar(int(time.time()) - 300, 60, 8)
    return survey(calendar=calendar, grace=3600).asking(question=question, relay=relay)


def device(folder: Path, url: str, asked: Survey, token: str | None):
    """A client that joined as the survey began, and has the present to answer."""
    now = [asked.calendar.start + 1.0]
    client = Client(
        server=url,
        authority=PINNED,
        path=folder / f"{token}.db",
        max_epsilon=100,
        witness=None,
        background=False,
        upload_token=token,
        clock=lambda: now[0],
    )
    handle = client.join(asked.id, signed=asked.signed_by(AUTHORITY))
    handle.record("tea")
    now[0] = time.time()
    return client, handle


@pytest.mark.heavy
def test_a_server_that_asks_for_an_app_s_token_takes_its_uploads_alone(tmp_path: Path, server: ServerProcess) -> None:
    """Whoever has none, or another, is turned away, keeps what waits, and no error or log line has the token."""
    asked = server.publish(begun("Direct?"))
    for token in (None, "token-of-others"):
        client, handle = device(tmp_path, server.url, asked, token)
        with client:
            flushed = client.flush()
            assert flushed.sent == 0
            assert "401" in str(flushed.trouble)
            assert "token" not in str(flushed.trouble)
            assert handle.ledger().waiting >= 4
    client, handle = device(tmp_path, server.url, asked, APP)
    with client:
        assert client.flush().sent >= 4
        assert handle.ledger().waiting == 0
    assert server.reports(asked)[0, 1] == 1


@pytest.mark.heavy
def test_a_relay_shows_the_server_its_own_token(tmp_path: Path, server: ServerProcess) -> None:
    """What devices without a token hand over to it is counted."""
    port = free_port()
    asked = server.publish(begun("Relayed?", f"http://127.0.0.1:{port}"))
    (tmp_path / "relay.token").write_text(OF_RELAY)
    options = ("--batch", "1", "--wait", "1s", "--most-wait", "2s", "--token-file", str(tmp_path / "relay.token"))
    with RelayProcess(tmp_path / "relay", server.url, *options, port=port) as relay:
        client, _ = device(tmp_path, relay.url, asked, None)
        with client:
            assert client.flush().sent >= 4
        assert eventually(lambda: server.reports(asked).get((0, 1)), 1)
    assert OF_RELAY not in relay.complained + relay.said
