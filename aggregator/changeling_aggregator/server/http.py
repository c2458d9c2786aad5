"""HTTP as every request meets it: the middleware before all endpoints, the forms of their answers, and who keeps them.

**Networks.** Behind an address may stand one person or many, so limits are per network, and nothing is kept of the
address itself: a network is known by a keyed hash of its prefix, under a key that is drawn anew every day and kept
nowhere else. Counts are for operators (`health` shows them); publishing and denials are logged. They know routes,
statuses, sizes and times: no address, no token and no byte of an upload gets into a figure or a line.

**Results.** Only snapshots change what is shown, and the next is not taken before the next closing is due, unless late
reports may still change one that is shown. So open results stand for a while in any cache; those that ask a token in
none but the reader's own, which asks each time whether they still hold.

**Sealing keys.** The list is the same for every device. A cache may give it out for a minute, and never beyond the
expiry of the key in it, which is harmless in every state of a key:

- pending: nobody is given it yet. The key before it is good until the second in which this one begins.
- active: it is what the server itself would give. A device keeps a key for its whole life, far longer than a cache.
- expired: no cache gives it out any more. Devices check its dates themselves, and a server goes on taking what was
  sealed to it for the skew of clocks.
- destroyed: that is a grace after it expired, so no cache can have it. Only a restored store may lack a key that is
  still active. Whoever seals to that one is refused, keeps the report, and asks for the key again: for a minute a cache
  may answer with the same.

An empty list is kept by no cache, so the first key reaches devices at once. Ending or withdrawing a survey changes no
key. Devices ask caches not to answer them, for the sake of the time of day in an answer; a cache that answers all the
same has to say the answer's `Age`, by which they know not to go by that time.
"""

import gzip
import logging
import os
import random
import socket
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass
from email.utils import formatdate
from functools import cache, lru_cache
from hashlib import blake2b
from math import ceil, floor
from time import monotonic, perf_counter
from typing import Any, Self, TypeVar

import msgspec
from changeling_protocol import SealingKey, UnixSeconds
from changeling_protocol.wire import JSON, MSGPACK, PROBLEM, UPLOADS, ErrorAnswer, ErrorCode
from changeling_statistics import NotEstimable
from prometheus_client import Counter, Histogram
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import AggregatorError, FoldDied, FoldOver, Overloaded, TurnedDown
from ..store import NO_ANSWER, SnapshotProgress, StoredSurvey
from .clock import Clock

RETRY_AFTER_SECONDS = 5
UNKEPT = "no-store"
"""For errors, and whatever else holds for one moment."""
OWN = "private, no-cache"
MOST_SECONDS = 3600
"""However far off the next closing is, as a survey may be ended early."""
PROVISIONAL_SECONDS = 60
"""While late reports may still change what is shown."""
OPEN_TO_ALL = {"access-control-allow-origin": "*", "access-control-expose-headers": "content-location, etag"}
"""For answers that hang on no token and no cookie: scripts of any page may read them."""
COMPRESSION = 6
FOR_GOOD_SECONDS = 86_400
"""When all is shown for good."""
KEYS_SECONDS = 60
"""The list of sealing keys: a cache asks a server for it once in that time, however many devices ask the cache."""
request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request that is being answered, which is on the answer and in the log."""
turned_down_so_far = Counter("changeling_turned_down", "Requests that were turned down.", ["reason"], registry=None)
"""How often this process turned a request down. Refused reports are counted in the store, by survey."""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_log = logging.getLogger("changeling")
_ROUTER_CODES = {404: ErrorCode.NOT_FOUND, 405: ErrorCode.METHOD_NOT_ALLOWED}
"""Codes for the errors that Starlette itself answers, by status."""


def keep_latest(kept: OrderedDict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    """Put a value last into what is kept of so many at most; of one too many the first goes."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)


