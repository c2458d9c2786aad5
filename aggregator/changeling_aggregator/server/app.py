"""The HTTP interface: its routes, and running it on a socket with uvicorn.

What holds without a proxy in front: a bound on connections, on what a request may take of memory before its body, on
bodies, and a time-out for a body that does not come. Clients that are slow on purpose are a reverse proxy's to bear.
"""

import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

import uvicorn
from changeling_protocol.wire import (
    ALIVE,
    CHANGE,
    CLOCK,
    COMPARISON,
    DOCUMENT,
    EDITIONS,
    END,
    FOLD,
    HISTOGRAM,
    KEYS,
    NUMBERS,
    READY,
    SERIES,
    STATUS,
    SURVEYS,
    UPLOADS,
    WINDOWS,
    survey_path,
)
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from . import openapi, operations, page, publishing, results
from .front_door import FrontDoor
from .requests import Uploads
from .responses import HANDLERS
from .service import Service

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
    Route(_SURVEY + HISTOGRAM, results.show_histogram, methods=["GET"]),
    Route(_SURVEY + SERIES, results.show_series, methods=["GET"]),
    Route(_SURVEY + NUMBERS, results.show_numbers, methods=["GET"]),
    Route(_SURVEY + WINDOWS, results.show_windows, methods=["GET"]),
    Route(_SURVEY + CHANGE, results.show_change, methods=["GET"]),
    Route(_SURVEY + COMPARISON, results.show_comparison, methods=["GET"]),
    Route(_SURVEY + EDITIONS + "/{edition}/{file}", results.show_edition_file, methods=["GET"]),
    Route(_SURVEY + STATUS, operations.show_status, methods=["GET"]),
    Route(KEYS, publishing.list_keys, methods=["GET"]),
    Route(KEYS, publishing.put_key, methods=["PUT"]),
    Route(FOLD, operations.fold_now, methods=["POST"]),
    Route(CLOCK, operations.move_clock, methods=["PUT"]),
    Route(ALIVE, operations.show_alive, methods=["GET"]),
    Route(READY, operations.show_ready, methods=["GET"]),
    Route(DOCUMENT, openapi.show_document, methods=["GET"]),
]


@dataclass(frozen=True, slots=True)
class Front:
    """The proxies and certificates between the server and its clients.

    proxies: addresses, or networks of them, of trusted reverse proxies, whose `X-Forwarded-For` is believed.
    certificate, key: PEM files, for TLS without a proxy. Raises ValueError for what is no address.
    """

    proxies: Sequence[str] = ()
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        for each in self.proxies:
            ip_network(each, strict=False)


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


def make_server(app: ASGIApp, front: Front = Front()) -> uvicorn.Server:
    """The server of an application; `run(sockets=[…])` serves until told to stop, then drains."""
    fast = sys.platform != "win32"
    config = uvicorn.Config(
        app,
        loop="uvloop" if fast else "asyncio",
        http=BoundedHttp,
        ws="none",
        lifespan="on",
        log_level="error",  # what strangers send is counted, and fills no log
        access_log=False,  # access logs would hold addresses
        date_header=False,
        server_header=False,
        proxy_headers=bool(front.proxies),
        forwarded_allow_ips=list(front.proxies),
        ssl_certfile=front.certificate,
        ssl_keyfile=front.key,
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
