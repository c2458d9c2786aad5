"""HTTP/1.1 by uvicorn and httptools, with limits on what a client may keep open and make us hold in memory.

httptools itself keeps whatever it is sent: the heads of requests, trailers, pipelined requests. Here nothing but a body
may take more than MOST_HEAD_BYTES, and each wait for a client has an end. Bodies are bounded where they are read.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from changeling_protocol.wire import HTTP_STATUS, PROBLEM, ErrorAnswer, ErrorCode
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from .addresses import network_of
from .caching import UNKEPT
from .connections import Connections
from .refusals import Refused, count_refused

MOST_HEAD_BYTES = 32 * 2**10
"""Of a request's head, and of all in one request that is no body. One read, a quarter of a MiB at most, may be more."""
MOST_PIPELINED = 16
HEAD_SECONDS = 10.0
"""A head is whole so long after the connection was opened, or the last answer was given; idle ones are closed then."""
BODY_SECONDS = 70.0
"""A connection whose body is on its way is closed then, if nobody has before: the bound on bodies is `read_body`'s."""
READ_SECONDS = 20.0
"""A client that does not read its answer is waited for so long."""


class GuardedHttp(HttpToolsProtocol):
    """One connection.

    room: where it has its place. is_proxy: whether a host is a proxy of ours, which speaks for many.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        room: Connections,
        is_proxy: Callable[[str], bool],
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._room, self._is_proxy = room, is_proxy
        self.network: str | None = None
        self._bodiless_bytes = 0
        """How many bytes have come since a head was whole, or a piece of a body came."""
        self._moved_on = False
        self._whole = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes it in, if there is room."""
        super().connection_made(transport)
        host = self.client[0] if self.client else ""
        self.network = None if self._is_proxy(host) else network_of(host)
        if self._room.enter(self):
            self._room.wait(self, HEAD_SECONDS)
        else:
            count_refused(Refused.NO_ROOM)
            self._refuse(ErrorCode.OVERLOADED, "this server has no room for another connection: come again later")

    def connection_lost(self, exc: Exception | None) -> None:
        """Gives up its place."""
        self._room.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads on, as long as what comes is bounded."""
        self._moved_on = False
        super().data_received(data)
        self._bodiless_bytes = 0 if self._moved_on else self._bodiless_bytes + len(data)
        if self._bodiless_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            count_refused(Refused.HEAD_TOO_LONG)
            self._refuse(ErrorCode.HEAD_TOO_LARGE, f"the head of a request has at most {MOST_HEAD_BYTES} bytes")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """What was sent is no request."""
        count_refused(Refused.NOT_HTTP)
        self._refuse(ErrorCode.MALFORMED, "this is no HTTP/1.1, or too many requests at once")

    def on_message_begin(self) -> None:
        """The first bytes of a request."""
        if len(self.pipeline) >= MOST_PIPELINED:
            raise ValueError("too many requests at once")
        if self.cycle is not None:
            self._room.wait(self, HEAD_SECONDS)
        self._whole = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; what follows a body is let go."""
        if self.scope.get("path") is None:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._moved_on = True
        self._room.wait_on(self, BODY_SECONDS)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._moved_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole: now it is the server that is waited for."""
        self._whole = True
        if self.cycle.response_complete:
            self._room.wait(self, HEAD_SECONDS)
        else:
            self._room.serve(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is given: now it is the client's turn, unless it has asked on already."""
        if not self.pipeline:
            self._room.wait(self, HEAD_SECONDS)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        self._room.wait(self, READ_SECONDS)
        super().pause_writing()

    def resume_writing(self) -> None:
        """It has read."""
        if self.cycle is None or self.cycle.response_complete or not self._whole:
            self._room.wait_on(self, HEAD_SECONDS)
        else:
            self._room.serve(self)
        super().resume_writing()

    def end(self) -> None:
        """Close it, at once where it had its chance to hear the end."""
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _refuse(self, code: ErrorCode, detail: str) -> None:
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()
            return
        body = ErrorAnswer(code, detail).encode()
        head = f"HTTP/1.1 {HTTP_STATUS[code]} \r\ncontent-type: {PROBLEM}\r\ncontent-length: {len(body)}\r\n"
        head += f"cache-control: {UNKEPT}\r\n"
        self.transport.write(f"{head}connection: close\r\n\r\n".encode() + body)
        self.transport.close()
