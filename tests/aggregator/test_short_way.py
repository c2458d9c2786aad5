"""Uploads that their connection answers by itself: as the application answers them, however they come."""

import asyncio
import socket
from pathlib import Path

import pytest
from changeling_aggregator.errors import Overloaded
from changeling_aggregator.ingest.gathering import Done
from changeling_aggregator.server.service import Service, Settings
from changeling_aggregator.server.short_way import ShortWay
from changeling_aggregator.store import Store
from changeling_aggregator.store.tokens import TokenScope
from changeling_protocol import Calendar, SealingKey, decode, encode
from changeling_protocol.wire import UPLOADS

from ..protocol.examples import PINNED, survey
from .devices import Log, body, envelope, report
from .serving import ServerProcess

HEAD = f"POST {UPLOADS} HTTP/1.1\r\nhost: here\r\n"


@pytest.fixture(scope="module")
def key(server: ServerProcess) -> SealingKey:
    return server.key


def request(content: bytes, *headers: str) -> bytes:
    lines = "".join(f"{each}\r\n" for each in (f"content-length: {len(content)}", *headers))
    return f"{HEAD}{lines}\r\n".encode() + content


class Caller:
    """A connection that is spoken to in bytes; use as a context."""

    def __init__(self, server: ServerProcess) -> None:
        self._socket = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=100)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = self._socket.makefile("rb")

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *_: object) -> None:
        self._read.close()
        self._socket.close()

    def send(self, content: bytes) -> None:
        self._socket.sendall(content)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers, body of the next answer."""
        status = int(self._read.readline().split()[1])
        headers = {}
        while line := self._read.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name] = value
        return status, headers, self._read.read(int(headers.get("content-length", 0)))

    def closed(self) -> bool:
        """Whether the server has said all that it will."""
        return self._read.read(1) == b""


def test_an_upload_is_answered_alike_however_it_comes(server: ServerProcess, key: SealingKey) -> None:
    """At once, in pieces, in chunks, after `100 Continue`, by itself or one of five at once: each counts once."""
    survey = server.new_survey()
    server.move_clock(survey.calendar.time(1) + 16)
    count = 0

    def new(*headers: str) -> bytes:
        nonlocal count
        count += 1
        return request(body(envelope(survey, key, [report(1)])), *headers)

    with Caller(server) as caller:
        answers = []
        caller.send(new())
        answers.append(caller.answer())
        for at in (10, -300, -200, -1):
            whole = new()
            caller.send(whole[:at])
            server.http.get("/healthz")  # which it has read by then
            caller.send(whole[at:])
            answers.append(caller.answer())
        content = body(envelope(survey, key, [report(1)]))
        count += 1
        caller.send(
            f"{HEAD}transfer-encoding: chunked\r\n\r\n{len(content):x}\r\n".encode() + content + b"\r\n0\r\n\r\n"
        )
        answers.append(caller.answer())
        head, _, content = new("expect: 100-continue").partition(b"\r\n\r\n")
        caller.send(head + b"\r\n\r\n")
        assert caller.answer()[0] == 100
        caller.send(content)
        answers.append(caller.answer())
        caller.send(b"".join(new() for _ in range(5)))
        answers += [caller.answer() for _ in range(5)]
        assert {(status, *sorted(headers), answer) for status, headers, answer in answers} == {
            (200, *sorted(answers[0][1]), encode({"refused": []}))
        }
        assert len({headers["x-request-id"] for _, headers, _ in answers}) == len(answers)
        assert {headers["content-type"] for _, headers, _ in answers} == {"application/msgpack"}
        caller.send(new("connection: close"))
        assert caller.answer()[1]["connection"] == "close"
        assert caller.closed()
    assert server.reports(survey) == {(0, 1): count}


def test_requests_that_follow_an_upload_are_answered_in_their_order(server: ServerProcess, key: SealingKey) -> None:
    """Sound and refused uploads, and other requests, all sent at once."""
    survey = server.new_survey()
    server.move_clock(survey.calendar.time(1) + 16)
    sound = request(body(envelope(survey, key, [report(1)])))
    other = b"GET /healthz HTTP/1.1\r\nhost: here\r\n\r\n"
    refused = request(body(envelope(survey, key, [report(1)]), b"none"))
    bad = request(b"no upload")
    with Caller(server) as caller:
        caller.send(sound + other + bad + sound + refused + other)
        answers = [caller.answer() for _ in range(6)]
    assert [status for status, *_ in answers] == [200, 200, 400, 200, 200, 200]
    assert decode(answers[4][2]) == {"refused": [[1, "malformed"]]}
    assert server.reports(survey) == {(0, 1): 2}


def test_who_goes_away_before_the_answer_leaves_its_upload(server: ServerProcess, key: SealingKey) -> None:
    """It counts, and the server goes on."""
    survey = server.new_survey()
    server.move_clock(survey.calendar.time(1) + 16)
    for _ in range(5):
        with Caller(server) as caller:
            caller.send(request(body(envelope(survey, key, [report(1)]))))
    assert server.upload(envelope(survey, key, [report(1)])) == []
    assert 1 <= server.reports(survey)[0, 1] <= 6


def test_what_is_sent_behind_an_upload_keeps_nobody_from_an_answer(server: ServerProcess, key: SealingKey) -> None:
    """What closes its connection before the commit; others share that commit, and hear of it."""
    survey = server.new_survey()
    server.move_clock(survey.calendar.time(1) + 16)
    count = 30
    uploads = iter([request(body(envelope(survey, key, [report(1)]))) for _ in range(3 * count)])
    other = b"GET /healthz HTTP/1.1\r\nhost: here\r\n\r\n"
    for _ in range(count):
        with Caller(server) as first, Caller(server) as bad, Caller(server) as last:
            first.send(next(uploads))
            bad.send(next(uploads) + other + b"no request\r\n\r\n")
            last.send(next(uploads))
            assert first.answer()[0] == last.answer()[0] == 200
            assert bad.answer()[0] in (200, 400)
    assert server.reports(survey) == {(0, 1): 3 * count}


def test_what_keeps_an_upload_from_the_disk_is_told_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Too much that waits, or a defect, whose trace is logged; and its network's requests are counted once each."""
    log = Log.of(store, survey(calendar=Calendar(1_800_000_000, 60, 8)))
    service = Service(store, Settings(PINNED, lambda: 1_800_000_070.0, requests_a_second=1))
    assert service.rates is not None
    way, content = ShortWay(service, ()), body(envelope(log.survey, log.key, [report(1)]))
    heard = list[bytes]()

    async def send(error: Exception) -> None:
        def fail(_: bytes, __: asyncio.AbstractEventLoop, done: Done) -> None:
            if isinstance(error, Overloaded):
                raise error
            done(error)

        monkeypatch.setattr(service.committer, "submit", fail)
        assert way.submit(("192.0.2.1", 1), "http", [], content, lambda head, *_: heard.append(head.split(b"\r")[0]))
        await asyncio.sleep(0)

    for _ in range(10):
        asyncio.run(send(Overloaded("too much waits")))
    asyncio.run(send(RuntimeError("what went wrong")))
    assert heard == [b"HTTP/1.1 503 Service Unavailable"] * 10 + [b"HTTP/1.1 500 Internal Server Error"]
    assert "what went wrong" in caplog.text
    waits = [service.rates.wait_of("192.0.2.0/24") for _ in range(9)]
    assert not any(waits), "20 at once"


