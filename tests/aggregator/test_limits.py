"""What one client can do to a server without a proxy in front: what it holds of it, and what bytes it brings."""

import asyncio
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from changeling_aggregator.errors import TurnedDown
from changeling_aggregator.server import Bodies, Front, Rates, network_of, requests
from changeling_aggregator.server import http as limits
from changeling_aggregator.server.requests import read_from
from changeling_aggregator.store import Store, TokenScope
from changeling_protocol import VERSION, SealingKey
from changeling_protocol.wire import MSGPACK, UPLOADS, encode_upload_request

from .devices import body, envelope, report
from .hostile import HOSTILE_HEADS, answer_of, connected, push, resident, slow_body
from .serving import ServerHere, ServerProcess, eventually

BEHIND_PROXY = Front(["127.0.0.1"])


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
        connection.settimeout(2)
        connection.sendall(first)
        assert push(connection, piece, 64 * 2**20) < 16 * 2**20  # most of that in the buffers of the two systems
    assert resident(own) - before < 8 * 2**20
    assert own.http.get("/v1/surveys").status_code == 200


def test_a_head_of_32_kibibytes_is_read(own: ServerProcess) -> None:
    """As nginx and httpx send them at most."""
    assert own.http.get("/v1/surveys", headers={"x": "y" * 32_000}).status_code == 200


@pytest.mark.timed
@pytest.mark.heavy
def test_slow_bodies_hold_bounded_memory_and_end(own: ServerProcess) -> None:
    """With 200 MiB of them under way the server holds its bound of them, and turns away what is more: 503."""
    with ExitStack() as stack:
        slow = [stack.enter_context(slow_body(own)) for _ in range(200)]
        refused, _, _ = select.select(slow, [], [], 60)
        assert {answer_of(each).split()[1] for each in refused} == {b"503"}
        assert resident(own) < 600 * 2**20
        assert own.http.get("/v1/surveys").status_code == 200
    assert eventually(lambda: own.http.post("/v1/uploads", content=b"no upload").status_code, 400)


@pytest.mark.heavy
def test_a_server_has_no_more_connections_than_it_may_have_files(tmp_path: Path) -> None:
    """Beyond that it answers 503 with what it keeps for itself, and goes on when connections are closed."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400));"
    server = ServerProcess(tmp_path)
    run = f"{limited} import sys; from changeling_commands.__main__ import main; sys.exit(main({server.arguments!r}))"
    with subprocess.Popen([sys.executable, "-c", run], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            server.process, server.url = process, process.stdout.readline().split()[3].rstrip(";")
            with ExitStack() as silent:
                for _ in range(200):
                    silent.enter_context(connected(server))
                assert eventually(lambda: httpx.get(f"{server.url}/v1/surveys", timeout=100).status_code, 503)
            assert eventually(lambda: httpx.get(f"{server.url}/v1/surveys", timeout=100).status_code, 200)
        finally:
            process.terminate()
            process.communicate(timeout=100)


Messages = AsyncIterator[MutableMapping[str, Any]]


def read(messages: Messages, bodies: Bodies | None = None, most: int = 100, stated: bytes = b"") -> bytes:
    return asyncio.run(read_from(lambda: anext(messages), stated, bodies or Bodies(), most))


def refusal(messages: Messages, **how: Any) -> int:
    """The status that a body of these messages is refused with."""
    with pytest.raises(TurnedDown) as refused:
        read(messages, **how)
    return refused.value.code.status


async def coming(*pieces: bytes, pause: float = 0.0, end: bool = True) -> Messages:
    for number, piece in enumerate(pieces, 1):
        await asyncio.sleep(pause)
        yield {"type": "http.request", "body": piece, "more_body": number < len(pieces) or not end}
    if not end:
        yield {"type": "http.disconnect"}


def test_a_body_that_does_not_end_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a byte of it arrives, it is held in memory for so long only: 408."""
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.05)
    assert refusal(coming(*[b"x"] * 90, pause=0.01)) == 408


