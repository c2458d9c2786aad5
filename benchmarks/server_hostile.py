"""Measure 6 of the server: clients that hold memory or time, and what the others notice of them.

A proxy in front bears silent connections and slow bodies. Each case is a server process of its own on loopback. While
the hostile ones do what they do, an honest client asks now and then, on a connection of its own; refused are the
answers it does not get, slowest is the longest wait for one.
"""

import gzip
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TypeAlias

import httpx
from changeling_protocol.wire import HISTOGRAM, SERIES, SURVEYS, UPLOADS, survey_path

from tests.aggregator.hostile import HOSTILE_HEADS, answer_of, connected, push, resident
from tests.aggregator.serving import ServerProcess

from .server_world import prepared

ABANDONED, LONG_URLS = 66, 4000
HEAD_BYTES = 128 * 2**20
MIB = 2**20
_Hostile: TypeAlias = Callable[[ServerProcess, ExitStack, Callable[[], None]], None]


def measure() -> dict[str, float | None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        return {
            **_heads(),
            **_asked(),
            **_case("one_byte_chunks", _one_byte_chunks),
            **_case("bombs", _bombs),
        }
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def _server() -> Iterator[ServerProcess]:
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder)) as server:
        server.http.get(SURVEYS).raise_for_status()
        yield server


def _heads() -> dict[str, float | None]:
    """For each part of a request that is no body: how much of 128 MiB is taken, and how memory grows, in MiB."""
    figures: dict[str, float | None] = {}
    for kind, (first, piece) in HOSTILE_HEADS.items():
        with _server() as server, connected(server) as connection:
            before = resident(server)
            connection.sendall(first)
            name = kind.replace(" ", "_")
            figures[f"6_{name}_taken_mib"] = push(connection, piece, HEAD_BYTES) / MIB
            figures[f"6_{name}_growth_mib"] = (resident(server) - before) / MIB
    return figures


def _case(name: str, hostile: _Hostile) -> dict[str, float | None]:
    with _server() as server:
        before = resident(server)
        waits: list[float | None] = []

        def honest() -> None:
            began = time.monotonic()
            try:
                status = httpx.get(server.url + SURVEYS, timeout=10).status_code
            except httpx.HTTPError:
                status = 0
            waits.append(time.monotonic() - began if status == 200 else None)

        with ExitStack() as stack:
            hostile(server, stack, honest)
            for _ in range(20):
                honest()
            grown = resident(server) - before
    answered = [wait for wait in waits if wait is not None]
    return {
        f"6_{name}_asked": len(waits),
        f"6_{name}_refused": len(waits) - len(answered),
        f"6_{name}_slowest_ms": 1000 * max(answered) if answered else None,
        f"6_{name}_growth_mib": grown / MIB,
    }


def _one_byte_chunks(server: ServerProcess, stack: ExitStack, honest: Callable[[], None]) -> None:
    """A megabyte in chunks of a byte, from eight at once."""
    head = (
        b"POST "
        + UPLOADS.encode()
        + b" HTTP/1.1\r\nhost: here\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    several = [stack.enter_context(connected(server)) for _ in range(8)]
    for connection in several:
        connection.sendall(head)
    for _ in range(64):
        for connection in several:
            connection.sendall(b"1\r\nx\r\n" * 2**14)
        honest()
    for connection in several:
        connection.sendall(b"0\r\n\r\n")
        answer_of(connection)


def _bombs(server: ServerProcess, stack: ExitStack, honest: Callable[[], None]) -> None:
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
        log = prepared(Path(place), periods=365)
        log.store.close()
        with ServerProcess(Path(place)) as server:
            path = survey_path(log.survey.id.hex())
            alone = median(_timed(lambda: server.http.get(path + SERIES)) for _ in range(5))
            before = resident(server)
            for number in range(ABANDONED):
                with connected(server) as connection:
                    question = f"{path}{SERIES}?confidence=0.{9000 + number}&covariance=true"
                    connection.sendall(f"GET {question} HTTP/1.1\r\nhost: here\r\n\r\n".encode())
            slowest = max(_timed(lambda: server.http.get(path + HISTOGRAM)) for _ in range(10))
            for number in range(LONG_URLS):
                server.http.get(f"{path}{HISTOGRAM}?nothing={number}{'x' * 8000}")
            grown = resident(server) - before
    return {
        "6_series_alone_ms": 1000 * alone,
        "6_abandoned_slowest_ms": 1000 * slowest,
        "6_long_urls_growth_mib": grown / MIB,
    }


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
