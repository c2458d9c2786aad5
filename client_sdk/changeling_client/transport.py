"""The way to one server, and exchanges over it: a request and its answer, by a deadline, ended by any thread at once.

Requests are handed to httpcore, below httpx and what tracing tools patch in it, with the headers listed here and no
others. Nothing that the app has set up for its own requests reaches ours: no cookies, hooks, trace ids or headers, and
no credentials but what it passed for uploads. A transport that the app passes sees them as they are.

Each exchange has a connection of its own, so nothing that a server sends behind an answer is taken for the next one.

An HTTP library bounds each read, not their sum, and nobody can call one off from outside. So each exchange runs in a
daemon thread, and who asked waits until the deadline. An exchange that is ended has its socket shut down, and its
thread follows. Only while a name is looked up or a connection made is there none to shut: such a thread is left to
itself, and nothing else is asked until it is through. No caller and no process that ends waits for one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from changeling_protocol import wire
from changeling_protocol.wire import MOST_BODY_BYTES, MSGPACK

from .errors import ServerTrouble
from .store import Forks, survive

if TYPE_CHECKING:
    import socket
    import ssl

    import httpcore
    import httpx

PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
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
)
"""Sent with every request, in this order. Nothing in them, nor in what an upload adds, tells devices apart."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The way to a server.

    url: its base URL; HTTPS, or on loopback.
    transport: sends our requests in place of httpx's own; it is closed with the client.
    proxy: the URL of a proxy for all requests; None goes by the environment, but never to a server on this machine.
    verify: whether certificates are checked, or the context that checks them.
    upload_token: shown with uploads, and with nothing else; None for none.
    Raises ValueError for a URL or a token that will not do, or for a proxy beside a transport.
    """

    url: str
    transport: httpx.BaseTransport | None = None
    proxy: str | None = None
    verify: ssl.SSLContext | bool = True
    upload_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_server(self.url)
        token = self.upload_token
        if token is not None and not (token and all("!" <= sign <= "~" for sign in token)):
            raise ValueError("the upload token must be the server's own text: printable ASCII, without spaces")
        if self.proxy is not None:
            _check_proxy(self.proxy)
            if self.transport is not None:
                raise ValueError("a transport of the app's own goes through no proxy of ours: pass one of the two")

    @property
    def origin(self) -> str:
        """Scheme, host and port, for words about the server."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def open(self) -> httpcore.ConnectionPool | _AppTransport:
        """A new way to send requests there, over one connection at a time. Imports httpcore."""
        if self.transport is not None:
            return _AppTransport(self.transport)
        import httpcore

        limits: dict[str, Any] = {"max_connections": 1, "ssl_context": self._context()}
        proxy = self._proxy()
        if proxy is None:
            return httpcore.ConnectionPool(**limits)
        parts = urlsplit(proxy)
        auth = (unquote(parts.username).encode(), unquote(parts.password or "").encode()) if parts.username else None
        kind = httpcore.SOCKSProxy if parts.scheme.startswith("socks") else httpcore.HTTPProxy
        return kind(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", auth, **limits)

    def _proxy(self) -> str | None:
        """The proxy to go through: the one that was passed, or the environment's; None for none."""
        if self.proxy is not None or is_loopback(self.url):
            return self.proxy
        from urllib.request import getproxies, proxy_bypass

        parts, proxies = urlsplit(self.url), getproxies()
        found = proxies.get(parts.scheme) or proxies.get("all")
        if not found or proxy_bypass(parts.netloc):
            return None
        return found if "://" in found else f"http://{found}"

    def _context(self) -> ssl.SSLContext:
        """The context that checks the server's certificate."""
        import ssl

        if isinstance(self.verify, ssl.SSLContext):
            return self.verify
        if not self.verify or urlsplit(self.url).scheme == "http":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without loading authorities, which takes 40 ms
            if not self.verify:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            return context
        told = {} if is_loopback(self.url) else os.environ
        file, folder = told.get("SSL_CERT_FILE"), told.get("SSL_CERT_DIR")
        if not (file or folder):
            import certifi

            file = certifi.where()
        return ssl.create_default_context(cafile=file, capath=folder)


class _AppTransport:
    """A transport of the app's own, called as httpx calls it, or its successor httpx2 if it is one of that."""

    def __init__(self, transport: httpx.BaseTransport) -> None:
        self._transport = transport
        of = {base.__module__.partition(".")[0] for base in type(transport).__mro__}
        self._library = "httpx2" if "httpx2" in of else "httpx"

    def close(self) -> None:
        """Keeps the app's own open: it is closed with the client."""

    def handle_request(self, request: httpcore.Request) -> httpcore.Response:
        """Hands it the request, and returns what it answers."""
        from importlib import import_module

        import httpcore

        url = request.url.scheme + b"://" + dict(request.headers)[b"Host"] + request.url.target
        content = b"".join(request.stream) or None  # type: ignore[arg-type]
        sent = import_module(self._library).Request(
            request.method.decode(),
            url.decode(),
            headers=request.headers,
            content=content,
            extensions=request.extensions,
        )
        answer = self._transport.handle_request(sent)
        body = answer.content if answer.is_stream_consumed else answer.stream
        return httpcore.Response(answer.status_code, headers=answer.headers.raw, content=body)


def is_loopback(url: str) -> bool:
    """True if a URL's host is this machine."""
    return wire.is_loopback(urlsplit(url).hostname or "")


def _check_server(url: str) -> None:
    parts = urlsplit(url)
    _ = parts.port  # raises ValueError where it is no number
    if not all("!" <= sign <= "~" for sign in url):
        raise ValueError(f"the server's URL must be ASCII, with its name as xn--…, got {url!r}")
    if parts.username or parts.password:
        raise ValueError("the server's URL must not hold credentials")
    if parts.query or parts.fragment or not parts.hostname or parts.scheme not in ("https", "http"):
        raise ValueError(f"the server's URL must be like https://host/path, got {url!r}")
    if parts.scheme == "http" and not is_loopback(url):
        raise ValueError(f"the server's URL must be https, but on loopback, got {url!r}")


def _check_proxy(url: str) -> None:
    """Checks a proxy's URL. It may hold credentials, which are the proxy's alone, so no error repeats it."""
    parts = urlsplit(url)
    if parts.scheme not in PROXY_SCHEMES or not parts.hostname:
        raise ValueError(f"the proxy's URL must be like http://host:port, with one of {', '.join(PROXY_SCHEMES)}")


def _left(deadline: float) -> float:
    """The seconds that are left until a moment of the monotonic clock, as far as a lock can count; 0 if it is over."""
    return min(max(0.0, deadline - monotonic()), threading.TIMEOUT_MAX)


class NetworkTime:
    """The time that the network may take, in all exchanges together. What a device does in between is not counted.

    seconds: how long. whole: what this is a share of.
    """

    def __init__(self, seconds: float, whole: NetworkTime | None = None) -> None:
        self._seconds, self._whole = seconds, whole

    def share(self, of: int) -> NetworkTime:
        """One part of what is left, of so many; what is spent of it is spent of the whole."""
        return NetworkTime(self._seconds / of, self)

    @contextmanager
    def spent(self) -> Iterator[float]:
        """Counts the time that the block takes. Yields the moment of the monotonic clock by which it has to be over."""
        began = monotonic()
        try:
            yield began + self._seconds
        finally:
            self._spend(monotonic() - began)

    def _spend(self, seconds: float) -> None:
        self._seconds -= seconds
        if self._whole is not None:
            self._whole._spend(seconds)


@dataclass(frozen=True, slots=True)
class Response:
    """A server's answer.

    status: of HTTP. headers: their names in small letters. body: empty unless the status is 200.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class Exchanges(Forks):
    """Exchanges with one server, one at a time: who asks holds the lock of who reports. Any thread may end them.

    A process that forks leaves its exchanges to the parent: the child uses none of its connections.
    """

    _call: _Call | None
    _http: httpcore.ConnectionPool | _AppTransport | None

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._closed = False
        self._call = self._http = None
        survive(self)

    def ask(self, method: str, path: str, body: bytes | None, deadline: float, before: Callable[[], None]) -> Response:
        """Sends a request, and returns the answer, whatever its status.

        path: behind the server's base URL. body: an upload, in MessagePack, or None. deadline: by the monotonic clock.
        before: called when nothing stands in the way of a request any more; if it raises, none is sent.
        Raises ServerTrouble if there is no answer by the deadline, or none that can be used.
        """
        if _left(deadline) == 0:
            raise ServerTrouble("no time was left to ask the server", is_failure=False)
        if self._call is not None and not self._call.is_through():
            raise ServerTrouble("an earlier exchange with the server still hangs", is_failure=False)
        before()
        call = _Call(lambda call: self._send(call, method, path, body), self._endpoint.origin, deadline)
        self._call = call  # from here on who closes will find it
        if self._closed:
            call.end(_ended())
        return call.outcome()

    def close(self) -> None:
        """Ends the exchange under way, and lets no other begin. Returns within a tenth of a second."""
        self._closed = True
        if self._call is not None:
            self._call.end(_ended())
        through = self._call is None or self._call.is_through()
        if through and self._http is not None and self._endpoint.transport is not None:
            self._endpoint.transport.close()

    def after_fork(self, in_child: bool) -> None:
        """In a child: the parent's sockets must not be shut down."""
        if in_child:
            self._call = self._http = None

    def _send(self, call: _Call, method: str, path: str, body: bytes | None) -> Response:
        """Makes a connection, and ends it with the answer. One exchange uses what `_http` is at a time."""
        import httpcore

        url, token, seconds = self._endpoint.url.rstrip("/") + path, self._endpoint.upload_token, _left(call.deadline)
        headers = [("Host", urlsplit(url).netloc), *_HEADERS]
        if self._endpoint.transport is not None:  # it may keep what is not ours to end
            headers.append(("connection", "close"))
        if body is not None:
            headers.append(("content-type", MSGPACK))
            if token is not None:
                headers.append(("authorization", f"Bearer {token}"))
            headers.append(("content-length", f"{len(body)}"))
        timeout = {"connect": min(seconds, MOST_CONNECT_SECONDS), "read": seconds, "write": seconds, "pool": seconds}
        request = httpcore.Request(
            method, url, headers=headers, content=body, extensions={"timeout": timeout, "trace": call.trace}
        )
        http = self._http = self._http or self._endpoint.open()
        if call.is_over:
            raise _ended()
        with closing(http), closing(http.handle_request(request)) as response:  # closed, it opens another connection
            told = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reversed(response.headers)
            }
            content = _content(response, told, call) if response.status == 200 else b""
            return Response(response.status, told, content)