def test_a_body_is_bounded_whatever_it_states() -> None:
    """413 as soon as it is seen, by its length or without one; a body that breaks off is no failure of the server."""
    assert read(coming(b"x" * 50, b"x" * 50)) == b"x" * 100
    assert refusal(coming(b"x" * 50, b"x" * 51)) == 413
    assert refusal(coming(), stated=b"101") == 413
    assert refusal(coming(b"x", end=False)) == 400


def test_the_bodies_on_their_way_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is more than is kept in memory is turned away, and gives back what it held."""
    monkeypatch.setattr(requests, "MOST_BODIES_BYTES", 250)
    bodies = Bodies()
    bodies.size = 200
    with pytest.raises(TurnedDown):
        read(coming(b"x" * 30, b"x" * 30), bodies)
    assert bodies.size == 200
    assert read(coming(b"x" * 30, b"x" * 20), bodies) == b"x" * 50
    assert bodies.size == 200


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.77", "192.0.2.0/24"),
        ("::ffff:192.0.2.77", "192.0.2.0/24"),
        ("2001:db8:1:2::3", "2001:db8:1::/48"),
        *((each, None) for each in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1")),
        ("not an address", "not an address"),
    ],
)
def test_an_address_is_known_by_its_network(host: str, network: str | None) -> None:
    """24 bits of IPv4, 48 of IPv6; this machine has none."""
    assert network_of(host) == network


def test_a_network_is_limited_and_others_are_not() -> None:
    """After a burst it may go on at the rate; what is too early is not counted, and told how long to wait. Many at
    once count as many and never as more than a burst: so a large upload of a network that was silent is taken, behind
    the request for its head, and the next waits."""
    now = 0.0
    rates = Rates(2, lambda: now)
    assert [rates.wait_of("a") for _ in range(40)] == [0.0] * 40
    assert (rates.wait_of("a"), rates.wait_of("b", 30)) == (pytest.approx(0.5), 0)
    assert (rates.wait_of("b", 11), rates.wait_of("b", 10)) == (pytest.approx(0.5), 0)
    assert (rates.wait_of("c"), rates.wait_of("c", 10_000), rates.wait_of("c")) == (0, 0, pytest.approx(0.5))
    now = 1.0
    assert [rates.wait_of("a") > 0 for _ in range(3)] == [False, False, True]


@pytest.mark.timed
@pytest.mark.parametrize("token", [False, True])
@pytest.mark.parametrize("limit", [{"requests_a_second": 1}, {"envelopes_a_day": 2000}], ids=str)
def test_a_network_pays_for_what_it_uploads_but_with_a_token(
    tmp_path: Path, limit: dict[str, int], token: bool
) -> None:
    """Two thousand envelopes at once are taken, and nothing more for a while, by their bytes, or for a day, by their
    number; who shows an upload token goes on, and other networks are not touched."""
    server = ServerHere(tmp_path, front=BEHIND_PROXY, **limit)
    server.add_token("of a backend", TokenScope.UPLOAD)
    many = encode_upload_request([bytes([VERSION]) + bytes(199)] * 2000)
    shown = {"authorization": "Bearer of a backend"} if token else {}

    def uploads(network: str, content: bytes) -> int:
        headers = {"x-forwarded-for": network, "content-type": MSGPACK, **shown}
        return server.http.post(UPLOADS, content=content, headers=headers).status_code

    with server:
        assert uploads("192.0.2.1", many) == 200
        assert uploads("192.0.2.2", many) == (200 if token else 429)
        assert uploads("192.0.2.3", encode_upload_request([b"no envelope"])) == (200 if token else 429)
        assert uploads("198.51.100.1", many) == 200


def test_what_does_not_open_costs_its_network(tmp_path: Path) -> None:
    """Garbage is answered as sound uploads are, and its network is silent for a while, however it cuts it up; what is
    sealed to a key that has expired, or that nobody knows, costs what it always does. Of 900 garbled envelopes none is
    drawn once in a million times.
    """
    with ServerHere(tmp_path, front=BEHIND_PROXY, requests_a_second=50, envelopes_a_day=250_000) as server:
        expired = server.new_key(expires=server.now + 10)
        key = server.new_key(begins=server.now + 10)
        survey = server.new_survey()
        server.move_clock(survey.calendar.time(1) + 16)
        sound = envelope(survey, key, [report(1)])
        garbled = sound[:-1] + bytes([sound[-1] ^ 1])
        others = [envelope(survey, each, [report(1)]) for each in (expired, SealingKey(bytes(31) + b"\1", 0, 1))]

        def uploads(network: str, each: bytes, copies: int = 64) -> httpx.Response:
            return server.http.post(UPLOADS, content=body(*[each] * copies), headers={"x-forwarded-for": network})

        answers = [uploads(f"192.0.{number}.1", each) for number, each in enumerate([sound, garbled])]
        told = [(each.status_code, each.content, [*each.headers], len(f"{each.headers}")) for each in answers]
        assert told[0] == told[1]
        for number, each in enumerate(others, 2):
            assert uploads(f"192.0.{number}.1", each).status_code == 200
        assert [uploads(f"192.0.{each}.1", sound).status_code for each in range(4)] == [200, 429, 200, 200]
        assert 429 in {uploads("198.51.100.1", garbled, 1).status_code for _ in range(900)}


def test_a_fine_is_a_burst_more_and_envelopes_are_counted_until_the_day_is_over() -> None:
    """Whatever a network sent before, it waits for as long as a burst of requests takes; where there is no limit not
    at all. Envelopes that do not fit are not counted, and told how long the day lasts; requests alone go on."""
    now = 0.0
    rates, free = Rates(2, lambda: now), Rates(0, lambda: now, 10)
    for each in (rates, free):
        each.fine("a")
    assert rates.wait_of("a") == pytest.approx(0.5)
    rates.fine("a")
    assert (rates.wait_of("a"), rates.wait_of("b")) == (pytest.approx(20.5), 0)
    assert (free.wait_of("a", 1, 9), free.wait_of("a", 1, 2), free.wait_of("a", 1, 1)) == (0, limits.DAY_SECONDS, 0)
    assert (free.wait_of("a"), free.wait_of("b", 1, 10)) == (0, 0)
    now = limits.DAY_SECONDS
    assert free.wait_of("a", 1, 10) == 0


def test_nothing_of_an_address_is_kept_and_a_new_day_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds hashes under a key that changes daily, of so many networks at most."""
    monkeypatch.setattr(limits, "MOST_NETWORKS", 100)
    now = 0.0
    rates = Rates(1, lambda: now)
    for number in range(1000):
        rates.wait_of(f"198.51.{number}.0/24")
    known = set(rates._sent)
    assert len(known) == 100
    assert all(isinstance(each, bytes) and b"198.51" not in each for each in known)
    now = limits.DAY_SECONDS
    rates.wait_of("198.51.999.0/24")
    assert len(rates._sent) == 1
    assert not known & set(rates._sent)


