"""The HTTP interface: its routes, the endpoints for operators, and running it on a socket with uvicorn.

What holds without a proxy in front: a bound on connections, on what a request may take of memory before its body, on
bodies, and a time-out for a body that does not come. Clients that are slow on purpose are a reverse proxy's to bear.
"""

import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import uvicorn
from changeling_protocol import Survey, UnixSeconds, format_instant
from changeling_protocol.wire import (
    ALIVE,
    CLOCK,
    DOCUMENT,
    EDITIONS,
    END,
    FOLD,
    JSON,
    KEYS,
    READY,
    STATUS,
    SURVEYS,
    UPLOADS,
    ErrorCode,
    survey_path,
)
from msgspec import UNSET, UnsetType
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..errors import AggregatorError, TurnedDown
from ..logs import log_failure
from ..store import TokenScope
from . import openapi, page, publishing, results
from .answers import PublishedNode
from .health import Severity, Trouble, status_of, troubles_of
from .http import HANDLERS, UNKEPT, FrontDoor, json
from .openapi import Body, Count, Described, HexId, Instant, Period
from .requests import Uploads, asked_by, may, read_body, require, require_reader, service_of, survey_in_path
from .service import Service
from .shown import ShownSurvey

MOST_JSON_BYTES = 1024
_log = logging.getLogger("changeling")
_UNKEPT = {"cache-control": UNKEPT}


class HeardAt(Body):
    """How many entries were heard at a closing, and how many of them had enrolled since the one before."""

    period: Period
    heard: Count
    new: Count


class SurveyStatus(Body):
    """How far a survey is; the last four are for operators.

    most_from_network: so many entries one network without an upload token can add to a closing; null for any number.
    any_taken: whether anything of it was counted, shown or not, or waits to be.
    """

    survey: HexId
    question: str
    epsilon: float
    minimum: Count
    closed_periods: Count
    shown_periods: Count
    final_periods: Count
    last_period: Period
    revision: Count
    nodes: list[PublishedNode]
    closings: list[HeardAt]
    most_from_network: Count | None
    refused: dict[str, Count] | UnsetType = UNSET
    last_fold: Instant | UnsetType | None = UNSET
    unfolded_requests: Count | UnsetType = UNSET
    any_taken: bool | UnsetType = UNSET


class Folded(Body):
    """The result of a fold."""

    envelopes: Count
    reports: Count
    refused: dict[str, Count]


class ClockTime(Body):
    """A time, in Unix seconds."""

    time: float


class Alive(Body):
    """A process that answers."""

    alive: bool


class Readiness(Body):
    """The troubles of a server; fold_age: since the last whole fold, in seconds."""

    status: Severity
    troubles: list[Trouble]
    fold_age: float
    fold_failures: Count


@Described(gives={200: {JSON: SurveyStatus}}, scope=TokenScope.READ, open_too=True)
def show_status(request: Request) -> Response:
    """GET …/status: how far a survey is, and of each node that is shown how many reports; operators see more.

    Without a token for operating, one with the scope fold, nothing in it depends on an envelope's content but what
    snapshots show. Else whoever sends an envelope again, once or a thousand times, could read from a counter what is
    sealed in it.
    """
    service, published = service_of(request), survey_in_path(request)
    require_reader(request, published)
    survey, shown = published.survey, service.showing.of(published)
    status = SurveyStatus(
        survey=survey.id.hex(),
        question=asked_by(survey),
        epsilon=float(survey.epsilon),
        minimum=survey.minimum,
        closed_periods=published.closed(service.clock()),
        shown_periods=shown.last,
        final_periods=shown.final,
        last_period=published.last,
        revision=shown.revision,
        nodes=_nodes(survey, shown),
        closings=_heard(shown),
        most_from_network=_most_from_network(survey, service.settings.envelopes_a_day),
    )
    if may(request, TokenScope.FOLD):
        with service.store.view() as view:
            refused, status.unfolded_requests = view.refusals(survey.id), view.log_state().unfolded
            status.any_taken = view.anything_taken(survey.id)
        status.refused = {reason.value: count for reason, count in sorted(refused.items())}
        last = service.folding.last_fold
        status.last_fold = None if last is None else format_instant(last)
    return json(status, headers=_UNKEPT)


