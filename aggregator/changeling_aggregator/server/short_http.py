"""A connection that hands uploads to the short way, and whatever cannot go there to the application.

What the application is given is as it came: until a body has come whole, with one read, nothing is decided.
"""

import asyncio
from typing import Any

from changeling_protocol.wire import UPLOADS

from .guarded_http import GuardedHttp
from .short_way import ShortWay

_PATH = UPLOADS.encode()


class _Waiting:
    """An upload on its short way, as far as uvicorn asks about a request that is not answered yet."""

    __slots__ = ("disconnected", "keep_alive", "response_complete")
    response_started = False
    message_event = asyncio.Event()
    """Nobody waits for it."""

    def __init__(self) -> None:
        self.disconnected = self.response_complete = False
        self.keep_alive = True


class ShortHttp(GuardedHttp):
    """One connection. short_way: where uploads go that may go there."""

    def __init__(self, *arguments: Any, short_way: ShortWay, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._short_way = short_way
        self._pieces: list[bytes] | None = None
        """What has come of the body of an upload that may go the short way."""

    def data_received(self, data: bytes) -> None:
        """Reads on; an upload that has not come whole by then goes the long way."""
        super().data_received(data)
        if self._pieces is not None:
            self._go_on()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if self._may_be_short():
            self._moved_on = True
            self._pieces = []
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self._pieces is None:
            super().on_body(body)
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._pieces is not None:
            cycle = _Waiting()

            def answered(head: bytes, content: bytes, last: bool) -> None:
                self._answer(cycle, head, content, last)

            body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            if self._short_way.submit(self.client, self.scheme or "", self.headers, body, answered):
                self._pieces = None
                self.cycle = cycle  # type: ignore[assignment]
                self._whole = True
                self._room.serve(self)
                return
            self._go_on()
        super().on_message_complete()

    def _may_be_short(self) -> bool:
        """Whether it is an upload as every device sends it, and nothing else is going on here."""
        return (
            self.url == _PATH
            and self.parser.get_method() == b"POST"
            and (self.cycle is None or self.cycle.response_complete)
            and not self.expect_100_continue
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.parser.should_upgrade()
            and not self.flow.write_paused
            and all(name != b"transfer-encoding" for name, _ in self.headers)
        )

    def _go_on(self) -> None:
        """The long way, with what has come."""
        pieces, self._pieces = self._pieces or [], None
        if self.transport.is_closing():
            return
        super().on_headers_complete()
        for piece in pieces:
            super().on_body(piece)

    def _answer(self, cycle: _Waiting, head: bytes, content: bytes, last: bool) -> None:
        cycle.response_complete = True
        if cycle.disconnected or self.transport.is_closing():  # what was sent behind it closes the connection, too
            return
        if not (last or cycle.keep_alive):
            head += b"connection: close\r\n"
        self.transport.write(head + b"\r\n" + content)
        if last or not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()
