"""The short way of an upload: checked where its connection reads it, and answered there once its commit is on disk.

It is open to uploads that nothing is to be said about: they came whole, nobody else is asked about them, and their
envelopes are alike, so that one look tells that none is refused. Any other goes through the application, which checks
it again and says what is wrong.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from time import perf_counter
from typing import Any, TypeAlias

from changeling_protocol.wire import MOST_BODY_BYTES, MSGPACK, encode_acknowledgement
from starlette.types import Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from ..errors import Overloaded
from ..ingest import takes_whole
from ..store.tokens import TokenScope
from .addresses import network_of
from .admission import token_of
from .front_door import REQUEST_ID, Dates, Headers, new_request_id, standing_headers
from .responses import answer_to, request_id
from .service import Service

Answered: TypeAlias = Callable[[bytes, bytes, bool], None]
"""Is given an answer's head, to which headers may be added, its body, and whether it is the connection's last one."""

_log = logging.getLogger("changeling")
_ALL_TAKEN = encode_acknowledgement({})
_OWN = [(b"content-length", b"%d" % len(_ALL_TAKEN)), (b"content-type", MSGPACK.encode())]


class ShortWay:
    """Of all connections of a server. proxies: whom it believes who they speak for, as uvicorn takes them."""

    def __init__(self, service: Service, proxies: Sequence[str]) -> None:
        self._service = service
        self._date = Dates(service.clock)
        self._head_of_taken = lru_cache(maxsize=2)(partial(_head, 200, _OWN))
        self._proxied = ProxyHeadersMiddleware(_nothing, [*proxies]) if proxies else None  # type: ignore[arg-type]

    def submit(
        self, client: tuple[str, int] | None, scheme: str, headers: Headers, body: bytes, answered: Answered
    ) -> bool:
        """Take an upload in; False where it has to go through the application, and nothing has happened yet.

        client, scheme: of the connection. answered: called with the answer, from this event loop.
        """
        service, settings = self._service, self._service.settings
        if settings.admission is not None or len(body) > MOST_BODY_BYTES:
            return False
        if settings.uploads_need_token and not self._shows_token(headers):
            return False
        if self._proxied is not None:
            client, scheme = _believed(self._proxied, client, scheme, headers)
        began = perf_counter()
        if not takes_whole(body, service.registry, service.clock()):
            return False
        network = network_of(client[0]) if client and service.rates else None
        if service.rates and network is not None and service.rates.wait_of(network):
            return False
        loop = asyncio.get_running_loop()
        done = partial(self._done, scheme == "https", len(body), began, answered)
        try:
            service.committer.submit(body, loop, done)
        except Overloaded as error:  # which the application would say, too, and count the request of its network again
            loop.call_soon(done, error)
        return True

    def _shows_token(self, headers: Headers) -> bool:
        shown = next((value for name, value in headers if name == b"authorization"), b"")
        token = token_of(self._service.registry, shown.decode("latin-1"))
        return token is not None and TokenScope.UPLOAD in token.scopes

    def _done(self, secure: bool, size: int, began: float, answered: Answered, error: Exception | None) -> None:
        """Its commit is on disk, or is not. secure: whether the answer goes over TLS. size: of the body."""
        id_, status, content, last = new_request_id(), 200, _ALL_TAKEN, False
        if error is None:
            head = self._head_of_taken(self._date(), secure)
        else:
            request_id.set(id_)
            answer = answer_to(error)
            if answer.status_code == 500:
                _log.error("the trace of request %s", id_, exc_info=error)
            status, content, last = answer.status_code, bytes(answer.body), "connection" in answer.headers
            head = _head(status, answer.raw_headers, self._date(), secure)
        self._service.traffic.uploaded(status, size, perf_counter() - began)
        answered(b"%b%b: %b\r\n" % (head, REQUEST_ID, id_.encode()), content, last)


def _head(status: int, own: Headers, date: bytes, secure: bool) -> bytes:
    """An answer's status and headers."""
    headers = [*own, *standing_headers(date, own, secure)]
    return STATUS_LINE[status] + b"".join(b"%b: %b\r\n" % each for each in headers)


def _believed(
    proxied: ProxyHeadersMiddleware, client: tuple[str, int] | None, scheme: str, headers: Headers
) -> tuple[tuple[str, int] | None, str]:
    """Whom a connection speaks for, and how they came to it."""
    scope: Any = {"type": "http", "client": client, "scheme": scheme, "headers": headers}
    passing = proxied(scope, None, None)  # type: ignore[arg-type]
    try:
        passing.send(None)  # it waits for nothing
    except StopIteration:
        return scope["client"], scope["scheme"]
    raise AssertionError("the headers of proxies are read at once")


async def _nothing(_: Scope, __: Receive, ___: Send) -> None:
    """Stands behind the headers of proxies."""