def test_networks_and_tokens_are_looked_at_on_the_short_way(tmp_path: Path) -> None:
    """Without a token 401; a proxy speaks for networks, each of which may send so much."""
    with ServerProcess(
        tmp_path, "--movable-clock", "--proxy", "127.0.0.1", "--rate", "1", "--uploads-need-token"
    ) as server:
        server.move_clock(1_800_000_000)
        survey, key = server.new_survey(), server.key
        server.add_token("of an app", TokenScope.UPLOAD)
        server.add_token("of a reader", TokenScope.READ)
        server.fold()  # after which the server knows them
        server.move_clock(survey.calendar.time(1) + 16)
        content = body(envelope(survey, key, [report(1)]))

        def status(token: str | None, network: str, scheme: str = "https") -> int:
            told = {"x-forwarded-for": network, "x-forwarded-proto": scheme}
            shown = {} if token is None else {"authorization": f"Bearer {token}"}
            answer = server.http.post(UPLOADS, content=content, headers=told | shown)
            assert ("strict-transport-security" in answer.headers) == (scheme == "https")
            return answer.status_code

        assert status(None, "192.0.2.1") == 401
        assert status("of a reader", "192.0.2.1") == 403
        assert status("of nobody", "192.0.2.1") == 401
        assert status("of an app", "198.51.100.1", "http") == 200
        statuses = [status("of an app", "203.0.113.1") for _ in range(40)]
        assert statuses[:20] == [200] * 20
        assert 429 in statuses
        assert status("of an app", "198.51.100.2") == 200
