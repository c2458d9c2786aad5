"""Exchanges with one server: a request and its answer, by a deadline, and ended by any thread at once.

An HTTP library bounds each read, not their sum, and nobody can call one off from outside. So each exchange runs in a
daemon thread and over a connection of its own, and who asked waits until the deadline. An exchange that is ended has
its socket shut down, and its thread follows. Only while a name is looked up or a connection made is there none to shut:
such a thread is left to itself, and nothing else is asked until it is through. No caller and no process that ends waits
for one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any

from changeling_protocol.wire import MOST_BODY_BYTES, MSGPACK

from .errors import ServerTrouble
from .obstacles import Obstacle
from .route import Route

if TYPE_CHECKING:
    import socket

    import httpx

MOST_CONNECT_SECONDS = 10.0
"""How long a connection may take to be made; it bounds how long a thread that cannot be ended stays."""
_FAREWELL_SECONDS = 0.1
"""How long to wait for the thread of an exchange that is over. With a socket to shut, it takes a millisecond."""
_BOTH_WAYS = 2
"""socket.SHUT_RDWR, without an import of `socket`, which would cost every start of an app."""
_HEADERS = (
    ("user-agent", "changeling"),
    ("accept-encoding", "identity"),
    ("cache-control", "no-cache, no-store"),
    ("connection", "close"),
)
"""Sent with every request, in this order. Nothing in them, nor in what an upload adds, tells devices apart."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment by the monotonic clock, which nobody sets: what is not done by then is given up.

    at: in seconds of `time.monotonic`.
    """

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The moment so many seconds from now."""
        return cls(monotonic() + seconds)

    def share(self, of: int) -> Deadline:
        """A moment by which no more than one part of what is left is over, of so many."""
        return Deadline.after(self.left() / of)

    def left(self) -> float:
        """How many seconds are left, as far as a lock can count; 0 if it is over."""
        return min(max(0.0, self.at - monotonic()), threading.TIMEOUT_MAX)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered.

    status: of HTTP. headers: their names in any case. body: empty unless the status is 200.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class Exchanges:
    """Exchanges with the server at the end of a route, one at a time; threads may share it, and take turns.

    A process that forks leaves its exchanges to the parent: the child uses none of its connections.
    """

    _call: _Call | None
    _http: httpx.Client | None

    def __init__(self, route: Route) -> None:
        self._route = route
        self._closed = False
        self._begin()

    def ask(self, method: str, path: str, body: bytes | None, deadline: Deadline) -> Answer:
        """Sends a request, and returns the answer, whatever its status.

        path: behind the server's base URL. body: an upload, in MessagePack, or None.
        Raises ServerTrouble if there is no answer by the deadline, or none that can be used.
        """
        self._begin_if_forked()
        turn = self._turn
        if not turn.acquire(timeout=deadline.left()):
            raise ServerTrouble("another exchange with the server took all the time", Obstacle.HANGING)
        try:
            if deadline.left() == 0:
                raise ServerTrouble("no time was left to ask the server", Obstacle.ENDED)
            call = self._begun(method, path, body, deadline)
            try:
                return call.wait(deadline)
            finally:
                if call.is_through():
                    self._call = None
        finally:
            turn.release()

    def interrupt(self) -> None:
        """Ends the exchange under way, if there is one. Returns at once."""
        self._begin_if_forked()
        if (call := self._call) is not None:
            call.end(_ended())

    def close(self) -> None:
        """Ends the exchange under way, and lets no other begin. Returns within a tenth of a second."""
        self._closed = True
        self.interrupt()
        call, http = self._call, self._http
        if http is not None and (call is None or call.is_through()):
            self._http = None
            http.close()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._turn = threading.Lock()
        self._call = None
        self._http = None

    def _begin_if_forked(self) -> None:
        """In a child: a thread of the parent's may hold its lock for ever, and its sockets must not be shut down."""
        if self._process != os.getpid():
            self._begin()

    def _begun(self, method: str, path: str, body: bytes | None, deadline: Deadline) -> _Call:
        if self._call is not None and not self._call.is_through():
            raise ServerTrouble("an earlier exchange with the server still hangs", Obstacle.HANGING)
        call = _Call(lambda call: self._send(call, method, path, body, deadline), self._route.origin)
        self._call = call  # from here on who closes will find it
        if self._closed:
            self._call = None
            raise _ended()
        try:
            call.start()
        except RuntimeError:  # the interpreter ends, or there are threads enough
            self._call = None
            raise ServerTrouble("no thread can be started to ask the server", Obstacle.ENDED) from None
        return call

    def _send(self, call: _Call, method: str, path: str, body: bytes | None, deadline: Deadline) -> Answer:
        import httpx

        if self._http is None:
            self._http = self._route.open()
        left = deadline.left()
        request = httpx.Request(
            method,
            self._route.to(path),
            content=body,
            headers=[*_HEADERS, *(self._upload_headers() if body is not None else ())],
            extensions={
                "timeout": httpx.Timeout(left, connect=min(left, MOST_CONNECT_SECONDS)).as_dict(),
                "trace": call.trace,
            },
        )
        if call.is_over:
            raise _ended()
        response = self._http.send(request, auth=None, follow_redirects=False, stream=True)
        with closing(response):
            content = _content(response, call) if response.status_code == 200 else b""
            return Answer(response.status_code, response.headers, content)

    def _upload_headers(self) -> list[tuple[str, str]]:
        token = self._route.upload_token
        return [("content-type", MSGPACK), *([] if token is None else [("authorization", f"Bearer {token}")])]


