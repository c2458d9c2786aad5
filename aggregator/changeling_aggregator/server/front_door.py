"""What every request passes first: an id for the log, the limit on its network, and what stands on every answer."""

import secrets
from collections.abc import MutableMapping, Sequence
from email.utils import formatdate
from math import ceil
from typing import Any, TypeAlias

from changeling_protocol.wire import ErrorCode
from starlette.types import ASGIApp, Receive, Scope, Send

from .addresses import network_of
from .clock import Clock
from .rates import Rates
from .responses import request_id, turned_down

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
REQUEST_ID = b"x-request-id"
CONTENT_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
"""For answers that bring none of their own."""
TRANSPORT_SECURITY = (b"strict-transport-security", b"max-age=31536000")
"""For answers over TLS."""


def new_request_id() -> str:
    """An id for a request and its answer."""
    return secrets.token_hex(8)


class Dates:
    """The dates of answers: by the server's own clock, as devices delay by the time that it tells them what they would
    send too early. clock: Unix seconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second, self._date = 0, b""

    def __call__(self) -> bytes:
        """The date, written anew once a second."""
        second = int(self._clock())
        if second != self._second or not self._date:
            self._second, self._date = second, formatdate(second, usegmt=True).encode()
        return self._date


def standing_headers(date: bytes, own: Headers, secure: bool) -> Headers:
    """What stands on every answer beside its own headers and its request's id. secure: whether it goes over TLS."""
    policy = [] if any(name == CONTENT_POLICY[0] for name, _ in own) else [CONTENT_POLICY]
    return [(b"date", date), *SECURITY_HEADERS, *policy, *([TRANSPORT_SECURITY] if secure else [])]


class FrontDoor:
    """Stands before an application. clock: as `Dates` takes it. rates: of networks, where there is a limit."""

    def __init__(self, app: ASGIApp, clock: Clock, rates: Rates | None = None) -> None:
        self._app, self._rates, self._date = app, rates, Dates(clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, or says that it is too early."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id_ = new_request_id()
        request_id.set(id_)

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", ())
                standing = standing_headers(self._date(), own, scope["scheme"] == "https")
                message = {**message, "headers": [*own, *standing, (REQUEST_ID, id_.encode())]}
            await send(message)

        wait = self._wait_of(scope)
        app = (
            turned_down(
                ErrorCode.TOO_MANY_REQUESTS,
                "more requests come from your network than this server takes from one",
                {"retry-after": str(ceil(wait))},
            )
            if wait
            else self._app
        )
        await app(scope, receive, with_headers)

    def _wait_of(self, scope: Scope) -> float:
        client = scope.get("client")
        if self._rates is None or client is None:
            return 0.0
        network = network_of(client[0])
        return 0.0 if network is None else self._rates.wait_of(network)