class _Call:
    """One exchange under way: the thread that does it, the connection that it goes over, and its outcome.

    work: does it, and returns the answer; may raise anything. origin: the server's, for words about it.
    What a signal may interrupt and then call again uses a queue and a lock that allow it.
    """

    def __init__(self, work: Callable[[_Call], Response], origin: str, deadline: float) -> None:
        self._work, self._origin, self.deadline = work, origin, deadline
        self._thread = threading.Thread(target=self._run, name="changeling-exchange", daemon=True)
        self._outcomes: SimpleQueue[Response | ServerTrouble] = SimpleQueue()  # the first is the one that counts
        self._ending = threading.RLock()
        self._socket: socket.socket | None = None
        self.is_over = False
        """True if it was ended, and whatever its thread still does is for nobody."""

    def outcome(self) -> Response:
        """Begins, and gives the answer once it is there.

        Raises ServerTrouble if there is none by the deadline, or the call is ended.
        """
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter ends, or there are threads enough
            raise ServerTrouble("no thread can be started to ask the server", is_failure=False) from None
        try:
            outcome = self._outcomes.get(timeout=_left(self.deadline))
        except Empty:
            self.end(self._too_slow())
            outcome = self._outcomes.get()
        except BaseException:  # such as KeyboardInterrupt
            self.end(_ended())
            raise
        finally:
            self.is_through()
        if isinstance(outcome, Response):
            return outcome
        raise outcome

    def end(self, trouble: ServerTrouble) -> None:
        """Ends the call with this outcome, unless it has one, and every read and write on its connection, at once."""
        self._outcomes.put(trouble)
        with self._ending:
            self.is_over = True
            self._shut_down()

    def is_through(self) -> bool:
        """True if the thread has ended; it is given a moment to."""
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
        with self._ending:
            self._socket = reached.dup()
            if self.is_over:
                self._shut_down()

    def _shut_down(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # the server was quicker
                self._socket.shutdown(_BOTH_WAYS)

    def _run(self) -> None:
        outcome: Response | ServerTrouble
        try:
            outcome = self._work(self)
        except ServerTrouble as trouble:
            outcome = trouble.with_traceback(None)
        except BaseException as error:  # a transport or a certificate check of the app's may raise what it likes
            outcome = ServerTrouble(f"{self._origin} could not be reached: {_cause(error)}")
            if _left(self.deadline) == 0:  # the socket gave up at the same moment
                outcome = self._too_slow()
        with self._ending:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
        self._outcomes.put(outcome)

    def _too_slow(self) -> ServerTrouble:
        return ServerTrouble(f"{self._origin} did not answer in time")


def _cause(error: BaseException) -> str:
    """The name of what was raised, with what the operating system or TLS says of it. Other words may hold anything."""
    name, cause = type(error).__name__, error.__cause__ or error.__context__
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    words = getattr(cause, "verify_message", None) or getattr(cause, "strerror", None)
    return f"{name}: {words}" if words else name


def _ended() -> ServerTrouble:
    return ServerTrouble("the exchange with the server was ended", is_failure=False)


def _content(response: httpcore.Response, headers: Mapping[str, str], call: _Call) -> bytes:
    """The body of an answer. Raises ServerTrouble for one that is compressed or too long, or that nobody waits for."""
    if headers.get("content-encoding", "identity") != "identity":
        raise ServerTrouble("the server packed an answer that was to be plain")
    body = bytearray()
    for chunk in response.iter_stream():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            raise ServerTrouble(f"the server's answer is longer than {MOST_BODY_BYTES} bytes")
        if call.is_over:
            raise _ended()
    return bytes(body)