def _most_from_network(survey: Survey, a_day: int) -> int | None:
    """An entry takes an envelope to answer a closing, which is taken until its grace is over."""
    days = 1 - -(survey.grace + survey.skew) // 86_400
    return a_day * days or None


def _nodes(survey: Survey, shown: ShownSurvey) -> list[PublishedNode]:
    listed = []
    for (track, number), tally in sorted(shown.tallies().items()):
        node = survey.plan.tracks[track].node(number)
        sealed = node.end <= shown.final
        listed.append(PublishedNode(track=track, start=node.start, end=node.end, reports=tally.reports, sealed=sealed))
    return listed


def _heard(shown: ShownSurvey) -> list[HeardAt]:
    heard: dict[int, HeardAt] = {}
    for (_, period), here in shown.tallies().attendance.items():
        at = heard.setdefault(period, HeardAt(period=period, heard=0, new=0))
        at.heard += here.heard
        at.new += here.new
    return [heard[period] for period in sorted(heard)]


@Described({200: {JSON: Folded}}, scope=TokenScope.FOLD)
def fold_now(request: Request) -> Response:
    """POST: fold to the log's end at once; answers what that did."""
    require(request, TokenScope.FOLD)
    try:
        done = service_of(request).folding.fold_now()
    except AggregatorError as error:
        log_failure(_log, "a fold that was asked for failed", error)
        raise
    refused = {reason.value: count for reason, count in sorted(done.refused.items())}
    return json(Folded(envelopes=done.envelopes, reports=done.reports, refused=refused))


@Described(
    gives={200: {JSON: ClockTime}},
    takes={JSON: ClockTime},
    refuses=(ErrorCode.CONFLICT,),
    scope=TokenScope.FOLD,
)
async def move_clock(request: Request) -> Response:
    """PUT {"time": Unix seconds}: moves a demo's clock forward; confirms a real one, if that is what it shows."""
    require(request, TokenScope.FOLD)
    service = service_of(request)
    confirm: Callable[[UnixSeconds], None] | None = getattr(service.clock, "confirm", None)
    if confirm is None:
        raise TurnedDown(ErrorCode.FORBIDDEN, "this server's clock is the machine's: it needs nobody's word")
    try:
        asked = msgspec.json.decode(await read_body(request, MOST_JSON_BYTES), type=ClockTime)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TurnedDown(ErrorCode.MALFORMED, 'the body is {"time": Unix seconds}') from error
    try:
        confirm(UnixSeconds(asked.time))
    except (ValueError, OverflowError) as error:
        raise TurnedDown(ErrorCode.CONFLICT, f"{error}") from error
    return json(ClockTime(time=service.clock()))


@Described({200: {JSON: Alive}})
async def show_alive(_: Request) -> Response:
    """GET: 200, as this process answers; whether it can do its work is another question."""
    return json(Alive(alive=True))


@Described({200: {JSON: Readiness}, 503: {JSON: Readiness}})
async def show_ready(request: Request) -> Response:
    """GET: what is wrong, each with its name, 503 where that is bad; and how old the last whole fold is, in seconds."""
    service = service_of(request)
    troubles = troubles_of(service)
    worst = status_of(troubles)
    content = Readiness(
        status=worst,
        troubles=troubles,
        fold_age=round(service.folding.age, 1),
        fold_failures=service.folding.failures,
    )
    return json(content, 503 if worst is Severity.BAD else 200, _UNKEPT)


