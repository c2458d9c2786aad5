"""Clients that do what no honest one does, over bare sockets."""

import re
import socket
from pathlib import Path


def connected(server):
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def answer_of(connection):
    """All that comes until the server closes; nothing more where it does so at once."""
    heard = b""
    try:
        while part := connection.recv(65536):
            heard += part
    except ConnectionError:
        pass
    return heard


def resident(server):
    """Bytes of memory that the server holds."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def push(connection, piece, most):
    """How many bytes of these pieces the server takes."""
    sent = 0
    try:
        while sent < most:
            sent += connection.send(piece)
    except (ConnectionError, TimeoutError):
        pass
    return sent


HOSTILE_HEADS = {
    "many headers": (b"GET /readyz HTTP/1.1\r\nhost: here\r\n", b"name: value\r\n" * 5000),
    "path": (b"GET /", b"x" * 65536),
    "trailers": (
        b"POST /v1/uploads HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n",
        b"name: value\r\n" * 5000,
    ),
    "chunk extensions": (
        b"POST /v1/uploads HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n1;",
        b"x" * 65536,
    ),
    "pipelined": (b"", b"GET /readyz HTTP/1.1\r\nhost: here\r\n\r\n" * 2000),
}


def slow_body(server):
    """A connection on which all of a body has been sent but its last byte."""
    connection = connected(server)
    connection.sendall(b"POST /v1/uploads HTTP/1.1\r\nhost: here\r\ncontent-length: 1048576\r\n\r\n" + bytes(2**20 - 1))
    return connection
