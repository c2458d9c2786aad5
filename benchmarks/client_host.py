"""Measures 7, 8 and 10 of the client: what it does to a host, and a host to it.

Requests of a device in a day whatever its server says; headers and log lines of a host that traces, with the real
OpenTelemetry and Sentry; and by how much the length of one record() tells whether it changed anything.
"""

import logging
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from changeling_client import Client, Recorded
from changeling_client.testing import FakeServer, let_report, make_client, make_survey

from .client_world import PINNED

SAID = (200, 204, 301, 400, 401, 403, 404, 405, 409, 410, 413, 429, 500, 502, 503, 504)
RECORDS = 3_000
OURS = {"host", "user-agent", "accept-encoding", "cache-control"}
"""Headers that every request has."""
SURVEY = make_survey(answers=("tea", "coffee"))


def measure() -> dict[str, float]:
    """The largest number of requests, what of the host's reached one, and how often a duration is guessed right."""
    return requests_a_day() | of_the_host() | durations()


def requests_a_day() -> dict[str, float]:
    """The most requests in a day, by each status and offline, after three days without one; and if all is well."""
    ways: dict[str, Callable[[FakeServer], None]] = {
        f"{status}": lambda server, status=status: server.fail_with(status)  # type: ignore[misc]
        for status in SAID
        if status != 200
    }
    ways |= {
        "429 with Retry-After": lambda server: server.fail_with(429, retry_after=1),
        "offline": FakeServer.go_offline,
    }
    counts = {way: _a_day(does) for way, does in ways.items()}
    return {
        "7_requests_a_day_most": float(max(counts.values())),
        "7_requests_a_day_well": float(_a_day(lambda _: None)),
    }


def _a_day(does: Callable[[FakeServer], None]) -> int:
    server = FakeServer()
    with tempfile.TemporaryDirectory() as folder, make_client(folder, server) as client:
        client.join(server.publish(SURVEY))
        client.flush()
        server.clock.advance(days=3)
        does(server)
        before = len(server.requests)
        let_report(client, server.clock)
        return len(server.requests) - before


class _Heard(BaseHTTPRequestHandler):
    """Keeps the names of the headers of each request, and has nothing."""

    headers_heard: list[set[str]] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.headers_heard.append({name.lower() for name in self.headers})
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        return


class _Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def of_the_host() -> dict[str, float]:
    """Headers that are not ours, and log lines that name the survey, of a host that traces all that it can."""
    import sentry_sdk
    from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
    from opentelemetry.sdk.trace import TracerProvider

    listener, lines = HTTPServer(("127.0.0.1", 0), _Heard), _Lines()
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    logging.getLogger().addHandler(lines)
    logging.getLogger().setLevel(logging.DEBUG)
    instrumentor = HTTPXClientInstrumentor()
    sentry_sdk.init(traces_sample_rate=1.0, trace_propagation_targets=[".*"])
    instrumentor.instrument(tracer_provider=TracerProvider())
    try:
        tracer = TracerProvider().get_tracer("host")
        with tempfile.TemporaryDirectory() as folder, tracer.start_as_current_span("work"):
            url = f"http://127.0.0.1:{listener.server_port}"
            with Client(
                server=url, authority=PINNED, max_epsilon=1, path=Path(folder) / "store.db", background=False
            ) as client:
                client.join(SURVEY.id)
                client.flush()
    finally:
        instrumentor.uninstrument()
        sentry_sdk.init()
        logging.getLogger().removeHandler(lines)
        logging.getLogger().setLevel(logging.WARNING)
        listener.shutdown()
        listener.server_close()
    foreign = set().union(*_Heard.headers_heard) - OURS
    # the SDK's own warning, which the app asked for, names the survey; nothing else may
    named = [line for line in lines.lines if SURVEY.id.hex() in line and "does not know the survey" not in line]
    return {
        "8_requests_traced": float(len(_Heard.headers_heard)),
        "8_headers_of_the_host": float(len(foreign)),
        "8_log_lines_that_name_the_survey": float(len(named)),
    }


def durations() -> dict[str, float]:
    """How often the best threshold on one duration tells a change from none; chosen on one half, tried on the other."""
    server, times = FakeServer(), ([], [])  # type: tuple[FakeServer, tuple[list[float], list[float]]]
    unbound = make_survey(answers=("tea", "coffee"), periods=RECORDS, at_most=RECORDS)
    with (
        tempfile.TemporaryDirectory() as folder,
        Client(
            path=Path(folder) / "store.db",
            server=server.url,
            authority=server.authority,
            max_epsilon=10**6,
            background=False,
            transport=server.transport,
            clock=server.clock,
        ) as client,
    ):
        handle = client.join(server.publish(unbound))
        client.flush()
        for number in range(RECORDS):
            before = handle.answer()
            changes = number * 7919 % 13 < 6
            answer = ("coffee" if before == "tea" else "tea") if changes or before is None else before
            began = time.perf_counter()
            recorded = handle.record(answer)
            times[recorded is Recorded.COUNTED].append(time.perf_counter() - began)
    halves = [[each[half::2] for each in times] for half in range(2)]
    chosen = max(sorted({*halves[0][0], *halves[0][1]})[::5], key=lambda at: abs(_share(halves[0], at) - 0.5))
    share = _share(halves[1], chosen)
    return {
        "10_changes": float(len(times[1])),
        "10_record_told_apart": share if _share(halves[0], chosen) >= 0.5 else 1 - share,
    }


def _share(ways: list[list[float]], threshold: float) -> float:
    """How often "longer than this" says which, if both were as likely."""
    none, change = ways
    return (
        sum(each > threshold for each in change) / len(change) + sum(each <= threshold for each in none) / len(none)
    ) / 2