DRAIN_SECONDS = 10
MOST_CONNECTIONS = 4096
"""With so many open connections, if a process may have so many files, requests are answered 503."""
OTHER_FILES = 256
"""So many files are left for what is no connection."""
MOST_HEAD_BYTES = 64 * 2**10
"""A connection that sends more without a whole head, or a piece of a body, is closed."""
MOST_PIPELINED = 16
BACKLOG = 2048
KEEP_ALIVE_SECONDS = 5
"""An idle connection is closed then; a proxy that keeps its own for less never meets a closed one."""
_SURVEY = survey_path("{survey}")
ROUTES = [
    Route(SURVEYS, publishing.list_surveys, methods=["GET"]),
    Route(_SURVEY, publishing.fetch_survey, methods=["GET"]),
    Route(_SURVEY, publishing.publish_survey, methods=["PUT"]),
    Route(_SURVEY + END, publishing.fetch_end, methods=["GET"]),
    Route(_SURVEY + END, publishing.end_survey, methods=["PUT"]),
    *(Route(f"{_SURVEY}/{kind}", endpoint, methods=["GET"]) for kind, endpoint in results.ENDPOINTS.items()),
    Route(_SURVEY + EDITIONS + "/{edition}/{file}", results.show_edition_file, methods=["GET"]),
    Route(_SURVEY + STATUS, show_status, methods=["GET"]),
    Route(KEYS, publishing.list_keys, methods=["GET"]),
    Route(KEYS, publishing.put_key, methods=["PUT"]),
    Route(FOLD, fold_now, methods=["POST"]),
    Route(CLOCK, move_clock, methods=["PUT"]),
    Route(ALIVE, show_alive, methods=["GET"]),
    Route(READY, show_ready, methods=["GET"]),
    Route(DOCUMENT, openapi.show_document, methods=["GET"]),
]


def make_app(service: Service) -> ASGIApp:
    """The application on a service, which starts and closes with it."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            service.close()

    uploads = Uploads(service)
    routes = [Route(UPLOADS, uploads, methods=["POST"]), *ROUTES, *page.ROUTES]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=HANDLERS)
    app.router.redirect_slashes = False  # it would name the host that the request named, and plain HTTP at times
    app.state.service = service

    def uploads_first(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        is_upload = scope["type"] == "http" and scope["path"] == UPLOADS and scope["method"] == "POST"
        return (uploads if is_upload else app)(scope, receive, send)

    return FrontDoor(uploads_first, service.clock, service.rates, service.traffic)


def listen(host: str, port: int, secure: bool = False) -> tuple[socket.socket, str]:
    """A listening socket and its URL; port 0 takes a free one. Raises OSError, which names address and port.

    secure: whether it is for TLS.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise OSError(f"cannot listen on {host}, port {port}: {os.strerror(error.errno or 0)}") from error
    shown = f"[{host}]" if family == socket.AF_INET6 else host
    return listening, f"http{'s' if secure else ''}://{shown}:{listening.getsockname()[1]}"


def make_server(
    app: ASGIApp, proxies: Sequence[str] = (), certificate: Path | None = None, key: Path | None = None
) -> uvicorn.Server:
    """The server of an application; `run(sockets=[…])` serves until told to stop, then drains.

    proxies: addresses, or networks of them, of trusted reverse proxies, whose `X-Forwarded-For` is believed.
    certificate, key: PEM files, for TLS without a proxy.
    """
    fast = sys.platform != "win32"
    config = uvicorn.Config(
        app,
        loop="uvloop" if fast else "asyncio",
        http=BoundedHttp,
        ws="none",
        lifespan="on",
        log_config=None,  # its own would close whatever handlers this process has
        log_level="error",  # what strangers send is counted, and fills no log
        access_log=False,  # access logs would hold addresses
        date_header=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        ssl_certfile=certificate,
        ssl_keyfile=key,
        backlog=BACKLOG,
        limit_concurrency=min(MOST_CONNECTIONS, _most_files() - OTHER_FILES),
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    return uvicorn.Server(config)


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's protocol, with a bound on what httptools keeps in memory that is no body: it has none of its own."""

    _kept = _begun = 0
    """How many bytes came since a head was whole, or a piece of a body came; how many requests began in one read."""

    def data_received(self, data: bytes) -> None:
        """Reads on, as long as what comes is bounded."""
        self._kept, self._begun = self._kept + len(data), 0
        super().data_received(data)
        if self._kept > MOST_HEAD_BYTES:
            self.transport.abort()

    def on_message_begin(self) -> None:
        """The first bytes of a request."""
        self._begun += 1
        if self._begun > MOST_PIPELINED:
            raise ValueError("too many requests at once")  # which uvicorn answers 400
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._kept = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._kept = 0
        super().on_body(body)


def _most_files() -> int:
    """How many files this process may have open: as many as it may allow itself."""
    if sys.platform == "win32":
        return MOST_CONNECTIONS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else soft