class _Call:
    """One exchange under way: the thread that does it, the socket through which it is reached, and its outcome.

    work: does it, and returns the answer; may raise anything. origin: whom it asks, for words about what goes wrong.
    What a signal may interrupt and then call again uses a queue and a lock that allow it.
    """

    def __init__(self, work: Callable[[_Call], Answer], origin: str) -> None:
        self._work, self._origin = work, origin
        self._thread = threading.Thread(target=self._run, name="changeling-exchange", daemon=True)
        self._outcomes: SimpleQueue[Answer | ServerTrouble] = SimpleQueue()  # the first is the one that counts
        self._reaching = threading.RLock()
        self._socket: socket.socket | None = None
        self.is_over = False
        """Whether it was ended, and whatever its thread still does is for nobody."""

    def start(self) -> None:
        """Starts the thread. Raises RuntimeError if there can be none."""
        self._thread.start()

    def wait(self, deadline: Deadline) -> Answer:
        """The answer, once it is there. Raises ServerTrouble if there is none by the deadline or the call is ended."""
        too_slow = ServerTrouble(f"{self._origin} did not answer in time", Obstacle.TOO_SLOW)
        try:
            outcome = self._outcomes.get(timeout=deadline.left())
        except Empty:
            self.end(too_slow)
            outcome = self._outcomes.get()
        except BaseException:  # such as KeyboardInterrupt
            self.end(_ended())
            raise
        if isinstance(outcome, Answer):
            return outcome
        gave_up = outcome.obstacle is Obstacle.UNREACHABLE and deadline.left() == 0  # the socket, at the same moment
        raise too_slow if gave_up else outcome

    def end(self, trouble: ServerTrouble) -> None:
        """Ends the call with this outcome, unless it has one. Returns at once."""
        self._outcomes.put(trouble)
        with self._reaching:
            self.is_over = True
            self._shut_down()

    def is_through(self) -> bool:
        """Whether the thread has ended; it is given a moment to."""
        if self._thread.is_alive():
            self._thread.join(_FAREWELL_SECONDS)
        return not self._thread.is_alive()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Hears from httpcore what happens to the request, and takes hold of the socket as soon as there is one.

        It is a second handle: the first is handed on as TLS begins, and could not be shut down during the handshake.
        """
        if not event.endswith("connect_tcp.complete"):
            return
        reached: socket.socket | None = info["return_value"].get_extra_info("socket")
        if reached is None:  # a transport of the app's without sockets
            return
        with self._reaching:
            self._socket = reached.dup()
            if self.is_over:
                self._shut_down()

    def _run(self) -> None:
        outcome: Answer | ServerTrouble
        try:
            outcome = self._work(self)
        except ServerTrouble as trouble:
            outcome = trouble.with_traceback(None)
        except BaseException as error:  # a transport or a certificate check of the app's may raise what it likes
            outcome = ServerTrouble(f"{self._origin} could not be reached: {_cause(error)}", Obstacle.UNREACHABLE)
        with self._reaching:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
        self._outcomes.put(outcome)

    def _shut_down(self) -> None:
        """Ends every read and write on the connection, now and later, in whichever thread."""
        if self._socket is not None:
            with suppress(OSError):  # the server was quicker
                self._socket.shutdown(_BOTH_WAYS)


def _cause(error: BaseException) -> str:
    """The name of what was raised, with what the operating system or TLS says of it. Other words may hold anything."""
    name, cause = type(error).__name__, error.__cause__ or error.__context__
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    words = getattr(cause, "verify_message", None) or getattr(cause, "strerror", None)
    return f"{name}: {words}" if words else name


def _ended() -> ServerTrouble:
    return ServerTrouble("the exchange with the server was ended", Obstacle.ENDED)


def _content(response: httpx.Response, call: _Call) -> bytes:
    """The body of an answer. Raises ServerTrouble for one that is compressed or too long, or that nobody waits for."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ServerTrouble("the server packed an answer that was to be plain", Obstacle.UNREADABLE)
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            raise ServerTrouble(f"the server's answer is longer than {MOST_BODY_BYTES} bytes", Obstacle.UNREADABLE)
        if call.is_over:
            raise _ended()
    return bytes(body)