def json(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON: of a struct, or of what msgspec encodes. Not a number is null."""
    return Response(msgspec.json.encode(content), status, headers, media_type=JSON)


@dataclass(frozen=True, slots=True)
class PackedFile:
    """Bytes that are given to many as they are, with the same compressed by gzip, and their entity tag."""

    plain: bytes
    packed: bytes
    tag: str
    media_type: str

    @classmethod
    def of(cls, plain: bytes, media_type: str, packed: bytes | None = None) -> Self:
        """A file. packed: the same bytes compressed, where that is done already."""
        return cls(plain, packed or gzip.compress(plain, COMPRESSION, mtime=0), tag_of(plain), media_type)


def tagged(
    request: Request, content: bytes, media_type: str, headers: Mapping[str, str], tag: str | None = None
) -> Response:
    """The answer with some content, or 304 where the sender has it. tag: its entity tag, where that is known."""
    tag = tag or tag_of(content)
    if is_kept(request, tag):
        return Response(status_code=304, headers={**headers, "etag": tag})
    return Response(content, headers={**headers, "etag": tag}, media_type=media_type)


def answer_file(request: Request, file: PackedFile, headers: Mapping[str, str]) -> Response:
    """The answer with a file that any page's scripts may read: compressed, or 304, where the sender takes that."""
    headers, content = {**OPEN_TO_ALL, **headers, "vary": "accept-encoding"}, file.plain
    if "gzip" in request.headers.get("accept-encoding", "") and not is_kept(request, file.tag):
        content, headers["content-encoding"] = file.packed, "gzip"
    return tagged(request, content, file.media_type, headers, file.tag)


def packed(body: bytes) -> Response:
    """An answer of MessagePack or of signed bytes."""
    return Response(body, media_type=MSGPACK)


def turned_down(code: ErrorCode, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a request that is turned down, which is counted; no cache keeps it."""
    turned_down_so_far.labels(code.value).inc()
    unkept = {**(headers or {}), "cache-control": UNKEPT}
    return Response(ErrorAnswer(code, detail).encode(), code.status, unkept, media_type=PROBLEM)


def tag_of(content: bytes) -> str:
    """The entity tag of this content, or of what determines it, with its quotation marks as `ETag` has it."""
    return f'"{blake2b(content, digest_size=16).hexdigest()}"'


def is_kept(request: Request, tag: str) -> bool:
    """True if the sender says, in `If-None-Match`, that it has the content with this tag, so that 304 is enough."""
    asked = request.headers.get("if-none-match", "")
    return asked.strip() == "*" or tag in (each.strip().removeprefix("W/") for each in asked.split(","))


def cache_control(published: StoredSurvey, looked: SnapshotProgress, now: UnixSeconds) -> str:
    """The header of an answer that is made of what is shown of a survey. now: Unix seconds."""
    if not published.public:
        return OWN
    survey = published.survey
    if looked.final >= published.last:
        seconds = FOR_GOOD_SECONDS
    else:
        seconds = PROVISIONAL_SECONDS if looked.final < looked.due else MOST_SECONDS
        coming = min(looked.due + 1, published.last)
        if coming != looked.due:
            due = survey.calendar.time(coming) + survey.skew + survey.spread
            seconds = max(0, min(seconds, floor(due - now)))
    return f"public, max-age={seconds}"


def cache_control_of_keys(offered: SealingKey | None, now: UnixSeconds) -> str:
    """The header of the list of sealing keys. offered: the key in it, None where it is empty. now: Unix seconds."""
    if offered is None:
        return UNKEPT
    return f"public, max-age={max(0, min(KEYS_SECONDS, floor(offered.expires - now)))}"


def _turned_down(_: Request, error: Exception) -> Response:
    assert isinstance(error, TurnedDown)  # noqa: S101
    return turned_down(error.code, error.detail, error.headers)


def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    code = _ROUTER_CODES.get(error.status_code, ErrorCode.MALFORMED)
    headers = {**(error.headers or {})}
    if code is ErrorCode.METHOD_NOT_ALLOWED:  # Starlette names the methods of the first of the path's routes alone
        there = (each for each in request.app.routes if each.matches(request.scope)[0] is not Match.NONE)
        headers["allow"] = ", ".join(sorted({method for route in there for method in route.methods or ()}))
    return turned_down(code, error.detail, headers)


def _not_estimable(_: Request, error: Exception) -> Response:
    return turned_down(ErrorCode.NOT_ESTIMABLE, str(error))


def _come_again(_: Request, error: Exception) -> Response:
    told = isinstance(error, (Overloaded, FoldDied, FoldOver))
    sentence = str(error) if told else "the store cannot be used at the moment"
    return turned_down(ErrorCode.OVERLOADED, sentence, {"retry-after": str(RETRY_AFTER_SECONDS)})


def _failed(_: Request, __: Exception) -> Response:
    _log.error("request %s failed", request_id.get())  # the trace follows
    # uvicorn closes the connection after an exception; who keeps it for the next request must know.
    return turned_down(ErrorCode.FAILED, "the server failed; its log says why", {"connection": "close"})


HANDLERS: dict[Any, Any] = {
    TurnedDown: _turned_down,
    HTTPException: _no_route,
    NotEstimable: _not_estimable,
    AggregatorError: _come_again,
    **dict.fromkeys(NO_ANSWER, _come_again),
    Exception: _failed,
}
"""By the exception that an endpoint raises."""


def answer_to(error: Exception) -> Response:
    """The answer to a request whose endpoint raised this."""
    handler = next(HANDLERS[kind] for kind in type(error).__mro__ if kind in HANDLERS)
    answer: Response = handler(None, error)
    return answer


IPV4_BITS, IPV6_BITS = 24, 48
"""How much of an address names its network."""
_IPV4_MAPPED, _IPV6_LOOPBACK, _IPV4_LOOPBACK = bytes(10) + b"\xff\xff", bytes(15) + b"\1", 127
"""How IPv6 addresses begin that stand for one of IPv4; this machine itself in IPv6, and in the first part of IPv4."""
DAY_SECONDS = 86_400.0
BURST_SECONDS = 20.0
"""A network that was silent may send what it is allowed in so many seconds at once."""
NETWORK = "changeling.network"
"""Where a request's scope holds the network it comes from, if that has limits."""
MOST_NETWORKS = 100_000
"""So many are remembered, those that sent last; each takes some 150 bytes."""


@dataclass(slots=True)
class Bodies:
    """The memory that bodies take which have not arrived whole. size: in bytes."""

    size: int = 0


def network_of(host: str) -> str | None:
    """The network of an address, such as 192.0.2.0/24; None for this machine itself, on which there are no limits.

    What is no address, as a proxy may send it, is in a network of its own name.

    >>> network_of("192.0.2.7"), network_of("::1")
    ('192.0.2.0/24', None)
    """
    try:
        family, packed = socket.AF_INET, socket.inet_pton(socket.AF_INET, host)
    except (OSError, ValueError):
        try:
            family, packed = socket.AF_INET6, socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
        except (OSError, ValueError):
            return host[:64]
        if packed.startswith(_IPV4_MAPPED):
            family, packed = socket.AF_INET, packed[len(_IPV4_MAPPED) :]
    if packed == _IPV6_LOOPBACK or (family == socket.AF_INET and packed[0] == _IPV4_LOOPBACK):
        return None
    bits = IPV4_BITS if family == socket.AF_INET else IPV6_BITS
    return f"{socket.inet_ntop(family, packed[: bits // 8].ljust(len(packed), bytes(1)))}/{bits}"


class Rates:
    """The limits of all networks.

    most: requests a second of one of them, 0 for any number. clock: seconds of a clock that nobody sets.
    most_a_day: envelopes a day of one of them, 0 for any number.
    """

    def __init__(self, most: int, clock: Callable[[], float], most_a_day: int = 0) -> None:
        self._pause, self._most_a_day, self._clock = 1 / most if most else 0.0, most_a_day, clock
        self._since = clock()
        self._key = os.urandom(32)
        self._sent: OrderedDict[bytes, tuple[float, int]] = OrderedDict()
        """Of each network when all its requests would have been sent at the allowed rate, and its envelopes today."""

    def wait_of(self, network: str, requests: int = 1, envelopes: int = 0) -> float:
        """Count requests and envelopes of a network; returns 0, or for how many seconds they are too early, and are
        not counted.

        More than a burst of requests count as a burst less one: a silent network never sends too much at once.
        """
        now, name = self._clock(), self._name_of(network)
        due, today = self._sent.get(name, (now, 0))
        due = max(due, now) + min(self._pause * requests, BURST_SECONDS - self._pause)
        if (early := due - now - BURST_SECONDS) > 0:
            return early
        if envelopes and 0 < self._most_a_day < today + envelopes:
            return self._since + DAY_SECONDS - now
        keep_latest(self._sent, name, (due, today + envelopes), MOST_NETWORKS)
        return 0.0

    def fine(self, network: str) -> None:
        """Count a burst of requests more, however many there were: the network is silent for as long as that takes."""
        if self._pause:
            now, name = self._clock(), self._name_of(network)
            due, today = self._sent.get(name, (now, 0))
            keep_latest(self._sent, name, (max(due, now) + BURST_SECONDS, today), MOST_NETWORKS)

    def _name_of(self, network: str) -> bytes:
        """Its hash under the key of the day, which begins anew where the last one is over."""
        if (now := self._clock()) - self._since >= DAY_SECONDS:
            self._since, self._key = now, os.urandom(32)
            self._sent.clear()
        return blake2b(network.encode(), key=self._key, digest_size=16).digest()


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
UNNAMED_PROXY = (
    "somebody who is no trusted proxy sends X-Forwarded-For: if that is your proxy, name its address with --proxy, or "
    "in a container the bridge's; until then all whom it speaks for share one limit, or, if it is on this machine, "
    "have none"
)
FROM_ONE_NETWORK = "more comes from your network than this server takes from one without an upload token"
DENIED = {401, 403, 429}
METHODS = {"DELETE", "GET", "HEAD", "POST", "PUT"}
OTHER = "other"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ids = random.Random()  # noqa: S311  # ids name requests and keep no secret; the system's generator costs a tenth of an upload


class Traffic:
    """Counts of one process."""

    def __init__(self) -> None:
        self.upload_bytes = Counter(
            "changeling_upload_bytes", "Bytes of the bodies of uploads, refused ones too.", registry=None
        )
        requests = Counter(
            "changeling_requests", "Requests that were answered.", ["route", "method", "status"], registry=None
        )
        told = "From a request's head to the end of its answer."
        seconds = Histogram("changeling_request_seconds", told, ["route"], buckets=BUCKETS, registry=None)
        self._requests, self._seconds = cache(requests.labels), cache(seconds.labels)
        self.collectors = self.upload_bytes, requests, seconds
        """What Prometheus asks."""
        self.unnamed_proxy = False
        """Whether somebody who is no trusted proxy has spoken for others since the start."""
        self._denied: dict[tuple[str, int], int] = defaultdict(int)
        self._logged: dict[tuple[str, int], float] = {}

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request. status: what was answered, 0 where the sender had gone. seconds: how long it took."""
        # Few routes, whatever is asked for: the path with the names of its parameters.
        route = UPLOADS if scope["path"] == UPLOADS else getattr(scope.get("route"), "path", OTHER)
        method = scope["method"] if scope["method"] in METHODS else OTHER
        self._requests(route, method, status).inc()
        self._seconds(route).observe(seconds)
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


@lru_cache(1)
def _date(second: int) -> bytes:
    """The header `Date` at a Unix time; many answers of a second share it."""
    return formatdate(second, usegmt=True).encode()


class FrontDoor:
    """Middleware before an application.

    clock: Unix seconds, for the date of every answer: devices delay what they would send too early by the time that
    the server shows. rates: of networks, where there is a limit. traffic: counts.
    """

    def __init__(self, app: ASGIApp, clock: Clock, rates: Rates | None, traffic: Traffic) -> None:
        self._app, self._clock, self._rates, self._traffic = app, clock, rates, traffic

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
                date = (b"date", _date(int(self._clock())))
                headers = [*own, date, *SECURITY_HEADERS, (b"x-request-id", id_.encode())]
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
            self._traffic.answered(scope, status, perf_counter() - began)

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
        scope[NETWORK] = network
        wait = self._rates.wait_of(network)
        return turned_down(ErrorCode.TOO_MANY_REQUESTS, FROM_ONE_NETWORK, retry_after(wait)) if wait else None

    def _look_for_unnamed_proxy(self, scope: Scope, peer: str) -> None:
        """Warn once where somebody speaks for others and is not trusted: a trusted proxy's word has become the peer."""
        spoken_for = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
        if peer.encode() not in spoken_for and not self._traffic.unnamed_proxy:
            _log.warning(UNNAMED_PROXY)
            self._traffic.unnamed_proxy = True


def retry_after(wait: float) -> dict[str, str]:
    """The header that says for how many seconds it is too early: an hour at most, as limits may be raised meanwhile."""
    return {"retry-after": str(ceil(min(wait, 3600.0)))}
