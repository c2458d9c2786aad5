"""What passes at the HTTP interface, counted for operators; publishing and denials are logged.

Knows routes, statuses, sizes and times. No address, no token and no byte of an upload gets into a figure or a line.
"""

import logging
from collections import Counter
from collections.abc import MutableMapping
from time import monotonic, perf_counter
from typing import Any

import prometheus_client as prometheus
from changeling_protocol.wire import UPLOADS
from starlette.types import ASGIApp, Message, Receive, Scope, Send

DENIALS_SECONDS = 10.0
"""Of denials that are alike one line is logged in such a time, with their number: strangers fill no log."""
DENIED = {401, 403, 429}
METHODS = {"DELETE", "GET", "HEAD", "POST", "PUT"}
OTHER = "other"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_log = logging.getLogger("changeling")


class Traffic:
    """Counts of one process."""

    def __init__(self) -> None:
        self.requests = prometheus.Counter(
            "changeling_requests", "Requests that were answered.", ["route", "method", "status"], registry=None
        )
        self.seconds = prometheus.Histogram(
            "changeling_request_seconds",
            "From a request's head to the end of its answer.",
            ["route"],
            buckets=BUCKETS,
            registry=None,
        )
        self.upload_bytes = prometheus.Counter(
            "changeling_upload_bytes", "Bytes of the bodies of uploads, refused ones too.", registry=None
        )
        self._counters: dict[tuple[str, str, int], tuple[prometheus.Counter, prometheus.Histogram]] = {}
        self._denied: Counter[tuple[str, int]] = Counter()
        self._told: dict[tuple[str, int], float] = {}

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request. status: what was answered, 0 where the sender had gone. seconds: how long it took."""
        route, method = _route(scope), scope["method"] if scope["method"] in METHODS else OTHER
        self._count(route, method, status, seconds)
        if method == "PUT" and status in {200, 201}:
            survey = scope.get("path_params", {}).get("survey")
            of_survey = {} if survey is None else {"survey": survey}
            _log.info("published", extra={"route": route, "new": status == 201, **of_survey})
        elif status in DENIED or (method == "PUT" and status >= 400):
            self._deny(route, status)

    def uploaded(self, status: int, size: int, seconds: float) -> None:
        """Count an upload that went the short way. size: of its body, in bytes."""
        self._count(UPLOADS, "POST", status, seconds)
        self.upload_bytes.inc(size)

    def _count(self, route: str, method: str, status: int, seconds: float) -> None:
        key = route, method, status
        if key not in self._counters:  # looking one up by its labels takes longer than all else here
            self._counters[key] = self.requests.labels(*key), self.seconds.labels(route)
        requests, took = self._counters[key]
        requests.inc()
        took.observe(seconds)

    def _deny(self, route: str, status: int) -> None:
        key = route, status
        self._denied[key] += 1
        now = monotonic()
        if key not in self._told or now >= self._told[key] + DENIALS_SECONDS:
            _log.warning("denied", extra={"route": route, "status": status, "times": self._denied.pop(key)})
            self._told[key] = now


class Observed:
    """An application whose requests are counted."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self._app, self._traffic = app, traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands on, and counts."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def counted() -> Message:
            message = await receive()
            self._traffic.upload_bytes.inc(len(message.get("body", b"")))
            return message

        async def answering(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began = perf_counter()
        try:
            await self._app(scope, counted if scope["path"] == UPLOADS else receive, answering)
        finally:
            self._traffic.answered(scope, status, perf_counter() - began)


def _route(scope: Scope) -> str:
    """The path of the route that answered, with the names of what it takes; few, whatever is asked for."""
    if scope["path"] == UPLOADS:
        return UPLOADS
    path: str = getattr(scope.get("route"), "path", OTHER)
    return path
