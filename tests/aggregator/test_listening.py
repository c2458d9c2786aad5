"""Who may keep a connection, and for how long: against real servers, and clients that do what no honest one does."""

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from changeling_aggregator.server import MOST_CONNECTIONS
from changeling_aggregator.server.app import HEAD_SECONDS, MOST_HEAD_BYTES, Connections
from changeling_protocol.wire import ErrorAnswer, ErrorCode

from .hostile import HOSTILE_HEADS, answer_of, connected, push, resident, slow_body
from .serving import ServerProcess, eventually


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("own")) as running:
        yield running


@pytest.mark.parametrize("kind", HOSTILE_HEADS)
def test_what_is_no_body_takes_no_memory(own: ServerProcess, kind: str) -> None:
    """Of 64 MiB of it the server takes a little, closes, holds no more memory, and answers others."""
    first, piece = HOSTILE_HEADS[kind]
    own.http.get("/readyz")
    before = resident(own)
    with connected(own) as connection:
        connection.sendall(first)
        assert push(connection, piece, 64 * 2**20) < 16 * 2**20  # most of that in the buffers of the two systems
    assert resident(own) - before < 8 * 2**20
    assert own.http.get("/v1/surveys").status_code == 200


def test_who_sends_too_long_a_head_is_told(own: ServerProcess) -> None:
    """431, as a problem document; a head of half the length is read."""
    for length, status in ((MOST_HEAD_BYTES // 2, b"200"), (MOST_HEAD_BYTES, b"431")):
        with connected(own) as connection:
            connection.sendall(b"GET /v1/surveys HTTP/1.1\r\nhost: here\r\nconnection: close\r\nx: ")
            for _ in range(length // 1024):
                connection.sendall(b"x" * 1024)
                time.sleep(0.001)
            if status == b"200":
                connection.sendall(b"\r\n\r\n")
            heard = answer_of(connection)
        assert heard.split()[1] == status
    assert ErrorAnswer.decode(heard.partition(b"\r\n\r\n")[2]).code is ErrorCode.HEAD_TOO_LARGE


@pytest.mark.timed
@pytest.mark.heavy
@pytest.mark.parametrize(
    "said", [b"", b"GET /readyz HTTP/1.1\r\nhost: he", b"GET /readyz HTTP/1.1\r\nhost: here\r\n\r\n"]
)
def test_who_says_nothing_more_is_let_go(own: ServerProcess, said: bytes) -> None:
    """A connection that was opened, began to ask, or has its answer, is closed soon, also where bytes trickle."""
    with connected(own) as connection:
        connection.sendall(said)
        began = time.monotonic()
        answer_of(connection)
        assert 1 < time.monotonic() - began < HEAD_SECONDS + 5
    with connected(own) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nx: ")
        began = time.monotonic()
        connection.settimeout(1)
        while time.monotonic() - began < HEAD_SECONDS + 5:
            try:
                connection.send(b"x")
                if not connection.recv(100):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert time.monotonic() - began < HEAD_SECONDS + 5


@pytest.mark.timed
@pytest.mark.heavy
def test_ten_thousand_silent_connections_refuse_nobody(own: ServerProcess) -> None:
    """While they are being opened, and after, every request is answered; the server keeps what it has room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    silent = 10_000
    if hard < silent + 500:
        pytest.skip("this machine lets a process have too few files open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with ExitStack() as stack:
            for number in range(silent):
                stack.enter_context(connected(own))
                if number % 500 == 0:
                    assert httpx.get(f"{own.url}/v1/surveys", timeout=100).status_code == 200
            slowest = 0.0
            for _ in range(20):
                began = time.monotonic()
                assert httpx.get(f"{own.url}/v1/surveys", timeout=100).status_code == 200
                slowest = max(slowest, time.monotonic() - began)
            assert slowest < 2
            assert len(list(Path(f"/proc/{own.process.pid}/fd").iterdir())) < MOST_CONNECTIONS + 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.timed
@pytest.mark.heavy
def test_slow_bodies_keep_nobody_from_sending(own: ServerProcess) -> None:
    """With 200 MiB of them under way others are taken; those that were there longest are told that they were slow."""
    with ExitStack() as stack:
        slow = [stack.enter_context(slow_body(own)) for _ in range(200)]
        began = time.monotonic()
        for _ in range(20):
            assert own.http.post("/v1/uploads", content=b"no upload").status_code == 400
        assert time.monotonic() - began < 5
        assert resident(own) < 600 * 2**20
        assert answer_of(slow[0]).split()[1] == b"408"


def test_a_server_takes_as_many_connections_as_it_may(tmp_path: Path) -> None:
    """Where a process may have only so many files open there is room for fewer, and still nobody is refused."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400));"
    with ServerProcess(tmp_path) as server:
        command = server.arguments
        server.kill()
        run = f"{limited} import sys; from changeling_commands.__main__ import main; sys.exit(main({command!r}))"
        with subprocess.Popen([sys.executable, "-c", run], stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout
                server.process, server.url = process, process.stdout.readline().split()[3].rstrip(";")
                with ExitStack() as silent:
                    for _ in range(300):
                        silent.enter_context(connected(server))
                    assert eventually(lambda: httpx.get(f"{server.url}/v1/surveys", timeout=100).status_code, 200)
            finally:
                process.terminate()
                process.communicate(timeout=100)


class Calling:
    """A connection that only notes that it was ended."""

    def __init__(self, network: str | None) -> None:
        self.network, self.ended = network, False

    def end(self) -> None:
        self.ended = True


def test_the_one_that_waited_longest_makes_room() -> None:
    """And never one that is being served; where all are, there is no room."""
    room = Connections(3, 3, lambda: 0.0)
    first, second, third, fourth, fifth = (Calling(None) for _ in range(5))
    for each in (first, second, third):
        assert room.enter(each)
        room.wait(each, 10)
    room.serve(first)
    assert room.enter(fourth)
    assert [each.ended for each in (first, second, third)] == [False, True, False]
    room.serve(third)
    assert not room.enter(fifth)
    room.leave(first)
    assert room.enter(fifth)
    assert len(room) == 3


def test_a_network_has_a_share_and_makes_room_for_itself() -> None:
    """However many come from one network, those of others are not ended for them."""
    room = Connections(100, 2, lambda: 0.0)
    other = Calling("198.51.100.0/24")
    room.enter(other)
    room.wait(other, 10)
    many = [Calling("192.0.2.0/24") for _ in range(50)]
    for each in many:
        assert room.enter(each)
        room.wait(each, 10)
    assert [each.ended for each in many] == [True] * 48 + [False] * 2
    assert not other.ended
    assert len(room) == 3


def test_whose_client_is_overdue_is_ended() -> None:
    """At the deadline of what it waits for, which more bytes do not put off."""
    now = 0.0
    room = Connections(9, 9, lambda: now)
    idle, body, served = (Calling(None) for _ in range(3))
    for each in (idle, body, served):
        room.enter(each)
        room.wait(each, 10)
    room.wait_on(body, 60)
    room.serve(served)
    now = 10.0
    room.end_overdue()
    assert [each.ended for each in (idle, body, served)] == [True, False, False]
    now = 60.0
    room.end_overdue()
    assert [each.ended for each in (idle, body, served)] == [True, True, False]
