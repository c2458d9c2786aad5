"""Measure 6 of the server: clients that hold memory or time, and what the others notice of them.

A proxy in front bears silent connections and slow bodies; that heads take bounded memory is a test's. Each case is a
server process of its own on loopback. While the hostile ones do what they do, an honest client asks now and then, on a
connection of its own; refused are the answers it does not get, slowest is the longest wait for one.
"""

import gzip
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TypeAlias

import httpx
from changeling_aggregator.testing.killing import prepared_log
from changeling_aggregator.testing.serving import RunningServer
from changeling_protocol.wire import HISTOGRAM, SERIES, SURVEYS, UPLOADS, survey_path

ABANDONED, LONG_URLS, PERIODS = 66, 4000, 365
MIB = 2**20
_Hostile: TypeAlias = Callable[[RunningServer, ExitStack, Callable[[], None]], None]


def measure() -> dict[str, float | None]:
    return {**_asked(), **_case("one_byte_chunks", _one_byte_chunks), **_case("bombs", _bombs)}


def _case(name: str, hostile: _Hostile) -> dict[str, float | None]:
    waits: list[float | None] = []
    with tempfile.TemporaryDirectory() as folder, RunningServer(Path(folder)) as server, ExitStack() as stack:
        server.http.get(SURVEYS).raise_for_status()
        before = _resident(server)

        def honest() -> None:
            began = time.monotonic()
            try:
                status = httpx.get(server.url + SURVEYS, timeout=10).status_code
            except httpx.HTTPError:
                status = 0
            waits.append(time.monotonic() - began if status == 200 else None)

        hostile(server, stack, honest)
        for _ in range(20):
            honest()
        grown = _resident(server) - before
    answered = [wait for wait in waits if wait is not None]
    return {
        f"6_{name}_asked": len(waits),
        f"6_{name}_refused": len(waits) - len(answered),
        f"6_{name}_slowest_ms": 1000 * max(answered) if answered else None,
        f"6_{name}_growth_mib": grown / MIB,
    }


def _one_byte_chunks(server: RunningServer, stack: ExitStack, honest: Callable[[], None]) -> None:
    """A megabyte in chunks of a byte, from eight at once."""
    head = f"POST {UPLOADS} HTTP/1.1\r\nhost: here\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    several = [stack.enter_context(_connected(server)) for _ in range(8)]
    for connection in several:
        connection.sendall(head.encode())
    for _ in range(64):
        for connection in several:
            connection.sendall(b"1\r\nx\r\n" * 2**14)
        honest()
    for connection in several:
        connection.sendall(b"0\r\n\r\n")
        while connection.recv(65_536):
            pass


def _bombs(server: RunningServer, stack: ExitStack, honest: Callable[[], None]) -> None:
    """A gigabyte of nothing in a megabyte of gzip, which is taken for what it is."""
    bomb = gzip.compress(bytes(2**30), 9)[:MIB]
    http = stack.enter_context(httpx.Client(base_url=server.url, timeout=20))
    for _ in range(8):
        answer = http.post(UPLOADS, content=bomb, headers={"content-encoding": "gzip"})
        if answer.status_code != 400:
            raise RuntimeError(f"a bomb was answered {answer.status_code}")
        honest()


def _asked() -> dict[str, float | None]:
    """What readers wait, and the server holds, after GETs that nobody waits for, and after long URLs."""
    with tempfile.TemporaryDirectory() as place:
        log = prepared_log(Path(place), PERIODS)
        log.store.close()
        with RunningServer(Path(place)) as server:
            path = survey_path(log.survey.id.hex())
            alone = median(_timed(lambda: server.http.get(path + SERIES)) for _ in range(5))
            before = _resident(server)
            for number in range(ABANDONED):
                with _connected(server) as connection:
                    question = f"{path}{SERIES}?until={PERIODS - number}&confidence=0.99&covariance=true"
                    connection.sendall(f"GET {question} HTTP/1.1\r\nhost: here\r\n\r\n".encode())
            slowest = max(_timed(lambda: server.http.get(path + HISTOGRAM)) for _ in range(10))
            for number in range(LONG_URLS):
                server.http.get(f"{path}{HISTOGRAM}?nothing={number}{'x' * 8000}")
            grown = _resident(server) - before
    return {
        "6_series_alone_ms": 1000 * alone,
        "6_abandoned_slowest_ms": 1000 * slowest,
        "6_long_urls_growth_mib": grown / MIB,
    }


def _connected(server: RunningServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def _resident(server: RunningServer) -> int:
    """Bytes of memory that the server holds."""
    _, pages, *_ = Path(f"/proc/{server.process.pid}/statm").read_text().split()
    return int(pages) * 4096


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
