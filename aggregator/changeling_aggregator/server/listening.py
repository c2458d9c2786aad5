"""Running the application on a socket, with uvicorn."""

import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

import uvicorn
from starlette.types import ASGIApp

from .addresses import among
from .app import make_app
from .connections import Connections
from .guarded_http import GuardedHttp
from .service import Service
from .short_http import ShortHttp
from .short_way import ShortWay

DRAIN_SECONDS = 10
MOST_CONNECTIONS = 4096
"""The most connections of one process, if it may have so many files open."""
SHARE = 8
"""One network has at most this part of them."""
OTHER_FILES = 256
"""So many files are left for what is no connection."""
SWEEP_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Front:
    """What stands between the server and those who call it.

    proxies: addresses, or networks of them, of proxies that are believed who they speak for. certificate, key: PEM
    files, for TLS without a proxy. Raises ValueError for what is no address.
    """

    proxies: Sequence[str] = ()
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        among(self.proxies)


def listen(host: str, port: int, secure: bool = False) -> tuple[socket.socket, str]:
    """A listening socket and its URL; port 0 takes a free one. Raises OSError, which names address and port.

    secure: whether it is for TLS.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise OSError(f"cannot listen on {host}, port {port}: {os.strerror(error.errno or 0)}") from error
    shown = f"[{host}]" if family == socket.AF_INET6 else host
    return listening, f"http{'s' if secure else ''}://{shown}:{listening.getsockname()[1]}"


def make_server(service: Service, front: Front = Front()) -> uvicorn.Server:
    """The server of a service; `run(sockets=[…])` serves until told to stop, then drains."""
    connection = partial(ShortHttp, short_way=ShortWay(service, front.proxies))
    return server_of(make_app(service), front, connection)


def server_of(
    app: ASGIApp, front: Front = Front(), connection: Callable[..., GuardedHttp] = GuardedHttp
) -> uvicorn.Server:
    """What runs an application within the limits of this module, as `make_server` does. connection: makes each."""
    fast = sys.platform != "win32"
    most = min(MOST_CONNECTIONS, _most_files() - OTHER_FILES)
    room = Connections(most, max(1, most // SHARE), monotonic)

    async def sweep() -> None:
        room.end_overdue()

    config = uvicorn.Config(
        app,
        loop="uvloop" if fast else "asyncio",
        http=partial(connection, room=room, is_proxy=among(front.proxies)),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_level="error",  # what strangers send is counted, and fills no log
        access_log=False,  # access logs would hold addresses
        date_header=False,
        server_header=False,
        proxy_headers=bool(front.proxies),
        forwarded_allow_ips=list(front.proxies),
        ssl_certfile=front.certificate,
        ssl_keyfile=front.key,
        callback_notify=sweep,
        timeout_notify=SWEEP_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    return uvicorn.Server(config)


def _most_files() -> int:
    """How many files this process may have open: as many as it may allow itself."""
    if sys.platform == "win32":
        return MOST_CONNECTIONS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else soft
