"""Whatever bytes a connection brings, the short way of uploads differs in nothing from the application's own."""

import asyncio
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
import uvicorn
from anyio.to_thread import current_default_thread_limiter
from changeling_aggregator.server import Front, Service, Settings, make_app, make_server, server_of
from changeling_aggregator.store import Store, TokenScope
from changeling_protocol import Calendar, UnixSeconds
from sqlalchemy import select

from ..protocol.examples import PINNED, survey
from .devices import Log, body, envelope, report

NOW = 1_800_000_100.0
TOKENS = {"of-an-app": [TokenScope.UPLOAD], "of-a-reader": [TokenScope.READ]}
PATIENCE_SECONDS = 100
Pieces = list[bytes]


class Transport(asyncio.Transport):
    """A connection of a client that reads at once; what is answered to it is kept."""

    def __init__(self, client: tuple[str, int]) -> None:
        super().__init__({"peername": client, "sockname": ("127.0.0.1", 80)})
        self.told = b""
        self.closed = self.paused = False

    def write(self, data: bytes) -> None:  # type: ignore[override]
        assert not self.closed
        self.told += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


@dataclass
class Way:
    """A server with one way for uploads."""

    service: Service
    server: uvicorn.Server

    def __post_init__(self) -> None:
        self.server.config.load()
        self._made: Any = self.server.config.http_protocol_class
        self.state = self.server.server_state

    async def told(self, pieces: Pieces, client: tuple[str, int]) -> tuple[bytes, bool]:
        """All that is answered to these bytes, each piece sent once nothing more comes; and whether it closed."""
        transport = Transport(client)
        connection = self._made(config=self.server.config, server_state=self.state, app_state={})
        connection.connection_made(transport)
        for piece in pieces:
            if not transport.closed:
                connection.data_received(piece)
                await self._rest(connection, transport)
        connection.connection_lost(None)
        await asyncio.gather(*self.state.tasks)
        return re.sub(rb"x-request-id: [0-9a-f]{16}", b"x-request-id: ", transport.told), transport.closed

    async def _rest(self, connection: Any, transport: Transport) -> None:
        end = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        threads = current_default_thread_limiter()
        while True:
            for _ in range(30):
                await asyncio.sleep(0)
            cycle = connection.cycle
            waits = cycle is None or cycle.response_complete or getattr(cycle, "more_body", False)
            at_work = threads.borrowed_tokens or transport.paused or connection.pipeline or not waits
            if transport.closed or not at_work:
                return
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.0002)

    def kept(self) -> list[bytes]:
        """What is in the log, in its order."""
        with self.service.store.view() as view:
            numbers = view.scalars(select(streams.c.id).order_by(streams.c.id)).all()
            return [each.body for number in numbers for each in view.kept_requests(number)]


@dataclass
class Both:
    """Two servers with the same survey, key and tokens: one has the short way, one has not."""

    short: Way
    long: Way
    uploads: list[bytes]


@contextmanager
def both(folder: Path, need_token: bool, proxies: tuple[str, ...]) -> Iterator[Both]:
    log = Log.of(Store.open(folder / "short.db"), survey(calendar=Calendar(int(NOW) - 100, 60, 8)))
    with log.store.transaction() as writing:
        for name, scopes in TOKENS.items():
            writing.add_token(name, name, scopes, UnixSeconds(NOW))
    log.store.forget_overwritten(changed=True)
    log.store.close()
    shutil.copy(folder / "short.db", folder / "long.db")
    settings = Settings(PINNED, lambda: UnixSeconds(NOW), uploads_need_token=need_token)
    first, second = (Service(Store.open(folder / name), settings) for name in ("short.db", "long.db"))
    for service in (first, second):
        service.committer.start()
    front = Front(proxies)
    uploads = [body(*(envelope(log.survey, log.key, [report(1)]) for _ in range(count))) for count in (1, 2, 20)]
    uploads.append(body(envelope(log.survey, log.key, [report(1)]), b"none"))
    try:
        yield Both(Way(first, make_server(first, front)), Way(second, server_of(make_app(second), front)), uploads)
    finally:
        for service in (first, second):
            service.committer.close()
            service.store.close()


def _case(name: str, chance: Random) -> str:
    return "".join(chance.choice((each.upper(), each.lower())) for each in name)


