"""Measure 6 of the server, the other half: what an earlier server failed at towards readers, clocks and rubbish, again.

What was seen of a single upload, what a clock that jumps destroys, how long honest readers wait while others ask for
what costs most, and what junk leaves in the store.
"""

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import httpx
from changeling_aggregator.fold import fold
from changeling_aggregator.server import GuardedClock, Service, Settings
from changeling_aggregator.store import Store
from changeling_protocol import HEAD_BYTES, Node, SealingKey, UnixSeconds, seal
from changeling_protocol.wire import (
    HISTOGRAM,
    KEYS,
    SERIES,
    STATUS,
    SURVEYS,
    UPLOADS,
    encode_upload_request,
    survey_path,
)

from tests.aggregator.devices import Log, envelope, report
from tests.aggregator.hostile import resident
from tests.aggregator.serving import ADMIN, ServerProcess, in_process
from tests.aggregator.test_clock import NEVER
from tests.aggregator.test_snapshots import ASKED, DUE, PEOPLE, Polled
from tests.protocol.examples import AUTHORITY, PINNED

from .server_world import plaintext, prepared

DEVICES = 12
ABANDONED = 66
LONG_URLS = 4000
JUNK = 20_000
MIB = 2**20
DAY = 86_400.0


def measure() -> dict[str, float | None]:
    return _polled() | _jumped() | _asked() | _junk() | _far_keys()


def _polled() -> dict[str, float | None]:
    """Of how many devices anything is seen, by asking for everything before and after each; and how often a captured
    envelope, sent again, moves anything."""
    with tempfile.TemporaryDirectory() as place:
        polled = Polled(Store.open(Path(place) / "server.db"), ASKED)
        with in_process(polled.service) as get:
            for _ in range(PEOPLE):
                polled.send(report(1, 1))
            seen = moved = 0
            before = polled.all_that_is_seen(get)
            for device in range(1, DEVICES + 1):
                polled.send(report(1, device % 4))
                now = polled.all_that_is_seen(get)
                seen += now != before and device % ASKED.minimum != 0
                before = now
            for device in range(DEVICES):
                captured = envelope(ASKED, polled.log.key, [report(1, device % 4, id_=bytes(16))])
                polled.log.append(polled.now, captured)
                polled.service.folding.fold_now()
                before = polled.all_that_is_seen(get)
                polled.log.append(polled.now, *[captured] * 5)
                polled.service.folding.fold_now()
                moved += polled.all_that_is_seen(get) != before
    return {"6_polled_devices_seen": seen, "6_replays_seen_in_answers": moved}


def _jumped() -> dict[str, float | None]:
    """The clock is set ahead by 40 days, then back: what was sealed, what destroyed, and how far ahead it counts on."""
    with tempfile.TemporaryDirectory() as place:
        machine = [float(DUE), 0.0]
        log = Log.of(Store.open(Path(place) / "server.db"), ASKED, expires=int(DUE) + 3600)
        clock = GuardedClock(NEVER, None, lambda: UnixSeconds(machine[0]), lambda: machine[1])
        service = Service(log.store, Settings(PINNED, clock))
        with in_process(service):
            log.append_reports(machine[0], [report(1, 1)])
            for ahead in (40 * DAY, 1.6, -40 * DAY):
                machine[0] += ahead
                machine[1] += 1.6
                service.folding.fold_now()
            with log.store.view() as view:
                sealed = view.sealed_period(ASKED.id)
                keys = len(view.private_keys())
            off = abs(clock() - machine[0])
    return {"6_jump_periods_sealed": sealed, "6_jump_keys_destroyed": 1 - keys, "6_jump_seconds_off": off}


@contextmanager
def _serving() -> Iterator[tuple[ServerProcess, Log]]:
    with tempfile.TemporaryDirectory() as place:
        log = prepared(Path(place), periods=365)
        with ServerProcess(Path(place)) as server:
            yield server, log
        log.store.close()


def _asked() -> dict[str, float | None]:
    """What readers wait, and the server holds, after GETs that nobody waits for, and after long URLs."""
    with _serving() as (server, log):
        path = survey_path(log.survey.id.hex())
        alone = median(_timed(lambda: server.http.get(path + SERIES)) for _ in range(5))
        before = resident(server)
        for number in range(ABANDONED):
            with _connection(server) as connection:
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


def _junk() -> dict[str, float | None]:
    """Envelopes of the right form that do not open: how many the log keeps of them once they are folded."""
    with _serving() as (server, log):
        span = Node(log.survey.calendar.periods - 1, log.survey.calendar.periods)
        good = seal(plaintext(log.survey, span), log.survey.id, log.key)
        for _ in range(JUNK // 100):
            junk = [good[:HEAD_BYTES] + os.urandom(len(good) - HEAD_BYTES) for _ in range(100)]
            server.http.post(UPLOADS, content=encode_upload_request(junk)).raise_for_status()
        fold(log.store, UnixSeconds(time.time()))
        server.fold()
        with log.store.view() as view:
            waiting = view.unfolded()
            kept = sum(1 for _ in view.kept_requests())
        status = server.http.get(survey_path(log.survey.id.hex()) + STATUS, headers=ADMIN).json()
    return {
        "6_junk_sent": JUNK,
        "6_junk_waiting": waiting,
        "6_junk_requests_kept": kept,
        "6_junk_counted": sum(node["reports"] for node in status["nodes"]),
    }


def _far_keys() -> dict[str, float | None]:
    """Keys that expire when no store can tell: how many of the answers are errors of the server's own."""
    with _serving() as (server, log):
        signed = bytearray(SealingKey(log.key.public, 0, 2**63 - 1).signed_by(AUTHORITY))
        signed[signed.index(b"\xcf\x7f") + 1] = 0xFF
        failed = sum(
            server.http.put(KEYS, content=bytes(each), headers=ADMIN).status_code >= 500
            for each in (signed, signed[:-1], SealingKey(log.key.public, 0, 2**63 - 1).signed_by(AUTHORITY))
        )
        still = server.http.get(SURVEYS).status_code == httpx.codes.OK
    return {"6_far_keys_failed": failed, "6_far_keys_then_answers": still}


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _connection(server: ServerProcess) -> socket.socket:
    host, port = str(server.url).removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)