@pytest.mark.timed
@pytest.mark.heavy
def test_silent_connections_refuse_nobody_while_there_is_room(own: ServerProcess) -> None:
    """Nine hundred of them: every request is answered, and soon."""
    with ExitStack() as stack:
        for _ in range(900):
            stack.enter_context(connected(own))
        slowest = 0.0
        for _ in range(20):
            began = time.monotonic()
            assert httpx.get(f"{own.url}/v1/surveys", timeout=100).status_code == 200
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 2


CONNECTIONS = 240
OF_AN_APP = {"authorization": "Bearer of an app"}
ODD = (
    *("expect: 100-continue", "transfer-encoding: chunked", "Transfer-Encoding: identity"),
    *("transfer-encoding: gzip, chunked", "transfer-encoding:\tchunked", "transfer-encoding : chunked"),
    *("transfer-encoding: chunked\r\ntransfer-encoding: identity", "content-length: 0", "content-length: +10"),
    *("content-length: 10, 10", "content-length:", "content-length : 3", "content-length: 0x10"),
    *("content-length: 99999999999999999999", "connection: close", "connection: upgrade\r\nupgrade: h2c"),
    *("x: a\r\n b", "x: a\r\n\tcontent-length: 3", "x: a\nconnection: close", "x: \x00", "x: " + "a" * 40_000),
    *(
        ": none",
        "no colon",
        "authorization: Bearer \xff",
        "authorization: Bearer of an app\r\nauthorization: Bearer none",
    ),
    *("x-forwarded-for: [::1]:80, \xff", "x-forwarded-proto: \xff", "x-http-method-override: GET", "te: trailers"),
)
TARGETS = (*[UPLOADS] * 6, *("/v1/uploads?x=1", "//v1/uploads", "/v1/%75ploads", "http://there/v1/uploads", "*"))
METHODS = (*["POST"] * 9, *("post", "GET", "PUT", "OPTIONS", "CONNECT", "POSTX"))
VERSIONS = (*["HTTP/1.1"] * 9, *("HTTP/1.0", "HTTP/2.0", "http/1.1", "HTTP/1.1 "))


