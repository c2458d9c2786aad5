"""Servers on loopback that behave badly, each on a real socket in threads of its own.

A behaviour is given one accepted connection, and a `stop` that says when the test is over.
"""

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Behaviour = Callable[[socket.socket, threading.Event], None]


class Loopback:
    """What the test knows of a server: its URL, and the connections and bytes that it has seen."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections = 0
        self.heard: list[bytes] = []
        self.reached = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving(behave: Behaviour) -> Iterator[Loopback]:
    """A server that treats every connection in this way. It is gone, threads and all, when the block ends."""
    stop, opened = threading.Event(), []

    class Treated(socketserver.BaseRequestHandler):
        def handle(self):
            server.connections += 1
            opened.append(self.request)
            with suppress(OSError):
                behave(Recorded(self.request, server), stop)

    class Listener(socketserver.ThreadingTCPServer):
        request_queue_size = 128

        def handle_error(self, *_):
            raise  # what a behaviour has found fails the test

    with Listener(("127.0.0.1", 0), Treated) as listener:
        server = Loopback(listener.server_address[1])
        accepting = threading.Thread(target=listener.serve_forever, args=(0.02,))
        accepting.start()
        try:
            yield server
        finally:
            stop.set()
            listener.shutdown()
            for connection in opened:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class Recorded:
    """A connection whose requests the server keeps."""

    def __init__(self, connection: socket.socket, server: Loopback) -> None:
        self._connection, self._server = connection, server
        self.plain, self.send = connection, connection.sendall

    def over(self, secure: socket.socket) -> None:
        """Goes on over TLS."""
        self._connection, self.send = secure, secure.sendall

    def request(self) -> bytes:
        """Reads one request whole, and returns it."""
        request = b""
        while b"\r\n\r\n" not in request:
            request += self._more()
        head, _, body = request.partition(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        while len(body) < length:
            body += self._more()
        self._server.heard.append(head + b"\r\n\r\n" + body)
        self._server.reached.set()
        return self._server.heard[-1]

    def raw(self) -> bytes:
        """Reads what comes."""
        read = self._more()
        self._server.reached.set()
        return read

    def _more(self) -> bytes:
        read = self._connection.recv(65536)
        if not read:
            raise ConnectionResetError
        return read


def answer(content: bytes = b"", headers: bytes = b"", status: bytes = b"200 OK") -> bytes:
    """A whole answer; each of the headers ends with a line of its own."""
    return b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, headers, len(content), content)


def answering(content: bytes, headers: bytes = b"", status: bytes = b"200 OK") -> Behaviour:
    """Answers every request with this."""

    def behave(connection, _stop):
        while True:
            connection.request()
            connection.send(answer(content, headers, status))

    return behave


def dripping(first: bytes, drop: bytes) -> Behaviour:
    """Begins an answer, and goes on with the same few bytes 50 times a second, for ever."""

    def behave(connection, stop):
        connection.request()
        connection.send(first)
        while not stop.wait(0.02):
            connection.send(drop)

    return behave


def silent(connection, stop) -> None:
    """Reads, and never answers."""
    connection.raw()
    stop.wait(60)


BAD: dict[str, Behaviour] = {
    "never answers": silent,
    "drips headers": dripping(b"HTTP/1.1 200 OK\r\nx-slow: ", b"a"),
    "102 without end": dripping(b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "drips its body": dripping(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n", b"a"),
    "drips chunks": dripping(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
}


@contextmanager
def full_backlog() -> Iterator[str]:
    """The URL of a listening socket that no connection gets through to any more."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(listener.getsockname())
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            for each in waiting:
                each.close()
