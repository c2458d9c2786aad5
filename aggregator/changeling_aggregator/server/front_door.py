"""The middleware that every request passes first: an id, the limit on its network, standing headers, counts.

Behind an address may stand one person or many, so limits are per network, and nothing is kept of the address itself: a
network is known by a keyed hash of its prefix, under a key that is drawn anew every day and kept nowhere else.

Counts are for operators (`metrics` shows them); publishing and denials are logged. They know routes, statuses, sizes
and times: no address, no token and no byte of an upload gets into a figure or a line.
"""

import ipaddress
import logging
import os
import random
from bisect import bisect_left
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, MutableMapping
from email.utils import formatdate
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from math import ceil
from time import monotonic, perf_counter
from typing import Any

from changeling_protocol.wire import UPLOADS, ErrorCode
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Receive, Scope, Send

from .clock import Clock
from .responses import request_id, turned_down

BODY_SECONDS = 60.0
"""A body that takes longer is refused: what has arrived of it is in memory meanwhile."""
MOST_BODIES_BYTES = 128 * 2**20
"""The most bytes in memory of all bodies that have not arrived whole."""
IPV4_BITS, IPV6_BITS = 24, 48
"""How much of an address names its network."""
DAY_SECONDS = 86_400.0
BURST_SECONDS = 20.0
"""A network that was silent may send what it is allowed in so many seconds at once."""
CHARGED_BYTES = 1024
"""So many bytes of an upload count as a request: some nine small envelopes, each a key agreement to open."""
CHARGE = "changeling.charge"
"""Where a request's scope holds what counts more requests of its network, if that has a limit."""
MOST_NETWORKS = 100_000
"""So many are remembered, those that sent last; each takes some 150 bytes."""


class Bodies:
    """The memory that bodies take which have not arrived whole. size: in bytes."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


def network_of(host: str) -> str | None:
    """The network of an address, such as 192.0.2.0/24; None for this machine itself, on which there are no limits.

    What is no address, as a proxy may send it, is in a network of its own name.

    >>> network_of("192.0.2.7"), network_of("::1")
    ('192.0.2.0/24', None)
    """
    if host == "127.0.0.1":  # a proxy on this machine brings every request: spare them the parsing
        return None
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:64]
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if address.is_loopback:
        return None
    bits = IPV4_BITS if address.version == 4 else IPV6_BITS
    return str(ipaddress.ip_network(f"{address}/{bits}", strict=False))


class Rates:
    """The rates of all networks. most: requests a second of one of them. clock: seconds of a clock that nobody sets."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._pause, self._clock = 1 / most, clock
        self._since = clock()
        self._key = os.urandom(32)
        self._due: OrderedDict[bytes, float] = OrderedDict()
        """When all that a network has sent would have been sent at the allowed rate."""

    def wait_of(self, network: str, requests: int = 1) -> float:
        """Count requests of a network; returns 0, or for how many seconds they are too early, and are not counted.

        More than a burst of them count as a burst less one: what a silent network sends is never too much by itself.
        """
        now = self._clock()
        if now - self._since >= DAY_SECONDS:
            self._since, self._key = now, os.urandom(32)
            self._due.clear()
        name = blake2b(network.encode(), key=self._key, digest_size=16).digest()
        due = max(self._due.get(name, now), now) + min(self._pause * requests, BURST_SECONDS - self._pause)
        if (early := due - now - BURST_SECONDS) > 0:
            return early
        self._due[name] = due
        self._due.move_to_end(name)
        if len(self._due) > MOST_NETWORKS:
            self._due.popitem(last=False)
        return 0.0


SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
CONTENT_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
"""For answers that bring none of their own."""
TRANSPORT_SECURITY = (b"strict-transport-security", b"max-age=31536000")
"""For answers over TLS."""
DENIALS_SECONDS = 10.0
"""Denials that are alike are logged once in such a time, with their number, so that strangers fill no log."""
WARNED_SECONDS = 3600.0
UNNAMED_PROXY = (
    "somebody who is no trusted proxy sends X-Forwarded-For: if that is your proxy, name its address with --proxy, or "
    "in a container the bridge's; until then all whom it speaks for share one limit"
)
FROM_ONE_NETWORK = "more comes from your network than this server takes from one without an upload token"
DENIED = {401, 403, 429}
METHODS = {"DELETE", "GET", "HEAD", "POST", "PUT"}
OTHER = "other"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ids = random.Random()  # noqa: S311  # ids name requests and keep no secret; the system's generator costs a tenth of an upload
_log = logging.getLogger("changeling")


