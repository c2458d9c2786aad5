"""How many may talk to one serving process."""

import socket
from contextlib import ExitStack
from threading import Thread

import httpx
import pytest
from changeling_aggregator.server import Service, Settings, listen, listening, make_server
from changeling_aggregator.store import Store

from ..protocol.examples import PINNED
from .serving import eventually


def test_too_many_connections_are_told_so_and_harm_nobody_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While four that say nothing are open a fifth hears 503; once they are gone, 200."""
    monkeypatch.setattr(listening, "MOST_CONNECTIONS", 5)
    bound, url = listen("127.0.0.1", 0)
    server = make_server(Service(store, Settings(PINNED, None, lambda: 1_800_000_000.0)))
    running = Thread(target=server.run, kwargs={"sockets": [bound]})
    running.start()
    try:
        assert eventually(lambda: server.started, True)
        with ExitStack() as silent:
            for _ in range(4):
                silent.enter_context(socket.create_connection(bound.getsockname()))
            assert eventually(lambda: httpx.get(f"{url}/health").status_code, 503)
        assert eventually(lambda: httpx.get(f"{url}/health").status_code, 200)
    finally:
        server.should_exit = True
        running.join(20)
