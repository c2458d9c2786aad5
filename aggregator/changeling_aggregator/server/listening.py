"""Running the application on a socket, with uvicorn."""

import ipaddress
import os
import socket
import sys

import uvicorn
from starlette.types import ASGIApp

from .app import make_app
from .service import Service

DRAIN_SECONDS = 10
MOST_CONNECTIONS = 1000
"""The most connections of one process; one more is answered 503. A process may usually have 1,024 files open."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> tuple[socket.socket, str]:
    """A listening socket and its URL; port 0 takes a free one. Raises OSError, which names address and port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise OSError(f"cannot listen on {host}, port {port}: {os.strerror(error.errno or 0)}") from error
    shown = f"[{host}]" if family == socket.AF_INET6 else host
    return listening, f"http://{shown}:{listening.getsockname()[1]}"


def make_server(service: Service) -> uvicorn.Server:
    """The server of a service; `run(sockets=[…])` serves until told to stop, then drains."""
    return server_of(make_app(service))


def server_of(app: ASGIApp) -> uvicorn.Server:
    """What runs an application within the limits of this module, as `make_server` does."""
    fast = sys.platform != "win32"
    config = uvicorn.Config(
        app,
        loop="uvloop" if fast else "asyncio",
        http="httptools",
        lifespan="on",
        log_level="warning",
        access_log=False,  # access logs would hold addresses
        date_header=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    return uvicorn.Server(config)
