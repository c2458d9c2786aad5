"""Private keys on their way to executors: to those who show the run's token, sealed, and no longer than the run.

Whoever reads the network, alters it, comes late, comes slowly or comes often gets none.
"""

import pickle
import random
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest
from changeling_spark import KeysWithheld
from changeling_spark import session as key_service
from changeling_spark.session import KeyService, KeySource, keys_from
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..aggregator.serving import eventually

HERE = "127.0.0.1"
KEYS = {bytes([number]) * 16: X25519PrivateKey.generate() for number in range(2)}
QUESTION = 64


@pytest.fixture
def service() -> Iterator[KeyService]:
    running = KeyService(KEYS, HERE, HERE)
    yield running
    running.close()


def question(source: KeySource) -> bytes:
    """What a process of the run asks."""
    public = X25519PrivateKey.generate().public_key().public_bytes_raw()
    return public + key_service._code(source.token, b"asked", public)


def connected(source: KeySource) -> socket.socket:
    connection = socket.create_connection((HERE, source.port))
    connection.settimeout(60)
    return connection


def said_to(source: KeySource, asked: bytes) -> bytes:
    """All that the driver answers."""
    with connected(source) as connection:
        connection.sendall(asked)
        with suppress(OSError):  # it is closed there, and so here, already
            connection.shutdown(socket.SHUT_WR)
        said = b""
        while some := connection.recv(1000):
            said += some
    return said


def asked_through(source: KeySource, alter: Callable[[bytes], bytes]) -> dict[bytes, X25519PrivateKey]:
    """The keys that a process gets where someone between it and the driver puts other bytes for the driver's answer."""
    with socket.create_server((HERE, 0)) as between:

        def relay() -> None:
            client, _ = between.accept()
            with client:
                asked = key_service._received(client, QUESTION, key_service.monotonic() + 60)
                client.sendall(alter(said_to(source, asked)))

        with ThreadPoolExecutor(1) as beside:
            beside.submit(relay)
            return keys_from(replace(source, port=between.getsockname()[1]))


def test_who_shows_the_token_gets_the_keys_and_nobody_else_sees_one(service: KeyService) -> None:
    """All of them, as they are. Neither what a task is made of nor a byte that the driver sends holds one; a token does
    not show itself in words, and that of another run, as of another store on the cluster, is worth nothing."""
    said: list[bytes] = []

    def noted(sent: bytes) -> bytes:
        said.append(sent)
        return sent

    got = asked_through(service.source, noted)
    private = [key.private_bytes_raw() for key in KEYS.values()]
    assert (got.keys(), [key.private_bytes_raw() for key in got.values()]) == (KEYS.keys(), private)
    (sent,) = said
    assert not [key for key in private if key in sent + pickle.dumps(service.source)]
    assert service.source.token not in repr(service.source).encode()
    other = KeyService({}, HERE, HERE)
    with pytest.raises(KeysWithheld):
        keys_from(replace(service.source, token=other.source.token))
    other.close()


def test_a_connection_that_was_open_when_the_run_ended_gets_no_key() -> None:
    """However little it had said by then: who learns the token afterwards, as from a disk, learns nothing with it."""
    service = KeyService(KEYS, HERE, HERE)
    asked = question(service.source)
    for before in (0, 1, QUESTION - 1):
        with connected(service.source) as connection:
            connection.sendall(asked[:before])
            assert said_to(service.source, asked)  # so that the driver has taken the one before
            if before < QUESTION - 1:
                continue
            service.close()
            try:
                connection.sendall(asked[before:])
                assert connection.recv(1) == b""
            except ConnectionError:
                pass


def test_no_byte_that_is_altered_on_the_way_changes_a_key(service: KeyService) -> None:
    """Of the driver's answer each byte in turn: the process has its keys as they are, or none. Wrong ones would have
    uploads taken for what nobody can open."""
    length = len(said_to(service.source, question(service.source)))
    alterations = [
        *(lambda said, at=at: said[:at] + bytes([said[at] ^ 1]) + said[at + 1 :] for at in range(4, length)),
        *(lambda said, end=end: said[:end] for end in (0, 3, 4, 35, 36, length - 1)),
        *(lambda said, size=size: size.to_bytes(4) + said[4:] for size in (0, length - 37, 2**22 + 1, 2**32 - 1)),
    ]
    for alter in alterations:
        with pytest.raises(KeysWithheld):
            asked_through(service.source, alter)
    assert asked_through(service.source, lambda said: said).keys() == KEYS.keys()


def test_no_byte_of_a_question_can_be_another(service: KeyService) -> None:
    """Neither the public key, for another's, nor its code; nor is an answer taken for a question, nor rubbish of any
    length. Asked again it is answered with other bytes each time, which no other process takes for its own."""
    asked = question(service.source)
    for at in range(QUESTION):
        assert said_to(service.source, asked[:at] + bytes([asked[at] ^ 1]) + asked[at + 1 :]) == b""
    answers = [said_to(service.source, asked) for _ in range(3)]
    given, sealed = answers[0][4:36], answers[0][36:]
    for public in (asked[:32], sealed[:32]):
        assert said_to(service.source, public + given) == b""
    assert len(set(answers)) == 3
    for answer in answers:
        assert not [key for key in KEYS.values() if key.private_bytes_raw() in answer]
        with pytest.raises(KeysWithheld):
            asked_through(service.source, lambda _: answer)  # noqa: B023
    for size in (0, 1, 63, 64, 65, 1000):
        with suppress(ConnectionError):  # it has closed before it read the rest
            assert said_to(service.source, random.Random(7).randbytes(size)) == b""
    assert keys_from(service.source).keys() == KEYS.keys()


def test_who_comes_often_and_says_nothing_keeps_nobody_waiting(
    service: KeyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More connections than are kept: the oldest go, a process of the run is answered, threads stay as few."""
    monkeypatch.setattr(key_service, "_MOST_AT_ONCE", 20)
    before = threading.active_count()
    with ExitStack() as silent:
        crowd = [silent.enter_context(connected(service.source)) for _ in range(100)]
        assert keys_from(service.source).keys() == KEYS.keys()
        assert crowd[0].recv(1) == b""
        assert eventually(lambda: threading.active_count() <= before + 25, True)
        assert len(service._asking) <= 20


def test_who_says_a_byte_at_a_time_is_waited_for_no_longer(
    service: KeyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is said counts for the one time that either side waits."""
    monkeypatch.setattr(key_service, "_MOST_WAIT_SECONDS", 0.5)
    ended = threading.Event()

    def drip(connection: socket.socket, said: bytes) -> None:
        with suppress(OSError):
            for byte in said:
                if ended.wait(0.2):
                    return
                connection.sendall(bytes([byte]))

    def drip_back(server: socket.socket) -> None:
        client, _ = server.accept()
        with client:
            client.sendall(b"\0\0\1\0")
            drip(client, bytes(256))

    with (
        connected(service.source) as connection,
        socket.create_server((HERE, 0)) as slow,
        ThreadPoolExecutor(2) as beside,
    ):
        beside.submit(drip, connection, question(service.source))
        beside.submit(drip_back, slow)
        with suppress(ConnectionError):
            assert connection.recv(1) == b""
        with pytest.raises(KeysWithheld):
            keys_from(replace(service.source, port=slow.getsockname()[1]))
        ended.set()
