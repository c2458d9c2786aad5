"""What every request passes first: an id for the log, the limit on its network, and what stands on every answer."""

import secrets
from collections.abc import MutableMapping
from email.utils import formatdate
from math import ceil
from time import monotonic
from typing import Any

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
CONTENT_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
"""For answers that bring none of their own."""
TRANSPORT_SECURITY = (b"strict-transport-security", b"max-age=31536000")
"""For answers over TLS."""


class FrontDoor:
    """Stands before an application. clock: the server's own, whose time is on every answer, as devices delay by it what
    they would send too early. requests_a_second: the most from one network, on average; 0 for any number.
    """

    def __init__(self, app: ASGIApp, clock: Clock, requests_a_second: int = 0) -> None:
        self._app, self._clock = app, clock
        self._rates = Rates(requests_a_second, monotonic) if requests_a_second else None
        self._second, self._date = 0, b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, or says that it is too early."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id_ = secrets.token_hex(8)
        request_id.set(id_)

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", ())
                headers = [*own, (b"date", self._shown()), (b"x-request-id", id_.encode()), *SECURITY_HEADERS]
                if all(name != CONTENT_POLICY[0] for name, _ in own):
                    headers.append(CONTENT_POLICY)
                if scope["scheme"] == "https":
                    headers.append(TRANSPORT_SECURITY)
                message = {**message, "headers": headers}
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

    def _shown(self) -> bytes:
        """The date, written anew once a second."""
        second = int(self._clock())
        if second != self._second or not self._date:
            self._second, self._date = second, formatdate(second, usegmt=True).encode()
        return self._date
