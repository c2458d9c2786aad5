"""Whatever bytes a connection brings: no answer fails, and the log gets nothing but what was sent whole."""

import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from changeling_aggregator.server import Front
from changeling_aggregator.store import Store, TokenScope
from changeling_protocol.wire import UPLOADS

from .devices import body, envelope, report
from .serving import ServerHere, ServerProcess, eventually

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
            kept, appended = [each.body for each in view.kept_requests()], view.appended()
        store.close()
        assert {*kept} <= {*uploads}
        assert taken <= appended <= 2 * CONNECTIONS
        assert server.http.get("/healthz").status_code == 200
