"""A Starlette endpoint that only reads the body: what a server's appends are measured against.

A process of its own: python -m benchmarks.server_empty. Prints its port.
"""

import socket

import uvicorn
from changeling_protocol.wire import UPLOADS
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


async def read(request: Request) -> Response:
    await request.body()
    return Response(b"read")


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(listening.getsockname()[1], flush=True)
    app = Starlette(routes=[Route(UPLOADS, read, methods=["POST"])])
    config = uvicorn.Config(app, loop="uvloop", http="httptools", log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
