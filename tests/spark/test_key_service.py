"""Private keys on their way to executors: to those who show the run's token, sealed, and no longer than the run."""

import pickle
import socket
from collections.abc import Iterator
from dataclasses import replace
from threading import Thread

import pytest
from changeling_spark import KeysWithheld
from changeling_spark.keys import KeyService, keys_from
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

KEYS = {bytes([number]) * 16: X25519PrivateKey.generate() for number in range(3)}


@pytest.fixture
def service() -> Iterator[KeyService]:
    running = KeyService(KEYS, "127.0.0.1", "127.0.0.1")
    yield running
    running.close()


def test_who_shows_the_token_gets_the_keys(service: KeyService) -> None:
    """All of them, as they are."""
    got = keys_from(service.source)
    assert {id_: key.private_bytes_raw() for id_, key in got.items()} == {
        id_: key.private_bytes_raw() for id_, key in KEYS.items()
    }


def test_who_shows_another_token_gets_nothing(service: KeyService) -> None:
    """And is told nothing: neither are those after him hindered."""
    with pytest.raises(KeysWithheld, match="gave no keys"):
        keys_from(replace(service.source, token=bytes(32)))
    with socket.create_connection(("127.0.0.1", service.source.port)) as connection:
        connection.sendall(bytes(64))
        assert connection.recv(1) == b""
    assert keys_from(service.source)


def test_once_the_run_is_over_a_token_is_worth_nothing() -> None:
    """Nobody listens any more."""
    service = KeyService(KEYS, "127.0.0.1", "127.0.0.1")
    service.close()
    with pytest.raises(KeysWithheld):
        keys_from(service.source)


def test_what_passes_over_the_network_and_into_tasks_holds_no_key(service: KeyService) -> None:
    """What a task is made of, and each byte that the driver sends; nor does a token show itself in words."""
    sent = b""
    with socket.create_server(("127.0.0.1", 0)) as between:
        port = between.getsockname()[1]

        def pass_on() -> None:
            nonlocal sent
            client, _ = between.accept()
            with client, socket.create_connection(("127.0.0.1", service.source.port)) as server:
                server.sendall(client.recv(1000))
                while some := server.recv(1000):
                    sent += some
                    client.sendall(some)

        passing = Thread(target=pass_on)
        passing.start()
        assert keys_from(replace(service.source, port=port))
        passing.join()
    made = pickle.dumps(service.source)
    for key in KEYS.values():
        assert key.private_bytes_raw() not in sent + made
    assert len(sent) > 96
    assert service.source.token not in repr(service.source).encode()
    assert "token" not in repr(service.source)