def _request(chance: Random, uploads: list[bytes]) -> bytes:
    content = chance.choice(uploads)
    stated = len(content) + chance.choice((*[0] * 9, 1, 7, -1, -20))
    headers = ["host: here", "authorization: Bearer of an app"]
    if chance.random() < 0.1:
        headers.append("transfer-encoding: chunked")
        cut = chance.randrange(1, len(content))
        end = chance.choice((b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", b"0;a=b\r\n\r\n", b"0\n\n", b"-1\r\n"))
        content = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (content[:cut], content[cut:])) + end
    else:
        headers.append(f"content-length: {stated}")
    headers += [chance.choice(ODD) for _ in range(chance.choice((0, 0, 0, 1, 1, 2)))]
    chance.shuffle(headers)
    first = f"{chance.choice(METHODS)} {chance.choice(TARGETS)} {chance.choice(VERSIONS)}"
    return chance.choice(("\r\n",) * 9 + ("\n",)).join([first, *headers, "", ""]).encode("latin-1") + content


def _told(server: ServerProcess, seed: int, uploads: list[bytes]) -> bytes:
    """All that is answered on a connection, whose requests are sent in pieces."""
    chance = Random(seed)
    whole = b"".join(_request(chance, uploads) for _ in range(chance.choice((1, 1, 2, 3))))
    cuts = sorted(chance.randrange(1, len(whole)) for _ in range(chance.choice((0, 0, 1, 4))))
    host, port = server.url.removeprefix("http://").split(":")
    heard = b""
    with socket.create_connection((host, int(port)), timeout=0.3) as connection:
        try:
            for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
                connection.sendall(whole[begin:end])
            while piece := connection.recv(65_536):
                heard += piece
        except (TimeoutError, ConnectionError):
            pass
    return heard


@pytest.mark.heavy
@pytest.mark.parametrize("guarded", [False, True])
def test_no_framing_fails_the_server_or_smuggles_an_upload(tmp_path: Path, guarded: bool) -> None:
    """Odd heads, lengths that lie, chunks, pipelines and pieces: no 500, and what is in the log was sent so."""
    front = Front(["127.0.0.1"] if guarded else [])
    with ServerHere(tmp_path, front=front, uploads_need_token=guarded) as server:
        server.add_token("of an app", TokenScope.UPLOAD)
        assert eventually(lambda: server.http.post(UPLOADS, headers=OF_AN_APP).status_code, 400)
        server.move_clock(1_800_000_000)
        survey, key = server.new_survey(), server.key
        server.move_clock(survey.calendar.time(1) + 16)
        server.fold()
        sent = [envelope(survey, key, [report(1)]) for _ in range(23)]
        uploads = [body(*each) for each in (sent[:1], sent[1:3], sent[3:])]
        with ThreadPoolExecutor(16) as pool:
            told = [*pool.map(lambda seed: _told(server, seed, uploads), range(CONNECTIONS))]
        statuses = {int(status) for each in told for status in re.findall(rb"(?m)^HTTP/1.1 (\d+) ", each)}
        assert statuses <= {100, 200, 400, 401, 403, 404, 405, 413, 422}
        taken = sum(each.count(b"\x81\xa7refused\x90") for each in told)
        assert taken > CONNECTIONS // 20
        store = Store.open(tmp_path / "server.db")
        with store.view() as view:
            kept, appended = [each.body for each in view.kept_requests()], view.folded() + view.unfolded()
        store.close()
        assert {*kept} <= {*uploads}
        assert taken <= appended <= 2 * CONNECTIONS
        assert server.http.get("/healthz").status_code == 200
