"""Sends uploads to a server on many connections, at little cost to the processor that both share.

A process of its own: python -m benchmarks.server_load PORT BODIES SECONDS CONNECTIONS RATE. BODIES: a file of request
bodies, each after its length as four bytes. RATE: requests a second, each sent when it is due and timed from then; 0
sends the next as soon as the last is answered. Prints a JSON object. Without arguments it is a Starlette endpoint that
only reads the body, which a server's appends are measured against, and prints its port.
"""

import json
import selectors
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from changeling_protocol.wire import MSGPACK, UPLOADS

_HEAD = f"POST {UPLOADS} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {MSGPACK}\r\ncontent-length: {{}}\r\n\r\n"
_PIECE = 2**18


@dataclass(slots=True)
class _Connection:
    """One of many; an answer is taken for whole once it has the length that its head states."""

    socket: socket.socket
    waiting: memoryview = field(default_factory=lambda: memoryview(b""))
    answer: bytes = b""
    due: float = 0.0


def write_bodies(path: Path, bodies: list[bytes]) -> None:
    """The file that the program reads."""
    path.write_bytes(b"".join(struct.pack(">I", len(each)) + each for each in bodies))


def _requests(path: Path) -> Iterator[bytes]:
    content, requests, at = path.read_bytes(), [], 0
    while at < len(content):
        (size,) = struct.unpack_from(">I", content, at)
        requests.append(_HEAD.format(size).encode() + content[at + 4 : at + 4 + size])
        at += 4 + size
    return cycle(requests)


def main(port: int, bodies: Path, seconds: float, connections: int, rate: float) -> None:
    requests = _requests(bodies)
    selector = selectors.EpollSelector()
    idle: deque[_Connection] = deque()
    for _ in range(connections):
        made = socket.create_connection(("127.0.0.1", port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setblocking(False)
        idle.append(_Connection(made))
        selector.register(made, selectors.EVENT_READ, idle[-1])
    latencies: list[float] = []
    other = 0
    begin = time.perf_counter()
    end, sent = begin + seconds, 0
    while (now := time.perf_counter()) < end or len(idle) < connections:
        while idle and now < end and (not rate or begin + sent / rate <= now):
            connection = idle.popleft()
            connection.due = begin + sent / rate if rate else now
            sent += 1
            connection.waiting = memoryview(next(requests))
            _send(selector, connection)
        pause = max(0.0, begin + sent / rate - now) if rate and idle else 0.1
        for key, events in selector.select(min(pause, 0.1)):
            connection = key.data
            if events & selectors.EVENT_WRITE:
                _send(selector, connection)
            if events & selectors.EVENT_READ and (status := _answered(connection)) is not None:
                latencies.append(time.perf_counter() - connection.due)
                other += status != b"200"
                idle.append(connection)
        if now > end + 20:
            break
    took = time.perf_counter() - begin
    latencies.sort()
    at = {name: latencies[int(share * len(latencies))] for name, share in (("p50", 0.5), ("p99", 0.99))}
    print(json.dumps({"requests": len(latencies), "other": other, "rate": len(latencies) / took, **at}))


def _send(selector: selectors.BaseSelector, connection: _Connection) -> None:
    try:
        sent = connection.socket.send(connection.waiting)
    except BlockingIOError:
        sent = 0
    blocked = bool(connection.waiting)
    connection.waiting = connection.waiting[sent:]
    if connection.waiting:
        selector.modify(connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
    elif blocked and selector.get_key(connection.socket).events & selectors.EVENT_WRITE:
        selector.modify(connection.socket, selectors.EVENT_READ, connection)


def _answered(connection: _Connection) -> bytes | None:
    """The status of an answer that is whole; None while it is not."""
    try:
        piece = connection.socket.recv(_PIECE)
    except BlockingIOError:
        return None
    if not piece:
        raise ConnectionError("the server closed a connection")
    answer = connection.answer + piece
    head, there, rest = answer.partition(b"\r\n\r\n")
    stated = head.lower().partition(b"content-length: ")[2]
    if not there or len(rest) < int(stated.partition(b"\r")[0] or 0):
        connection.answer = answer
        return None
    connection.answer = b""
    return answer[9:12]


def serve() -> None:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def read(request: Request) -> Response:
        await request.body()
        return Response(b"read")

    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(listening.getsockname()[1], flush=True)
    app = Starlette(routes=[Route(UPLOADS, read, methods=["POST"])])
    config = uvicorn.Config(app, loop="uvloop", http="httptools", log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    if not sys.argv[1:]:
        serve()
    else:
        main(int(sys.argv[1]), Path(sys.argv[2]), *(float(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])))