class Traffic(Collector):
    """Counts of one process. They are plain numbers until Prometheus asks, as every request adds to them."""

    def __init__(self) -> None:
        self.upload_bytes = 0
        """Bytes of the bodies of uploads, refused ones too."""
        self.unnamed_proxy = False
        """Whether somebody who is no trusted proxy has spoken for others since the start."""
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[str, list[int]] = {}
        """How many requests of each route took how long: up to each of BUCKETS, and longer."""
        self._taken: dict[str, float] = defaultdict(float)
        """The seconds that all requests of a route took."""
        self._denied: Counter[tuple[str, int]] = Counter()
        self._logged: dict[tuple[str, int], float] = {}

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are told with the figures."""
        return []

    def collect(self) -> Iterable[Metric]:
        """The counts so far."""
        answered = CounterMetricFamily(
            "changeling_requests", "Requests that were answered.", labels=["route", "method", "status"]
        )
        for (route, method, status), count in [*self._requests.items()]:
            answered.add_metric([route, method, str(status)], count)
        seconds = HistogramMetricFamily(
            "changeling_request_seconds", "From a request's head to the end of its answer.", labels=["route"]
        )
        for route, counts in [*self._seconds.items()]:
            ends = [*map(str, map(float, BUCKETS)), "+Inf"]
            seconds.add_metric([route], [*zip(ends, accumulate(counts), strict=True)], self._taken[route])
        sent = "Bytes of the bodies of uploads, refused ones too."
        return [answered, seconds, CounterMetricFamily("changeling_upload_bytes", sent, self.upload_bytes)]

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request. status: what was answered, 0 where the sender had gone. seconds: how long it took."""
        # Few routes, whatever is asked for: the path with the names of its parameters.
        route = UPLOADS if scope["path"] == UPLOADS else getattr(scope.get("route"), "path", OTHER)
        method = scope["method"] if scope["method"] in METHODS else OTHER
        self._requests[route, method, status] += 1
        if route not in self._seconds:
            self._seconds[route] = [0] * (len(BUCKETS) + 1)
        self._seconds[route][bisect_left(BUCKETS, seconds)] += 1
        self._taken[route] += seconds
        if method == "PUT" and status in {200, 201}:
            survey = scope.get("path_params", {}).get("survey")
            named = {} if survey is None else {"survey": survey}
            _log.info("published", extra={"route": route, "new": status == 201, **named})
        elif status in DENIED or (method == "PUT" and status >= 400):
            self._deny(route, status)

    def _deny(self, route: str, status: int) -> None:
        key = route, status
        self._denied[key] += 1
        now = monotonic()
        if key not in self._logged or now >= self._logged[key] + DENIALS_SECONDS:
            _log.warning("denied", extra={"route": route, "status": status, "times": self._denied.pop(key)})
            self._logged[key] = now


class FrontDoor:
    """Middleware before an application.

    clock: Unix seconds, for the date of every answer: devices delay what they would send too early by the time that
    the server shows. rates: of networks, where there is a limit. traffic: counts; None where nobody reads them.
    """

    def __init__(self, app: ASGIApp, clock: Clock, rates: Rates | None = None, traffic: Traffic | None = None) -> None:
        self._app, self._clock, self._rates = app, clock, rates
        self._traffic = traffic
        self._warned = -WARNED_SECONDS
        self._second, self._standing = -1, list[tuple[bytes, bytes]]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, or says that it is too early."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, id_ = perf_counter(), 0, f"{_ids.getrandbits(64):016x}"
        request_id.set(id_)

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, own = message["status"], message.get("headers", ())
                headers = [*own, *self._standing_headers(), (b"x-request-id", id_.encode())]
                if not any(name == CONTENT_POLICY[0] for name, _ in own):
                    headers.append(CONTENT_POLICY)
                if scope["scheme"] == "https":
                    headers.append(TRANSPORT_SECURITY)
                message["headers"] = headers
            await send(message)

        app = self._refusal(scope) or self._app
        try:
            await app(scope, receive, with_headers)
        finally:
            if self._traffic is not None:
                self._traffic.answered(scope, status, perf_counter() - began)

    def _standing_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers that all answers share; the date is written anew once a second."""
        if (second := int(self._clock())) != self._second:
            date = formatdate(second, usegmt=True).encode()
            self._second, self._standing = second, [(b"date", date), *SECURITY_HEADERS]
        return self._standing

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """The answer to a request that names no host, or several, or that comes too early; None where it goes on."""
        named = [name for name, _ in scope["headers"]]
        hosts, client = named.count(b"host"), scope.get("client")
        if hosts > 1 or (hosts == 0 and scope["http_version"] != "1.0"):
            return turned_down(ErrorCode.MALFORMED, "a request names its host, and once")
        if client is None:
            return None
        if b"x-forwarded-for" in named:
            self._look_for_unnamed_proxy(scope, client[0])
        network = None if self._rates is None else network_of(client[0])
        if self._rates is None or network is None:
            return None
        scope[CHARGE] = partial(self._rates.wait_of, network)
        wait = self._rates.wait_of(network)
        return turned_down(ErrorCode.TOO_MANY_REQUESTS, FROM_ONE_NETWORK, retry_after(wait)) if wait else None

    def _look_for_unnamed_proxy(self, scope: Scope, peer: str) -> None:
        """Warn where somebody speaks for others and is not believed: a trusted proxy's word has become the peer."""
        spoken_for = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
        if peer.encode() in spoken_for or monotonic() < self._warned + WARNED_SECONDS:
            return
        self._warned = monotonic()
        _log.warning(UNNAMED_PROXY)
        if self._traffic is not None:
            self._traffic.unnamed_proxy = True


def retry_after(wait: float) -> dict[str, str]:
    """The header that says for how many seconds it is too early."""
    return {"retry-after": str(ceil(wait))}