ODD = (
    "expect: 100-continue",
    "Expect: 100-CONTINUE",
    "expect: something",
    "transfer-encoding: chunked",
    "Transfer-Encoding: identity",
    "transfer-encoding: gzip, chunked",
    "transfer-encoding:\tchunked",
    "transfer-encoding : chunked",
    "transfer-encoding: chunked\r\ntransfer-encoding: identity",
    "content-length: 0",
    "content-length: +10",
    "content-length: 10, 10",
    "content-length:",
    "content-length : 3",
    "content-length: 0x10",
    "content-length: 99999999999999999999",
    "connection: close",
    "connection: keep-alive",
    "connection: upgrade\r\nupgrade: websocket",
    "connection: upgrade\r\nupgrade: h2c",
    "upgrade: websocket",
    "proxy-connection: keep-alive",
    "x: a\r\n b",
    "x: a\r\n\tcontent-length: 3",
    "x: a\nconnection: close",
    "x: a\rconnection: close",
    "x: \x00",
    "x: " + "a" * 2000,
    "x: " + "a" * 40_000,
    ": none",
    "no colon",
    "authorization: Bearer of-an-app",
    "Authorization: bearer  of-an-app ",
    "authorization: Bearer of-a-reader",
    "authorization: Bearer \xff",
    "authorization: Basic of-an-app",
    "authorization: Bearer of-an-app\r\nauthorization: Bearer none",
    "authorization: Bearer none\r\nauthorization: Bearer of-an-app",
    "x-forwarded-for: 192.0.2.7",
    "x-forwarded-for: 192.0.2.7, 127.0.0.1",
    "x-forwarded-for: [::1]:80, \xff",
    "x-forwarded-for:",
    "x-forwarded-proto: https",
    "x-forwarded-proto: HTTPS , http",
    "x-forwarded-proto: wss",
    "x-forwarded-proto: \xff",
    "x-http-method-override: GET",
    "content-encoding: gzip",
    "content-type: text/plain",
    "host: there",
    "cookie: changeling=1",
    "trailer: content-length",
    "te: trailers",
)
TARGETS = (
    "/v1/uploads",
    "/v1/uploads",
    "/v1/uploads",
    "/v1/uploads",
    "/v1/uploads",
    "/v1/uploads?",
    "/v1/uploads?x=1",
    "/v1/uploads#x",
    "/v1/uploads/",
    "//v1/uploads",
    "/v1/%75ploads",
    "/V1/UPLOADS",
    "/v1/uploads%00",
    "/v1/./uploads",
    "http://there/v1/uploads",
    "*",
    "/v1/uploads;x",
    "/v1/uploads ",
    "/v1/uploads\xff",
)
METHODS = ("POST",) * 12 + ("post", "GET", "PUT", "HEAD", "OPTIONS", "CONNECT", "PRI", "POSTX")
VERSIONS = ("HTTP/1.1",) * 12 + ("HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "HTTP/1.2", "http/1.1", "HTTP/1.1 ")
LINES = ("\r\n",) * 20 + ("\n", "\r")


def _request(chance: Random, uploads: list[bytes]) -> bytes:
    content = chance.choice(uploads)
    kind = chance.randrange(12)
    if kind == 0:
        at = chance.randrange(len(content))
        content = content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]
    elif kind == 1:
        content = content[: chance.randrange(len(content))]
    elif kind == 2:
        content += bytes(chance.randrange(1, 5))
    elif kind == 3:
        content = b""
    headers = ["host: here"] if chance.random() < 0.9 else []
    stated = len(content) + chance.choice((0,) * 12 + (1, 7, -1, -20))
    chunked = chance.random() < 0.1
    if chunked:
        headers.append(_case("transfer-encoding: chunked", chance))
        cut = chance.randrange(len(content) + 1)
        parts = [part for part in (content[:cut], content[cut:]) if part]
        end = chance.choice(
            (b"0\r\n\r\n",) * 5 + (b"0\r\nx: y\r\n\r\n", b"00\r\n\r\n", b"0;a=b\r\n\r\n", b"0\n\n", b"-1\r\n")
        )
        content = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + end
    if not chunked or chance.random() < 0.1:
        headers.append(f"{_case('content-length', chance)}: {max(0, stated)}")
    if chance.random() < 0.3:
        headers.append("authorization: Bearer of-an-app")
    headers += [chance.choice(ODD) for _ in range(chance.choice((0, 0, 0, 1, 1, 2)))]
    chance.shuffle(headers)
    line = chance.choice(LINES)
    first = f"{chance.choice(METHODS)} {chance.choice(TARGETS)} {chance.choice(VERSIONS)}"
    return line.join([first, *headers, "", ""]).encode("latin-1") + content


def _connection(chance: Random, uploads: list[bytes]) -> Pieces:
    """What comes on one connection, in the pieces that it is sent in."""
    asked = [
        b"GET /healthz HTTP/1.1\r\n\r\n" if chance.random() < 0.2 else _request(chance, uploads)
        for _ in range(chance.choice((1, 1, 1, 2, 3)))
    ]
    whole = b"".join(asked)
    cuts = sorted(chance.randrange(1, len(whole)) for _ in range(chance.choice((0, 0, 1, 2, 4))))
    return [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


async def _attack(servers: Both, chance: Random, count: int) -> int:
    """Returns how many uploads were taken."""
    taken = 0
    for number in range(count):
        pieces = _connection(chance, servers.uploads)
        client = f"192.0.2.{number % 250}", 1
        first, second = await servers.short.told(pieces, client), await servers.long.told(pieces, client)
        assert first == second, (number, pieces)
        taken += first[0].count(b"\x81\xa7refused\x90")
    return taken


@pytest.mark.parametrize("guarded", [False, True], ids=["open", "behind a proxy, with tokens"])
def test_no_bytes_are_answered_or_kept_otherwise_on_the_short_way(tmp_path: Path, guarded: bool) -> None:
    """Odd heads, lengths that lie, chunks, pipelines and pieces: the same answers, the same closing, the same log."""
    with both(tmp_path, guarded, ("192.0.2.0/25",) if guarded else ()) as servers:
        taken = asyncio.run(_attack(servers, Random(13), COUNT))
        assert servers.short.kept() == servers.long.kept()
    assert taken > COUNT // 50


COUNT = 700
